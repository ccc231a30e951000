//! A limiter that enforces a power budget with one mechanism; a [`Rule`] decides the level of the cap.

use pilotlight_plant::{
    Capabilities, Command, Goal, Goals, Kind, KnobId, NEVER, ReadingId, Refusal, Sample, Start, Unreachable,
    Unsupported, View,
};

use super::actuator::Actuator;
use super::control::Range;
use super::meter::{Estimate, Meter};
use super::{Common, Mechanism, SETTLES_NS, no_period};
use crate::limit::Limiter;

/// Decides the level of a cap.
pub(crate) trait Rule: Send {
    /// Whether readings are corrected for the time before the last setting took effect.
    const CORRECTS: bool;
    /// The next level for an estimate of power; `None` for no change. `is_new` is whether the estimate was not used before.
    fn next(&mut self, budget_uw: u64, at: (u64, Range), seen: (u64, Estimate), is_new: bool) -> Option<u64>;
    /// The lowest level that it sets.
    fn lowest(&self, range: Range) -> u64 {
        range.lowest
    }
    /// The budget has changed.
    fn on_budget(&mut self) {}
    /// The last change was not applied as commanded.
    fn forget_change(&mut self) {}
}

/// The limiter.
#[derive(Debug)]
pub(crate) struct SingleKnob<R> {
    mechanism: &'static Mechanism,
    common: Common,
    /// Period of the CPU quota.
    period_ns: Option<u64>,
    rule: R,
    meter: Meter,
    caps: Actuator,
    budget_uw: Option<u64>,
    /// Start of the budget.
    since_ns: u64,
    is_stale: bool,
    /// Power with the lowest cap, if that is over the budget.
    unreachable_uw: Option<u64>,
    changes: u64,
    refused: u64,
}

impl<R: Rule> SingleKnob<R> {
    /// With this rule, and this period of the CPU quota.
    pub(crate) fn new(mechanism: &'static Mechanism, common: Common, period_ns: Option<u64>, rule: R) -> Self {
        Self {
            mechanism,
            common,
            period_ns,
            rule,
            meter: Meter::default(),
            caps: Actuator::default(),
            budget_uw: None,
            since_ns: 0,
            is_stale: false,
            unreachable_uw: None,
            changes: 0,
            refused: 0,
        }
    }

    /// Decides by the last estimate; `is_new` is whether it was not used before.
    fn decide(&mut self, now_ns: u64, is_new: bool, out: &mut Vec<Command>) {
        self.caps.allow_raises(is_new || self.budget_uw.is_none());
        let Some(budget_uw) = self.budget_uw else {
            if self.caps.lift(now_ns, out) {
                self.changes += 1;
            }
            return;
        };
        let (range, lowest) = (self.caps.range(), self.lowest());
        let known_ns = self.meter.last(now_ns).map_or(self.since_ns, |(_, age_ns)| now_ns - age_ns);
        self.is_stale = now_ns.saturating_sub(known_ns.max(self.since_ns)) > self.common.stale_after_ns;
        let level = self.caps.level();
        let at_lowest = self.meter.estimate().filter(|estimate| estimate.is_whole && level <= lowest);
        let lowest_uw = at_lowest.map(|estimate| estimate.mean_uw.unwrap_or(estimate.power_uw) as u64);
        self.unreachable_uw = lowest_uw.filter(|&uw| uw > budget_uw);
        let next = match self.meter.estimate() {
            _ if self.is_stale => Some(lowest).filter(|&lowest| lowest < level),
            None => None,
            Some(estimate) => self.rule.next(budget_uw, (level, range), (now_ns, estimate), is_new),
        };
        let Some(next) = next else { return };
        if self.caps.set(now_ns, next, out) {
            self.changes += 1;
            self.meter.note_setting(self.caps.holds_ns());
        }
    }

    /// The lowest level that it sets.
    fn lowest(&self) -> u64 {
        let range = self.caps.range();
        self.rule.lowest(range).max(range.lowest)
    }

    fn adopt(&mut self, now_ns: u64, goals: &Goals) {
        if goals.budget_uw == self.budget_uw {
            return;
        }
        if self.budget_uw.is_none() || goals.budget_uw.is_none() {
            self.meter.reset(); // readings under an earlier budget
            self.since_ns = now_ns;
        }
        self.budget_uw = goals.budget_uw;
        (self.is_stale, self.unreachable_uw) = (false, None);
        self.rule.on_budget();
    }

