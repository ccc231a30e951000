//! I/O of scrubbing and trimming.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use pilotlight_reactor::clock;

use super::super::control::Background;
use super::super::sums::{BLOCK, BLOCKS, RANGE};
use super::{Cx, Job, Scrubber, State};
use crate::{Completion, IoError, Op, Request, Submitted};

impl Scrubber {
    /// Submits an I/O. Returns whether the drive was free and the channel accepted it.
    pub(super) fn submit(&mut self, cx: &mut Cx<'_>, request: Request, next: State, bytes: u64) -> bool {
        let Some(drive) = self.upkeep.placed().map(|place| Arc::clone(&place.drive)).filter(|drive| drive.take())
        else {
            self.buffer = request.buffer.or(self.buffer.take());
            return false;
        };
        let began_ns = cx.round.now_ns;
        cx.shared.note_begin(began_ns);
        match cx.channel.submit_scrub(request, began_ns) {
            Submitted::Busy(request) => {
                drive.release();
                self.buffer = request.buffer.or(self.buffer.take());
                return false;
            }
            submitted => {
                let pace = if matches!(next, State::Punching(_)) { &mut self.trim } else { &mut self.scrub };
                pace.begin(began_ns, bytes);
                (self.state, self.io_ns) = (next, began_ns);
                if let Submitted::Done(completion) = submitted {
                    self.on_completion(completion, cx.shared, clock::now_ns());
                }
            }
        }
        true
    }

    pub(super) fn read(&mut self, job: Job, cx: &mut Cx<'_>) -> bool {
        let Some(buffer) = self.buffer.take() else { return false };
        let bytes = self.bytes_of(job.range);
        let blocks = (bytes / self.block_size) as u32;
        let lba = job.range * (RANGE / self.block_size);
        let request = Request { tag: cx.tag, op: Op::Read, lba, blocks, buffer: Some(buffer) };
        self.submit(cx, request, State::Reading(job), bytes)
    }

    pub(super) fn bytes_of(&self, range: u64) -> u64 {
        (self.bytes - range * RANGE).min(RANGE)
    }

    pub(super) fn flush(&mut self, cx: &mut Cx<'_>) -> bool {
        self.work_ns = self.now_ns;
        let request = Request { tag: cx.tag, op: Op::Flush, lba: 0, blocks: 0, buffer: None };
        self.submit(cx, request, State::Flushing, 0)
    }

    pub(super) fn punch(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(tracker) = self.upkeep.tracker().map(Arc::clone) else { return false };
        let Ok(range) = tracker.freed.next(0, usize::MAX) else { return false };
        tracker.freed.take(range);
        if !tracker.ranges.begin_punch(range) {
            return true; // written since
        }
        let bytes = self.bytes_of(range);
        let (lba, blocks) = (range * BLOCKS as u64, (bytes / BLOCK) as u32);
        let request = Request { tag: cx.tag, op: Op::Deallocate, lba, blocks, buffer: None };
        let began = self.submit(cx, request, State::Punching(range), bytes);
        if !began {
            self.keep_freed(range);
        }
        began
    }

    /// Keeps a range that could not be punched now.
    fn keep_freed(&self, range: u64) {
        let Some(tracker) = self.upkeep.tracker() else { return };
        tracker.ranges.cancel_punch(range);
        tracker.freed.add(range);
    }

    /// Handles the completion of an I/O.
    pub fn on_completion(&mut self, completion: Completion, shared: &Background, now_ns: u64) {
        if let Some(place) = self.upkeep.placed() {
            place.drive.release();
        }
        shared.note_end(self.io_ns, now_ns);
        let Completion { result, buffer, .. } = completion;
        self.buffer = buffer.or(self.buffer.take());
        let before_ns = clock::now_ns();
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Reading(job) => {
                self.on_read(job, result, shared);
                let summing_ns = clock::now_ns().saturating_sub(before_ns);
                self.end(now_ns.saturating_sub(self.work_ns) + summing_ns);
            }
            State::Flushing => self.commit(result),
            State::Punching(range) => {
                self.on_punched(range, result);
                self.end(now_ns.saturating_sub(self.io_ns));
            }
            other => self.state = other,
        }
    }

    fn on_punched(&self, range: u64, result: Result<(), IoError>) {
        let Some(tracker) = self.upkeep.tracker() else { return };
        tracker.ranges.end_punch(range);
        if result.is_ok() {
            self.upkeep.progress.trimmed_bytes.fetch_add(RANGE, Relaxed);
        }
    }
}
