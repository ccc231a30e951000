//! Time awake, speed and energy of cores, on the grid of epochs.
//!
//! What happens within an epoch is seen at its end: a core's speed in the next one follows from how long its sibling was awake and from
//! its own frequency; energy follows from how long each was awake (see [`crate::power`]). While nothing changes, many epochs
//! count as one, with the same result.

use pilotlight_plant::Topology;

use super::core::Core;
use super::floor::Floor;
use crate::machine::{Machine, Speed};
use crate::power::{Epoch, PPM, PowerModel, Spent};
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
    model: PowerModel,
    speed: Speed,
    /// Share of each core's time that goes into filling statistics for the policy, in millionths.
    filling_ppm: u64,
    siblings: Vec<Option<usize>>,
    cores: Vec<Watched>,
    /// Until when all is accounted for.
    pub(crate) until_ns: u64,
    /// Since the last time that it was asked.
    pub(crate) total: Total,
    /// The last moment at which anything has changed.
    calm_ns: u64,
    /// What an epoch takes while nothing changes.
    steady: Option<Total>,
}

/// What has been spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Total {
    pub(crate) epoch: Epoch,
    pub(crate) awake_ns: u64,
    /// Time awake times frequency over the highest one.
    pub(crate) capacity_ns: u64,
}

impl Total {
    fn add(&mut self, other: &Self, times: u64) {
        self.epoch.cpu_fj += other.epoch.cpu_fj * u128::from(times);
        self.epoch.polling += other.epoch.polling * u128::from(times);
        self.epoch.not_deep += other.epoch.not_deep * u128::from(times);
        self.awake_ns += other.awake_ns * times;
        self.capacity_ns += other.capacity_ns * times;
    }
}

impl Meter {
    pub(crate) fn new(machine: &Machine, topology: &Topology) -> Self {
        let spent = Spent { awake_ns: 0, speed_ppm: PPM as u32, low: State::Shallow };
        let watched =
            Watched { state: State::Awake, low: State::Shallow, khz: machine.speed.max_khz, ordered: None, spent };
        Self {
            model: PowerModel::new(&machine.power),
            speed: machine.speed,
            filling_ppm: 0,
            siblings: topology.cores().map(|core| topology.sibling(core).map(|other| other.index())).collect(),
            cores: vec![watched; topology.len()],
            until_ns: 0,
            total: Total::default(),
            calm_ns: 0,
            steady: None,
        }
    }

    /// Every core fills statistics for `fill_ns`, once in `every_ns` (SANDMAN, Table 3).
    pub(crate) fn fill(&mut self, fill_ns: u32, every_ns: u64, cores: &mut [Core]) {
        self.filling_ppm = u64::from(fill_ns) * PPM / every_ns.max(1);
        for (index, core) in cores.iter_mut().enumerate() {
            core.set_factor(self.factor(index));
        }
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
        self.steady = None;
    }

    /// Accounts for the time until `to_ns`, a whole number of epochs, and sets the speed of every core from then on.
    pub(crate) fn account(&mut self, to_ns: u64, cores: &mut [Core], floor: &mut Floor<'_>) {
        while self.until_ns < to_ns {
            let quiet = cores.iter().all(|core| core.changes.front().is_none_or(|&(at_ns, _)| at_ns >= to_ns));
            if let (Some(total), true) = (self.steady, quiet) {
                self.total.add(&total, (to_ns - self.until_ns) / EPOCH_NS);
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
        let total = self.sum(EPOCH_NS);
        self.total.add(&total, 1);
        self.until_ns = to_ns;
        let settled = self.settle(to_ns, cores, floor);
        self.steady = (settled && self.calm_ns == before_ns).then_some(total);
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
        let range = u64::from(self.speed.max_khz - self.speed.min_khz).max(1);
        let speed_ppm = (u64::from(watched.khz - self.speed.min_khz) * PPM / range) as u32;
        watched.spent = Spent { awake_ns, speed_ppm, low: watched.low };
    }

    fn sum(&self, dt_ns: u64) -> Total {
        let mut total = Total::default();
        let (mut any, mut pairs) = (false, 0);
        for (index, core) in self.cores.iter().enumerate() {
            total.awake_ns += core.spent.awake_ns;
            total.capacity_ns += core.spent.awake_ns * u64::from(core.khz) / u64::from(self.speed.max_khz);
            let sibling = self.siblings[index];
            if sibling.is_some_and(|sibling| sibling < index) {
                continue;
            }
            let other = sibling.map(|sibling| self.cores[sibling].spent);
            let (epoch, not_deep) = self.model.pair(dt_ns, core.spent, other, pairs >= self.model.pairs());
            total.epoch.cpu_fj += epoch.cpu_fj;
            total.epoch.polling += epoch.polling;
            total.epoch.not_deep += epoch.not_deep;
            any |= not_deep;
            pairs += 1;
        }
        total.epoch.cpu_fj += self.model.package_fj(dt_ns, any);
        total
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
