//! Parameters of `pass`.

use super::profile::Profile;
use crate::budget::Common;
use crate::budget::parameters::{COMMON, period, quota_period, set_period};
use crate::parameter::{self, Parameter, ParameterError, SWITCH, Setting, TIME, put, text, time};

/// Its name.
pub(crate) const NAME: &str = "pass";

/// All parameters.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Parameters {
    /// Parameters of every policy with a budget.
    pub common: Common,
    /// Its own parameters.
    pub own: PassParameters,
}

/// Parameters of `pass` only.
#[derive(Clone, Debug, PartialEq)]
pub struct PassParameters {
    /// Time between two samples of bandwidth, in nanoseconds.
    pub sample_interval_ns: u64,
    /// Configuration at the start.
    pub begin: Begin,
    /// Whether the CPU is cut within the budget for drives that caps limit; not in PASS.
    pub rebalances: bool,
    /// Profile of the machine.
    pub profile: Profile,
    /// Period of the CPU quota in nanoseconds; `None` for the one found.
    pub period_ns: Option<u64>,
}

/// Configuration at the start, before any reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// Within the budget, by the models.
    Within,
    /// At full power (PASS 3.3).
    Full,
}

pub(crate) const DEFAULT_PROFILE: &str = "pass-xeon-gold-6430";

const OWN: [Parameter<PassParameters>; 5] = [
    Parameter {
        key: "sample_interval",
        meaning: "time between the five samples of bandwidth that find the bottleneck (100ms; the artifact: 500ms)",
        allowed: TIME,
        get: |p| text::format_duration(p.sample_interval_ns),
        set: |p, v| time(&mut p.sample_interval_ns, v),
    },
    Parameter {
        key: "start",
        meaning: "configuration at the start: within the budget by the models, or full power (PASS 3.3: full)",
        allowed: "within or full",
        get: |p| if p.begin == Begin::Full { "full".to_owned() } else { "within".to_owned() },
        set: |p, v| {
            let begin = [("within", Begin::Within), ("full", Begin::Full)].into_iter().find(|(name, _)| *name == v);
            put(&mut p.begin, begin.map(|(_, begin)| begin))
        },
    },
    Parameter {
        key: "rebalance",
        meaning: "while the budget is kept, try to move power from the CPU to drives that caps limit (PASS: false)",
        allowed: SWITCH,
        get: |p| p.rebalances.to_string(),
        set: |p, v| put(&mut p.rebalances, v.parse().ok()),
    },
    Parameter {
        key: "profile",
        meaning: "power and performance of the machine (default: PASS's; pilotlab profile creates one)",
        allowed: "the name of a profile that comes with the program, or the text of one",
        get: |p| p.profile.name.clone(),
        set: |p, v| put(&mut p.profile, Profile::named(v).or_else(|| Profile::parse(v).ok())),
    },
    quota_period(|p| period(p.period_ns), |p, v| set_period(&mut p.period_ns, v)),
];

impl Default for PassParameters {
    fn default() -> Self {
        let profile = Profile::named(DEFAULT_PROFILE).expect("a test reads it");
        Self { sample_interval_ns: 100_000_000, begin: Begin::Within, rebalances: true, profile, period_ns: None }
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
            let Self { common, own } = &mut values;
            parameter::set_either(NAME, (&COMMON, common), (&OWN, own), *setting)?;
        }
        if values.own.sample_interval_ns > values.common.interval_ns {
            return Err(ParameterError::Conflict("sample_interval must not be above interval".to_owned()));
        }
        Ok(values)
    }

    /// All of them.
    #[must_use]
    pub fn list(&self) -> Vec<Setting> {
        let mut list = parameter::list(&COMMON, &self.common);
        list.extend(parameter::list(&OWN, &self.own));
        list
    }
}
