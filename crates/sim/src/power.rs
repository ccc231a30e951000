//! Power by component and state.
//!
//! **Data** (SANDMAN, Table 2): CPU and system power with every core in one state. States in between are not measured. The model adds up physical
//! cores. A [`Family`] spans the open parameters, so that results can be intervals: the share of shallow minus deep that is saved only when *every*
//! core is deep (package), the saving while one of two siblings sleeps, the dependence of power on frequency, the dependence of the other components
//! (fans, memory, network) on the share of polling cores, and the power of a core that exits an idle state.
//!
//! **Pairs.** Two logical cores of a physical core are awake for shares `a` and `b` of an epoch, assumed independent: both for `a b`, one alone for
//! the rest of each, none for the remainder. A core without a sibling counts as half of a pair whose other half never wakes. Machines with scheduled
//! cores use actual overlaps instead ([`Together`]).

use crate::machine::{Family, Power, Speed};
use crate::trace::State;

/// One million, for shares.
pub(crate) const PPM: u64 = 1_000_000;

/// How a logical core spent an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// Time awake, in nanoseconds.
    pub awake_ns: u64,
    /// The part of it spent exiting the idle state.
    pub exit_ns: u64,
    /// Its frequency, in steps above the lowest.
    pub step: usize,
    /// Its state while not awake.
    pub low: State,
}

impl Spent {
    /// The same with the exit time counted as idle time.
    #[must_use]
    pub fn exit_at_rest(self) -> Self {
        Self { awake_ns: self.awake_ns - self.exit_ns, exit_ns: 0, ..self }
    }
}

/// Awake times of two siblings in an epoch, assumed independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// Both, in nanoseconds.
    both_ns: u64,
    /// Only the first, and its frequency.
    first: (u64, usize),
    /// Only the second, and its frequency.
    second: (u64, usize),
    /// Whether at least one of them left the deep state.
    pub not_deep: bool,
}

impl Overlap {
    /// Overlap in an epoch of `dt_ns`; `second` is `None` for a core without a sibling.
    #[must_use]
    pub fn new(dt_ns: u64, first: Spent, second: Option<Spent>) -> Self {
        let second = second.unwrap_or(Spent { awake_ns: 0, exit_ns: 0, step: 0, low: State::Deep });
        let both_ns = first.awake_ns * second.awake_ns / dt_ns;
        let not_deep = |spent: Spent| spent.awake_ns > 0 || spent.low == State::Shallow;
        Self {
            both_ns,
            first: (first.awake_ns - both_ns, first.step),
            second: (second.awake_ns - both_ns, second.step),
            not_deep: not_deep(first) || not_deep(second),
        }
    }

    fn is_asleep(&self) -> bool {
        self.both_ns + self.first.0 + self.second.0 == 0
    }
}

/// Durations of each combination of states of two siblings, for machines with scheduled cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Together {
    /// Nanoseconds by the [`State`] of the first and of the second.
    pub ns: [[u64; 4]; 4],
    /// Their frequencies, in steps above the lowest.
    pub steps: [usize; 2],
}

/// The power model of a machine.
#[derive(Clone, Debug)]
pub struct PowerModel {
    pairs: u64,
    cpu_deep_uw: u64,
    package_uw: u64,
    /// Power of a physical core in the shallow state above the deep state.
    pair_shallow_uw: u64,
    /// Power of a physical core that polls at the highest frequency above the shallow state.
    pair_poll_uw: u64,
    /// Power of a polling core at each frequency, relative to the highest, in millionths.
    cpu_levels: Vec<u64>,
    others_levels: Vec<u64>,
    others_deep_uw: u64,
    others_shallow_uw: u64,
    others_poll_uw: u64,
    /// Power of the package outside its cores at the highest frequency, while any core is not deep.
    uncore_uw: u64,
    family: Family,
    looks_ppm: u64,
    of_all_ppm: u64,
}

/// Energy of an epoch in femtojoules (uW x ns), and the inputs for the other components' power.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// CPU, in femtojoules.
    pub cpu_fj: u128,
    /// The cores' part of it.
    pub cores_fj: u128,
    /// Physical cores that poll at full speed, times nanoseconds, in millionths.
    pub polling: u128,
    /// Physical cores that are not deep, times nanoseconds, in millionths.
    pub not_deep: u128,
}

impl Epoch {
    pub(crate) fn add(&mut self, more: &Self) {
        self.cpu_fj += more.cpu_fj;
        self.cores_fj += more.cores_fj;
        self.polling += more.polling;
        self.not_deep += more.not_deep;
    }
}

