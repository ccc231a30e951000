//! What all I/O threads share of background work: rates, pauses, which drive is in use, which I/O threads have requests.

use std::collections::HashMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use crossbeam_queue::ArrayQueue;
use pilotlight_reactor::{Histogram, HistogramSnapshot};

use super::pace::{PRESENT_NS, SPACING};
use super::upkeep::{Place, Upkeep};
use crate::backend::BackendSpec;

/// A rate in millionths of the highest: the highest.
pub const FULL_PPM: u64 = 1_000_000;
/// Findings that may wait to be logged; more are counted only.
const FINDINGS: usize = 256;

/// A class of background work; as a number, that of [`pilotlight_plant::Of::Background`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Reading and summing blocks.
    Scrub = 0,
    /// Giving freed ranges back.
    Trim = 1,
}

/// Both classes, by number.
pub const CLASSES: [Class; 2] = [Class::Scrub, Class::Trim];

impl Class {
    /// Its name, as operators write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scrub => "scrub",
            Self::Trim => "trim",
        }
    }
}

/// Which namespaces are scrubbed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scrubbed {
    /// None.
    Off,
    /// Those with checksums.
    #[default]
    Checked,
    /// All in files and on block devices. Without checksums only blocks that cannot be read are found.
    All,
}

/// What background work is done, and how fast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackgroundConfig {
    /// Which namespaces are scrubbed.
    pub scrub: Scrubbed,
    /// The highest rate of scrubbing, of a namespace, in bytes a second.
    pub scrub_bytes_per_s: u64,
    /// A pass begins every so many days, and is finished by then at whatever rate.
    pub scrub_days: u32,
    /// The highest rate of trimming, of a namespace, in bytes a second.
    pub trim_bytes_per_s: u64,
}

impl Default for BackgroundConfig {
    fn default() -> Self {
        Self {
            scrub: Scrubbed::default(),
            scrub_bytes_per_s: 100_000_000,
            scrub_days: 30,
            trim_bytes_per_s: 1_000_000_000,
        }
    }
}

/// The rate of a class.
#[derive(Debug)]
struct Rate {
    highest: u64,
    /// As a policy has set it; the highest without.
    ppm: AtomicU64,
    is_paused: AtomicBool,
    /// Bytes to be done, as last added up.
    backlog: AtomicU64,
    /// When that was; `u64::MAX` if it was not.
    added_ns: AtomicU64,
}

impl Rate {
    fn new(highest: u64) -> Self {
        let never = AtomicU64::new(u64::MAX);
        Self {
            highest,
            ppm: AtomicU64::new(FULL_PPM),
            is_paused: AtomicBool::new(false),
            backlog: AtomicU64::new(0),
            added_ns: never,
        }
    }
}

/// The rate of a class, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassStats {
    /// The class.
    pub class: Class,
    /// The highest rate of a namespace, in bytes a second.
    pub highest_bytes_per_s: u64,
    /// What the policy has set, in millionths of the highest.
    pub rate_ppm: u64,
    /// Whether a person has paused it.
    pub is_paused: bool,
    /// Bytes to be done.
    pub backlog_bytes: u64,
}

/// A drive: one background I/O at a time.
#[derive(Debug, Default)]
pub struct Drive {
    is_in_use: AtomicBool,
    /// Until when the last I/O keeps others away while hosts are present, in nanoseconds.
    spaced_ns: AtomicU64,
}

impl Drive {
    /// Takes the drive for one I/O; whether it was free.
    pub fn take(&self) -> bool {
        !self.is_in_use.swap(true, SeqCst)
    }

    /// The I/O is over.
    pub fn give_back(&self) {
        self.is_in_use.store(false, SeqCst);
    }

    /// All that belongs to an I/O is over, after so long in all.
    pub fn space(&self, began_ns: u64, took_ns: u64) {
        self.spaced_ns.fetch_max(began_ns.saturating_add(took_ns.saturating_mul(SPACING)), Relaxed);
    }

    /// From when on one is due by its rate while hosts are present, in nanoseconds.
    #[must_use]
    pub fn spaced_ns(&self) -> u64 {
        self.spaced_ns.load(Relaxed)
    }
}

/// What an I/O thread says of its requests; cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Activity {
    /// Whether it has any.
    is_active: AtomicBool,
    /// When it last took one, in nanoseconds; 0 for never.
    last_ns: AtomicU64,
    /// When it took the first one after the last background I/O had begun.
    met_ns: AtomicU64,
}

/// What scrubbing has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A block's data is not what its checksum says, read twice.
    Mismatch {
        /// The block.
        lba: u64,
    },
    /// Blocks that cannot be read.
    ReadError {
        /// The first.
        lba: u64,
        /// What the system says.
        error: crate::backend::IoError,
    },
}

