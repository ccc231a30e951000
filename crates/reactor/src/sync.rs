//! All primitives that a model checker replaces: atomics, fences, cells, and waits in the kernel.
//!
//! The rings use `crate::sync` for all of them. The models in `tests/loom` compile the same files of the ring with
//! another `sync`, in which each of these names is one of `loom`'s.

use std::io;
use std::num::NonZeroU32;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::futex;
use rustix::time::Timespec;

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Arc, OnceLock};

/// A cell whose content is accessed through a closure, so that a model checker sees each access.
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Runs `access` with the pointer to the content; a caller that dereferences it must ensure exclusive access.
    #[inline]
    pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
        access(self.0.get())
    }
}

/// A step of arm, re-check, wait that a model omits to produce a lost wake-up. Never omitted here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The owner announces its wait.
    Arm,
    /// The owner checks again after the announcement.
    Recheck,
    /// The sender orders its message before its read of the owner's state.
    SenderFence,
    /// A core orders its rest before its look at the others.
    RestFence,
    /// A worker orders its request before its look at the main core.
    RequestFence,
}

/// Whether the step is omitted.
#[inline]
pub(crate) const fn leaves_out(_: Step) -> bool {
    false
}

/// A word on which its owner can wait in the kernel while it has a value.
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
        // Timed out, interrupted, or the word has changed: the caller checks its messages in any case.
        let _ = futex::wait_bitset(&self.0, futex::Flags::PRIVATE, value, limit, NonZeroU32::MAX);
    }

    /// Wakes the owner if it waits.
    pub(crate) fn wake(&self) {
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1); // fails only for an unmapped word
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
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes()); // fails only at 2^64 - 2 rings, when it is readable
    }

    /// Takes all rings and returns their number.
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
