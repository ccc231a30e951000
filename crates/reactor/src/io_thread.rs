//! What a reactor polls: an I/O thread, a box that holds all it needs and can move between two polls.

use std::os::fd::BorrowedFd;

pub use pilotlight_plant::CompletionMode;

/// What one poll step of an I/O thread came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// I/O commands that arrived in this step. What keeps connections alive is no load and does not count.
    pub requests: u32,
    /// I/O commands that have arrived and are not answered, after this step.
    pub in_progress: u32,
    /// Whether any work was done.
    pub busy: bool,
    /// The I/O thread has nothing left to do and is to be dropped.
    pub finished: bool,
}

/// A lightweight thread that a reactor polls. It never blocks.
///
/// With [`IoThread::prepare_wait`] it lets its reactor wait in the kernel; by default it is polled.
pub trait IoThread: Send {
    /// Its number; a runtime numbers its I/O threads from 0 without gaps.
    fn id(&self) -> u32;

    /// One step: processes what has arrived, without blocking. `now_ns` is monotonic time.
    fn poll(&mut self, now_ns: u64) -> Polled;

    /// Whether there may be work although [`IoThread::wait_fd`] has not become readable since the last [`IoThread::poll`] without
    /// work: a message, a request in a backend, a waiting command, a due timer. Called in each round of a reactor with many I/O
    /// threads; `false` skips the poll. By default it is `true`, and the I/O thread is polled in each round.
    ///
    /// If it can be `false`, the descriptor must not be readable after a poll without work.
    fn needs_poll(&mut self, now_ns: u64) -> bool {
        let _ = now_ns;
        true
    }

    /// As [`IoThread::poll`], if [`IoThread::wait_fd`] has not become readable since the last poll without work.
    fn poll_unreadable(&mut self, now_ns: u64) -> Polled {
        self.poll(now_ns)
    }

    /// The descriptor [`IoThread::wait_fd`], if its reactor may watch it together with others: adding it to the reactor's epoll
    /// descriptor costs time for each descriptor that it watches itself.
    fn watch_fd(&self) -> Option<BorrowedFd<'_>> {
        self.wait_fd()
    }

    /// Sets how completions are found: by polling, or so that the I/O thread can wait for them in the kernel.
    fn set_completions(&mut self, mode: CompletionMode) {
        let _ = mode;
    }

    /// Arms every wake-up (inbox, sockets, completions) and then checks again for work. `None`: it must be polled, and nothing is
    /// armed. Otherwise the time until which there is no work unless [`IoThread::wait_fd`] becomes readable; `u64::MAX` without a
    /// timer.
    fn prepare_wait(&mut self, now_ns: u64) -> Option<u64> {
        let _ = now_ns;
        None
    }

    /// A descriptor that becomes readable when there is work: between [`IoThread::prepare_wait`] and [`IoThread::end_wait`] for
    /// any work, otherwise for work that [`IoThread::needs_poll`] does not report. It never changes.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Called after the wait, for every `prepare_wait` that did not return `None`.
    fn end_wait(&mut self) {}
}
