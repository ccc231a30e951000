//! Reference meter of the naive engine: computes every epoch separately, without caching.
//!
//! It verifies [`super::meter`], so it shares only the power model ([`crate::power`]).

use std::cmp::Reverse;

use pilotlight_plant::Topology;

use super::core::Core;
use super::meter::{EPOCH_NS, Metering, Total, members};
use super::shared::{Change, Shared};
use crate::limiter::Limiter;
use crate::machine::Speed;
use crate::power::{Overlap, PPM, PowerModel, Spent};
use crate::scenario::Scenario;
use crate::schedutil::Schedutil;
use crate::trace::{RecordKind, State};

/// A core: its states, orders and frequency.
#[derive(Clone, Debug)]
struct History {
    /// The state at the beginning of the epoch, and later changes.
    states: Vec<Change>,
    /// Its last idle state.
    low: State,
    khz: u32,
    /// Pending frequency commands: time and frequency.
    orders: Vec<(u64, u32)>,
    /// Time awake in the last epoch.
    awake_ns: u64,
}

pub(crate) struct PlainMeter {
    models: Vec<PowerModel>,
    speed: Speed,
    topology: Topology,
    /// Time to fill statistics, and its period.
    filling: (u64, u64),
    cores: Vec<History>,
    limiter: Limiter,
    governor: Option<Schedutil>,
    now_ns: u64,
    total: Total,
}

impl PlainMeter {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let speed = scenario.machine.speed;
        let models: Vec<PowerModel> =
            members(&scenario.machine, &scenario.family).map(|power| PowerModel::new(power, &speed)).collect();
        let history = History {
            states: vec![Change { at_ns: 0, state: State::Awake, exit_ns: 0 }],
            low: State::Shallow,
            khz: speed.max_khz,
            orders: Vec::new(),
            awake_ns: 0,
        };
        Self {
            total: Total::new(models.len()),
            models,
            speed,
            topology: scenario.topology.clone(),
            filling: (0, 1),
            cores: vec![history; scenario.topology.len()],
            limiter: Limiter::new(&scenario.machine),
            governor: Schedutil::new(&scenario.machine, scenario.topology.len()),
            now_ns: 0,
        }
    }

    fn epoch(&mut self, cores: &mut [Core], shared: &mut Shared<'_>) {
        let from_ns = self.now_ns;
        self.now_ns += EPOCH_NS;
        let (speed, ceiling_khz) = (self.speed, self.limiter.ceiling_khz());
        let before_fj = self.total.epochs[0].cpu_fj;
        let spent: Vec<Spent> = self
            .cores
            .iter_mut()
            .zip(&mut *cores)
            .map(|(history, core)| {
                history.states.extend(core.changes.drain(..));
                history.spent(from_ns, from_ns + EPOCH_NS, &speed, ceiling_khz)
            })
            .collect();
        self.spend(&spent);
        self.govern(&spent, shared);
        self.limiter.spend(self.total.epochs[0].cpu_fj - before_fj);
        if self.limiter.end_period(self.now_ns) {
            let (khz, limit_uw) = (self.limiter.ceiling_khz(), self.limiter.limit_uw());
            shared.recorder.note(self.now_ns, RecordKind::Limited, u64::from(khz), limit_uw);
        }
        for (index, history) in self.cores.iter_mut().enumerate() {
            history.awake_ns = spent[index].awake_ns;
            if history.follow(self.now_ns, &speed) {
                shared.recorder.note(self.now_ns, RecordKind::Frequency, index as u64, u64::from(history.khz));
            }
        }
        self.set_speeds(cores);
    }

    /// Runs the kernel's governor for an epoch.
    fn govern(&mut self, spent: &[Spent], shared: &mut Shared<'_>) {
        let (now_ns, ceiling_khz) = (self.now_ns, self.limiter.ceiling_khz());
        let Some(governor) = &mut self.governor else { return };
        for (index, (history, spent)) in self.cores.iter().zip(spent).enumerate() {
            governor.spend(index, spent.awake_ns, history.khz.min(ceiling_khz), 1);
        }
        for (index, khz) in governor.update(now_ns) {
            shared.recorder.note(now_ns, RecordKind::Ordered, index as u64, u64::from(khz));
            self.order(now_ns, index, khz);
        }
    }

    /// Adds up an epoch.
    fn spend(&mut self, spent: &[Spent]) {
        let ceiling_khz = self.limiter.ceiling_khz();
        for (history, spent) in self.cores.iter().zip(spent) {
            self.total.awake_ns += spent.awake_ns;
            let khz = history.khz.min(ceiling_khz);
            self.total.capacity_ns += spent.awake_ns * u64::from(khz) / u64::from(self.speed.max_khz);
        }
        for (model, epoch) in self.models.iter().zip(&mut self.total.epochs) {
            let billed = |spent: Spent| if model.exits_at_rest() { spent.exit_at_rest() } else { spent };
            let (mut pairs, mut any) = (0, false);
            for core in self.topology.cores() {
                let sibling = self.topology.sibling(core);
                if sibling.is_some_and(|sibling| sibling < core) {
                    continue; // it was counted with its sibling
                }
                let second = sibling.map(|sibling| billed(spent[sibling.index()]));
                let overlap = Overlap::new(EPOCH_NS, billed(spent[core.index()]), second);
                let pair = model.pair(EPOCH_NS, &overlap, pairs >= model.pairs());
                epoch.cpu_fj += pair.cpu_fj;
                epoch.cores_fj += pair.cores_fj;
                epoch.polling += pair.polling;
                epoch.not_deep += pair.not_deep;
                any = any || overlap.not_deep;
                pairs += 1;
            }
            epoch.cpu_fj += model.package_fj(EPOCH_NS, if any { EPOCH_NS } else { 0 }, self.limiter.ceiling());
        }
    }

    /// Sets each core's cost of a nanosecond at full speed, in 1/65536: memory stalls do not scale with frequency, an idle sibling speeds a core
    /// up, and statistics cost time.
    fn set_speeds(&self, cores: &mut [Core]) {
        let Speed { max_khz, stalled_ppm, sibling_gain_ppm, .. } = self.speed;
        for id in self.topology.cores() {
            let stalled = u64::from(stalled_ppm);
            let khz = self.cores[id.index()].khz.min(self.limiter.ceiling_khz());
            let slowed = stalled + (PPM - stalled) * u64::from(max_khz) / u64::from(khz);
            let filled = slowed * (PPM + self.filling.0 * PPM / self.filling.1) / PPM;
            let busy_ppm = match self.topology.sibling(id) {
                Some(sibling) => self.cores[sibling.index()].awake_ns * PPM / EPOCH_NS,
                None => 0,
            };
            let helped = PPM + u64::from(sibling_gain_ppm) * (PPM - busy_ppm) / PPM;
            let factor = (filled * 65_536 / helped) as u32;
            if cores[id.index()].factor() != factor {
                cores[id.index()].set_factor(factor);
            }
        }
    }
}