fn share_of(part: u64, whole: u64) -> u64 {
    (part * PPM).checked_div(whole).unwrap_or(0)
}

/// Power of a polling core at each frequency, from the lowest to the highest, relative to the highest, in millionths.
fn levels(slow_ppm: u64, speed: &Speed, exponent: f64) -> Vec<u64> {
    let range = u64::from(speed.max_khz - speed.min_khz);
    let steps = range / u64::from(speed.step_khz.max(1));
    let level = |step: u64| {
        let share_ppm = (step * u64::from(speed.step_khz) * PPM).checked_div(range).map_or(PPM, |ppm| ppm.min(PPM));
        let curve = (share_ppm as f64 / 1e6).powf(exponent);
        if share_ppm == PPM { PPM } else { slow_ppm + ((PPM - slow_ppm) as f64 * curve) as u64 }
    };
    let beyond = u64::from(!range.is_multiple_of(u64::from(speed.step_khz.max(1))));
    (0..=steps + beyond).map(level).collect()
}

/// The value that the exponent maps to `ppm`, so that the measured state at the lowest frequency is preserved.
fn root(ppm: u64, exponent: f64) -> u64 {
    ((ppm as f64 / 1e6).powf(1.0 / exponent) * 1e6).round() as u64
}

/// Power of the other components per watt of CPU power, in millionths, if it is linear in it.
#[must_use]
pub fn others_slope_ppm(power: &Power) -> u64 {
    share_of(power.others_uw.poll - power.others_uw.deep, power.cpu_uw.poll - power.cpu_uw.deep)
}

impl PowerModel {
    /// The power model for cores with these frequencies.
    #[must_use]
    pub fn new(power: &Power, speed: &Speed) -> Self {
        let (cpu, others) = (power.cpu_uw, power.others_uw);
        let pairs = u64::from(power.physical_cores.max(1));
        let sleep_uw = cpu.shallow - cpu.deep;
        let package_uw = sleep_uw * u64::from(power.family.package_ppm) / PPM;
        let cpu_slow_ppm = share_of(cpu.slow - cpu.shallow, cpu.poll - cpu.shallow);
        let others_slow_ppm =
            root(share_of(others.slow - others.shallow, others.poll - others.shallow), power.family.others_exponent);
        let levels = |slow_ppm| levels(slow_ppm, speed, power.family.frequency_exponent);
        Self {
            pairs,
            cpu_deep_uw: cpu.deep,
            package_uw,
            pair_shallow_uw: (sleep_uw - package_uw) / pairs,
            pair_poll_uw: (cpu.poll - cpu.shallow - power.uncore_uw.unwrap_or(0)) / pairs,
            uncore_uw: power.uncore_uw.unwrap_or(0),
            cpu_levels: levels(cpu_slow_ppm),
            others_levels: levels(others_slow_ppm),
            others_deep_uw: others.deep,
            others_shallow_uw: others.shallow - others.deep,
            others_poll_uw: others.poll - others.shallow,
            family: power.family,
            looks_ppm: power.scheduled.map_or(PPM, |power| u64::from(power.looks_ppm)),
            of_all_ppm: power.scheduled.map_or(PPM, |power| u64::from(power.of_all_ppm)),
        }
    }

    /// Both awake: the faster core plus the increment of the slower one.
    fn both(&self, a: u64, b: u64) -> u64 {
        let saves = u64::from(self.family.sibling_saves_ppm);
        (a.max(b) * (PPM - saves) + a.min(b) * saves) / PPM
    }

    /// The polling level of a pair, in millionths times nanoseconds.
    fn polling(&self, levels: &[u64], overlap: &Overlap) -> u64 {
        let (a, b) = (levels[overlap.first.1], levels[overlap.second.1]);
        let alone = overlap.first.0 * self.both(a, 0) + overlap.second.0 * self.both(b, 0);
        overlap.both_ns * self.both(a, b) + alone
    }

    /// Energy of cores that share one budget, in femtojoules: the more of them work, the less each draws.
    #[must_use]
    pub fn shared_fj(&self, cores_fj: u128, stretch_ns: u64) -> u128 {
        let most_fj = u128::from((self.pair_shallow_uw + self.pair_poll_uw) * self.pairs) * u128::from(stretch_ns);
        let of_all = (cores_fj * u128::from(PPM)).checked_div(most_fj).unwrap_or(0).min(u128::from(PPM));
        let saved_ppm = u128::from(PPM - self.of_all_ppm.min(PPM)) * of_all / u128::from(PPM);
        cores_fj - cores_fj * saved_ppm / u128::from(PPM)
    }

