//! Settings of the machine for an experiment, and back again whatever happens.
//!
//! **Problem.** An experiment wants a scheduler, a governor, a power limit, a power state of a drive. Whoever sets them can end
//! at any moment, also by `kill -9` or a panic, and the machine must then be as it was. Kernels make it harder: they round, they
//! take values and ignore them, and other programs set the same things.
//!
//! **Words.** A [`Change`] is what is wanted; it is carried out in steps. A step gives one [`Place`] a value. The *journal* is a
//! file with what each place was before it was changed.
//!
//! **Algorithm.** For each step: look whether another run changes the same; read what is there; write to the journal what it is and
//! what it will be, and flush (until here one run after the other); set it; read it back; write to the journal what is in force. Back: the same steps in reverse order, each looked at before it is set
//! ([`restore`](mod@restore) says how). [`Changes`] does this at the end of its life, and `pilotlab restore` for a process that
//! has no more life to do it in.
//!
//! **Properties.** Nothing is changed whose value before is not on record. Wherever a process is killed, also while it puts back,
//! the journal brings the machine back to what it was, byte for byte of what can be read. A change that fails is undone as a
//! whole. A value that the kernel ignored is an error. Putting back twice is putting back once. What another program has set
//! meanwhile is not overwritten unasked, but where values follow each other ([`Changes::vary`]). While its process lives, a journal is
//! nobody else's.

mod cgroup;
mod change;
mod error;
mod feature;
mod file;
mod hotplug;
mod journal;
mod kernel;
mod place;
mod process;
mod quota;
pub mod restore;
mod vary;

use std::path::{Path, PathBuf};

use pilotlight_drive::Roots;

pub use change::Change;
pub use error::Error;
pub use journal::{find, folder, folder_below, fresh, fresh_in};
pub use kernel::{Kernel, Linux};
pub use place::{Accept, Place};
pub use process::Process;
pub use quota::CpuGroup;
pub use restore::{Back, Options, Outcome, removes, restore, restore_with};

pub(crate) use cgroup::cpus;
pub(crate) use change::latency_tolerance;
pub(crate) use change::{LONG_TERM, SHORT_TERM};
pub(crate) use feature::{IdleState, idle_states, states};
pub(crate) use hotplug::switch;
pub(crate) use quota::{PERIODS_US, SHORTEST_US};

use journal::{Entry, Journal};

/// What this process has changed. At the end of its life everything is put back.
pub struct Changes {
    path: PathBuf,
    roots: Roots,
    kernel: Box<dyn Kernel>,
    /// From the first change on.
    journal: Option<Journal>,
    entries: Vec<Entry>,
    /// Entries whose value varies, and for whom.
    varied: Vec<vary::Varied>,
    next: u32,
    cgroup: Option<PathBuf>,
}

/// What came of a change that the kernel was free to leave undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// It is so now, or was so already.
    Made,
    /// The kernel took the value and went on with another: which.
    Ignored(String),
    /// The kernel does not have it, or refused: what it said.
    Refused(String),
}

/// How much had been changed at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u32);

