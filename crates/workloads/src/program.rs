//! Finds tools and their versions.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Missing;

/// Standard output followed by standard error of a program that ends immediately.
///
/// # Errors
/// It cannot be started; the error includes `help`.
pub(crate) fn output<A: AsRef<OsStr>>(program: &Path, arguments: &[A], help: &str) -> Result<String, Missing> {
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| Missing {
        tool: name,
        why: format!("{} cannot be started: {error}", program.display()),
        help: help.into(),
    })?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

/// Looks for a program in `PATH`.
#[must_use]
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// A command line.
pub(crate) fn argv(program: &Path, words: impl IntoIterator<Item = String>) -> Vec<OsString> {
    std::iter::once(program.as_os_str().to_owned()).chain(words.into_iter().map(OsString::from)).collect()
}

/// The first version number in the text, such as `3.33` in `fio-3.33`: digits separated by dots.
pub(crate) fn version_in(text: &str) -> Option<&str> {
    let words = text.split(|c: char| !(c.is_ascii_digit() || c == '.')).map(|word| word.trim_matches('.'));
    words.into_iter().find(|word| word.contains('.'))
}

/// A warning if the adapter was not tested with the tool's version.
pub(crate) fn untested(tool: &crate::record::Tool, tested: &[&str]) -> Option<String> {
    let tested = tested.join(", ");
    (!tool.known).then(|| {
        format!(
            "{} {}: the parser of its output was tested with {tested}, not with this version",
            tool.name, tool.version
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_output() {
        assert_eq!(version_in("fio-3.33\n"), Some("3.33"));
        assert_eq!(version_in("db_bench version 7.8.3\n"), Some("7.8.3"));
        assert_eq!(version_in("pgbench (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some("15.18"));
        assert_eq!(version_in("nothing here."), None);
    }

    #[test]
    fn programs_are_found_in_path() {
        assert!(find("sh").is_some() && find("no-such-program-here").is_none());
    }

    #[test]
    fn a_missing_tool_has_installation_help() {
        let missing = output(Path::new("/nowhere/fio"), &["--version"], "apt install fio").unwrap_err();
        assert_eq!((missing.tool.as_str(), missing.help.as_str()), ("fio", "apt install fio"));
        assert!(missing.why.contains("/nowhere/fio"), "{missing}");
    }
}