    /// Energy of a physical core in `dt_ns`, without the package's part. `extra`: a core beyond `Power::physical_cores`.
    #[must_use]
    pub fn pair(&self, dt_ns: u64, overlap: &Overlap, extra: bool) -> Epoch {
        let mut epoch = Epoch::default();
        if !overlap.is_asleep() {
            let polling = u128::from(self.polling(&self.cpu_levels, overlap));
            epoch.cpu_fj = polling * u128::from(self.pair_poll_uw) / u128::from(PPM);
            epoch.polling = u128::from(self.polling(&self.others_levels, overlap));
        }
        if overlap.not_deep && !extra {
            epoch.cpu_fj += u128::from(self.pair_shallow_uw * dt_ns);
            epoch.not_deep = u128::from(PPM * dt_ns);
        }
        epoch.cores_fj = epoch.cpu_fj;
        epoch
    }

    /// The same from the siblings' actual overlap.
    #[must_use]
    pub fn pair_by_moments(&self, dt_ns: u64, together: &Together, extra: bool) -> Epoch {
        let deep_ns = together.ns[State::Deep as usize][State::Deep as usize];
        let not_deep_ns = if extra { 0 } else { dt_ns - deep_ns };
        let polling = u128::from(self.polling_by_moments(&self.cpu_levels, together));
        let cpu_fj =
            polling * u128::from(self.pair_poll_uw) / u128::from(PPM) + u128::from(self.pair_shallow_uw * not_deep_ns);
        Epoch {
            cpu_fj,
            cores_fj: cpu_fj,
            polling: u128::from(self.polling_by_moments(&self.others_levels, together)),
            not_deep: u128::from(PPM * not_deep_ns),
        }
    }

    fn polling_by_moments(&self, levels: &[u64], together: &Together) -> u64 {
        let drawn = |step: usize| {
            let level = levels[step];
            let mut by_state = [0; 4];
            by_state[State::Awake as usize] = level;
            by_state[State::Spins as usize] = level * self.looks_ppm / PPM;
            by_state
        };
        let (first, second) = (drawn(together.steps[0]), drawn(together.steps[1]));
        let row = |(a, row): (u64, &[u64; 4])| -> u64 {
            row.iter().zip(second).map(|(ns, b)| if *ns > 0 { ns * self.both(a, b) } else { 0 }).sum()
        };
        first.into_iter().zip(&together.ns).map(row).sum()
    }

    /// Energy of the package in `dt_ns`, with some core not deep for `not_deep_ns`; `step` is the highest frequency that its limit allows.
    #[must_use]
    pub fn package_fj(&self, dt_ns: u64, not_deep_ns: u64, step: usize) -> u128 {
        let uncore_uw = self.uncore_uw * self.cpu_levels[step] / PPM;
        u128::from(self.cpu_deep_uw * dt_ns + (self.package_uw + uncore_uw) * not_deep_ns)
    }

    /// Power of the other components over a stretch. They respond slowly, so the mean determines it.
    #[must_use]
    pub fn others_uw(&self, stretch_ns: u64, polling: u128, not_deep: u128) -> u64 {
        let whole = u128::from(stretch_ns.max(1)) * u128::from(self.pairs);
        let polling = (polling / whole) as f64 / 1e6;
        let not_deep = (not_deep / whole).min(u128::from(PPM)) as u64;
        let fans = (self.others_poll_uw as f64 * polling.powf(self.family.others_exponent)) as u64;
        self.others_deep_uw + self.others_shallow_uw * not_deep / PPM + fans
    }

    /// Power of a polling core at each frequency, in ascending order, relative to the highest, in millionths.
    pub(crate) fn levels(&self) -> &[u64] {
        &self.cpu_levels
    }

    /// Package power with every core in the deep state, in microwatts.
    pub(crate) fn deep_uw(&self) -> u64 {
        self.cpu_deep_uw
    }

    /// Whether a core that exits an idle state draws the power of that state.
    #[must_use]
    pub fn exits_at_rest(&self) -> bool {
        self.family.exit_at_rest
    }

