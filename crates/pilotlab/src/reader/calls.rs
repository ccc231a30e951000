//! One read by each method of Linux.

use std::fmt;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::AsFd as _;

use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::reader::buffer::Buffer;
use crate::reader::ring::{Polling, Ring};

/// System call and completion method of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Method {
    /// `preadv2`: the thread sleeps until the interrupt.
    Preadv2,
    /// `preadv2` with RWF_HIPRI: the kernel polls, after a sleep according to the queue's `io_poll_delay`; 6.1 and later accept the flag but
    /// do not poll.
    Preadv2Polled,
    /// io_uring: the thread sleeps until the interrupt.
    Uring,
    /// io_uring with IORING_SETUP_IOPOLL: the kernel polls.
    UringPolled,
    /// io_uring with IORING_SETUP_HYBRID_IOPOLL (Linux 6.13) as well: the kernel sleeps first, then polls.
    UringHybrid,
}

impl Method {
    /// Whether the kernel polls.
    #[must_use]
    pub(crate) fn polls(self) -> bool {
        !matches!(self, Self::Preadv2 | Self::Uring)
    }
}

impl fmt::Display for Method {
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

/// Performs reads into its buffer.
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
    /// The kernel cannot create the ring.
    pub(crate) fn new(method: Method, bytes: usize) -> io::Result<Self> {
        let buffer = Buffer::new(bytes);
        Ok(match method {
            Method::Preadv2 => Self::Direct(ReadWriteFlags::empty(), buffer),
            Method::Preadv2Polled => Self::Direct(ReadWriteFlags::HIPRI, buffer),
            Method::Uring => Self::Ring(Ring::new(Polling::No, buffer)?),
            Method::UringPolled => Self::Ring(Ring::new(Polling::Classic, buffer)?),
            Method::UringHybrid => Self::Ring(Ring::new(Polling::Hybrid, buffer)?),
        })
    }

    /// Reads a full buffer from `offset`; returns the number of bytes read.
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

    /// Data of the last read.
    pub(crate) fn data(&self) -> &[u8] {
        match self {
            Self::Direct(_, buffer) => buffer.as_slice(),
            Self::Ring(ring) => ring.data(),
        }
    }
}
