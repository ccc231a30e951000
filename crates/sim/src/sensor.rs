//! Model of a power sensor: delay, averaging, rounding and noise.
//!
//! *Problem.* A policy that holds a budget sees readings, not true power: averaged, delayed, quantised and noisy. *Terms.* The *window* is the
//! averaging time of a reading, the *lag* the age of the window's end at the time of reading, the *quantum* the resolution; a new reading appears
//! every `update_ns`. *Algorithm.* True energy is recorded by stretch ([`Sensor::record_energy`]) and accumulated; a reading is the difference of two
//! sums. Noise is drawn from the number of the update, so that it does not depend on the times of reading. *Properties* (tests below): a reading
//! depends only on events before `now - lag`; without window, lag, quantum and noise it is the true power; the mean of many readings is the true mean
//! times the gain; a failed sensor returns no reading.

use std::collections::VecDeque;

use serde::Deserialize;

use crate::rng::{Purpose, Stream};

/// Parameters of a sensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SensorModel {
    /// Averaging window; 0 for the last complete stretch.
    pub window_ns: u64,
    /// Age of the window's end at the time of reading.
    pub lag_ns: u64,
    /// Update period.
    pub update_ns: u64,
    /// Resolution: readings are multiples of this; 0 for unlimited.
    #[serde(default)]
    pub quantum_uw: u64,
    /// Standard deviation of the noise of a reading, before rounding; the noise is at most six times this.
    #[serde(default)]
    pub noise_uw: u64,
    /// Reading over true power, in millionths: a sensor may be inaccurate or cover a part of the machine.
    #[serde(default = "one")]
    pub gain_ppm: u64,
    /// Share of missing updates, in millionths.
    #[serde(default)]
    pub missing_ppm: u64,
}

fn one() -> u64 {
    1_000_000
}

/// A reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SensorReading {
    /// Mean power over the sensor's window, in microwatts.
    pub power_uw: u64,
    /// Age of the window's end.
    pub age_ns: u64,
}

/// A sensor within a run.
#[derive(Clone, Debug)]
pub struct Sensor {
    model: SensorModel,
    noise: Stream,
    /// Ends of stretches with the energy until then, in femtojoules, from the oldest that a reading can need.
    history: VecDeque<(u64, u128)>,
}

impl Sensor {
    /// A sensor without history; `index` distinguishes sensors of one seed.
    #[must_use]
    pub fn new(model: SensorModel, seed: u64, index: u64) -> Self {
        let noise = Stream::new(seed, Purpose::Sensors, index);
        Self { model, noise, history: VecDeque::from([(0, 0)]) }
    }

    /// Records the machine's energy from the last call until `at_ns`, in femtojoules (microwatts times nanoseconds).
    pub fn record_energy(&mut self, at_ns: u64, energy_fj: u128) {
        let Some(&(before_ns, sum_fj)) = self.history.back() else { return };
        if at_ns <= before_ns {
            return;
        }
        self.history.push_back((at_ns, sum_fj + energy_fj));
        let reach_ns = self.model.window_ns.saturating_add(self.model.lag_ns) + self.model.update_ns * FAILS;
        let oldest_ns = at_ns.saturating_sub(reach_ns);
        while self.history.get(2).is_some_and(|&(end_ns, _)| end_ns <= oldest_ns) {
            self.history.pop_front();
        }
    }

    /// The reading at `now_ns`; `None` before the first full window, or if too many updates are missing.
    #[must_use]
    pub fn read(&self, now_ns: u64) -> Option<SensorReading> {
        let update_ns = self.model.update_ns.max(1);
        let latest = now_ns / update_ns;
        let first = latest.saturating_sub(FAILS - 1);
        let number = (first..=latest).rev().find(|number| !self.is_missing(*number))?;
        let end_ns = (number * update_ns).checked_sub(self.model.lag_ns)?;
        let power_uw = self.true_uw(end_ns)?;
        Some(SensorReading { power_uw: self.shown_uw(power_uw, number), age_ns: now_ns - end_ns })
    }

