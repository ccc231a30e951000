//! Dependencies of the modules of a crate, as their code names them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Folders whose files are modules of their own.
const FOLDERS: [&str; 4] = ["hosts", "server", "subsystems", "thread"];

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(below).collect()
}

/// The module at these parts of a path: `tcp`, or `hosts/usage`.
fn module(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts.iter().map(|part| part.trim_end_matches(".rs")).collect();
    match parts[..] {
        [folder, file, ..] if FOLDERS.contains(&folder) => format!("{folder}/{file}"),
        [first, ..] => first.to_owned(),
        [] => String::new(),
    }
}

/// The modules that the code of a file names, without comments and unit tests.
fn named(text: &str, known: &BTreeSet<String>) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    let paths = lines.flat_map(|line| line.split("crate::").skip(1)).map(|path| {
        let parts: Vec<&str> = path.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).take(2).collect();
        let deep = module(&parts);
        if known.contains(&deep) { deep } else { parts.first().map_or(String::new(), |first| (*first).to_owned()) }
    });
    paths.filter(|module| known.contains(module)).collect()
}

/// Checks the crate in the folder `manifest`. It has more than `least` modules with that many dependencies among them: otherwise this test has
/// not understood it.
pub(crate) fn assert_no_circle(manifest: &str, least: (usize, usize)) {
    let root = Path::new(manifest).join("src");
    let of = |path: &Path| {
        let parts = path.strip_prefix(&root).expect("below").to_str().expect("a name").split('/').collect::<Vec<_>>();
        (!parts.iter().any(|part| part.starts_with("test") || *part == "lib.rs")).then(|| module(&parts))
    };
    let files: Vec<(String, String)> =
        files(&root).iter().filter_map(|path| Some((of(path)?, fs::read_to_string(path).expect("a text")))).collect();
    let known: BTreeSet<String> = files.iter().map(|(module, _)| module.clone()).collect();
    let mut below: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (module, text) in &files {
        below.entry(module.clone()).or_default().extend(named(text, &known).into_iter().filter(|name| name != module));
    }
    let found = (below.len(), below.values().map(BTreeSet::len).sum::<usize>());
    assert!(found.0 > least.0 && found.1 > least.1, "{found:?}: the code was not understood");
    loop {
        let lowest: Vec<String> =
            below.iter().filter(|(_, below)| below.is_empty()).map(|(name, _)| name.clone()).collect();
        if lowest.is_empty() {
            break;
        }
        for name in lowest {
            below.remove(&name);
            below.values_mut().for_each(|names| _ = names.remove(&name));
        }
    }
    assert!(below.is_empty(), "these modules, or some of them, are in a circle: {below:#?}");
}
