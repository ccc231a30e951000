//! Estimates the power under the last setting, from readings that are late and averaged.
//!
//! A reading is the mean of a window. While part of the window lies before the time at which the last setting takes effect, the reading is too
//! high after a cut and too low after a raise. From a third of a window on, power is predicted: the part before had the power known when the knob
//! was set. Readings with less are not used. A missing or stale reading changes nothing.

use pilotlight_plant::{Capabilities, Quantity, Reading, ReadingId, Sample, Scope, Source};

use super::Domain;

/// Power under the last setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    /// In microwatts.
    pub(crate) power_uw: f64,
    /// Whether the setting was in effect for the whole window.
    pub(crate) is_whole: bool,
    /// Maximum error of a prediction, in microwatts.
    pub(crate) error_uw: f64,
    /// Mean of the last [`MANY`] readings of whole windows, which reduces noise and quantization; `None` with fewer.
    pub(crate) mean_uw: Option<f64>,
}

/// Maximum error of a reading, in microwatts: sensors of servers have steps of 1 W and some noise.
const RESOLUTION_UW: f64 = 1_000_000.0;
/// Maximum deviation of the time at which a setting takes effect, in nanoseconds.
const LATE_NS: f64 = 100_000_000.0;
/// Readings in a mean (PASS 3.3 samples over five intervals).
const MANY: usize = 5;

/// The last setting.
#[derive(Clone, Copy, Debug)]
struct Setting {
    /// When it takes effect.
    holds_ns: u64,
    /// The power until then and its maximum error, if known.
    before: Option<(f64, f64)>,
}

/// Reads one power domain.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    /// The sources whose sum is the domain's power.
    ids: Vec<ReadingId>,
    window_ns: u64,
    /// Minimum distance between used readings.
    spacing_ns: u64,
    /// Readings are not corrected.
    is_raw: bool,
    /// End and value of the last good window.
    last: Option<(u64, u64)>,
    setting: Option<Setting>,
    /// The last estimate since that setting.
    estimate: Option<Estimate>,
    /// The last readings of whole windows since then, and their number.
    whole_uw: [f64; MANY],
    wholes: usize,
}

impl Meter {
    /// For the sources of a domain; `None` if the plant does not measure it.
    pub(crate) fn find(domain: Domain, capabilities: &Capabilities) -> Option<Self> {
        let of_domain = |source: &Source| match domain {
            Domain::Server => source.scope == Scope::Server,
            Domain::Cpu => matches!(source.scope, Scope::Package(_)),
        };
        let sources = || capabilities.sources_of(Quantity::PowerUw).filter(|(_, source)| of_domain(source));
        let window_ns = sources().map(|(_, source)| source.window_ns).max()?;
        Some(Self { ids: sources().map(|(id, _)| id).collect(), window_ns, ..Self::default() })
    }

    /// The sources.
    pub(crate) fn ids(&self) -> &[ReadingId] {
        &self.ids
    }

    /// Length of a window.
    pub(crate) fn window_ns(&self) -> u64 {
        self.window_ns
    }

    /// Replaces the sources and keeps the state.
    pub(crate) fn replace_sources(&mut self, other: Self) {
        (self.ids, self.window_ns) = (other.ids, other.window_ns);
    }

    /// With a minimum distance between readings.
    pub(crate) fn spaced(self, spacing_ns: u64) -> Self {
        Self { spacing_ns, ..self }
    }

    /// Without correction of readings.
    pub(crate) fn uncorrected(self) -> Self {
        Self { is_raw: true, ..self }
    }

    /// Processes the readings of a sample; whether there is a new estimate.
    pub(crate) fn read(&mut self, sample: &Sample<'_>) -> bool {
        let Some((ended_ns, power_uw)) = self.sum(sample) else { return false };
        if self.last.is_some_and(|(last_ns, _)| ended_ns <= last_ns || ended_ns - last_ns < self.spacing_ns) {
            return false;
        }
        self.last = Some((ended_ns, power_uw));
        let estimate = self.predict(ended_ns, power_uw as f64);
        self.estimate = estimate.or(self.estimate);
        estimate.is_some()
    }

    /// Whether a sample has the domain's power: no reading of it was refused or is stale.
    pub(crate) fn is_known(&self, sample: &Sample<'_>) -> bool {
        self.sum(sample).is_some()
    }

    /// The end of the oldest window and the sum of the sources; `None` if one is missing.
    pub(crate) fn sum(&self, sample: &Sample<'_>) -> Option<(u64, u64)> {
        let mut sum = (u64::MAX, 0_u64);
        for id in &self.ids {
            let reading: &Reading = sample.readings.iter().find(|reading| reading.id == *id)?;
            let ended_ns = sample.now_ns.checked_sub(reading.age_ns)?;
            sum = (sum.0.min(ended_ns), sum.1.saturating_add(reading.value?));
        }
        (!self.ids.is_empty()).then_some(sum)
    }

    fn predict(&mut self, ended_ns: u64, power_uw: f64) -> Option<Estimate> {
        let Some(Setting { holds_ns, before }) = self.setting else {
            return Some(self.measured(power_uw));
        };
        let is_whole = ended_ns >= holds_ns.saturating_add(self.window_ns);
        if self.is_raw && !is_whole {
            return Some(Estimate { power_uw, is_whole, error_uw: RESOLUTION_UW, mean_uw: None });
        }
        let since_ns = ended_ns.checked_sub(holds_ns)?;
        if is_whole {
            return Some(self.measured(power_uw));
        }
        if since_ns < self.window_ns / 3 {
            return None;
        }
        let (before_uw, error_uw) = before?;
        let share = since_ns as f64 / self.window_ns as f64;
        let power_uw = ((power_uw - (1.0 - share) * before_uw) / share).max(0.0);
        let late_uw = (power_uw - before_uw).abs() * LATE_NS / self.window_ns as f64;
        let error_uw = (RESOLUTION_UW + (1.0 - share) * error_uw + late_uw) / share;
        Some(Estimate { power_uw, is_whole: false, error_uw, mean_uw: None })
    }