    fn is_missing(&self, number: u64) -> bool {
        self.model.missing_ppm > 0
            && crate::rng::below(self.noise.at(number * DRAWS), 1_000_000) < self.model.missing_ppm
    }

    /// Mean power over the window that ends at `end_ns`, from stretches that had ended by then.
    fn true_uw(&self, end_ns: u64) -> Option<u64> {
        let last = self.history.partition_point(|&(at_ns, _)| at_ns <= end_ns).checked_sub(1)?;
        let (to_ns, to_fj) = self.history[last];
        let before = last.checked_sub(1)?;
        let from_ns =
            if self.model.window_ns == 0 { self.history[before].0 } else { to_ns.checked_sub(self.model.window_ns)? };
        let from_fj = self.sum_at(from_ns)?;
        u64::try_from((to_fj - from_fj) / u128::from(to_ns - from_ns)).ok()
    }

    /// Energy until `at_ns`, interpolated linearly within a stretch.
    fn sum_at(&self, at_ns: u64) -> Option<u128> {
        let next = self.history.partition_point(|&(end_ns, _)| end_ns < at_ns);
        let (end_ns, end_fj) = *self.history.get(next)?;
        if end_ns == at_ns {
            return Some(end_fj);
        }
        let (begin_ns, begin_fj) = *self.history.get(next.checked_sub(1)?)?;
        let share = (end_fj - begin_fj) * u128::from(at_ns - begin_ns) / u128::from(end_ns - begin_ns);
        Some(begin_fj + share)
    }

    fn shown_uw(&self, true_uw: u64, number: u64) -> u64 {
        let gained = u128::from(true_uw) * u128::from(self.model.gain_ppm) / 1_000_000;
        let noisy = gained as f64 + self.model.noise_uw as f64 * self.normal(number);
        let quantum = self.model.quantum_uw.max(1) as f64;
        ((noisy.max(0.0) / quantum).round() * quantum) as u64
    }

    /// The sum of twelve uniform numbers minus six: approximately normal, and equal on every platform.
    fn normal(&self, number: u64) -> f64 {
        let uniform = |draw: u64| crate::rng::unit(self.noise.at(number * DRAWS + 1 + draw));
        (0..12).map(uniform).sum::<f64>() - 6.0
    }
}

