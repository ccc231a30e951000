//! Linux AIO: asynchronous reads and writes of files opened with O_DIRECT.
//!
//! # Why not io_uring
//! An I/O thread moves between cores. AIO completions are not tied to the OS thread that submitted the request: any thread
//! can read them from a ring in user space without a system call (design section 6).
//!
//! # Terms
//! A *tag* is the caller's number for a request. Requests are first *pushed*, then *submitted* to the kernel as a batch, and
//! their completions *reaped*.
//!
//! # The algorithm
//! The context that `io_setup` returns is the address of the ring: a header and an array of events. The kernel advances
//! the tail, the reader the head. If the header has an unknown layout, events are fetched with `io_getevents` instead.
//!
//! While a [`Bell`] is set, requests name it (`IOCB_FLAG_RESFD`), and the kernel rings it after it has added the event to
//! the ring. Requests pushed without a bell are *silent*: their completions are found only by polling.
//!
//! `io_submit` can wait where the file is not a block device: `submission.rs` explains why and how other threads call it.
//!
//! # The properties
//! - Nothing is allocated and no lock is taken after [`Aio::new`]; reaping makes no system call, and neither does
//!   submission by threads, except to wake one.
//! - Dropping the context waits until the kernel has released every buffer; its channel has waited for submissions before.

mod context;
mod submission;

use std::ffi::c_long;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) use submission::Submission;

use super::budget::Charge;
use super::{Bell, MemoryBudget};
use crate::wait::Wait;
use context::{Context, ControlBlock, check};
use submission::Submissions;

/// Operations (`linux/aio_abi.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Read.
    Read,
    /// Write.
    Write {
        /// The device stores the data durably before it completes the command (`RWF_DSYNC`).
        durable: bool,
    },
}

impl Command {
    fn opcode(self) -> u16 {
        match self {
            Self::Read => 0,
            Self::Write { .. } => 1,
        }
    }

    fn flags(self, nowait: bool) -> u32 {
        let durable = if self == (Self::Write { durable: true }) { libc::RWF_DSYNC } else { 0 };
        let nowait = if nowait { libc::RWF_NOWAIT } else { 0 };
        (nowait | durable) as u32
    }
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    control_block: u64,
    result: i64,
    result2: i64,
}

/// `struct aio_ring` (`fs/aio.c`), followed by the events.
#[repr(C)]
struct Ring {
    id: u32,
    events: u32,
    head: AtomicU32,
    tail: AtomicU32,
    magic: u32,
    compatible: u32,
    incompatible: u32,
    header_len: u32,
}

const _: () = assert!(size_of::<Event>() == 32 && size_of::<Ring>() == 32);

/// `IOCB_FLAG_RESFD`: `notify_descriptor` is an event descriptor to signal.
const NOTIFY: u32 = 1;
const RING_MAGIC: u32 = 0xa10a_10a1;
/// Memory of a request in flight: its control block, its places in the queues, and its events in the ring, of which the
/// kernel makes two.
const REQUEST_BYTES: u64 = (size_of::<ControlBlock>() + 2 * size_of::<Event>() + 32) as u64;
/// Events fetched by one `io_getevents`.
const BATCH: usize = 32;

/// How requests are submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Requests in flight at most.
    pub(crate) depth: u32,
    /// Requests fail with EAGAIN where they would block, except for the device (`RWF_NOWAIT`).
    pub(crate) nowait: bool,
    /// By other threads ([`Aio::next_submission`]) instead of by [`Aio::submit`].
    pub(crate) by_threads: bool,
}

/// An AIO context.
pub(crate) struct Aio {
    context: Arc<Context>,
    /// The ring, if it can be read in user space.
    ring: Option<NonNull<Ring>>,
    ring_events: u32,
    nowait: bool,
    /// Free control blocks.
    free: Vec<u32>,
    /// Control blocks pushed and not yet submitted by [`Aio::submit`].
    pushed: Vec<u32>,
    submissions: Option<Submissions>,
    /// Pushed without a bell and not yet reaped.
    silent: usize,
    bell: Option<Arc<Bell>>,
    /// Events fetched with `io_getevents` and not yet reaped.
    fetched: [Event; BATCH],
    fetched_from: usize,
    fetched_to: usize,
    _charge: Charge,
}

