//! The software wake-up: how the owner of an inbox says that it is about to wait, and a sender that it need not.
//!
//! *Problem.* A sender must pay for a system call only if the owner sleeps, and once for each sleep; yet no owner may
//! fall asleep beside a message.
//!
//! *Words.* The owner *arms* the bell, with the way it will wait: in a futex, or in `poll(2)` for an eventfd. It
//! *re-checks* whether there is a message, *waits*, and *disarms*. A sender *rings*.
//!
//! *Algorithm.* Each side writes its own word, passes a full fence and looks at the other's:
//!
//! ```text
//! owner:   armed = how;   fence;  is there a message? if not: wait while armed == how;   armed = awake
//! sender:  fill the slot; fence;  is it armed? if so: armed = awake, and whoever changed it wakes the owner
//! ```
//!
//! *Properties.*
//! - Of two fences one is first. If the owner's, the sender sees the bell armed and rings; if the sender's, the owner's
//!   second look finds the message. So no wake-up is lost.
//! - Of all senders that see the bell armed one rings: that whose swap took the arming away.
//! - A sender to an owner that is awake, or that watches the ring itself, makes no system call.
//! - A ring of the eventfd can come after the owner has disarmed (the sender was between swap and write). The owner
//!   counts the rings it is owed and takes them back as they come, so that none keeps ending its waits.

use std::io;

use crate::ring::Apart;
use crate::sync::{EventFd, Futex, OnceLock, Ordering, Step, fence, leaves_out};

/// Nobody has to ring: the owner is awake, or watches the ring itself.
const AWAKE: u32 = 0;

/// How an owner is about to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum How {
    /// In [`Bell::wait`].
    Futex = 1,
    /// In `poll(2)` for [`Bell::event`].
    Event = 2,
}

/// What senders look at after each message.
#[derive(Debug)]
pub(crate) struct Bell {
    armed: Apart<Futex>,
    event: OnceLock<EventFd>,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self { armed: Apart(Futex::default()), event: OnceLock::new() }
    }

    /// Sender: the message is in. Rings if the owner is armed.
    #[inline]
    pub(crate) fn message_is_in(&self) {
        if !leaves_out(Step::SenderFence) {
            fence(Ordering::SeqCst);
        }
        if self.armed.0.load(Ordering::Relaxed) != AWAKE {
            self.ring();
        }
    }

    #[cold]
    fn ring(&self) {
        let how = self.armed.0.swap(AWAKE, Ordering::AcqRel);
        if how == How::Futex as u32 {
            self.armed.0.wake();
        } else if how == How::Event as u32
            && let Some(event) = self.event.get()
        {
            event.ring();
        }
    }

    /// Owner: about to wait as `how` says. Returns what the word is while nobody has rung.
    pub(crate) fn arm(&self, how: How) -> u32 {
        if leaves_out(Step::Arm) {
            return self.armed.0.load(Ordering::Relaxed);
        }
        self.armed.0.swap(how as u32, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        how as u32
    }

    /// Owner: sleeps while the word is `armed`, at most until `until_ns`.
    pub(crate) fn wait(&self, armed: u32, until_ns: u64) {
        self.armed.0.wait(armed, until_ns);
    }

    /// Owner: awake. Says whether a sender has rung, or is about to.
    pub(crate) fn disarm(&self) -> bool {
        self.armed.0.swap(AWAKE, Ordering::AcqRel) == AWAKE
    }

    /// The eventfd, made now if there is none yet.
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

    /// Takes back the rings of the eventfd that have come.
    pub(crate) fn drain(&self) -> u64 {
        self.event.get().map_or(0, EventFd::drain)
    }
}
