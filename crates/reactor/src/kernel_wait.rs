//! Waiting in the kernel for several descriptors at once, to the nanosecond, without allocating.
//!
//! **Short limits.** A time-out that is the next timer of a CPU has its timer hardware set at each wait: with 150 us a wait took 2.2 to 3.8 us of CPU time
//! more than without one on a virtual machine (`crates/lab/examples/wait_costs.rs`), with 10 ms 0 to 1. So a short limit is a timer that goes on over
//! several waits: it is set anew only once it has passed, and ends each wait in between a little earlier.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// Descriptors to wait for; the room is kept from wait to wait.
pub(crate) struct KernelWait {
    fds: Vec<libc::pollfd>,
    /// The timer of short limits, and when it ends; `None` if descriptors have run out.
    timer: Option<OwnedFd>,
    ends_ns: u64,
}

impl KernelWait {
    /// Without descriptors. Makes the timer, for which the kernel allocates: before the reactor runs.
    pub(crate) fn new() -> Self {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC).ok();
        Self { fds: Vec::new(), timer, ends_ns: 0 }
    }

    /// Forgets the descriptors of the last wait.
    pub(crate) fn clear(&mut self) {
        self.fds.clear();
    }

    /// Waits for `fd` too.
    pub(crate) fn add(&mut self, fd: BorrowedFd<'_>) {
        self.fds.push(readable(fd.as_raw_fd()));
    }

    /// Waits for at most `longest_ns` from `now_ns` on, and perhaps less. Without a timer it returns the end, for the caller.
    pub(crate) fn limit(&mut self, now_ns: u64, longest_ns: u64) -> Option<u64> {
        let ends_ns = now_ns.saturating_add(longest_ns);
        let Some(timer) = &self.timer else { return Some(ends_ns) };
        if now_ns >= self.ends_ns || self.ends_ns > ends_ns {
            // Relative, and what has passed is no longer readable. It takes spin locks of this timer and CPU alone, and allocates nothing.
            if timerfd_settime(timer, TimerfdTimerFlags::empty(), &once(longest_ns)).is_err() {
                return Some(ends_ns);
            }
            self.ends_ns = ends_ns;
        }
        let fd = timer.as_raw_fd();
        self.fds.push(readable(fd));
        None
    }

    /// Waits until a descriptor is readable or `left_ns` nanoseconds have passed (`u64::MAX`: for ever). May return early.
    /// A descriptor that has been closed since it was added ends the wait.
    pub(crate) fn wait(&mut self, left_ns: u64) {
        let limit = libc::timespec {
            tv_sec: (left_ns / 1_000_000_000).cast_signed(),
            tv_nsec: (left_ns % 1_000_000_000).cast_signed(),
        };
        let limit = if left_ns == u64::MAX { std::ptr::null() } else { &raw const limit };
        // SAFETY: the kernel writes `revents` of this number of entries; the limit lives until the call returns, and no signal
        // mask is given.
        unsafe { libc::ppoll(self.fds.as_mut_ptr(), self.fds.len() as libc::nfds_t, limit, std::ptr::null()) };
    }
}

fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// A timer that ends once, after at least a nanosecond.
fn once(after_ns: u64) -> Itimerspec {
    let after_ns = after_ns.max(1).cast_signed();
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    Itimerspec {
        it_interval: zero,
        it_value: Timespec { tv_sec: after_ns / 1_000_000_000, tv_nsec: after_ns % 1_000_000_000 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    /// Each wait ends at the limit of the first at the latest, and the next sets it anew.
    #[test]
    fn a_limit_goes_on_over_several_waits() {
        let mut wait = KernelWait::new();
        let mut ends = Vec::new();
        for _ in 0..3 {
            let now_ns = clock::now_ns();
            wait.clear();
            assert_eq!(wait.limit(now_ns, 3_000_000), None);
            assert_eq!(wait.limit(now_ns + 1_000_000, 3_000_000), None, "it goes on");
            ends.push(wait.ends_ns);
            assert_eq!(wait.ends_ns, now_ns + 3_000_000);
            wait.wait(u64::MAX);
            assert!(clock::now_ns() >= wait.ends_ns - 1_000_000, "waited");
            while clock::now_ns() < wait.ends_ns {}
        }
        assert!(ends[0] < ends[1] && ends[1] < ends[2]);
    }

    #[test]
    fn without_a_timer_the_caller_limits_the_wait() {
        let mut wait = KernelWait { timer: None, ..KernelWait::new() };
        assert_eq!((wait.limit(5, 100), wait.fds.len()), (Some(105), 0));
    }

    #[test]
    fn a_shorter_limit_ends_a_longer_one() {
        let mut wait = KernelWait::new();
        let now_ns = clock::now_ns();
        wait.limit(now_ns, 3_600_000_000_000);
        wait.clear();
        wait.limit(now_ns, 1_000_000);
        wait.wait(u64::MAX);
        assert_eq!(wait.ends_ns, now_ns + 1_000_000);
    }
}
