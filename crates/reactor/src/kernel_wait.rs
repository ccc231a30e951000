//! Waiting in the kernel for several descriptors at once, to the nanosecond, without allocating.

use std::os::fd::{AsRawFd, BorrowedFd};

/// Descriptors to wait for; the room is kept from wait to wait.
#[derive(Default)]
pub(crate) struct KernelWait {
    fds: Vec<libc::pollfd>,
}

impl KernelWait {
    /// Forgets the descriptors of the last wait.
    pub(crate) fn clear(&mut self) {
        self.fds.clear();
    }

    /// Waits for `fd` too.
    pub(crate) fn add(&mut self, fd: BorrowedFd<'_>) {
        self.fds.push(libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    }

    /// Waits until a descriptor is readable or `left_ns` nanoseconds have passed (`u64::MAX`: for ever). May return early.
    /// A descriptor that has been closed since it was added ends the wait.
    pub(crate) fn wait(&mut self, left_ns: u64) {
        let limit = libc::timespec {
            tv_sec: (left_ns / 1_000_000_000).cast_signed(),
            tv_nsec: (left_ns % 1_000_000_000).cast_signed(),
        };
        let limit = if left_ns == u64::MAX { std::ptr::null() } else { &raw const limit };
        // SAFETY: the kernel writes `revents` of this number of entries; the limit lives until the call returns, and no signal
        // mask is given.
        unsafe { libc::ppoll(self.fds.as_mut_ptr(), self.fds.len() as libc::nfds_t, limit, std::ptr::null()) };
    }
}
