//! Update interval, averaging time, lag and resolution of a sensor, and the shortest window that they allow.
//!
//! The edges of a window of `n` updates have an error of up to `2/n`. A window of fewer than [`MIN_UPDATES`] updates therefore has no
//! energy, nor has one in which a counter increased by fewer than [`MIN_QUANTA`] of its steps.

use serde::{Deserialize, Serialize};

/// New values of a sensor that a window needs.
pub const MIN_UPDATES: u64 = 3;
/// Steps of an energy counter that a window needs, for an error of at most 10 % at its edges.
pub const MIN_QUANTA: u64 = 10;

/// Update interval, averaging time, lag and resolution of a domain's values. What is not documented is `None`, not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// Time between two new values, in nanoseconds; 0: the sensor's native interval.
    pub update_ns: u64,
    /// Time over which a value is averaged, in nanoseconds; 0: a counter, or the moment of reading.
    pub averaging_ns: Option<u64>,
    /// Delay of a value, in nanoseconds.
    pub lag_ns: Option<u64>,
    /// The smallest step of a value, in the domain's unit.
    pub quantum: Option<u64>,
}

impl Timing {
    /// A counter that the hardware updates every `update_ns`, without averaging and lag.
    pub const fn counter(update_ns: u64) -> Self {
        Self { update_ns, averaging_ns: Some(0), lag_ns: Some(0), quantum: None }
    }

    /// With the smallest step of a value, in the domain's unit.
    #[must_use]
    pub const fn steps(self, quantum: u64) -> Self {
        Self { quantum: Some(quantum), ..self }
    }

    /// With the sensor's native interval if the domain has no update interval.
    #[must_use]
    pub fn or_native(self, native_interval_ns: u64) -> Self {
        if self.update_ns == 0 { Self { update_ns: native_interval_ns, ..self } } else { self }
    }

    /// The shortest window with an energy, in nanoseconds, if the sensor is read every `interval_ns`.
    #[must_use]
    pub fn least_window_ns(&self, interval_ns: u64) -> u64 {
        let update_ns = self.update_ns.max(interval_ns).max(self.averaging_ns.unwrap_or(0));
        MIN_UPDATES.saturating_mul(update_ns).saturating_add(self.lag_ns.unwrap_or(0))
    }

    /// Why a window is too short for this domain.
    #[must_use]
    pub fn too_short(&self, window_ns: u64, interval_ns: u64) -> Option<String> {
        let least_ns = self.least_window_ns(interval_ns);
        let (window, least) = (seconds(window_ns), seconds(least_ns));
        let update = seconds(self.update_ns.max(interval_ns));
        let known = |what: &str, ns: Option<u64>| {
            ns.filter(|ns| *ns > 0).map_or(String::new(), |ns| format!(", {what} {}", seconds(ns)))
        };
        let (average, lag) = (known("an average over", self.averaging_ns), known("a lag of", self.lag_ns));
        (window_ns < least_ns).then(|| {
            format!(
                "{window} is too short: this sensor has a new value every {update}{average}{lag}; {least} are needed"
            )
        })
    }

    /// Why an energy is too small for the steps of its counter; `energy` is in the domain's unit.
    #[must_use]
    pub fn too_coarse(&self, energy: u64, unit: &str) -> Option<String> {
        let quantum = self.quantum.unwrap_or(0);
        let least = quantum.saturating_mul(MIN_QUANTA);
        (energy < least).then(|| {
            format!("{energy} {unit} are too few: this counter moves in steps of {quantum} {unit}, and {MIN_QUANTA} of them are needed")
        })
    }

    /// Text such as `new every 1 s, average of 1 s, lag 1 s`.
    #[must_use]
    pub fn words(&self) -> String {
        let known = |what: &str, ns: Option<u64>| match ns {
            None => format!("{what} not documented"),
            Some(0) => format!("no {what}"),
            Some(ns) => format!("{what} {}", seconds(ns)),
        };
        let every = seconds(self.update_ns);
        format!("new every {every}, {}, {}", known("averaging", self.averaging_ns), known("lag", self.lag_ns))
    }
}

/// `50 us`, `1.5 s`.
fn seconds(ns: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let fits = units.into_iter().find(|(unit, _)| ns >= *unit);
    fits.map_or_else(|| format!("{ns} ns"), |(unit, name)| format!("{} {name}", (ns * 100 / unit) as f64 / 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_window_needs_three_updates_and_the_lag() {
        let bmc = Timing { update_ns: S, lag_ns: Some(S), ..Timing::default() };
        assert_eq!(bmc.too_short(4 * S, S), None);
        let why = bmc.too_short(3 * S, S).unwrap();
        assert_eq!(why, "3 s is too short: this sensor has a new value every 1 s, a lag of 1 s; 4 s are needed");
        assert!(Timing::counter(1_000_000).too_short(2_000_000, 1_000_000).is_some());
        assert_eq!(Timing::counter(1_000_000).too_short(S, S / 3), None);
        assert!(Timing::counter(1_000_000).too_short(S, S).is_some(), "read less often than it is updated");
        let average = Timing { averaging_ns: Some(5 * S), ..bmc };
        let why = average.too_short(15 * S, S).unwrap();
        assert!(why.ends_with("every 1 s, an average over 5 s, a lag of 1 s; 16 s are needed"), "{why}");
    }

    #[test]
    fn energy_in_watt_hours_needs_ten_steps() {
        let meter = Timing::default().steps(36_000_000); // 0.01 Wh
        let why = meter.too_coarse(108_000_000, "uJ").unwrap();
        assert!(why.contains("steps of 36000000 uJ"), "{why}");
        assert_eq!(meter.too_coarse(360_000_000, "uJ"), None);
        assert_eq!(Timing::default().too_coarse(1, "uJ"), None);
    }

    #[test]
    fn undocumented_timing_is_reported() {
        assert_eq!(Timing::counter(50_000).words(), "new every 50 us, no averaging, no lag");
        let unknown = Timing::default().or_native(S);
        assert_eq!(unknown.words(), "new every 1 s, averaging not documented, lag not documented");
    }
}
