//! `thunderbolt`: a power budget held by random unthrottling and multiplicative decrease of CPU time (RUMD of Google's Thunderbolt, OSDI '20;
//! the baseline of PASS, section 5), around the dynamic scheduler.
//!
//! **Rule.** At each new reading: above the hard threshold the quota of CPU time is multiplied by the hard factor, above the soft one by the soft
//! factor; below both it is raised by a step with some chance, otherwise it stays. Readings are taken as they are, late and averaged.
//! **Rates** (errata 25). PASS prints steps of 5 points at a chance of 20 % a second and a floor of 0.2 %; its published controller has 2
//! points at 50 % and a floor of 0.5 %. Thresholds and factors are those of the published controller for both: the paper prints none.
//! **Chance.** A policy has no random source: numbers follow from the parameter `seed` (SplitMix64).
//! **Faults** as in [`crate::budget`]: without a reading nothing is raised, after `blind_after` the quota is at its floor.

use pilotlight_plant::{
    Capabilities, Command, Goal, Goals, Kind, KnobId, NEVER, ReadingId, Refusal, Sample, Start, Unreachable,
    Unsupported, View,
};

use crate::budget::caps::{Caps, Selection};
use crate::budget::meter::Meter;
use crate::budget::parameters::{BASIC, COMMON, period, quota_period, set_period};
use crate::budget::{Common, SETTLES_NS, no_period};
use crate::limit::Limiter;
use crate::parameter::{self, PERCENT, Parameter, ParameterError, Setting, put, text};

/// The name by which an operator chooses it.
pub const NAME: &str = "thunderbolt";

/// All that can be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// As for every policy with a budget, without the thresholds of PASS's zones.
    pub common: Common,
    /// Its own.
    pub rates: Rates,
}

/// How it throttles; shares are in millionths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Of all CPU time, added at a raise.
    pub step_ppm: u32,
    /// That a reading raises.
    pub chance_ppm: u32,
    /// Of all CPU time, never less.
    pub floor_ppm: u32,
    /// Of the budget, and of the quota that is left above it.
    pub soft_ppm: (u32, u32),
    /// The same, farther up.
    pub hard_ppm: (u32, u32),
    /// Of the random numbers.
    pub seed: u64,
    /// Period of the CPU quota in nanoseconds; `None` as it was found.
    pub period_ns: Option<u64>,
}

impl Rates {
    /// As PASS prints them.
    const PAPER: Self = Self {
        step_ppm: 50_000,
        chance_ppm: 200_000,
        floor_ppm: 2_000,
        soft_ppm: (960_000, 750_000),
        hard_ppm: (980_000, 10_000),
        seed: 1,
        period_ns: None,
    };
    /// As its published controller has them.
    const ARTIFACT: Self = Self { step_ppm: 20_000, chance_ppm: 500_000, floor_ppm: 5_000, ..Self::PAPER };
    const NAMED: [(&str, Self); 2] = [("paper", Self::PAPER), ("artifact", Self::ARTIFACT)];

    /// These, with what belongs to neither set as it is in `other`.
    fn with_own(self, other: &Self) -> Self {
        Self { seed: other.seed, period_ns: other.period_ns, ..self }
    }
}

const OF_BUDGET: &str = "a share of the budget from 0% to 100%";
const OF_QUOTA: &str = "a share of the quota from 0% to 100%";

