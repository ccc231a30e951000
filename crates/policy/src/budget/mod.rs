//! A power budget held with one mechanism: what `rapl-only`, `cpu-bandwidth`, `cpu-jailing` and `ssd-bandwidth` share (PASS, sections 2.3
//! and 5).
//!
//! **Rule.** While there is a budget ([`pilotlight_plant::Goals`]), power is read at each interval, and the cap follows it as `control` says.
//! Nothing is set before a window has been measured, for a third at least, under the last setting (`meter`). The
//! machine begins uncapped, as PASS does; without a budget no cap is left. All else is up to an inner policy (`crate::limit`), `static` at first.
//! **Faults.** Without a new reading the cap is not raised. Once the last good reading is older than `blind_after` the cap goes to its lowest
//! value, since it is not known which higher one would hold the budget. A refused knob is left alone for 10 s, then twice as long
//! each time (`caps`).
//!
//! **Properties** (`tests/budget.rs`). The cap is lifted with the budget; while the sensor is dead no command raises it; at constant load
//! commands end. With a budget each interval is needed; without one none, from a second after the cap was lifted.

pub(crate) mod actuator;
pub(crate) mod caps;
pub(crate) mod control;
pub(crate) mod meter;
pub(crate) mod parameters;

use pilotlight_plant::{
    Capabilities, Command, Goal, Goals, Kind, KnobId, NEVER, ReadingId, Refusal, Sample, Start, Unreachable,
    Unsupported, View,
};

use self::actuator::Actuator;
pub use self::actuator::Means;
use self::control::Control;
use self::meter::Meter;
pub use self::parameters::{Common, Parameters};
use crate::limit::Limiter;

/// A policy that holds a budget with one mechanism.
#[derive(Clone, Copy, Debug)]
pub struct Mechanism {
    /// The name by which an operator chooses the policy.
    pub name: &'static str,
    /// What it caps.
    pub means: Means,
    /// What a plant lacks that has none, and what would bring one.
    pub missing: [&'static str; 2],
    /// Share of the budget that the whole range is assumed to move, in millionths.
    pub span_ppm: u32,
}

/// Of what the budget is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// The whole server.
    Server,
    /// Its CPU packages together.
    Cpu,
}

impl Domain {
    /// As an operator writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Cpu => "cpu",
        }
    }

    pub(crate) fn read(text: &str) -> Option<Self> {
        [Self::Server, Self::Cpu].into_iter().find(|domain| domain.name() == text)
    }

    /// The sensors of it.
    pub(crate) fn meter(self, policy: &'static str, capabilities: &Capabilities) -> Result<Meter, Unsupported> {
        let [what, remedy] = match self {
            Self::Server => [
                "a reading of the server's power",
                "it takes a sensor of the whole system, such as the firmware's power meter; or domain = \"cpu\" for a \
                 budget of the CPU packages",
            ],
            Self::Cpu => [
                "a reading of the power of the CPU packages",
                "it takes RAPL counters that the server may read; or domain = \"server\"",
            ],
        };
        Meter::find(self, capabilities).ok_or(Unsupported { policy, what, remedy })
    }
}

/// A plant does not have the period of the CPU quota that is asked for.
pub(crate) fn no_period(policy: &'static str) -> Unsupported {
    let [what, remedy] =
        ["this period of the CPU quota", "set quota_period to found, or to one that the plant has (100ms or 1s)"];
    Unsupported { policy, what, remedy }
}

/// What holds the budget.
#[derive(Debug)]
pub(crate) struct SingleKnob {
    mechanism: &'static Mechanism,
    parameters: Parameters,
    meter: Meter,
    caps: Actuator,
    control: Control,
    budget_uw: Option<u64>,
    /// Since when there has been a budget.
    since_ns: u64,
    is_blind: bool,
    /// Power with the cap at its lowest, where that is over the budget.
    unreachable_uw: Option<u64>,
    changes: u64,
    refused: u64,
}

/// How long a refusal of the last setting may take, in nanoseconds: the plant is asked later than the policy commands.
pub(crate) const SETTLES_NS: u64 = 1_000_000_000;

impl SingleKnob {
    /// With these parameters.
    #[must_use]
    pub(crate) fn new(mechanism: &'static Mechanism, parameters: Parameters) -> Self {
        Self {
            mechanism,
            parameters,
            meter: Meter::default(),
            caps: Actuator::default(),
            control: Control::default(),
            budget_uw: None,
            since_ns: 0,
            is_blind: false,
            unreachable_uw: None,
            changes: 0,
            refused: 0,
        }
    }

