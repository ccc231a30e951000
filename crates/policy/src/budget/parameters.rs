//! Parameters of policies with a budget.

use super::control::{Range, Thresholds};
use pilotlight_plant::Kind;

use super::actuator::CapKind;
use super::{Domain, Mechanism};
use crate::parameter::{self, Parameter, ParameterError, SWITCH, Setting, TIME, put, text, time};

/// Common parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Common {
    /// Length of an interval, in nanoseconds.
    pub interval_ns: u64,
    /// Domain of the budget.
    pub domain: Domain,
    /// Excess from which power is cut by all of it, in millionths of the budget.
    pub high_ppm: u32,
    /// Distance below the budget up to which nothing changes, in millionths of it.
    pub no_action_ppm: u32,
    /// Age of the last good reading from which the cap is the lowest, in nanoseconds.
    pub stale_after_ns: u64,
    /// Time until a level that led over the budget is retried, in nanoseconds.
    pub retry_after_ns: u64,
    /// Near the budget a mean of readings decides.
    pub averages: bool,
    /// The inner policy.
    pub inner: &'static str,
}

/// Parameters of a policy with a single mechanism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Common parameters.
    pub common: Common,
    /// Those of the mechanism.
    pub own: Span,
}

/// Assumptions about a mechanism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Assumed effect of the whole range until a cut has shown it, in millionths of the budget.
    pub ppm: u32,
    /// Period of the CPU quota, if that is the mechanism, in nanoseconds; `None` for the one found.
    pub period_ns: Option<u64>,
}

/// Number of parameters of [`COMMON`] that every policy with a budget has.
pub(crate) const BASIC: usize = 4;

const SHARE: &str = "a share of the budget from 0% to 100%";
/// Allowed values of `inner`: all policies without a budget.
const INNERS: [&str; 13] = [
    "static",
    "interrupt",
    "governor",
    "dynamic",
    "hybrid-poll",
    "sandman",
    "adaptive",
    "pacer",
    "pg",
    "dvfs",
    "ondemand",
    "native",
    "ssd-apst",
];

/// The first [`BASIC`] are of every policy with a budget, the others of those that follow PASS's zones.
pub(crate) const COMMON: [Parameter<Common>; 8] = [
    Parameter {
        key: "interval",
        meaning: "length of an interval (PASS 3.1: 1s)",
        allowed: TIME,
        get: |p| text::format_duration(p.interval_ns),
        set: |p, v| time(&mut p.interval_ns, v),
    },
    Parameter {
        key: "domain",
        meaning: "domain of the budget (PASS 5: the whole server)",
        allowed: "server or cpu (all packages)",
        get: |p| p.domain.name().to_owned(),
        set: |p, v| put(&mut p.domain, Domain::read(v)),
    },
    Parameter {
        key: "stale_after",
        meaning: "age of the last good reading from which the cap is the lowest (10s, as long as PASS 5 tolerates an excess)",
        allowed: TIME,
        get: |p| text::format_duration(p.stale_after_ns),
        set: |p, v| time(&mut p.stale_after_ns, v),
    },
    Parameter {
        key: "inner",
        meaning: "the policy below the limits of the budget; inner_KEY sets its parameter KEY",
        allowed: "static, interrupt, governor, dynamic, hybrid-poll, sandman, adaptive, pacer, pg, dvfs, ondemand, native or ssd-apst",
        get: |p| p.inner.to_owned(),
        set: |p, v| put(&mut p.inner, INNERS.into_iter().find(|known| *known == v)),
    },
    Parameter {
        key: "high_threshold",
        meaning: "excess over the budget from which power is cut by all of it; below by half (PASS 3.3: 2%)",
        allowed: SHARE,
        get: |p| text::format_percent(p.high_ppm),
        set: |p, v| put(&mut p.high_ppm, text::percent(v)),
    },
    Parameter {
        key: "no_action",
        meaning: "distance below the budget up to which nothing changes (PASS 3.3: 1%)",
        allowed: SHARE,
        get: |p| text::format_percent(p.no_action_ppm),
        set: |p, v| put(&mut p.no_action_ppm, text::percent(v)),
    },
    Parameter {
        key: "retry_after",
        meaning: "time until a level that led over the budget is retried (300s; chosen)",
        allowed: TIME,
        get: |p| text::format_duration(p.retry_after_ns),
        set: |p, v| time(&mut p.retry_after_ns, v),
    },
    Parameter {
        key: "average",
        meaning: "near the budget the mean of five readings decides, not each one (PASS 3.1: false)",
        allowed: SWITCH,
        get: |p| p.averages.to_string(),
        set: |p, v| put(&mut p.averages, v.parse().ok()),
    },
];

