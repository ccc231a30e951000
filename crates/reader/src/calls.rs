//! One read, by each of the ways that Linux has.

use std::fmt;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::AsFd as _;

use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::ring::{Polling, Ring};

/// What direct I/O wants of memory at the most: a page.
const ALIGNMENT: usize = 4096;

/// By which calls a read is made, and how its end is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// `preadv2`: the thread sleeps until the interrupt.
    Preadv2,
    /// `preadv2` with RWF_HIPRI: the kernel polls, or sleeps first and then polls, as the queue's `io_poll_delay` says; 6.1 and later
    /// take the flag and do not poll.
    Preadv2Polled,
    /// io_uring: the thread sleeps until the interrupt.
    Uring,
    /// io_uring with IORING_SETUP_IOPOLL: the kernel polls.
    UringPolled,
    /// io_uring with IORING_SETUP_HYBRID_IOPOLL (Linux 6.13) as well: the kernel sleeps first, then polls.
    UringHybrid,
}

impl Way {
    /// Whether the kernel is asked to poll.
    #[must_use]
    pub fn polls(self) -> bool {
        !matches!(self, Self::Preadv2 | Self::Uring)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Preadv2 => "preadv2",
            Self::Preadv2Polled => "preadv2 with RWF_HIPRI",
            Self::Uring => "io_uring",
            Self::UringPolled => "io_uring with IOPOLL",
            Self::UringHybrid => "io_uring with IOPOLL and HYBRID_IOPOLL",
        })
    }
}

/// What makes reads, with the memory that they go to.
pub(crate) enum Calls {
    /// `preadv2`.
    Direct(ReadWriteFlags, Buffer),
    /// io_uring.
    Ring(Ring),
}

impl Calls {
    /// For reads of `bytes` bytes.
    ///
    /// # Errors
    /// The kernel makes no such ring.
    pub(crate) fn new(way: Way, bytes: usize) -> io::Result<Self> {
        let buffer = Buffer::new(bytes);
        Ok(match way {
            Way::Preadv2 => Self::Direct(ReadWriteFlags::empty(), buffer),
            Way::Preadv2Polled => Self::Direct(ReadWriteFlags::HIPRI, buffer),
            Way::Uring => Self::Ring(Ring::new(Polling::No, buffer)?),
            Way::UringPolled => Self::Ring(Ring::new(Polling::Classic, buffer)?),
            Way::UringHybrid => Self::Ring(Ring::new(Polling::Hybrid, buffer)?),
        })
    }

    /// Reads as many bytes as the memory has from `offset` on. Gives how many came.
    pub(crate) fn read(&mut self, file: &File, offset: u64) -> io::Result<usize> {
        match self {
            Self::Ring(ring) => ring.read(file.as_fd(), offset),
            Self::Direct(flags, buffer) => loop {
                match preadv2(file, &mut [IoSliceMut::new(buffer.as_mut_slice())], offset, *flags) {
                    Err(Errno::INTR) => {}
                    done => return Ok(done?),
                }
            },
        }
    }

    /// What the last read brought.
    pub(crate) fn data(&self) -> &[u8] {
        match self {
            Self::Direct(_, buffer) => buffer.as_slice(),
            Self::Ring(ring) => ring.data(),
        }
    }
}

/// Memory that direct I/O takes: it begins at a multiple of a page.
#[derive(Default)]
pub(crate) struct Buffer {
    memory: Vec<u8>,
    begins: usize,
    len: usize,
}

impl Buffer {
    pub(crate) fn new(len: usize) -> Self {
        let memory = vec![0; len + ALIGNMENT];
        let begins = memory.as_ptr().align_offset(ALIGNMENT);
        Self { memory, begins, len }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.memory[self.begins..self.begins + self.len]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.memory[self.begins..self.begins + self.len]
    }

    /// Leaves the memory to whoever still writes to it.
    pub(crate) fn leak(self) {
        self.memory.leak();
    }
}
