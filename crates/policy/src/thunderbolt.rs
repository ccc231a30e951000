//! `thunderbolt`: a power budget held by random unthrottling and multiplicative decrease of CPU time (RUMD of Google's Thunderbolt, OSDI '20;
//! the baseline of PASS, section 5), around the dynamic scheduler.
//!
//! **Rule.** At each new reading: above the hard threshold the quota of CPU time is multiplied by the hard factor, above the soft one by the soft
//! factor; below both it is raised by a step with some chance, otherwise it stays. Readings are taken as they are, late and averaged.
//! **Rates** (errata 25). PASS prints steps of 5 points at a chance of 20 % a second and a floor of 0.2 %; its published controller has 2
//! points at 50 % and a floor of 0.5 %. Thresholds and factors are those of the published controller for both: the paper prints none.
//! **Chance.** A policy has no random source: numbers follow from the parameter `seed` (SplitMix64).
//! **Faults** as in [`crate::budget`]: without a reading nothing is raised, after `blind_after` the quota is at its floor.

use crate::budget::control::Range;
use crate::budget::meter::Estimate;
use crate::budget::parameters::{BASIC, COMMON, period, quota_period, set_period};
use crate::budget::single::Rule;
use crate::budget::{Common, Mechanism};
use crate::cpu_bandwidth::CPU_BANDWIDTH;
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

/// The mechanism.
pub(crate) const MECHANISM: Mechanism = Mechanism { name: NAME, ..CPU_BANDWIDTH };

/// The rule, with its random numbers.
#[derive(Debug)]
pub(crate) struct Rumd {
    rates: Rates,
    random: u64,
}

impl Rumd {
    pub(crate) fn new(rates: Rates) -> Self {
        Self { random: rates.seed, rates }
    }

    /// Whether something of this chance happens.
    fn happens(&mut self, chance_ppm: u32) -> bool {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % 1_000_000 < u64::from(chance_ppm)
    }

    /// The quota that follows a reading, of one of at most `all`.
    fn follow(&mut self, budget_uw: f64, power_uw: f64, level: u64, all: u64) -> u64 {
        let is_raised = self.happens(self.rates.chance_ppm);
        let is_above = |ppm: u32| power_uw > budget_uw * f64::from(ppm) / 1e6;
        let next = if is_above(self.rates.hard_ppm.0) {
            share(level, self.rates.hard_ppm.1)
        } else if is_above(self.rates.soft_ppm.0) {
            share(level, self.rates.soft_ppm.1)
        } else if is_raised {
            level + share(all, self.rates.step_ppm)
        } else {
            level
        };
        next.max(share(all, self.rates.floor_ppm))
    }
}

/// So many millionths of a quota.
fn share(of: u64, ppm: u32) -> u64 {
    (u128::from(of) * u128::from(ppm) / 1_000_000) as u64
}

impl Rule for Rumd {
    const CORRECTS: bool = false;

    /// Only with a new reading, so another budget counts from the next one on.
    fn next(
        &mut self,
        budget_uw: u64,
        (level, range): (u64, Range),
        (_, estimate): (u64, Estimate),
        is_new: bool,
    ) -> Option<u64> {
        is_new.then(|| self.follow(budget_uw as f64, estimate.power_uw, level, range.highest))
    }

    fn lowest(&self, range: Range) -> u64 {
        share(range.highest, self.rates.floor_ppm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u64 = 8_000_000;

    fn rumd(settings: &[(&str, &str)]) -> Rumd {
        Rumd::new(Parameters::read(settings).unwrap().rates)
    }

    #[test]
    fn power_near_the_budget_throttles_in_two_steps_down_to_the_floor() {
        let mut rumd = rumd(&[("chance", "0%")]);
        let mut next = |level, power_uw| rumd.follow(100.0, power_uw, level, ALL);
        assert_eq!(next(ALL, 97.0), 6_000_000);
        assert_eq!(next(ALL, 99.0), 80_000);
        assert_eq!(next(ALL, 96.0), ALL, "below both nothing is throttled");
        assert_eq!(next(20_000, 99.0), 16_000, "0.2 % of eight cores");
    }

    #[test]
    fn a_raise_comes_by_chance_and_the_same_seed_raises_the_same() {
        let raises = |settings: &[(&str, &str)]| -> Vec<bool> {
            let mut rumd = rumd(settings);
            (0..10_000).map(|_| rumd.follow(100.0, 50.0, 1_000_000, ALL) > 1_000_000).collect()
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
