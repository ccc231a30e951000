//! The Core Adaptor: number of cores of a group (PACER IV-C).
//!
//! `u_desired += beta x loss_distance`, and `n_desired = ceil(alpha n u / u_desired)`.

use super::parameters::{Parameters, share};

/// CPU use above this multiple of the target is a higher load, not noise; chosen.
const GROWN: f64 = 1.1;
/// The highest measured alpha, as that of the parameter.
const MOST_SLOPE: f64 = 2.0;

/// The size of a core group.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Size {
    /// Cores of the group.
    pub(super) most: usize,
    /// Cores in use.
    pub(super) n: usize,
    /// The target CPU use, as a share; 0 before savings start.
    desired: f64,
    /// Lower bound: fewer were too few under this load.
    floor: usize,
    /// The last number that kept the tolerance.
    proven: Option<usize>,
    /// Whether more headroom would remove no core.
    is_settled: bool,
    /// Total CPU use before the last removal, until the use after it is known, and their ratio.
    before: Option<f64>,
    slope: f64,
}

/// Cores on which a group of `n` with this CPU use reaches the target; at least 1.
pub(super) fn needed(alpha: f64, n: usize, cpu_use: f64, desired: f64) -> usize {
    let cores = alpha * n as f64 * cpu_use / desired.max(1e-6) - 1e-9; // tolerates rounding errors
    (cores.ceil() as usize).max(1)
}

impl Size {
    pub(super) fn new(most: usize) -> Self {
        Self { most, n: most, desired: 0.0, floor: 1, proven: None, is_settled: false, before: None, slope: 1.0 }
    }

    /// Takes over the state from another number of cores in the group.
    pub(super) fn inherit(&mut self, before: &Self) {
        let most = self.most;
        self.n = if before.n == before.most { most } else { before.n.min(most) };
        (self.desired, self.floor, self.proven) =
            (before.desired, before.floor.min(most), before.proven.map(|proven| proven.min(most)));
        self.is_settled = false;
    }

    /// The target CPU use.
    pub(super) fn desired(&self) -> f64 {
        self.desired
    }

    fn alpha(&self, parameters: &Parameters) -> f64 {
        parameters.alpha.unwrap_or(self.slope)
    }

    /// Measures by how much total CPU use has grown with the last removal; this use is that of all the time since.
    pub(super) fn measure(&mut self, cpu_use: f64) {
        if let Some(before) = self.before.take_if(|_| cpu_use > 0.0) {
            self.slope = (self.n as f64 * cpu_use / before).clamp(1.0, MOST_SLOPE);
        }
    }

    /// Starts savings under another load, with this use of all cores.
    pub(super) fn begin(&mut self, cpu_use: f64) {
        (self.desired, self.floor, self.proven, self.is_settled) = (cpu_use, 1, None, false);
    }

    /// Scales the target with the service time at another frequency.
    pub(super) fn scale(&mut self, slower: f64, parameters: &Parameters) {
        self.before = self.before.map(|before| before * slower);
        self.desired = (self.desired * slower).min(share(parameters.use_limit_ppm));
    }

    /// Resumes savings under the previous load, with this use of all cores; with `retry` one core fewer is allowed.
    pub(super) fn resume(&mut self, cpu_use: f64, retry: bool, parameters: &Parameters) {
        (self.floor, self.is_settled) = ((self.floor - usize::from(retry)).max(1), false);
        let Some(proven) = self.proven else { return self.desired = cpu_use };
        let limit = share(parameters.use_limit_ppm);
        let n = proven.max(self.floor).max(needed(self.alpha(parameters), self.n, cpu_use, limit)).min(self.most); // the load may be slightly higher
        (self.desired, self.n) = ((self.n as f64 * cpu_use / n as f64).min(limit), n);
    }

    /// Headroom: removes cores, if the CPU use and `fits` allow it; whether it does.
    pub(super) fn lower(
        &mut self,
        cpu_use: f64,
        distance: f64,
        parameters: &Parameters,
        mut fits: impl FnMut(usize) -> bool,
    ) -> bool {
        let limit = share(parameters.use_limit_ppm);
        let desired = (self.desired + parameters.beta * distance).min(limit);
        let target = needed(self.alpha(parameters), self.n, cpu_use, desired).max(self.floor).min(self.n);
        let mut n = target;
        while n < self.n && !fits(n) {
            n = (n + self.n).div_ceil(2);
        }
        let is_refused = target < self.n && n == self.n;
        self.is_settled = self.n <= self.floor || is_refused || (target == self.n && desired >= limit);
        // No wind-up: the target grows until it requires fewer cores, then to their CPU use.
        if n < self.n {
            self.desired = desired.min(self.alpha(parameters) * self.n as f64 * cpu_use / n as f64);
            self.before = Some(self.n as f64 * cpu_use);
        } else if !is_refused && self.n > self.floor {
            self.desired = desired;
        }
        std::mem::replace(&mut self.n, n) > n
    }

