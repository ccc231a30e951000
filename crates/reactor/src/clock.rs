//! Monotonic time in nanoseconds, read once per poll step and handed down as `now_ns`.

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
