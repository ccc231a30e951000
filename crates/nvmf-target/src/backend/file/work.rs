//! Blocking operations of a channel, which run on a thread, and their results.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_queue::ArrayQueue;

use super::super::blocking;
use super::super::{Bell, IoError};
use super::medium::Medium;
use super::sync::Moment;
use crate::buffer::Buffer;

/// Work for a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Read {
        offset: u64,
        len: usize,
    },
    Write {
        offset: u64,
        len: usize,
        durable: bool,
    },
    /// A flush of all writes before the moment.
    Flush(Moment),
    /// The sync that completes a write made before the moment.
    Sync(Moment),
    Zero {
        bytes: Range<u64>,
        deallocate: bool,
        durable: bool,
    },
    Deallocate {
        bytes: Range<u64>,
    },
}

/// The long jobs of a pool: fewer than its threads, so that other jobs do not wait for them.
#[derive(Debug)]
pub(super) struct LongJobs {
    running: AtomicUsize,
    most: usize,
}

impl LongJobs {
    pub(super) fn new(most: usize) -> Self {
        Self { running: AtomicUsize::new(0), most }
    }

    /// Whether there was room for another one just now.
    pub(super) fn has_room(&self) -> bool {
        self.running.load(Ordering::Acquire) < self.most
    }

    /// The permit for a job; `None` if there is no room.
    pub(super) fn admit(self: &Arc<Self>) -> Option<LongJobPermit> {
        let more = |running| (running < self.most).then_some(running + 1);
        self.running.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(LongJobPermit(Arc::clone(self)))
    }
}

/// The permit for a long job, returned when dropped.
#[derive(Debug)]
pub(super) struct LongJobPermit(Arc<LongJobs>);

impl Drop for LongJobPermit {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Work for a slot of a channel, and the queue for its result.
pub(super) struct Job {
    pub(super) medium: Arc<Medium>,
    pub(super) replies: Arc<Replies>,
    pub(super) slot: u32,
    pub(super) work: Work,
    pub(super) buffer: Option<Buffer>,
    /// For long work.
    pub(super) permit: Option<LongJobPermit>,
}

/// A job's result.
pub(super) struct Reply {
    pub(super) slot: u32,
    pub(super) result: Result<(), IoError>,
    pub(super) buffer: Option<Buffer>,
}

impl blocking::Job for Job {
    fn run(mut self) {
        #[cfg(test)]
        if self.permit.is_some() {
            self.medium.faults.of_long_job();
        }
        let data = self.buffer.as_deref_mut().unwrap_or_default();
        let result = match self.work {
            Work::Read { offset, len } => self.medium.read(offset, &mut data[..len]),
            Work::Write { offset, len, durable } => self.medium.write(offset, &data[..len], durable),
            Work::Flush(since) => self.medium.flush(since),
            Work::Sync(since) => self.medium.sync(since),
            Work::Zero { bytes, deallocate, durable } => {
                let zeroed = self.medium.zero(&bytes, deallocate);
                zeroed.and_then(|()| if durable { self.medium.sync(self.medium.now()) } else { Ok(()) })
            }
            Work::Deallocate { bytes } => self.medium.deallocate(&bytes),
        };
        // Before the reply, after which the channel submits the next slice.
        drop(self.permit);
        self.replies.push(Reply { slot: self.slot, result, buffer: self.buffer });
    }
}

/// The results of a channel's jobs.
pub(super) struct Replies {
    queue: ArrayQueue<Reply>,
    bell: OnceLock<Arc<Bell>>,
}

impl Replies {
    /// Room for the results of `depth` jobs.
    pub(super) fn new(depth: u32) -> Self {
        Self { queue: ArrayQueue::new(depth as usize), bell: OnceLock::new() }
    }

    /// Sets the bell to ring, once in the channel's lifetime.
    pub(super) fn set_bell(&self, bell: &Arc<Bell>) {
        self.bell.get_or_init(|| Arc::clone(bell));
    }

    /// Whether the next result rings the bell.
    pub(super) fn would_ring(&self) -> bool {
        self.bell.get().is_some() && self.queue.is_empty()
    }

    fn push(&self, reply: Reply) {
        assert!(self.queue.push(reply).is_ok(), "a slot has at most one job, and the queue has capacity for each slot");
        if let Some(bell) = self.bell.get() {
            bell.ring();
        }
    }

    /// The next result, if there is one.
    pub(super) fn pop(&self) -> Option<Reply> {
        self.queue.pop()
    }
}
