//! The journal: a file with each change, written before the change.
//!
//! **Lines**, each a JSON object: `begin`: the process; `change`: the setting, its old and new value; `done`: the effective value; `back`:
//! the change was restored. Each line is flushed before the next action.
//!
//! **Properties.** An incomplete last line (the process was killed, or the disk was full) belongs to an action that had not started, and is
//! removed with the next write. A file without a complete first line is not a journal, because a journal gets its name after that line
//! is written: it is refused, and only its first line is read. Links are not followed. The file is locked while its writer runs, so
//! that no other process restores its changes. It is removed when all changes are restored. Other versions are refused.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use pilotlight_drive::Roots;
use pilotlight_journal::{Durability, Lock, whole};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::error::Error;
use super::process::Process;
use super::setting::Setting;

/// Extension of journals.
const EXTENSION: &str = "jsonl";
const VERSION: u32 = 1;
/// Longest first line in bytes: Linux limits a command line to 2 MiB by default, and JSON needs at most 6 bytes per byte.
const FIRST_LINE: u64 = 16 << 20;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Line {
    Begin {
        version: u32,
        process: Process,
        command: String,
    },
    Change {
        id: u32,
        /// Under its former name in the journal that an older program left at a crash.
        #[serde(alias = "place")]
        setting: Setting,
        before: String,
        wanted: String,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        outlasts: bool,
    },
    Done {
        id: u32,
        now: String,
    },
    Back {
        id: u32,
    },
}

/// A change that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: u32,
    pub(super) setting: Setting,
    pub(super) before: String,
    pub(super) wanted: String,
    /// The effective value; `None` if it is unknown whether it was set.
    pub(super) done: Option<String>,
    /// It stays when its process is killed, until another restores it ([`Changes::keep_limits`](super::Changes::keep_limits)).
    pub(super) outlasts: bool,
}

/// Contents of a journal.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Its writer.
    pub(super) process: Option<Process>,
    /// Command line of the writer.
    pub(super) command: String,
    /// Changes that are not restored, in order.
    pub(super) entries: Vec<Entry>,
    /// Bytes of complete lines.
    length: u64,
}

/// Error of parsing a journal.
#[derive(Debug)]
enum Fault {
    /// It does not start with the first line of a journal.
    Foreign(&'static str),
    /// An invalid line, by number from 1.
    Line(usize, serde_json::Error),
}

/// An open and locked journal.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    lines: pilotlight_journal::Journal,
}

impl Journal {
    /// Creates a journal.
    pub(super) fn create(path: &Path, roots: &Roots) -> Result<Self, Error> {
        let failed = |why| Error::Journal { path: path.to_owned(), why };
        let folder = folder_of(path)?;
        let draft = path.with_extension("new");
        let mut options = OpenOptions::new();
        let file = open_regular(&draft, options.append(true).create(true).mode(0o600)).map_err(failed)?;
        let lock = Lock::take(file).and_then(|lock| lock.ok_or_else(|| io::ErrorKind::ResourceBusy.into()));
        let lines = pilotlight_journal::Journal::with_length(lock.map_err(failed)?, 0);
        let mut journal = Self { path: path.to_owned(), lines };
        let command = std::env::args().collect::<Vec<_>>().join(" ");
        journal.append(&Line::Begin { version: VERSION, process: Process::own(&roots.proc), command })?;
        // A hard link, unlike a rename, never replaces another journal.
        fs::hard_link(&draft, path).and_then(|()| fs::remove_file(&draft)).map_err(failed)?;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
        Ok(journal)
    }

    /// Opens and locks the journal of an ended process.
    pub(super) fn open(path: &Path) -> Result<(Self, Contents), Error> {
        let failed = |why| Error::Journal { path: path.to_owned(), why };
        let unreadable = |why| Error::Unreadable { path: path.to_owned(), why };
        let file = open_regular(path, OpenOptions::new().read(true).append(true)).map_err(unreadable)?;
        check_owner(path, &file)?;
        let reader = file.try_clone().map_err(failed)?;
        let Some(lock) = Lock::take(file).map_err(failed)? else {
            let pid = read(path, &reader).ok().and_then(|contents| contents.process).map(|process| process.pid);
            return Err(Error::Lives { path: path.to_owned(), pid });
        };
        let contents = read(path, &reader)?;
        let lines = pilotlight_journal::Journal::with_length(lock, contents.length);
        Ok((Self { path: path.to_owned(), lines }, contents))
    }

