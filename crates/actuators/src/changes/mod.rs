//! Machine settings for an experiment, restored at its end.
//!
//! **Problem.** An experiment sets a scheduler, a governor, a power limit, a power state of a drive. The process can end at any time, also
//! by `kill -9` or a panic, and the machine must then be restored. The kernel may round values or ignore them, and other programs may
//! change the same settings.
//!
//! **Terms.** A [`Change`] consists of steps. A step sets one [`Setting`]. The *journal* is a file with the previous value of each setting.
//!
//! **Algorithm.** For each step: check that no other run changes the same setting; read its value; write the old and the new value to the
//! journal and flush it (up to here runs exclude each other); set it; read it back; write the effective value to the journal.
//! Restoring processes the steps in reverse order and checks each setting first ([`restore`](mod@restore)). [`Changes`] restores when
//! dropped; `pilotlab restore` does it for a process that was killed.
//!
//! **Properties.** No setting is changed before its old value is in the journal. Wherever a process is killed, also while it restores, the
//! journal restores every readable byte. A failed change is undone completely. A value that the kernel ignored is an error. Restoring is
//! idempotent. A value that another program has set meanwhile is not overwritten by default, except with [`Changes::vary`]. A
//! journal is used by one process at a time.

mod affinity;
mod cgroup;
mod change;
mod error;
mod feature;
mod file;
mod hotplug;
mod journal;
mod kernel;
mod process;
mod quota;
mod report;
pub mod restore;
mod setting;
mod step;
mod vary;

use std::path::{Path, PathBuf};

use pilotlight_drive::Roots;

pub use change::Change;
pub use error::{CgroupError, Error};
pub use journal::{find, folder, folder_below, fresh, fresh_in};
pub use kernel::{Kernel, Linux};
pub use process::Process;
pub use quota::CpuGroup;
pub use report::{Outcome, RestoreReport, removes};
pub use restore::{Options, restore, restore_with};
pub use setting::{Accept, Setting};

pub(crate) use cgroup::cpus;
pub(crate) use change::latency_tolerance;
pub(crate) use feature::{IdleState, idle_states, states};
pub(crate) use hotplug::switch;
pub(crate) use quota::{MIN_QUOTA_US, PERIODS_US};
pub(crate) use setting::{LONG_TERM, SHORT_TERM};

use journal::{Entry, Journal};

/// The changes of this process, which are restored when dropped.
pub struct Changes {
    path: PathBuf,
    roots: Roots,
    kernel: Box<dyn Kernel>,
    /// Created with the first change.
    journal: Option<Journal>,
    entries: Vec<Entry>,
    /// Entries whose value varies.
    varied: Vec<vary::Varied>,
    next: u32,
    cgroup: Option<PathBuf>,
    keeps_limits: bool,
    /// How the rest is restored when dropped.
    at_end: Options,
}

/// Result of an optional change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The setting has the value.
    Applied,
    /// The kernel ignored the value and uses this one.
    Ignored(String),
    /// The kernel does not have the setting or refused the value: its error.
    Refused(String),
}

/// A position in the sequence of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u32);

impl Changes {
    /// No changes yet. The journal is created at `journal` with the first change; [`fresh`] returns a name in the default folder.
    ///
    /// # Errors
    /// The same folder has a journal of a run that was killed.
    pub fn begin(journal: &Path, roots: Roots) -> Result<Self, Error> {
        Self::begin_on(journal, roots, Box::new(Linux))
    }

    /// [`Changes::begin`] on another kernel.
    ///
    /// # Errors
    /// As of [`Changes::begin`].
    pub fn begin_on(journal: &Path, roots: Roots, kernel: Box<dyn Kernel>) -> Result<Self, Error> {
        for path in neighbours(journal)? {
            let (contents, held) = match journal::peek(&path) {
                // Its run has just ended.
                Err(Error::Unreadable { why, .. }) if why.kind() == std::io::ErrorKind::NotFound => continue,
                // Not a journal.
                Err(Error::Foreign { .. }) => continue,
                seen => seen?,
            };
            let lives = held || contents.process.is_some_and(|process| process.lives(&roots.proc));
            if !lives && !contents.entries.is_empty() {
                return Err(Error::LeftBehind(path));
            }
        }
        let path = journal.to_owned();
        Ok(Self {
            path,
            roots,
            kernel,
            journal: None,
            entries: Vec::new(),
            varied: Vec::new(),
            next: 0,
            cgroup: None,
            keeps_limits: false,
            at_end: Options::default(),
        })
    }

    /// Applies a change completely or not at all.
    ///
    /// # Errors
    /// The journal cannot be written, or the kernel refuses or ignores a value. The change is then undone.
    pub fn make(&mut self, change: &Change) -> Result<(), Error> {
        let mark = self.mark();
        let made = self.steps(change);
        if made.is_err() {
            // Settings that could not be restored stay in the journal and are retried at the end.
            let _ = self.restore_to(mark, Options::default());
        }
        made
    }

