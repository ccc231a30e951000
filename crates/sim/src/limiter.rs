//! Power limit of the CPU package, as enforced by firmware (RAPL): it lowers the highest frequency of all cores.
//!
//! **Rule.** At the end of each period, the ceiling is set to the highest frequency at which the model predicts the package at or below the limit and
//! what earlier periods have left of it, at most one period's. So a limit between the power of two frequencies is met on average by both in turn.
//! The model assumes that all power above the deep state scales with frequency like that of a polling core. This overestimates the scaling, so steps
//! in both directions are too small. At the lowest frequency, the limit may be exceeded.
//!
//! All members of the power family run at the same frequencies; the machine's own power determines them.

use std::collections::VecDeque;

use crate::machine::{Machine, Speed};
use crate::power::PowerModel;

/// The limit of a package, and the resulting frequency ceiling.
#[derive(Clone, Debug)]
pub(crate) struct Limiter {
    model: PowerModel,
    speed: Speed,
    period_ns: u64,
    /// Future limits: time, limit in microwatts or `None`.
    orders: VecDeque<(u64, Option<u64>)>,
    limit_uw: Option<u64>,
    /// What earlier periods have left, as the power of a period, in microwatts.
    left_uw: u64,
    /// Energy in the current period, in femtojoules.
    spent_fj: u128,
    /// Start of the current period, if measured.
    since_ns: Option<u64>,
    /// Steps above the lowest frequency.
    ceiling: usize,
    top: usize,
}

impl Limiter {
    /// No limit.
    pub(crate) fn new(machine: &Machine) -> Self {
        let Speed { min_khz, max_khz, step_khz, .. } = machine.speed;
        let top = (max_khz - min_khz).div_ceil(step_khz.max(1)) as usize;
        Self {
            model: PowerModel::new(&machine.power, &machine.speed),
            speed: machine.speed,
            period_ns: machine.limits.power_period_ns.max(1),
            orders: VecDeque::new(),
            limit_uw: None,
            left_uw: 0,
            spent_fj: 0,
            since_ns: None,
            ceiling: top,
            top,
        }
    }

    /// Sets the limit from `at_ns` on.
    pub(crate) fn order(&mut self, at_ns: u64, limit_uw: Option<u64>) {
        self.orders.push_back((at_ns, limit_uw));
    }

    /// Whether the ceiling can change without another command.
    pub(crate) fn is_active(&self) -> bool {
        self.limit_uw.is_some() || !self.orders.is_empty() || self.ceiling < self.top
    }

    /// End of the current period: the first time after `now_ns` at which the ceiling can change; `u64::MAX` without a limit.
    pub(crate) fn due_ns(&self, now_ns: u64) -> u64 {
        if self.is_active() { (now_ns / self.period_ns + 1) * self.period_ns } else { u64::MAX }
    }

    /// Adds the package's energy.
    pub(crate) fn spend(&mut self, energy_fj: u128) {
        self.spent_fj += energy_fj;
    }

    /// Ends the period, if `now_ns` is the end of one; returns whether the ceiling has changed.
    pub(crate) fn end_period(&mut self, now_ns: u64) -> bool {
        if !now_ns.is_multiple_of(self.period_ns) {
            return false;
        }
        let before = self.ceiling;
        let spent_fj = std::mem::take(&mut self.spent_fj);
        if let (Some(limit_uw), Some(since_ns)) = (self.limit_uw, self.since_ns) {
            let mean_uw = (spent_fj / u128::from(now_ns - since_ns)) as u64;
            (self.ceiling, self.left_uw) = self.model.ceiling(mean_uw, (limit_uw, self.left_uw), self.ceiling);
        }
        while let Some(&(_, limit_uw)) = self.orders.front().filter(|(at_ns, _)| *at_ns < now_ns) {
            self.orders.pop_front();
            (self.limit_uw, self.left_uw) = (limit_uw, 0);
        }
        self.since_ns = self.limit_uw.map(|_| now_ns);
        if self.limit_uw.is_none() {
            self.ceiling = self.top;
        }
        self.ceiling != before
    }

    /// The highest allowed frequency.
    pub(crate) fn ceiling_khz(&self) -> u32 {
        let Speed { min_khz, max_khz, step_khz, .. } = self.speed;
        (min_khz + self.ceiling as u32 * step_khz).min(max_khz)
    }

    /// The same in steps above the lowest.
    pub(crate) fn ceiling(&self) -> usize {
        self.ceiling
    }

    /// The limit in microwatts, or 0.
    pub(crate) fn limit_uw(&self) -> u64 {
        self.limit_uw.unwrap_or(0)
    }
}

