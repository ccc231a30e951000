//! One I/O thread's requests to a file or device.
//!
//! A slot is *free*, or its request is with AIO, with a thread, *waiting* (for a thread, for other long jobs to end, or
//! for the hold of its next slice), or *finished*, until a poll returns it. During a transfer the slot keeps the request's
//! hold and, while AIO has it, the buffer, which is not touched.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use pilotlight_reactor::CompletionMode;

use super::super::aio::{Aio, Command};
use super::super::blocking::BlockingPool;
use super::super::guard::Hold;
use super::super::{Bell, Channel, Completion, IoError, Op, Request, Submitted};
use super::medium::{Deallocation, Medium, Way};
use super::work::{Job, LongJobs, Replies, Reply, Work};
use crate::wait::{BUSY_RETRY_NS, Wait};

/// Guarded units per slice of a request without data.
const SLICE_UNITS: u64 = 2048;

/// A request in flight.
#[derive(Debug, Default)]
struct Slot {
    request: Option<Request>,
    hold: Option<Hold>,
    /// For zeroing and deallocation: the remaining range, including the current slice.
    rest: Range<u64>,
    /// For a write with Force Unit Access: written but not yet synced.
    written: bool,
    result: Option<Result<(), IoError>>,
}

pub(super) struct FileChannel {
    medium: Arc<Medium>,
    threads: Arc<BlockingPool<Job>>,
    replies: Arc<Replies>,
    aio: Option<Aio>,
    slots: Box<[Slot]>,
    free: Vec<u32>,
    waiting: VecDeque<u32>,
    /// Waiting slots whose next work is long.
    waiting_long: VecDeque<u32>,
    long_jobs: Arc<LongJobs>,
    finished: VecDeque<u32>,
    /// Slots whose jobs have not been replied to.
    with_threads: usize,
}

impl FileChannel {
    pub(super) fn open(
        medium: Arc<Medium>,
        threads: Arc<BlockingPool<Job>>,
        long_jobs: Arc<LongJobs>,
        depth: u32,
    ) -> io::Result<Self> {
        let depth = depth.max(1);
        let aio = match medium.way() {
            Way::Direct => Some(Aio::new(depth).map_err(explain_limit)?),
            Way::Inline | Way::Threads => None,
        };
        Ok(Self {
            medium,
            threads,
            replies: Arc::new(Replies::new(depth)),
            aio,
            slots: (0..depth).map(|_| Slot::default()).collect(),
            free: (0..depth).rev().collect(),
            waiting: VecDeque::with_capacity(depth as usize),
            waiting_long: VecDeque::with_capacity(depth as usize),
            long_jobs,
            finished: VecDeque::with_capacity(depth as usize),
            with_threads: 0,
        })
    }

    fn submit_data(&mut self, mut request: Request) -> Submitted {
        if self.free.is_empty() {
            return Submitted::Busy(request);
        }
        let bytes = request.bytes(self.medium.block_size());
        // Checks that the buffer is large enough, before anything is held.
        let _ = request.data(self.medium.block_size());
        let hold = match self.medium.try_hold(&bytes, request.op != Op::Read) {
            None => return Submitted::Busy(request),
            Some(Err(error)) => return Submitted::Done(request.complete(Err(error))),
            Some(Ok(hold)) => hold,
        };
        if self.medium.way() == Way::Inline {
            let result = self.transfer_inline(&mut request, &bytes);
            self.medium.release(hold);
            return Submitted::Done(request.complete(result));
        }
        let slot = self.take_slot(request);
        self.slots[slot as usize].hold = Some(hold);
        if self.aio.is_some() {
            self.push_transfer(slot);
        } else {
            self.start_or_wait(slot);
        }
        Submitted::Pending
    }

    fn transfer_inline(&self, request: &mut Request, bytes: &Range<u64>) -> Result<(), IoError> {
        let op = request.op;
        let data = request.data(self.medium.block_size());
        match op {
            Op::Read => self.medium.read(bytes.start, data),
            _ => self.medium.write(bytes.start, data, false),
        }
    }

    fn submit_flush(&mut self, request: Request) -> Submitted {
        if !self.medium.geometry().volatile_write_cache {
            return Submitted::Done(request.complete(Ok(())));
        }
        if self.free.is_empty() {
            return Submitted::Busy(request);
        }
        let slot = self.take_slot(request);
        self.start_or_wait(slot);
        Submitted::Pending
    }

    fn submit_zero(&mut self, request: Request) -> Submitted {
        let no_op = request.op == Op::Deallocate && self.medium.deallocation() == Deallocation::Nothing;
        if no_op || request.blocks == 0 {
            return Submitted::Done(request.complete(Ok(())));
        }
        if self.free.is_empty() {
            return Submitted::Busy(request);
        }
        let rest = request.bytes(self.medium.block_size());
        let slot = self.take_slot(request);
        self.slots[slot as usize].rest = rest;
        self.start_or_wait(slot);
        Submitted::Pending
    }

    fn take_slot(&mut self, request: Request) -> u32 {
        let slot = self.free.pop().expect("checked by the caller");
        self.slots[slot as usize].request = Some(request);
        slot
    }