    fn state(&self) -> &'static str {
        match self.budget_uw {
            _ if self.caps.is_empty() => "no knob can be set",
            None => "no budget",
            Some(_) if self.is_stale => "no reading: the cap is the lowest",
            Some(_) if self.unreachable_uw.is_some() => "unreachable: over the budget with the cap at its lowest",
            Some(_) if self.caps.level() <= self.lowest() => "the cap is the lowest",
            Some(_) if self.caps.level() >= self.caps.range().highest => "no cap is needed",
            Some(_) => "capped",
        }
    }
}

impl<R: Rule> Limiter for SingleKnob<R> {
    fn name(&self) -> &'static str {
        self.mechanism.name
    }

    fn kinds(&self) -> &'static [Kind] {
        self.mechanism.cap.kinds()
    }

    fn interval_ns(&self) -> u64 {
        self.common.interval_ns
    }

    fn wanted_interval_ns(&self) -> Option<u64> {
        (self.budget_uw.is_some() || self.changes > 0).then_some(self.common.interval_ns)
    }

    fn readings(&self) -> Vec<ReadingId> {
        if self.budget_uw.is_some() { self.meter.ids().to_vec() } else { Vec::new() }
    }

    fn unreachable(&self) -> Option<Unreachable> {
        self.unreachable_uw.map(|reached| Unreachable { goal: Goal::Budget, reached })
    }

    fn start(&mut self, start: &Start<'_>, _out: &mut Vec<Command>) -> Result<(), Unsupported> {
        let policy = self.mechanism.name;
        let caps = self.mechanism.cap.find(start, self.period_ns);
        if caps.is_empty() {
            let [what, remedy] = self.mechanism.missing;
            return Err(Unsupported { policy, feature: what, remedy });
        }
        if caps.lacks_period() {
            return Err(no_period(policy));
        }
        let meter = self.common.domain.meter(policy, start.capabilities)?;
        (self.caps, self.meter) = (caps, if R::CORRECTS { meter } else { meter.uncorrected() });
        self.adopt(start.now_ns, start.goals);
        Ok(())
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) {
        let is_new = self.budget_uw.is_some() && self.meter.read(sample);
        self.decide(sample.now_ns, is_new, out);
    }

    /// A budget that is removed, or lower than the last estimate, takes effect at once.
    fn on_goals(&mut self, now_ns: u64, goals: &Goals, out: &mut Vec<Command>) {
        self.adopt(now_ns, goals);
        self.decide(now_ns, false, out);
    }

    fn on_plant(&mut self, now_ns: u64, capabilities: &Capabilities, out: &mut Vec<Command>) {
        self.caps.allow_raises(self.budget_uw.is_none());
        self.caps.replace(now_ns, capabilities, out);
        self.meter.replace_sources(Meter::find(self.common.domain, capabilities).unwrap_or_default());
        self.rule.forget_change();
        self.decide(now_ns, false, out);
    }

    fn on_refused(&mut self, now_ns: u64, set: (KnobId, u64), refusal: Refusal) -> bool {
        let is_own = self.caps.on_refused(now_ns, set, refusal);
        if is_own {
            self.refused += 1;
            self.rule.forget_change();
        }
        is_own
    }

    /// With a budget at each interval, without one until the cap is lifted.
    fn acts_ns(&self, now_ns: u64) -> u64 {
        if self.budget_uw.is_some() {
            return 0;
        }
        let settled_ns = self.caps.holds_ns().saturating_add(SETTLES_NS);
        let is_settled = self.changes == 0 || now_ns >= settled_ns;
        self.caps.lifts_ns().unwrap_or(if is_settled { NEVER } else { 0 })
    }

    fn cores(&self) -> usize {
        self.caps.cores()
    }

    fn limited(&self) -> Option<&'static str> {
        let is_limited = self.budget_uw.is_some() && self.caps.level() < self.caps.range().highest;
        is_limited.then_some(self.mechanism.name)
    }

    fn view(&self) -> View {
        let watts = |uw: u64| format!("{:.1}", uw as f64 / 1e6);
        let (level, range) = (self.caps.level(), self.caps.range());
        let share = 100.0 * level as f64 / range.highest.max(1) as f64;
        vec![
            ("budget W", self.budget_uw.map_or("none".to_owned(), watts)),
            ("cap, % of its highest value", format!("{share:.1}")),
            ("budget_state", self.state().to_owned()),
            ("cap changes", self.changes.to_string()),
            ("commands refused", self.refused.to_string()),
        ]
    }
}
