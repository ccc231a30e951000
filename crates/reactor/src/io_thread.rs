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
/// One that says in [`IoThread::prepare_wait`] that it can wait lets its reactor wait in the kernel; the default never
/// can, and is polled.
pub trait IoThread: Send {
    /// Its number; a runtime numbers its I/O threads from 0 without gaps.
    fn id(&self) -> u32;

    /// One step: take what has arrived, do what can be done now, return. `now_ns` is monotonic time.
    fn poll(&mut self, now_ns: u64) -> Polled;

    /// Whether there may be something to do although [`IoThread::wait_fd`] has not become readable since the last
    /// [`IoThread::poll`] that found no work: a message, a request in a backend, a command that waits, a timer that is due. Asked
    /// in each round of a reactor on which many live, where `false` leaves the poll out. An I/O thread that never says `false`,
    /// the default, is polled in each round.
    ///
    /// For an I/O thread that does, a poll that is not busy means that its descriptor is not readable.
    fn needs_poll(&mut self, now_ns: u64) -> bool {
        let _ = now_ns;
        true
    }

    /// As [`IoThread::poll`], where [`IoThread::wait_fd`] is known not to have become readable since the last poll that found no
    /// work: it need not look there.
    fn poll_unreadable(&mut self, now_ns: u64) -> Polled {
        self.poll(now_ns)
    }

    /// The descriptor [`IoThread::wait_fd`], if its reactor may watch it together with others: adding it to the reactor's epoll
    /// descriptor costs time for each descriptor that it watches itself.
    fn watch_fd(&self) -> Option<BorrowedFd<'_>> {
        self.wait_fd()
    }

    /// How it learns of completions from now on: by being polled, or so that it can wait in the kernel for them.
    fn set_completions(&mut self, mode: CompletionMode) {
        let _ = mode;
    }

    /// Arms every wake-up (its inbox, its sockets, its completions) and then looks once more whether there is something to
    /// do. `None`: it has to be polled on, and nothing is armed. Else the time in nanoseconds until which nothing happens
    /// unless [`IoThread::wait_fd`] becomes readable; `u64::MAX` where no timer runs.
    fn prepare_wait(&mut self, now_ns: u64) -> Option<u64> {
        let _ = now_ns;
        None
    }

    /// Becomes readable when there is something to do, between [`IoThread::prepare_wait`] and [`IoThread::end_wait`]; at any
    /// time, when there is something to do that [`IoThread::needs_poll`] does not know of. The same for its whole life.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The wait is over; follows every `prepare_wait` that did not say `None`.
    fn end_wait(&mut self) {}
}
