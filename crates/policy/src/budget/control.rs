//! Control of a cap: proportional control in two stages, with the thresholds of PASS (section 3.3).
//!
//! **Terms.** The *level* is the sum of the values of the knobs of the cap. The *gain* is the power change per unit of the level.
//! **Rule.** Above the high threshold the level is cut by the whole excess over the gain, between the budget and the threshold by half of it.
//! Between the budget and the no-action threshold nothing changes; below that the level is raised by the whole distance. Both aim at the middle
//! of the no-action range. Near the budget (half of the high threshold above it, all of it below) a mean of several readings decides, since the
//! no-action range can be as narrow as a step of the sensor; farther away each reading does. PASS acts on each (3.1), which an option selects.
//! **Gain.** It is assumed at first, then learned from the last cut, changing at most fourfold each time. A raise with less effect than expected
//! is ignored, since the cap may no longer limit anything, and raises use no smaller gain than the first: the last cut may have been in a range in
//! which the cap did not limit yet. At the highest level the first gain is used again.
//! **Settling.** If a raise led over the budget, the level that it reached is remembered, and raises go half of the way to it until the distance
//! is below a step; it is retried later.

use super::meter::Estimate;

/// Thresholds and assumptions from the parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Thresholds {
    /// Distance above the budget, as a share of it.
    pub(crate) high: f64,
    /// Distance below the budget, as a share of it.
    pub(crate) no_action: f64,
    /// Assumed microwatts per unit of the level, until a cut has shown the gain.
    pub(crate) gain: f64,
    /// The same for a raise, if raises update the gain: more than is likely, so that it ends below the budget. `None` with a single mechanism,
    /// where a raise with little effect is ignored, since the cap may no longer limit anything.
    pub(crate) raise_gain: Option<f64>,
    /// The gain differs from the assumed one by at most this factor.
    pub(crate) bounds: f64,
    /// Time until a level that was too high is retried.
    pub(crate) retry_after_ns: u64,
    /// Near the budget a mean of readings decides.
    pub(crate) averages: bool,
}

impl Thresholds {
    /// The power of an estimate: near the budget a mean may be required, farther away a prediction suffices.
    pub(crate) fn power_uw(&self, budget_uw: u64, estimate: Estimate) -> Option<f64> {
        let budget_uw = budget_uw as f64;
        let near = budget_uw * (1.0 - self.high)..=budget_uw * (1.0 + self.high / 2.0);
        if self.averages && near.contains(&estimate.power_uw) {
            return estimate.mean_uw.filter(|_| estimate.is_whole);
        }
        // An uncertain prediction cuts only if power is over the budget within its error, and raises only if it is far below.
        let (least_uw, most_uw) = (estimate.power_uw - estimate.error_uw, estimate.power_uw + estimate.error_uw);
        let is_sure = estimate.is_whole || least_uw > budget_uw || most_uw < budget_uw * (1.0 - self.high);
        Some(estimate.power_uw).filter(|_| is_sure)
    }

    /// Whether power is above the high threshold.
    pub(crate) fn is_high(&self, budget_uw: u64, power_uw: f64) -> bool {
        power_uw > budget_uw as f64 * (1.0 + self.high)
    }

    /// The wanted change of power.
    pub(crate) fn change_uw(&self, budget_uw: u64, power_uw: f64) -> f64 {
        let wanted_uw = budget_uw as f64 * (1.0 - self.no_action / 2.0) - power_uw;
        match power_uw {
            power_uw if self.is_high(budget_uw, power_uw) => wanted_uw,
            power_uw if power_uw > budget_uw as f64 => wanted_uw / 2.0,
            power_uw if power_uw > budget_uw as f64 * (1.0 - self.no_action) => 0.0,
            _ => wanted_uw,
        }
    }
}

/// The range of a cap's level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) lowest: u64,
    pub(crate) highest: u64,
    /// The smallest effective change.
    pub(crate) step: u64,
}

/// Learned behaviour of a machine under its cap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Control {
    /// Microwatts a unit of the level; `None` until a cut has shown it.
    gain: Option<f64>,
    /// Level and power before the last changes in one direction.
    before: Option<(u64, f64)>,
    /// Whether the last change was a raise.
    has_raised: bool,
    /// A level that led over the budget, and the time until which it is avoided.
    too_high: Option<(u64, u64)>,
}

/// Maximum factors by which a cut changes the gain, and by which a raise lowers it.
const LEARNED: f64 = 4.0;
const LOWERED: f64 = 2.0;
/// Smallest actual or expected power change that updates the gain, as a share of the budget.
const MATERIAL: f64 = 0.01;

