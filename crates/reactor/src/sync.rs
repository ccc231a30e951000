//! Everything a model checker has to replace, in one place: atomics, fences, cells, and what waits in the kernel.
//!
//! The rings say `crate::sync` for all of it. The models in `tests/loom` compile the very same files of the ring with
//! another `sync` beside them, in which each of these names is one of `loom`'s.

use std::io;
use std::num::NonZeroU32;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::futex;
use rustix::time::Timespec;

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Arc, OnceLock};

/// A cell whose content is reached through a closure, so that a model checker sees when.
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Runs `access` with the pointer to the content; who dereferences it answers for it being the only one.
    #[inline]
    pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
        access(self.0.get())
    }
}

/// A step of arm, re-check, wait that a model leaves out to see the wake-up get lost. Never left out here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The owner says that it is about to wait.
    Arm,
    /// The owner looks once more, after it has said so.
    Recheck,
    /// The sender orders its message before its look at the owner's state.
    SenderFence,
}

/// Whether the step is left out.
#[inline]
pub(crate) const fn leaves_out(_: Step) -> bool {
    false
}

/// A word that its owner can wait on in the kernel while it keeps a value.
#[derive(Debug, Default)]
pub(crate) struct Futex(AtomicU32);

impl Deref for Futex {
    type Target = AtomicU32;
    fn deref(&self) -> &AtomicU32 {
        &self.0
    }
}

impl Futex {
    /// Waits while the word is `value`, at most until `until_ns` (`CLOCK_MONOTONIC`; `u64::MAX`: no limit). May return
    /// early.
    pub(crate) fn wait(&self, value: u32, until_ns: u64) {
        let until = Timespec { tv_sec: (until_ns / 1_000_000_000) as i64, tv_nsec: (until_ns % 1_000_000_000) as i64 };
        let limit = (until_ns != u64::MAX).then_some(&until);
        // Timed out, interrupted, or the word has changed: the caller looks at its messages in any case.
        let _ = futex::wait_bitset(&self.0, futex::Flags::PRIVATE, value, limit, NonZeroU32::MAX);
    }

    /// Wakes the owner if it waits.
    pub(crate) fn wake(&self) {
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1); // refused only for a word that is not mapped
    }
}

/// An eventfd: readable (`poll(2)`, `POLLIN`) from a ring until it is drained.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes it readable.
    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes()); // refused only at 2^64 - 2 rings, when it is readable
    }

    /// Takes all rings back and says how many there were.
    pub(crate) fn drain(&self) -> u64 {
        let mut rings = [0; 8];
        rustix::io::read(&self.0, &mut rings).map_or(0, |_| u64::from_ne_bytes(rings))
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
