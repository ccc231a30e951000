//! Errors of changes, with their remedies.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use super::report::{Outcome, RestoreReport};

/// A setting could not be changed or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The journal cannot be kept.
    #[error("journal {path}: {why}; no setting is changed without a journal; make the folder writable or use another")]
    Journal {
        /// The file.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// A journal cannot be read.
    #[error("cannot read journal {path}: {why}; {}", reading(why))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// A file is not a journal.
    #[error(
        "{path} is not a journal: {why}; nothing is restored from it. Use another file; if it was a journal before a power failure, remove it, \
         because a restart resets all settings"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Why it is not a journal.
        why: &'static str,
    },
    /// A line of a journal cannot be parsed.
    #[error(
        "journal {path}, line {line}: {why}; restore the settings of its lines `change` manually, then remove the file"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The parser's error.
        why: serde_json::Error,
    },
    /// CPUs cannot be taken offline because a cgroup would have none left.
    #[error(
        "CPUs {cpus:?} cannot be taken offline: {path} has no others, and its threads would leave it permanently; add a CPU to it"
    )]
    Cpuset {
        /// Its list of CPUs.
        path: PathBuf,
        /// The CPUs to take offline.
        cpus: Vec<u32>,
    },
    /// The process that made the changes still runs.
    #[error("journal {path} belongs to {}, which still runs and restores its changes at its end; stop it first", process(*pid))]
    Lives {
        /// The file.
        path: PathBuf,
        /// Its process, if known.
        pid: Option<u32>,
    },
    /// Another user's journal.
    #[error("journal {path} was written by user {owner}; run `pilotlab restore` as that user")]
    Owner {
        /// The file.
        path: PathBuf,
        /// The user's number.
        owner: u32,
    },
    /// An earlier run was killed and did not restore its changes.
    #[error("an earlier run was killed and did not restore its changes ({}); run `pilotlight restore` or `pilotlab restore` first", .0.display())]
    LeftBehind(PathBuf),
    /// Another process has changed the same setting.
    #[error("{setting} is in use by {}; wait until it has ended", process(*pid))]
    InUse {
        /// What is changed.
        setting: String,
        /// The process, if known.
        pid: Option<u32>,
    },
    /// The path is not a setting of the kernel.
    #[error(
        "{0} must not be changed; allowed are files below /sys, /proc/sys and /proc/irq, without `..`, and controllers in /dev"
    )]
    Outside(String),
    /// The value cannot be read, so it could not be restored.
    #[error("cannot read {setting}: {why}; {help}")]
    Read {
        /// The setting.
        setting: String,
        /// The system's error.
        why: io::Error,
        /// The remedy.
        help: &'static str,
    },
    /// The kernel refuses the value.
    #[error("cannot set {setting} to {wanted}: {why}; {help}")]
    Write {
        /// The setting.
        setting: String,
        /// The value.
        wanted: String,
        /// The system's error.
        why: io::Error,
        /// The remedy.
        help: String,
    },
    /// The kernel ignored the value.
    #[error("{setting} was set to {wanted} without an error but is {now}: the kernel or the hardware ignores it")]
    Ignored {
        /// The setting.
        setting: String,
        /// The value.
        wanted: String,
        /// The effective value.
        now: String,
    },
    /// Cgroups cannot be used.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// Not all changes were restored.
    #[error("{}", not_back(.0))]
    NotBack(Vec<RestoreReport>),
}

/// A cgroup cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CgroupError {
    /// No file system of version 2.
    #[error("no cgroup of version 2 is mounted at /sys/fs/cgroup; omit [machine.cgroup]")]
    NoV2,
    /// No file system of either version with the controller `cpu`.
    #[error("no cgroup file system with the controller `cpu` is mounted; mount version 2 at /sys/fs/cgroup")]
    NoCpu,
    /// An invalid name.
    #[error("invalid cgroup name {0:?}; use letters, digits and `-`")]
    Name(String),
    /// A limit needs a controller that the group lacks.
    #[error(
        "the controller `{0}` is not in {1}/cgroup.controllers: it is used by cgroups of version 1, or not built into the kernel; boot with \
         cgroup_no_v1=all, or omit its limits in [machine.cgroup]"
    )]
    NoController(String, PathBuf),
    /// The group of the process lacks the controller `cpu`.
    #[error(
        "the controller `cpu` is not in {0}/cgroup.controllers: have it delegated to the server (systemd: Delegate=cpu)"
    )]
    NotDelegated(PathBuf),
    /// There are no threads to limit.
    #[error("no thread is there to get a CPU quota")]
    NoThread,
    /// The file system is mounted at another place.
    #[error("{0} is not below /sys: mount the cgroup file system at /sys/fs/cgroup")]
    NotInSys(PathBuf),
    /// The controllers of the group cannot be read.
    #[error("cannot read {0}/cgroup.controllers: {1}")]
    Unreadable(PathBuf, io::Error),
    /// The group cannot have groups below it.
    #[error("cannot make a cgroup in {0}: {1}; run the server as root, or delegate the cgroup to its user")]
    Unwritable(PathBuf, io::Error),
}

fn reading(why: &io::Error) -> &'static str {
    match why.kind() {
        io::ErrorKind::PermissionDenied => "run `pilotlab restore` as the user who started the run, perhaps root",
        io::ErrorKind::NotFound => "run `pilotlab restore` without a name to process all journals",
        io::ErrorKind::InvalidInput => "use the path of the journal",
        _ => "check that it is a journal on a readable file system",
    }
}

fn process(pid: Option<u32>) -> String {
    pid.map_or("a process".into(), |pid| format!("process {pid}"))
}

fn not_back(all: &[RestoreReport]) -> String {
    let mut text = "not all changes could be restored:".to_owned();
    for back in all.iter().filter(|back| !back.outcome.is_settled()) {
        let _ = write!(text, "\n  {back}");
    }
    if all.iter().any(|back| matches!(back.outcome, Outcome::ChangedElsewhere)) {
        text += "\n`pilotlab restore --force` overwrites values that another process has set";
    }
    text
}