    /// Applies a change; a value that the kernel ignores or refuses is not an error.
    ///
    /// # Errors
    /// The journal cannot be written, or another process changes the setting.
    pub fn attempt(&mut self, change: &Change) -> Result<Attempt, Error> {
        match self.make(change) {
            Ok(()) => Ok(Attempt::Applied),
            Err(Error::Ignored { now, .. }) => Ok(Attempt::Ignored(now)),
            Err(Error::Write { why, .. } | Error::Read { why, .. }) => Ok(Attempt::Refused(why.to_string())),
            Err(error) => Err(error),
        }
    }

    fn steps(&mut self, change: &Change) -> Result<(), Error> {
        let steps = change.steps(self.kernel.as_mut(), &self.roots)?;
        steps.into_iter().try_for_each(|step| step.carry_out(self, Self::set))
    }

    fn set(&mut self, setting: Setting, wanted: Option<&str>) -> Result<(), Error> {
        match (self.announce(setting, wanted, Setting::satisfies)?, wanted) {
            (Some(_), Some(_)) => self.carry_out(),
            _ => Ok(()),
        }
    }

    /// Writes the value of a setting to the journal as the last entry and returns its number; `None` if it already has the wanted value
    /// according to `is_there`. A setting that will change without being set has no wanted value; `None` also if it no longer exists, as
    /// a thread that has ended since it was listed.
    fn announce(
        &mut self,
        setting: Setting,
        wanted: Option<&str>,
        is_there: fn(&Setting, &str, &str) -> bool,
    ) -> Result<Option<u32>, Error> {
        if !setting.is_within(&self.roots) {
            return Err(Error::Outside(setting.to_string()));
        }
        // Other processes cannot announce a change until this one is announced.
        let _turn = journal::turn(&self.path)?;
        self.check_free(&setting)?;
        let before = match self.before(&setting) {
            Ok(before) => before,
            Err(_) if wanted.is_none() && setting.is_gone(self.kernel.as_mut()) => return Ok(None),
            Err(source) => return Err(unreadable(&setting, source)),
        };
        if let Some(wanted) = wanted {
            let check = setting.check(self.kernel.as_mut(), wanted);
            check.map_err(|source| refused(&setting, &before, wanted, source))?;
            if is_there(&setting, &before, wanted) && !setting.drifts() {
                return Ok(None);
            }
        }
        let wanted = wanted.unwrap_or(&before).to_owned();
        let outlasts = self.keeps_limits && setting.path().starts_with(self.roots.sys.join("class/powercap"));
        let entry = Entry { id: self.next, setting, before, wanted, done: None, outlasts };
        self.journal()?.change(&entry)?;
        self.next += 1;
        self.entries.push(entry);
        Ok(Some(self.next - 1))
    }

    /// The value to restore: the one that this process has set, if still effective, else the current one.
    fn before(&mut self, setting: &Setting) -> std::io::Result<String> {
        let ours =
            self.entries.iter().rev().find(|entry| entry.setting == *setting).and_then(|entry| entry.done.clone());
        match ours {
            Some(ours) if setting.same(&ours, &setting.read(self.kernel.as_mut())?) => Ok(ours),
            _ => setting.before(self.kernel.as_mut()),
        }
    }

    /// Applies the last entry.
    fn carry_out(&mut self) -> Result<(), Error> {
        let (Some(entry), Some(journal)) = (self.entries.last_mut(), &mut self.journal) else { return Ok(()) };
        let now = in_force(self.kernel.as_mut(), &entry.setting, &entry.before, &entry.wanted)?;
        journal.done(entry.id, &now)?;
        if matches!(entry.setting, Setting::Cgroup { .. }) {
            self.cgroup = Some(entry.setting.path().to_owned());
        }
        entry.done = Some(now);
        Ok(())
    }

    /// Power limits that are set from now on stay when this process is killed, until another one restores its journal.
    pub fn keep_limits(&mut self) {
        self.keeps_limits = true;
    }

    /// The process that these changes are for was killed.
    pub fn note_killed(&mut self) {
        self.at_end = Options { leaves_limits: true, ..Options::default() };
    }

    /// Writes the value back that a file has, unless another process varies it.
    ///
    /// # Errors
    /// The kernel lets nobody write it, or not this process.
    pub(crate) fn write_back(&mut self, path: &Path) -> std::io::Result<()> {
        let setting = Setting::File { path: path.to_owned(), accept: Accept::Exact };
        let Ok(_turn) = journal::turn(&self.path) else { return Ok(()) };
        if self.check_free(&setting).is_err() {
            return Ok(());
        }
        let Ok(value) = setting.read(self.kernel.as_mut()) else { return Ok(()) };
        let denied = |error: &std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
        setting.set(self.kernel.as_mut(), &value).err().filter(denied).map_or(Ok(()), Err)
    }

    /// The kernel.
    pub(crate) fn kernel(&mut self) -> &mut dyn Kernel {
        self.kernel.as_mut()
    }

