//! The journal: a file that says what was changed before it is changed.
//!
//! **Lines**, each a JSON object: who writes it; `change`: what will be set now, and what it was; `done`: it has been set, and
//! what is in force; `back`: it has been put back. Each line is on the medium before anything else happens.
//!
//! **Properties.** A line without its end (the process was killed while it wrote, or the disk was full) announces something that
//! had not begun, and is cut off when the next line is written. A file that does not begin with a whole first line is none of ours, since
//! a journal gets its name with that line in it: it is refused and left as it is, and no more than a first line is read of it. Links
//! are not followed. The file is locked as long as its writer lives, by the kernel, so that nobody undoes what is still wanted. It
//! comes under its name only when its first line is complete and locked. It goes when everything is back. What another version
//! wrote is not guessed at.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use pilotlight_drive::Roots;
use pilotlight_journal::{Durability, Lock, whole};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::error::Error;
use super::place::Place;
use super::process::Process;

/// What names of journals end with.
const EXTENSION: &str = "jsonl";
const VERSION: u32 = 1;
/// Most bytes of a journal's first line: a command line has at most 2 MiB as Linux is delivered, and JSON makes at most 6 of each.
const FIRST_LINE: u64 = 16 << 20;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Line {
    Begin { version: u32, process: Process, command: String },
    Change { id: u32, place: Place, before: String, wanted: String },
    Done { id: u32, now: String },
    Back { id: u32 },
}

/// Something that was changed, or was about to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: u32,
    pub(super) place: Place,
    pub(super) before: String,
    pub(super) wanted: String,
    /// What was in force afterwards; nothing if it is not known whether it has been set.
    pub(super) done: Option<String>,
}

/// What a journal says.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Who wrote it.
    pub(super) process: Option<Process>,
    /// The command line.
    pub(super) command: String,
    /// What has not been put back, in the order of changing.
    pub(super) entries: Vec<Entry>,
    /// Bytes of whole lines.
    length: u64,
}

/// Why a file is not read as a journal.
#[derive(Debug)]
enum Fault {
    /// It does not begin with the first line of a journal.
    Foreign(&'static str),
    /// A line that cannot be read, counted from 1.
    Line(usize, serde_json::Error),
}

/// An open journal, ours alone.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    lines: pilotlight_journal::Journal,
}

impl Journal {
    /// A new one.
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
        // A hard link, unlike a new name, never takes the place of another journal.
        fs::hard_link(&draft, path).and_then(|()| fs::remove_file(&draft)).map_err(failed)?;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
        Ok(journal)
    }

    /// One that was left behind; nobody else can have it while this lives. Nothing is written until something is noted in it.
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

    /// What is about to be changed.
    pub(super) fn change(&mut self, entry: &Entry) -> Result<(), Error> {
        let Entry { id, place, before, wanted, .. } = entry.clone();
        self.append(&Line::Change { id, place, before, wanted })
    }

    /// It has been changed, and this is in force.
    pub(super) fn done(&mut self, id: u32, now: &str) -> Result<(), Error> {
        self.append(&Line::Done { id, now: now.into() })
    }

    /// It is back.
    pub(super) fn back(&mut self, id: u32) -> Result<(), Error> {
        self.append(&Line::Back { id })
    }

    fn append(&mut self, line: &Line) -> Result<(), Error> {
        let text = serde_json::to_string(line).map_err(io::Error::other);
        let written = text.and_then(|text| self.lines.append(&format!("{text}\n"), Durability::Medium));
        written.map_err(|why| Error::Journal { path: self.path.clone(), why })
    }

    /// Everything is back.
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

/// Whose turn it is to look what others change and to announce a change, in the folder of this journal: one process after the
/// other. Ends when it is dropped. Two that did both at once would not see each other.
pub(super) fn turn(path: &Path) -> Result<File, Error> {
    let turn = File::open(folder_of(path)?).and_then(|folder| folder.lock().map(|()| folder));
    turn.map_err(|why| Error::Journal { path: path.to_owned(), why })
}

/// The folder of a journal, which is made if there is none.
fn folder_of(path: &Path) -> Result<&Path, Error> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map(|()| folder).map_err(|why| Error::Journal { path: path.to_owned(), why })
}

/// Only what the user himself wrote is believed: a journal says what to write where.
fn check_owner(path: &Path, file: &File) -> Result<(), Error> {
    let failed = |why| Error::Journal { path: path.to_owned(), why };
    let (owner, own) = (file.metadata().map_err(failed)?.uid(), rustix::process::geteuid().as_raw());
    if owner == own { Ok(()) } else { Err(Error::Owner { path: path.to_owned(), owner }) }
}

/// Opens a file that is neither a link nor anything but a regular file, which is found out before it is opened: opening a device can
/// already do something, and opening a FIFO waits.
fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let other = || io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file (links are not followed)");
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(other());
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK; // for what has taken its place since
    let file = options.custom_flags(flags.bits() as i32).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(other()) }
}

fn read(path: &Path, mut file: &File) -> Result<Contents, Error> {
    let unreadable = |why| Error::Unreadable { path: path.to_owned(), why };
    let mut bytes = Vec::new();
    file.take(FIRST_LINE).read_to_end(&mut bytes).map_err(unreadable)?;
    // What is no journal can be a whole disk.
    if bytes.split(|&byte| byte == b'\n').next().is_some_and(begins) {
        file.read_to_end(&mut bytes).map_err(unreadable)?;
    }
    parse(&bytes).map_err(|fault| match fault {
        Fault::Foreign(why) => Error::Foreign { path: path.to_owned(), why },
        Fault::Line(line, why) => Error::Damaged { path: path.to_owned(), line, why },
    })
}