    fn measured(&mut self, power_uw: f64) -> Estimate {
        self.whole_uw[self.wholes % MANY] = power_uw;
        self.wholes += 1;
        let mean_uw = (self.wholes >= MANY).then(|| self.whole_uw.iter().sum::<f64>() / MANY as f64);
        Estimate { power_uw, is_whole: true, error_uw: RESOLUTION_UW, mean_uw }
    }

    /// The last estimate since the last setting.
    pub(crate) fn estimate(&self) -> Option<Estimate> {
        self.estimate
    }

    /// When the window of the last good reading ended.
    pub(crate) fn ended_ns(&self) -> Option<u64> {
        self.last.map(|(ended_ns, _)| ended_ns)
    }

    /// The last good reading in microwatts, and its age in nanoseconds.
    pub(crate) fn last(&self, now_ns: u64) -> Option<(u64, u64)> {
        self.last.map(|(ended_ns, power_uw)| (power_uw, now_ns.saturating_sub(ended_ns)))
    }

    /// Records a setting that takes effect at `holds_ns`.
    pub(crate) fn note_setting(&mut self, holds_ns: u64) {
        let known = self.estimate.map(|estimate| (estimate.power_uw, estimate.error_uw));
        let before = known.or(self.setting.and_then(|setting| setting.before));
        let before = before.or(self.last.map(|(_, uw)| (uw as f64, RESOLUTION_UW)));
        self.setting = Some(Setting { holds_ns, before });
        (self.estimate, self.wholes) = (None, 0);
    }

    /// Forgets all readings.
    pub(crate) fn reset(&mut self) {
        (self.last, self.setting, self.estimate, self.wholes) = (None, None, None, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn meter() -> Meter {
        Meter { ids: vec![ReadingId(0)], window_ns: 4 * S, ..Meter::default() }
    }

    fn read(meter: &mut Meter, now_s: u64, value: Option<u64>, age_s: u64) -> Option<Estimate> {
        let readings = [Reading { id: ReadingId(0), value, age_ns: age_s * S }];
        let sample = Sample { now_ns: now_s * S, elapsed_ns: S, cores: &[], threads: &[], readings: &readings };
        meter.read(&sample).then(|| meter.estimate().unwrap())
    }

    fn measured(power_uw: f64) -> Option<Estimate> {
        Some(Estimate { power_uw, is_whole: true, error_uw: RESOLUTION_UW, mean_uw: None })
    }

    #[test]
    fn a_window_that_begins_before_the_setting_is_corrected_from_a_third_on() {
        let mut meter = meter();
        assert_eq!(read(&mut meter, 10, Some(400), 1), measured(400.0));
        meter.note_setting(10 * S);
        assert_eq!(meter.estimate(), None);
        // From 400 to 300: each second of the window shows a fourth of it.
        assert_eq!(read(&mut meter, 12, Some(375), 1), None);
        let predicted = read(&mut meter, 13, Some(350), 1).unwrap();
        assert_eq!((predicted.power_uw, predicted.is_whole), (300.0, false));
        assert_eq!(
            predicted.error_uw.round(),
            (3.0 * RESOLUTION_UW + 5.0).round(),
            "twice the error of a reading, once that of the power before"
        );
        assert_eq!(read(&mut meter, 15, Some(300), 1), measured(300.0));
    }

    #[test]
    fn uncorrected_readings_are_used_unchanged() {
        let mut meter = meter().uncorrected();
        meter.note_setting(10 * S);
        let raw = |power_uw| Some(Estimate { is_whole: false, ..measured(power_uw).unwrap() });
        assert_eq!(read(&mut meter, 10, Some(400), 1), raw(400.0));
        assert_eq!(read(&mut meter, 13, Some(350), 1), raw(350.0));
        assert_eq!(read(&mut meter, 15, Some(300), 1), measured(300.0));
    }

    #[test]
    fn a_mean_is_of_the_last_readings_since_the_setting() {
        let mut meter = meter();
        let mean_uw = |meter: &mut Meter, now_s, value| read(meter, now_s, Some(value), 1).and_then(|one| one.mean_uw);
        let means: Vec<_> = (10..16).map(|now_s| mean_uw(&mut meter, now_s, now_s)).collect();
        assert_eq!(means, [None, None, None, None, Some(12.0), Some(13.0)]);
        meter.note_setting(16 * S);
        let means: Vec<_> = (22..27).map(|now_s| mean_uw(&mut meter, now_s, 7)).collect();
        assert_eq!(means, [None, None, None, None, Some(7.0)]);
    }

    #[test]
    fn missing_and_repeated_readings_give_no_new_estimate() {
        let mut meter = meter();
        assert_eq!(read(&mut meter, 10, None, 1), None);
        assert_eq!(meter.last(10 * S), None);
        assert!(read(&mut meter, 11, Some(400), 1).is_some());
        assert_eq!(read(&mut meter, 12, Some(400), 2), None, "the same window");
        assert_eq!(read(&mut meter, 13, None, 3), None);
        assert_eq!(meter.last(13 * S), Some((400, 3 * S)));
    }
}
