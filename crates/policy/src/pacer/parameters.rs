//! Parameters of `pacer`. The paper prints the interval, 80 %, 30 s and the tolerance; the other values are chosen here.

use crate::parameter::{self, PERCENT, Parameter, ParameterError, SWITCH, Setting, TIME, put, text, time};

/// The name by which an operator chooses it.
pub const NAME: &str = "pacer";

/// All parameters. Shares are in millionths.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Length of an interval: the window of the burst check, in nanoseconds.
    pub interval_ns: u64,
    /// Length of a latency window (the paper's n), in nanoseconds.
    pub window_ns: u64,
    /// Windows in the divergence (the paper's k).
    pub windows: usize,
    /// Requests that a window needs; it is extended until then.
    pub min_requests: u64,
    /// Maximum length of an extended window, in nanoseconds.
    pub max_window_ns: u64,
    /// Divergence below which latency is stable.
    pub stable_threshold_ppm: u32,
    /// Divergence above which it is no longer stable.
    pub unstable_threshold_ppm: u32,
    /// Excess of one interval's latency over the windows' mean that is a burst.
    pub burst_threshold_ppm: u32,
    /// CPU use above which there is a burst.
    pub busy_threshold_ppm: u32,
    /// The highest target CPU use.
    pub use_limit_ppm: u32,
    /// Total CPU use after cores were removed, relative to before; `None` for that of the last change.
    pub alpha: Option<f64>,
    /// Change of the target CPU use for a loss distance of 1.
    pub beta: f64,
    /// Change of the frequency for a loss distance of 1, as a share of the highest; not above 0.
    pub gamma: f64,
    /// Factor of the queueing time in the forecast of a step.
    pub forecast: f64,
    /// Share of the tolerance that is aimed at.
    pub aim_ppm: u32,
    /// Distance from that aim within which nothing changes, as a share of it.
    pub dead_band_ppm: u32,
    /// Time without requests until the server is idle, in nanoseconds.
    pub idle_after_ns: u64,
    /// Time until the baseline is measured again, in nanoseconds.
    pub baseline_interval_ns: u64,
    /// Change of rate, size or read share from which the baseline is measured again.
    pub load_change_ppm: u32,
    /// What is adapted.
    pub adapt: Adapt,
    /// State of unused cores.
    pub gate: Gate,
    /// Whether background work is scheduled.
    pub background: bool,
    /// Whether drives may enter idle states while the server is idle.
    pub drives: bool,
    /// Whether they may under a stable load too.
    pub stable_drives: bool,
    /// Whether the frequency follows the loss together with the number of cores, not after it.
    pub refines: bool,
    /// Time from the last request until they may, in nanoseconds.
    pub after_writes_ns: u64,
    /// Whether the whole server may sleep while no requests come.
    pub server_sleep: bool,
}

/// What is adapted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adapt {
    /// The number of cores, then their frequency.
    Both,
    /// The number of cores (`pg`).
    Cores,
    /// The frequency (`dvfs`).
    Frequency,
}

/// State of unused cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// They sleep.
    Sleep,
    /// They sleep, and go offline if the plant allows it.
    Offline,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            interval_ns: 500_000_000,
            window_ns: 1_000_000_000,
            windows: 5,
            min_requests: 400,
            max_window_ns: 30_000_000_000,
            stable_threshold_ppm: 100_000,
            unstable_threshold_ppm: 250_000,
            burst_threshold_ppm: 500_000,
            busy_threshold_ppm: 800_000,
            use_limit_ppm: 700_000,
            alpha: Some(1.05),
            beta: 0.1,
            gamma: -0.05,
            forecast: 1.0,
            aim_ppm: 800_000,
            dead_band_ppm: 200_000,
            idle_after_ns: 30_000_000_000,
            baseline_interval_ns: 300_000_000_000,
            load_change_ppm: 250_000,
            adapt: Adapt::Both,
            gate: Gate::Sleep,
            background: true,
            drives: true,
            stable_drives: false,
            refines: false,
            after_writes_ns: 30_000_000_000,
            server_sleep: true,
        }
    }
}

const SHARE: &str = "a share from 0% to 100%";