    fn journal(&mut self) -> Result<&mut Journal, Error> {
        let journal = match self.journal.take() {
            Some(journal) => journal,
            None => Journal::create(&self.path, &self.roots)?,
        };
        Ok(self.journal.insert(journal))
    }

    /// Two processes that change the same setting would each restore the other's value, as would one that starts after a killed one.
    fn check_free(&self, setting: &Setting) -> Result<(), Error> {
        for path in neighbours(&self.path)? {
            // It was removed meanwhile.
            let Ok((contents, held)) = journal::peek(&path) else { continue };
            if contents.entries.iter().any(|entry| entry.setting.path() == setting.path()) {
                let pid = contents.process.map(|process| process.pid);
                let setting = setting.to_string();
                return Err(if held { Error::InUse { setting, pid } } else { Error::LeftBehind(path) });
            }
        }
        Ok(())
    }

    /// The current position, for [`Changes::restore_to`].
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark(self.next)
    }

    /// Restores all settings, except those that another process has changed meanwhile.
    ///
    /// # Errors
    /// [`Error::NotBack`] with a report of each change. The journal then stays, for `pilotlab restore`.
    pub fn restore(&mut self) -> Result<Vec<RestoreReport>, Error> {
        self.restore_to(Mark(0), Options::default())
    }

    /// Restores the changes since `mark`.
    ///
    /// # Errors
    /// As of [`Changes::restore`].
    pub fn restore_to(&mut self, mark: Mark, options: Options) -> Result<Vec<RestoreReport>, Error> {
        let first = self.entries.partition_point(|entry| entry.id < mark.0);
        let entries = self.entries.split_off(first);
        self.restore_entries(entries, options)
    }

    /// Restores these entries; those that cannot be restored are kept.
    fn restore_entries(&mut self, entries: Vec<Entry>, options: Options) -> Result<Vec<RestoreReport>, Error> {
        let (roots, kernel, journal) = (&self.roots, self.kernel.as_mut(), &mut self.journal);
        let all = restore::restore_in_order(&entries, |entry| {
            let back = restore::restore_entry(entry, roots, options, kernel);
            if let Some(journal) = journal.as_mut().filter(|_| back.outcome.is_settled()) {
                // If this fails, the next restore finds the setting unchanged.
                let _ = journal.back(entry.id);
            }
            back
        });
        for (entry, back) in entries.into_iter().zip(all.iter().rev()) {
            match back.outcome.is_settled() {
                true => self.forget(&entry),
                false => self.entries.push(entry),
            }
        }
        self.entries.sort_by_key(|entry| entry.id);
        self.end()?;
        if all.iter().all(|back| back.outcome.is_settled()) { Ok(all) } else { Err(Error::NotBack(all)) }
    }

    /// Removes a restored entry.
    fn forget(&mut self, entry: &Entry) {
        self.varied.retain(|varied| varied.id != entry.id);
        if self.cgroup.as_deref() == Some(entry.setting.path()) {
            self.cgroup = None;
        }
    }

    /// Removes the journal if it has no entries.
    fn end(&mut self) -> Result<(), Error> {
        match self.journal.take_if(|_| self.entries.is_empty()) {
            Some(journal) => journal.remove(),
            None => Ok(()),
        }
    }

    /// The folder of the created cgroup, if any. Processes of the run are added to its `cgroup.procs`.
    #[must_use]
    pub fn cgroup(&self) -> Option<&Path> {
        self.cgroup.as_deref()
    }

    /// The journal, if it exists.
    #[must_use]
    pub fn journal_path(&self) -> Option<&Path> {
        self.journal.as_ref().map(Journal::path)
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        // Settings that could not be restored stay in the journal.
        let _ = self.restore_to(Mark(0), self.at_end);
    }
}

/// Other journals in the same folder.
fn neighbours(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut all = find(path.parent().unwrap_or(Path::new(".")))?;
    all.retain(|other| other != path);
    Ok(all)
}

/// Sets a setting and reads it back.
fn in_force(kernel: &mut dyn Kernel, setting: &Setting, before: &str, wanted: &str) -> Result<String, Error> {
    setting.set(kernel, wanted).map_err(|source| refused(setting, before, wanted, source))?;
    let now = setting.read(kernel).map_err(|source| unreadable(setting, source))?;
    if !setting.satisfies(&now, wanted) {
        let (wanted, now) = (setting.shown(wanted), setting.shown(&now));
        return Err(Error::Ignored { setting: setting.to_string(), wanted, now });
    }
    Ok(now)
}

fn unreadable(setting: &Setting, source: std::io::Error) -> Error {
    Error::Read { setting: setting.to_string(), help: setting.help(&source), why: source }
}

fn refused(setting: &Setting, before: &str, wanted: &str, source: std::io::Error) -> Error {
    let help = match file::choices(before) {
        Some(choices) => format!("available: {}", choices.join(", ")),
        None => setting.help(&source).to_owned(),
    };
    Error::Write { setting: setting.to_string(), wanted: setting.shown(wanted), why: source, help }
}
