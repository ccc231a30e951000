//! Linux AIO: asynchronous reads and writes of files opened with O_DIRECT.
//!
//! # Why not io_uring
//! An I/O thread moves between cores. AIO completions are not tied to the OS thread that submitted the request: any thread
//! can read them from a ring in user space without a system call (design section 6).
//!
//! # Terms
//! A *slot* is the caller's number for a request, 0 to depth - 1, each used by one request at a time. Requests are first
//! *pushed*, then *submitted* to the kernel as a batch, and their completions *reaped*.
//!
//! # The algorithm
//! The context that `io_setup` returns is the address of the ring: a header and an array of events. The kernel advances
//! the tail, the reader the head. If the header has an unknown layout, events are fetched with `io_getevents` instead.
//!
//! While a [`Bell`] is set, requests name it (`IOCB_FLAG_RESFD`), and the kernel rings it after it has added the event to
//! the ring. Requests pushed without a bell are *silent*: their completions are found only by polling.
//!
//! # The properties
//! - Nothing is allocated and no lock is taken after [`Aio::new`]; reaping makes no system call.
//! - Dropping the context waits until the kernel has released every buffer.

use std::ffi::c_long;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Bell;
use crate::wait::Wait;

/// Operations (`linux/aio_abi.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Read. Fails with EAGAIN instead of blocking, except for the device.
    Read,
    /// Write, likewise.
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

    fn flags(self) -> u32 {
        let durable = if self == (Self::Write { durable: true }) { libc::RWF_DSYNC } else { 0 };
        (libc::RWF_NOWAIT | durable) as u32
    }
}

/// `struct iocb`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ControlBlock {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    flags: u32,
    #[cfg(target_endian = "big")]
    key: u32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    address: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    notify_flags: u32,
    notify_descriptor: u32,
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

const _: () = assert!(size_of::<ControlBlock>() == 64 && size_of::<Event>() == 32 && size_of::<Ring>() == 32);

/// `IOCB_FLAG_RESFD`: `notify_descriptor` is an event descriptor to signal.
const NOTIFY: u32 = 1;
const RING_MAGIC: u32 = 0xa10a_10a1;
/// Events fetched by one `io_getevents`.
const BATCH: usize = 32;

/// An AIO context.
pub(crate) struct Aio {
    context: usize,
    /// The ring, if it can be read in user space.
    ring: Option<NonNull<Ring>>,
    ring_events: u32,
    blocks: Box<[ControlBlock]>,
    /// Control blocks pushed and not yet submitted.
    pushed: Vec<*mut ControlBlock>,
    /// Submitted and not yet reaped.
    in_kernel: usize,
    /// Pushed without a bell and not yet reaped.
    silent: usize,
    bell: Option<Arc<Bell>>,
    /// Events fetched with `io_getevents` and not yet reaped.
    fetched: [Event; BATCH],
    fetched_from: usize,
    fetched_to: usize,
}

// SAFETY: the context and its ring belong to the process, not to a thread; the pointers are into `blocks`.
unsafe impl Send for Aio {}

impl Aio {
    /// A context for up to `depth` requests in flight.
    ///
    /// # Errors
    /// `WouldBlock` (EAGAIN): the system's limit `fs.aio-max-nr` is reached.
    pub(crate) fn new(depth: u32) -> io::Result<Self> {
        let mut context = 0_usize;
        // SAFETY: the kernel writes one word to `context`.
        check(unsafe { libc::syscall(libc::SYS_io_setup, c_long::from(depth), &raw mut context) })?;
        let mut aio = Self {
            context,
            ring: None,
            ring_events: 0,
            blocks: vec![ControlBlock::default(); depth as usize].into_boxed_slice(),
            pushed: Vec::with_capacity(depth as usize),
            in_kernel: 0,
            silent: 0,
            bell: None,
            fetched: [Event::default(); BATCH],
            fetched_from: 0,
            fetched_to: 0,
        };
        aio.find_ring();
        Ok(aio)
    }

