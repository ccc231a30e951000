//! `thunderbolt`: a power budget enforced by random unthrottling and multiplicative decrease of CPU time (RUMD of Google's Thunderbolt, OSDI
//! '20; the baseline of PASS, section 5), around the dynamic scheduler.
//!
//! **Rule.** At each new reading: above the hard threshold the quota of CPU time is multiplied by the hard factor, above the soft one by the
//! soft factor; below both it rises by a step with some probability. Readings are used uncorrected, late and averaged.
//! **Rates** (errata 25). PASS prints steps of 5 points at 20 % a second and a minimum of 0.2 %; its published controller has 2 points at
//! 50 % and 0.5 %. Thresholds and factors are those of the published controller for both: the paper prints none.
//! **Random numbers** follow from the parameter `seed` (SplitMix64).
//! **Faults** as in [`crate::budget`]: without a reading nothing is raised; after `stale_after` the quota is at its minimum.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

use crate::budget::control::Range;
use crate::budget::meter::Estimate;
use crate::budget::parameters::{BASIC, COMMON, period, quota_period, set_period};
use crate::budget::single::Rule;
use crate::budget::{Common, Mechanism};
use crate::cpu_bandwidth::CPU_BANDWIDTH;
use crate::parameter::{self, PERCENT, Parameter, ParameterError, Setting, put, text};

/// The name by which an operator chooses it.
pub const NAME: &str = "thunderbolt";

/// Its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Parameters of every policy with a budget, without the thresholds of PASS's zones.
    pub common: Common,
    /// Its own parameters.
    pub rates: Rates,
}

/// Parameters of throttling; shares are in millionths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Share of all CPU time that a raise adds.
    pub raise_step_ppm: u32,
    /// Probability that a reading leads to a raise.
    pub probability_ppm: u32,
    /// The lowest quota, as a share of all CPU time.
    pub min_quota_ppm: u32,
    /// Soft threshold as a share of the budget, and the factor above it.
    pub soft_ppm: (u32, u32),
    /// Hard threshold as a share of the budget, and the factor above it.
    pub hard_ppm: (u32, u32),
    /// Seed of the random numbers.
    pub seed: u64,
    /// Period of the CPU quota in nanoseconds; `None` for the one found.
    pub period_ns: Option<u64>,
}

impl Rates {
    /// As printed in PASS.
    const PAPER: Self = Self {
        raise_step_ppm: 50_000,
        probability_ppm: 200_000,
        min_quota_ppm: 2_000,
        soft_ppm: (960_000, 750_000),
        hard_ppm: (980_000, 10_000),
        seed: 1,
        period_ns: None,
    };
    /// As in PASS's published controller.
    const ARTIFACT: Self =
        Self { raise_step_ppm: 20_000, probability_ppm: 500_000, min_quota_ppm: 5_000, ..Self::PAPER };
    const NAMED: [(&str, Self); 2] = [("paper", Self::PAPER), ("artifact", Self::ARTIFACT)];

    /// These, with the seed and period of `other`.
    fn with_seed_and_period(self, other: &Self) -> Self {
        Self { seed: other.seed, period_ns: other.period_ns, ..self }
    }
}

const OF_BUDGET: &str = "a share of the budget from 0% to 100%";
const OF_QUOTA: &str = "a share of the quota from 0% to 100%";