const TABLE: [Parameter<Parameters>; 28] = [
    Parameter {
        key: "variant",
        meaning: "sets aim, forecast, load_change, dead_band, alpha, refine and stable_drives to the printed rule, or as \
                  recommended; other settings apply after it",
        allowed: "recommended, or paper (PACER IV-C: aim 100%, forecast 0, load_change 0%, dead_band 0%, alpha measured, refine \
                  true; stable_drives true)",
        get: |p| p.variant().to_owned(),
        set: |p, v| p.set_variant(v),
    },
    Parameter {
        key: "interval",
        meaning: "length of an interval: the window of the burst check (PACER IV-B: 500ms)",
        allowed: TIME,
        get: |p| text::format_duration(p.interval_ns),
        set: |p, v| time(&mut p.interval_ns, v),
    },
    Parameter {
        key: "window",
        meaning: "length of a latency window (PACER's n, not printed; chosen; pacer-sensitivity: half saves a third more \
                  under steps of 15s, at a loss of 6.5% in place of 5.6%)",
        allowed: TIME,
        get: |p| text::format_duration(p.window_ns),
        set: |p, v| time(&mut p.window_ns, v),
    },
    Parameter {
        key: "windows",
        meaning: "number of windows in the divergence (PACER's k, not printed; chosen so that n x k is within \
                  the 10s that PACER V-A4 waits; pacer-sensitivity: with 3 38% more is saved under steps of 15s, with 10 \
                  hardly anything)",
        allowed: "a whole number from 2 to 64",
        get: |p| p.windows.to_string(),
        set: |p, v| put(&mut p.windows, text::within(v, 2, 64)),
    },
    Parameter {
        key: "min_requests",
        meaning: "requests that a window needs at a tolerance of 20% or more, else it is extended; at half of it \
                  four times as many; a quarter for the burst check (chosen: 400 latencies that vary by their mean \
                  have a mean that varies by 5%; pacer-sensitivity: no effect from 2,000 requests a second on)",
        allowed: "a whole number from 1 to 1000000",
        get: |p| p.min_requests.to_string(),
        set: |p, v| put(&mut p.min_requests, text::within(v, 1, 1_000_000)),
    },
    Parameter {
        key: "max_window",
        meaning: "maximum length of an extended window, which then shows only excess (chosen: as long as idle_after)",
        allowed: TIME,
        get: |p| text::format_duration(p.max_window_ns),
        set: |p, v| time(&mut p.max_window_ns, v),
    },
    Parameter {
        key: "stable_threshold",
        meaning: "divergence of latency below which savings start (PACER's l_stable_thresh, not printed; chosen; \
                  pacer-sensitivity: no effect from 2.5% to 20%)",
        allowed: SHARE,
        get: |p| text::format_percent(p.stable_threshold_ppm),
        set: |p, v| put(&mut p.stable_threshold_ppm, text::percent(v)),
    },
    Parameter {
        key: "unstable_threshold",
        meaning: "divergence of latency above which savings end (PACER's l_unstable_thresh, not printed; chosen; \
                  pacer-sensitivity: no effect from 12.5% to 50%)",
        allowed: SHARE,
        get: |p| text::format_percent(p.unstable_threshold_ppm),
        set: |p, v| put(&mut p.unstable_threshold_ppm, text::percent(v)),
    },
    Parameter {
        key: "burst_threshold",
        meaning: "excess of an interval's latency over the mean of the windows that is a burst (PACER's \
                  l_burst_thresh, not printed; chosen; pacer-sensitivity: no effect from 12.5% to 100%, CPU use or the \
                  load shows changes first)",
        allowed: SHARE,
        get: |p| text::format_percent(p.burst_threshold_ppm),
        set: |p, v| put(&mut p.burst_threshold_ppm, text::percent(v)),
    },
    Parameter {
        key: "busy_threshold",
        meaning: "CPU use of a core group above which there is a burst (PACER IV-B: 80%)",
        allowed: PERCENT,
        get: |p| text::format_percent(p.busy_threshold_ppm),
        set: |p, v| put(&mut p.busy_threshold_ppm, text::percent(v)),
    },
    Parameter {
        key: "use_limit",
        meaning: "the highest target CPU use (chosen: a margin below busy_threshold, so that it is no burst; \
                  pacer-sensitivity: half saves a tenth less under steps, a quarter a seventh at 10% load)",
        allowed: PERCENT,
        get: |p| text::format_percent(p.use_limit_ppm),
        set: |p, v| put(&mut p.use_limit_ppm, text::percent(v).filter(|&ppm| ppm > 0)),
    },
    Parameter {
        key: "alpha",
        meaning: "CPU use of all cores after some were removed, relative to before (PACER's alpha, which IV-C measures; \
                  chosen; pacer-sensitivity: hardly any effect from 1.01 to 1.1)",
        allowed: "a number from 1 to 2, or measured: that of the last change",
        get: |p| p.alpha.map_or("measured".to_owned(), |alpha| alpha.to_string()),
        set: |p, v| put(&mut p.alpha, if v == "measured" { Some(None) } else { text::within(v, 1.0, 2.0).map(Some) }),
    },
    Parameter {
        key: "beta",
        meaning: "change of the target CPU use for a loss distance of 1 (PACER's beta, not printed; chosen; \
                  pacer-sensitivity: a quarter saves half as much under steps of 15s, twice as much the same)",
        allowed: "a number from 0.001 to 1",
        get: |p| p.beta.to_string(),
        set: |p, v| put(&mut p.beta, text::within(v, 0.001, 1.0)),
    },
    Parameter {
        key: "gamma",
        meaning: "change of the frequency for a loss distance of 1, as a share of the highest; negative, as headroom \
                  has to lower it (PACER's gamma, not printed; chosen: a step of the frequency; pacer-sensitivity: hardly \
                  any effect)",
        allowed: "a number from -1 to -0.001",
        get: |p| p.gamma.to_string(),
        set: |p, v| put(&mut p.gamma, text::within(v, -1.0, -0.001)),
    },
    Parameter {
        key: "forecast",
        meaning: "factor of the queueing time in the forecast of a step; 0 disables the forecast, as \
                  printed (chosen: 1, the queueing of independent arrivals; pacer-sensitivity: 0 saves a seventh more at 10% \
                  load, at a loss of 13.9% in place of 9.7%)",
        allowed: "a number from 0 to 100",
        get: |p| p.forecast.to_string(),
        set: |p, v| put(&mut p.forecast, text::within(v, 0.0, 100.0)),
    },
    Parameter {
        key: "aim",
        meaning: "share of the tolerance that is aimed at, instead of plf in the loss distance (chosen; \
                  pacer-sensitivity: at 100% a loss of 14% in place of 9.7% saves a seventh more, at 20% less than half is \
                  saved)",
        allowed: SHARE,
        get: |p| text::format_percent(p.aim_ppm),
        set: |p, v| put(&mut p.aim_ppm, text::percent(v).filter(|&ppm| ppm > 0)),
    },
    Parameter {
        key: "dead_band",
        meaning: "loss distance within which nothing changes (chosen: it ends below the tolerance, apart from the \
                  standard error; pacer-sensitivity: hardly any effect from 5% to 40%)",
        allowed: SHARE,
        get: |p| text::format_percent(p.dead_band_ppm),
        set: |p, v| put(&mut p.dead_band_ppm, text::percent(v)),
    },
    Parameter {
        key: "idle_after",
        meaning: "time without requests until the server is idle (PACER IV-B: 30s)",
        allowed: TIME,
        get: |p| text::format_duration(p.idle_after_ns),
        set: |p, v| time(&mut p.idle_after_ns, v),
    },
    Parameter {
        key: "baseline_interval",
        meaning: "time until latency without savings is measured again, at least 20 times as long as that takes \
                  (chosen; an hour of constant load has no savings for 2% of its time)",
        allowed: TIME,
        get: |p| text::format_duration(p.baseline_interval_ns),
        set: |p, v| time(&mut p.baseline_interval_ns, v),
    },
    Parameter {
        key: "load_change",
        meaning: "change of rate, size or read share from which the baseline is measured again; 0%: never, as printed (chosen; \
                  pacer-sensitivity: at 50% a third more is saved under steps of 15s)",
        allowed: SHARE,
        get: |p| text::format_percent(p.load_change_ppm),
        set: |p, v| put(&mut p.load_change_ppm, text::percent(v)),
    },
    Parameter {
        key: "refine",
        meaning: "the frequency follows the loss together with the number of cores (PACER IV-C), not only once no core can be removed (chosen)",
        allowed: SWITCH,
        get: |p| p.refines.to_string(),
        set: |p, v| put(&mut p.refines, v.parse().ok()),
    },
    Parameter {
        key: "adapt",
        meaning: "what is adapted: cores and frequency (both), or one of them (PACER V-A3)",
        allowed: "both, cores or frequency",
        get: |p| p.adapt.name().to_owned(),
        set: |p, v| {
            put(&mut p.adapt, [Adapt::Both, Adapt::Cores, Adapt::Frequency].into_iter().find(|one| one.name() == v))
        },
    },
    Parameter {
        key: "gate",
        meaning: "unused cores sleep, or go offline if hotplug is allowed",
        allowed: "sleep or offline",
        get: |p| p.gate.name().to_owned(),
        set: |p, v| put(&mut p.gate, [Gate::Sleep, Gate::Offline].into_iter().find(|one| one.name() == v)),
    },
    Parameter {
        key: "background",
        meaning: "background work runs at its highest rate while the server is idle, else at its lowest (PACER IV-D)",
        allowed: SWITCH,
        get: |p| p.background.to_string(),
        set: |p, v| put(&mut p.background, v.parse().ok()),
    },
    Parameter {
        key: "drives",
        meaning: "while the server is idle and no background work is left, drives may enter idle states whose wake-up \
                  is within the tolerance (PACER IV-D), else none; false leaves idle states unchanged",
        allowed: SWITCH,
        get: |p| p.drives.to_string(),
        set: |p, v| put(&mut p.drives, v.parse().ok()),
    },
    Parameter {
        key: "stable_drives",
        meaning: "drives may enter such states under a stable load too (chosen: false, as the loss does not forecast their wake-ups)",
        allowed: SWITCH,
        get: |p| p.stable_drives.to_string(),
        set: |p, v| put(&mut p.stable_drives, v.parse().ok()),
    },
    Parameter {
        key: "after_writes",
        meaning: "time from the last request, which may have written, until drives may enter idle states, so that \
                  garbage collection ends before (chosen: the Energy Benchmark thesis, 5.1.2, shows up to 20s of it \
                  after 60s of writes)",
        allowed: TIME,
        get: |p| text::format_duration(p.after_writes_ns),
        set: |p, v| time(&mut p.after_writes_ns, v),
    },
    Parameter {
        key: "server_sleep",
        meaning: "the whole server may wait in the kernel while no requests come (chosen)",
        allowed: SWITCH,
        get: |p| p.server_sleep.to_string(),
        set: |p, v| put(&mut p.server_sleep, v.parse().ok()),
    },
];