/// Random draws per update.
const DRAWS: u64 = 16;
/// A reading remains valid until this many updates after it are missing.
const FAILS: u64 = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;
    const PLAIN: SensorModel = SensorModel {
        window_ns: 0,
        lag_ns: 0,
        update_ns: 1,
        quantum_uw: 0,
        noise_uw: 0,
        gain_ppm: 1_000_000,
        missing_ppm: 0,
    };

    /// A sensor with the given watts in each millisecond.
    fn sensor(model: SensorModel, watts: impl IntoIterator<Item = u64>) -> Sensor {
        let mut sensor = Sensor::new(model, 7, 0);
        for (index, uw) in watts.into_iter().enumerate() {
            sensor.record_energy((index as u64 + 1) * MS, u128::from(uw) * u128::from(MS));
        }
        sensor
    }

    #[test]
    fn a_perfect_sensor_reads_the_truth() {
        let sensor = sensor(PLAIN, [5, 7, 9]);
        assert_eq!(sensor.read(MS - 1), None, "nothing has ended yet");
        assert_eq!(sensor.read(3 * MS), Some(SensorReading { power_uw: 9, age_ns: 0 }));
        assert_eq!(sensor.read(3 * MS - 1).map(|read| read.power_uw), Some(7));
    }

    /// Thunderbolt's power cut: a moving average shows a step as a ramp, after the lag.
    #[test]
    fn a_step_shows_as_a_ramp_after_the_lag() {
        let model = SensorModel { window_ns: 4 * MS, lag_ns: 2 * MS, update_ns: MS, quantum_uw: 1_000_000, ..PLAIN };
        let steps = (0..40).map(|ms| if ms < 20 { 300_000_000 } else { 200_000_000 });
        let sensor = sensor(model, steps);
        let read = |ms: u64| sensor.read(ms * MS).map(|read| read.power_uw / 1_000_000);
        assert_eq!(read(5), None, "no whole window has been seen");
        assert_eq!((read(6), read(22)), (Some(300), Some(300)));
        assert_eq!([23, 24, 25, 26, 30].map(read), [275, 250, 225, 200, 200].map(Some));
        assert_eq!(sensor.read(25 * MS).map(|read| read.age_ns), Some(2 * MS));
    }

    #[test]
    fn readings_are_steps_of_the_quantum_and_hold_until_the_next() {
        let model = SensorModel { update_ns: 10 * MS, quantum_uw: 4, ..PLAIN };
        let sensor = sensor(model, (0..100).map(|ms| 100 + ms));
        assert_eq!(sensor.read(20 * MS).map(|read| read.power_uw), Some(120));
        assert_eq!(sensor.read(29 * MS), Some(SensorReading { power_uw: 120, age_ns: 9 * MS }));
    }

    #[test]
    fn noise_and_gain_match_their_configuration() {
        let model = SensorModel { update_ns: MS, noise_uw: 2_000, gain_ppm: 800_000, ..PLAIN };
        let sensor = |seed| {
            let mut sensor = Sensor::new(model, seed, 0);
            let readings: Vec<f64> = (1..20_000_u64)
                .map(|ms| {
                    sensor.record_energy(ms * MS, 1_000_000 * u128::from(MS));
                    sensor.read(ms * MS).map_or(0.0, |read| read.power_uw as f64)
                })
                .collect();
            readings
        };
        let readings = sensor(1);
        let mean = readings.iter().sum::<f64>() / readings.len() as f64;
        let deviation = (readings.iter().map(|read| (read - mean).powi(2)).sum::<f64>() / readings.len() as f64).sqrt();
        assert!((mean - 800_000.0).abs() < 60.0 && (deviation / 2_000.0 - 1.0).abs() < 0.03, "{mean} {deviation}");
        assert_eq!(readings, sensor(1));
        assert_ne!(readings, sensor(2));
    }

    #[test]
    fn a_missing_update_leaves_the_reading_before_and_it_ages() {
        let model = SensorModel { update_ns: MS, missing_ppm: 500_000, ..PLAIN };
        let mut sensor = Sensor::new(model, 7, 0);
        let mut read = |ms: u64| {
            sensor.record_energy(ms * MS, u128::from(1_000 + ms) * u128::from(MS));
            sensor.read(ms * MS)
        };
        let ages: Vec<u64> = (1..=120).filter_map(&mut read).skip(10).map(|read| read.age_ns / MS).collect();
        let fresh = ages.iter().filter(|age| **age == 0).count();
        assert!(ages.len() >= 100 && (30..70).contains(&fresh) && ages.iter().any(|age| *age > 2), "{ages:?}");
        let dead = self::sensor(SensorModel { missing_ppm: 1_000_000, ..model }, 0..100);
        assert_eq!(dead.read(50 * MS), None);
    }

    proptest! {
        /// Events after the end of its window do not change a reading, regardless of when it is read; the reading equals the sum over the window,
        /// nanosecond by nanosecond.
        #[test]
        fn a_reading_is_of_the_past_alone(
            watts in prop::collection::vec(0..1_000_u64, 30..60), window in 1..8_u64, lag in 0..8_u64, more in prop::collection::vec(0..1_000_u64, 0..20),
        ) {
            let model = SensorModel { window_ns: window * MS, lag_ns: lag * MS, update_ns: MS, ..PLAIN };
            let now = watts.len() as u64;
            let known = sensor(model, watts.iter().copied());
            let later = sensor(model, watts.iter().chain(&more).copied());
            prop_assert_eq!(known.read(now * MS), later.read(now * MS));
            let of_window = &watts[(now - lag - window) as usize..(now - lag) as usize];
            let mean = of_window.iter().sum::<u64>() / window;
            prop_assert_eq!(known.read(now * MS), Some(SensorReading { power_uw: mean, age_ns: lag * MS }));
        }
    }
}
