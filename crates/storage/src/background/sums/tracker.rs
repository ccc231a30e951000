//! State of a namespace's ranges, and the thread that reads and writes its sums file.
//!
//! I/O threads do not wait: ranges to mark go into a queue, and one job marks all queued ranges with one sync. The scrubber
//! has one request at a time and polls for the reply.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crossbeam_queue::ArrayQueue;

use super::bad::BadBlocks;
use super::bits::Bits;
use super::file::SumsFile;
use super::format::{Layout, Pass};
use super::ranges::{Mark, Ranges};
use super::{BLOCK, BLOCKS, Sums};
use crate::Backend;
use crate::blocking::{self, BlockingPool, Handle};

/// Capacity of the queue of ranges to mark.
const TO_MARK: usize = 8192;
/// Maximum ranges marked by one sync.
const BATCH: usize = 4096;
/// Ranges marked ahead of a sequential write: 1 MiB.
const AHEAD: u64 = 16;

/// Result of a job for the scrubber.
#[derive(Debug)]
pub enum Reply {
    /// Result of a lookup.
    Lookup {
        /// The range.
        range: u64,
        /// Whether its data was dropped from caches.
        uncached: bool,
        /// Its checksums; `None` if there are none that are valid.
        sums: Option<Sums>,
    },
    /// A finished commit.
    Committed(Vec<(u64, Sums)>),
}

/// Work for the thread.
#[derive(Debug)]
pub enum Work {
    /// Write the queued marks durably.
    Mark,
    /// Look up a range's checksums, optionally dropping its data from caches.
    Lookup {
        /// The range.
        range: u64,
        /// Whether its data is dropped from caches.
        uncached: bool,
    },
    /// Write checksums, then clear the marks of their ranges.
    Commit(Vec<(u64, Sums)>),
    /// Record the progress of the pass.
    Note(Pass),
    /// Store the bad blocks.
    KeepBad,
}

/// A job of the thread.
pub struct Job {
    tracker: Arc<Tracker>,
    work: Work,
}

/// State of the ranges of a namespace.
pub struct Tracker {
    layout: Layout,
    /// State of each range.
    pub ranges: Ranges,
    /// The checksums; `None` if only freed ranges are tracked.
    file: Option<SumsFile>,
    /// Whether freed ranges are trimmed in the background.
    trims: bool,
    /// Dirty ranges.
    pub dirty: Bits,
    /// Freed ranges.
    pub freed: Bits,
    /// Bad blocks.
    pub bad: BadBlocks,
    to_mark: ArrayQueue<u64>,
    is_marking: AtomicBool,
    /// Error number of the first mark that could not be written; 0 for none.
    failed: AtomicI32,
    replies: ArrayQueue<Reply>,
    jobs: OnceLock<Handle<Job>>,
    /// The data, to drop it from caches.
    medium: Weak<dyn Backend>,
}

/// The thread of a tracker. Dropping it finishes the queued jobs and closes the sums file cleanly.
pub struct Worker {
    pool: Option<BlockingPool<Job>>,
    tracker: Arc<Tracker>,
}

impl Tracker {
    /// Tracks the ranges of `medium` of `bytes` bytes.
    ///
    /// # Errors
    /// If there is no memory, or the thread cannot be started.
    pub fn start(
        medium: &Arc<dyn Backend>,
        bytes: u64,
        file: Option<SumsFile>,
        trims: bool,
    ) -> io::Result<(Arc<Self>, Worker)> {
        let layout = Layout::new(bytes);
        let tracker = Arc::new(Self {
            ranges: Ranges::new(layout.ranges, file.is_some())?,
            dirty: Bits::new(layout.ranges),
            freed: Bits::new(layout.ranges),
            bad: file.as_ref().map(|file| BadBlocks::from_places(&file.bad())).unwrap_or_default(),
            to_mark: ArrayQueue::new(TO_MARK),
            is_marking: AtomicBool::new(false),
            failed: AtomicI32::new(0),
            replies: ArrayQueue::new(4),
            jobs: OnceLock::new(),
            medium: Arc::downgrade(medium),
            layout,
            file,
            trims,
        });
        for range in tracker.file.iter().flat_map(SumsFile::marked) {
            tracker.ranges.found_dirty(range);
            tracker.dirty.add(range);
        }
        let pool = BlockingPool::start_named(|_| "checksums".to_owned(), 1, 64)?;
        let _ = tracker.jobs.set(pool.handle());
        Ok((Arc::clone(&tracker), Worker { pool: Some(pool), tracker }))
    }

    /// The layout of the sums file.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether the namespace has checksums.
    #[must_use]
    pub fn has_sums(&self) -> bool {
        self.file.is_some()
    }

    /// Whether freed ranges are trimmed in the background.
    #[must_use]
    pub fn trims(&self) -> bool {
        self.trims
    }

    /// The last recorded pass of scrubbing.
    #[must_use]
    pub fn pass(&self) -> Pass {
        self.file.as_ref().map(SumsFile::pass).unwrap_or_default()
    }

    /// Fails once a mark could not be written: from then on writes to clean ranges fail.
    ///
    /// # Errors
    /// The error number.
    pub fn check(&self) -> Result<(), i32> {
        match self.failed.load(Ordering::Relaxed) {
            0 => Ok(()),
            number => Err(number),
        }
    }

