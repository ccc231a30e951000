//! Submission of asynchronous requests by threads.
//!
//! # The problem
//! `io_submit` waits, whatever the flags of a request, when a file system is frozen (`fsfreeze`: a write first takes its
//! superblock for writing) and when a file's device has no free tag (`RWF_NOWAIT` reaches the requests of raw block devices
//! only). A reactor must not wait.
//!
//! # The algorithm
//! The reactor pushes control blocks to a queue and gives a [`Submission`] to a pool of threads. The thread takes blocks from
//! the queue, at most [`BATCH`] at once, and submits them, until the queue is empty. Completions do not pass through it: the
//! reactor reads them from the context's ring. What the kernel refuses returns to the reactor. If nothing has been
//! taken from a queue for [`HELP_AFTER_NS`], another submission takes part, up to [`MOST`]: so a stuck one keeps at most its batch, and a
//! context at most [`MOST`] threads.
//!
//! # The properties
//! - Each pushed block is submitted or refused exactly once.
//! - Blocks in the queue have a submission, queued or running, or the channel looks again ([`Submissions::wait`]). The
//!   reactor pushes, then reads the count of submissions; a submission reduces the count, then looks at the queue once
//!   more. So one of the two sees the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crossbeam_queue::ArrayQueue;

use super::context::{BATCH, Context};
use crate::wait::Wait;

/// Submissions of a context at once.
const MOST: u32 = 4;
/// Time after which another submission helps, in nanoseconds: longer than submitting a batch takes, so that a running one is
/// normally enough.
const HELP_AFTER_NS: u64 = 1_000_000;

/// Control blocks to submit.
struct Queue {
    context: Arc<Context>,
    pushed: ArrayQueue<u32>,
    /// Submissions queued or running.
    running: AtomicU32,
    /// Batches taken from it.
    batches: AtomicU32,
}

impl Queue {
    /// Counts one more submission, unless there are enough.
    fn enter(&self) -> bool {
        let more = |running| (running < MOST).then_some(running + 1);
        self.running.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    fn leave(&self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A context's submissions, on the reactor's side.
pub(super) struct Submissions {
    queue: Arc<Queue>,
    /// When another one helps if no batch is taken until then.
    help_ns: Option<u64>,
    /// Batches taken when `help_ns` was set.
    batches: u32,
}

impl Submissions {
    pub(super) fn new(context: Arc<Context>) -> Self {
        let pushed = ArrayQueue::new(context.depth());
        let queue = Queue { context, pushed, running: AtomicU32::new(0), batches: AtomicU32::new(0) };
        Self { queue: Arc::new(queue), help_ns: None, batches: 0 }
    }

    pub(super) fn push(&mut self, at: u32) {
        assert!(self.queue.pushed.push(at).is_ok(), "the queue has capacity for every control block");
    }

    /// Another submission, if one is needed.
    pub(super) fn next(&mut self, now_ns: u64) -> Option<Submission> {
        if self.queue.pushed.is_empty() {
            self.help_ns = None;
            return None;
        }
        let batches = self.queue.batches.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.batches, batches) != batches {
            self.help_ns = None;
        }
        let help_ns = *self.help_ns.get_or_insert(now_ns + HELP_AFTER_NS);
        fence(Ordering::SeqCst);
        let running = self.queue.running.load(Ordering::SeqCst);
        if (running > 0 && now_ns < help_ns) || !self.queue.enter() {
            return None;
        }
        self.help_ns = Some(now_ns + HELP_AFTER_NS);
        Some(Submission { queue: Arc::clone(&self.queue), is_counted: true })
    }

    /// When [`Submissions::next`] may have work.
    pub(super) fn wait(&self) -> Wait {
        if self.queue.pushed.is_empty() {
            return Wait::Event;
        }
        match (self.queue.running.load(Ordering::SeqCst), self.help_ns) {
            (0, _) | (_, None) => Wait::Poll,
            (MOST.., _) => Wait::Event,
            (_, Some(ns)) => Wait::Until(ns),
        }
    }
}

/// Submits what is in a context's queue. Dropped without [`Submission::run`], it leaves the queue as it is.
pub(crate) struct Submission {
    queue: Arc<Queue>,
    is_counted: bool,
}

impl Submission {
    /// Runs until the queue is empty; may wait. `refuse` gets the number of each block that the kernel refused, and the error
    /// number.
    pub(crate) fn run(mut self, mut refuse: impl FnMut(u32, i32)) {
        while self.is_counted {
            self.empty(&mut refuse);
            self.queue.leave();
            fence(Ordering::SeqCst);
            self.is_counted = !self.queue.pushed.is_empty() && self.queue.enter();
        }
    }

    fn empty(&self, refuse: &mut impl FnMut(u32, i32)) {
        let mut batch = [0; BATCH];
        loop {
            let mut count = 0;
            while count < BATCH
                && let Some(at) = self.queue.pushed.pop()
            {
                batch[count] = at;
                count += 1;
            }
            if count == 0 {
                return;
            }
            self.queue.batches.fetch_add(1, Ordering::Relaxed);
            self.submit(&batch[..count], refuse);
        }
    }

    fn submit(&self, mut blocks: &[u32], refuse: &mut impl FnMut(u32, i32)) {
        while let Some(&first) = blocks.first() {
            // SAFETY: each block is in the queue once, written since it was last submitted; `Aio::push`'s callers guarantee
            // the memory.
            let taken = match unsafe { self.queue.context.submit(blocks) } {
                Ok(taken) if taken > 0 => taken,
                failed => {
                    refuse(first, failed.err().unwrap_or(libc::EAGAIN));
                    1
                }
            };
            blocks = &blocks[taken..];
        }
    }
}

impl Drop for Submission {
    fn drop(&mut self) {
        if self.is_counted {
            self.queue.leave();
        }
    }
}
