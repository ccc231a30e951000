//! One I/O thread's requests to a file or device.
//!
//! A slot is *free*, or its request is with AIO, with a thread, *waiting* (for room in the AIO context, for a thread, for
//! other long jobs to end, or for the hold of its next slice), or *finished*, until a poll returns it. During a transfer the
//! slot keeps the request's hold and, while AIO has it, the buffer, which is not touched.
//!
//! The first transfer of a channel makes a thread open its AIO context, because contexts take part of what the system
//! allows (`fs.aio-max-nr`) and most channels of many I/O threads and namespaces are never used. Until it is open, and for
//! good where the system allows no more, threads do the transfers.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use pilotlight_reactor::CompletionMode;
use pilotlight_reactor::clock::now_ns;

use super::super::aio::{self, Aio, Command};
use super::super::blocking::BlockingPool;
use super::super::budget::Charge;
use super::super::guard::Hold;
use super::super::{Bell, Channel, Completion, IoError, Op, Request, Submitted};
use super::medium::{Deallocation, Medium};
use super::work::{Job, LongJobs, Replies, Reply, SlotWork, Task, Work};
use crate::wait::{BUSY_RETRY_NS, Wait};

/// Memory of a slot: its state, its places in five queues, and its reply.
const SLOT_BYTES: u64 = (size_of::<Slot>() + 5 * size_of::<u32>() + size_of::<Reply>() + size_of::<usize>()) as u64;

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
    route: Route,
    slots: Box<[Slot]>,
    free: Vec<u32>,
    waiting: VecDeque<u32>,
    /// Waiting slots whose transfers AIO has no room for.
    waiting_aio: VecDeque<u32>,
    /// Waiting slots whose next work is long.
    waiting_long: VecDeque<u32>,
    long_jobs: Arc<LongJobs>,
    finished: VecDeque<u32>,
    /// The bell of later requests, if they shall ring.
    bell: Option<Arc<Bell>>,
    /// Jobs other than submissions that have not been replied to.
    with_threads: usize,
    _charge: Charge,
}

/// How transfers reach the medium.
enum Route {
    /// By threads.
    Threads,
    /// By threads, until a context with these options is open.
    Unopened(aio::Options),
    /// By threads, while one opens the context.
    Opening,
    /// By AIO.
    Open(Box<Aio>),
}

impl FileChannel {
    pub(super) fn open(
        medium: Arc<Medium>,
        threads: Arc<BlockingPool<Job>>,
        long_jobs: Arc<LongJobs>,
        depth: u32,
    ) -> io::Result<Self> {
        let depth = depth.max(1);
        let charge = medium.budget().charge(u64::from(depth) * SLOT_BYTES).ok_or_else(no_memory)?;
        let queue = || VecDeque::with_capacity(depth as usize);
        let route = medium.aio(depth).map_or(Route::Threads, Route::Unopened);
        #[cfg(test)]
        let route = match route {
            Route::Unopened(options) if medium.faults.opens_at_once() => {
                Route::Open(Box::new(Aio::new(options, medium.budget())?))
            }
            other => other,
        };
        Ok(Self {
            route,
            medium,
            threads,
            replies: Arc::new(Replies::new(depth)),
            slots: (0..depth).map(|_| Slot::default()).collect(),
            free: (0..depth).rev().collect(),
            waiting: queue(),
            waiting_aio: queue(),
            waiting_long: queue(),
            long_jobs,
            finished: queue(),
            bell: None,
            with_threads: 0,
            _charge: charge,
        })
    }

    fn submit_data(&mut self, mut request: Request) -> Submitted {
        if self.free.is_empty() {
            return Submitted::Busy(request);
        }
        let bytes = request.bytes(self.medium.block_size());
        // Checks that the buffer is large enough, before anything is held.
        let _ = request.data(self.medium.block_size());
        let compares = matches!(request.op, Op::CompareAndWrite { .. });
        if compares {
            let _ = request.compare_and_write_data(self.medium.block_size());
        }
        let hold = match self.medium.try_hold(&bytes, request.op != Op::Read) {
            None => return Submitted::Busy(request),
            Some(Err(error)) => return Submitted::Done(request.complete(Err(error))),
            Some(Ok(hold)) => hold,
        };
        let slot = self.take_slot(request);
        self.slots[slot as usize].hold = Some(hold);
        if compares {
            self.start_or_wait(slot);
        } else {
            self.transfer(slot);
        }
        Submitted::Pending
    }

