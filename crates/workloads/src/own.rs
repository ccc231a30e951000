//! Locates Pilotlight's programs that are workloads. Their output is parsed with the structures of this version, so other versions are
//! refused.

use std::path::{Path, PathBuf};

use super::{Missing, program};

/// The required version.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The program `name` in the folder of the running program, where both are built and installed.
pub(super) fn beside(name: &str) -> PathBuf {
    std::env::current_exe().map_or_else(|_| name.into(), |own| own.with_file_name(name))
}

/// Checks that `path` is the program `name`, of this version.
///
/// # Errors
/// It cannot be started, is another program, or has another version.
pub(super) fn version(path: &Path, name: &str) -> Result<String, Missing> {
    let help = format!(
        "Build it with `cargo build --release -p {name}`, or set workload.program{}",
        if name == "pilotlight" { " or --program" } else { "" }
    );
    let output = program::output(path, &["--version"], &help)?;
    let missing = |why: String| Missing { tool: name.into(), why, help: help.clone() };
    let found = output.trim().strip_prefix(name).map(str::trim).filter(|version| version.contains('.'));
    match found {
        Some(VERSION) => Ok(VERSION.into()),
        Some(other) => Err(missing(format!("{} is version {other}, this program is {VERSION}", path.display()))),
        None => Err(missing(format!("{} --version prints {:?}", path.display(), output.trim()))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A script that prints `output`.
    fn script(folder: &Path, output: &str) -> PathBuf {
        let path = folder.join("program");
        std::fs::write(&path, format!("#!/bin/sh\necho '{output}'\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn another_version_or_program_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let check = |output: &str| version(&script(folder.path(), output), "pilotlight").map_err(|m| m.to_string());
        assert_eq!(check(&format!("pilotlight {VERSION}")), Ok(VERSION.into()));
        for (output, expected) in
            [("pilotlight 0.0.9", "is version 0.0.9"), ("pilotlab 0.1.0", "prints \"pilotlab 0.1.0\""), ("", "prints")]
        {
            let message = check(output).unwrap_err();
            assert!(message.contains(expected), "{message}");
            assert!(message.contains("cargo build --release -p pilotlight") && message.contains("--program"));
        }
        let absent = version(&folder.path().join("absent"), "pilotlight").unwrap_err().to_string();
        assert!(absent.contains("cannot be started") && absent.contains("cargo build"), "{absent}");
    }

    #[test]
    fn programs_are_found_beside_the_running_one() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(beside("pilotlight"), own.parent().unwrap().join("pilotlight"));
    }
}
