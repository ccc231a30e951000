//! Time awake, speed and energy of cores, on the grid of epochs.
//!
//! What happens within an epoch is seen at its end: a core's speed in the next one follows from how long its sibling was awake and from
//! its own frequency; energy follows from how long each was awake (see [`crate::power`]). While nothing changes, many epochs
//! count as one, with the same result.

use pilotlight_plant::Topology;

use super::core::Core;
use super::floor::Floor;
use crate::machine::{Machine, Power, Speed};
use crate::power::{Epoch, Overlap, PPM, PowerModel, Spent};
use crate::trace::{State, What};

/// Length of an epoch in nanoseconds.
pub const EPOCH_NS: u64 = 10_000;

/// One core as the meter sees it.
#[derive(Clone, Copy, Debug)]
struct Watched {
    state: State,
    low: State,
    khz: u32,
    /// A frequency that was ordered: which, and from when on.
    ordered: Option<(u32, u64)>,
    spent: Spent,
}

#[derive(Debug)]
pub(crate) struct Meter {
    /// The machine's power, and further members of its family.
    models: Vec<PowerModel>,
    speed: Speed,
    /// Share of each core's time that goes into filling statistics for the policy, in millionths.
    filling_ppm: u64,
    siblings: Vec<Option<usize>>,
    cores: Vec<Watched>,
    /// Until when all is accounted for.
    pub(crate) until_ns: u64,
    /// Since the last time that it was asked.
    pub(crate) total: Total,
    /// What the last epoch took.
    unit: Total,
    /// The last moment at which anything has changed.
    calm_ns: u64,
    /// Whether the next epoch takes the same, if nothing changes.
    steady: bool,
}

/// What has been spent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Total {
    /// By member of the family.
    pub(crate) epochs: Vec<Epoch>,
    pub(crate) awake_ns: u64,
    /// Time awake times frequency over the highest one.
    pub(crate) capacity_ns: u64,
}

impl Total {
    fn new(members: usize) -> Self {
        Self { epochs: vec![Epoch::default(); members], ..Self::default() }
    }

    fn add(&mut self, other: &Self, times: u64) {
        for (epoch, more) in self.epochs.iter_mut().zip(&other.epochs) {
            epoch.cpu_fj += more.cpu_fj * u128::from(times);
            epoch.polling += more.polling * u128::from(times);
            epoch.not_deep += more.not_deep * u128::from(times);
        }
        self.awake_ns += other.awake_ns * times;
        self.capacity_ns += other.capacity_ns * times;
    }

    fn clear(&mut self) {
        self.epochs.fill(Epoch::default());
        (self.awake_ns, self.capacity_ns) = (0, 0);
    }
}

/// The machine's own power, and further members of its family.
pub(crate) fn members<'a>(machine: &'a Machine, family: &'a [Power]) -> impl Iterator<Item = &'a Power> {
    std::iter::once(&machine.power).chain(family)
}

impl Meter {
    pub(crate) fn new(machine: &Machine, family: &[Power], topology: &Topology) -> Self {
        let spent = Spent { awake_ns: 0, step: 0, low: State::Shallow };
        let models: Vec<_> = members(machine, family).map(|power| PowerModel::new(power, &machine.speed)).collect();
        let watched =
            Watched { state: State::Awake, low: State::Shallow, khz: machine.speed.max_khz, ordered: None, spent };
        Self {
            total: Total::new(models.len()),
            unit: Total::new(models.len()),
            models,
            speed: machine.speed,
            filling_ppm: 0,
            siblings: topology.cores().map(|core| topology.sibling(core).map(|other| other.index())).collect(),
            cores: vec![watched; topology.len()],
            until_ns: 0,
            calm_ns: 0,
            steady: false,
        }
    }

    /// Every core fills statistics for `fill_ns`, once in `every_ns` (SANDMAN, Table 3).
    pub(crate) fn fill(&mut self, fill_ns: u32, every_ns: u64, cores: &mut [Core]) {
        self.filling_ppm = u64::from(fill_ns) * PPM / every_ns.max(1);
        for (index, core) in cores.iter_mut().enumerate() {
            core.set_factor(self.factor(index));
        }
    }

    /// What was spent since the last call.
    pub(crate) fn take(&mut self) -> Total {
        let none = Total::new(self.models.len());
        std::mem::replace(&mut self.total, none)
    }

    /// Whether cores are as they were for some epochs, and will be unless something is ordered or answered.
    pub(crate) fn is_calm(&self, changed_ns: u64) -> bool {
        let last_ns = changed_ns.max(self.calm_ns);
        self.until_ns >= last_ns + 3 * EPOCH_NS && self.cores.iter().all(|core| core.ordered.is_none())
    }

    /// Orders a frequency; it holds from the first epoch after the transition.
    pub(crate) fn order(&mut self, at_ns: u64, core: usize, khz: u32) {
        let Speed { min_khz, max_khz, step_khz, transition_ns, transition_restarts, .. } = self.speed;
        let khz = khz.clamp(min_khz, max_khz);
        let khz = min_khz + (khz - min_khz + step_khz / 2) / step_khz.max(1) * step_khz;
        let khz = khz.min(max_khz);
        let watched = &mut self.cores[core];
        let same = watched.ordered.map_or(watched.khz, |(ordered, _)| ordered) == khz;
        if same {
            return;
        }
        let from_ns = match watched.ordered {
            Some((_, from_ns)) if !transition_restarts => from_ns,
            _ => at_ns + transition_ns,
        };
        watched.ordered = Some((khz, from_ns));
        self.steady = false;
    }

