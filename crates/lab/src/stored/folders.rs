//! Where experiments and results of a project are.

use std::path::{Path, PathBuf};

/// The name of a folder of results.
pub const RESULTS: &str = "results";

/// Folders with experiments, in files and subfolders.
pub const EXPERIMENTS: [&str; 2] = ["experiments", "papers"];

/// The existing folders of results: of the project, and beside the experiments of a subfolder.
#[must_use]
pub fn results(home: &Path) -> Vec<PathBuf> {
    let mut folders = vec![home.join(RESULTS)];
    for group in EXPERIMENTS {
        let entries = std::fs::read_dir(home.join(group)).into_iter().flatten().flatten();
        let mut below: Vec<PathBuf> = entries.map(|entry| entry.path().join(RESULTS)).collect();
        below.sort();
        folders.extend(below);
    }
    folders.retain(|folder| folder.is_dir());
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_lie_beside_their_experiments() {
        let home = tempfile::tempdir().unwrap();
        let of = |folder: &str| home.path().join(folder);
        for folder in [
            "results",
            "papers/b/results",
            "papers/a/results/fig1",
            "experiments/c/results",
            "papers/d",
            "docs/results",
        ] {
            std::fs::create_dir_all(of(folder)).unwrap();
        }
        let expected = ["results", "experiments/c/results", "papers/a/results", "papers/b/results"].map(of);
        assert_eq!(results(home.path()), expected);
        assert!(results(&of("docs/results")).is_empty());
    }
}
