//! The Freq. Adaptor: one frequency for all cores in use (PACER IV-C), `f += gamma x loss_distance` with a negative gamma.

use pilotlight_plant::{Capabilities, Command, KnobId, Refusal, Topology};

use super::parameters::Parameters;
use crate::core_frequency::CoreFrequency;

/// The frequency of the cores in use.
#[derive(Debug)]
pub(super) struct Frequency {
    /// By core; `None` if its frequency cannot be set.
    frequencies: Vec<Option<CoreFrequency>>,
    lowest_khz: u64,
    highest_khz: u64,
    /// The target.
    pub(super) khz: u64,
    /// Lower bound: less was too low under this load.
    floor_khz: u64,
    /// The last frequency that kept the tolerance.
    proven_khz: u64,
    /// Time until a frequency takes effect, in nanoseconds.
    effect_ns: u64,
}

impl Frequency {
    pub(super) fn new(topology: &Topology, capabilities: &Capabilities) -> Self {
        let frequencies: Vec<_> = topology.cores().map(|core| CoreFrequency::find(core, capabilities)).collect();
        let all = || frequencies.iter().flatten();
        let lowest_khz = all().map(|frequency| frequency.lowest_khz).min().unwrap_or(0);
        let highest_khz = all().map(|frequency| frequency.highest_khz).max().unwrap_or(0);
        let effect = |frequency: &CoreFrequency| capabilities.knob(frequency.knob).map(|knob| knob.effect.ns());
        let effect_ns = all().filter_map(effect).max().unwrap_or(0);
        let (khz, floor_khz, proven_khz) = (highest_khz, lowest_khz, highest_khz);
        Self { frequencies, lowest_khz, highest_khz, khz, floor_khz, proven_khz, effect_ns }
    }

    /// Takes over the state of another with the same range.
    pub(super) fn inherit(&mut self, before: &Self) {
        if (self.lowest_khz, self.highest_khz) == (before.lowest_khz, before.highest_khz) {
            (self.khz, self.floor_khz, self.proven_khz) = (before.khz, before.floor_khz, before.proven_khz);
        }
    }

    /// Whether it can be set.
    pub(super) fn exists(&self) -> bool {
        self.frequencies.iter().flatten().any(|frequency| !frequency.is_refused())
    }

    pub(super) fn effect_ns(&self) -> u64 {
        self.effect_ns
    }

    /// Starts savings under another load.
    pub(super) fn begin(&mut self) {
        (self.khz, self.floor_khz, self.proven_khz) = (self.highest_khz, self.lowest_khz, self.highest_khz);
    }

    /// Resumes savings under the previous load, at `min_share` of the highest frequency or more; with `retry` one step less is allowed.
    pub(super) fn resume(&mut self, retry: bool, min_share: f64) {
        if retry {
            self.floor_khz = self.step(self.floor_khz, |frequency, khz| frequency.values.down(khz));
        }
        let min_khz = (self.highest_khz as f64 * min_share.min(1.0)) as u64;
        let khz = self.proven_khz.max(self.floor_khz).max(min_khz);
        let nearest_khz = self.step(khz, |frequency, khz| frequency.values.nearest(khz).unwrap_or(khz));
        self.khz =
            if nearest_khz < khz { self.step(khz, |frequency, khz| frequency.values.up(khz)) } else { nearest_khz };
    }

    /// Steps with the knob of the core that has the highest maximum.
    fn step(&self, khz: u64, to: impl Fn(&CoreFrequency, u64) -> u64) -> u64 {
        self.frequencies
            .iter()
            .flatten()
            .max_by_key(|frequency| frequency.highest_khz)
            .map_or(khz, |frequency| to(frequency, khz))
    }

    /// The value nearest to `khz`, at least a step from the current one.
    fn nearest(&self, khz: u64) -> u64 {
        let nearest = self.step(khz, |frequency, khz| frequency.values.nearest(khz).unwrap_or(khz));
        match khz < self.khz {
            true => nearest.min(self.step(self.khz, |frequency, khz| frequency.values.down(khz))),
            false => nearest.max(self.step(self.khz, |frequency, khz| frequency.values.up(khz))),
        }
    }

    fn change(&self, distance: f64, parameters: &Parameters) -> u64 {
        let khz = self.khz as f64 + parameters.gamma * self.highest_khz as f64 * distance;
        (khz.max(0.0) as u64).min(self.highest_khz)
    }

    /// Headroom: lowers the frequency as far as it `fits`, or else by one step; whether it does.
    pub(super) fn lower(&mut self, distance: f64, parameters: &Parameters, mut fits: impl FnMut(f64) -> bool) -> bool {
        let next = self.step(self.khz, |frequency, khz| frequency.values.down(khz));
        let khz = [self.nearest(self.change(distance, parameters)), next]
            .into_iter()
            .map(|khz| khz.max(self.floor_khz))
            .find(|&khz| khz < self.khz && fits(self.khz as f64 / khz.max(1) as f64));
        self.khz = khz.unwrap_or(self.khz);
        khz.is_some()
    }

    /// Too much loss: raises the frequency; whether it does.
    pub(super) fn raise(&mut self, distance: f64, parameters: &Parameters) -> bool {
        if self.khz >= self.highest_khz {
            return false;
        }
        self.floor_khz = self.floor_khz.max(self.step(self.khz, |frequency, khz| frequency.values.up(khz)));
        // A frequency that has kept the tolerance before suffices, or one step more.
        let most_khz = self.proven_khz.max(self.floor_khz);
        self.khz = self.nearest(self.change(distance, parameters)).clamp(self.floor_khz, most_khz);
        true
    }

