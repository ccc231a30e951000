//! Kernel files under a root: `/` for the program, recorded trees for tests.
//!
//! An unreadable file is `None` or empty: it is a finding, not an error.

use std::fs;
#[cfg(test)]
use std::path::Path;
use std::path::PathBuf;
use std::str::FromStr;

use rustix::fs::{Access, access};

/// How permissions are checked.
#[derive(Clone, Copy, Debug)]
enum Rights {
    /// Checks access(2), which considers a read-only mount.
    Ours,
    /// By the mode bits of the owner: recorded trees give the same result for every user.
    #[cfg(test)]
    Recorded,
}

/// Permissions of a process on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    Read,
    Write,
}

/// A root with `sys`, `proc` and `dev` under it.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    root: PathBuf,
    rights: Rights,
}

impl Tree {
    /// This machine's.
    pub(super) fn live() -> Self {
        Self { root: PathBuf::from("/"), rights: Rights::Ours }
    }

    /// A recorded tree.
    #[cfg(test)]
    pub(super) fn recorded(root: &Path) -> Self {
        Self { root: root.to_path_buf(), rights: Rights::Recorded }
    }

    /// The location of the absolute `path`.
    fn resolve(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A file's text without white space around it.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let bytes = fs::read(self.resolve(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// A file's text, if not empty.
    pub(super) fn non_empty_text(&self, path: &str) -> Option<String> {
        self.text(path).filter(|text| !text.is_empty())
    }

    /// The number in a file.
    pub(super) fn number<T: FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// Whether the path exists.
    pub(super) fn has(&self, path: &str) -> bool {
        self.resolve(path).exists()
    }

    /// Names in a directory, `cpu2` before `cpu10`.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.resolve(path)) else { return Vec::new() };
        let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort_by_key(|name| natural(name));
        names
    }

    /// Names in a directory that are `prefix` and a number, as (name, number), in the numbers' order.
    pub(super) fn numbered(&self, path: &str, prefix: &str) -> Vec<(String, u32)> {
        let number = |name: String| {
            let number = name.strip_prefix(prefix)?.parse().ok()?;
            Some((name, number))
        };
        self.names(path).into_iter().filter_map(number).collect()
    }

    /// The last component of a symbolic link's target.
    pub(super) fn link(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.resolve(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// Whether this process may read the file.
    pub(super) fn readable(&self, path: &str) -> bool {
        self.may(path, Right::Read)
    }

    /// Whether this process may write the file.
    pub(super) fn writable(&self, path: &str) -> bool {
        self.may(path, Right::Write)
    }

    fn may(&self, path: &str, right: Right) -> bool {
        let path = self.resolve(path);
        match self.rights {
            Rights::Ours => {
                let wanted = if right == Right::Read { Access::READ_OK } else { Access::WRITE_OK };
                access(&path, wanted).is_ok()
            }
            #[cfg(test)]
            Rights::Recorded => recorded(&path, right),
        }
    }
}

#[cfg(test)]
fn recorded(path: &Path, right: Right) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let bit = if right == Right::Read { 0o400 } else { 0o200 };
    fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & bit != 0)
}

/// A name's words and numbers, so that numbers sort by value.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(digits);
        let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        parts.push((word.to_owned(), tail[..end].parse().unwrap_or(u64::MAX)));
        rest = &tail[end..];
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_sort_by_value() {
        let mut names = ["cpu10", "cpu2", "nvme1c10", "nvme1c9", "cpu", "cpuidle"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["cpu2", "cpu10", "cpu", "cpuidle", "nvme1c9", "nvme1c10"]);
    }

    #[test]
    fn missing_files_read_as_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::recorded(dir.path());
        assert_eq!(tree.text("/sys/none"), None);
        assert_eq!(tree.names("/sys"), Vec::<String>::new());
        assert!(!tree.has("/sys") && !tree.readable("/sys") && tree.link("/sys").is_none());
    }
}