    /// What follows from what is known; `is_new` is whether that is an estimate that was not decided on before.
    fn decide(&mut self, now_ns: u64, is_new: bool, out: &mut Vec<Command>) {
        let Some(budget_uw) = self.budget_uw else {
            if self.caps.lift(now_ns, out) {
                self.changes += 1;
            }
            return;
        };
        let range = self.caps.range();
        let known_ns = self.meter.last(now_ns).map_or(self.since_ns, |(_, age_ns)| now_ns - age_ns);
        self.is_blind = now_ns.saturating_sub(known_ns.max(self.since_ns)) > self.parameters.common.blind_after_ns;
        let level = self.caps.level();
        let lowest = self.meter.estimate().filter(|estimate| estimate.is_whole && level <= range.lowest);
        let lowest_uw = lowest.map(|estimate| estimate.mean_uw.unwrap_or(estimate.power_uw) as u64);
        self.unreachable_uw = lowest_uw.filter(|&uw| uw > budget_uw);
        let next = match self.meter.estimate() {
            _ if self.is_blind => Some(range.lowest).filter(|&lowest| lowest < level),
            None => None,
            Some(estimate) => {
                let thresholds = self.parameters.thresholds(budget_uw, range);
                self.control.next(&thresholds, budget_uw, (level, range), (now_ns, estimate), is_new)
            }
        };
        let Some(next) = next else { return };
        if self.caps.set(now_ns, next, out) {
            self.changes += 1;
            self.meter.note_setting(self.caps.holds_ns());
        }
    }

    fn adopt(&mut self, now_ns: u64, goals: &Goals) {
        if goals.budget_uw == self.budget_uw {
            return;
        }
        if self.budget_uw.is_none() || goals.budget_uw.is_none() {
            self.meter.reset(); // readings of an earlier budget
            self.since_ns = now_ns;
        }
        self.budget_uw = goals.budget_uw;
        (self.is_blind, self.unreachable_uw) = (false, None);
        self.control.on_budget();
    }

    fn state(&self) -> &'static str {
        match self.budget_uw {
            _ if self.caps.is_empty() => "no knob can be set",
            None => "no budget",
            Some(_) if self.is_blind => "no reading: the cap is the lowest",
            Some(_) if self.unreachable_uw.is_some() => "unreachable: over the budget with the cap at its lowest",
            Some(_) if self.caps.level() <= self.caps.range().lowest => "the cap is the lowest",
            Some(_) if self.caps.level() >= self.caps.range().highest => "no cap is needed",
            Some(_) => "capped",
        }
    }
}

impl Limiter for SingleKnob {
    fn name(&self) -> &'static str {
        self.mechanism.name
    }

    fn kinds(&self) -> &'static [Kind] {
        self.mechanism.means.kinds()
    }

    fn interval_ns(&self) -> u64 {
        self.parameters.common.interval_ns
    }

    fn wanted_interval_ns(&self) -> Option<u64> {
        (self.budget_uw.is_some() || self.changes > 0).then_some(self.parameters.common.interval_ns)
    }

    fn readings(&self) -> Vec<ReadingId> {
        if self.budget_uw.is_some() { self.meter.ids().to_vec() } else { Vec::new() }
    }

    fn unreachable(&self) -> Option<Unreachable> {
        self.unreachable_uw.map(|reached| Unreachable { goal: Goal::Budget, reached })
    }

    fn start(&mut self, start: &Start<'_>, _out: &mut Vec<Command>) -> Result<(), Unsupported> {
        let policy = self.mechanism.name;
        let caps = self.mechanism.means.find(start, self.parameters.own.period_ns);
        if caps.is_empty() {
            let [what, remedy] = self.mechanism.missing;
            return Err(Unsupported { policy, what, remedy });
        }
        if caps.lacks_period() {
            return Err(no_period(policy));
        }
        (self.caps, self.meter) = (caps, self.parameters.common.domain.meter(policy, start.capabilities)?);
        self.adopt(start.now_ns, start.goals);
        Ok(())
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) {
        let is_new = self.budget_uw.is_some() && self.meter.read(sample);
        self.decide(sample.now_ns, is_new, out);
    }

    /// A budget that is lifted, or lower than the last estimate, takes effect at once.
    fn on_goals(&mut self, now_ns: u64, goals: &Goals, out: &mut Vec<Command>) {
        self.adopt(now_ns, goals);
        self.decide(now_ns, false, out);
    }

    fn on_plant(&mut self, now_ns: u64, capabilities: &Capabilities, out: &mut Vec<Command>) {
        self.caps.replace(now_ns, capabilities, out);
        self.meter.replace_sources(Meter::find(self.parameters.common.domain, capabilities).unwrap_or_default());
        self.control.forget_change();
        self.decide(now_ns, false, out);
    }

    fn on_refused(&mut self, now_ns: u64, set: (KnobId, u64), refusal: Refusal) -> bool {
        let is_own = self.caps.on_refused(now_ns, set, refusal);
        if is_own {
            self.refused += 1;
            self.control.forget_change();
        }
        is_own
    }

    /// With a budget at each interval, without one as long as a cap may be left.
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

    fn view(&self) -> View {
        let watts = |uw: u64| format!("{:.1}", uw as f64 / 1e6);
        let last = self.meter.last(u64::MAX).map_or("none".to_owned(), |(uw, _)| watts(uw));
        let (level, range) = (self.caps.level(), self.caps.range());
        let share = 100.0 * level as f64 / range.highest.max(1) as f64;
        vec![
            ("budget W", self.budget_uw.map_or("none".to_owned(), watts)),
            ("last good power reading W", last),
            ("cap, % of its highest value", format!("{share:.1}")),
            ("state", self.state().to_owned()),
            ("cap changes", self.changes.to_string()),
            ("commands refused", self.refused.to_string()),
        ]
    }
}
