//! What a channel gives to threads, and the results.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_queue::ArrayQueue;

use super::super::aio::{self, Aio, Submission};
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
    CompareAndWrite {
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
        keep: bool,
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

/// What a channel gives to a thread, and the queue for the results.
pub(super) struct Job {
    pub(super) medium: Arc<Medium>,
    pub(super) replies: Arc<Replies>,
    pub(super) task: Task,
}

/// What a thread does.
pub(super) enum Task {
    /// Opens the channel's context for asynchronous requests.
    Open(aio::Options),
    /// Submits asynchronous requests.
    Submit(Submission),
    /// Work for a slot.
    Work(SlotWork),
}

/// Work for a slot of a channel.
pub(super) struct SlotWork {
    pub(super) slot: u32,
    pub(super) work: Work,
    pub(super) buffer: Option<Buffer>,
    /// For long work.
    pub(super) permit: Option<LongJobPermit>,
}

/// A result for a channel.
pub(super) enum Reply {
    /// The context was opened, or could not be.
    Opened(io::Result<Box<Aio>>),
    /// The kernel refused this control block of the context, with this error number.
    Refused(u32, i32),
    /// The work of a slot ended.
    Done(u32, Result<(), IoError>, Option<Buffer>),
}

impl blocking::Job for Job {
    fn run(self) {
        let Self { medium, replies, task } = self;
        match task {
            Task::Open(options) => replies.push(Reply::Opened(open(&medium, options))),
            Task::Submit(submission) => {
                #[cfg(test)]
                medium.faults.of_submission();
                submission.run(|at, number| replies.push(Reply::Refused(at, number)));
            }
            Task::Work(work) => work.run(&medium, &replies),
        }
    }
}

fn open(medium: &Medium, options: aio::Options) -> io::Result<Box<Aio>> {
    #[cfg(test)]
    let refused = medium.faults.of_context();
    #[cfg(not(test))]
    let refused = Ok(());
    let opened = refused.and_then(|()| Aio::new(options, medium.budget()));
    opened.map(Box::new).inspect_err(|error| medium.note_limited(error))
}

impl SlotWork {
    fn run(mut self, medium: &Medium, replies: &Replies) {
        #[cfg(test)]
        medium.faults.of_work(self.permit.is_some());
        let data = self.buffer.as_deref_mut().unwrap_or_default();
        let result = match self.work {
            Work::Read { offset, len } => medium.read(offset, &mut data[..len]),
            Work::Write { offset, len, durable } => medium.write(offset, &data[..len], durable),
            Work::CompareAndWrite { offset, len, durable } => {
                let (expected, data) = data[..2 * len].split_at(len);
                medium.compare_and_write(offset, expected, data, durable)
            }
            Work::Flush(since) => medium.flush(since),
            Work::Sync(since) => medium.sync(since),
            Work::Zero { bytes, deallocate, durable } => {
                let zeroed = medium.zero(&bytes, deallocate);
                zeroed.and_then(|()| if durable { medium.sync(medium.now()) } else { Ok(()) })
            }
            Work::Deallocate { bytes, keep } => medium.deallocate(&bytes, keep),
        };
        // Before the reply, after which the channel submits the next slice.
        drop(self.permit);
        replies.push(Reply::Done(self.slot, result, self.buffer));
    }
}

/// The results of a channel's jobs.
pub(super) struct Replies {
    queue: ArrayQueue<Reply>,
    bell: OnceLock<Arc<Bell>>,
}

impl Replies {
    /// Room for a result of each of `depth` slots, and for the opened context.
    pub(super) fn new(depth: u32) -> Self {
        Self { queue: ArrayQueue::new(depth as usize + 1), bell: OnceLock::new() }
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
        assert!(self.queue.push(reply).is_ok(), "a slot has at most one result, and the queue has capacity for each");
        if let Some(bell) = self.bell.get() {
            bell.ring();
        }
    }

    /// The next result, if there is one.
    pub(super) fn pop(&self) -> Option<Reply> {
        self.queue.pop()
    }
}