    /// Starts a slot's read or write.
    fn transfer(&mut self, slot: u32) {
        match &self.route {
            Route::Open(aio) if aio.is_full() => self.waiting_aio.push_back(slot),
            Route::Open(_) => self.push_transfer(slot),
            &Route::Unopened(options) => {
                if self.give(Task::Open(options)).is_ok() {
                    self.route = Route::Opening;
                }
                self.start_or_wait(slot);
            }
            Route::Opening | Route::Threads => self.start_or_wait(slot),
        }
    }

    /// Gives a task to a thread; returns it if that is not possible now.
    fn give(&mut self, task: Task) -> Result<(), Task> {
        let (medium, replies) = (Arc::clone(&self.medium), Arc::clone(&self.replies));
        let replied = !matches!(task, Task::Submit(_));
        self.threads.submit(Job { medium, replies, task }).map_err(|job| job.task)?;
        self.with_threads += usize::from(replied);
        Ok(())
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
        let no_op = is_deallocation(request.op) && self.medium.deallocation() == Deallocation::Nothing;
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
        let (Route::Open(aio), Some(request)) = (&mut self.route, &mut self.slots[slot as usize].request) else {
            return;
        };
        let command = match request.op {
            Op::Write { fua } => Command::Write { durable: fua && self.medium.forces_unit_access() },
            _ => Command::Read,
        };
        let bytes = request.bytes(self.medium.block_size());
        let buffer = request.buffer.as_mut().expect("a read or write has a buffer");
        let memory = (buffer.as_mut_ptr(), (bytes.end - bytes.start) as usize);
        // SAFETY: the buffer is long enough (`submit_data` checks), stays mapped even if it is leaked, and is not touched in
        // its slot until the completion is reaped or the request refused; `drop` waits for that before it releases the slots.
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
        if let Err(Task::Work(refused)) = self.give(Task::Work(SlotWork { slot, work, buffer, permit })) {
            self.request(slot).buffer = refused.buffer;
            return false;
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
            Op::CompareAndWrite { fua } => {
                return Some(Ok(Work::CompareAndWrite { offset: bytes.start, len, durable: fua }));
            }
            Op::Flush => return Some(Ok(Work::Flush(self.medium.now()))),
            Op::WriteZeroes { fua, deallocate } => (deallocate, fua),
            Op::Deallocate | Op::Clear => (true, false),
        };
        let rest = self.slots[slot as usize].rest.clone();
        let (bytes, held) = self.medium.slice(&rest, is_deallocation(op));
        if self.slots[slot as usize].hold.is_none() {
            match self.medium.try_hold(&held, true)? {
                Ok(hold) => self.slots[slot as usize].hold = Some(hold),
                Err(error) => return Some(Err(error)),
            }
        }
        let durable = fua && bytes.end == rest.end;
        Some(Ok(if is_deallocation(op) {
            Work::Deallocate { bytes, keep: op == Op::Clear }
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
        match reply {
            Reply::Opened(opened) => {
                self.with_threads -= 1;
                self.take_context(opened);
            }
            Reply::Refused(at, number) => {
                let Route::Open(aio) = &mut self.route else { return };
                let slot = aio.refuse(at);
                self.take_aio(slot, -i64::from(number));
            }
            Reply::Done(slot, result, buffer) => {
                self.with_threads -= 1;
                self.request(slot).buffer = buffer;
                self.take_done(slot, result);
            }
        }
    }

    fn take_context(&mut self, opened: io::Result<Box<Aio>>) {
        let Ok(mut aio) = opened else {
            self.route = Route::Threads;
            return;
        };
        aio.set_bell(self.bell.clone());
        self.route = Route::Open(aio);
    }

    fn take_done(&mut self, slot: u32, result: Result<(), IoError>) {
        let op = self.request(slot).op;
        if is_long(op) && result.is_ok() {
            let rest = self.slots[slot as usize].rest.clone();
            let rest = self.medium.slice(&rest, is_deallocation(op)).0.end..rest.end;
            self.slots[slot as usize].rest = rest.clone();
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
        while let Route::Open(aio) = &self.route
            && !aio.is_full()
            && let Some(slot) = self.waiting_aio.pop_front()
        {
            self.push_transfer(slot);
        }
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

    /// Submits the batch, to the kernel or to a thread, and reaps completions.
    fn drive_aio(&mut self, now_ns: u64) {
        self.start_submission(now_ns);
        while let Route::Open(aio) = &mut self.route
            && let Err((slot, number)) = aio.submit()
        {
            self.take_aio(slot, -i64::from(number));
        }
        while let Route::Open(aio) = &mut self.route
            && let Some((slot, result)) = aio.reap()
        {
            self.take_aio(slot, result);
        }
    }

    fn start_submission(&mut self, now_ns: u64) {
        if let Route::Open(aio) = &mut self.route
            && let Some(submission) = aio.next_submission(now_ns)
        {
            // If no thread takes it, a later poll tries again.
            let _ = self.give(Task::Submit(submission));
        }
    }

    /// Whether threads may still send replies.
    fn awaits_replies(&self) -> bool {
        self.with_threads > 0 || matches!(&self.route, Route::Open(aio) if aio.in_flight() > 0)
    }
}

impl Channel for FileChannel {
    fn submit(&mut self, request: Request, _now_ns: u64) -> Submitted {
        if let Err(error) = request.check_end(self.medium.blocks()) {
            return Submitted::Done(request.complete(Err(error)));
        }
        match request.op {
            Op::Read | Op::Write { .. } | Op::CompareAndWrite { .. } => self.submit_data(request),
            Op::Flush => self.submit_flush(request),
            Op::WriteZeroes { .. } | Op::Deallocate | Op::Clear => self.submit_zero(request),
        }
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<Completion>) {
        if self.in_flight() == 0 {
            return;
        }
        self.drive_aio(now_ns);
        if self.awaits_replies() {
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
        self.bell = (mode == CompletionMode::Interrupt).then(|| Arc::clone(bell));
        if let Route::Open(aio) = &mut self.route {
            aio.set_bell(self.bell.clone());
        }
    }

    fn wait(&self, now_ns: u64) -> Wait {
        if self.in_flight() == 0 {
            return Wait::Event;
        }
        let replied = self.awaits_replies() && !self.replies.would_ring();
        if replied || !self.finished.is_empty() {
            return Wait::Poll;
        }
        let none_waits = self.waiting.is_empty() && self.waiting_long.is_empty();
        let waiting = if none_waits { Wait::Event } else { Wait::Until(now_ns + BUSY_RETRY_NS) };
        match &self.route {
            Route::Open(aio) => aio.wait().min(waiting),
            _ => waiting,
        }
    }
}

impl Drop for FileChannel {
    fn drop(&mut self) {
        // First the kernel and the threads must release the buffers and the blocks.
        while self.awaits_replies() {
            self.start_submission(now_ns());
            if let Route::Open(aio) = &mut self.route {
                let _ = aio.submit();
                while aio.reap().is_some() {}
            }
            match self.replies.pop() {
                Some(Reply::Opened(opened)) => {
                    self.with_threads -= 1;
                    drop(opened);
                }
                Some(Reply::Refused(at, _)) => {
                    if let Route::Open(aio) = &mut self.route {
                        aio.refuse(at);
                    }
                }
                Some(Reply::Done(slot, _, buffer)) => {
                    self.with_threads -= 1;
                    self.request(slot).buffer = buffer;
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
    matches!(op, Op::WriteZeroes { .. }) || is_deallocation(op)
}

/// Whether an operation never writes zeroes.
fn is_deallocation(op: Op) -> bool {
    matches!(op, Op::Deallocate | Op::Clear)
}

fn no_memory() -> io::Error {
    let message = "not enough memory within max_memory for the requests of another I/O thread: raise max_memory, or use fewer I/O threads";
    io::Error::new(io::ErrorKind::OutOfMemory, message)
}