const RATES: [Parameter<Rates>; 10] = [
    Parameter {
        key: "rates",
        meaning: "step, chance and floor as PASS prints them, or as its published controller has them",
        allowed: "paper or artifact; step, chance and floor can be set after it",
        get: |p| {
            let named = Rates::NAMED.into_iter().find(|(_, rates)| rates.clone().with_own(p) == *p);
            named.map_or("own", |(name, _)| name).to_owned()
        },
        set: |p, v| {
            let rates = Rates::NAMED.into_iter().find(|(name, _)| *name == v).map(|(_, rates)| rates.with_own(p));
            put(p, rates)
        },
    },
    Parameter {
        key: "step",
        meaning: "CPU time added at a raise, of all cores (PASS 5: 5%; its controller: 2%)",
        allowed: PERCENT,
        get: |p| text::in_percent(p.step_ppm),
        set: |p, v| put(&mut p.step_ppm, text::percent(v)),
    },
    Parameter {
        key: "chance",
        meaning: "chance that a reading raises (PASS 5: 20%; its controller: 50%)",
        allowed: "a chance from 0% to 100%",
        get: |p| text::in_percent(p.chance_ppm),
        set: |p, v| put(&mut p.chance_ppm, text::percent(v)),
    },
    Parameter {
        key: "floor",
        meaning: "CPU time that is always left, of all cores (PASS 5.7: 0.2%; its controller: 0.5%)",
        allowed: PERCENT,
        get: |p| text::in_percent(p.floor_ppm),
        set: |p, v| put(&mut p.floor_ppm, text::percent(v)),
    },
    Parameter {
        key: "soft_threshold",
        meaning: "power from which the quota is multiplied by soft (the published controller: 96%)",
        allowed: OF_BUDGET,
        get: |p| text::in_percent(p.soft_ppm.0),
        set: |p, v| put(&mut p.soft_ppm.0, text::percent(v)),
    },
    Parameter {
        key: "soft",
        meaning: "what is left of the quota above soft_threshold (the published controller: 75%)",
        allowed: OF_QUOTA,
        get: |p| text::in_percent(p.soft_ppm.1),
        set: |p, v| put(&mut p.soft_ppm.1, text::percent(v)),
    },
    Parameter {
        key: "hard_threshold",
        meaning: "power from which the quota is multiplied by hard (the published controller: 98%)",
        allowed: OF_BUDGET,
        get: |p| text::in_percent(p.hard_ppm.0),
        set: |p, v| put(&mut p.hard_ppm.0, text::percent(v)),
    },
    Parameter {
        key: "hard",
        meaning: "what is left of the quota above hard_threshold (the published controller: 1%)",
        allowed: OF_QUOTA,
        get: |p| text::in_percent(p.hard_ppm.1),
        set: |p, v| put(&mut p.hard_ppm.1, text::percent(v)),
    },
    Parameter {
        key: "seed",
        meaning: "seed of the random numbers",
        allowed: "a whole number",
        get: |p| p.seed.to_string(),
        set: |p, v| put(&mut p.seed, v.parse().ok()),
    },
    quota_period(|p| period(p.period_ns), |p, v| set_period(&mut p.period_ns, v)),
];

impl Default for Parameters {
    /// The paper's, around the dynamic scheduler.
    fn default() -> Self {
        Self { common: Common { inner: "dynamic", ..Common::default() }, rates: Rates::PAPER }
    }
}

impl Parameters {
    /// With these set, in this order.
    ///
    /// # Errors
    /// If there is no such parameter, or a value is not allowed.
    pub fn read(settings: &[(&str, &str)]) -> Result<Self, ParameterError> {
        let mut values = Self::default();
        for setting in settings {
            let Self { common, rates } = &mut values;
            parameter::set_either(NAME, (&COMMON[..BASIC], common), (&RATES, rates), *setting)?;
        }
        Ok(values)
    }

    /// All of them.
    #[must_use]
    pub fn list(&self) -> Vec<Setting> {
        let mut list = parameter::list(&COMMON[..BASIC], &self.common);
        list.extend(parameter::list(&RATES, &self.rates));
        list
    }
}

/// The controller.
#[derive(Debug)]
pub(crate) struct Thunderbolt {
    parameters: Parameters,
    meter: Meter,
    caps: Caps,
    budget_uw: Option<u64>,
    /// Since when there has been a budget.
    since_ns: u64,
    is_blind: bool,
    /// Power with the quota at its floor, where that is over the budget.
    unreachable_uw: Option<u64>,
    random: u64,
    changes: u64,
    refused: u64,
}

impl Thunderbolt {
    pub(crate) fn new(parameters: Parameters) -> Self {
        Self {
            random: parameters.rates.seed,
            parameters,
            meter: Meter::default(),
            caps: Caps::default(),
            budget_uw: None,
            since_ns: 0,
            is_blind: false,
            unreachable_uw: None,
            changes: 0,
            refused: 0,
        }
    }

    /// Whether something of this chance happens.
    fn happens(&mut self, chance_ppm: u32) -> bool {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % 1_000_000 < u64::from(chance_ppm)
    }

