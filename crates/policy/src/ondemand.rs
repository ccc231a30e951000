//! `ondemand`: every core polls, at a frequency in proportion to its load (Linux's ondemand governor; PACER sections III-C and V).
//!
//! **Rule.** `f = f_max x busy / total` over each sampling period, and the highest frequency at once from `up_threshold` on
//! (Documentation/admin-guide/pm/cpufreq.rst). PACER prints `T_idle / T_total`; busy time is meant. Between two values of the knob the
//! nearest is used; Linux uses the one above.
//!
//! Linux accounts a polling core as always busy. Here busy time is time in polls that found work, as PACER's server is event-based, and
//! `loop_busy` of the rest. Everything else is as in [`crate::governor`].

use crate::core_frequency::CoreFrequency;
use crate::governor::{Governor, Rule};
use crate::load::WHOLE_PPM;
use crate::parameter::{self, PERCENT, Parameter, ParameterError, SWITCH, Setting, TIME, put, text, time};

/// The name by which an operator chooses it.
pub const NAME: &str = "ondemand";

/// Its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The sampling period, in nanoseconds.
    pub interval_ns: u64,
    /// Load from which a core goes to the highest frequency, in millionths of a core.
    pub up_threshold_ppm: u32,
    /// Whether the higher load of two siblings counts for both.
    pub siblings: bool,
    /// Share of the time without work that the event loop looks busy, in millionths.
    pub loop_busy_ppm: u32,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { interval_ns: 10_000_000, up_threshold_ppm: 800_000, siblings: true, loop_busy_ppm: 0 }
    }
}

const TABLE: [Parameter<Parameters>; 4] = [
    Parameter {
        key: "interval",
        meaning: "sampling period (Linux: sampling_rate, by default 10ms on most machines)",
        allowed: TIME,
        get: |p| text::format_duration(p.interval_ns),
        set: |p, v| time(&mut p.interval_ns, v),
    },
    Parameter {
        key: "up_threshold",
        meaning: "load from which a core goes to its highest frequency (Linux: 80%)",
        allowed: PERCENT,
        get: |p| text::format_percent(p.up_threshold_ppm),
        set: |p, v| put(&mut p.up_threshold_ppm, text::percent(v)),
    },
    Parameter {
        key: "siblings",
        meaning: "the higher load of two siblings, which share a clock, counts for both (as Linux does for a shared policy)",
        allowed: SWITCH,
        get: |p| p.siblings.to_string(),
        set: |p, v| put(&mut p.siblings, v.parse().ok()),
    },
    Parameter {
        key: "loop_busy",
        meaning: "share of the time without work that an application's event loop looks busy to the kernel (75% follows from \
                  what PACER prints for BERT; 0%: it waits in the kernel)",
        allowed: PERCENT,
        get: |p| text::format_percent(p.loop_busy_ppm),
        set: |p, v| put(&mut p.loop_busy_ppm, text::percent(v)),
    },
];

impl Parameters {
    /// Applies settings in this order.
    ///
    /// # Errors
    /// If a parameter does not exist or a value is not allowed.
    pub fn read(settings: &[(&str, &str)]) -> Result<Self, ParameterError> {
        parameter::read(NAME, &TABLE, settings)
    }

    /// All of them.
    #[must_use]
    pub fn list(&self) -> Vec<Setting> {
        parameter::list(&TABLE, self)
    }
}

impl Rule for Parameters {
    const NAME: &'static str = NAME;

    fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    fn siblings(&self) -> bool {
        self.siblings
    }

    fn next(&self, load_ppm: u64, frequency: &CoreFrequency) -> u64 {
        let free_ppm = WHOLE_PPM.saturating_sub(load_ppm);
        let load_ppm = load_ppm + free_ppm * u64::from(self.loop_busy_ppm) / WHOLE_PPM;
        if load_ppm >= u64::from(self.up_threshold_ppm) {
            return frequency.highest_khz;
        }
        let khz = u128::from(frequency.highest_khz) * u128::from(load_ppm) / u128::from(WHOLE_PPM);
        frequency.values.nearest(khz as u64).unwrap_or(frequency.highest_khz)
    }
}

/// The policy.
pub type Ondemand = Governor<Parameters>;
