//! Shared state of background work: rates, pauses, drives in use, I/O threads with requests.

use std::collections::HashMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_queue::ArrayQueue;
use pilotlight_reactor::housekeeping::Waker;
use pilotlight_reactor::{Histogram, HistogramSnapshot};

pub use super::class::{CLASSES, Class};
pub use super::drive::Drive;
use super::pace::PRESENT_NS;
use super::upkeep::{Place, Upkeep};
use crate::BackendSpec;

/// The highest rate, in millionths of itself.
pub const FULL_PPM: u64 = 1_000_000;
/// Capacity of the queue of findings to log; more are only counted.
const FINDINGS: usize = 256;

/// Which namespaces are scrubbed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scrubbed {
    /// None.
    Off,
    /// Those with checksums.
    #[default]
    Checked,
    /// All in files and on block devices. Without checksums only unreadable blocks are found.
    All,
}

/// Configuration of background work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackgroundConfig {
    /// Which namespaces are scrubbed.
    pub scrub: Scrubbed,
    /// The highest rate of scrubbing per namespace, in bytes per second.
    pub scrub_bytes_per_s: u64,
    /// Days from one pass to the next. A pass that is behind this schedule exceeds the rate.
    pub scrub_days: u32,
    /// The highest rate of trimming per namespace, in bytes per second.
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
    /// The rate set by the policy, in millionths of the highest.
    ppm: AtomicU64,
    is_paused: AtomicBool,
    /// The last computed backlog in bytes.
    backlog: AtomicU64,
    /// When it was computed; `u64::MAX` for never.
    computed_ns: AtomicU64,
}

impl Rate {
    fn new(highest: u64) -> Self {
        let never = AtomicU64::new(u64::MAX);
        Self {
            highest,
            ppm: AtomicU64::new(FULL_PPM),
            is_paused: AtomicBool::new(false),
            backlog: AtomicU64::new(0),
            computed_ns: never,
        }
    }
}

/// Status of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassStats {
    /// The class.
    pub class: Class,
    /// The highest rate per namespace, in bytes per second.
    pub highest_bytes_per_s: u64,
    /// The rate set by the policy, in millionths of the highest.
    pub rate_ppm: u64,
    /// Whether an operator has paused it.
    pub is_paused: bool,
    /// Backlog in bytes.
    pub backlog_bytes: u64,
}

/// Activity of an I/O thread, on its own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Activity {
    /// Whether it has requests.
    is_active: AtomicBool,
    /// Time of its last request, in nanoseconds; 0 for none.
    last_ns: AtomicU64,
    /// Time of its first request after the last background I/O began.
    overlap_ns: AtomicU64,
}

/// An error found by scrubbing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A block's data does not match its checksum in two reads.
    Mismatch {
        /// The block.
        lba: u64,
    },
    /// Unreadable blocks.
    ReadError {
        /// The first.
        lba: u64,
        /// The error.
        error: crate::IoError,
    },
}

/// Shared state of background work.
#[derive(Debug)]
pub struct Background {
    config: BackgroundConfig,
    rates: [Rate; 2],
    drives: Mutex<HashMap<u64, Arc<Drive>>>,
    activity: Box<[Activity]>,
    /// Start of the last background I/O, in nanoseconds.
    began_ns: AtomicU64,
    /// For each background I/O that overlapped a request: the time from the poll that took the request to the end of the I/O.
    overlaps: Histogram,
    /// Namespaces with background work, including removed ones.
    placed: AtomicU32,
    upkeeps: Mutex<Vec<Arc<Upkeep>>>,
    findings: ArrayQueue<(Arc<Upkeep>, Finding)>,
    /// Of the task that logs findings and computes the backlog.
    pub(super) housekeeping: Waker,
    /// Whether a policy uses the backlog.
    is_backlog_wanted: AtomicBool,
}

