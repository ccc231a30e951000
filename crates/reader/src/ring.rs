//! io_uring for one read at a time. All `unsafe` of this crate is here, but for `getrusage` (`usage.rs`).
//!
//! # Why this and not a library
//! The crate `io-uring` (0.7.15) has no way to ask for IORING_SETUP_HYBRID_IOPOLL and lets nobody set flags that it does not know.
//!
//! # The words
//! The kernel shares two pieces of memory with us. The *rings*: two queues, each with a head (moved by who takes) and a tail (moved by who
//! puts), whose places the kernel tells when it makes them. The *entries*: 64 bytes for each request to submit.
//!
//! # The algorithm
//! A read is written into entry 0, the tail of submissions is moved by one, and `io_uring_enter` is asked to submit it and to wait for one
//! completion: asleep, polling, or both, as the ring was made. It may come back early (a signal; a poller that must give its CPU
//! away); then it is called again until the completion is there.
//!
//! # The properties
//! - Shared memory is only touched as words of 32 bits, each looked for within the mapping and aligned.
//! - The kernel writes to the buffer from the submission until the completion is seen. Meanwhile nobody else can reach the buffer; if
//!   waiting fails for good it is left to the kernel for ever.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::io_uring::{
    IORING_OFF_SQ_RING, IORING_OFF_SQES, IoringEnterFlags, IoringFeatureFlags, IoringSetupFlags, io_uring_enter,
    io_uring_params, io_uring_setup,
};
use rustix::mm::{MapFlags, ProtFlags};

use crate::calls::Buffer;

/// `IORING_SETUP_HYBRID_IOPOLL` (`linux/io_uring.h`, Linux 6.13).
const HYBRID_IOPOLL: u32 = 1 << 17;
/// `IORING_OP_READ` (Linux 5.6).
const OP_READ: u8 = 22;
/// Bytes of a submission (`struct io_uring_sqe`) and of a completion (`struct io_uring_cqe`).
const SUBMISSION: usize = 64;
const COMPLETION: u32 = 16;
/// Where in a completion the result is.
const RESULT: u32 = 8;
/// The number of a read among requests: there is only one.
const USER_DATA: u64 = 0x5245_4144;

/// How the end of a read is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polling {
    /// Asleep, until the interrupt.
    No,
    /// By looking.
    Classic,
    /// By sleeping, then looking.
    Hybrid,
}

impl Polling {
    fn flags(self) -> IoringSetupFlags {
        match self {
            Self::No => IoringSetupFlags::empty(),
            Self::Classic => IoringSetupFlags::IOPOLL,
            Self::Hybrid => IoringSetupFlags::IOPOLL | IoringSetupFlags::from_bits_retain(HYBRID_IOPOLL),
        }
    }
}

/// A ring with one read at a time, and the memory that reads go to.
pub(crate) struct Ring {
    descriptor: OwnedFd,
    /// Both queues.
    rings: Shared,
    /// Submissions.
    entries: Shared,
    submissions: Queue,
    completions: Queue,
    buffer: Buffer,
    /// The kernel may write to the buffer.
    in_flight: bool,
}

/// Where the parts of a queue are among the rings, in bytes.
#[derive(Clone, Copy)]
struct Queue {
    head: u32,
    tail: u32,
    mask: u32,
    /// Its first element.
    elements: u32,
}

impl Ring {
    /// Reads will go to `buffer`.
    ///
    /// # Errors
    /// The kernel makes no such ring (EINVAL: it does not know the flags), or one of an unknown form.
    pub(crate) fn new(polling: Polling, buffer: Buffer) -> io::Result<Self> {
        let mut params = io_uring_params::default();
        params.flags = polling.flags();
        // SAFETY: ATTACH_WQ is not among the flags, so `wq_fd` is not looked at.
        let descriptor = unsafe { io_uring_setup(1, &mut params) }?;
        if !params.features.contains(IoringFeatureFlags::SINGLE_MMAP) || params.sq_entries == 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let (sq, cq) = (params.sq_off, params.cq_off);
        let submissions = Queue { head: sq.head, tail: sq.tail, mask: sq.ring_mask, elements: sq.array };
        let completions = Queue { head: cq.head, tail: cq.tail, mask: cq.ring_mask, elements: cq.cqes };
        let of_submissions = sq.array as usize + params.sq_entries as usize * size_of::<u32>();
        let of_completions = cq.cqes as usize + params.cq_entries as usize * COMPLETION as usize;
        let rings = Shared::map(descriptor.as_fd(), of_submissions.max(of_completions), IORING_OFF_SQ_RING)?;
        let entries = Shared::map(descriptor.as_fd(), params.sq_entries as usize * SUBMISSION, IORING_OFF_SQES)?;
        Ok(Self { descriptor, rings, entries, submissions, completions, buffer, in_flight: false })
    }

