//! Channel of a tracked backend: a write enters its ranges first, and waits for their marks if necessary.
//!
//! A request without data is split into parts of [`PART`] blocks, so that it enters few ranges at a time.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use pilotlight_reactor::CompletionMode;

use super::sums::BLOCKS;
use super::sums::ranges::{Entry, overlapping_blocks};
use super::sums::tracker::{Tracker, Worker};
use crate::buffer::Buffer;
use crate::wait::{BUSY_RETRY_NS, Wait};
use crate::{Bell, Channel, Completion, IoError, Op, Request, Submitted, check_range};

/// Blocks of a part: 16 MiB.
const PART: u64 = 4096;
/// Completions taken from the inner channel in one poll.
const ARRIVED: usize = 256;

/// A request in flight.
#[derive(Debug)]
struct Held {
    request: Request,
    /// Blocks of the current part; empty for requests that enter no range.
    part: Range<u64>,
    /// End of the entered ranges of the part.
    entered: u64,
}

/// Progress of a request.
enum Step {
    Done(Completion),
    Pending,
    Waiting,
    /// All ranges are entered, and the inner channel is busy.
    Busy,
}

/// The channel.
pub(super) struct TrackedChannel {
    inner: Box<dyn Channel>,
    tracker: Arc<Tracker>,
    slots: Box<[Option<Held>]>,
    free: Vec<u32>,
    waiting: VecDeque<u32>,
    finished: VecDeque<Completion>,
    arrived: Vec<Completion>,
    /// Whether deallocated blocks read as zeroes; otherwise deallocation would invalidate their checksums.
    reads_zeroes: bool,
    /// Must outlive this channel.
    _worker: Arc<Worker>,
}

impl TrackedChannel {
    pub(super) fn new(
        inner: Box<dyn Channel>,
        tracker: Arc<Tracker>,
        worker: Arc<Worker>,
        depth: u32,
        reads_zeroes: bool,
    ) -> Self {
        let depth = depth.max(1);
        Self {
            inner,
            tracker,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            waiting: VecDeque::with_capacity(depth as usize),
            finished: VecDeque::with_capacity(depth as usize),
            arrived: Vec::with_capacity(ARRIVED),
            reads_zeroes,
            _worker: worker,
        }
    }

    fn take_slot(&mut self, held: Held) -> Result<u32, Held> {
        if self.in_flight() >= self.slots.len() {
            return Err(held);
        }
        let Some(slot) = self.free.pop() else { return Err(held) };
        self.slots[slot as usize] = Some(held);
        Ok(slot)
    }

    fn release_slot(&mut self, slot: u32) -> Request {
        self.free.push(slot);
        self.slots[slot as usize].take().expect("a slot in use has a request").request
    }

    fn held(&mut self, slot: u32) -> &mut Held {
        self.slots[slot as usize].as_mut().expect("a slot in use has a request")
    }

    fn finish(&mut self, slot: u32, result: Result<(), IoError>, buffer: Option<Buffer>) -> Completion {
        let request = self.release_slot(slot);
        Completion { tag: request.tag, result, buffer: buffer.or(request.buffer) }
    }

    /// Submits a request that changes no blocks.
    fn pass(&mut self, request: Request, now_ns: u64) -> Submitted {
        let slot = match self.take_slot(Held { request, part: 0..0, entered: 0 }) {
            Ok(slot) => slot,
            Err(held) => return Submitted::Busy(held.request),
        };
        match self.submit_inner(slot, 0..0, now_ns, true) {
            Step::Done(completion) => Submitted::Done(completion),
            Step::Pending | Step::Waiting => Submitted::Pending,
            Step::Busy => Submitted::Busy(self.release_slot(slot)),
        }
    }

    /// Submits a request that changes blocks.
    fn change(&mut self, request: Request, now_ns: u64) -> Submitted {
        let whole = request.lba..request.lba + u64::from(request.blocks);
        let part = first_part(&whole, request.op);
        let entered = Tracker::ranges_of(part.start, 0).start;
        let slot = match self.take_slot(Held { request, part, entered }) {
            Ok(slot) => slot,
            Err(held) => return Submitted::Busy(held.request),
        };
        match self.advance(slot, now_ns) {
            Step::Done(completion) => Submitted::Done(completion),
            Step::Pending => Submitted::Pending,
            Step::Busy if self.held(slot).part.start == whole.start => {
                self.leave(slot);
                Submitted::Busy(self.release_slot(slot))
            }
            Step::Busy | Step::Waiting => {
                self.waiting.push_back(slot);
                Submitted::Pending
            }
        }
    }