impl Background {
    /// For a server with `io_threads` I/O threads.
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
            housekeeping: Waker::default(),
            is_backlog_wanted: AtomicBool::new(false),
        }
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &BackgroundConfig {
        &self.config
    }

    /// Whether any namespace has or had background work.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.placed.load(Relaxed) > 0
    }

    /// Assigns the background work of a namespace (NQN and NSID in `name`), if any, to an I/O thread.
    pub fn add(&self, upkeep: &Arc<Upkeep>, name: (&str, u32), backend: &BackendSpec) {
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

    /// Removes a namespace.
    pub fn remove(&self, upkeep: &Arc<Upkeep>) {
        self.all().retain(|other| !Arc::ptr_eq(other, upkeep));
    }

    fn drives(&self) -> MutexGuard<'_, HashMap<u64, Arc<Drive>>> {
        self.drives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Upkeep>>> {
        self.upkeeps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The namespaces with background work.
    #[must_use]
    pub fn upkeeps(&self) -> Vec<Arc<Upkeep>> {
        self.all().clone()
    }

    /// Whether any namespace has work of this class.
    #[must_use]
    pub fn has(&self, class: Class) -> bool {
        self.all().iter().any(|upkeep| upkeep.has(class))
    }

    /// Current rate of a class per namespace, in bytes per second; 0 while paused.
    #[must_use]
    pub fn rate(&self, class: Class) -> u64 {
        let rate = &self.rates[class as usize];
        if rate.is_paused.load(Relaxed) {
            return 0;
        }
        (u128::from(rate.highest) * u128::from(rate.ppm.load(Relaxed)) / u128::from(FULL_PPM)) as u64
    }

    /// The rate set by the policy, in millionths of the highest.
    #[must_use]
    pub fn ppm(&self, class: Class) -> u64 {
        self.rates[class as usize].ppm.load(Relaxed)
    }

    /// Sets a rate, in millionths of the highest.
    pub fn set_ppm(&self, class: Class, ppm: u64) {
        self.rates[class as usize].ppm.store(ppm.min(FULL_PPM), Relaxed);
    }

    /// Whether an operator has paused a class.
    #[must_use]
    pub fn is_paused(&self, class: Class) -> bool {
        self.rates[class as usize].is_paused.load(Relaxed)
    }

    /// Pauses or resumes a class.
    pub fn set_paused(&self, class: Class, paused: bool) {
        self.rates[class as usize].is_paused.store(paused, Relaxed);
    }

    /// Status of the classes in use.
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

    /// Starts or stops the computation of the backlog.
    pub fn want_backlog(&self, wanted: bool) {
        if self.is_backlog_wanted.swap(wanted, Relaxed) != wanted {
            self.housekeeping.wake();
        }
    }

    /// Whether a policy uses the backlog.
    pub fn is_backlog_wanted(&self) -> bool {
        self.is_backlog_wanted.load(Relaxed)
    }

    /// Computes the backlog, for readings.
    pub fn compute_backlog(&self, now_ns: u64) {
        let upkeeps = self.upkeeps();
        for class in CLASSES {
            let rate = &self.rates[class as usize];
            rate.backlog.store(upkeeps.iter().map(|upkeep| upkeep.backlog(class)).sum(), Relaxed);
            rate.computed_ns.store(now_ns, Relaxed);
        }
    }

    /// What [`Background::compute_backlog`] last result, and its time.
    pub fn backlog(&self, class: Class) -> Option<(u64, u64)> {
        let rate = &self.rates[class as usize];
        let computed_ns = rate.computed_ns.load(Relaxed);
        (computed_ns != u64::MAX).then(|| (rate.backlog.load(Relaxed), computed_ns))
    }

    /// Records the poll of I/O thread `me`: whether it took requests, and whether it has any.
    pub fn note_requests(&self, me: u16, took: bool, has: bool, now_ns: u64) {
        let own = &self.activity[usize::from(me)];
        if own.is_active.load(Relaxed) != has {
            own.is_active.store(has, Relaxed);
        }
        if !took {
            return;
        }
        own.last_ns.store(now_ns, Relaxed);
        if own.overlap_ns.load(Relaxed) < self.began_ns.load(Relaxed) {
            own.overlap_ns.store(now_ns, Relaxed);
        }
    }

    /// Whether an I/O thread other than `me` has requests.
    pub fn others_are_active(&self, me: u16) -> bool {
        self.activity.iter().enumerate().any(|(at, one)| at != usize::from(me) && one.is_active.load(Relaxed))
    }

    /// Whether hosts are present ([`PRESENT_NS`]).
    pub fn has_hosts(&self, now_ns: u64) -> bool {
        let is_recent = |last_ns: u64| last_ns != 0 && now_ns.saturating_sub(last_ns) < PRESENT_NS;
        self.activity.iter().any(|one| is_recent(one.last_ns.load(Relaxed)))
    }

    /// Records the start of a background I/O.
    pub(super) fn note_begin(&self, now_ns: u64) {
        self.began_ns.fetch_max(now_ns, SeqCst);
    }

    /// Records the end of the background I/O that began at `began_ns`.
    pub(super) fn note_end(&self, began_ns: u64, now_ns: u64) {
        let overlap = self
            .activity
            .iter()
            .map(|one| one.overlap_ns.load(Relaxed))
            .filter(|overlap_ns| *overlap_ns >= began_ns)
            .min();
        if let Some(overlap_ns) = overlap.filter(|&overlap_ns| overlap_ns <= now_ns) {
            self.overlaps.record_shared(now_ns - overlap_ns, 1);
        }
    }

    /// For each background I/O that overlapped a request: the time from the poll that took the first such request (with
    /// several drives in some cases a later one) to the end of the I/O.
    #[must_use]
    pub fn overlaps(&self) -> HistogramSnapshot {
        self.overlaps.snapshot()
    }

    /// Queues a finding to log.
    pub fn report(&self, upkeep: &Arc<Upkeep>, finding: Finding) {
        let _ = self.findings.push((Arc::clone(upkeep), finding));
        self.housekeeping.wake();
    }

    /// Logs the queued findings.
    pub fn log(&self) {
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

/// The device number of a device node, or of the device below a file.
fn drive_number(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| if file.file_type().is_block_device() { file.rdev() } else { file.dev() })
}