    /// Reads from `offset` on as many bytes as the buffer has. Gives how many came.
    ///
    /// # Errors
    /// The kernel's or the drive's. After an error of waiting itself nothing more can be read.
    pub(crate) fn read(&mut self, file: BorrowedFd<'_>, offset: u64) -> io::Result<usize> {
        if self.in_flight {
            return Err(io::Error::other("a read of this ring never came back"));
        }
        self.put(file, offset);
        loop {
            match self.enter() {
                Ok(()) | Err(Errno::INTR | Errno::AGAIN | Errno::BUSY) => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(result) = self.take() {
                self.in_flight = false;
                return result;
            }
        }
    }

    /// What the last read brought: nothing while one is in flight.
    pub(crate) fn data(&self) -> &[u8] {
        if self.in_flight { &[] } else { self.buffer.as_slice() }
    }

    /// Writes the request, and shows it to the kernel.
    fn put(&mut self, file: BorrowedFd<'_>, offset: u64) {
        let bytes = submission(file, self.buffer.as_mut_slice(), offset);
        for (word, at) in bytes.as_chunks::<4>().0.iter().zip((0..).step_by(4)) {
            self.entries.word(at).store(u32::from_ne_bytes(*word), Ordering::Relaxed);
        }
        let tail = self.rings.word(self.submissions.tail);
        let (now, mask) =
            (tail.load(Ordering::Relaxed), self.rings.word(self.submissions.mask).load(Ordering::Relaxed));
        // Which entry is meant: 0.
        self.rings.word(self.submissions.elements + (now & mask) * 4).store(0, Ordering::Relaxed);
        self.in_flight = true;
        tail.store(now.wrapping_add(1), Ordering::Release);
    }

    /// Submits what the kernel has not taken yet, and waits for a completion.
    fn enter(&self) -> Result<(), Errno> {
        let tail = self.rings.word(self.submissions.tail).load(Ordering::Relaxed);
        let untaken = tail.wrapping_sub(self.rings.word(self.submissions.head).load(Ordering::Acquire));
        // SAFETY: the one request names a descriptor that the caller of `read` lends, and the buffer, which is this ring's own, is as
        // long as the request says, and is not looked at nor freed before the completion.
        unsafe { io_uring_enter(&self.descriptor, untaken, 1, IoringEnterFlags::GETEVENTS) }.map(drop)
    }

    /// The completion, if it is there.
    fn take(&self) -> Option<io::Result<usize>> {
        let head = self.rings.word(self.completions.head);
        let now = head.load(Ordering::Relaxed);
        if now == self.rings.word(self.completions.tail).load(Ordering::Acquire) {
            return None;
        }
        let mask = self.rings.word(self.completions.mask).load(Ordering::Relaxed);
        let at = self.completions.elements + (now & mask) * COMPLETION + RESULT;
        let result = self.rings.word(at).load(Ordering::Relaxed) as i32;
        head.store(now.wrapping_add(1), Ordering::Release);
        Some(usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.in_flight {
            std::mem::take(&mut self.buffer).leak();
        }
    }
}

/// `struct io_uring_sqe` of a read into `buffer`.
fn submission(file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> [u8; SUBMISSION] {
    use std::os::fd::AsRawFd as _;
    let mut bytes = [0; SUBMISSION];
    bytes[0] = OP_READ;
    bytes[4..8].copy_from_slice(&file.as_raw_fd().to_ne_bytes());
    bytes[8..16].copy_from_slice(&offset.to_ne_bytes());
    bytes[16..24].copy_from_slice(&(buffer.as_mut_ptr().expose_provenance() as u64).to_ne_bytes());
    bytes[24..28].copy_from_slice(&(buffer.len() as u32).to_ne_bytes());
    bytes[32..40].copy_from_slice(&USER_DATA.to_ne_bytes());
    bytes
}

/// Memory that the kernel shares; unmapped when dropped.
struct Shared {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Shared {}

impl Shared {
    fn map(descriptor: BorrowedFd<'_>, len: usize, offset: u64) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the kernel chooses an address that nothing else uses.
        let address = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags, descriptor, offset)
        }?;
        Ok(Self { base: NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?, len })
    }

    /// The word at this place.
    ///
    /// # Panics
    /// If the kernel told of a place that is not in the mapping.
    fn word(&self, at: u32) -> &AtomicU32 {
        let at = at as usize;
        assert!(at.is_multiple_of(4) && at + 4 <= self.len, "byte {at} is no word of a mapping of {} bytes", self.len);
        // SAFETY: the word lies within the mapping, which lives as long as `self`, and is aligned, as mappings begin at a page; we and the
        // kernel access it as a whole.
        unsafe { self.base.cast::<AtomicU32>().byte_add(at).as_ref() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and references to it do not outlive the value.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