    /// Advances a request as far as possible.
    fn advance(&mut self, slot: u32, now_ns: u64) -> Step {
        loop {
            match self.enter(slot) {
                Err(number) => {
                    self.leave(slot);
                    let error = match self.held(slot).request.op {
                        Op::CompareAndWrite { .. } => IoError::UnreadMedium(number), // not compared yet
                        _ => IoError::Medium(number),
                    };
                    return Step::Done(self.finish(slot, Err(error), None));
                }
                Ok(false) => return Step::Waiting,
                Ok(true) => {}
            }
            let part = self.held(slot).part.clone();
            if self.compares_bad(slot) {
                self.leave(slot);
                return Step::Done(self.finish(slot, Err(IoError::Checksum), None));
            }
            match self.submit_inner(slot, part, now_ns, false) {
                Step::Done(completion) => {
                    if let Some(completion) = self.part_done(slot, completion) {
                        return Step::Done(completion);
                    }
                }
                step => return step,
            }
        }
    }

    /// Whether a request compares a block that is known to be bad. Looked up in the entered ranges, where no block is found bad meanwhile.
    fn compares_bad(&mut self, slot: u32) -> bool {
        let Held { request, part, .. } = self.held(slot);
        let (compares, part) = (matches!(request.op, Op::CompareAndWrite { .. }), part.clone());
        compares && self.tracker.bad.overlaps(part.start, part.end - part.start)
    }

    /// Enters the ranges of a part. Returns whether all are entered.
    fn enter(&mut self, slot: u32) -> Result<bool, i32> {
        let held = self.slots[slot as usize].as_mut().expect("a slot in use has a request");
        let (lba, blocks) = (held.part.start, held.part.end - held.part.start);
        let end = Tracker::ranges_of(lba, blocks).end;
        while held.entered < end {
            let range = held.entered;
            match self.tracker.ranges.enter(range, overlapping_blocks(range, lba, blocks)) {
                Entry::Entered => held.entered += 1,
                Entry::Busy => {
                    self.tracker.wake();
                    return Ok(false);
                }
                Entry::NeedsMark => {
                    self.tracker.request_mark(range);
                    for later in (range + 1..end).filter(|&later| self.tracker.ranges.start_marking(later, false)) {
                        self.tracker.request_mark(later);
                    }
                    return self.tracker.check().map(|()| false);
                }
            }
        }
        Ok(true)
    }

    fn leave(&mut self, slot: u32) {
        self.leave_freed(slot, &(0..0));
    }

    /// As [`Self::leave`]; `free` are the ranges freed as a whole.
    fn leave_freed(&mut self, slot: u32, free: &Range<u64>) {
        let held = self.slots[slot as usize].as_mut().expect("a slot in use has a request");
        let first = Tracker::ranges_of(held.part.start, 0).start;
        for range in first..held.entered {
            if !free.contains(&range) {
                self.tracker.ranges.leave(range);
            } else if self.tracker.ranges.leave_freed(range) {
                self.tracker.freed.add(range);
            }
        }
        held.entered = first;
    }

    /// Submits a part, or the `whole` request unchanged, to the inner channel.
    fn submit_inner(&mut self, slot: u32, part: Range<u64>, now_ns: u64, whole: bool) -> Step {
        let trims = self.tracker.trims() && !whole; // background work punches later
        let request = &mut self.held(slot).request;
        let op = match request.op {
            Op::Deallocate if trims => Op::Clear,
            Op::WriteZeroes { fua, .. } if trims => Op::WriteZeroes { fua, deallocate: false },
            op => op,
        };
        let (lba, blocks) =
            if whole { (request.lba, request.blocks) } else { (part.start, (part.end - part.start) as u32) };
        let inner = Request { tag: u64::from(slot), op, lba, blocks, buffer: request.buffer.take() };
        match self.inner.submit(inner, now_ns) {
            Submitted::Done(completion) if whole => Step::Done(self.finish(slot, completion.result, completion.buffer)),
            Submitted::Done(completion) => Step::Done(completion),
            Submitted::Pending => Step::Pending,
            Submitted::Busy(request) => {
                self.held(slot).request.buffer = request.buffer;
                Step::Busy
            }
        }
    }

