//! Resource usage of the calling thread.

use std::ops::{Add, Sub};

/// Usage since the thread's start, or of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Voluntary context switches.
    pub(crate) voluntary: u64,
    /// Involuntary context switches.
    pub(crate) involuntary: u64,
    /// User CPU time, in nanoseconds.
    pub(crate) user_ns: u64,
    /// System CPU time, in nanoseconds.
    pub(crate) system_ns: u64,
}

impl Usage {
    /// Usage of the calling thread by `getrusage`.
    pub(crate) fn of_this_thread() -> Self {
        // SAFETY: `rusage` is plain data, and all zeroes are valid.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one `rusage` there. It cannot fail: the address is valid and RUSAGE_THREAD is as old as Linux 2.6.26.
        unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
        let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
        Self {
            voluntary: usage.ru_nvcsw as u64,
            involuntary: usage.ru_nivcsw as u64,
            user_ns: ns(usage.ru_utime),
            system_ns: ns(usage.ru_stime),
        }
    }

    fn with(self, other: Self, of: fn(u64, u64) -> u64) -> Self {
        Self {
            voluntary: of(self.voluntary, other.voluntary),
            involuntary: of(self.involuntary, other.involuntary),
            user_ns: of(self.user_ns, other.user_ns),
            system_ns: of(self.system_ns, other.system_ns),
        }
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }
}

impl Sub for Usage {
    type Output = Self;

    /// The kernel splits CPU time by ticks and corrects it later, so a part may decrease; the difference is then 0.
    fn sub(self, other: Self) -> Self {
        self.with(other, u64::saturating_sub)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn sleeping_causes_switches_and_computing_uses_cpu_time() {
        let before = Usage::of_this_thread();
        (0..5).for_each(|_| std::thread::sleep(Duration::from_millis(1)));
        let slept = Usage::of_this_thread() - before;
        assert!(slept.voluntary >= 5, "{slept:?}");
        let before = Usage::of_this_thread();
        while (Usage::of_this_thread() - before).user_ns + (Usage::of_this_thread() - before).system_ns < 2_000_000 {}
        let other = std::thread::spawn(Usage::of_this_thread).join().unwrap();
        assert!(other.user_ns + other.system_ns < before.user_ns + before.system_ns + 2_000_000, "not this thread's");
        assert_eq!(slept + Usage::default(), slept);
    }
}