    /// Queues a range in state [`Mark::Marking`]. If the queue is full it becomes clean again, for a later retry.
    pub fn request_mark(self: &Arc<Self>, range: u64) {
        if self.to_mark.push(range).is_err() {
            self.ranges.marked(range, false);
        }
        self.wake();
    }

    /// Starts a job for queued marks unless one is pending.
    pub fn wake(self: &Arc<Self>) {
        if !self.to_mark.is_empty() && !self.is_marking.swap(true, Ordering::SeqCst) && self.submit(Work::Mark).is_err()
        {
            self.is_marking.store(false, Ordering::SeqCst);
        }
    }

    /// Submits work to the thread.
    ///
    /// # Errors
    /// The work, if the queue is full.
    pub fn submit(self: &Arc<Self>, work: Work) -> Result<(), Work> {
        let Some(jobs) = self.jobs.get() else { return Err(work) };
        jobs.submit(Job { tracker: Arc::clone(self), work }).map_err(|job| job.work)
    }

    /// The next reply for the scrubber.
    #[must_use]
    pub fn reply(&self) -> Option<Reply> {
        self.replies.pop()
    }

    fn mark(&self) {
        self.is_marking.store(false, Ordering::SeqCst);
        let mut batch = Vec::new();
        while let Some(range) = self.to_mark.pop() {
            batch.push(range);
            self.mark_ahead(range, &mut batch);
            if batch.len() >= BATCH {
                self.mark_all(&batch);
                batch.clear();
            }
        }
        self.mark_all(&batch);
    }

    /// Treats a write after a dirty range as part of a sequential stream.
    fn mark_ahead(&self, range: u64, batch: &mut Vec<u64>) {
        if range == 0 || self.ranges.mark(range - 1) != Mark::Dirty {
            return;
        }
        let ahead = range + 1..(range + AHEAD).min(self.layout.ranges);
        batch.extend(ahead.filter(|&range| self.ranges.start_marking(range, false)));
    }

    fn mark_all(&self, ranges: &[u64]) {
        let Some(file) = self.file.as_ref().filter(|_| !ranges.is_empty()) else { return };
        let result = self.check().map_err(io::Error::from_raw_os_error).and_then(|()| file.mark(ranges));
        if let Err(error) = &result {
            let number = error.raw_os_error().unwrap_or(libc::EIO);
            if self.failed.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                tracing::error!(%error, "checksums: cannot mark ranges dirty; writes to clean ranges fail: check the drive of the sums file, then restart");
            }
        }
        for &range in ranges {
            if result.is_ok() {
                self.dirty.add(range);
            }
            self.ranges.marked(range, result.is_ok());
        }
    }

    fn look_up(&self, range: u64, uncached: bool) -> Option<Sums> {
        if uncached && let Some(medium) = self.medium.upgrade() {
            medium.drop_cache(self.bytes_of(range));
        }
        self.file.as_ref()?.sums(range).unwrap_or_else(|error| {
            tracing::warn!(range, %error, "cannot read checksums; the range is summed again");
            None
        })
    }

    fn commit(&self, sums: &[(u64, Sums)]) {
        let Some(file) = &self.file else { return };
        // writes have removed their blocks from the bad ones before they left the range
        let result = file.commit(sums, &self.bad.places(), |range| {
            let is_clean = self.ranges.end_commit(range, true);
            if is_clean {
                self.dirty.take(range);
            }
            is_clean
        });
        if let Err(error) = result {
            tracing::warn!(%error, "cannot write checksums; their ranges stay dirty");
            for (range, _) in sums {
                let _ = self.ranges.end_commit(*range, false);
            }
        }
    }

    fn keep_bad(&self) {
        if let Some(Err(error)) = self.file.as_ref().map(|file| file.keep_bad(&self.bad.places())) {
            tracing::warn!(%error, "cannot store bad blocks; after a restart scrubbing must find them again");
        }
    }

    /// The bytes of a range.
    #[must_use]
    pub fn bytes_of(&self, range: u64) -> Range<u64> {
        self.layout.bytes_of(range)
    }

    /// The ranges of `blocks` blocks at `lba`.
    #[must_use]
    pub fn ranges_of(lba: u64, blocks: u64) -> Range<u64> {
        lba / BLOCKS as u64..(lba + blocks).div_ceil(BLOCKS as u64)
    }

    /// Blocks of the namespace.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.layout.bytes / BLOCK
    }
}

impl std::fmt::Debug for Tracker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracker").field("layout", &self.layout).field("trims", &self.trims).finish_non_exhaustive()
    }
}

impl blocking::Job for Job {
    fn run(self) {
        let tracker = &self.tracker;
        let reply = match self.work {
            Work::Mark => return tracker.mark(),
            Work::KeepBad => return tracker.keep_bad(),
            Work::Note(pass) => {
                if let Some(Err(error)) = tracker.file.as_ref().map(|file| file.note(pass, false)) {
                    tracing::warn!(%error, "cannot record the progress of scrubbing");
                }
                return;
            }
            Work::Lookup { range, uncached } => {
                Reply::Lookup { range, uncached, sums: tracker.look_up(range, uncached) }
            }
            Work::Commit(mut sums) => {
                tracker.commit(&sums);
                sums.clear();
                Reply::Committed(sums)
            }
        };
        let _ = tracker.replies.push(reply); // the scrubber has one request at a time
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.pool.take());
        let Some(file) = &self.tracker.file else { return };
        self.tracker.keep_bad();
        if let Err(error) = file.note(file.pass(), true) {
            tracing::warn!(%error, "cannot close the sums file cleanly");
        }
    }
}
