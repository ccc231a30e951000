//! What wakes an I/O thread that waits in the kernel when one of its requests has completed: an event descriptor, rung
//! by the kernel (Linux AIO) or by threads that do what blocks.
//!
//! A thread makes no system call for one that does not wait. It first publishes its result, then looks whether the bell is
//! armed; the owner first arms the bell, then looks for results. So one of the two sees the other.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

use rustix::event::{EventfdFlags, eventfd};

/// An I/O thread's bell. All of its channels share it.
#[derive(Debug)]
pub struct Bell {
    eventfd: OwnedFd,
    armed: AtomicBool,
}

impl Bell {
    /// A bell that is not armed.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { eventfd, armed: AtomicBool::new(false) })
    }

    /// The owner is about to wait. What completes from now on rings; what completed before has to be looked for now.
    pub fn arm(&self) {
        self.armed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The owner does not wait any more. The descriptor stays readable if it was rung: watch for edges, or [`Bell::clear`].
    pub fn disarm(&self) {
        self.armed.store(false, Ordering::Relaxed);
    }

    /// Something has completed and can be found: wakes the owner, once for each time that it was armed.
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::Relaxed) {
            // The count cannot overflow: there is one ring for each wait.
            let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// Makes the descriptor unreadable.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.eventfd, &mut [0; 8]); // EAGAIN: nothing has rung
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}