const RATES: [Parameter<Rates>; 10] = [
    Parameter {
        key: "rates",
        meaning: "raise_step, raise_probability and min_quota as printed in PASS, or as in its published controller",
        allowed: "paper or artifact; raise_step, raise_probability and min_quota can be set after it",
        get: |p| {
            let named = Rates::NAMED.into_iter().find(|(_, rates)| rates.clone().with_seed_and_period(p) == *p);
            named.map_or("own", |(name, _)| name).to_owned()
        },
        set: |p, v| {
            let rates =
                Rates::NAMED.into_iter().find(|(name, _)| *name == v).map(|(_, rates)| rates.with_seed_and_period(p));
            put(p, rates)
        },
    },
    Parameter {
        key: "raise_step",
        meaning: "share of all CPU time that a raise adds (PASS 5: 5%; its controller: 2%)",
        allowed: PERCENT,
        get: |p| text::format_percent(p.raise_step_ppm),
        set: |p, v| put(&mut p.raise_step_ppm, text::percent(v)),
    },
    Parameter {
        key: "raise_probability",
        meaning: "probability that a reading leads to a raise (PASS 5: 20%; its controller: 50%)",
        allowed: "a probability from 0% to 100%",
        get: |p| text::format_percent(p.probability_ppm),
        set: |p, v| put(&mut p.probability_ppm, text::percent(v)),
    },
    Parameter {
        key: "min_quota",
        meaning: "lowest quota, as a share of all CPU time (PASS 5.7: 0.2%; its controller: 0.5%)",
        allowed: PERCENT,
        get: |p| text::format_percent(p.min_quota_ppm),
        set: |p, v| put(&mut p.min_quota_ppm, text::percent(v)),
    },
    Parameter {
        key: "soft_threshold",
        meaning: "power from which the quota is multiplied by soft_factor (the published controller: 96%)",
        allowed: OF_BUDGET,
        get: |p| text::format_percent(p.soft_ppm.0),
        set: |p, v| put(&mut p.soft_ppm.0, text::percent(v)),
    },
    Parameter {
        key: "soft_factor",
        meaning: "factor of the quota above soft_threshold (the published controller: 75%)",
        allowed: OF_QUOTA,
        get: |p| text::format_percent(p.soft_ppm.1),
        set: |p, v| put(&mut p.soft_ppm.1, text::percent(v)),
    },
    Parameter {
        key: "hard_threshold",
        meaning: "power from which the quota is multiplied by hard_factor (the published controller: 98%)",
        allowed: OF_BUDGET,
        get: |p| text::format_percent(p.hard_ppm.0),
        set: |p, v| put(&mut p.hard_ppm.0, text::percent(v)),
    },
    Parameter {
        key: "hard_factor",
        meaning: "factor of the quota above hard_threshold (the published controller: 1%)",
        allowed: OF_QUOTA,
        get: |p| text::format_percent(p.hard_ppm.1),
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
    /// The paper's rates, around the dynamic scheduler.
    fn default() -> Self {
        Self { common: Common { inner: "dynamic", ..Common::default() }, rates: Rates::PAPER }
    }
}

impl Parameters {
    /// Applies settings in this order.
    ///
    /// # Errors
    /// If a parameter does not exist or a value is not allowed.
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
    random: SplitMix64,
}

impl Rumd {
    pub(crate) fn new(rates: Rates) -> Self {
        Self { random: SplitMix64::from_seed(rates.seed.to_le_bytes()), rates }
    }

    /// Draws a random event of this probability.
    fn draw(&mut self, probability_ppm: u32) -> bool {
        self.random.next_u64() % 1_000_000 < u64::from(probability_ppm)
    }

    /// The quota after a reading; `all` is the highest quota.
    fn next_quota(&mut self, budget_uw: f64, power_uw: f64, level: u64, all: u64) -> u64 {
        let is_raised = self.draw(self.rates.probability_ppm);
        let is_above = |ppm: u32| power_uw > budget_uw * f64::from(ppm) / 1e6;
        let next = if is_above(self.rates.hard_ppm.0) {
            share(level, self.rates.hard_ppm.1)
        } else if is_above(self.rates.soft_ppm.0) {
            share(level, self.rates.soft_ppm.1)
        } else if is_raised {
            level + share(all, self.rates.raise_step_ppm)
        } else {
            level
        };
        next.max(share(all, self.rates.min_quota_ppm))
    }
}

/// Millionths of a quota.
fn share(of: u64, ppm: u32) -> u64 {
    (u128::from(of) * u128::from(ppm) / 1_000_000) as u64
}

impl Rule for Rumd {
    const CORRECTS: bool = false;

    /// Only a new reading changes the quota, so a new budget takes effect at the next one.
    fn next(
        &mut self,
        budget_uw: u64,
        (level, range): (u64, Range),
        (_, estimate): (u64, Estimate),
        is_new: bool,
    ) -> Option<u64> {
        is_new.then(|| self.next_quota(budget_uw as f64, estimate.power_uw, level, range.highest))
    }

    fn lowest(&self, range: Range) -> u64 {
        share(range.highest, self.rates.min_quota_ppm)
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
    fn power_near_the_budget_throttles_in_two_steps_down_to_the_minimum() {
        let mut rumd = rumd(&[("raise_probability", "0%")]);
        let mut next = |level, power_uw| rumd.next_quota(100.0, power_uw, level, ALL);
        assert_eq!(next(ALL, 97.0), 6_000_000);
        assert_eq!(next(ALL, 99.0), 80_000);
        assert_eq!(next(ALL, 96.0), ALL, "below both nothing is throttled");
        assert_eq!(next(20_000, 99.0), 16_000, "0.2 % of eight cores");
    }

    #[test]
    fn raises_are_random_and_reproducible_by_seed() {
        let raises = |settings: &[(&str, &str)]| -> Vec<bool> {
            let mut rumd = rumd(settings);
            (0..10_000).map(|_| rumd.next_quota(100.0, 50.0, 1_000_000, ALL) > 1_000_000).collect()
        };
        let share = |raises: &[bool]| raises.iter().filter(|raised| **raised).count() as f64 / raises.len() as f64;
        assert!((share(&raises(&[])) - 0.2).abs() < 0.02);
        assert!((share(&raises(&[("rates", "artifact")])) - 0.5).abs() < 0.02);
        assert_eq!(raises(&[("seed", "7")]), raises(&[("seed", "7")]));
        assert_ne!(raises(&[("seed", "7")]), raises(&[("seed", "8")]));
    }

    #[test]
    fn both_sets_of_rates_have_a_name() {
        let rates = |settings: &[(&str, &str)]| {
            let list = Parameters::read(settings).unwrap().list();
            list.into_iter().find(|setting| setting.key == "rates").unwrap().value
        };
        assert_eq!(rates(&[]), "paper");
        assert_eq!(rates(&[("seed", "9"), ("quota_period", "1s"), ("rates", "artifact")]), "artifact");
        assert_eq!(rates(&[("rates", "artifact"), ("min_quota", "1%")]), "own");
        assert!(Parameters::read(&[("no_action", "1%")]).is_err(), "it has no zones");
    }
}
