//! Monotonic time in nanoseconds, read once per poll step and passed on as `now_ns`; CPU time as accounted by the kernel.

// The C library's clock, not rustix's: as fast, and valgrind supports it.

/// Nanoseconds since an arbitrary fixed point (`CLOCK_MONOTONIC`).
#[inline]
#[must_use]
pub fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC).unwrap_or_else(|| unreachable!("every system has this clock"))
}

/// Nanoseconds since 1970 (`CLOCK_REALTIME`), the clock of packets' times; it can be set.
#[inline]
#[must_use]
pub fn real_ns() -> u64 {
    read(libc::CLOCK_REALTIME).unwrap_or_else(|| unreachable!("every system has this clock"))
}

/// CPU time that the calling OS thread has used, in nanoseconds (`CLOCK_THREAD_CPUTIME_ID`).
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or_else(|| unreachable!("every system has this clock"))
}

/// CPU time in nanoseconds that the OS thread `tid` of this process has used; 0 if there is none.
#[must_use]
pub fn cpu_ns_of(tid: u32) -> u64 {
    // The clock of a thread's scheduled time: the number inverted, and 6 for "thread" and "scheduler"
    // (clock_getcpuclockid(3); the same encoding that the C library uses).
    let clock = (!(tid.cast_signed()) << 3) | 6;
    if tid == 0 { 0 } else { read(clock).unwrap_or(0) }
}

fn read(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec; a clock that does not exist is an error.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (result == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_time_of_another_thread_is_read() {
        let own = rustix::thread::gettid().as_raw_pid() as u32;
        let (before, direct) = (cpu_ns_of(own), thread_cpu_ns());
        assert!(before > 0 && before <= direct);
        assert!(std::thread::spawn(move || cpu_ns_of(own)).join().unwrap() >= before);
        assert_eq!(cpu_ns_of(0), 0);
        assert_eq!(cpu_ns_of(u32::MAX >> 4), 0, "no such thread");
    }
}
