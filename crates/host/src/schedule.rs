//! Arrival times of requests in an open loop, at a rate that may change over time.
//!
//! A closed loop waits for responses, so a slow target reduces its own load and its measured latency. In an open loop arrivals
//! do not depend on the target, and latency counts from the arrival.
//!
//! A *schedule* is a cycle of *phases*, each a rate and a duration. A *process* distributes arrivals evenly, or at random
//! (Poisson) with the same mean.
//!
//! Arrivals of rate 1 are drawn first (gaps of 1, or exponential with mean 1), then a unit of time is stretched to `1 / rate`.
//! A gap may span several phases; that is exact for both processes.
//!
//! Properties (tested): the number of arrivals in a phase is its rate times its duration (evenly: to within one); times never
//! decrease; the same seed gives the same times.

use crate::rng::Rng;

/// Distribution of arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// Evenly: fixed gaps.
    Linear,
    /// Exponential gaps: a Poisson process.
    Poisson,
}

/// A period with a constant rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// Arrivals per second; may be 0.
    pub rate_iops: f64,
    /// Duration in nanoseconds.
    pub duration_ns: u64,
}

/// A cycle of phases.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    phases: Vec<Phase>,
}

/// An invalid schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// No phase.
    #[error("a schedule needs at least one phase, such as 100%:1s")]
    Empty,
    /// No phase with a rate above 0, or one below.
    #[error("a schedule needs a phase with a rate above 0, and no negative rate")]
    NoRate,
    /// A phase without duration.
    #[error("phase {0} has no duration")]
    NoTime(usize),
    /// Too many phases.
    #[error("a schedule has at most 255 phases")]
    TooMany,
}

impl Schedule {
    /// A schedule that repeats `phases`.
    ///
    /// # Errors
    /// [`ScheduleError`] for an invalid schedule.
    pub fn new(phases: Vec<Phase>) -> Result<Self, ScheduleError> {
        if phases.is_empty() {
            return Err(ScheduleError::Empty);
        }
        if phases.len() > 255 {
            return Err(ScheduleError::TooMany);
        }
        if let Some(i) = phases.iter().position(|p| p.duration_ns == 0) {
            return Err(ScheduleError::NoTime(i));
        }
        let bad = |p: &Phase| !p.rate_iops.is_finite() || p.rate_iops < 0.0;
        if phases.iter().any(bad) || phases.iter().all(|p| p.rate_iops == 0.0) {
            return Err(ScheduleError::NoRate);
        }
        Ok(Self { phases })
    }

    /// A constant rate.
    ///
    /// # Errors
    /// [`ScheduleError::NoRate`] if it is not above 0.
    pub fn constant(rate_iops: f64) -> Result<Self, ScheduleError> {
        Self::new(vec![Phase { rate_iops, duration_ns: 1_000_000_000 }])
    }

    /// The phases of one cycle.
    #[must_use]
    pub fn phases(&self) -> &[Phase] {
        &self.phases
    }

    /// The same schedule at `factor` times the rate.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        let phases = self.phases.iter().map(|p| Phase { rate_iops: p.rate_iops * factor, ..*p }).collect();
        Self { phases }
    }

    /// Mean rate over a cycle, in arrivals per second.
    #[must_use]
    pub fn mean_iops(&self) -> f64 {
        let total_ns: f64 = self.phases.iter().map(|p| p.duration_ns as f64).sum();
        self.phases.iter().map(|p| p.rate_iops * p.duration_ns as f64).sum::<f64>() / total_ns
    }

    /// Mean number of arrivals in the first `elapsed_ns`.
    #[must_use]
    pub fn expected(&self, elapsed_ns: u64) -> f64 {
        let cycle_ns: u64 = self.phases.iter().map(|p| p.duration_ns).sum();
        let mut left_ns = elapsed_ns % cycle_ns;
        let whole = (elapsed_ns / cycle_ns) as f64 * self.mean_iops() * cycle_ns as f64 * 1e-9;
        let part = self.phases.iter().map(|p| {
            let ns = left_ns.min(p.duration_ns);
            left_ns -= ns;
            p.rate_iops * ns as f64 * 1e-9
        });
        whole + part.sum::<f64>()
    }
}

/// Iterates over arrival times.
#[derive(Clone, Debug)]
pub struct Arrivals {
    schedule: Schedule,
    process: Process,
    rng: Rng,
    phase: usize,
    phase_start_ns: u64,
    /// Time into the phase, in nanoseconds.
    within_ns: f64,
}

impl Arrivals {
    /// Arrivals from `start_ns` on. With a linear process the first is `first_gap` mean gaps later: 1 for a single source,
    /// fractions of 1 to interleave several.
    #[must_use]
    pub fn new(schedule: Schedule, process: Process, rng: Rng, start_ns: u64, first_gap: f64) -> Self {
        let mut this = Self { schedule, process, rng, phase: 0, phase_start_ns: start_ns, within_ns: 0.0 };
        let gap = match process {
            Process::Linear => first_gap,
            Process::Poisson => this.gap(),
        };
        this.advance_by(gap);
        this
    }