/// What is in a journal that may still be written, without taking it.
pub(super) fn peek(path: &Path) -> Result<(Contents, bool), Error> {
    let file = open_regular(path, OpenOptions::new().read(true));
    let file = file.map_err(|why| Error::Unreadable { path: path.to_owned(), why })?;
    // First this: what nobody holds does not change while it is read.
    let held = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    let contents = read(path, &file);
    let _ = file.unlock(); // closing is not enough, as when a journal is dropped
    Ok((contents?, held))
}

fn parse(bytes: &[u8]) -> Result<Contents, Fault> {
    let whole = whole(bytes);
    if whole == 0 {
        return Err(Fault::Foreign(if bytes.is_empty() { "it is empty" } else { "it has no whole line" }));
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

/// Whether this is the first line of a journal, be it of another version.
fn begins(line: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Map<_, _>>(line).is_ok_and(|line| line.contains_key("begin"))
}

impl Contents {
    fn add(&mut self, line: Line) -> Result<(), serde_json::Error> {
        match line {
            Line::Begin { version, .. } if version != VERSION => {
                let why =
                    format!("it has version {version}, and this program reads {VERSION}: use the one that wrote it");
                return Err(serde::de::Error::custom(why));
            }
            Line::Begin { .. } if self.process.is_some() => {
                return Err(serde::de::Error::custom("a second journal begins here"));
            }
            Line::Begin { process, command, .. } => {
                self.process = Some(process);
                self.command = command;
            }
            Line::Change { id, place, before, wanted } => {
                self.entries.push(Entry { id, place, before, wanted, done: None });
            }
            Line::Done { id, now } => {
                self.entries.iter_mut().filter(|entry| entry.id == id).for_each(|entry| entry.done = Some(now.clone()));
            }
            Line::Back { id } => self.entries.retain(|entry| entry.id != id),
        }
        Ok(())
    }
}

/// The folder in which journals live: `/run/pilotlight/changes` for root, `$XDG_RUNTIME_DIR/pilotlight/changes` for others,
/// `/tmp/pilotlight-UID/changes` where there is none.
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

/// The folder of journals of a machine whose kernel's files are below `root`.
#[must_use]
pub fn folder_below(root: impl AsRef<Path>) -> PathBuf {
    root.as_ref().join("run/pilotlight/changes")
}

/// A name in [`folder`] that no other process has.
#[must_use]
pub fn fresh() -> PathBuf {
    fresh_in(&folder())
}

/// A name in a folder that no other process has.
#[must_use]
pub fn fresh_in(folder: &Path) -> PathBuf {
    let process = Process::own(Path::new("/proc"));
    folder.join(format!("{}-{}.{EXTENSION}", process.pid, process.start_ticks.unwrap_or(0)))
}

/// The journals in a folder, in the order of their names; none if there is no such folder.
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
        let place = Place::File { path: format!("/sys/x/{id}").into(), accept: super::super::place::Accept::Exact };
        Entry { id, place, before: "[a] b\n".into(), wanted: "b".into(), done: None }
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
    fn says_what_is_not_back() {
        let (_folder, path, _) = written();
        let (_, contents) = Journal::open(&path).unwrap();
        assert_eq!(contents.process.unwrap().pid, std::process::id());
        let expected = [0, 1].map(|id| Entry { done: Some("a [b]\n".into()), ..entry(id) });
        assert_eq!(contents.entries, expected);
        assert_eq!(find(path.parent().unwrap()).unwrap(), std::slice::from_ref(&path));
    }

    #[test]
    fn a_torn_end_is_cut_off_wherever_it_is() {
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
    fn what_does_not_begin_with_a_whole_first_line_is_refused_and_left_as_it_is() {
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
                assert!(error.contains("no regular file"), "{error}");
            }
        }
        let draft = folder.path().join("2.jsonl");
        std::os::unix::fs::symlink(&path, draft.with_extension("new")).unwrap();
        assert!(Journal::create(&draft, &Roots::default()).is_err());
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }

    #[test]
    fn damage_in_the_middle_is_told() {
        let (_folder, path, bytes) = written();
        let text = String::from_utf8(bytes).unwrap().replacen("\"id\":1", "\"id\":x", 1);
        fs::write(&path, text).unwrap();
        let error = Journal::open(&path).unwrap_err();
        assert!(error.to_string().contains("line 4"), "{error}");
    }

    #[test]
    fn what_another_user_wrote_is_not_believed() {
        let (_folder, path, _) = written();
        const OTHER: u32 = 65_534;
        if std::os::unix::fs::chown(&path, Some(OTHER), None).is_err() {
            println!("skipped: only root can give a file away");
            return;
        }
        assert!(matches!(Journal::open(&path), Err(Error::Owner { owner: OTHER, .. })));
    }

    #[test]
    fn what_another_version_wrote_is_not_guessed_at() {
        let (_folder, path, bytes) = written();
        let text = String::from_utf8(bytes).unwrap().replacen("\"version\":1", "\"version\":2", 1);
        fs::write(&path, &text).unwrap();
        let error = Journal::open(&path).unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("version 2, and this program reads 1"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "it is left as it is");
        assert!(peek(&path).is_err());
    }

    #[test]
    fn a_journal_that_cannot_be_read_says_what_would_help() {
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
