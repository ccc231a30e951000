//! io_uring with one outstanding read. All `unsafe` of this crate is here, except `getrusage` (`usage.rs`).
//!
//! # Why no library
//! The crate `io-uring` (0.7.15) does not support IORING_SETUP_HYBRID_IOPOLL and does not allow setting unknown flags.
//!
//! # Terms
//! The kernel shares two mappings. The *rings*: two queues, each with a head (moved by the consumer) and a tail (moved by the producer),
//! whose offsets the kernel returns at setup. The *entries*: 64 bytes for each submission.
//!
//! # Algorithm
//! A read is written into entry 0, the tail of the submission queue is incremented, and `io_uring_enter` submits it and waits for one
//! completion, according to the flags of the ring. It may return early (a signal, or rescheduling of a poller); then it is called again
//! until the completion is present.
//!
//! # Properties
//! - Shared memory is accessed only as aligned 32-bit words with offsets checked against the mapping.
//! - The kernel writes to the buffer between submission and completion. The buffer is not accessible meanwhile; if waiting fails
//!   permanently, it is leaked.

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

use crate::reader::buffer::Buffer;

/// `IORING_SETUP_HYBRID_IOPOLL` (`linux/io_uring.h`, Linux 6.13).
const HYBRID_IOPOLL: u32 = 1 << 17;
/// `IORING_OP_READ` (Linux 5.6).
const OP_READ: u8 = 22;
/// Bytes of a submission (`struct io_uring_sqe`) and of a completion (`struct io_uring_cqe`).
const SUBMISSION: usize = 64;
const COMPLETION: u32 = 16;
/// Offset of the result in a completion.
const RESULT: u32 = 8;
/// User data of the only request.
const USER_DATA: u64 = 0x5245_4144;

/// Completion of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polling {
    /// By interrupt.
    No,
    /// By polling.
    Classic,
    /// By sleeping, then polling.
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

/// A ring with one outstanding read, and its buffer.
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

/// Offsets of a queue in the rings, in bytes.
#[derive(Clone, Copy)]
struct Queue {
    head: u32,
    tail: u32,
    mask: u32,
    /// Its first element.
    elements: u32,
}

impl Ring {
    /// A ring for reads into `buffer`.
    ///
    /// # Errors
    /// The kernel cannot create the ring (EINVAL: unknown flags), or its layout is unknown.
    pub(crate) fn new(polling: Polling, buffer: Buffer) -> io::Result<Self> {
        let mut params = io_uring_params::default();
        params.flags = polling.flags();
        // SAFETY: ATTACH_WQ is not among the flags, so `wq_fd` is ignored.
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

    /// Reads a full buffer from `offset`; returns the number of bytes read.
    ///
    /// # Errors
    /// An error of the kernel or drive. After an error of waiting the ring is unusable.
    pub(crate) fn read(&mut self, file: BorrowedFd<'_>, offset: u64) -> io::Result<usize> {
        if self.in_flight {
            return Err(io::Error::other("an earlier read of this ring did not complete"));
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

    /// Data of the last read; empty while one is outstanding.
    pub(crate) fn data(&self) -> &[u8] {
        if self.in_flight { &[] } else { self.buffer.as_slice() }
    }

    /// Writes the request and publishes it to the kernel.
    fn put(&mut self, file: BorrowedFd<'_>, offset: u64) {
        let bytes = submission(file, self.buffer.as_mut_slice(), offset);
        for (word, at) in bytes.as_chunks::<4>().0.iter().zip((0..).step_by(4)) {
            self.entries.word(at).store(u32::from_ne_bytes(*word), Ordering::Relaxed);
        }
        let tail = self.rings.word(self.submissions.tail);
        let (now, mask) =
            (tail.load(Ordering::Relaxed), self.rings.word(self.submissions.mask).load(Ordering::Relaxed));
        // Index of the entry: 0.
        self.rings.word(self.submissions.elements + (now & mask) * 4).store(0, Ordering::Relaxed);
        self.in_flight = true;
        tail.store(now.wrapping_add(1), Ordering::Release);
    }

    /// Submits the request and waits for a completion.
    fn enter(&self) -> Result<(), Errno> {
        let tail = self.rings.word(self.submissions.tail).load(Ordering::Relaxed);
        let untaken = tail.wrapping_sub(self.rings.word(self.submissions.head).load(Ordering::Acquire));
        // SAFETY: the one request has a descriptor borrowed from the caller of `read`, and this ring's own buffer with the request's length,
        // which is neither accessed nor freed before the completion.
        unsafe { io_uring_enter(&self.descriptor, untaken, 1, IoringEnterFlags::GETEVENTS) }.map(drop)
    }

    /// The completion, if present.
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

/// Memory shared with the kernel; unmapped when dropped.
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

    /// The word at this offset.
    ///
    /// # Panics
    /// The kernel returned an offset outside the mapping.
    fn word(&self, at: u32) -> &AtomicU32 {
        let at = at as usize;
        assert!(at.is_multiple_of(4) && at + 4 <= self.len, "byte {at} is no word of a mapping of {} bytes", self.len);
        // SAFETY: the word lies within the mapping, which lives as long as `self`, and is aligned, as mappings begin at a page;
        // this process and the kernel access it as a whole.
        unsafe { self.base.cast::<AtomicU32>().byte_add(at).as_ref() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and references to it do not outlive the value.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