// SAFETY: the context and its ring belong to the process, not to a thread.
unsafe impl Send for Aio {}

impl Aio {
    /// A context, whose memory is charged to `budget`.
    ///
    /// # Errors
    /// `WouldBlock` (EAGAIN): the system's limit `fs.aio-max-nr` is reached. `OutOfMemory`: that of the budget.
    pub(crate) fn new(options: Options, budget: &Arc<MemoryBudget>) -> io::Result<Self> {
        let bytes = u64::from(options.depth) * REQUEST_BYTES;
        let charge = budget.charge(bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        let context = Arc::new(Context::new(options.depth)?);
        let mut aio = Self {
            ring: None,
            ring_events: 0,
            nowait: options.nowait,
            free: (0..options.depth).rev().collect(),
            pushed: Vec::with_capacity(options.depth as usize),
            submissions: options.by_threads.then(|| Submissions::new(Arc::clone(&context))),
            context,
            silent: 0,
            bell: None,
            fetched: [Event::default(); BATCH],
            fetched_from: 0,
            fetched_to: 0,
            _charge: charge,
        };
        aio.find_ring();
        Ok(aio)
    }

    /// Uses the ring in user space if its layout is known.
    fn find_ring(&mut self) {
        let Some(ring) = NonNull::new(self.context.id() as *mut Ring) else { return };
        // SAFETY: the kernel has mapped the ring at the context's address, for as long as the context exists.
        let header = unsafe { ring.as_ref() };
        let known = header.magic == RING_MAGIC
            && header.incompatible == 0
            && header.header_len as usize == size_of::<Ring>()
            && header.events > 0;
        if known {
            (self.ring, self.ring_events) = (Some(ring), header.events);
        }
    }

    /// Sets the bell that completions of requests pushed from now on ring.
    pub(crate) fn set_bell(&mut self, bell: Option<Arc<Bell>>) {
        self.bell = bell;
    }

    /// Whether no request can be pushed until a completion is reaped.
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Requests pushed and not yet reaped.
    pub(crate) fn in_flight(&self) -> usize {
        self.context.depth() - self.free.len()
    }

    /// The condition under which [`Aio::submit`], [`Aio::next_submission`] or [`Aio::reap`] has work.
    pub(crate) fn wait(&self) -> Wait {
        let ready = !self.pushed.is_empty() || self.fetched_from < self.fetched_to || self.ring_has_event();
        if ready || self.silent > 0 {
            return Wait::Poll;
        }
        self.submissions.as_ref().map_or(Wait::Event, Submissions::wait)
    }

    fn ring_has_event(&self) -> bool {
        let Some(ring) = self.ring else { return false };
        // SAFETY: the ring is mapped as long as the context exists, and its head and tail are only accessed as atomics.
        let (head, tail) = unsafe { (&(*ring.as_ptr()).head, &(*ring.as_ptr()).tail) };
        head.load(Ordering::Relaxed) != tail.load(Ordering::Acquire)
    }

    /// Queues a request for the next submission.
    ///
    /// # Panics
    /// If the context is full.
    ///
    /// # Safety
    /// Until the request's completion is reaped, it is refused, or this value is dropped, the memory stays valid, and nothing
    /// else writes to it (nor, for a read, reads it).
    pub(crate) unsafe fn push(
        &mut self,
        tag: u32,
        file: BorrowedFd<'_>,
        command: Command,
        memory: (*mut u8, usize),
        offset: u64,
    ) {
        let bell = self.bell.as_ref().map(|bell| bell.as_fd().as_raw_fd() as u32);
        self.silent += usize::from(bell.is_none());
        let at = self.free.pop().expect("the caller asked whether it is full");
        let block = ControlBlock {
            data: u64::from(tag),
            flags: command.flags(self.nowait),
            opcode: command.opcode(),
            descriptor: file.as_raw_fd() as u32,
            address: memory.0 as u64,
            len: memory.1 as u64,
            offset: offset as i64,
            notify_flags: if bell.is_some() { NOTIFY } else { 0 },
            notify_descriptor: bell.unwrap_or(0),
            ..ControlBlock::default()
        };
        // SAFETY: the block is free: neither the kernel nor a submitting thread has it.
        unsafe { self.context.write(at, block) };
        match &mut self.submissions {
            Some(submissions) => submissions.push(at),
            None => self.pushed.push(at),
        }
    }

    /// Submits the pushed requests. `Err` names a request that the kernel refused by its tag, with the error number: it is
    /// complete, and the rest stays pushed. If the kernel has no resources, all stay pushed.
    pub(crate) fn submit(&mut self) -> Result<(), (u32, i32)> {
        while !self.pushed.is_empty() {
            // Does not wait: without `by_threads` these are requests to block devices, which fail with EAGAIN instead.
            // SAFETY: the blocks were written by `push`, whose callers guarantee their memory, and are submitted once.
            match unsafe { self.context.submit(&self.pushed) } {
                Ok(0) => return Ok(()),
                Ok(taken) => drop(self.pushed.drain(..taken)),
                Err(libc::EAGAIN) => return Ok(()),
                Err(number) => {
                    let refused = self.pushed.remove(0);
                    return Err((self.refuse(refused), number));
                }
            }
        }
        Ok(())
    }

    /// Work for a thread that may wait, if requests were pushed for it.
    pub(crate) fn next_submission(&mut self, now_ns: u64) -> Option<Submission> {
        self.submissions.as_mut()?.next(now_ns)
    }

    /// Takes back a request that was not submitted; returns its tag.
    pub(crate) fn refuse(&mut self, at: u32) -> u32 {
        self.release(at)
    }

    /// The next completion: its tag, and bytes transferred or a negative error number.
    pub(crate) fn reap(&mut self) -> Option<(u32, i64)> {
        if self.in_flight() == 0 {
            return None;
        }
        let event = match self.ring {
            Some(ring) => self.reap_ring(ring),
            None => self.reap_fetched(),
        }?;
        let tag = self.release(self.context.index(event.control_block));
        Some((tag, event.result))
    }

    /// Frees a control block that nobody else has; returns its tag.
    fn release(&mut self, at: u32) -> u32 {
        // SAFETY: the kernel and the submitting threads are done with the block.
        let block = unsafe { self.context.read(at) };
        self.silent -= usize::from(block.notify_flags == 0);
        self.free.push(at);
        block.data as u32
    }

    fn reap_ring(&mut self, ring: NonNull<Ring>) -> Option<Event> {
        // SAFETY: the ring is mapped as long as the context exists, and its head and tail are only accessed as atomics.
        let (head, tail) = unsafe { (&(*ring.as_ptr()).head, &(*ring.as_ptr()).tail) };
        let at = head.load(Ordering::Relaxed);
        // The kernel writes the event before the tail.
        if at == tail.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the array follows the header, and `at` is less than its length and behind the kernel's tail: the kernel
        // does not overwrite the event until the head has passed it.
        let event = unsafe { ring.add(1).cast::<Event>().add((at % self.ring_events) as usize).read() };
        head.store((at + 1) % self.ring_events, Ordering::Release);
        Some(event)
    }

    fn reap_fetched(&mut self) -> Option<Event> {
        if self.fetched_from == self.fetched_to {
            self.fetched_from = 0;
            self.fetched_to = self.fetch(0).unwrap_or(0);
        }
        let event = *self.fetched[..self.fetched_to].get(self.fetched_from)?;
        self.fetched_from += 1;
        Some(event)
    }

    /// Fetches events with a system call, waiting for at least `least`.
    fn fetch(&mut self, least: c_long) -> io::Result<usize> {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = if least == 0 { &raw const now } else { std::ptr::null() };
        let room = (BATCH as c_long, self.fetched.as_mut_ptr());
        // SAFETY: the kernel writes at most `room.0` events to the array.
        let count =
            check(unsafe { libc::syscall(libc::SYS_io_getevents, self.context.id(), least, room.0, room.1, timeout) })?;
        Ok(count as usize)
    }
}

impl Drop for Aio {
    /// Waits until the kernel has released every buffer. Before, all submissions by threads must have ended.
    fn drop(&mut self) {
        let mut in_kernel = self.in_flight() - self.pushed.len() - (self.fetched_to - self.fetched_from);
        while in_kernel > 0 {
            match self.fetch(1) {
                Ok(count) => in_kernel -= count.min(in_kernel),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // No other error is expected; `io_destroy` waits as well.
                Err(_) => break,
            }
        }
    }
}

#[cfg(test)]
mod tests;
