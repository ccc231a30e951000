//! One I/O thread's way to a tracked backend: a write enters its ranges first, and waits for their marks where it has to.
//!
//! A request without data is done in parts of [`PART`] blocks, so that a large one enters few ranges at a time.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use pilotlight_reactor::CompletionMode;

use super::sums::BLOCKS;
use super::sums::ranges::{Entered, blocks_met};
use super::sums::tracker::{Tracker, Worker};
use crate::backend::{Bell, Channel, Completion, IoError, Op, Request, Submitted, check_range};
use crate::buffer::Buffer;
use crate::wait::{BUSY_RETRY_NS, Wait};

/// Blocks of a part: 16 MiB.
const PART: u64 = 4096;
/// Completions taken from the channel below in one poll.
const ARRIVED: usize = 256;

/// A request in flight.
#[derive(Debug)]
struct Held {
    request: Request,
    /// Blocks that are being written now; empty where nothing has to be entered.
    part: Range<u64>,
    /// The ranges of the part that have been entered end here.
    entered: u64,
}

/// How far a request has come.
enum Step {
    Over(Completion),
    Below,
    Waiting,
    /// All ranges are entered, and the channel below is busy.
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
    /// Whether deallocated blocks read as zeroes; else deallocating would leave data without a checksum that holds.
    promises_zeroes: bool,
    /// Ends after this channel.
    _worker: Arc<Worker>,
}