impl Control {
    /// The level after `level`, at which the power was estimated; `None` for no change. `may_raise` is whether the estimate is new.
    pub(crate) fn next(
        &mut self,
        limits: &Thresholds,
        budget_uw: u64,
        (level, range): (u64, Range),
        (now_ns, estimate): (u64, Estimate),
        may_raise: bool,
    ) -> Option<u64> {
        let power_uw = limits.power_uw(budget_uw, estimate)?;
        self.learn(limits, budget_uw, level, power_uw);
        let change_uw = limits.change_uw(budget_uw, power_uw);
        if change_uw < 0.0 {
            self.note_over(limits, now_ns, level);
            let cut = (-change_uw / self.gain(limits)) as u64;
            let next = level.saturating_sub(cut.max(range.step)).max(range.lowest);
            return self.change(level, next, power_uw);
        }
        if change_uw == 0.0 || !may_raise {
            return None;
        }
        // The last cut may have been in a range in which the cap did not limit yet.
        let raise = (change_uw / self.gain_or(limits.gain).max(limits.gain)) as u64;
        let next = level.saturating_add(raise.max(range.step)).min(range.highest);
        let next = self.below_too_high(now_ns, level, next, range.step);
        self.gain = self.gain.filter(|_| next < range.highest);
        self.change(level, next, power_uw)
    }

    /// Power is over the budget: if the last change was a raise, its level is remembered.
    pub(crate) fn note_over(&mut self, limits: &Thresholds, now_ns: u64, level: u64) {
        if self.has_raised {
            self.too_high = Some((level, now_ns.saturating_add(limits.retry_after_ns)));
        }
    }

    /// The gain, learned or assumed.
    pub(crate) fn gain(&self, limits: &Thresholds) -> f64 {
        self.gain_or(limits.gain).max(f64::MIN_POSITIVE)
    }

    /// The learned gain, else `assumed`.
    pub(crate) fn gain_or(&self, assumed: f64) -> f64 {
        self.gain.unwrap_or(assumed)
    }

    /// Updates the gain by the last change.
    pub(crate) fn learn(&mut self, limits: &Thresholds, budget_uw: u64, level: u64, power_uw: f64) {
        let Some((level_before, power_before_uw)) = self.before else { return };
        let change = level as f64 - level_before as f64;
        let gain = self.gain_or(limits.raise_gain.filter(|_| change > 0.0).unwrap_or(limits.gain));
        let moved_uw = power_uw - power_before_uw;
        if change == 0.0 || (change * gain).abs().max(moved_uw.abs()) < budget_uw as f64 * MATERIAL {
            return; // wait for further changes in this direction
        }
        self.before = None;
        if change > 0.0 && moved_uw / change < gain && limits.raise_gain.is_none() {
            return;
        }
        let lowest = if change > 0.0 { gain / LOWERED } else { gain / LEARNED };
        let measured_gain = (moved_uw / change).clamp(lowest, gain * LEARNED);
        self.gain = Some(measured_gain.clamp(limits.gain / limits.bounds, limits.gain * limits.bounds));
    }

    /// Limits `next` to half of the way to a remembered level that was too high.
    pub(crate) fn below_too_high(&mut self, now_ns: u64, level: u64, next: u64, step: u64) -> u64 {
        self.too_high.take_if(|(too_high, until_ns)| now_ns >= *until_ns || *too_high <= level);
        let Some((too_high, _)) = self.too_high else { return next };
        let half = (too_high - level) / 2;
        if half < step { level } else { next.min(level + half) }
    }

    fn change(&mut self, level: u64, next: u64, power_uw: f64) -> Option<u64> {
        if next == level {
            return None;
        }
        self.note_change(level, next, power_uw);
        Some(next)
    }

    /// Records a change of the level, and the power before it.
    pub(crate) fn note_change(&mut self, level: u64, next: u64, power_uw: f64) {
        self.has_raised = next > level;
        let goes_on = |&(before, _): &(u64, f64)| (before > level) == (level > next);
        self.before = self.before.filter(goes_on).or(Some((level, power_uw)));
    }

    /// A new budget: forgets levels that were too high.
    pub(crate) fn on_budget(&mut self) {
        self.too_high = None;
    }