    /// Whether the current frequency is not proven to keep the tolerance.
    pub(super) fn is_new(&self) -> bool {
        self.khz < self.proven_khz
    }

    /// The highest. If the current one is the `cause`, it is not retried under this load; the next try is between it and the proven one, or one
    /// step more if it is the proven one.
    pub(super) fn restore(&mut self, is_cause: bool) {
        if is_cause && self.khz < self.highest_khz {
            let next_khz = self.step(self.khz, |frequency, khz| frequency.values.up(khz));
            let half_khz = self.step(self.khz.midpoint(self.proven_khz), |frequency, khz| {
                frequency.values.nearest(khz).unwrap_or(khz)
            });
            self.floor_khz = self.floor_khz.max(half_khz).max(next_khz);
            self.proven_khz = self.proven_khz.max(self.floor_khz);
        }
        self.khz = self.highest_khz;
    }

    pub(super) fn is_highest(&self) -> bool {
        self.khz == self.highest_khz
    }

    /// Records that the current frequency keeps the tolerance.
    pub(super) fn prove(&mut self) {
        self.proven_khz = self.khz;
    }

    /// Another tolerance: forgets frequencies that were too low.
    pub(super) fn forget(&mut self) {
        (self.floor_khz, self.proven_khz) = (self.lowest_khz, self.highest_khz);
    }

    /// Sets it on the cores in use.
    pub(super) fn apply(&mut self, now_ns: u64, in_use: &[bool], out: &mut Vec<Command>) {
        let khz = self.khz;
        for (frequency, _) in self.frequencies.iter_mut().zip(in_use).filter(|(_, in_use)| **in_use) {
            if let Some(frequency) = frequency {
                let nearest = frequency.values.nearest(khz).unwrap_or(khz);
                frequency.set(now_ns, nearest, out);
            }
        }
    }

    /// Starts a backoff; whether the knob is one of these.
    pub(super) fn on_refused(&mut self, now_ns: u64, knob: KnobId, refusal: Refusal) -> bool {
        let Some(frequency) = self.frequencies.iter_mut().flatten().find(|frequency| frequency.knob == knob) else {
            return false;
        };
        frequency.on_refused(now_ns, refusal);
        if !self.exists() {
            self.khz = self.highest_khz; // it saves nothing
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::{Cost, Kind, Knob, Scope, Values};

    use super::*;

    /// With a core for each highest frequency, in steps of 100 MHz from 1 GHz on.
    fn frequency(highest_khz: &[u64]) -> Frequency {
        let knob = |(core, &max): (usize, &u64)| Knob {
            scope: Scope::Core(pilotlight_plant::CoreId(core as u16)),
            kind: Kind::FrequencyKhz,
            values: Values::Range { min: 1_000_000, max, step: 100_000 },
            initial: max,
            caller: Cost::Measured(0),
            effect: Cost::Measured(0),
        };
        let knobs = highest_khz.iter().enumerate().map(knob).collect();
        let topology = Topology::flat(highest_khz.len() as u16).unwrap();
        Frequency::new(&topology, &Capabilities { knobs, ..Capabilities::default() })
    }

    #[test]
    fn it_changes_by_gamma_times_the_distance_and_by_a_step_at_least() {
        let parameters = Parameters::default();
        let mut one = frequency(&[2_000_000]);
        assert!(one.lower(1.0, &parameters, |_| true));
        assert_eq!(one.khz, 1_900_000, "5 % of 2 GHz");
        assert!(one.lower(0.01, &parameters, |_| true));
        assert_eq!(one.khz, 1_800_000);
        assert!(!one.lower(1.0, &parameters, |_| false));
        one.prove();
        assert!(one.raise(-3.0, &parameters));
        assert_eq!(one.khz, 1_900_000, "1.8 GHz has kept the tolerance: one step more is enough");
        assert!(!one.lower(1.0, &parameters, |_| true), "1.8 GHz was too low");
    }

    #[test]
    fn savings_resume_at_a_frequency_that_fits_the_load() {
        let parameters = Parameters::default();
        let mut one = frequency(&[2_000_000, 3_000_000]);
        while one.lower(1.0, &parameters, |_| true) && one.khz > 1_500_000 {}
        one.prove();
        let proven_khz = one.khz;
        one.restore(false);
        one.resume(false, 0.1);
        assert_eq!(one.khz, proven_khz);
        one.restore(false);
        one.resume(false, 0.95);
        assert_eq!(one.khz, 2_900_000, "the highest maximum of all cores counts");
        one.restore(true);
        one.resume(false, 0.1);
        assert_eq!(one.khz, 3_000_000, "2.9 GHz was too low");
    }

    #[test]
    fn a_burst_halves_the_step_to_an_unproven_frequency() {
        let parameters = Parameters::default();
        let mut one = frequency(&[3_000_000]);
        while one.lower(1.0, &parameters, |_| true) && one.khz > 2_000_000 {}
        one.restore(true);
        one.resume(false, 0.0);
        while one.lower(1.0, &parameters, |_| true) {}
        assert_eq!(one.khz, 2_500_000);
    }
}