    /// Notes a change before it is made.
    pub(super) fn change(&mut self, entry: &Entry) -> Result<(), Error> {
        let Entry { id, setting, before, wanted, outlasts, .. } = entry.clone();
        self.append(&Line::Change { id, setting, before, wanted, outlasts })
    }

    /// Notes the effective value of a change.
    pub(super) fn done(&mut self, id: u32, now: &str) -> Result<(), Error> {
        self.append(&Line::Done { id, now: now.into() })
    }

    /// Notes that a change was restored.
    pub(super) fn back(&mut self, id: u32) -> Result<(), Error> {
        self.append(&Line::Back { id })
    }

    fn append(&mut self, line: &Line) -> Result<(), Error> {
        let text = serde_json::to_string(line).map_err(io::Error::other);
        let written = text.and_then(|text| self.lines.append(&format!("{text}\n"), Durability::Medium));
        written.map_err(|why| Error::Journal { path: self.path.clone(), why })
    }

    /// Removes the journal.
    pub(super) fn remove(&self) -> Result<(), Error> {
        match fs::remove_file(&self.path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(Error::Journal { path: self.path.clone(), why: source })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Locks the folder of this journal while a process checks the changes of others and announces its own, until dropped.
pub(super) fn turn(path: &Path) -> Result<File, Error> {
    let turn = File::open(folder_of(path)?).and_then(|folder| folder.lock().map(|()| folder));
    turn.map_err(|why| Error::Journal { path: path.to_owned(), why })
}

/// The folder of a journal, created if missing.
fn folder_of(path: &Path) -> Result<&Path, Error> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map(|()| folder).map_err(|why| Error::Journal { path: path.to_owned(), why })
}

/// Refuses journals of other users, because a journal controls writes.
fn check_owner(path: &Path, file: &File) -> Result<(), Error> {
    let failed = |why| Error::Journal { path: path.to_owned(), why };
    let (owner, own) = (file.metadata().map_err(failed)?.uid(), rustix::process::geteuid().as_raw());
    if owner == own { Ok(()) } else { Err(Error::Owner { path: path.to_owned(), owner }) }
}

/// Opens a regular file. The type is checked before opening, because opening a device can have effects and opening a FIFO blocks.
fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let other = || io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file (links are not followed)");
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(other());
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK; // in case the file was replaced meanwhile
    let file = options.custom_flags(flags.bits() as i32).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(other()) }
}

fn read(path: &Path, mut file: &File) -> Result<Contents, Error> {
    let unreadable = |why| Error::Unreadable { path: path.to_owned(), why };
    let mut bytes = Vec::new();
    file.take(FIRST_LINE).read_to_end(&mut bytes).map_err(unreadable)?;
    // Other files can be very large.
    if bytes.split(|&byte| byte == b'\n').next().is_some_and(begins) {
        file.read_to_end(&mut bytes).map_err(unreadable)?;
    }
    parse(&bytes).map_err(|fault| match fault {
        Fault::Foreign(why) => Error::Foreign { path: path.to_owned(), why },
        Fault::Line(line, why) => Error::Damaged { path: path.to_owned(), line, why },
    })
}

/// Reads a journal that may still be written, without locking it.
pub(super) fn peek(path: &Path) -> Result<(Contents, bool), Error> {
    let file = open_regular(path, OpenOptions::new().read(true));
    let file = file.map_err(|why| Error::Unreadable { path: path.to_owned(), why })?;
    // Before reading: an unlocked journal does not change.
    let held = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    let contents = read(path, &file);
    let _ = file.unlock(); // closing is not enough, as when a journal is dropped
    Ok((contents?, held))
}

fn parse(bytes: &[u8]) -> Result<Contents, Fault> {
    let whole = whole(bytes);
    if whole == 0 {
        return Err(Fault::Foreign(if bytes.is_empty() { "it is empty" } else { "it has no complete line" }));
    }
    let mut contents = Contents { length: whole as u64, ..Contents::default() };
    for (at, line) in bytes[..whole - 1].split(|&byte| byte == b'\n').enumerate() {
        if at == 0 && !begins(line) {
            return Err(Fault::Foreign("its first line is not that of a journal"));
        }
        serde_json::from_slice(line).and_then(|line| contents.add(line)).map_err(|why| Fault::Line(at + 1, why))?;
    }
    Ok(contents)
}