    /// The last change was not applied as commanded: the next estimate does not update the gain.
    pub(crate) fn forget_change(&mut self) {
        self.before = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Thresholds = Thresholds {
        high: 0.02,
        no_action: 0.01,
        gain: 1.0,
        raise_gain: None,
        bounds: 16.0,
        retry_after_ns: 300_000_000_000,
        averages: true,
    };
    const BUDGET: u64 = 300_000_000;
    /// A range equal to the budget at a gain of 1.
    const RANGE: Range = Range { lowest: 0, highest: BUDGET, step: 1_000_000 };

    fn at(power_w: f64) -> Estimate {
        Estimate { power_uw: power_w * 1e6, is_whole: true, error_uw: 0.0, mean_uw: Some(power_w * 1e6) }
    }

    fn next(control: &mut Control, level: u64, power_w: f64) -> Option<u64> {
        control.next(&LIMITS, BUDGET, (level * 1_000_000, RANGE), (0, at(power_w)), true)
    }

    fn from_200(power_w: f64) -> Option<f64> {
        next(&mut Control::default(), 200, power_w).map(|level| level as f64 / 1e6)
    }

    #[test]
    fn the_stages_are_those_of_pass() {
        assert_eq!(from_200(330.0), Some(200.0 - 31.5), "above +2 %: the whole excess");
        assert_eq!(from_200(304.0), Some(200.0 - 2.75), "above the budget: half of it");
        assert_eq!(from_200(300.1), Some(199.0), "at least a step");
        assert_eq!([300.0, 297.1].map(from_200), [None; 2], "down to -1 %: nothing");
        assert_eq!(from_200(290.0), Some(208.5), "below: the whole distance");
        assert_eq!(from_200(0.0), Some(300.0));
    }

    #[test]
    fn predictions_count_far_from_the_budget_and_old_estimates_never_raise() {
        let mut control = Control::default();
        let mut with =
            |estimate, may_raise| control.next(&LIMITS, BUDGET, (200_000_000, RANGE), (0, estimate), may_raise);
        let predicted = |power_w| Estimate { is_whole: false, mean_uw: None, ..at(power_w) };
        assert!(with(predicted(330.0), false).is_some());
        assert_eq!(with(predicted(295.0), true), None);
        assert!(with(predicted(250.0), true).is_some());
        assert_eq!(with(at(250.0), false), None);
    }

    #[test]
    fn near_the_budget_the_mean_decides() {
        let estimate = |mean_w: Option<f64>| Estimate { mean_uw: mean_w.map(|w| w * 1e6), ..at(302.9) };
        let cut = |mean_w| Control::default().next(&LIMITS, BUDGET, (200_000_000, RANGE), (0, estimate(mean_w)), true);
        assert_eq!([None, Some(299.0)].map(cut), [None; 2]);
        assert_eq!(cut(Some(302.5)), Some(198_000_000));
        let each = Thresholds { averages: false, ..LIMITS };
        let level = (200_000_000, RANGE);
        let cut = Control::default().next(&each, BUDGET, level, (0, estimate(None)), true);
        assert_eq!(cut, Some(197_800_000), "half of 302.9 W less 298.5 W");
    }

    #[test]
    fn a_cut_shows_the_gain_and_the_next_change_uses_it() {
        let mut control = Control::default();
        assert_eq!(next(&mut control, 200, 330.0), Some(168_500_000));
        // 31.5 W of the cap have moved 63 W: a gain of 2.
        let level = control.next(&LIMITS, BUDGET, (168_500_000, RANGE), (0, at(267.0)), true);
        assert_eq!(level, Some(168_500_000 + 15_750_000));
    }

    /// Each of the first cuts is too small to have an effect.
    #[test]
    fn a_cap_far_above_the_used_range_takes_few_cuts() {
        let (mut control, mut level, mut cuts) = (Control::default(), 300, 0);
        while level > 100 {
            let next = next(&mut control, level, 301.0).expect("above the budget");
            (level, cuts) = (next / 1_000_000, cuts + 1);
        }
        assert!(cuts < 20, "{cuts}");
    }

    #[test]
    fn a_raise_without_effect_leaves_the_gain() {
        let mut control = Control { gain: Some(1.0), ..Control::default() };
        assert_eq!(next(&mut control, 100, 200.0), Some(198_500_000));
        control.next(&LIMITS, BUDGET, (198_500_000, RANGE), (0, at(200.0)), true);
        assert!(control.gain.is_none_or(|gain| gain == 1.0), "{control:?}");
    }

    #[test]
    fn a_level_that_led_over_the_budget_is_approached_by_halves() {
        let mut control = Control::default();
        // A step of power between 100 and 120: no level is in the no-action range.
        let power_w = |level: u64| if level > 110_000_000 { 303.0 } else { 290.0 };
        let (mut level, mut changes) = (100_000_000, 0);
        for second in 0..200 {
            let now_ns = second * 1_000_000_000;
            let estimate = at(power_w(level));
            if let Some(next) = control.next(&LIMITS, BUDGET, (level, RANGE), (now_ns, estimate), true) {
                (level, changes) = (next, changes + 1);
            }
        }
        assert!(changes < 20 && power_w(level) < 300.0, "{changes} changes, at {level}");
    }
}