impl TrackedChannel {
    pub(super) fn new(
        inner: Box<dyn Channel>,
        tracker: Arc<Tracker>,
        worker: Arc<Worker>,
        depth: u32,
        promises_zeroes: bool,
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
            promises_zeroes,
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

    fn give_slot(&mut self, slot: u32) -> Request {
        self.free.push(slot);
        self.slots[slot as usize].take().expect("a slot in use has a request").request
    }

    fn held(&mut self, slot: u32) -> &mut Held {
        self.slots[slot as usize].as_mut().expect("a slot in use has a request")
    }

    fn finish(&mut self, slot: u32, result: Result<(), IoError>, buffer: Option<Buffer>) -> Completion {
        let request = self.give_slot(slot);
        Completion { tag: request.tag, result, buffer: buffer.or(request.buffer) }
    }

    /// Passes on what changes nothing.
    fn pass(&mut self, request: Request, now_ns: u64) -> Submitted {
        let slot = match self.take_slot(Held { request, part: 0..0, entered: 0 }) {
            Ok(slot) => slot,
            Err(held) => return Submitted::Busy(held.request),
        };
        match self.hand_down(slot, 0..0, now_ns, true) {
            Step::Over(completion) => Submitted::Done(completion),
            Step::Below | Step::Waiting => Submitted::Pending,
            Step::Busy => Submitted::Busy(self.give_slot(slot)),
        }
    }

    /// Takes what changes blocks.
    fn change(&mut self, request: Request, now_ns: u64) -> Submitted {
        let whole = request.lba..request.lba + u64::from(request.blocks);
        let part = first_part(&whole, request.op);
        let entered = Tracker::ranges_of(part.start, 0).start;
        let slot = match self.take_slot(Held { request, part, entered }) {
            Ok(slot) => slot,
            Err(held) => return Submitted::Busy(held.request),
        };
        match self.advance(slot, now_ns) {
            Step::Over(completion) => Submitted::Done(completion),
            Step::Below => Submitted::Pending,
            Step::Busy if self.held(slot).part.start == whole.start => {
                self.leave(slot);
                Submitted::Busy(self.give_slot(slot))
            }
            Step::Busy | Step::Waiting => {
                self.waiting.push_back(slot);
                Submitted::Pending
            }
        }
    }

    /// Brings a request on as far as it goes now.
    fn advance(&mut self, slot: u32, now_ns: u64) -> Step {
        loop {
            match self.enter(slot) {
                Err(number) => {
                    self.leave(slot);
                    return Step::Over(self.finish(slot, Err(IoError::Medium(number)), None));
                }
                Ok(false) => return Step::Waiting,
                Ok(true) => {}
            }
            let part = self.held(slot).part.clone();
            match self.hand_down(slot, part, now_ns, false) {
                Step::Over(completion) => {
                    if let Some(completion) = self.part_over(slot, completion) {
                        return Step::Over(completion);
                    }
                }
                step => return step,
            }
        }
    }

    /// Enters the ranges of a part; whether all are entered.
    fn enter(&mut self, slot: u32) -> Result<bool, i32> {
        let held = self.slots[slot as usize].as_mut().expect("a slot in use has a request");
        let (lba, blocks) = (held.part.start, held.part.end - held.part.start);
        let end = Tracker::ranges_of(lba, blocks).end;
        while held.entered < end {
            let range = held.entered;
            match self.tracker.ranges.enter(range, blocks_met(range, lba, blocks)) {
                Entered::Yes => held.entered += 1,
                Entered::NotYet => {
                    self.tracker.poke();
                    return Ok(false);
                }
                Entered::Mark => {
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

    /// As [`Self::leave`]; these ranges are free as a whole.
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

    /// Hands a part (or, if it is `whole`, the request as it is) to the channel below.
    fn hand_down(&mut self, slot: u32, part: Range<u64>, now_ns: u64, whole: bool) -> Step {
        let trims = self.tracker.trims() && !whole; // background work punches in earnest
        let request = &mut self.held(slot).request;
        let op = match request.op {
            Op::Deallocate if trims => Op::WriteZeroes { fua: false, deallocate: false },
            Op::WriteZeroes { fua, .. } if trims => Op::WriteZeroes { fua, deallocate: false },
            op => op,
        };
        let (lba, blocks) =
            if whole { (request.lba, request.blocks) } else { (part.start, (part.end - part.start) as u32) };
        let below = Request { tag: u64::from(slot), op, lba, blocks, buffer: request.buffer.take() };
        match self.inner.submit(below, now_ns) {
            Submitted::Done(completion) if whole => Step::Over(self.finish(slot, completion.result, completion.buffer)),
            Submitted::Done(completion) => Step::Over(completion),
            Submitted::Pending => Step::Below,
            Submitted::Busy(back) => {
                self.held(slot).request.buffer = back.buffer;
                Step::Busy
            }
        }
    }

    /// The channel below has done a part; the end of the request, if it was the last.
    fn part_over(&mut self, slot: u32, completion: Completion) -> Option<Completion> {
        let Completion { result, buffer, .. } = completion;
        let held = self.slots[slot as usize].as_mut().expect("a slot in use has a request");
        let (part, op) = (held.part.clone(), held.request.op);
        let end = held.request.lba + u64::from(held.request.blocks);
        if result.is_ok() {
            // while nobody can sum the range: else the blocks would keep the checksums that they did not match
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

    /// The ranges that this part frees as a whole.
    fn freed_by(&self, part: &Range<u64>, op: Op) -> Range<u64> {
        let frees = matches!(op, Op::Deallocate | Op::WriteZeroes { deallocate: true, .. });
        let blocks = BLOCKS as u64;
        if frees && self.tracker.trims() { part.start.div_ceil(blocks)..part.end / blocks } else { 0..0 }
    }

    /// Takes what the channel below has completed.
    fn take(&mut self, completion: Completion, now_ns: u64) {
        let slot = completion.tag as u32;
        if self.held(slot).part.is_empty() {
            let over = self.finish(slot, completion.result, completion.buffer);
            return self.finished.push_back(over);
        }
        match self.part_over(slot, completion) {
            Some(over) => self.finished.push_back(over),
            None => self.retry(slot, now_ns),
        }
    }

    fn retry(&mut self, slot: u32, now_ns: u64) {
        match self.advance(slot, now_ns) {
            Step::Over(completion) => self.finished.push_back(completion),
            Step::Below => {}
            Step::Waiting | Step::Busy => self.waiting.push_back(slot),
        }
    }
}

/// The part of `rest` to be done first: with data all of it, as the buffer goes with it.
fn first_part(rest: &Range<u64>, op: Op) -> Range<u64> {
    match op {
        Op::Write { .. } => rest.clone(),
        _ => rest.start..rest.end.min((rest.start / PART + 1) * PART),
    }
}

impl Channel for TrackedChannel {
    fn expect_read(&self, lba: u64, blocks: u32) {
        self.inner.expect_read(lba, blocks);
    }

    fn submit(&mut self, request: Request, now_ns: u64) -> Submitted {
        match request.op {
            Op::Read if self.tracker.bad.meets(request.lba, u64::from(request.blocks)) => {
                Submitted::Done(request.complete(Err(IoError::Checksum)))
            }
            Op::Read | Op::Flush => self.pass(request, now_ns),
            Op::Deallocate if !self.promises_zeroes => Submitted::Done(request.complete(Ok(()))),
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