    /// Queues a slot's read or write for AIO.
    fn push_transfer(&mut self, slot: u32) {
        let (Some(aio), Some(request)) = (&mut self.aio, &mut self.slots[slot as usize].request) else { return };
        let command = match request.op {
            Op::Write { fua } => Command::Write { durable: fua && self.medium.forces_unit_access() },
            _ => Command::Read,
        };
        let bytes = request.bytes(self.medium.block_size());
        let buffer = request.buffer.as_mut().expect("a read or write has a buffer");
        let memory = (buffer.as_mut_ptr(), (bytes.end - bytes.start) as usize);
        // SAFETY: the buffer is long enough (`submit_data` checks), stays mapped even if it is leaked, and is not touched in
        // its slot until the completion is reaped; `drop` waits for AIO before it releases the slots.
        unsafe { aio.push(slot, self.medium.fd(), command, memory, bytes.start) };
    }

    /// Submits a slot's next piece of work to a thread; a later poll retries if that is not possible now.
    fn start_or_wait(&mut self, slot: u32) {
        if !self.start(slot) {
            self.wait_for_thread(slot);
        }
    }

    fn wait_for_thread(&mut self, slot: u32) {
        let waiting = if is_long(self.request(slot).op) { &mut self.waiting_long } else { &mut self.waiting };
        waiting.push_back(slot);
    }

    fn start(&mut self, slot: u32) -> bool {
        // Before the hold, for which others would wait.
        let long = is_long(self.request(slot).op);
        let permit = if long { self.long_jobs.admit() } else { None };
        if long && permit.is_none() {
            return false;
        }
        let work = match self.next_work(slot) {
            None => return false,
            Some(Err(error)) => {
                self.finish(slot, Err(error));
                return true;
            }
            Some(Ok(work)) => work,
        };
        let buffer = self.request(slot).buffer.take();
        let (medium, replies) = (Arc::clone(&self.medium), Arc::clone(&self.replies));
        let job = Job { medium, replies, slot, work, buffer, permit };
        match self.threads.submit(job) {
            Ok(()) => self.with_threads += 1,
            Err(job) => {
                self.request(slot).buffer = job.buffer;
                return false;
            }
        }
        true
    }

    /// A slot's next work for a thread; `None` if another request holds the next slice.
    fn next_work(&mut self, slot: u32) -> Option<Result<Work, IoError>> {
        let block_size = self.medium.block_size();
        let request = self.slots[slot as usize].request.as_ref().expect("a slot in use has a request");
        let (op, bytes) = (request.op, request.bytes(block_size));
        let len = u64::from(request.blocks) as usize * block_size;
        let (deallocate, fua) = match op {
            Op::Read => return Some(Ok(Work::Read { offset: bytes.start, len })),
            Op::Write { .. } if self.slots[slot as usize].written => {
                return Some(Ok(Work::Sync(self.medium.now())));
            }
            Op::Write { fua } => return Some(Ok(Work::Write { offset: bytes.start, len, durable: fua })),
            Op::Flush => return Some(Ok(Work::Flush(self.medium.now()))),
            Op::WriteZeroes { fua, deallocate } => (deallocate, fua),
            Op::Deallocate => (true, false),
        };
        let rest = self.slots[slot as usize].rest.clone();
        let bytes = self.medium.first_slice(&rest, SLICE_UNITS);
        if self.slots[slot as usize].hold.is_none() {
            match self.medium.try_hold(&bytes, true)? {
                Ok(hold) => self.slots[slot as usize].hold = Some(hold),
                Err(error) => return Some(Err(error)),
            }
        }
        let durable = fua && bytes.end == rest.end;
        Some(Ok(if op == Op::Deallocate {
            Work::Deallocate { bytes }
        } else {
            Work::Zero { bytes, deallocate, durable }
        }))
    }

    fn request(&mut self, slot: u32) -> &mut Request {
        self.slots[slot as usize].request.as_mut().expect("a slot in use has a request")
    }

    /// Ends a slot's request; a later poll returns it.
    fn finish(&mut self, slot: u32, result: Result<(), IoError>) {
        let state = &mut self.slots[slot as usize];
        if let Some(hold) = state.hold.take() {
            self.medium.release(hold);
        }
        state.result = Some(result);
        self.finished.push_back(slot);
    }

    /// Handles a result of AIO: bytes transferred, or a negative error number.
    fn take_aio(&mut self, slot: u32, result: i64) {
        let block_size = self.medium.block_size();
        let request = self.request(slot);
        let expected = i64::from(request.blocks) * block_size as i64;
        let (op, number) = (request.op, i32::try_from(-result).unwrap_or(0));
        #[cfg(test)]
        let (result, number) = self.medium.faults.of_completion(op, result, number);
        match number {
            // The kernel would block, or does not support the operation asynchronously.
            libc::EAGAIN | libc::EOPNOTSUPP => self.start_or_wait(slot),
            _ if result == expected => self.transferred(slot, op),
            // A partial transfer: repeat all of it; the hold keeps that invisible to others.
            _ if result >= 0 => self.start_or_wait(slot),
            _ => self.finish(slot, Err(self.medium.failed_transfer(op, number))),
        }
    }

