//! What wakes an owner that waits in the kernel for results which do not come through an inbox: an event descriptor, rung
//! by threads that have put a result where the owner looks, or by the kernel itself (Linux AIO).
//!
//! The protocol is that of `doorbell.rs`: who rings publishes its result first; the owner arms the bell first and then
//! looks for results. A thread makes no system call for an owner that does not wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::doorbell::{self, How};

/// An owner's bell. All that it waits for may share it.
#[derive(Debug)]
pub struct Bell(doorbell::Bell);

impl Bell {
    /// A bell that is not armed.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let bell = doorbell::Bell::new();
        bell.event()?;
        Ok(Self(bell))
    }

    /// The owner is about to wait. What is published from now on rings; what was published before has to be looked for now.
    pub fn arm(&self) {
        self.0.arm(How::Event);
    }

    /// The owner does not wait any more. The descriptor stays readable if it was rung: watch for edges, or [`Bell::clear`].
    pub fn disarm(&self) {
        self.0.disarm();
    }

    /// A result has been published: wakes the owner, once for each time that it was armed.
    pub fn ring(&self) {
        self.0.message_is_in();
    }

    /// Makes the descriptor unreadable.
    pub fn clear(&self) {
        self.0.drain();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event().expect("made with the bell").as_fd()
    }
}
