//! Parameters without effect.

use std::path::{Path, PathBuf};

use pilotlight_lab::simulated::{inert, stale as lab_stale};

use crate::stale;

/// A sentence for each parameter without effect in results files.
pub(super) fn sentences(paths: &[PathBuf], home: &Path) -> anyhow::Result<Vec<String>> {
    let mut sentences = Vec::new();
    for path in paths {
        let results = stale::read(path, home)?;
        let bench = if stale::is_of_host(&results.about, home) {
            None
        } else {
            lab_stale::current_experiment(&results.about, home).ok().flatten()
        };
        let found = inert::of_results(&results, bench.as_ref().map(|bench| &bench.experiment));
        sentences.extend(found.iter().map(|inert| format!("{}: {inert}", results.about.experiment)));
    }
    Ok(sentences)
}
