//! Bounded queues of messages: many senders, one receiver.
//!
//! An inbox moves with its owner, an I/O thread or a reactor; a [`Sender`] stays valid. Sending never blocks: a full inbox returns
//! the message.
//!
//! An owner can wait for the next message: by watching its slot ([`Inbox::wait_monitor`]), in a futex ([`Inbox::wait_futex`]), or in
//! `poll(2)` or `epoll(7)` for the [`Inbox::doorbell`]. Each is arm, re-check, wait; `doorbell.rs` has the reasons.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::doorbell::{Bell, WaitKind};
use crate::ring::Ring;
use crate::sync::{Arc, Step, leaves_out};
use crate::wait::Monitor;

struct Shared<T> {
    ring: Ring<T>,
    bell: Bell,
}

/// The receiving end. Dropped, it drops what is in it; what is sent later goes with the last sender.
pub struct Inbox<T> {
    shared: Arc<Shared<T>>,
    /// Messages taken so far.
    head: u64,
    /// Armed for the doorbell.
    armed: bool,
    /// Rings of the doorbell that are not drained.
    pending_rings: u64,
}

/// A sending end; clone it freely.
pub struct Sender<T>(Arc<Shared<T>>);

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Inbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("taken", &self.head).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> Inbox<T> {
    /// An inbox for at most `capacity` messages, rounded up to a power of two.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let shared = Shared { ring: Ring::new(capacity), bell: Bell::new() };
        Self { shared: Arc::new(shared), head: 0, armed: false, pending_rings: 0 }
    }

    /// A sender to this inbox.
    #[must_use]
    pub fn sender(&self) -> Sender<T> {
        Sender(Arc::clone(&self.shared))
    }

    /// Takes the oldest message. Costs one load while there is none.
    #[inline]
    #[must_use]
    pub fn take(&mut self) -> Option<T> {
        // SAFETY: a ring has one inbox, which is not `Clone`, and `&mut self` makes this the only receiver; `head` starts
        // at 0 and counts what was taken.
        let message = unsafe { self.shared.ring.take(self.head) };
        self.head += u64::from(message.is_some());
        message
    }

    /// Whether there is nothing to take.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.ring.is_empty(self.head)
    }

    /// Rests until the next message's sender stores it, or until `until_ns` (`CLOCK_MONOTONIC`; `u64::MAX`: no limit);
    /// neither side makes a system call. May return early, without a message, and does so every millisecond or so.
    ///
    /// `monitor` must be from [`wait::available`](crate::wait::available): a CPU without the instruction raises `SIGILL`.
    ///
    /// # Panics
    /// If the instruction is another architecture's.
    pub fn wait_monitor(&mut self, monitor: Monitor, until_ns: u64) {
        self.disarm();
        let (word, unchanged) = self.shared.ring.next(self.head);
        let armed = monitor.arm(word);
        if self.still_empty() {
            armed.wait(unchanged, until_ns);
        }
    }

    /// Waits in the kernel until there is a message or until `until_ns` (`CLOCK_MONOTONIC`; `u64::MAX`: no limit). The
    /// first sender makes one system call to end it. May return early, without a message.
    pub fn wait_futex(&mut self, until_ns: u64) {
        self.disarm();
        let armed = self.shared.bell.arm(WaitKind::Futex);
        if self.still_empty() {
            self.shared.bell.wait(armed, until_ns);
        }
        self.shared.bell.disarm();
    }

    /// A descriptor that becomes readable (`POLLIN`) when a message arrives between [`arm`](Self::arm) and
    /// [`disarm`](Self::disarm). Created on first use; it never changes.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn doorbell(&self) -> io::Result<BorrowedFd<'_>> {
        Ok(self.shared.bell.event()?.as_fd())
    }

    /// Called before a wait for the [`doorbell`](Self::doorbell): the next sender rings it. `false`: there is a message, and
    /// nothing is armed.
    ///
    /// # Panics
    /// Without a call of [`doorbell`](Self::doorbell) before.
    #[must_use]
    pub fn arm(&mut self) -> bool {
        assert!(self.shared.bell.has_event(), "arm() requires a doorbell()");
        self.disarm();
        self.shared.bell.arm(WaitKind::Event);
        self.armed = true;
        let empty = self.still_empty();
        if !empty {
            self.disarm();
        }
        empty
    }

    /// Called after a wait for the doorbell, which is drained. A sender that is just ringing ends the next wait early, once. Does
    /// nothing if the inbox is not armed.
    pub fn disarm(&mut self) {
        if self.armed {
            self.armed = false;
            self.pending_rings += u64::from(self.shared.bell.disarm());
        }
        if self.pending_rings > 0 {
            self.pending_rings -= self.shared.bell.drain();
        }
    }

    /// The re-check after arming.
    fn still_empty(&self) -> bool {
        leaves_out(Step::Recheck) || self.is_empty()
    }
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        self.disarm();
        while self.take().is_some() {}
    }
}

impl<T> Sender<T> {
    /// Sends `message`, or returns it if the inbox is full. Never blocks.
    ///
    /// # Errors
    /// The message, if there is no room.
    #[inline]
    pub fn send(&self, message: T) -> Result<(), T> {
        self.0.ring.send(message)?;
        self.0.bell.message_is_in();
        Ok(())
    }
}