impl PowerModel {
    /// The highest frequency, in steps above the lowest, at which the predicted package power is at or below the limit and what is left of earlier
    /// periods, given `mean_uw` at the ceiling `now`; and what is left now.
    fn ceiling(&self, mean_uw: u64, (limit_uw, left_uw): (u64, u64), now: usize) -> (usize, u64) {
        let (levels, deep_uw) = (self.levels(), self.deep_uw());
        let allowed_uw = limit_uw + left_uw;
        let left_uw = allowed_uw.saturating_sub(mean_uw).min(limit_uw);
        let above_uw = u128::from(mean_uw.saturating_sub(deep_uw));
        let expected_uw =
            |level: u64| u128::from(deep_uw) + above_uw * u128::from(level) / u128::from(levels[now].max(1));
        let fits = |&level: &u64| expected_uw(level) <= u128::from(limit_uw + left_uw);
        let highest = levels.iter().rposition(fits).unwrap_or(0);
        // Above what was allowed, lower it by at least one step, whatever the model predicts.
        let ceiling = if mean_uw > allowed_uw { highest.min(now.saturating_sub(1)) } else { highest };
        (ceiling, left_uw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{ByState, Family, Power};

    const W: u64 = 1_000_000;
    const SPEED: Speed = Speed {
        min_khz: 1_000_000,
        max_khz: 3_000_000,
        step_khz: 100_000,
        transition_ns: 0,
        transition_restarts: false,
        stalled_ppm: 0,
        sibling_gain_ppm: 0,
    };

    /// Deep 40 W, all polling 60 to 200 W, with the square of the frequency.
    fn model() -> PowerModel {
        let cpu_uw = ByState { poll: 200 * W, slow: 60 * W, shallow: 50 * W, deep: 40 * W };
        let family = Family {
            package_ppm: 0,
            sibling_saves_ppm: 0,
            frequency_exponent: 2.0,
            others_exponent: 1.0,
            kernel_idles_deep: false,
            exit_at_rest: false,
        };
        let power = Power {
            physical_cores: 8,
            cpu_uw,
            others_uw: cpu_uw,
            drives_idle_uw: 0,
            read_4k_nj: 0,
            write_4k_nj: 0,
            family,
            uncore_uw: None,
            scheduled: None,
        };
        PowerModel::new(&power, &SPEED)
    }

    #[test]
    fn at_most_a_period_is_left_over() {
        let model = model();
        let (mut ceiling, mut left_uw) = (20, 0);
        for _ in 0..100 {
            (ceiling, left_uw) = model.ceiling(45 * W, (100 * W, left_uw), ceiling);
        }
        assert_eq!((ceiling, left_uw), (20, 100 * W));
        assert_eq!(model.ceiling(200 * W, (100 * W, left_uw), ceiling).1, 0, "spent in one period");
        assert!(model.ceiling(200 * W, (100 * W, 0), 20).0 < 20);
    }

    /// From any ceiling, the mean power reaches the limit and is not above it, where any frequency keeps it; at most two frequencies alternate.
    #[test]
    fn the_mean_power_is_the_limit() {
        let model = model();
        let true_uw = |ceiling: usize| 50 * W + 150 * W * model.levels()[ceiling] / 1_000_000;
        for limit_w in [55, 60, 70, 100, 101, 150, 199, 200, 300] {
            let limit_uw = limit_w * W;
            let highest = (0..=20).rev().find(|&ceiling| true_uw(ceiling) <= limit_uw).unwrap_or(0);
            for first in 0..=20 {
                let (mut ceiling, mut left_uw, mut path) = (first, 0, Vec::new());
                for _ in 0..1_100 {
                    (ceiling, left_uw) = model.ceiling(true_uw(ceiling), (limit_uw, left_uw), ceiling);
                    path.push(ceiling);
                }
                let last = &path[100..];
                let mean_uw = last.iter().map(|&ceiling| true_uw(ceiling)).sum::<u64>() / last.len() as u64;
                let wanted_uw = limit_uw.clamp(true_uw(0), true_uw(20));
                assert!(mean_uw.abs_diff(wanted_uw) < W / 2, "{limit_w} W from {first}: {mean_uw} uW, {path:?}");
                // What is left at first, at most a period's, may be spent in these.
                let most_uw = limit_uw + limit_uw / last.len() as u64;
                assert!(highest == 0 || mean_uw <= most_uw, "{limit_w} W from {first}: {mean_uw} uW");
                let between = highest..=highest + 1;
                assert!(last.iter().all(|ceiling| between.contains(ceiling)), "{limit_w} W from {first}: {path:?}");
            }
        }
    }
}
