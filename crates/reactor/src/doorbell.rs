//! The software wake-up of the owner of an inbox.
//!
//! *Problem.* A sender must make a system call only if the owner sleeps, and once for each sleep; but an owner must not fall asleep
//! with a message in its inbox.
//!
//! *Terms.* The owner *arms* the bell with the kind of its wait: a futex, or `poll(2)` for an eventfd. It *re-checks* for a message,
//! *waits*, and *disarms*. A sender *rings*.
//!
//! *Algorithm.* Each side writes its own word, passes a full fence and reads the other's:
//!
//! ```text
//! owner:   armed = kind;  fence;  is there a message? if not: wait while armed == kind;  armed = awake
//! sender:  fill the slot; fence;  is it armed? if so: swap armed to awake, and wake the owner if this swap changed it
//! ```
//!
//! *Properties.*
//! - One of the two fences is first. If the owner's, the sender reads the armed bell and rings; if the sender's, the owner's
//!   re-check finds the message. So no wake-up is lost.
//! - Of all senders that read the armed bell, one rings: the one whose swap disarmed it.
//! - A sender makes no system call if the owner is awake or watches the ring itself.
//! - The eventfd can be rung after the owner has disarmed (the sender was between swap and write). The owner counts these pending
//!   rings and drains them later, so that each ends at most one wait.

use std::io;

use crossbeam_utils::CachePadded;

use crate::sync::{EventFd, Futex, OnceLock, Ordering, Step, fence, leaves_out};

/// Not armed: the owner is awake, or watches the ring itself.
const AWAKE: u32 = 0;

/// Kind of an owner's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum WaitKind {
    /// In [`Bell::wait`].
    Futex = 1,
    /// In `poll(2)` for [`Bell::event`].
    Event = 2,
}

/// Read by senders after each message.
#[derive(Debug)]
pub(crate) struct Bell {
    armed: CachePadded<Futex>,
    event: OnceLock<EventFd>,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self { armed: CachePadded::new(Futex::default()), event: OnceLock::new() }
    }

    /// Sender: the message is in. Rings if the owner is armed.
    #[inline]
    pub(crate) fn message_is_in(&self) {
        if !leaves_out(Step::SenderFence) {
            fence(Ordering::SeqCst);
        }
        if self.armed.load(Ordering::Relaxed) != AWAKE {
            self.ring();
        }
    }

    #[cold]
    fn ring(&self) {
        let how = self.armed.swap(AWAKE, Ordering::AcqRel);
        if how == WaitKind::Futex as u32 {
            self.armed.wake();
        } else if how == WaitKind::Event as u32
            && let Some(event) = self.event.get()
        {
            event.ring();
        }
    }

    /// Owner: arms the bell. Returns the word's value until a ring.
    pub(crate) fn arm(&self, how: WaitKind) -> u32 {
        if leaves_out(Step::Arm) {
            return self.armed.load(Ordering::Relaxed);
        }
        self.armed.swap(how as u32, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        how as u32
    }

    /// Owner: sleeps while the word is `armed`, at most until `until_ns`.
    pub(crate) fn wait(&self, armed: u32, until_ns: u64) {
        self.armed.wait(armed, until_ns);
    }

    /// Owner: disarms. Returns whether a sender has rung, or will.
    pub(crate) fn disarm(&self) -> bool {
        self.armed.swap(AWAKE, Ordering::AcqRel) == AWAKE
    }

    /// The eventfd, created on first use.
    pub(crate) fn event(&self) -> io::Result<&EventFd> {
        if let Some(event) = self.event.get() {
            return Ok(event);
        }
        let event = EventFd::new()?;
        Ok(self.event.get_or_init(|| event))
    }

    /// Whether there is an eventfd to ring.
    pub(crate) fn has_event(&self) -> bool {
        self.event.get().is_some()
    }

    /// Drains the eventfd; returns the number of rings.
    pub(crate) fn drain(&self) -> u64 {
        self.event.get().map_or(0, EventFd::drain)
    }
}