    /// Physical cores of the measured machine; further cores add only their awake energy.
    #[must_use]
    pub fn pairs(&self) -> usize {
        self.pairs as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::ByState;

    const SPEED: Speed = Speed {
        min_khz: 400_000,
        max_khz: 3_650_000,
        step_khz: 50_000,
        transition_ns: 450_000,
        transition_restarts: false,
        stalled_ppm: 0,
        sibling_gain_ppm: 0,
    };
    const FASTEST: usize = 65;

    fn model(family: Family) -> PowerModel {
        let power = Power {
            physical_cores: 24,
            cpu_uw: ByState { poll: 244_000_000, slow: 144_000_000, shallow: 134_000_000, deep: 52_000_000 },
            others_uw: ByState { poll: 398_000_000, slow: 242_000_000, shallow: 204_000_000, deep: 126_000_000 },
            drives_idle_uw: 74_000_000,
            read_4k_nj: 20_000,
            write_4k_nj: 20_000,
            family,
            uncore_uw: None,
            scheduled: None,
        };
        PowerModel::new(&power, &SPEED)
    }

    const FAMILIES: [Family; 2] = [
        Family {
            package_ppm: 0,
            sibling_saves_ppm: 0,
            frequency_exponent: 1.0,
            others_exponent: 1.0,
            kernel_idles_deep: false,
            exit_at_rest: false,
        },
        Family {
            package_ppm: 1_000_000,
            sibling_saves_ppm: 500_000,
            frequency_exponent: 3.0,
            others_exponent: 2.0,
            kernel_idles_deep: true,
            exit_at_rest: true,
        },
    ];

    /// CPU and other power with every core in one state, in watts.
    fn watts(model: &PowerModel, spent: Spent) -> (f64, f64) {
        let dt = 10_000;
        let (mut cpu, mut polling, mut not_deep, mut any) = (0, 0, 0, false);
        for _ in 0..24 {
            let overlap = Overlap::new(dt, spent, Some(spent));
            let (epoch, shallow) = (model.pair(dt, &overlap, false), overlap.not_deep);
            cpu += epoch.cpu_fj;
            polling += epoch.polling;
            not_deep += epoch.not_deep;
            any |= shallow;
        }
        cpu += model.package_fj(dt, if any { dt } else { 0 }, FASTEST);
        (cpu as f64 / dt as f64 / 1e6, model.others_uw(dt, polling, not_deep) as f64 / 1e6)
    }

    #[test]
    fn every_member_of_the_family_has_the_measured_states() {
        for family in FAMILIES {
            let model = model(family);
            for (awake_ns, step, low, cpu, others) in [
                (10_000, FASTEST, State::Shallow, 244.0, 398.0),
                (10_000, 0, State::Shallow, 144.0, 242.0),
                (0, 0, State::Shallow, 134.0, 204.0),
                (0, 0, State::Deep, 52.0, 126.0),
            ] {
                let got = watts(&model, Spent { awake_ns, exit_ns: 0, step, low });
                assert!((got.0 - cpu).abs() < 0.01 && (got.1 - others).abs() < 0.01, "{got:?} for {cpu} {others}");
            }
        }
    }

    #[test]
    fn one_sibling_saves_what_the_family_says() {
        let awake = Spent { awake_ns: 10_000, exit_ns: 0, step: FASTEST, low: State::Shallow };
        let asleep = Spent { awake_ns: 0, ..awake };
        for (family, share) in [(FAMILIES[0], 1.0), (FAMILIES[1], 0.5)] {
            let model = model(family);
            let polls = |a, b| model.pair(10_000, &Overlap::new(10_000, a, Some(b)), true).cpu_fj as f64;
            let got = polls(awake, asleep) / polls(awake, awake);
            assert!((got - share).abs() < 1e-3, "{got}");
        }
    }

    #[test]
    fn longer_and_faster_is_never_cheaper() {
        let spent = |awake_ns, step| Spent { awake_ns, exit_ns: 0, step, low: State::Shallow };
        for family in FAMILIES {
            let model = model(family);
            let fj = |a, b| model.pair(10_000, &Overlap::new(10_000, a, Some(b)), false).cpu_fj;
            for share in 0..10 {
                let (less, more) = (share * 1_000, share * 1_000 + 1_000);
                assert!(fj(spent(less, 32), spent(3_000, 0)) <= fj(spent(more, 32), spent(3_000, 0)));
                let (slow, fast) = (share as usize * 6, share as usize * 6 + 6);
                assert!(fj(spent(5_000, slow), spent(3_000, 0)) <= fj(spent(5_000, fast), spent(3_000, 0)));
            }
        }
    }
}
