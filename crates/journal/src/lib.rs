//! Files that grow by whole lines: what was done is on record even if the process is killed at any moment.
//!
//! *Properties.* One process writes at a time ([`Lock`]). A record of one or more lines is appended as a whole or not at all: if writing
//! fails, what was written of it is cut off. A last line without its end (the process was killed, or the medium was full) counts as not
//! there ([`whole`]) and is cut off when the next record is written; reading alone changes nothing.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

/// A locked file. Other processes and other locks of this one do not get it while this lives.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Locks a file; `None` if somebody else holds it.
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

    /// Locks the file at a path, which is made if it is not there; `None` if somebody else holds it.
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

/// Closing the file is not enough: a child that another thread has just forked holds a copy of it until it runs its program.
impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// How far a record is when [`Journal::append`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It survives the end of this process.
    Process,
    /// It survives a power failure.
    Medium,
}

/// A file that is appended to.
#[derive(Debug)]
pub struct Journal {
    lock: Lock,
    /// Bytes of whole lines; what is behind them is cut off before the next record is written.
    length: u64,
}

impl Journal {
    /// Reads a locked file; returns its whole lines too.
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

    /// A locked file with so many bytes of whole lines.
    #[must_use]
    pub const fn with_length(lock: Lock, length: u64) -> Self {
        Self { lock, length }
    }

    /// The file.
    #[must_use]
    pub const fn file(&self) -> &File {
        self.lock.file()
    }

    /// Appends a record of whole lines, as a whole or not at all.
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

/// How many of these bytes are whole lines. A last line can be torn within a character.
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
        /// Killed after any number of bytes: what was whole is there, and the journal goes on behind it.
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
    fn a_record_that_does_not_fit_leaves_nothing() {
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
    fn nobody_has_it_twice_and_a_forked_copy_does_not_hold_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let (held, _) = open(&path);
        assert!(Lock::at(&path).unwrap().is_none());
        let _forked = held.file().try_clone().unwrap();
        drop(held);
        assert!(Lock::at(&path).unwrap().is_some());
    }
}