    /// Accounts for the time until `to_ns`, a whole number of epochs, and sets the speed of every core from then on.
    pub(crate) fn account(&mut self, to_ns: u64, cores: &mut [Core], floor: &mut Floor<'_>) {
        while self.until_ns < to_ns {
            let quiet = cores.iter().all(|core| core.changes.front().is_none_or(|&(at_ns, _)| at_ns >= to_ns));
            if self.steady && quiet {
                self.total.add(&self.unit, (to_ns - self.until_ns) / EPOCH_NS);
                self.until_ns = to_ns;
            } else {
                self.epoch(cores, floor);
            }
        }
    }

    fn epoch(&mut self, cores: &mut [Core], floor: &mut Floor<'_>) {
        let to_ns = self.until_ns + EPOCH_NS;
        let before_ns = self.calm_ns;
        for (index, core) in cores.iter_mut().enumerate() {
            self.drain(index, core, to_ns);
        }
        self.sum();
        self.total.add(&self.unit, 1);
        self.until_ns = to_ns;
        let settled = self.settle(to_ns, cores, floor);
        self.steady = settled && self.calm_ns == before_ns;
    }

    /// How a core spent the time until `to_ns`.
    fn drain(&mut self, index: usize, core: &mut Core, to_ns: u64) {
        let watched = &mut self.cores[index];
        let (mut from_ns, mut awake_ns) = (self.until_ns, 0);
        while let Some(&(at_ns, state)) = core.changes.front().filter(|&&(at_ns, _)| at_ns < to_ns) {
            core.changes.pop_front();
            if watched.state == State::Awake {
                awake_ns += at_ns.max(from_ns) - from_ns;
            }
            from_ns = at_ns.max(from_ns);
            watched.state = state;
            if state != State::Awake {
                watched.low = state;
            }
            self.calm_ns = self.calm_ns.max(at_ns);
        }
        if watched.state == State::Awake {
            awake_ns += to_ns - from_ns;
        }
        let above = watched.khz - self.speed.min_khz;
        watched.spent = Spent { awake_ns, step: above.div_ceil(self.speed.step_khz.max(1)) as usize, low: watched.low };
    }

    /// What the epoch took.
    fn sum(&mut self) {
        let Self { models, cores, siblings, unit, speed, .. } = self;
        unit.clear();
        let (mut any, mut pairs) = (false, 0);
        for (index, core) in cores.iter().enumerate() {
            unit.awake_ns += core.spent.awake_ns;
            unit.capacity_ns += core.spent.awake_ns * u64::from(core.khz) / u64::from(speed.max_khz);
            let sibling = siblings[index];
            if sibling.is_some_and(|sibling| sibling < index) {
                continue;
            }
            let overlap = Overlap::new(EPOCH_NS, core.spent, sibling.map(|sibling| cores[sibling].spent));
            for (epoch, model) in unit.epochs.iter_mut().zip(models.iter()) {
                let pair = model.pair(EPOCH_NS, &overlap, pairs >= model.pairs());
                epoch.cpu_fj += pair.cpu_fj;
                epoch.polling += pair.polling;
                epoch.not_deep += pair.not_deep;
            }
            any |= overlap.not_deep;
            pairs += 1;
        }
        for (epoch, model) in unit.epochs.iter_mut().zip(models.iter()) {
            epoch.cpu_fj += model.package_fj(EPOCH_NS, any);
        }
    }

    /// Frequencies that hold now, and the speed that follows; whether no speed has changed.
    fn settle(&mut self, now_ns: u64, cores: &mut [Core], floor: &mut Floor<'_>) -> bool {
        let mut same = true;
        for index in 0..self.cores.len() {
            if let Some((khz, from_ns)) = self.cores[index].ordered
                && from_ns <= now_ns
            {
                self.cores[index].ordered = None;
                self.cores[index].khz = khz;
                self.calm_ns = now_ns;
                floor.recorder.note(now_ns, What::Frequency, index as u64, u64::from(khz));
            }
            let factor = self.factor(index);
            if factor != cores[index].factor() {
                same = false;
                cores[index].set_factor(factor);
            }
        }
        same
    }

    /// Cost of a nanosecond at full speed, in 1/65536.
    fn factor(&self, index: usize) -> u32 {
        let Speed { max_khz, stalled_ppm, sibling_gain_ppm, .. } = self.speed;
        let stalled = u64::from(stalled_ppm);
        let clocked = (PPM - stalled) * u64::from(max_khz) / u64::from(self.cores[index].khz);
        let rested_ppm = match self.siblings[index] {
            None => PPM,
            Some(sibling) => {
                let awake = self.cores[sibling].spent.awake_ns;
                PPM - (awake * PPM / EPOCH_NS).min(PPM)
            }
        };
        let gain = PPM + u64::from(sibling_gain_ppm) * rested_ppm / PPM;
        let cost = (stalled + clocked) * (PPM + self.filling_ppm) / PPM;
        (cost * (1 << 16) / gain) as u32
    }
}