    /// The quota that follows a reading.
    fn follow(&mut self, budget_uw: u64, power_uw: u64) -> u64 {
        let (level, all) = (self.caps.level(), self.caps.range().highest);
        let rates = self.parameters.rates.clone();
        let share = |of: u64, ppm: u32| (u128::from(of) * u128::from(ppm) / 1_000_000) as u64;
        let is_raised = self.happens(rates.chance_ppm);
        let next = if power_uw > share(budget_uw, rates.hard_ppm.0) {
            share(level, rates.hard_ppm.1)
        } else if power_uw > share(budget_uw, rates.soft_ppm.0) {
            share(level, rates.soft_ppm.1)
        } else if is_raised {
            level + share(all, rates.step_ppm)
        } else {
            level
        };
        next.max(share(all, rates.floor_ppm))
    }

    fn set(&mut self, now_ns: u64, level: u64, out: &mut Vec<Command>) {
        self.changes += u64::from(self.caps.set(now_ns, level, out));
    }

    fn adopt(&mut self, now_ns: u64, goals: &Goals) {
        if self.budget_uw.is_none() || goals.budget_uw.is_none() {
            self.meter.reset(); // readings of an earlier budget
            self.since_ns = now_ns;
        }
        self.budget_uw = goals.budget_uw;
        self.unreachable_uw = None;
    }
}

impl Limiter for Thunderbolt {
    fn name(&self) -> &'static str {
        NAME
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::QuotaPpm, Kind::QuotaPeriodNs]
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
        self.caps = Caps::find(Selection::quota(self.parameters.rates.period_ns), start.capabilities);
        if self.caps.is_empty() {
            let [what, remedy] = crate::cpu_bandwidth::CPU_BANDWIDTH.missing;
            return Err(Unsupported { policy: NAME, what, remedy });
        }
        if self.caps.lacks_period() {
            return Err(no_period(NAME));
        }
        self.meter = self.parameters.common.domain.meter(NAME, start.capabilities)?;
        self.adopt(start.now_ns, start.goals);
        Ok(())
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) {
        let now_ns = sample.now_ns;
        let Some(budget_uw) = self.budget_uw else {
            self.changes += u64::from(self.caps.lift(now_ns, out));
            return;
        };
        let is_new = self.meter.read(sample);
        let known = self.meter.last(now_ns);
        let known_ns = known.map_or(self.since_ns, |(_, age_ns)| now_ns - age_ns).max(self.since_ns);
        self.is_blind = now_ns.saturating_sub(known_ns) > self.parameters.common.blind_after_ns;
        match known {
            _ if self.is_blind => self.set(now_ns, self.lowest_quota(), out),
            Some((power_uw, age_ns)) if is_new => {
                let held_ns = self.caps.holds_ns().saturating_add(self.meter.window_ns());
                let is_lowest = self.caps.level() <= self.lowest_quota() && now_ns - age_ns >= held_ns;
                self.unreachable_uw = Some(power_uw).filter(|&uw| is_lowest && uw > budget_uw);
                let next = self.follow(budget_uw, power_uw);
                self.set(now_ns, next, out);
            }
            _ => {}
        }
    }

    /// A budget that is lifted takes effect at once, another one with the next reading.
    fn on_goals(&mut self, now_ns: u64, goals: &Goals, out: &mut Vec<Command>) {
        self.adopt(now_ns, goals);
        if self.budget_uw.is_none() {
            self.changes += u64::from(self.caps.lift(now_ns, out));
        }
    }

    fn on_plant(&mut self, now_ns: u64, capabilities: &Capabilities, out: &mut Vec<Command>) {
        self.caps.replace(now_ns, capabilities, out);
        self.meter.replace_sources(Meter::find(self.parameters.common.domain, capabilities).unwrap_or_default());
    }

    fn on_refused(&mut self, now_ns: u64, set: (KnobId, u64), refusal: Refusal) -> bool {
        let is_own = self.caps.on_refused(now_ns, set, refusal);
        self.refused += u64::from(is_own);
        is_own
    }

    fn acts_ns(&self, now_ns: u64) -> u64 {
        if self.budget_uw.is_some() {
            return 0;
        }
        let is_settled = self.changes == 0 || now_ns >= self.caps.holds_ns().saturating_add(SETTLES_NS);
        self.caps.lifts_ns().unwrap_or(if is_settled { NEVER } else { 0 })
    }

    fn cores(&self) -> usize {
        usize::MAX
    }

    fn view(&self) -> View {
        let watts = |uw: u64| format!("{:.1}", uw as f64 / 1e6);
        let share = 100.0 * self.caps.level() as f64 / self.caps.range().highest.max(1) as f64;
        vec![
            ("budget W", self.budget_uw.map_or("none".to_owned(), watts)),
            ("last good power reading W", self.meter.last(u64::MAX).map_or("none".to_owned(), |(uw, _)| watts(uw))),
            ("CPU time, % of all cores", format!("{share:.1}")),
            (
                "state",
                if self.is_blind { "no reading: the quota is the lowest" } else { "following readings" }.to_owned(),
            ),
            ("changes", self.changes.to_string()),
            ("commands refused", self.refused.to_string()),
        ]
    }
}

