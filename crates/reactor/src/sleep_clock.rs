//! Time asleep by depth, with the current sleep: written by one thread, read by any.
//!
//! A sleep that is added when it ends would appear in one window, however short. So the reader adds the time of the current sleep.
//! Property: between two readings no more time asleep is added than has passed, up to the delay between the writer's clock read and
//! its store.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

use Ordering::{Acquire, Relaxed, Release};
use pilotlight_plant::{CoreState, Depth};

use crate::counter::add;

/// Sleep depths of a reactor.
pub const SLEEPS: [Depth; 3] = [Depth::MonitorWait, Depth::SoftwareWait, Depth::ServerSleep];

/// The index of a depth in [`SLEEPS`].
pub(crate) fn depth_index(depth: Depth) -> Option<usize> {
    SLEEPS.iter().position(|&sleep| sleep == depth)
}

/// Time asleep at each depth of [`SLEEPS`].
#[derive(Debug, Default)]
pub(crate) struct SleepClock {
    asleep_ns: [AtomicU64; 3],
    /// 1 + index of the depth in [`SLEEPS`]; 0 while awake.
    state: AtomicU8,
    /// Start of the current sleep.
    since_ns: AtomicU64,
    /// Incremented before and after a change of the others: a reading is consistent between two equal even values.
    version: AtomicU64,
}

impl SleepClock {
    /// A sleep begins.
    pub(crate) fn fall_asleep(&self, depth: Depth, now_ns: u64) {
        let Some(index) = depth_index(depth) else { return };
        self.change(|| {
            self.since_ns.store(now_ns, Relaxed);
            self.state.store(index as u8 + 1, Release);
        });
    }

    /// Ends the sleep; returns the index of its depth.
    pub(crate) fn wake(&self, now_ns: u64) -> Option<usize> {
        let index = usize::from(self.state.load(Relaxed)).checked_sub(1)?;
        self.change(|| {
            add(&self.asleep_ns[index], now_ns.saturating_sub(self.since_ns.load(Relaxed)));
            self.state.store(0, Release);
        });
        Some(index)
    }

    fn change(&self, change: impl FnOnce()) {
        let version = self.version.load(Relaxed);
        self.version.store(version + 1, Relaxed);
        fence(Release);
        change();
        self.version.store(version + 2, Release);
    }

    /// Awake, or asleep and how deep.
    pub(crate) fn state(&self) -> CoreState {
        match usize::from(self.state.load(Acquire)).checked_sub(1) {
            None => CoreState::Awake,
            Some(index) => CoreState::Asleep(SLEEPS[index]),
        }
    }

    /// The state, and the time asleep at each depth in nanoseconds until `now_ns`: of one moment, so that no sleep counts
    /// twice.
    pub(crate) fn slept(&self, now_ns: impl Fn() -> u64) -> (CoreState, [u64; 3]) {
        loop {
            let version = self.version.load(Acquire);
            let state = self.state();
            let mut slept = [0, 1, 2].map(|index| self.asleep_ns[index].load(Relaxed));
            let since_ns = self.since_ns.load(Relaxed);
            fence(Acquire);
            if version % 2 == 1 || self.version.load(Relaxed) != version {
                std::hint::spin_loop();
                continue;
            }
            if let CoreState::Asleep(depth) = state
                && let Some(index) = depth_index(depth)
            {
                slept[index] += now_ns().saturating_sub(since_ns);
            }
            return (state, slept);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::clock;

    #[test]
    fn time_asleep_is_monotonic() {
        const COUNT: u64 = 2_000_000;
        const LONG_NS: u64 = 10_000_000_000; // long, so that an extra sleep is detected
        let sleeper = SleepClock::default();
        std::thread::scope(|scope| {
            let sleeps = scope.spawn(|| {
                for _ in 0..COUNT {
                    let now_ns = clock::now_ns();
                    sleeper.fall_asleep(Depth::ServerSleep, now_ns - LONG_NS);
                    sleeper.wake(now_ns);
                }
            });
            let mut before_ns = 0;
            while !sleeps.is_finished() {
                let slept_ns = sleeper.slept(clock::now_ns).1[2];
                assert!(slept_ns + LONG_NS / 2 > before_ns, "{before_ns} ns, then {slept_ns} ns");
                before_ns = slept_ns;
            }
        });
        assert_eq!(sleeper.slept(clock::now_ns).1[2], COUNT * LONG_NS);
    }

    proptest! {
        /// Sleeps and windows of any length: each window gets the time asleep that lies in it.
        #[test]
        fn a_window_gets_the_sleep_that_lies_in_it(
            spans in prop::collection::vec((0..3_u64, 1..100_u64), 1..40),
            windows in prop::collection::vec(1..60_u64, 1..80),
        ) {
            // the same line of time, nanosecond for nanosecond: 0 is awake
            let line: Vec<u64> = spans.iter().flat_map(|&(state, ns)| vec![state; ns as usize]).collect();
            let sleeper = SleepClock::default();
            let (mut before, mut begin, mut windows) = ([0; 3], 0, windows.into_iter());
            let mut end = windows.next().unwrap_or(1) as usize;
            for now in 0..line.len() {
                if now == 0 || line[now] != line[now - 1] {
                    sleeper.wake(now as u64);
                    if line[now] > 0 {
                        sleeper.fall_asleep(SLEEPS[line[now] as usize], now as u64);
                    }
                }
                if now == end {
                    let (_, slept) = sleeper.slept(|| now as u64);
                    for depth in 1..3 {
                        let expected = line[begin..end].iter().filter(|&&state| state == depth as u64).count();
                        prop_assert_eq!(slept[depth] - before[depth], expected as u64, "{}..{}", begin, end);
                    }
                    (before, begin) = (slept, end);
                    end += windows.next().unwrap_or(1) as usize;
                }
            }
        }
    }
}