impl History {
    /// Activity from `from_ns` until `to_ns`.
    fn spent(&mut self, from_ns: u64, to_ns: u64, speed: &Speed, ceiling_khz: u32) -> Spent {
        let common_ns = |begin_ns: u64, end_ns: u64| end_ns.min(to_ns).saturating_sub(begin_ns.max(from_ns));
        let (mut awake_ns, mut exit_ns) = (0, 0);
        for (place, change) in self.states.iter().enumerate() {
            let end_ns = self.states.get(place + 1).map_or(u64::MAX, |next| next.at_ns);
            if change.state == State::Awake {
                awake_ns += common_ns(change.at_ns, end_ns);
                exit_ns += common_ns(change.at_ns, end_ns.min(change.at_ns + change.exit_ns));
            } else if change.at_ns < to_ns {
                self.low = change.state;
            }
        }
        let begun = self.states.iter().filter(|change| change.at_ns < to_ns).count();
        self.states.drain(..begun.saturating_sub(1));
        let step = (speed.min_khz..self.khz.min(ceiling_khz)).step_by(speed.step_khz.max(1) as usize).count();
        Spent { awake_ns, exit_ns, step, low: self.low }
    }

    /// Applies all commands before `now_ns`; returns whether a transition has ended.
    fn follow(&mut self, now_ns: u64, speed: &Speed) -> bool {
        let mut ended = false;
        while let Some(&(first_ns, mut target_khz)) = self.orders.first().filter(|(at_ns, _)| *at_ns < now_ns) {
            if target_khz == self.khz {
                self.orders.remove(0); // no change
                continue;
            }
            let (mut end_ns, mut joined) = (first_ns + speed.transition_ns, 1);
            for &(at_ns, khz) in &self.orders[1..] {
                if at_ns >= end_ns || at_ns >= now_ns {
                    break;
                }
                if khz != target_khz && speed.transition_restarts {
                    end_ns = at_ns + speed.transition_ns;
                }
                target_khz = khz;
                joined += 1;
            }
            if end_ns > now_ns {
                break;
            }
            self.khz = target_khz;
            self.orders.drain(..joined);
            ended = true;
        }
        ended
    }
}

impl Metering for PlainMeter {
    fn fill(&mut self, fill_ns: u32, every_ns: u64, cores: &mut [Core]) {
        self.filling = (u64::from(fill_ns), every_ns.max(1));
        self.set_speeds(cores);
    }

    /// Uses the nearest supported frequency, the higher one of two equally near.
    fn order(&mut self, at_ns: u64, core: usize, khz: u32) {
        let Speed { min_khz, max_khz, step_khz, .. } = self.speed;
        let khz = khz.clamp(min_khz, max_khz);
        let steps = (min_khz..=max_khz.saturating_add(step_khz)).step_by(step_khz.max(1) as usize);
        let nearest = steps.min_by_key(|step| (step.abs_diff(khz), Reverse(*step))).unwrap_or(max_khz);
        self.cores[core].orders.push((at_ns, nearest.min(max_khz)));
    }

    fn limit(&mut self, at_ns: u64, limit_uw: Option<u64>) {
        self.limiter.order(at_ns, limit_uw);
    }

    fn account(&mut self, to_ns: u64, cores: &mut [Core], shared: &mut Shared<'_>) {
        while self.now_ns < to_ns {
            self.epoch(cores, shared);
        }
    }

    fn until_ns(&self) -> u64 {
        self.now_ns
    }

    fn take(&mut self) -> Total {
        std::mem::replace(&mut self.total, Total::new(self.models.len()))
    }

    fn is_calm(&self, _: u64) -> bool {
        false // nothing is skipped
    }
}
