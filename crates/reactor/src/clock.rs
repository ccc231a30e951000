//! Monotonic time in nanoseconds, read once per poll step and handed down as `now_ns`; and CPU time from the kernel's books.

/// Nanoseconds since an arbitrary fixed point (`CLOCK_MONOTONIC`).
#[must_use]
pub fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// CPU time that the calling OS thread has used, in nanoseconds (`CLOCK_THREAD_CPUTIME_ID`).
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// CPU time in nanoseconds that the OS thread `tid` of this process has used; 0 if there is none.
#[must_use]
pub fn cpu_ns_of(tid: u32) -> u64 {
    // The clock of a thread's scheduled time: the number inverted, and 6 for "one thread" and "scheduler's books"
    // (clock_getcpuclockid(3); the same encoding that the C library uses).
    let clock = (!(tid.cast_signed()) << 3) | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec; a clock that does not exist is an error.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    if result == 0 && tid != 0 { time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_thread_s_books_are_read() {
        let own = rustix::thread::gettid().as_raw_pid() as u32;
        let (before, direct) = (cpu_ns_of(own), thread_cpu_ns());
        assert!(before > 0 && before <= direct);
        assert!(std::thread::spawn(move || cpu_ns_of(own)).join().unwrap() >= before);
        assert_eq!(cpu_ns_of(0), 0);
        assert_eq!(cpu_ns_of(u32::MAX >> 4), 0, "no such thread");
    }
}
