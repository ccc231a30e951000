//! Load as SPDK's schedulers define it: busy time over busy and idle time of the last interval.

use pilotlight_plant::{CoreSample, CoreState, Sample, ThreadSample};

/// One whole core, in the unit of loads.
pub(crate) const WHOLE_PPM: u64 = 1_000_000;

/// `part_ns` over `whole_ns`, in millionths.
pub(crate) fn share(part_ns: u64, whole_ns: u64) -> u64 {
    let ppm = u128::from(part_ns) * u128::from(WHOLE_PPM) / u128::from(whole_ns.max(1));
    ppm.min(u128::from(WHOLE_PPM)) as u64
}

/// Whether nothing arrived and nothing was in progress. Busy time in such an interval comes from keep-alives and similar; a plant may skip
/// the interval.
pub(crate) fn is_quiet(sample: &Sample<'_>) -> bool {
    let quiet = |thread: &ThreadSample| thread.requests == 0 && thread.answered == 0 && thread.in_progress_ns == 0;
    sample.threads.iter().all(quiet)
}

/// Limits of a core's load, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Maximum load of a core.
    pub(crate) core_ppm: u64,
    /// Above it a core's threads delay each other: time that one of them frees may be used by the others.
    pub(crate) busy_ppm: u64,
}

/// Estimated load of a core while threads are assigned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) busy_ns: u64,
    pub(crate) idle_ns: u64,
    pub(crate) threads: u64,
}

impl Load {
    /// A core with its threads not yet assigned.
    pub(crate) fn of_core(core: &CoreSample) -> Self {
        // SPDK's reactors in interrupt mode count nothing.
        let awake_ns = if core.state == CoreState::Awake { core.awake_ns } else { 0 };
        let busy_ns = core.busy_ns.min(awake_ns);
        Self { busy_ns, idle_ns: awake_ns - busy_ns, threads: 0 }
    }

    pub(crate) fn ppm(&self) -> u64 {
        share(self.busy_ns, self.busy_ns + self.idle_ns)
    }

    /// Load of one of its threads: busy time over that and an equal part of the core's idle time, since a reactor polls its
    /// threads in turn. Equivalent to SPDK, which counts the idle polls of each thread.
    pub(crate) fn of_thread(&self, busy_ns: u64) -> u64 {
        share(busy_ns, busy_ns + self.idle_ns / self.threads.max(1))
    }

    /// Whether threads should leave it; never true of a core with a single thread.
    pub(crate) fn is_at_limit(&self, limits: &Limits) -> bool {
        self.threads > 1 && self.ppm() >= limits.core_ppm
    }

    /// Whether it can take another thread.
    pub(crate) fn can_take(&self, busy_ns: u64, limits: &Limits) -> bool {
        let empty = self.threads == 0 || self.busy_ns + self.idle_ns == 0;
        let with = || share(self.busy_ns + busy_ns, self.busy_ns + self.idle_ns);
        empty || (self.idle_ns >= busy_ns && with() < limits.core_ppm)
    }

    /// Adds a thread.
    pub(crate) fn add(&mut self, busy_ns: u64) {
        self.busy_ns += busy_ns;
        self.idle_ns = self.idle_ns.saturating_sub(busy_ns);
        self.threads += 1;
    }

    /// Removes a thread. An overloaded core is assumed to stay at its limit until the next interval.
    pub(crate) fn remove(&mut self, busy_ns: u64, limits: &Limits) {
        let overloaded = self.ppm() >= limits.busy_ppm;
        let gone_ns = busy_ns.min(self.busy_ns);
        self.busy_ns -= gone_ns;
        self.idle_ns += gone_ns;
        self.threads -= 1;
        if overloaded && self.ppm() < limits.core_ppm {
            let whole_ns = self.busy_ns + self.idle_ns;
            self.busy_ns = (u128::from(whole_ns) * u128::from(limits.core_ppm)).div_ceil(u128::from(WHOLE_PPM)) as u64;
            self.idle_ns = whole_ns - self.busy_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { core_ppm: 800_000, busy_ppm: 950_000 };

    #[test]
    fn the_load_of_a_thread_counts_its_own_idle_polls() {
        let crowded = Load { busy_ns: 50, idle_ns: 950, threads: 48 };
        assert_eq!(crowded.of_thread(50), 50 * WHOLE_PPM / (50 + 19));
        let alone = Load { threads: 1, ..crowded };
        assert_eq!(alone.of_thread(50), 50_000);
    }

    #[test]
    fn a_core_with_one_thread_is_never_at_its_limit() {
        let full = Load { busy_ns: 100, idle_ns: 0, threads: 1 };
        assert!(!full.is_at_limit(&LIMITS));
        assert!(Load { threads: 2, ..full }.is_at_limit(&LIMITS));
        assert!(!Load { busy_ns: 79, idle_ns: 21, threads: 2 }.is_at_limit(&LIMITS));
    }

    #[test]
    fn a_core_takes_threads_up_to_its_limit_and_an_empty_core_always_takes_one() {
        let half = Load { busy_ns: 50, idle_ns: 50, threads: 1 };
        assert!(half.can_take(29, &LIMITS));
        assert!(!half.can_take(30, &LIMITS));
        assert!(Load { threads: 0, ..half }.can_take(90, &LIMITS));
        assert!(Load { busy_ns: 0, idle_ns: 0, threads: 1 }.can_take(90, &LIMITS));
    }

    #[test]
    fn a_thread_that_leaves_an_overloaded_core_frees_no_time() {
        let mut core = Load { busy_ns: 94, idle_ns: 6, threads: 3 };
        core.remove(40, &LIMITS);
        assert_eq!(core, Load { busy_ns: 54, idle_ns: 46, threads: 2 });
        let mut core = Load { busy_ns: 95, idle_ns: 5, threads: 3 };
        core.remove(40, &LIMITS);
        assert_eq!(core, Load { busy_ns: 80, idle_ns: 20, threads: 2 });
        assert!(core.is_at_limit(&LIMITS));
    }
}