/// Whether this is the first line of a journal of any version.
fn begins(line: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Map<_, _>>(line).is_ok_and(|line| line.contains_key("begin"))
}

impl Contents {
    fn add(&mut self, line: Line) -> Result<(), serde_json::Error> {
        match line {
            Line::Begin { version, .. } if version != VERSION => {
                let why =
                    format!("version {version} is not supported (supported: {VERSION}); use the program that wrote it");
                return Err(serde::de::Error::custom(why));
            }
            Line::Begin { .. } if self.process.is_some() => {
                return Err(serde::de::Error::custom("second first line"));
            }
            Line::Begin { process, command, .. } => {
                self.process = Some(process);
                self.command = command;
            }
            Line::Change { id, setting, before, wanted, outlasts } => {
                self.entries.push(Entry { id, setting, before, wanted, done: None, outlasts });
            }
            Line::Done { id, now } => {
                self.entries.iter_mut().filter(|entry| entry.id == id).for_each(|entry| entry.done = Some(now.clone()));
            }
            Line::Back { id } => self.entries.retain(|entry| entry.id != id),
        }
        Ok(())
    }
}

/// The default folder of journals: `/run/pilotlight/changes` for root, else `$XDG_RUNTIME_DIR/pilotlight/changes` or
/// `/tmp/pilotlight-UID/changes`.
#[must_use]
pub fn folder() -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let base = match (uid, runtime) {
        (0, _) => "/run/pilotlight".into(),
        (_, Some(folder)) => folder.join("pilotlight"),
        (_, None) => format!("/tmp/pilotlight-{uid}").into(),
    };
    base.join("changes")
}

/// The folder of journals below `root`, for tests.
#[must_use]
pub fn folder_below(root: impl AsRef<Path>) -> PathBuf {
    root.as_ref().join("run/pilotlight/changes")
}

/// A unique name in [`folder`].
#[must_use]
pub fn fresh() -> PathBuf {
    fresh_in(&folder())
}

/// A unique name in a folder.
#[must_use]
pub fn fresh_in(folder: &Path) -> PathBuf {
    let process = Process::own(Path::new("/proc"));
    folder.join(format!("{}-{}.{EXTENSION}", process.pid, process.start_ticks.unwrap_or(0)))
}

