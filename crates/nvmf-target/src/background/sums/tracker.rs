//! What is known of a namespace's ranges, and the thread that reads and writes its sums file.
//!
//! I/O threads ask without waiting: a range to be marked goes into a queue, and one job of the thread marks all that are in it with one
//! sync. The scrubber asks for one thing at a time and finds the reply later.

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
use crate::backend::Backend;
use crate::backend::blocking::{self, BlockingPool, Handle};

/// Ranges that may wait for their marks.
const TO_MARK: usize = 8192;
/// Ranges that one sync marks at most.
const BATCH: usize = 4096;
/// Ranges that are marked ahead of a write that follows a dirty range, as part of a sequential stream: 1 MiB.
const AHEAD: u64 = 16;

/// What a job has found out for the scrubber.
#[derive(Debug)]
pub enum Reply {
    /// What was looked up.
    Looked {
        /// The range.
        range: u64,
        /// Whether its data was dropped from caches.
        fresh: bool,
        /// Its checksums; `None` if there are none that are valid.
        sums: Option<Sums>,
    },
    /// What was to be committed; it is over.
    Committed(Vec<(u64, Sums)>),
}

/// What the thread is to do.
#[derive(Debug)]
pub enum Work {
    /// Make the marks durable that are waited for.
    Mark,
    /// Look up a range's checksums; with `fresh` its data is dropped from caches first.
    Look {
        /// The range.
        range: u64,
        /// Whether its data is dropped from caches.
        fresh: bool,
    },
    /// Write these checksums, and then take the marks of these ranges away.
    Commit(Vec<(u64, Sums)>),
    /// Note how far the pass has come.
    Note(Pass),
    /// Keep the bad blocks.
    KeepBad,
}

/// Something for the thread to do.
pub struct Job {
    tracker: Arc<Tracker>,
    work: Work,
}

/// What is known of the ranges of a namespace.
pub struct Tracker {
    layout: Layout,
    /// Their words.
    pub ranges: Ranges,
    /// The checksums; `None` where only freed ranges are tracked.
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
    /// Error number of a mark that could not be made durable; 0 for none.
    failed: AtomicI32,
    replies: ArrayQueue<Reply>,
    jobs: OnceLock<Handle<Job>>,
    /// The blocks themselves, to drop them from caches.
    medium: Weak<dyn Backend>,
}

/// The thread of a tracker. Dropped, it finishes what it was asked for, and notes that the namespace was closed.
pub struct Worker {
    pool: Option<BlockingPool<Job>>,
    tracker: Arc<Tracker>,
}

impl Tracker {
    /// Tracks the ranges of `medium`, which has `bytes` bytes.
    ///
    /// # Errors
    /// If the system has no memory or thread left.
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
            bad: file.as_ref().map(|file| BadBlocks::of(&file.bad())).unwrap_or_default(),
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

    /// Where what is.
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

    /// The pass of scrubbing that was last noted.
    #[must_use]
    pub fn pass(&self) -> Pass {
        self.file.as_ref().map(SumsFile::pass).unwrap_or_default()
    }

    /// The error number of the first mark that could not be made durable: from then on no clean range can be written.
    ///
    /// # Errors
    /// That number.
    pub fn check(&self) -> Result<(), i32> {
        match self.failed.load(Ordering::Relaxed) {
            0 => Ok(()),
            number => Err(number),
        }
    }

    /// Has a range marked that has just become [`Mark::Marking`]. Without room it is clean again, to be tried later.
    pub fn request_mark(self: &Arc<Self>, range: u64) {
        if self.to_mark.push(range).is_err() {
            self.ranges.marked(range, false);
        }
        self.poke();
    }

    /// Sees to it that somebody makes the marks durable that are waited for.
    pub fn poke(self: &Arc<Self>) {
        if !self.to_mark.is_empty() && !self.is_marking.swap(true, Ordering::SeqCst) && self.submit(Work::Mark).is_err()
        {
            self.is_marking.store(false, Ordering::SeqCst);
        }
    }

    /// Has the thread do something; without room for it, it comes back.
    ///
    /// # Errors
    /// The work.
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

    /// A write that follows a dirty range is taken for a part of a sequential stream.
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
                tracing::error!(%error, "checksums: ranges cannot be marked before they are written; writes to them fail");
            }
        }
        for &range in ranges {
            if result.is_ok() {
                self.dirty.add(range);
            }
            self.ranges.marked(range, result.is_ok());
        }
    }

    fn look(&self, range: u64, fresh: bool) -> Option<Sums> {
        if fresh && let Some(medium) = self.medium.upgrade() {
            medium.drop_cache(self.bytes_of(range));
        }
        self.file.as_ref()?.sums(range).unwrap_or_else(|error| {
            tracing::warn!(range, %error, "checksums cannot be read; the range is summed again");
            None
        })
    }

    fn commit(&self, sums: &[(u64, Sums)]) {
        let Some(file) = &self.file else { return };
        // a block of these ranges that was written again has been taken out of the bad ones before its write left the range
        let result = file.commit(sums, &self.bad.places(), |range| {
            let is_clean = self.ranges.end_commit(range, true);
            if is_clean {
                self.dirty.take(range);
            }
            is_clean
        });
        if let Err(error) = result {
            tracing::warn!(%error, "checksums cannot be written; their ranges stay dirty");
            for (range, _) in sums {
                let _ = self.ranges.end_commit(*range, false);
            }
        }
    }

    fn keep_bad(&self) {
        if let Some(Err(error)) = self.file.as_ref().map(|file| file.keep_bad(&self.bad.places())) {
            tracing::warn!(%error, "bad blocks cannot be noted; after a restart scrubbing has to find them again");
        }
    }

    /// The bytes that a range has.
    #[must_use]
    pub fn bytes_of(&self, range: u64) -> Range<u64> {
        self.layout.bytes_of(range)
    }

    /// The ranges that `blocks` blocks at `lba` meet.
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
                    tracing::warn!(%error, "the progress of scrubbing cannot be noted");
                }
                return;
            }
            Work::Look { range, fresh } => Reply::Looked { range, fresh, sums: tracker.look(range, fresh) },
            Work::Commit(mut sums) => {
                tracker.commit(&sums);
                sums.clear();
                Reply::Committed(sums)
            }
        };
        let _ = tracker.replies.push(reply); // the scrubber asks for one thing at a time
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.pool.take());
        let Some(file) = &self.tracker.file else { return };
        self.tracker.keep_bad();
        if let Err(error) = file.note(file.pass(), true) {
            tracing::warn!(%error, "the sums file cannot be closed cleanly");
        }
    }
}