    /// Handles the completion of a part; returns that of the request after its last part.
    fn part_done(&mut self, slot: u32, completion: Completion) -> Option<Completion> {
        let Completion { result, buffer, .. } = completion;
        let held = self.slots[slot as usize].as_mut().expect("a slot in use has a request");
        let (part, op) = (held.part.clone(), held.request.op);
        let end = held.request.lba + u64::from(held.request.blocks);
        if result.is_ok() {
            // before the ranges are left: later, summing could keep the checksums that the blocks did not match
            self.tracker.bad.clear(part.start, part.end - part.start);
        }
        let free = if result.is_ok() { self.freed_by(&part, op) } else { 0..0 };
        self.leave_freed(slot, &free);
        if result.is_err() || part.end == end {
            return Some(self.finish(slot, result, buffer));
        }
        let next = first_part(&(part.end..end), op);
        let held = self.held(slot);
        held.entered = Tracker::ranges_of(next.start, 0).start;
        held.part = next;
        None
    }

    /// The ranges that the part frees as a whole.
    fn freed_by(&self, part: &Range<u64>, op: Op) -> Range<u64> {
        let frees = matches!(op, Op::Deallocate | Op::WriteZeroes { deallocate: true, .. });
        let blocks = BLOCKS as u64;
        if frees && self.tracker.trims() { part.start.div_ceil(blocks)..part.end / blocks } else { 0..0 }
    }

    /// Handles a completion of the inner channel.
    fn take(&mut self, completion: Completion, now_ns: u64) {
        let slot = completion.tag as u32;
        if self.held(slot).part.is_empty() {
            let done = self.finish(slot, completion.result, completion.buffer);
            return self.finished.push_back(done);
        }
        match self.part_done(slot, completion) {
            Some(done) => self.finished.push_back(done),
            None => self.retry(slot, now_ns),
        }
    }

    fn retry(&mut self, slot: u32, now_ns: u64) {
        match self.advance(slot, now_ns) {
            Step::Done(completion) => self.finished.push_back(completion),
            Step::Pending => {}
            Step::Waiting | Step::Busy => self.waiting.push_back(slot),
        }
    }
}

/// The next part of `rest`: all of it for a write or a compare-and-write, whose buffer is not split.
fn first_part(rest: &Range<u64>, op: Op) -> Range<u64> {
    match op {
        Op::Write { .. } | Op::CompareAndWrite { .. } => rest.clone(),
        _ => rest.start..rest.end.min((rest.start / PART + 1) * PART),
    }
}

impl Channel for TrackedChannel {
    fn prefetch_read(&self, lba: u64, blocks: u32) {
        self.inner.prefetch_read(lba, blocks);
    }

    fn submit(&mut self, request: Request, now_ns: u64) -> Submitted {
        match request.op {
            Op::Read if self.tracker.bad.overlaps(request.lba, u64::from(request.blocks)) => {
                Submitted::Done(request.complete(Err(IoError::Checksum)))
            }
            Op::Read | Op::Flush => self.pass(request, now_ns),
            Op::Deallocate if !self.reads_zeroes => Submitted::Done(request.complete(Ok(()))),
            _ if request.blocks == 0 => self.pass(request, now_ns),
            _ => match check_range(request.lba, request.blocks, self.tracker.blocks()) {
                Ok(()) => self.change(request, now_ns),
                Err(error) => Submitted::Done(request.complete(Err(error))),
            },
        }
    }

    fn submit_scrub(&mut self, request: Request, now_ns: u64) -> Submitted {
        self.pass(request, now_ns)
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<Completion>) {
        for _ in 0..self.waiting.len() {
            if let Some(slot) = self.waiting.pop_front() {
                self.retry(slot, now_ns);
            }
        }
        if self.inner.in_flight() > 0 {
            let mut arrived = std::mem::take(&mut self.arrived);
            self.inner.poll(now_ns, &mut arrived);
            arrived.drain(..).for_each(|completion| self.take(completion, now_ns));
            self.arrived = arrived;
        }
        while done.len() < done.capacity() {
            let Some(completion) = self.finished.pop_front() else { break };
            done.push(completion);
        }
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len() + self.finished.len()
    }

    fn set_completions(&mut self, mode: CompletionMode, bell: &Arc<Bell>) {
        self.inner.set_completions(mode, bell);
    }

    fn wait(&self, now_ns: u64) -> Wait {
        if !self.finished.is_empty() {
            return Wait::Poll;
        }
        let waiting = if self.waiting.is_empty() { Wait::Event } else { Wait::Until(now_ns + BUSY_RETRY_NS) };
        self.inner.wait(now_ns).min(waiting)
    }
}

impl Drop for TrackedChannel {
    fn drop(&mut self) {
        for slot in 0..self.slots.len() as u32 {
            if self.slots[slot as usize].is_some() {
                self.leave(slot);
            }
        }
        let lost = self.in_flight();
        assert!(lost == 0 || std::thread::panicking(), "{lost} requests in flight were lost: poll until none is");
    }
}
