//! Trees of kernel files, written where a test needs them.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use super::super::tree::Tree;

/// A tree under construction.
pub(in super::super) struct Fixture {
    dir: tempfile::TempDir,
}

impl Default for Fixture {
    fn default() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }
}

impl Fixture {
    /// The tree as input of the sections.
    pub(in super::super) fn tree(&self) -> Tree {
        Tree::recorded(self.dir.path())
    }

    /// Adds a file that its owner may read and write.
    pub(in super::super) fn file(self, path: &str, text: &str) -> Self {
        self.with_mode(path, text, 0o644)
    }

    /// Adds a file that may be read and not written.
    pub(in super::super) fn fixed(self, path: &str, text: &str) -> Self {
        self.with_mode(path, text, 0o444)
    }

    /// Adds a file with these rights.
    pub(in super::super) fn with_mode(self, path: &str, text: &str, mode: u32) -> Self {
        let at = self.parent(path);
        fs::write(&at, format!("{text}\n")).unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(mode)).unwrap();
        self
    }

    /// Adds several read-only files in a directory.
    pub(in super::super) fn files(self, dir: &str, files: &[(&str, &str)]) -> Self {
        files.iter().fold(self, |fixture, (name, text)| fixture.fixed(&format!("{dir}/{name}"), text))
    }

    /// Replaces a file.
    pub(in super::super) fn replaced(self, path: &str, text: &str) -> Self {
        fs::remove_file(self.at(path)).unwrap();
        self.file(path, text)
    }

    /// Adds a directory.
    pub(in super::super) fn dir(self, path: &str) -> Self {
        fs::create_dir_all(self.at(path)).unwrap();
        self
    }

    /// Adds a symbolic link to another place in the tree.
    pub(in super::super) fn link(self, path: &str, to: &str) -> Self {
        let at = self.parent(path);
        symlink(self.at(to), at).unwrap();
        self
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path.trim_start_matches('/'))
    }

    fn parent(&self, path: &str) -> PathBuf {
        let at = self.at(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        at
    }
}
