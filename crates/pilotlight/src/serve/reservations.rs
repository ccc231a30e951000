//! Keeps reservations over a restart: one file for each namespace, named after its UUID.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pilotlight_nvmf_target::ReservationStore;
use uuid::Uuid;

use crate::admin::socket::writable_ancestor;
use crate::privileges::files::read_own_text;
use crate::replace::replace;

/// The folder.
#[derive(Debug)]
pub(super) struct Reservations(PathBuf);

impl Reservations {
    /// In this folder, which is created if necessary.
    ///
    /// # Errors
    /// If there is no such folder: a host that relies on its reservation must not find the server without it.
    pub(super) fn open(folder: &Path) -> anyhow::Result<Self> {
        let made = fs::create_dir_all(folder).and_then(|()| sync(folder.parent().unwrap_or(folder)));
        made.with_context(|| unusable(folder))?;
        Ok(Self(folder.to_owned()))
    }

    /// Looks whether [`Self::open`] would succeed and files can be created in the folder, and changes nothing.
    ///
    /// # Errors
    /// If not.
    pub(super) fn check(folder: &Path) -> anyhow::Result<()> {
        writable_ancestor(folder).map(drop).with_context(|| unusable(folder))
    }

    fn file(&self, uuid: &[u8; 16]) -> PathBuf {
        self.0.join(Uuid::from_bytes(*uuid).to_string())
    }

    fn with_path(&self, uuid: &[u8; 16], error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.file(uuid).display()))
    }
}

fn unusable(folder: &Path) -> String {
    format!("cannot use the folder {} (`reservations` in [server], or `none`)", folder.display())
}

/// Writes the names in a folder to the medium.
fn sync(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)?.sync_all()
}

impl ReservationStore for Reservations {
    fn load(&self, uuid: &[u8; 16]) -> io::Result<Option<String>> {
        match read_own_text(&self.file(uuid)) {
            Ok(record) => Ok(Some(record)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.with_path(uuid, &error)),
        }
    }

    fn save(&self, uuid: &[u8; 16], record: &str) -> io::Result<()> {
        replace(&self.file(uuid), record.as_bytes()).map_err(|error| self.with_path(uuid, &error))
    }

    fn remove(&self, uuid: &[u8; 16]) -> io::Result<()> {
        let removed = match fs::remove_file(self.file(uuid)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other.and_then(|()| sync(&self.0)),
        };
        removed.map_err(|error| self.with_path(uuid, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_replaced_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Reservations::open(&dir.path().join("a/b")).unwrap();
        let uuid = [0xab; 16];
        assert_eq!(store.load(&uuid).unwrap(), None);
        for record in ["one\n", "two\n"] {
            store.save(&uuid, record).unwrap();
            assert_eq!(store.load(&uuid).unwrap().as_deref(), Some(record));
        }
        let names: Vec<_> = fs::read_dir(&store.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["abababab-abab-abab-abab-abababababab"]);
        store.remove(&uuid).unwrap();
        store.remove(&uuid).unwrap();
        assert_eq!(store.load(&uuid).unwrap(), None);
    }

    #[test]
    fn errors_name_the_path_and_the_key() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error = format!("{:#}", Reservations::open(&file).unwrap_err());
        assert!(error.contains("file (`reservations` in [server]"), "{error}");
        let store = Reservations::open(&dir.path().join("folder")).unwrap();
        fs::create_dir(store.file(&[1; 16])).unwrap();
        for error in [store.load(&[1; 16]).unwrap_err(), store.save(&[1; 16], "").unwrap_err()] {
            assert!(error.to_string().contains("01010101-0101"), "{error}");
        }
    }
}