    fn transferred(&mut self, slot: u32, op: Op) {
        if op == (Op::Write { fua: true }) && self.medium.syncs_forced_writes() {
            self.slots[slot as usize].written = true;
            return self.start_or_wait(slot);
        }
        self.finish(slot, Ok(()));
    }

    fn take_reply(&mut self, reply: Reply) {
        let Reply { slot, result, buffer } = reply;
        self.with_threads -= 1;
        self.request(slot).buffer = buffer;
        let op = self.request(slot).op;
        if is_long(op) && result.is_ok() {
            let rest = &mut self.slots[slot as usize].rest;
            rest.start = self.medium.first_slice(rest, SLICE_UNITS).end;
            if !rest.is_empty() {
                if let Some(hold) = self.slots[slot as usize].hold.take() {
                    self.medium.release(hold);
                }
                // Behind other requests' slices.
                return self.waiting_long.push_back(slot);
            }
        }
        self.finish(slot, result);
    }

    fn start_waiting(&mut self) {
        for _ in 0..self.waiting.len() {
            if let Some(slot) = self.waiting.pop_front() {
                self.start_or_wait(slot);
            }
        }
        for _ in 0..self.waiting_long.len() {
            if !self.long_jobs.has_room() {
                break;
            }
            if let Some(slot) = self.waiting_long.pop_front() {
                self.start_or_wait(slot);
            }
        }
    }

    /// Submits the batch to the kernel and reaps completions.
    fn drive_aio(&mut self) {
        while let Some(Err((slot, number))) = self.aio.as_mut().map(Aio::submit) {
            self.take_aio(slot, -i64::from(number));
        }
        while let Some((slot, result)) = self.aio.as_mut().and_then(Aio::reap) {
            self.take_aio(slot, result);
        }
    }
}

impl Channel for FileChannel {
    fn submit(&mut self, request: Request, _now_ns: u64) -> Submitted {
        if let Err(error) = request.check_end(self.medium.blocks()) {
            return Submitted::Done(request.complete(Err(error)));
        }
        match request.op {
            Op::Read | Op::Write { .. } => self.submit_data(request),
            Op::Flush => self.submit_flush(request),
            Op::WriteZeroes { .. } | Op::Deallocate => self.submit_zero(request),
        }
    }

    fn poll(&mut self, _now_ns: u64, done: &mut Vec<Completion>) {
        if self.in_flight() == 0 {
            return;
        }
        self.drive_aio();
        if self.with_threads > 0 {
            while let Some(reply) = self.replies.pop() {
                self.take_reply(reply);
            }
        }
        self.start_waiting();
        while done.len() < done.capacity() {
            let Some(slot) = self.finished.pop_front() else { break };
            let Slot { request, result, .. } = std::mem::take(&mut self.slots[slot as usize]);
            self.free.push(slot);
            done.extend(request.zip(result).map(|(request, result)| request.complete(result)));
        }
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn set_completions(&mut self, mode: CompletionMode, bell: &Arc<Bell>) {
        self.replies.set_bell(bell);
        if let Some(aio) = &mut self.aio {
            aio.set_bell((mode == CompletionMode::Interrupt).then(|| Arc::clone(bell)));
        }
    }

    fn wait(&self, now_ns: u64) -> Wait {
        let with_threads = self.with_threads > 0 && !self.replies.would_ring();
        if with_threads || !self.finished.is_empty() {
            return Wait::Poll;
        }
        let none_waits = self.waiting.is_empty() && self.waiting_long.is_empty();
        let waiting = if none_waits { Wait::Event } else { Wait::Until(now_ns + BUSY_RETRY_NS) };
        self.aio.as_ref().map_or(Wait::Event, Aio::wait).min(waiting)
    }
}

impl Drop for FileChannel {
    fn drop(&mut self) {
        // First the kernel and the threads must release the buffers and the blocks.
        self.aio = None;
        while self.with_threads > 0 {
            match self.replies.pop() {
                Some(reply) => {
                    self.with_threads -= 1;
                    self.request(reply.slot).buffer = reply.buffer;
                }
                None => std::thread::sleep(Duration::from_micros(50)),
            }
        }
        for slot in &mut self.slots {
            if let Some(hold) = slot.hold.take() {
                self.medium.release(hold);
            }
        }
        let lost = self.in_flight();
        assert!(lost == 0 || std::thread::panicking(), "{lost} requests in flight were lost: poll until none is");
    }
}

/// Whether an operation is long work of threads.
fn is_long(op: Op) -> bool {
    matches!(op, Op::WriteZeroes { .. } | Op::Deallocate)
}

fn explain_limit(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::WouldBlock {
        return error;
    }
    let message =
        "the system's limit on asynchronous requests is reached: raise it with sysctl -w fs.aio-max-nr=1048576";
    io::Error::new(io::ErrorKind::QuotaExceeded, message)
}