    /// Time of the next arrival in nanoseconds.
    #[inline]
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        self.phase_start_ns + self.within_ns as u64
    }

    /// Phase of the next arrival.
    #[inline]
    #[must_use]
    pub fn phase(&self) -> usize {
        self.phase
    }

    /// Advances to the following arrival.
    #[inline]
    pub fn advance(&mut self) {
        let gap = self.gap();
        self.advance_by(gap);
    }

    #[inline]
    fn gap(&mut self) -> f64 {
        match self.process {
            Process::Linear => 1.0,
            Process::Poisson => -self.rng.unit().ln(),
        }
    }

    /// Advances by `gap` units of rate 1.
    #[inline]
    fn advance_by(&mut self, mut gap: f64) {
        loop {
            let Phase { rate_iops, duration_ns } = self.schedule.phases[self.phase];
            let per_ns = rate_iops * 1e-9;
            let left_ns = duration_ns as f64 - self.within_ns;
            if gap < per_ns * left_ns {
                self.within_ns += gap / per_ns;
                return;
            }
            gap -= per_ns * left_ns;
            self.phase_start_ns += duration_ns;
            self.within_ns = 0.0;
            self.phase = (self.phase + 1) % self.schedule.phases.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, proptest};

    const S: u64 = 1_000_000_000;

    fn times(schedule: &Schedule, process: Process, until_ns: u64) -> Vec<(u64, usize)> {
        let mut a = Arrivals::new(schedule.clone(), process, Rng::new(3), 0, 1.0);
        std::iter::from_fn(|| {
            let t = (a.due_ns(), a.phase());
            a.advance();
            (t.0 < until_ns).then_some(t)
        })
        .collect()
    }

    #[test]
    fn a_constant_rate_has_even_gaps() {
        let t = times(&Schedule::constant(1000.0).unwrap(), Process::Linear, S);
        assert!((999..=1000).contains(&t.len()), "{}", t.len()); // 1 ms, 2 ms, ... 999 ms, perhaps 999.999999
        assert!(t.iter().enumerate().all(|(i, &(ns, _))| ns.abs_diff((i as u64 + 1) * 1_000_000) <= 1));
    }

    #[test]
    fn poisson_arrivals_have_the_mean_and_deviation_of_a_poisson_process() {
        let t = times(&Schedule::constant(100_000.0).unwrap(), Process::Poisson, S);
        assert!((t.len() as f64 - 1e5).abs() < 6.0 * 1e5f64.sqrt(), "{}", t.len());
        let gaps: Vec<f64> = t.windows(2).map(|w| (w[1].0 - w[0].0) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let var = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((var.sqrt() / mean - 1.0).abs() < 0.02, "an exponential's deviation is its mean");
    }

    #[test]
    fn bursts_arrive_in_their_phase() {
        let phases = vec![
            Phase { rate_iops: 1000.0, duration_ns: S },
            Phase { rate_iops: 20_000.0, duration_ns: S / 5 },
            Phase { rate_iops: 0.0, duration_ns: S / 2 },
        ];
        let schedule = Schedule::new(phases).unwrap();
        let t = times(&schedule, Process::Linear, 17 * S); // ten cycles
        for (phase, expected) in [(0, 10_000i64), (1, 40_000), (2, 0)] {
            let n = t.iter().filter(|&&(_, p)| p == phase).count() as i64;
            assert!((n - expected).abs() <= 10, "phase {phase}: {n}");
        }
        for (ns, phase) in t {
            let at = ns % (17 * S / 10);
            let expected = usize::from(at >= S) + usize::from(at >= S * 12 / 10);
            assert_eq!(phase, expected, "at {at}");
        }
        assert!((schedule.expected(17 * S) - 50_000.0).abs() < 0.1);
        assert!((schedule.expected(S / 2) - 500.0).abs() < 0.1);
    }

    #[test]
    fn schedules_without_arrivals_are_rejected() {
        let phase = |rate_iops, duration_ns| Phase { rate_iops, duration_ns };
        assert_eq!(Schedule::new(vec![]), Err(ScheduleError::Empty));
        assert_eq!(Schedule::new(vec![phase(0.0, 5)]), Err(ScheduleError::NoRate));
        assert_eq!(Schedule::new(vec![phase(1.0, 5), phase(-1.0, 5)]), Err(ScheduleError::NoRate));
        assert_eq!(Schedule::new(vec![phase(f64::NAN, 5)]), Err(ScheduleError::NoRate));
        assert_eq!(Schedule::new(vec![phase(1.0, 5), phase(1.0, 0)]), Err(ScheduleError::NoTime(1)));
    }

    proptest! {
        /// Times never decrease, and their number follows the schedule.
        #[test]
        fn arrivals_follow_the_schedule(
            phases in proptest::collection::vec((0u32..50_000, 1u64..400), 1..6), poisson: bool,
        ) {
            let phases: Vec<Phase> = phases.into_iter()
                .map(|(r, ms)| Phase { rate_iops: f64::from(r), duration_ns: ms * 1_000_000 }).collect();
            let Ok(schedule) = Schedule::new(phases) else { return Ok(()) };
            let process = if poisson { Process::Poisson } else { Process::Linear };
            let t = times(&schedule, process, S);
            prop_assert!(t.is_sorted_by_key(|&(ns, _)| ns));
            let expected = schedule.expected(S);
            let slack = if poisson { 6.0 * expected.sqrt() + 6.0 } else { 1.5 };
            prop_assert!((t.len() as f64 - expected).abs() <= slack, "{} of {}", t.len(), expected);
        }
    }
}