impl Changes {
    /// Nothing yet. The journal is made at `journal` with the first change; [`fresh`] gives a name in the usual folder.
    ///
    /// # Errors
    /// An earlier run left its changes behind in the same folder.
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
                // Its run has ended while we looked.
                Err(Error::Unreadable { why, .. }) if why.kind() == std::io::ErrorKind::NotFound => continue,
                // Nothing was ever changed on the record of such a file.
                Err(Error::Foreign { .. }) => continue,
                seen => seen?,
            };
            let lives = held || contents.process.is_some_and(|process| process.lives(&roots.proc));
            if !lives && !contents.entries.is_empty() {
                return Err(Error::LeftBehind(path));
            }
        }
        let path = journal.to_owned();
        Ok(Self { path, roots, kernel, journal: None, entries: Vec::new(), varied: Vec::new(), next: 0, cgroup: None })
    }

    /// Makes a change: as a whole, or not at all.
    ///
    /// # Errors
    /// It cannot be put on record, the kernel refuses it, or takes it and does nothing. Then all of it is back.
    pub fn make(&mut self, change: &Change) -> Result<(), Error> {
        let mark = self.mark();
        let made = self.steps(change);
        if made.is_err() {
            // What is not back stays in the journal, and comes again at the end.
            let _ = self.put_back_to(mark, Options::default());
        }
        made
    }

    /// Makes a change if the kernel lets it; what it ignores or refuses is told and left as it was.
    ///
    /// # Errors
    /// It cannot be put on record, or someone else holds it.
    pub fn attempt(&mut self, change: &Change) -> Result<Attempt, Error> {
        match self.make(change) {
            Ok(()) => Ok(Attempt::Made),
            Err(Error::Ignored { now, .. }) => Ok(Attempt::Ignored(now)),
            Err(Error::Write { why, .. } | Error::Read { why, .. }) => Ok(Attempt::Refused(why.to_string())),
            Err(error) => Err(error),
        }
    }

    fn steps(&mut self, change: &Change) -> Result<(), Error> {
        let steps = change.steps(self.kernel.as_mut(), &self.roots)?;
        steps.into_iter().try_for_each(|step| step.carry_out(self, Self::set))
    }

    fn set(&mut self, place: Place, wanted: Option<&str>) -> Result<(), Error> {
        match (self.announce(place, wanted, Place::obeys)?, wanted) {
            (Some(_), Some(_)) => self.carry_out(),
            _ => Ok(()),
        }
    }

    /// Puts on record what a place is, as the last entry, whose number it gives; nothing if it is there already, as `is_there` says of
    /// what is found and what is wanted. What will change without being set has nothing that is wanted.
    fn announce(
        &mut self,
        place: Place,
        wanted: Option<&str>,
        is_there: fn(&Place, &str, &str) -> bool,
    ) -> Result<Option<u32>, Error> {
        if !place.is_within(&self.roots) {
            return Err(Error::Outside(place.to_string()));
        }
        // Nobody else announces a change until ours is announced; and what is found is nobody else's for a while only.
        let _turn = journal::turn(&self.path)?;
        self.check_free(&place)?;
        let before = self.before(&place).map_err(|source| unreadable(&place, source))?;
        if let Some(wanted) = wanted {
            let check = place.check(self.kernel.as_mut(), wanted);
            check.map_err(|source| refused(&place, &before, wanted, source))?;
            if is_there(&place, &before, wanted) && !place.drifts() {
                return Ok(None);
            }
        }
        let wanted = wanted.unwrap_or(&before).to_owned();
        let entry = Entry { id: self.next, place, before, wanted, done: None };
        self.journal()?.change(&entry)?;
        self.next += 1;
        self.entries.push(entry);
        Ok(Some(self.next - 1))
    }

    /// What to come back to: what we have set ourselves, where it is in force, or what was found.
    fn before(&mut self, place: &Place) -> std::io::Result<String> {
        let ours = self.entries.iter().rev().find(|entry| entry.place == *place).and_then(|entry| entry.done.clone());
        match ours {
            Some(ours) if place.same(&ours, &place.read(self.kernel.as_mut())?) => Ok(ours),
            _ => place.before(self.kernel.as_mut()),
        }
    }

    /// Carries out the last entry.
    fn carry_out(&mut self) -> Result<(), Error> {
        let (Some(entry), Some(journal)) = (self.entries.last_mut(), &mut self.journal) else { return Ok(()) };
        let now = in_force(self.kernel.as_mut(), &entry.place, &entry.before, &entry.wanted)?;
        journal.done(entry.id, &now)?;
        if matches!(entry.place, Place::Cgroup { .. }) {
            self.cgroup = Some(entry.place.path().to_owned());
        }
        entry.done = Some(now);
        Ok(())
    }

    /// The kernel that is changed.
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

    /// Two processes that change the same thing would each put back the other's value; so would one that begins on what a killed one
    /// has left.
    fn check_free(&self, place: &Place) -> Result<(), Error> {
        for path in neighbours(&self.path)? {
            // One that goes away while it is looked at is in nobody's way.
            let Ok((contents, held)) = journal::peek(&path) else { continue };
            if contents.entries.iter().any(|entry| entry.place.path() == place.path()) {
                let pid = contents.process.map(|process| process.pid);
                let place = place.to_string();
                return Err(if held { Error::InUse { place, pid } } else { Error::LeftBehind(path) });
            }
        }
        Ok(())
    }

    /// How much has been changed so far, to come back to with [`Changes::put_back_to`].
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark(self.next)
    }

    /// Puts everything back. What someone else has changed meanwhile is left.
    ///
    /// # Errors
    /// [`Error::NotBack`], with what became of each change. The journal then stays, for `pilotlab restore`.
    pub fn put_back(&mut self) -> Result<Vec<Back>, Error> {
        self.put_back_to(Mark(0), Options::default())
    }

    /// Puts back what was changed since `mark`.
    ///
    /// # Errors
    /// As of [`Changes::put_back`].
    pub fn put_back_to(&mut self, mark: Mark, options: Options) -> Result<Vec<Back>, Error> {
        let first = self.entries.partition_point(|entry| entry.id < mark.0);
        let entries = self.entries.split_off(first);
        self.put_back_entries(entries, options)
    }

    /// Puts these back; what is not back stays among the entries.
    fn put_back_entries(&mut self, entries: Vec<Entry>, options: Options) -> Result<Vec<Back>, Error> {
        let (roots, kernel, journal) = (&self.roots, self.kernel.as_mut(), &mut self.journal);
        let all = restore::put_all_back(&entries, |entry| {
            let back = restore::put_back(entry, roots, options, kernel);
            if let Some(journal) = journal.as_mut().filter(|_| back.outcome.is_settled()) {
                // What cannot be noted is looked at once more another time, and found to be as it was.
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

    /// Something is back.
    fn forget(&mut self, entry: &Entry) {
        self.varied.retain(|varied| varied.id != entry.id);
        if self.cgroup.as_deref() == Some(entry.place.path()) {
            self.cgroup = None;
        }
    }

    /// Removes the journal if nothing is in it.
    fn end(&mut self) -> Result<(), Error> {
        match self.journal.take_if(|_| self.entries.is_empty()) {
            Some(journal) => journal.remove(),
            None => Ok(()),
        }
    }

    /// The folder of the cgroup that has been made, if one has: what is started for the run goes into its `cgroup.procs`.
    #[must_use]
    pub fn cgroup(&self) -> Option<&Path> {
        self.cgroup.as_deref()
    }

    /// Where the journal is, once something has been changed.
    #[must_use]
    pub fn journal_path(&self) -> Option<&Path> {
        self.journal.as_ref().map(Journal::path)
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        // What is not back stays in the journal.
        let _ = self.put_back();
    }
}

/// The other journals in the same folder.
fn neighbours(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut all = find(path.parent().unwrap_or(Path::new(".")))?;
    all.retain(|other| other != path);
    Ok(all)
}

/// Sets a place and reads it back.
fn in_force(kernel: &mut dyn Kernel, place: &Place, before: &str, wanted: &str) -> Result<String, Error> {
    place.set(kernel, wanted).map_err(|source| refused(place, before, wanted, source))?;
    let now = place.read(kernel).map_err(|source| unreadable(place, source))?;
    if !place.obeys(&now, wanted) {
        let (wanted, now) = (place.shown(wanted), place.shown(&now));
        return Err(Error::Ignored { place: place.to_string(), wanted, now });
    }
    Ok(now)
}

fn unreadable(place: &Place, source: std::io::Error) -> Error {
    Error::Read { place: place.to_string(), help: place.help(&source), why: source }
}

fn refused(place: &Place, before: &str, wanted: &str, source: std::io::Error) -> Error {
    let help = match file::choices(before) {
        Some(choices) => format!("it offers {}", choices.join(", ")),
        None => place.help(&source).to_owned(),
    };
    Error::Write { place: place.to_string(), wanted: place.shown(wanted), why: source, help }
}