/// The journals in a folder, sorted by name; none if the folder does not exist.
///
/// # Errors
/// The folder cannot be read.
pub fn find(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |why| Error::Journal { path: folder.to_owned(), why };
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(failed)?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u32) -> Entry {
        let setting =
            Setting::File { path: format!("/sys/x/{id}").into(), accept: super::super::setting::Accept::Exact };
        Entry { id, setting, before: "[a] b\n".into(), wanted: "b".into(), done: None, outlasts: false }
    }

    fn written() -> (tempfile::TempDir, PathBuf, Vec<u8>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/1.jsonl");
        let mut journal = Journal::create(&path, &Roots::default()).unwrap();
        for id in 0..3 {
            journal.change(&entry(id)).unwrap();
            journal.done(id, "a [b]\n").unwrap();
        }
        journal.back(2).unwrap();
        let bytes = fs::read(&path).unwrap();
        (folder, path, bytes)
    }

    #[test]
    fn a_file_larger_than_the_memory_is_refused_without_reading_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 42).unwrap();
        assert!(matches!(Journal::open(file.path()), Err(Error::Foreign { .. })));
    }

    #[test]
    fn entries_are_those_not_restored() {
        let (_folder, path, _) = written();
        let (_, contents) = Journal::open(&path).unwrap();
        assert_eq!(contents.process.unwrap().pid, std::process::id());
        let expected = [0, 1].map(|id| Entry { done: Some("a [b]\n".into()), ..entry(id) });
        assert_eq!(contents.entries, expected);
        assert_eq!(find(path.parent().unwrap()).unwrap(), std::slice::from_ref(&path));
    }

    #[test]
    fn an_incomplete_last_line_is_removed() {
        let (_folder, path, bytes) = written();
        let first = bytes.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        for end in (first..bytes.len()).step_by(7) {
            fs::write(&path, &bytes[..end]).unwrap();
            let lines = bytes[..end].iter().filter(|&&byte| byte == b'\n').count();
            let (mut journal, contents) = Journal::open(&path).unwrap();
            assert_eq!(fs::read(&path).unwrap(), bytes[..end], "reading changes nothing");
            let changes = lines.saturating_sub(1).div_ceil(2);
            assert_eq!(contents.entries.len(), changes, "{end}");
            journal.change(&entry(9)).unwrap();
            drop(journal);
            assert_eq!(Journal::open(&path).unwrap().1.entries.len(), changes + 1, "{end}");
        }
    }

    #[test]
    fn a_file_without_a_complete_first_line_is_refused_and_unchanged() {
        let (_folder, path, bytes) = written();
        let first = bytes.iter().position(|&byte| byte == b'\n').unwrap();
        let torn = (0..=first).step_by(5).map(|end| bytes[..end].to_vec());
        let after = bytes[first + 1..].to_vec();
        let foreign = [b"precious".to_vec(), b"pre\ncious\n".to_vec(), b"\n".to_vec(), b"{}\n".to_vec(), after];
        for bytes in torn.chain(foreign) {
            fs::write(&path, &bytes).unwrap();
            assert!(matches!(Journal::open(&path), Err(Error::Foreign { .. })), "{bytes:?}");
            assert!(matches!(peek(&path), Err(Error::Foreign { .. })));
            assert_eq!(fs::read(&path).unwrap(), bytes);
        }
    }

    #[test]
    fn only_regular_files_are_opened_and_links_are_not_followed() {
        let (folder, path, bytes) = written();
        let [link, fifo] = ["link", "fifo"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink(&path, &link).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
        for other in [&link, &fifo, Path::new("/dev/null"), folder.path()] {
            for error in [Journal::open(other).map(drop), peek(other).map(drop)] {
                let error = error.unwrap_err().to_string();
                assert!(error.contains("not a regular file"), "{error}");
            }
        }
        let draft = folder.path().join("2.jsonl");
        std::os::unix::fs::symlink(&path, draft.with_extension("new")).unwrap();
        assert!(Journal::create(&draft, &Roots::default()).is_err());
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }

    #[test]
    fn an_invalid_line_is_an_error() {
        let (_folder, path, bytes) = written();
        let text = String::from_utf8(bytes).unwrap().replacen("\"id\":1", "\"id\":x", 1);
        fs::write(&path, text).unwrap();
        let error = Journal::open(&path).unwrap_err();
        assert!(error.to_string().contains("line 4"), "{error}");
    }

    #[test]
    fn a_journal_of_another_user_is_refused() {
        let (_folder, path, _) = written();
        const OTHER: u32 = 65_534;
        if std::os::unix::fs::chown(&path, Some(OTHER), None).is_err() {
            println!("skipped: only root can give a file away");
            return;
        }
        assert!(matches!(Journal::open(&path), Err(Error::Owner { owner: OTHER, .. })));
    }

    #[test]
    fn another_version_is_refused() {
        let (_folder, path, bytes) = written();
        let text = String::from_utf8(bytes).unwrap().replacen("\"version\":1", "\"version\":2", 1);
        fs::write(&path, &text).unwrap();
        let error = Journal::open(&path).unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("version 2 is not supported"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "it is left as it is");
        assert!(peek(&path).is_err());
    }

    #[test]
    fn the_error_for_an_unreadable_journal_has_a_remedy() {
        let (_folder, path, _) = written();
        let gone = Journal::open(&path.with_extension("other")).unwrap_err().to_string();
        assert!(gone.contains("cannot read journal") && gone.contains("without a name"), "{gone}");
        let denied = Error::Unreadable { path, why: io::ErrorKind::PermissionDenied.into() }.to_string();
        assert!(denied.ends_with("as the user who started the run, perhaps root"), "{denied}");
    }

    #[test]
    fn it_is_free_while_a_child_still_holds_a_copy() {
        let (_folder, path, _) = written();
        let (held, _) = Journal::open(&path).unwrap();
        let _forked = held.lines.file().try_clone().unwrap();
        drop(held);
        assert!(Journal::open(&path).is_ok());
    }

    #[test]
    fn nobody_has_it_twice() {
        let (_folder, path, _) = written();
        let held = Journal::open(&path).unwrap();
        assert!(matches!(Journal::open(&path), Err(Error::Lives { pid: Some(_), .. })));
        assert!(peek(&path).unwrap().1);
        drop(held);
        assert!(!peek(&path).unwrap().1 && Journal::open(&path).is_ok());
        assert!(Journal::create(&path, &Roots::default()).is_err(), "it is not overwritten");
    }
}
