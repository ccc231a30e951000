//! Whether power stays within a budget: by readings, and by the minimum power that the active policy reports.
//!
//! **Rule.** A reading counts if its window began after the budget came into force. Up to [`MARGIN_PPM`] above the budget it is *held*. Above it for
//! less than [`TOLERATED_NS`] the budget is *settling* at first and *exceeded* later. Above it for longer, and not falling for
//! [`FALLS_NS`], it is *unreachable*, and the lowest reading of that time is the floor; where the policy names its floor, above
//! the budget at once. Without a reading for as long it is *not
//! measured*.

use crate::config::format_budget;

/// Excess that counts as held, in millionths of the budget: PASS's upper threshold (3.3).
pub(crate) const MARGIN_PPM: u64 = 20_000;
/// How long an excess is tolerated, in nanoseconds: after 10 s PASS calls a budget missed (section 5).
const TOLERATED_NS: u64 = 10_000_000_000;
/// Power that has not fallen by [`FALLS_PPM`] for this time, in nanoseconds, has stopped falling (chosen: five intervals of 1 s).
const FALLS_NS: u64 = 5_000_000_000;
const FALLS_PPM: u64 = 10_000;

/// An observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) struct Observation {
    /// Monotonic, in nanoseconds.
    pub(in crate::serve) now_ns: u64,
    /// The budget in force, in microwatts.
    pub(in crate::serve) budget_uw: Option<u64>,
    /// Whether the active policy holds budgets.
    pub(in crate::serve) is_used: bool,
    /// The last window of its domain: when it began and ended, and its power in microwatts.
    pub(in crate::serve) window: Option<(u64, u64, u64)>,
}

/// The state of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::serve) enum Verdict {
    /// There is no budget.
    #[default]
    Off,
    /// The active policy does not use budgets.
    NotUsed,
    /// There are no readings.
    NotMeasured,
    /// In force, and not yet met.
    Settling,
    /// Power is within it.
    Held,
    /// Power is above it again.
    Exceeded,
    /// Power stays above it: the lowest that was read, in microwatts.
    Unreachable(u64),
}

/// The state between updates.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::serve) struct BudgetMonitor {
    budget_uw: Option<u64>,
    /// Since when the budget is in force.
    since_ns: u64,
    /// End of the last good window.
    read_ns: u64,
    /// Since when power is above it.
    above: Option<Above>,
    verdict: Verdict,
}

#[derive(Clone, Copy, Debug)]
struct Above {
    since_ns: u64,
    lowest_uw: u64,
    /// When power fell last.
    fell_ns: u64,
}

impl Verdict {
    /// As status has it.
    pub(in crate::serve) fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::NotUsed => "not used by the policy",
            Self::NotMeasured => "not measured",
            Self::Settling => "settling",
            Self::Held => "held",
            Self::Exceeded => "exceeded",
            Self::Unreachable(_) => "unreachable",
        }
    }

    /// For the log, on a change that an operator should see.
    pub(in crate::serve) fn log_line(self, budget_uw: u64) -> Option<String> {
        let budget = format_budget(Some(budget_uw));
        Some(match self {
            Self::Held => format!("power is within the budget of {budget}"),
            Self::Exceeded => format!("power exceeds the budget of {budget}"),
            Self::Unreachable(floor_uw) => {
                let floor = floor_uw as f64 / 1e6;
                format!("the budget of {budget} is unreachable: power does not fall below {floor:.1} W (the floor)")
            }
            Self::NotMeasured => format!("the budget of {budget} is not measured: the sensor gives no readings"),
            Self::NotUsed => format!("the budget of {budget} is not held: the active policy does not use it"),
            Self::Off | Self::Settling => return None,
        })
    }
}

