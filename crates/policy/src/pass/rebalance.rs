//! Whether to move power from the CPU to drives while the budget is kept (not in PASS, which changes nothing then).
//!
//! **Problem.** A polling CPU draws its power without requests too. A server that was idle under a budget has a high CPU and low caps. When load
//! arrives, its power is in the range of no action already, and the caps would stay as low for as long as the budget does.
//! **Rule.** In that range, once a budget begins, or more load has come to drives that were not limited, and caps limit them, the CPU is cut on
//! trial, first to a power just below the range; the usual rules give what this saves to the drives, and return to the CPU what they do not use.
//! If the drives then draw more by a quarter of the cut, the next one is twice as large; if not, it is twice as large as the first, as the effect
//! of a cut may be less than the model's.
//! **End.** Trials end after two in sequence without effect, after one that finds that the CPU limits, with another budget, or after [`MOST`]. So at
//! constant load and budget they end.

/// Intervals of a budget before load is compared: until then limits are raised from those of the start (PASS, section 5, calls a budget missed
/// after 10 s).
pub(super) const SETTLES: u64 = 10;
/// Trials in sequence.
const MOST: u8 = 12;
/// Trials in sequence without effect.
const FAILS: u8 = 2;
/// A cut is at most this part of what the CPU can save.
const LARGEST: f64 = 0.5;
/// Part of a cut that the drives have to use.
const USED: f64 = 0.25;
/// More load, as a factor of the drives' power.
const MORE: f64 = 2.0;

/// The trials under budgets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rebalance {
    /// Size of the next cut: 0 is the first, and each more is twice as large.
    size: u8,
    left: u8,
    /// Trials without effect in sequence.
    fails: u8,
    /// Cut of the last trial and the drives' power before it, in microwatts.
    last: Option<(f64, f64)>,
    /// The least that the drives drew beyond idle while caps did not limit them, under this budget, and the last; in microwatts.
    free_uw: Option<f64>,
    last_free_uw: Option<f64>,
}

impl Rebalance {
    /// Notes the drives' power beyond idle, and whether caps limit them. `least_uw` is the least that counts as more load.
    pub(super) fn note(&mut self, drives_uw: f64, is_limited: bool, least_uw: f64) {
        if self.free_uw.is_some_and(|free_uw| drives_uw > (free_uw * MORE).max(free_uw + least_uw)) {
            self.begin();
        }
        if !is_limited {
            self.free_uw = Some(self.free_uw.map_or(drives_uw, |free_uw| free_uw.min(drives_uw)));
            self.last_free_uw = Some(drives_uw);
        }
    }

    /// A budget begins, or more load has come. (After each raise of a budget, trials would make steps late: PASS, Figure 14.)
    pub(super) fn begin(&mut self) {
        *self = Self { left: MOST, ..Self::default() };
    }

    /// Another budget: trials end, and what it allows is no more load.
    pub(super) fn on_budget(&mut self) {
        *self = Self { free_uw: self.last_free_uw, last_free_uw: self.last_free_uw, ..Self::default() };
    }

    /// A trial has found that the CPU limits: trials end.
    pub(super) fn end(&mut self) {
        self.left = 0;
    }

    /// Whether a trial may begin.
    pub(super) fn has_trials(&self) -> bool {
        self.left > 0
    }

    /// The next cut, while caps limit drives that draw `drives_uw`. The CPU can save `cpu_uw`; the first cut is `first_uw`.
    pub(super) fn next_uw(&mut self, cpu_uw: f64, drives_uw: f64, first_uw: f64) -> Option<f64> {
        if let Some((cut_uw, before_uw)) = self.last.take() {
            if drives_uw > before_uw + cut_uw * USED {
                (self.size, self.fails) = (self.size + 1, 0);
            } else {
                self.fails += 1;
                self.size = self.fails;
            }
        }
        if self.fails == FAILS {
            self.left = 0;
        }
        let cut_uw = (first_uw * f64::from(1_u32 << self.size)).min(cpu_uw * LARGEST);
        if cut_uw < first_uw {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        self.last = Some((cut_uw, drives_uw));
        Some(cut_uw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next cuts, of which the drives use this part.
    fn cuts(rebalance: &mut Rebalance, most: usize, used: f64) -> Vec<f64> {
        let mut drives_uw = 100.0;
        let next = || {
            rebalance.note(drives_uw, true, 10.0);
            let cut_uw = rebalance.next_uw(80.0, drives_uw, 5.0)?;
            drives_uw += cut_uw * used;
            Some(cut_uw)
        };
        std::iter::from_fn(next).take(most).collect()
    }

    fn loaded() -> Rebalance {
        let mut rebalance = Rebalance::default();
        rebalance.note(49.0, false, 10.0);
        rebalance
    }

    #[test]
    fn cuts_end_after_two_without_effect() {
        let mut rebalance = loaded();
        assert_eq!(cuts(&mut rebalance, 3, 0.5), [5.0, 10.0, 20.0]);
        rebalance.last = None;
        assert_eq!(cuts(&mut rebalance, 100, 0.1), [20.0, 10.0]);
        assert_eq!(cuts(&mut rebalance, 100, 0.5), [0.0; 0]);
    }

    #[test]
    fn cuts_with_effect_become_larger_and_are_limited() {
        let cuts = cuts(&mut loaded(), 100, 0.5);
        assert_eq!((cuts.len(), &cuts[..5]), (usize::from(MOST), &[5.0, 10.0, 20.0, 40.0, 40.0][..]));
    }

    #[test]
    fn they_begin_with_more_load() {
        assert_eq!(cuts(&mut Rebalance::default(), 100, 0.5), [0.0; 0], "the load was there before");
        let mut rebalance = Rebalance::default();
        rebalance.note(51.0, false, 10.0);
        assert_eq!(cuts(&mut rebalance, 100, 0.0), [0.0; 0]);
        rebalance.note(49.0, false, 10.0);
        assert_eq!(cuts(&mut rebalance, 100, 0.0), [5.0, 10.0]);
    }

    #[test]
    fn they_begin_with_a_budget_and_end_with_another() {
        let mut rebalance = Rebalance::default();
        rebalance.begin();
        assert_eq!(cuts(&mut rebalance, 3, 0.5), [5.0, 10.0, 20.0]);
        rebalance.on_budget();
        assert_eq!(cuts(&mut rebalance, 3, 0.5), [0.0; 0]);
    }

    #[test]
    fn more_load_than_under_another_budget_is_none() {
        let mut rebalance = loaded();
        rebalance.note(90.0, false, 10.0);
        rebalance.on_budget();
        assert_eq!(cuts(&mut rebalance, 100, 0.0), [0.0; 0]);
    }

    #[test]
    fn little_more_load_is_none() {
        let mut rebalance = Rebalance::default();
        rebalance.note(0.0, false, 101.0);
        rebalance.note(100.0, true, 101.0);
        assert!(!rebalance.has_trials());
        rebalance.note(102.0, true, 101.0);
        assert!(rebalance.has_trials());
        rebalance.on_budget();
        assert!(!rebalance.has_trials());
    }

    #[test]
    fn a_cut_that_is_too_small_is_not_made() {
        assert_eq!(Rebalance { left: MOST, ..loaded() }.next_uw(80.0, 0.0, 41.0), None);
    }
}
