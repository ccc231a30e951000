//! Wakes an owner that waits in the kernel for results which do not come through an inbox: an event descriptor, rung by threads
//! that have published a result, or by the kernel (Linux AIO).
//!
//! The protocol is that of `doorbell.rs`: a ringer publishes its result first; the owner arms the bell first and then checks for
//! results. A thread makes no system call if the owner does not wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::doorbell::{self, WaitKind};

/// An owner's bell, for all sources of its results.
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

    /// Called before a wait. Later results ring; the owner must then check for earlier ones.
    pub fn arm(&self) {
        self.0.arm(WaitKind::Event);
    }

    /// Called after a wait. The descriptor stays readable after a ring: use edge triggering, or [`Bell::clear`].
    pub fn disarm(&self) {
        self.0.disarm();
    }

    /// Called after a result was published: wakes the owner, once per arming.
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
