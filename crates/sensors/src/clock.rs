//! The monotonic clock, and its comparison with the wall clock and the boot-time clock to detect clock steps and suspend.

use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::{Deserialize, Serialize};

/// The clocks at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// Monotonic clock, in nanoseconds.
    pub at_ns: u64,
    /// Wall clock minus monotonic clock, in nanoseconds: add it to `at_ns` for nanoseconds since 1970.
    pub wall_offset_ns: i64,
    /// Time for which the machine has been suspended since boot, in nanoseconds.
    pub asleep_ns: u64,
}

/// A step of the wall clock, or a suspend, between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jump {
    /// Not before this, on the monotonic clock, in nanoseconds.
    pub from_ns: u64,
    /// Not after this, on the monotonic clock, in nanoseconds.
    pub to_ns: u64,
    /// Step of the wall clock relative to the boot-time clock, in nanoseconds.
    pub wall_ns: i64,
    /// Duration of the suspend, in nanoseconds.
    pub asleep_ns: u64,
}

/// The monotonic clock, in nanoseconds.
pub fn now_ns() -> u64 {
    ns(clock_gettime(ClockId::Monotonic)) as u64
}

/// CPU time of this thread, in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    ns(clock_gettime(ClockId::ThreadCPUTime)) as u64
}

/// Reads all three clocks; the closest of several attempts.
pub fn read() -> ClockReading {
    let once = || {
        let before = ns(clock_gettime(ClockId::Monotonic));
        let (wall, boot) = (ns(clock_gettime(ClockId::Realtime)), ns(clock_gettime(ClockId::Boottime)));
        let after = ns(clock_gettime(ClockId::Monotonic));
        let middle = before + (after - before) / 2;
        let reading = ClockReading {
            at_ns: middle as u64,
            wall_offset_ns: wall - middle,
            asleep_ns: u64::try_from(boot - middle).unwrap_or(0),
        };
        (after - before, reading)
    };
    let tries = [once(), once(), once()];
    tries.into_iter().min_by_key(|(apart, _)| *apart).map_or_else(|| once().1, |(_, reading)| reading)
}

fn ns(time: Timespec) -> i64 {
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// The moments at which the wall clock moved by more than `tolerance_ns` against the monotonic one, or the machine slept for
/// longer than that. A clock that is slewed (by NTP, at most 0.05 %) does not jump.
pub fn jumps(readings: &[ClockReading], tolerance_ns: u64) -> Vec<Jump> {
    let jump = |pair: &[ClockReading]| {
        let (before, after) = (pair[0], pair[1]);
        let slewed = after.at_ns.saturating_sub(before.at_ns) / 1_000;
        let asleep_ns = after.asleep_ns.saturating_sub(before.asleep_ns);
        let wall_ns = after.wall_offset_ns - before.wall_offset_ns - asleep_ns as i64;
        let moved = wall_ns.unsigned_abs() > tolerance_ns + slewed || asleep_ns > tolerance_ns;
        moved.then_some(Jump { from_ns: before.at_ns, to_ns: after.at_ns, wall_ns, asleep_ns })
    };
    readings.windows(2).filter_map(jump).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const MS: i64 = 1_000_000;

    fn reading(at_s: u64, wall_offset_ns: i64, asleep_ns: u64) -> ClockReading {
        ClockReading { at_ns: at_s * S, wall_offset_ns, asleep_ns }
    }

    #[test]
    fn steps_and_sleep_are_jumps_and_slewing_is_not() {
        let calm = [reading(0, 0, 0), reading(1, MS / 2, 0), reading(2, MS, 0)];
        assert_eq!(jumps(&calm, 10 * MS as u64), []);
        let stepped = [reading(0, 0, 0), reading(1, -3_600_000 * MS, 0), reading(2, -3_600_000 * MS, 0)];
        let expected = Jump { from_ns: 0, to_ns: S, wall_ns: -3_600_000 * MS, asleep_ns: 0 };
        assert_eq!(jumps(&stepped, 10 * MS as u64), [expected]);
        // 20 ms per second are twenty times the maximum slew.
        assert_eq!(jumps(&[reading(0, 0, 0), reading(1, 20 * MS, 0)], 10 * MS as u64).len(), 1);
        // Ten minutes of suspend advance the wall clock, which is not a step.
        let slept = [reading(0, 0, 0), reading(1, 600 * S as i64, 600 * S)];
        let expected = Jump { from_ns: 0, to_ns: S, wall_ns: 0, asleep_ns: 600 * S };
        assert_eq!(jumps(&slept, 10 * MS as u64), [expected]);
    }

    #[test]
    fn the_clocks_of_this_machine_agree() {
        let (first, second) = (read(), read());
        assert!(second.at_ns >= first.at_ns);
        assert!((second.wall_offset_ns - first.wall_offset_ns).abs() < 1_000 * MS);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i64;
        let computed = second.at_ns as i64 + second.wall_offset_ns;
        assert!((now - computed).abs() < 60_000 * MS, "{now}, {computed}");
    }
}