impl BudgetMonitor {
    /// The last verdict.
    pub(in crate::serve) fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Judges by what is observed now; the new verdict where it differs from the last one. While power is above the budget, `floor_uw` says
    /// the lowest power, in microwatts, if the policy reports the budget as unreachable; asking it wakes the main core.
    pub(in crate::serve) fn update(
        &mut self,
        observed: Observation,
        floor_uw: impl FnOnce() -> Option<u64>,
    ) -> Option<Verdict> {
        if observed.budget_uw != self.budget_uw {
            *self = Self {
                budget_uw: observed.budget_uw,
                since_ns: observed.now_ns,
                read_ns: observed.now_ns,
                ..Self::default()
            };
            self.verdict = Verdict::Settling;
        }
        let before = self.verdict;
        let verdict = match observed.budget_uw {
            None => Verdict::Off,
            Some(_) if !observed.is_used => Verdict::NotUsed,
            Some(budget_uw) => self.held(budget_uw, observed, floor_uw),
        };
        self.verdict = verdict;
        let is_same = std::mem::discriminant(&before) == std::mem::discriminant(&verdict);
        (!is_same).then_some(verdict)
    }

    fn held(&mut self, budget_uw: u64, observed: Observation, floor_uw: impl FnOnce() -> Option<u64>) -> Verdict {
        if matches!(self.verdict, Verdict::NotUsed) {
            (self.since_ns, self.verdict) = (observed.now_ns, Verdict::Settling);
        }
        let new = observed.window.filter(|&(_, ended_ns, _)| ended_ns > self.read_ns);
        let Some((began_ns, ended_ns, power_uw)) = new else {
            let is_silent = observed.now_ns.saturating_sub(self.read_ns) > TOLERATED_NS;
            return if is_silent { Verdict::NotMeasured } else { self.verdict };
        };
        self.read_ns = ended_ns;
        if began_ns < self.since_ns {
            return self.verdict;
        }
        if is_within(power_uw, budget_uw) {
            self.above = None;
            return Verdict::Held;
        }
        let first = Above { since_ns: began_ns, lowest_uw: power_uw, fell_ns: began_ns };
        let above = self.above.get_or_insert(first);
        if power_uw + scaled(power_uw, FALLS_PPM) < above.lowest_uw {
            above.fell_ns = ended_ns;
        }
        above.lowest_uw = above.lowest_uw.min(power_uw);
        let stays = ended_ns - above.since_ns >= TOLERATED_NS && ended_ns - above.fell_ns >= FALLS_NS;
        if let Some(floor_uw) = floor_uw() {
            return Verdict::Unreachable(floor_uw);
        }
        match self.verdict {
            _ if stays => Verdict::Unreachable(above.lowest_uw),
            Verdict::Held => Verdict::Exceeded,
            Verdict::NotMeasured | Verdict::Unreachable(_) => Verdict::Settling,
            verdict => verdict,
        }
    }
}

/// Whether power is within a budget, with the margin of PASS.
fn is_within(power_uw: u64, budget_uw: u64) -> bool {
    power_uw <= budget_uw.saturating_add(scaled(budget_uw, MARGIN_PPM))
}