/// What all share.
#[derive(Debug)]
pub struct Background {
    config: BackgroundConfig,
    rates: [Rate; 2],
    drives: Mutex<HashMap<u64, Arc<Drive>>>,
    activity: Box<[Activity]>,
    /// When the last background I/O began, in nanoseconds.
    began_ns: AtomicU64,
    /// Of each background I/O during which a host's request came: from the poll that took the first one until it was over.
    overlaps: Histogram,
    /// Namespaces with background work so far.
    placed: AtomicU32,
    upkeeps: Mutex<Vec<Arc<Upkeep>>>,
    findings: ArrayQueue<(Arc<Upkeep>, Finding)>,
    logger: OnceLock<Thread>,
    /// Whether a policy wants to know what is to be done.
    is_added_up: AtomicBool,
}

impl Background {
    /// For a server with so many I/O threads.
    #[must_use]
    pub fn new(config: BackgroundConfig, io_threads: usize) -> Self {
        Self {
            rates: [Rate::new(config.scrub_bytes_per_s), Rate::new(config.trim_bytes_per_s)],
            config,
            drives: Mutex::default(),
            activity: (0..io_threads).map(|_| Activity::default()).collect(),
            began_ns: AtomicU64::new(0),
            overlaps: Histogram::default(),
            placed: AtomicU32::new(0),
            upkeeps: Mutex::default(),
            findings: ArrayQueue::new(FINDINGS),
            logger: OnceLock::new(),
            is_added_up: AtomicBool::new(false),
        }
    }

    /// What is configured.
    #[must_use]
    pub fn config(&self) -> &BackgroundConfig {
        &self.config
    }

