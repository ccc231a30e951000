//! The descriptors of a reactor's I/O threads, watched together: one system call a round for all of them.
//!
//! An I/O thread has its own epoll descriptor, so that a move registers nothing. One system call for each in each round is expensive: 48
//! idle I/O threads made a round of 10 us. A descriptor of the reactor that watches theirs costs two system calls for each move: 1.6 us
//! for a descriptor that watches one other, and more with each that it watches (Linux 6.18: 9 us with 128, 64 us with 1,024).
//!
//! A reactor registers the descriptor of an I/O thread in its own epoll descriptor after some time without work, and keeps it when the I/O
//! thread moves away: the registration is removed in a later round, one per round, unless the I/O thread has returned. Events of I/O
//! threads elsewhere are ignored.
//!
//! Registrations are edge-triggered. So an I/O thread with an event is polled until a poll finds no work; later data is another event.
//!
//! # Properties
//! - Data that arrives after a poll without work is reported by the next [`Watch::look`].
//! - An I/O thread that has just arrived is polled until a poll finds no work, registered or not.
//! - If the system refuses a registration, the I/O thread is polled in each round.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{Timespec, epoll};

/// Index of an I/O thread on another reactor.
const NO_INDEX: u32 = u32::MAX;

/// Registrations that are not tried after the system has refused one.
const RETRY_AFTER: u32 = 1 << 16;

/// Events taken by one system call.
const EVENTS: usize = 128;

const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// State of an I/O thread.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Its descriptor, if it is registered.
    registered: Option<RawFd>,
    /// Its index among the I/O threads of this reactor, or [`NO_INDEX`].
    at: u32,
    /// It is in [`Watch::left`].
    has_left: bool,
}

/// The descriptors of I/O threads that are here, or have recently left.
#[derive(Default)]
pub(crate) struct Watch {
    /// Created with the first registration.
    epoll: Option<OwnedFd>,
    /// Registrations that are still skipped after a refusal.
    refused: u32,
    /// By the I/O threads' numbers.
    entries: Vec<Entry>,
    /// I/O threads that have left and may still be registered.
    left: Vec<u32>,
}

impl Watch {
    /// Adds an I/O thread at index `at`; whether it is registered.
    pub(crate) fn insert(&mut self, thread: u32, at: usize) -> bool {
        let index = thread as usize;
        if self.entries.len() <= index {
            self.entries.resize(index + 1, Entry { registered: None, at: NO_INDEX, has_left: false });
            self.left.reserve(self.entries.len() - self.left.len()); // each is in it at most once
        }
        let entry = &mut self.entries[index];
        entry.at = at as u32;
        entry.registered.is_some()
    }

    /// Removes an I/O thread.
    pub(crate) fn remove(&mut self, thread: u32) {
        let entry = &mut self.entries[thread as usize];
        entry.at = NO_INDEX;
        if entry.registered.is_some() && !std::mem::replace(&mut entry.has_left, true) {
            self.left.push(thread);
        }
    }

    /// Registers the descriptor of an I/O thread; whether it is registered now. What it has ready already is
    /// an event.
    pub(crate) fn register(&mut self, thread: u32, fd: BorrowedFd<'_>) -> bool {
        if self.refused > 0 {
            self.refused -= 1;
            return false;
        }
        let number = fd.as_raw_fd();
        // An I/O thread that ended elsewhere has closed its descriptor, which ended its registration; the number is used again.
        for entry in self.entries.iter_mut().filter(|entry| entry.registered == Some(number)) {
            entry.registered = None;
        }
        let registered = self.add(thread, fd).is_ok();
        if registered {
            self.entries[thread as usize].registered = Some(number);
        } else {
            self.refused = RETRY_AFTER;
        }
        registered
    }

    fn add(&mut self, thread: u32, fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let own = match &self.epoll {
            Some(own) => own,
            None => self.epoll.insert(epoll::create(epoll::CreateFlags::CLOEXEC)?),
        };
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(own, fd, epoll::EventData::new_u64(u64::from(thread)), edge)
    }

    /// Removes the registration of an I/O thread that has left, if there is one.
    pub(crate) fn forget_one(&mut self) {
        let Some(thread) = self.left.pop() else { return };
        let entry = &mut self.entries[thread as usize];
        entry.has_left = false;
        if entry.at != NO_INDEX {
            return; // it has come back
        }
        if let (Some(own), Some(number)) = (&self.epoll, entry.registered.take()) {
            remove(own, number);
        }
    }

    /// Whether no registration is left to be removed.
    pub(crate) fn is_settled(&self) -> bool {
        self.left.is_empty()
    }

    /// Calls `readable` with the index of each I/O thread here that has become readable since the last look.
    pub(crate) fn poll_readable(&mut self, mut readable: impl FnMut(usize)) {
        let Some(own) = &self.epoll else { return };
        // enough calls for every descriptor once; later events are in the next call
        for _ in 0..=self.entries.len() / EVENTS {
            let mut room = [const { MaybeUninit::uninit() }; EVENTS];
            // after a signal the next call has the events
            let Ok((events, _)) = epoll::wait(own, &mut room, Some(&NO_WAIT)) else { return };
            for event in events.iter() {
                let at = self.entries[event.data.u64() as usize].at;
                if at != NO_INDEX {
                    readable(at as usize);
                }
            }
            if events.len() < EVENTS {
                break;
            }
        }
    }
}

/// Removes a descriptor that may have been closed since it was added: then nothing is left to remove.
fn remove(epoll: &OwnedFd, fd: RawFd) {
    // SAFETY: the kernel looks both descriptors up by number and reads no memory.
    unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_temporary_io_thread_is_removed_once() {
        let fd = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor");
        let mut watch = Watch::default();
        watch.insert(0, 0);
        assert!(watch.register(0, fd.as_fd()));
        for _ in 0..100 {
            watch.remove(0);
            assert!(watch.insert(0, 0), "it is registered still");
        }
        watch.remove(0);
        watch.forget_one();
        assert!(watch.is_settled());
        assert!(!watch.insert(0, 0));
    }
}