fn scaled(uw: u64, ppm: u64) -> u64 {
    (u128::from(uw) * u128::from(ppm) / 1_000_000) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const W: u64 = 1_000_000;

    /// Looks once a second with windows of a second, from second `from` on, at these watts; the verdict after each.
    fn verdicts(monitor: &mut BudgetMonitor, from: u64, budget_w: u64, watts: &[Option<u64>]) -> Vec<Verdict> {
        let one = |(now_s, watts): (u64, &Option<u64>)| {
            let window = watts.map(|watts| ((now_s - 1) * S, now_s * S, watts * W));
            let budget_uw = Some(budget_w * W);
            monitor.update(Observation { now_ns: now_s * S, budget_uw, is_used: true, window }, || None);
            monitor.verdict()
        };
        (from..).zip(watts).map(one).collect()
    }

    #[test]
    fn metrics_have_every_state() {
        use Verdict::{Exceeded, Held, NotMeasured, NotUsed, Off, Settling, Unreachable};
        let all = [Off, NotUsed, NotMeasured, Settling, Held, Exceeded, Unreachable(1)];
        assert_eq!(all.map(Verdict::name), crate::metrics::BUDGET_STATES);
    }

    #[test]
    fn a_budget_is_held_after_a_window_within_it() {
        let mut monitor = BudgetMonitor::default();
        let found =
            verdicts(&mut monitor, 10, 300, &[Some(290), Some(400), Some(320), Some(306), Some(307), Some(300)]);
        use Verdict::{Exceeded, Held, Settling};
        assert_eq!(found, [Settling, Settling, Settling, Held, Exceeded, Held], "the first began before the budget");
    }

    #[test]
    fn power_above_the_budget_makes_it_unreachable() {
        let mut monitor = BudgetMonitor::default();
        verdicts(&mut monitor, 10, 300, &[Some(400)]);
        let found = verdicts(&mut monitor, 11, 300, &[Some(350); 10]);
        assert_eq!(found[8], Verdict::Settling);
        assert_eq!(found[9], Verdict::Unreachable(350 * W));
        assert_eq!(verdicts(&mut monitor, 21, 300, &[Some(340)]), [Verdict::Settling], "it falls again");
        assert_eq!(verdicts(&mut monitor, 22, 300, &[Some(341); 5])[4], Verdict::Unreachable(340 * W));
        assert_eq!(verdicts(&mut monitor, 27, 300, &[Some(300)]), [Verdict::Held]);
        assert_eq!(
            verdicts(&mut monitor, 28, 350, &[Some(300), Some(300)]),
            [Verdict::Settling, Verdict::Held],
            "another budget"
        );
    }

    #[test]
    fn the_policy_s_lowest_power_applies_above_the_budget() {
        let mut monitor = BudgetMonitor::default();
        verdicts(&mut monitor, 10, 300, &[Some(400)]);
        let observed = |now_s: u64, watts| Observation {
            now_ns: now_s * S,
            budget_uw: Some(300 * W),
            is_used: true,
            window: Some(((now_s - 1) * S, now_s * S, watts * W)),
        };
        monitor.update(observed(11, 321), || Some(320 * W));
        assert_eq!(monitor.verdict(), Verdict::Unreachable(320 * W));
        monitor.update(observed(12, 300), || unreachable!("the policy is not asked within the budget"));
        assert_eq!(monitor.verdict(), Verdict::Held);
    }

    #[test]
    fn power_that_falls_is_not_unreachable() {
        let mut monitor = BudgetMonitor::default();
        let falling: Vec<Option<u64>> = (0..30).map(|second| Some(600 - 7 * second)).collect();
        assert!(verdicts(&mut monitor, 10, 300, &falling).iter().all(|verdict| *verdict == Verdict::Settling));
    }

    #[test]
    fn missing_readings_are_reported_without_a_verdict() {
        let mut monitor = BudgetMonitor::default();
        verdicts(&mut monitor, 10, 300, &[Some(300), Some(300)]);
        let found = verdicts(&mut monitor, 12, 300, &[None; 11]);
        assert_eq!((found[8], found[10]), (Verdict::Held, Verdict::NotMeasured));
        assert_eq!(verdicts(&mut monitor, 23, 300, &[Some(400)]), [Verdict::Settling]);
    }

    #[test]
    fn a_policy_that_does_not_use_it_holds_nothing() {
        let mut monitor = BudgetMonitor::default();
        let window = Some((0, S, 200 * W));
        let observed = Observation { now_ns: S, budget_uw: Some(300 * W), is_used: false, window };
        let update = |monitor: &mut BudgetMonitor, observed| monitor.update(observed, || None);
        assert_eq!(update(&mut monitor, observed), Some(Verdict::NotUsed));
        assert_eq!(update(&mut monitor, observed), None);
        assert_eq!(
            update(&mut monitor, Observation { now_ns: 2 * S, is_used: true, ..observed }),
            Some(Verdict::Settling)
        );
        assert_eq!(
            update(&mut monitor, Observation { now_ns: 2 * S, budget_uw: None, ..observed }),
            Some(Verdict::Off)
        );
    }
}