    /// Uses the ring in user space if its layout is known.
    fn find_ring(&mut self) {
        let Some(ring) = NonNull::new(self.context as *mut Ring) else { return };
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

    /// The condition under which [`Aio::submit`] or [`Aio::reap`] has work.
    pub(crate) fn wait(&self) -> Wait {
        let ready = !self.pushed.is_empty() || self.fetched_from < self.fetched_to || self.ring_has_event();
        if ready || self.silent > 0 { Wait::Poll } else { Wait::Event }
    }

    fn ring_has_event(&self) -> bool {
        let Some(ring) = self.ring else { return false };
        // SAFETY: the ring is mapped as long as the context exists, and its head and tail are only accessed as atomics.
        let (head, tail) = unsafe { (&(*ring.as_ptr()).head, &(*ring.as_ptr()).tail) };
        head.load(Ordering::Relaxed) != tail.load(Ordering::Acquire)
    }

    /// Queues a request for the next [`Aio::submit`].
    ///
    /// # Safety
    /// Until the slot's completion is reaped or this value is dropped, the memory stays valid, and nothing else writes to it
    /// (nor, for a read, reads it). No other request uses the slot.
    pub(crate) unsafe fn push(
        &mut self,
        slot: u32,
        file: BorrowedFd<'_>,
        command: Command,
        memory: (*mut u8, usize),
        offset: u64,
    ) {
        let bell = self.bell.as_ref().map(|bell| bell.as_fd().as_raw_fd() as u32);
        self.silent += usize::from(bell.is_none());
        let block = &mut self.blocks[slot as usize];
        *block = ControlBlock {
            data: u64::from(slot),
            flags: command.flags(),
            opcode: command.opcode(),
            descriptor: file.as_raw_fd() as u32,
            address: memory.0 as u64,
            len: memory.1 as u64,
            offset: offset as i64,
            notify_flags: if bell.is_some() { NOTIFY } else { 0 },
            notify_descriptor: bell.unwrap_or(0),
            ..ControlBlock::default()
        };
        self.pushed.push(&raw mut *block);
    }

    /// Submits the pushed requests. `Err` names a slot that the kernel refused, with the error number: that request is
    /// complete, and the rest stays pushed. If the kernel has no resources, all stay pushed.
    pub(crate) fn submit(&mut self) -> Result<(), (u32, i32)> {
        while !self.pushed.is_empty() {
            let count = self.pushed.len() as c_long;
            // SAFETY: the pointers are to control blocks of this context; the callers of `push` guarantee their memory.
            let taken = unsafe { libc::syscall(libc::SYS_io_submit, self.context, count, self.pushed.as_ptr()) };
            match check(taken) {
                Ok(0) => return Ok(()),
                Ok(taken) => {
                    self.pushed.drain(..taken as usize);
                    self.in_kernel += taken as usize;
                }
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return Ok(()),
                Err(error) => {
                    let refused = self.pushed.remove(0);
                    // SAFETY: it points into `blocks`.
                    let slot = unsafe { (*refused).data } as u32;
                    self.note_completed(slot);
                    return Err((slot, error.raw_os_error().unwrap_or(libc::EIO)));
                }
            }
        }
        Ok(())
    }

    /// The next completion: its slot, and bytes transferred or a negative error number.
    pub(crate) fn reap(&mut self) -> Option<(u32, i64)> {
        if self.in_kernel == 0 {
            return None;
        }
        let event = match self.ring {
            Some(ring) => self.reap_ring(ring),
            None => self.reap_fetched(),
        }?;
        self.in_kernel -= 1;
        self.note_completed(event.data as u32);
        Some((event.data as u32, event.result))
    }

    fn note_completed(&mut self, slot: u32) {
        self.silent -= usize::from(self.blocks[slot as usize].notify_flags == 0);
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
            check(unsafe { libc::syscall(libc::SYS_io_getevents, self.context, least, room.0, room.1, timeout) })?;
        Ok(count as usize)
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        self.in_kernel -= self.fetched_to - self.fetched_from;
        while self.in_kernel > 0 {
            match self.fetch(1) {
                Ok(count) => self.in_kernel -= count.min(self.in_kernel),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // No other error is expected; `io_destroy` waits as well.
                Err(_) => break,
            }
        }
        // SAFETY: the context belongs to this value. The call returns when all requests are complete.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests;
