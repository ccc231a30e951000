//! The background work of one namespace: its I/O thread and its progress.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::class::Class;
use super::drive::Drive;
use super::sums::RANGE;
use super::sums::tracker::Tracker;

/// Assignment of a namespace's work.
#[derive(Debug)]
pub struct Place {
    /// The I/O thread.
    pub owner: u16,
    /// Its drive.
    pub drive: Arc<Drive>,
    /// Whether it is scrubbed.
    pub scrubs: bool,
    /// Its subsystem.
    pub nqn: String,
    /// Its NSID.
    pub nsid: u32,
}

/// Progress counters, written by its I/O thread.
#[derive(Debug, Default)]
pub struct Progress {
    /// Ranges of the namespace.
    pub ranges: AtomicU64,
    /// Completed ranges of the pass.
    pub position: AtomicU64,
    /// When the pass began, in Unix seconds; 0 before the first.
    pub began_s: AtomicU64,
    /// Completed passes.
    pub passes: AtomicU64,
    /// Blocks that did not match their checksums.
    pub mismatches: AtomicU64,
    /// Failed reads.
    pub read_errors: AtomicU64,
    /// Bytes read.
    pub read_bytes: AtomicU64,
    /// Bytes trimmed.
    pub trimmed_bytes: AtomicU64,
}

/// The background work of a namespace.
#[derive(Debug, Default)]
pub struct Upkeep {
    tracker: Option<Arc<Tracker>>,
    place: OnceLock<Place>,
    /// The progress.
    pub progress: Progress,
}

/// Status of a namespace's background work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpkeepStats {
    /// The subsystem.
    pub nqn: String,
    /// The namespace.
    pub nsid: u32,
    /// Whether it has checksums.
    pub has_sums: bool,
    /// Whether it is scrubbed.
    pub scrubs: bool,
    /// Whether freed ranges are trimmed in the background.
    pub trims: bool,
    /// Completed bytes of the pass.
    pub scrubbed_bytes: u64,
    /// Bytes of the namespace.
    pub bytes: u64,
    /// When the pass began, in Unix seconds; 0 before the first.
    pub began_s: u64,
    /// Passes completed since the server started.
    pub passes: u64,
    /// Bytes read by scrubbing since the server started.
    pub read_bytes: u64,
    /// Bytes written and not summed since.
    pub dirty_bytes: u64,
    /// Bytes freed and not trimmed yet.
    pub freed_bytes: u64,
    /// Bytes trimmed since the server started.
    pub trimmed_bytes: u64,
    /// Blocks found with wrong checksums since the server started.
    pub mismatches: u64,
    /// Blocks whose reads fail now.
    pub bad_blocks: u64,
    /// Failed reads of scrubbing since the server started.
    pub read_errors: u64,
}

impl Upkeep {
    /// For a namespace with an optional tracker.
    #[must_use]
    pub fn new(tracker: Option<Arc<Tracker>>) -> Self {
        Self { tracker, ..Self::default() }
    }

    /// Its tracker, if any.
    #[must_use]
    pub fn tracker(&self) -> Option<&Arc<Tracker>> {
        self.tracker.as_ref()
    }

    pub(super) fn place(&self, place: Place) {
        let _ = self.place.set(place);
    }

    /// Its assignment, if it has background work.
    #[must_use]
    pub fn placed(&self) -> Option<&Place> {
        self.place.get()
    }

    pub(super) fn name(&self) -> (&str, u32) {
        self.place.get().map_or(("", 0), |place| (place.nqn.as_str(), place.nsid))
    }

    pub(super) fn has(&self, class: Class) -> bool {
        match class {
            Class::Scrub => self.place.get().is_some_and(|place| place.scrubs),
            Class::Trim => self.tracker.as_ref().is_some_and(|tracker| tracker.trims()),
        }
    }

    fn dirty(&self) -> u64 {
        self.tracker.as_ref().map_or(0, |tracker| tracker.dirty.len())
    }

    fn freed(&self) -> u64 {
        self.tracker.as_ref().map_or(0, |tracker| tracker.freed.len())
    }

    /// Backlog in bytes.
    #[must_use]
    pub fn backlog(&self, class: Class) -> u64 {
        let ranges = match class {
            Class::Scrub if !self.has(class) => 0,
            Class::Scrub => {
                let progress = &self.progress;
                progress.ranges.load(Relaxed).saturating_sub(progress.position.load(Relaxed)).max(self.dirty())
            }
            Class::Trim => self.freed(),
        };
        ranges * RANGE
    }

    /// Its status; `None` without background work.
    #[must_use]
    pub fn stats(&self) -> Option<UpkeepStats> {
        let (place, progress) = (self.place.get()?, &self.progress);
        let of = |count: &AtomicU64| count.load(Relaxed);
        Some(UpkeepStats {
            nqn: place.nqn.clone(),
            nsid: place.nsid,
            has_sums: self.tracker.as_ref().is_some_and(|tracker| tracker.has_sums()),
            scrubs: place.scrubs,
            trims: self.has(Class::Trim),
            scrubbed_bytes: of(&progress.position) * RANGE,
            bytes: of(&progress.ranges) * RANGE,
            began_s: of(&progress.began_s),
            passes: of(&progress.passes),
            read_bytes: of(&progress.read_bytes),
            dirty_bytes: self.dirty() * RANGE,
            freed_bytes: self.freed() * RANGE,
            trimmed_bytes: of(&progress.trimmed_bytes),
            mismatches: of(&progress.mismatches),
            bad_blocks: self.tracker.as_ref().map_or(0, |tracker| tracker.bad.len() as u64),
            read_errors: of(&progress.read_errors),
        })
    }
}
