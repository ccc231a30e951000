//! Time, CPU time and core pinning.
//!
//! A call of [`now_ns`] costs a vDSO read (tens of nanoseconds), so the hot loop calls it once a batch and passes the time on.

use std::io;

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Monotonic time in nanoseconds.
#[must_use]
pub fn now_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// CPU time that the calling thread has used, user and kernel together, in nanoseconds.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::ThreadCPUTime)
}

/// Pins the calling thread to logical CPU `cpu`.
///
/// # Errors
/// The system's error if the CPU does not exist or is not allowed to this process.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("CPU {cpu} does not exist")));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

fn read(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_cpu_time_advance() {
        let (wall, cpu) = (now_ns(), thread_cpu_ns());
        let mut x = 1u64;
        while thread_cpu_ns() == cpu {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(now_ns() > wall);
    }

    #[test]
    fn an_impossible_cpu_is_rejected() {
        assert!(pin_to_cpu(1 << 20).is_err());
    }
}