impl Adapt {
    /// The name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Cores => "cores",
            Self::Frequency => "frequency",
        }
    }
}

impl Gate {
    /// The name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sleep => "sleep",
            Self::Offline => "offline",
        }
    }
}

impl Parameters {
    /// Applies settings in this order.
    ///
    /// # Errors
    /// If a parameter does not exist, a value is not allowed, or thresholds are not in order.
    pub fn read(settings: &[(&str, &str)]) -> Result<Self, ParameterError> {
        let mut ordered = settings.to_vec();
        ordered.sort_by_key(|(key, _)| *key != "variant");
        let read: Self = parameter::read(NAME, &TABLE, &ordered)?;
        let wrong = |message: &str| Err(ParameterError::Conflict(message.to_owned()));
        if read.stable_threshold_ppm >= read.unstable_threshold_ppm {
            return wrong("stable_threshold must be below unstable_threshold");
        }
        if read.use_limit_ppm >= read.busy_threshold_ppm {
            return wrong("use_limit must be below busy_threshold");
        }
        if read.max_window_ns < read.window_ns {
            return wrong("max_window must not be below window");
        }
        Ok(read)
    }

    /// Change from which a load is another one: what was learned under the first does not hold. Also where such a change ends no savings.
    pub(super) fn other_load(&self) -> f64 {
        let ppm = if self.load_change_ppm > 0 { self.load_change_ppm } else { Self::default().load_change_ppm };
        share(ppm)
    }

