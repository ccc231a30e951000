//! Append-only files of complete lines, consistent after a kill at any time.
//!
//! *Properties.* One process writes at a time ([`Lock`]). A record of one or more lines is appended completely or not at all: after a failed
//! write its part is truncated. An incomplete last line (the process was killed, or the disk was full) is ignored ([`whole`]) and
//! truncated by the next write; reading changes nothing.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

/// An exclusively locked file.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Locks a file; `None` if it is locked.
    ///
    /// # Errors
    /// The file system has no locks.
    pub fn take(file: File) -> io::Result<Option<Self>> {
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Locks the file at a path, creating it if missing; `None` if it is locked.
    ///
    /// # Errors
    /// It cannot be opened, or the file system has no locks.
    pub fn at(path: &Path) -> io::Result<Option<Self>> {
        Self::take(OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?)
    }

    /// The file.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.0
    }
}

/// Unlocks explicitly: a child that another thread has just forked holds a copy of the descriptor until exec.
impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Durability of a record when [`Journal::append`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It survives the end of this process.
    Process,
    /// It survives a power failure.
    Medium,
}

/// An append-only file.
#[derive(Debug)]
pub struct Journal {
    lock: Lock,
    /// Bytes of complete lines; the rest is truncated before the next write.
    length: u64,
}

impl Journal {
    /// Reads a locked file; also returns its complete lines.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(lock: Lock) -> io::Result<(Self, Vec<u8>)> {
        let mut bytes = Vec::new();
        let mut file = lock.file();
        file.seek(SeekFrom::Start(0))?;
        file.read_to_end(&mut bytes)?;
        bytes.truncate(whole(&bytes));
        let length = bytes.len() as u64;
        Ok((Self { lock, length }, bytes))
    }

    /// A locked file with this many bytes of complete lines.
    #[must_use]
    pub const fn with_length(lock: Lock, length: u64) -> Self {
        Self { lock, length }
    }

    /// The file.
    #[must_use]
    pub const fn file(&self) -> &File {
        self.lock.file()
    }

    /// Appends a record of complete lines, completely or not at all.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn append(&mut self, record: &str, durability: Durability) -> io::Result<()> {
        let mut file = self.lock.file();
        file.set_len(self.length)?; // half a line of a process that was killed
        file.seek(SeekFrom::End(0))?;
        let written = file.write_all(record.as_bytes()).and_then(|()| match durability {
            Durability::Process => Ok(()),
            Durability::Medium => file.sync_all(),
        });
        match written {
            Ok(()) => self.length += record.len() as u64,
            Err(error) => return file.set_len(self.length).and(Err(error)),
        }
        Ok(())
    }
}

/// Length of the complete lines. A last line can end within a character.
#[must_use]
pub fn whole(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn open(path: &Path) -> (Journal, Vec<u8>) {
        Journal::read(Lock::at(path).unwrap().unwrap()).unwrap()
    }

    proptest! {
        /// After a kill at any byte the complete lines remain, and writing continues after them.
        #[test]
        fn a_torn_line_is_cut_off_and_nothing_else(lines in prop::collection::vec("[a-z\u{b5}]{0,9}", 1..8), share in 0.0..1.0_f64) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("j");
            let (mut journal, _) = open(&path);
            for line in &lines {
                journal.append(&format!("{line}\n"), Durability::Process).unwrap();
            }
            drop(journal);
            let bytes = std::fs::read(&path).unwrap();
            let cut = (share * bytes.len() as f64) as usize;
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let (mut journal, found) = open(&path);
            prop_assert!(bytes.starts_with(&found) && found.len() == whole(&bytes[..cut]));
            prop_assert_eq!(std::fs::read(&path).unwrap().len(), cut, "reading changes nothing");
            journal.append("next\n", Durability::Medium).unwrap();
            let expected = [found.as_slice(), b"next\n"].concat();
            prop_assert_eq!(std::fs::read(&path).unwrap(), expected);
        }
    }

    #[test]
    fn a_record_that_does_not_fit_is_removed() {
        let full = OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let (mut journal, _) = open(&path);
        journal.append("a\n", Durability::Process).unwrap();
        // A file opened for reading alone cannot be written.
        let read_only = Lock(File::open(&path).unwrap());
        let mut unwritable = Journal::with_length(read_only, 2);
        assert!(unwritable.append("b\n", Durability::Process).is_err());
        assert!(Journal::with_length(Lock(full), 0).append("c\n", Durability::Process).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"a\n");
    }

    #[test]
    fn locks_are_exclusive_and_released_despite_forked_copies() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let (held, _) = open(&path);
        assert!(Lock::at(&path).unwrap().is_none());
        let _forked = held.file().try_clone().unwrap();
        drop(held);
        assert!(Lock::at(&path).unwrap().is_some());
    }
}
