//! The Freq. Adaptor: one frequency for all cores in use (PACER IV-C), `f += gamma x loss_distance` with a negative gamma.

use pilotlight_plant::{Capabilities, Command, KnobId, Refusal, Topology};

use super::parameters::Parameters;
use crate::clock::Clock;

/// The frequency of the cores in use.
#[derive(Debug)]
pub(super) struct Frequency {
    /// By core; `None` where it cannot be set.
    clocks: Vec<Option<Clock>>,
    lowest_khz: u64,
    highest_khz: u64,
    /// What it is to be.
    pub(super) khz: u64,
    /// Less was too little under this load.
    floor_khz: u64,
    /// The last that kept the tolerance.
    proven_khz: u64,
    /// Time until a frequency holds, in nanoseconds.
    effect_ns: u64,
}

impl Frequency {
    pub(super) fn new(topology: &Topology, capabilities: &Capabilities) -> Self {
        let clocks: Vec<_> = topology.cores().map(|core| Clock::of(core, capabilities)).collect();
        let all = || clocks.iter().flatten();
        let lowest_khz = all().map(|clock| clock.lowest_khz).min().unwrap_or(0);
        let highest_khz = all().map(|clock| clock.highest_khz).max().unwrap_or(0);
        let effect = |clock: &Clock| capabilities.knob(clock.knob).map(|knob| knob.effect.ns());
        let effect_ns = all().filter_map(effect).max().unwrap_or(0);
        let (khz, floor_khz, proven_khz) = (highest_khz, lowest_khz, highest_khz);
        Self { clocks, lowest_khz, highest_khz, khz, floor_khz, proven_khz, effect_ns }
    }

    /// Takes over what another has found out, where it has the same range.
    pub(super) fn inherit(&mut self, before: &Self) {
        if (self.lowest_khz, self.highest_khz) == (before.lowest_khz, before.highest_khz) {
            (self.khz, self.floor_khz, self.proven_khz) = (before.khz, before.floor_khz, before.proven_khz);
        }
    }

    /// Whether it can be set.
    pub(super) fn exists(&self) -> bool {
        self.clocks.iter().flatten().any(|clock| !clock.is_refused())
    }

    pub(super) fn effect_ns(&self) -> u64 {
        self.effect_ns
    }

    /// Savings begin under another load.
    pub(super) fn begin(&mut self) {
        (self.khz, self.floor_khz, self.proven_khz) = (self.highest_khz, self.lowest_khz, self.highest_khz);
    }

    /// Savings begin again under the load before, at `least` of the highest frequency or more; a step less may be tried again if `retry`.
    pub(super) fn resume(&mut self, retry: bool, least: f64) {
        if retry {
            self.floor_khz = self.step(self.floor_khz, |clock, khz| clock.values.down(khz));
        }
        let least_khz = (self.highest_khz as f64 * least.min(1.0)) as u64;
        let khz = self.proven_khz.max(self.floor_khz).max(least_khz);
        let nearest_khz = self.step(khz, |clock, khz| clock.values.nearest(khz).unwrap_or(khz));
        self.khz = if nearest_khz < khz { self.step(khz, |clock, khz| clock.values.up(khz)) } else { nearest_khz };
    }

    /// One step of the clock that goes highest.
    fn step(&self, khz: u64, to: impl Fn(&Clock, u64) -> u64) -> u64 {
        self.clocks.iter().flatten().max_by_key(|clock| clock.highest_khz).map_or(khz, |clock| to(clock, khz))
    }

    /// The value nearest to `khz`, at least a step from the present one.
    fn nearest(&self, khz: u64) -> u64 {
        let nearest = self.step(khz, |clock, khz| clock.values.nearest(khz).unwrap_or(khz));
        match khz < self.khz {
            true => nearest.min(self.step(self.khz, |clock, khz| clock.values.down(khz))),
            false => nearest.max(self.step(self.khz, |clock, khz| clock.values.up(khz))),
        }
    }

    fn change(&self, distance: f64, parameters: &Parameters) -> u64 {
        let khz = self.khz as f64 + parameters.gamma * self.highest_khz as f64 * distance;
        (khz.max(0.0) as u64).min(self.highest_khz)
    }