const SPAN: Parameter<Span> = Parameter {
    key: "span",
    meaning: "assumed effect of the mechanism's whole range until a cut has shown it (chosen: rapl-only 100%, cpu-bandwidth 50%, the \
              others 25%)",
    allowed: "a share of the budget from 1% to 100%",
    get: |p| text::format_percent(p.ppm),
    set: |p, v| put(&mut p.ppm, text::percent(v).filter(|&ppm| ppm >= 10_000)),
};
const OF_QUOTA: [Parameter<Span>; 2] =
    [SPAN, quota_period(|p| period(p.period_ns), |p, v| set_period(&mut p.period_ns, v))];
const OF_OTHERS: [Parameter<Span>; 1] = [SPAN];

/// The parameter of a policy that sets the CPU quota: its period.
pub(crate) const fn quota_period<P>(get: fn(&P) -> String, set: fn(&mut P, &str) -> Option<()>) -> Parameter<P> {
    let meaning = "period of the CPU quota; a longer period means fewer but longer stalls (Linux: 100ms; PASS's published controller: 1s)";
    Parameter { key: "quota_period", meaning, allowed: "found (unchanged), or a time such as 100ms or 1s", get, set }
}

/// Formats a period of the CPU quota.
pub(crate) fn period(period_ns: Option<u64>) -> String {
    period_ns.map_or("found".to_owned(), text::format_duration)
}

/// Parses a period of the CPU quota.
pub(crate) fn set_period(place: &mut Option<u64>, value: &str) -> Option<()> {
    let mut period_ns = 0;
    *place = if value == "found" { None } else { time(&mut period_ns, value).map(|()| Some(period_ns))? };
    Some(())
}

fn own_table(mechanism: &Mechanism) -> &'static [Parameter<Span>] {
    if mechanism.cap == CapKind::Knobs(Kind::QuotaPpm) { &OF_QUOTA } else { &OF_OTHERS }
}

impl Default for Common {
    /// PASS's interval and thresholds.
    fn default() -> Self {
        Self {
            interval_ns: 1_000_000_000,
            domain: Domain::Server,
            high_ppm: 20_000,
            no_action_ppm: 10_000,
            stale_after_ns: 10_000_000_000,
            retry_after_ns: 300_000_000_000,
            averages: true,
            inner: "static",
        }
    }
}

impl Common {
    /// For a mechanism with this assumed gain, uncertain by a factor of 16.
    pub(crate) fn thresholds(&self, gain: f64) -> Thresholds {
        let share = |ppm: u32| f64::from(ppm) / 1e6;
        Thresholds {
            high: share(self.high_ppm),
            no_action: share(self.no_action_ppm),
            gain,
            raise_gain: None,
            bounds: 16.0,
            retry_after_ns: self.retry_after_ns,
            averages: self.averages,
        }
    }
}

impl Parameters {
    /// PASS's interval and thresholds.
    #[must_use]
    pub fn new(mechanism: &Mechanism) -> Self {
        Self { common: Common::default(), own: Span { ppm: mechanism.span_ppm, period_ns: None } }
    }

    /// Applies settings in this order.
    ///
    /// # Errors
    /// If a parameter does not exist or a value is not allowed.
    pub fn read(mechanism: &Mechanism, settings: &[(&str, &str)]) -> Result<Self, ParameterError> {
        let mut values = Self::new(mechanism);
        for setting in settings {
            let Self { common, own } = &mut values;
            parameter::set_either(mechanism.name, (&COMMON, common), (own_table(mechanism), own), *setting)?;
        }
        Ok(values)
    }

    /// All of them.
    #[must_use]
    pub fn list(&self, mechanism: &Mechanism) -> Vec<Setting> {
        let mut list = parameter::list(&COMMON, &self.common);
        list.extend(parameter::list(own_table(mechanism), &self.own));
        list
    }

    pub(crate) fn thresholds(&self, budget_uw: u64, range: Range) -> Thresholds {
        let levels = (range.highest - range.lowest).max(1) as f64;
        self.common.thresholds(budget_uw as f64 * f64::from(self.own.ppm) / 1e6 / levels)
    }
}