    fn set_variant(&mut self, which: &str) -> Option<()> {
        let Self { aim_ppm, forecast, load_change_ppm, dead_band_ppm, alpha, refines, stable_drives, .. } =
            Self::default();
        *self = match which {
            "recommended" => Self {
                aim_ppm,
                forecast,
                load_change_ppm,
                dead_band_ppm,
                alpha,
                refines,
                stable_drives,
                ..self.clone()
            },
            "paper" => Self {
                aim_ppm: 1_000_000,
                forecast: 0.0,
                load_change_ppm: 0,
                dead_band_ppm: 0,
                alpha: None,
                refines: true,
                stable_drives: true,
                ..self.clone()
            },
            _ => return None,
        };
        Some(())
    }

    /// The name of the variant in force.
    fn variant(&self) -> &'static str {
        let is_like = |which: &&str| {
            let mut like = self.clone();
            like.set_variant(which);
            like == *self
        };
        ["recommended", "paper"].into_iter().find(is_like).unwrap_or("own")
    }

    /// All of them.
    #[must_use]
    pub fn list(&self) -> Vec<Setting> {
        parameter::list(&TABLE, self)
    }
}

/// A share in millionths as a number.
pub(super) fn share(ppm: u32) -> f64 {
    f64::from(ppm) / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_variant_is_the_printed_rule() {
        let paper = Parameters::read(&[("aim", "90%"), ("variant", "paper")]).unwrap();
        assert_eq!((paper.aim_ppm, paper.alpha, paper.refines, paper.variant()), (900_000, None, true, "own"));
        assert_eq!(Parameters::read(&[("variant", "paper")]).unwrap().variant(), "paper");
        assert_eq!(Parameters::default().variant(), "recommended");
        assert!(Parameters::read(&[("variant", "printed")]).is_err());
    }
}