    /// Whether more headroom would remove no core.
    pub(super) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Too much loss: adds cores, if there are any; whether it does.
    pub(super) fn raise(&mut self, cpu_use: f64, distance: f64, parameters: &Parameters) -> bool {
        if self.n == self.most {
            return false;
        }
        (self.floor, self.is_settled, self.before) = (self.floor.max(self.n + 1), false, None);
        let desired = (self.desired + parameters.beta * distance).max(cpu_use * self.n as f64 / self.most as f64);
        // A number that has kept the tolerance before suffices, or one more.
        let most = self.proven.map_or(self.most, |proven| proven.max(self.floor));
        let n = needed(self.alpha(parameters), self.n, cpu_use, desired).clamp(self.floor, most);
        (self.desired, self.n) = (desired.min(cpu_use * self.n as f64 / n as f64), n);
        true
    }

    /// Adds cores for a higher load; whether it does.
    pub(super) fn follow(&mut self, cpu_use: f64, parameters: &Parameters) -> bool {
        if cpu_use <= self.desired * GROWN {
            return false;
        }
        let (before, n) = (self.n, needed(self.alpha(parameters), self.n, cpu_use, self.desired).min(self.most));
        (self.n, self.before) = (n.max(before), None);
        n > before
    }

    /// Whether the current number is not proven to keep the tolerance.
    pub(super) fn is_new(&self) -> bool {
        self.n < self.proven.unwrap_or(self.most)
    }

    /// All cores. If the current number is the `cause`, it is not retried under this load; the next try is between it and the proven one, or one
    /// more if it is the proven one.
    pub(super) fn restore(&mut self, is_cause: bool) {
        if is_cause && self.n < self.most {
            let proven = self.proven.unwrap_or(self.most);
            self.floor = self.floor.max((self.n + proven).div_ceil(2)).max(self.n + 1).min(self.most);
            self.proven = self.proven.map(|proven| proven.max(self.floor));
        }
        (self.n, self.is_settled, self.before) = (self.most, false, None);
    }

    /// Records that the current number keeps the tolerance.
    pub(super) fn prove(&mut self) {
        self.proven = Some(self.n);
    }

    /// Another tolerance: forgets numbers that were too low.
    pub(super) fn forget(&mut self) {
        (self.floor, self.proven, self.is_settled) = (1, None, false);
    }