impl Thunderbolt {
    /// The quota while nothing is known.
    fn lowest_quota(&self) -> u64 {
        let floor = self.caps.range().highest * u64::from(self.parameters.rates.floor_ppm) / 1_000_000;
        floor.min(self.caps.level())
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::{Cost, Knob, Of, Values};

    use super::*;

    /// Eight cores.
    fn thunderbolt(settings: &[(&str, &str)]) -> Thunderbolt {
        let knob = Knob {
            of: Of::Server,
            kind: Kind::QuotaPpm,
            values: Values::Range { min: 1_000, max: 8_000_000, step: 1_000 },
            found: 8_000_000,
            caller: Cost::Measured(0),
            effect: Cost::Measured(0),
        };
        let capabilities = Capabilities { knobs: vec![knob], ..Capabilities::default() };
        let mut thunderbolt = Thunderbolt::new(Parameters::read(settings).unwrap());
        thunderbolt.caps = Caps::find(Selection::of(Kind::QuotaPpm), &capabilities);
        thunderbolt
    }

    #[test]
    fn power_near_the_budget_throttles_in_two_steps_down_to_the_floor() {
        let mut thunderbolt = thunderbolt(&[("chance", "0%")]);
        let next = |thunderbolt: &mut Thunderbolt, power_uw| thunderbolt.follow(100, power_uw);
        assert_eq!(next(&mut thunderbolt, 97), 6_000_000);
        assert_eq!(next(&mut thunderbolt, 99), 80_000);
        assert_eq!(next(&mut thunderbolt, 96), 8_000_000, "below both nothing is throttled");
        thunderbolt.set(0, 20_000, &mut Vec::new());
        assert_eq!(next(&mut thunderbolt, 99), 16_000, "0.2 % of eight cores");
    }

    #[test]
    fn a_raise_comes_by_chance_and_the_same_seed_raises_the_same() {
        let raises = |settings: &[(&str, &str)]| -> Vec<bool> {
            let mut thunderbolt = thunderbolt(settings);
            thunderbolt.set(0, 1_000_000, &mut Vec::new());
            (0..10_000).map(|_| thunderbolt.follow(100, 50) > 1_000_000).collect()
        };
        let share = |raises: &[bool]| raises.iter().filter(|raised| **raised).count() as f64 / raises.len() as f64;
        assert!((share(&raises(&[])) - 0.2).abs() < 0.02);
        assert!((share(&raises(&[("rates", "artifact")])) - 0.5).abs() < 0.02);
        assert_eq!(raises(&[("seed", "7")]), raises(&[("seed", "7")]));
        assert_ne!(raises(&[("seed", "7")]), raises(&[("seed", "8")]));
    }

    #[test]
    fn both_sets_of_rates_are_named() {
        let rates = |settings: &[(&str, &str)]| {
            let list = Parameters::read(settings).unwrap().list();
            list.into_iter().find(|setting| setting.key == "rates").unwrap().value
        };
        assert_eq!(rates(&[]), "paper");
        assert_eq!(rates(&[("seed", "9"), ("quota_period", "1s"), ("rates", "artifact")]), "artifact");
        assert_eq!(rates(&[("rates", "artifact"), ("floor", "1%")]), "own");
        assert!(Parameters::read(&[("no_action", "1%")]).is_err(), "it has no zones");
    }
}