    /// There is headroom: a lower frequency, if it `fits`, or else the next step if that does. Whether there is one.
    pub(super) fn lower(&mut self, distance: f64, parameters: &Parameters, mut fits: impl FnMut(f64) -> bool) -> bool {
        let next = self.step(self.khz, |clock, khz| clock.values.down(khz));
        let khz = [self.nearest(self.change(distance, parameters)), next]
            .into_iter()
            .map(|khz| khz.max(self.floor_khz))
            .find(|&khz| khz < self.khz && fits(self.khz as f64 / khz.max(1) as f64));
        self.khz = khz.unwrap_or(self.khz);
        khz.is_some()
    }

    /// The loss is too high: a higher frequency. Whether there is one.
    pub(super) fn raise(&mut self, distance: f64, parameters: &Parameters) -> bool {
        if self.khz >= self.highest_khz {
            return false;
        }
        self.floor_khz = self.floor_khz.max(self.step(self.khz, |clock, khz| clock.values.up(khz)));
        // A frequency that has kept the tolerance before is enough, or one step more.
        let most_khz = self.proven_khz.max(self.floor_khz);
        self.khz = self.nearest(self.change(distance, parameters)).clamp(self.floor_khz, most_khz);
        true
    }

    /// Whether the present one was not proven to keep the tolerance.
    pub(super) fn is_new(&self) -> bool {
        self.khz < self.proven_khz
    }

    /// The highest. Where the present one is `blamed` it is not tried again under this load, but one between it and the proven one; if it is the
    /// proven one, one step more.
    pub(super) fn restore(&mut self, blamed: bool) {
        if blamed && self.khz < self.highest_khz {
            let next_khz = self.step(self.khz, |clock, khz| clock.values.up(khz));
            let half_khz =
                self.step(self.khz.midpoint(self.proven_khz), |clock, khz| clock.values.nearest(khz).unwrap_or(khz));
            self.floor_khz = self.floor_khz.max(half_khz).max(next_khz);
            self.proven_khz = self.proven_khz.max(self.floor_khz);
        }
        self.khz = self.highest_khz;
    }

    pub(super) fn is_highest(&self) -> bool {
        self.khz == self.highest_khz
    }

    /// The present one keeps the tolerance.
    pub(super) fn prove(&mut self) {
        self.proven_khz = self.khz;
    }

    /// Another tolerance: what was too little may be enough.
    pub(super) fn forget(&mut self) {
        (self.floor_khz, self.proven_khz) = (self.lowest_khz, self.highest_khz);
    }

    /// Sets it on the cores in use.
    pub(super) fn apply(&mut self, now_ns: u64, in_use: &[bool], out: &mut Vec<Command>) {
        let khz = self.khz;
        for (clock, _) in self.clocks.iter_mut().zip(in_use).filter(|(_, in_use)| **in_use) {
            if let Some(clock) = clock {
                let nearest = clock.values.nearest(khz).unwrap_or(khz);
                clock.set(now_ns, nearest, out);
            }
        }
    }

    /// Whether the knob is one of these; it is left alone for a while.
    pub(super) fn on_refused(&mut self, now_ns: u64, knob: KnobId, refusal: Refusal) -> bool {
        let Some(clock) = self.clocks.iter_mut().flatten().find(|clock| clock.knob == knob) else { return false };
        clock.refused(now_ns, refusal);
        if !self.exists() {
            self.khz = self.highest_khz; // nothing is saved by it
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
        assert!(!one.lower(1.0, &parameters, |_| true), "1.8 GHz was too little");
    }

    #[test]
    fn savings_begin_again_where_the_load_still_fits() {
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
        assert_eq!(one.khz, 2_900_000, "of cores whose highest frequencies differ the highest counts");
        one.restore(true);
        one.resume(false, 0.1);
        assert_eq!(one.khz, 3_000_000, "2.9 GHz was too little");
    }

    #[test]
    fn one_that_was_not_proven_is_halved_by_a_burst() {
        let parameters = Parameters::default();
        let mut one = frequency(&[3_000_000]);
        while one.lower(1.0, &parameters, |_| true) && one.khz > 2_000_000 {}
        one.restore(true);
        one.resume(false, 0.0);
        while one.lower(1.0, &parameters, |_| true) {}
        assert_eq!(one.khz, 2_500_000);
    }
}