    /// Idle: one core; more while background work needs them.
    pub(super) fn idle(&mut self, cpu_use: f64, works: bool, parameters: &Parameters) {
        let limit = share(parameters.use_limit_ppm);
        let grown = works && cpu_use > limit;
        self.n = if grown {
            needed(1.0, self.n, cpu_use, limit).min(self.most)
        } else if works {
            self.n
        } else {
            1
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_number_of_cores_follows_from_the_target_use() {
        assert_eq!(needed(1.0, 48, 0.1, 0.2), 24);
        assert_eq!(needed(1.05, 48, 0.1, 0.2), 26);
        assert_eq!(needed(1.0, 48, 0.0, 0.0), 1);
        let parameters = Parameters::default();
        let mut size = Size::new(48);
        size.begin(0.1);
        assert!(size.lower(0.1, 1.0, &parameters, |_| true));
        assert_eq!((size.n, size.desired()), (26, 1.05 * 48.0 * 0.1 / 26.0), "their resulting use");
    }

    #[test]
    fn the_target_use_does_not_grow_while_fewer_cores_do_not_fit() {
        let parameters = Parameters::default();
        let mut size = Size::new(8);
        size.begin(0.1);
        for _ in 0..50 {
            assert!(!size.lower(0.1, 1.0, &parameters, |_| false) && size.is_settled());
        }
        assert!(size.desired() < 0.2 && size.lower(0.1, 1.0, &parameters, |_| true), "{size:?}");
    }

    #[test]
    fn alpha_is_measured_by_the_last_removal() {
        let parameters = Parameters { alpha: None, ..Parameters::default() };
        let mut size = Size::new(48);
        size.begin(0.1);
        assert!(size.lower(0.1, 1.0, &parameters, |_| true));
        assert_eq!(size.n, 24, "nothing is measured yet");
        size.measure(0.24);
        assert_eq!(needed(size.alpha(&parameters), 24, 0.24, 0.36), 20, "1.2 x 16");
        size.measure(0.5);
        assert!((size.slope - 1.2).abs() < 1e-9, "the load may have changed since");
        let total = size.n as f64 * 0.24;
        assert!((0..9).any(|_| size.lower(0.24, 1.0, &parameters, |_| true)));
        size.scale(1.5, &parameters);
        size.measure(1.1 * 1.5 * total / size.n as f64);
        assert!((size.slope - 1.1).abs() < 1e-9, "without what a lower frequency adds: {}", size.slope);
        assert!((0..9).any(|_| size.lower(0.3, 1.0, &parameters, |_| true)));
        assert!(size.raise(0.5, -1.0, &parameters));
        size.measure(0.9);
        assert!((size.slope - 1.1).abs() < 1e-9, "not across an addition: {}", size.slope);
    }

    #[test]
    fn a_load_that_has_grown_begins_with_more_cores_than_were_proven() {
        let parameters = Parameters::default();
        let mut size = Size::new(10);
        size.begin(0.2);
        while size.lower(2.0 / size.n as f64, 1.0, &parameters, |_| true) || !size.is_settled() {}
        size.prove();
        assert_eq!(size.n, 3);
        size.restore(true);
        size.resume(0.2, false, &parameters);
        assert_eq!(size.n, 4, "the proven number no longer suffices");
        size.restore(false);
        size.resume(0.3, false, &parameters);
        assert_eq!(size.n, 5, "4.5 cores of 70 %");
    }

    #[test]
    fn a_number_that_was_too_low_is_only_retried_with_retry() {
        let parameters = Parameters::default();
        let mut size = Size::new(8);
        size.begin(0.1);
        while size.lower(0.8 / size.n as f64, 1.0, &parameters, |_| true) {}
        let (few, cpu_use) = (size.n, |n: usize| 0.8 / n as f64);
        assert!(size.raise(cpu_use(few), -0.5, &parameters));
        let enough = size.n;
        size.prove();
        for _ in 0..20 {
            size.lower(cpu_use(size.n), 1.0, &parameters, |_| true);
            assert!(size.n > few, "{size:?}");
        }
        size.restore(false);
        size.resume(cpu_use(8), false, &parameters);
        assert_eq!(size.n, enough);
        size.restore(false);
        size.resume(cpu_use(8), true, &parameters);
        (0..20).for_each(|_| _ = size.lower(cpu_use(size.n), 1.0, &parameters, |_| true));
        assert_eq!(size.n, few, "{size:?}");
    }

    #[test]
    fn a_step_that_ends_in_a_burst_is_halved() {
        let parameters = Parameters::default();
        let mut size = Size::new(48);
        size.begin(0.01);
        assert!(size.lower(0.01, 1.0, &parameters, |_| true) && size.n < 8);
        let few = size.n;
        size.restore(true);
        assert_eq!(size.n, 48);
        size.resume(0.01, false, &parameters);
        size.lower(0.01, 1.0, &parameters, |_| true);
        assert_eq!(size.n, (few + 48).div_ceil(2));
    }

    proptest! {
        /// The number stays within the group, the target use within its limit, and headroom never adds a core.
        #[test]
        fn it_stays_within_its_limits(
            most in 1..64_usize,
            steps in prop::collection::vec((0.0..1.0_f64, -3.0..1.0_f64, 0..5_u8), 1..60),
        ) {
            let parameters = Parameters::default();
            let mut size = Size::new(most);
            size.begin(steps[0].0.min(0.7));
            for (cpu_use, distance, step) in steps {
                let before = size.n;
                match step {
                    0 => size.restore(distance < 0.0),
                    1 => size.resume(cpu_use, distance > 0.0, &parameters),
                    2 => _ = size.follow(cpu_use, &parameters),
                    _ if distance > 0.0 => {
                        size.prove();
                        size.lower(cpu_use, distance, &parameters, |n| n % 3 > 0);
                        prop_assert!(size.n <= before);
                    }
                    _ => _ = size.raise(cpu_use, distance, &parameters),
                }
                prop_assert!((1..=most).contains(&size.n) && size.floor <= most, "{:?}", size);
                prop_assert!(size.desired <= 1.0, "{:?}", size);
            }
        }
    }
}