    /// Whether any namespace has, or had, background work.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.placed.load(Relaxed) > 0
    }

    /// Decides which I/O thread does the background work of namespace `nsid` of subsystem `nqn`, if there is any.
    pub(crate) fn add(&self, upkeep: &Arc<Upkeep>, name: (&str, u32), backend: &BackendSpec) {
        let has_sums = upkeep.tracker().is_some_and(|tracker| tracker.has_sums());
        let trims = upkeep.tracker().is_some_and(|tracker| tracker.trims());
        let scrubs = match self.config.scrub {
            Scrubbed::Off => false,
            Scrubbed::Checked => has_sums,
            Scrubbed::All => true,
        };
        let Some(path) = backend.path().filter(|_| scrubs || trims) else { return };
        let owner = self.placed.fetch_add(1, SeqCst) as usize % self.activity.len().max(1);
        let drive = Arc::clone(self.drives().entry(drive_number(path)).or_default());
        upkeep.place(Place { owner: owner as u16, drive, scrubs, nqn: name.0.to_owned(), nsid: name.1 });
        self.all().push(Arc::clone(upkeep));
    }

    /// The namespace is gone.
    pub(crate) fn remove(&self, upkeep: &Arc<Upkeep>) {
        self.all().retain(|other| !Arc::ptr_eq(other, upkeep));
    }

    fn drives(&self) -> MutexGuard<'_, HashMap<u64, Arc<Drive>>> {
        self.drives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Upkeep>>> {
        self.upkeeps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The namespaces that have background work.
    #[must_use]
    pub fn upkeeps(&self) -> Vec<Arc<Upkeep>> {
        self.all().clone()
    }

    /// Whether any namespace has work of this class.
    #[must_use]
    pub fn has(&self, class: Class) -> bool {
        self.all().iter().any(|upkeep| upkeep.has(class))
    }

    /// Bytes a second of a class, of each namespace; 0 while it is paused.
    #[must_use]
    pub fn rate(&self, class: Class) -> u64 {
        let rate = &self.rates[class as usize];
        if rate.is_paused.load(Relaxed) {
            return 0;
        }
        (u128::from(rate.highest) * u128::from(rate.ppm.load(Relaxed)) / u128::from(FULL_PPM)) as u64
    }

    /// The rate that a policy has set, in millionths of the highest.
    #[must_use]
    pub fn ppm(&self, class: Class) -> u64 {
        self.rates[class as usize].ppm.load(Relaxed)
    }

    /// A policy sets a rate, in millionths of the highest.
    pub fn set_ppm(&self, class: Class, ppm: u64) {
        self.rates[class as usize].ppm.store(ppm.min(FULL_PPM), Relaxed);
    }

    /// Whether a person has paused a class.
    #[must_use]
    pub fn is_paused(&self, class: Class) -> bool {
        self.rates[class as usize].is_paused.load(Relaxed)
    }

    /// Pauses a class, whatever its least rate, or resumes it.
    pub fn set_paused(&self, class: Class, paused: bool) {
        self.rates[class as usize].is_paused.store(paused, Relaxed);
    }

    /// The classes that any namespace has, for people.
    #[must_use]
    pub fn stats(&self) -> Vec<ClassStats> {
        let upkeeps = self.upkeeps();
        let stats = |class: Class| ClassStats {
            class,
            highest_bytes_per_s: self.rates[class as usize].highest,
            rate_ppm: self.ppm(class),
            is_paused: self.is_paused(class),
            backlog_bytes: upkeeps.iter().map(|upkeep| upkeep.backlog(class)).sum(),
        };
        CLASSES.into_iter().filter(|&class| self.has(class)).map(stats).collect()
    }

    /// A policy wants to know what is to be done, or wants it no longer.
    pub(crate) fn set_added_up(&self, wanted: bool) {
        if self.is_added_up.swap(wanted, Relaxed) != wanted {
            self.logger.get().iter().for_each(|thread| thread.unpark());
        }
    }

    /// Whether a policy wants to know what is to be done.
    pub(crate) fn is_added_up(&self) -> bool {
        self.is_added_up.load(Relaxed)
    }

    /// Adds up the bytes that are to be done, for readings.
    pub(crate) fn add_up(&self, now_ns: u64) {
        let upkeeps = self.upkeeps();
        for class in CLASSES {
            let rate = &self.rates[class as usize];
            rate.backlog.store(upkeeps.iter().map(|upkeep| upkeep.backlog(class)).sum(), Relaxed);
            rate.added_ns.store(now_ns, Relaxed);
        }
    }

    /// What [`Background::add_up`] has found last, and when.
    pub(crate) fn backlog(&self, class: Class) -> Option<(u64, u64)> {
        let rate = &self.rates[class as usize];
        let added_ns = rate.added_ns.load(Relaxed);
        (added_ns != u64::MAX).then(|| (rate.backlog.load(Relaxed), added_ns))
    }

    /// In its poll at `now_ns` I/O thread `me` took requests or none, and has some or none.
    pub(crate) fn note_requests(&self, me: u16, took: bool, has: bool, now_ns: u64) {
        let own = &self.activity[usize::from(me)];
        if own.is_active.load(Relaxed) != has {
            own.is_active.store(has, Relaxed);
        }
        if !took {
            return;
        }
        own.last_ns.store(now_ns, Relaxed);
        if own.met_ns.load(Relaxed) < self.began_ns.load(Relaxed) {
            own.met_ns.store(now_ns, Relaxed);
        }
    }

    /// Whether an I/O thread other than `me` has requests.
    pub(crate) fn others_are_active(&self, me: u16) -> bool {
        self.activity.iter().enumerate().any(|(at, one)| at != usize::from(me) && one.is_active.load(Relaxed))
    }

    /// Whether hosts are present ([`PRESENT_NS`]).
    pub(crate) fn has_hosts(&self, now_ns: u64) -> bool {
        let is_recent = |last_ns: u64| last_ns != 0 && now_ns.saturating_sub(last_ns) < PRESENT_NS;
        self.activity.iter().any(|one| is_recent(one.last_ns.load(Relaxed)))
    }

    /// A background I/O begins.
    pub(super) fn note_begin(&self, now_ns: u64) {
        self.began_ns.fetch_max(now_ns, SeqCst);
    }

    /// The background I/O that began at `began_ns` is over.
    pub(super) fn note_end(&self, began_ns: u64, now_ns: u64) {
        let met = self.activity.iter().map(|one| one.met_ns.load(Relaxed)).filter(|met_ns| *met_ns >= began_ns).min();
        if let Some(met_ns) = met.filter(|&met_ns| met_ns <= now_ns) {
            self.overlaps.record_shared(now_ns - met_ns, 1);
        }
    }

    /// Of each background I/O during which a host's request came: the time from the poll that took the first one until it was over. With
    /// background work on several drives at once, from a later request in some cases.
    #[must_use]
    pub fn overlaps(&self) -> HistogramSnapshot {
        self.overlaps.snapshot()
    }

    /// Has a finding logged, by another thread.
    pub(crate) fn report(&self, upkeep: &Arc<Upkeep>, finding: Finding) {
        let _ = self.findings.push((Arc::clone(upkeep), finding));
        self.logger.get().iter().for_each(|thread| thread.unpark());
    }

    /// From now on `thread` logs findings.
    pub(crate) fn set_logger(&self, thread: Thread) {
        let _ = self.logger.set(thread);
    }

    /// Logs what has been found.
    pub(crate) fn log(&self) {
        while let Some((upkeep, finding)) = self.findings.pop() {
            let (nqn, nsid) = upkeep.name();
            match finding {
                Finding::Mismatch { lba } => tracing::error!(
                    nqn,
                    nsid,
                    lba,
                    "scrubbing: the block does not match its checksum; reads of it fail until it is written again"
                ),
                Finding::ReadError { lba, error } => {
                    tracing::error!(nqn, nsid, lba, %error, "scrubbing: blocks from here on cannot be read");
                }
            }
        }
    }
}

/// The number of the device that a file lies on, or that a device node stands for.
fn drive_number(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| if file.file_type().is_block_device() { file.rdev() } else { file.dev() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_io_keeps_others_from_its_drive_for_so_many_times_as_long_as_it_took() {
        let drive = Drive::default();
        assert!(drive.take() && !drive.take());
        drive.give_back();
        drive.space(1_000, 10);
        drive.space(900, 2);
        assert!(drive.take());
        assert_eq!(drive.spaced_ns(), 1_000 + 10 * SPACING, "the later end counts");
    }
}
