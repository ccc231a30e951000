//! What can go wrong with changes, and what a person can do about it.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use super::restore::{Back, Outcome};

/// Why something could not be changed, or not be put back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The journal cannot be kept.
    #[error("journal {path}: {why}; nothing is changed without one: make the folder writable, or name another place")]
    Journal {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// A journal that is there, or was named, cannot be read.
    #[error("cannot read journal {path}: {why}; {}", reading(why))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// A file that is no journal: it does not begin as one.
    #[error(
        "{path} is no journal: {why}; it is left as it is. Nothing is put back from it: name another file, and if this one was a journal \
         before a power failure, remove it, as nothing is left to put back after a restart"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What tells it.
        why: &'static str,
    },
    /// A journal in which a line cannot be read.
    #[error("journal {path}, line {line}: {why}; put back by hand what the lines `change` name, then remove the file")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which line, from 1 on.
        line: usize,
        /// What is wrong.
        why: serde_json::Error,
    },
    /// CPUs that cannot be taken offline because of a cgroup that would have none left.
    #[error(
        "CPUs {cpus:?} stay online: {path} has no others, and its threads would leave it for good; give it one more"
    )]
    Cpuset {
        /// Its list of CPUs.
        path: PathBuf,
        /// Those that were to be taken offline.
        cpus: Vec<u32>,
    },
    /// The process that made the changes still runs.
    #[error("journal {path} belongs to {}, which still runs and puts its changes back itself: stop it first", process(*pid))]
    Lives {
        /// The file.
        path: PathBuf,
        /// Its process, if the journal says it.
        pid: Option<u32>,
    },
    /// Another user's journal.
    #[error("journal {path} was written by user {owner}: run `pilotlab restore` as that user")]
    Owner {
        /// The file.
        path: PathBuf,
        /// The user's number.
        owner: u32,
    },
    /// A run that did not end left its changes behind.
    #[error("an earlier run was killed and left changes behind ({}): run `pilotlight restore` or `pilotlab restore` first", .0.display())]
    LeftBehind(PathBuf),
    /// Another process has changed the same thing.
    #[error("{place} is changed by {} right now: wait until it has ended", process(*pid))]
    InUse {
        /// What is changed.
        place: String,
        /// The process, if its journal says it.
        pid: Option<u32>,
    },
    /// It is none of the kernel's settings.
    #[error(
        "{0} may not be changed: only files below /sys, /proc/sys and /proc/irq, without `..`, and controllers in /dev"
    )]
    Outside(String),
    /// What it is now cannot be read, so it could not be put back.
    #[error("cannot read {place}: {why}; {help}")]
    Read {
        /// What was asked.
        place: String,
        /// What the system said.
        why: io::Error,
        /// What would help.
        help: &'static str,
    },
    /// The kernel refuses it.
    #[error("cannot set {place} to {wanted}: {why}; {help}")]
    Write {
        /// What was to be changed.
        place: String,
        /// To what.
        wanted: String,
        /// What the system said.
        why: io::Error,
        /// What would help.
        help: String,
    },
    /// The kernel took the value and did nothing.
    #[error("{place} was set to {wanted}, without an error, and is {now}: the kernel or the hardware ignores it")]
    Ignored {
        /// What was to be changed.
        place: String,
        /// To what.
        wanted: String,
        /// What it is.
        now: String,
    },
    /// What is needed for cgroups is not there.
    #[error("{0}")]
    Cgroup(String),
    /// Not everything is back.
    #[error("{}", not_back(.0))]
    NotBack(Vec<Back>),
}

fn reading(why: &io::Error) -> &'static str {
    match why.kind() {
        io::ErrorKind::PermissionDenied => "run `pilotlab restore` as the user who started the run, perhaps root",
        io::ErrorKind::NotFound => "`pilotlab restore` without a name looks at all that are there",
        io::ErrorKind::InvalidInput => "name the journal itself",
        _ => "is it a journal, and on a file system that can be read?",
    }
}

fn process(pid: Option<u32>) -> String {
    pid.map_or("a process".into(), |pid| format!("process {pid}"))
}

fn not_back(all: &[Back]) -> String {
    let mut text = "not everything could be put back:".to_owned();
    for back in all.iter().filter(|back| !back.outcome.is_settled()) {
        let _ = write!(text, "\n  {back}");
    }
    if all.iter().any(|back| matches!(back.outcome, Outcome::Foreign)) {
        text += "\n`pilotlab restore --force` sets it all the same";
    }
    text
}
