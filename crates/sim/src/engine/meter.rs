//! Time awake, speed and energy of cores, on the grid of epochs.
//!
//! Changes within an epoch take effect at its end: a core's speed in the next epoch depends on its sibling's awake time and on its own frequency;
//! energy depends on the awake times (see [`crate::power`]). While nothing changes, many epochs are computed as one, with the same result;
//! [`super::plain`] computes each.
//!
//! A frequency command takes effect when it is issued. It begins a transition, or joins the current one; the frequency applies from the first epoch
//! that begins at or after the end of the transition.

use std::collections::VecDeque;

use pilotlight_plant::Topology;

use super::core::Core;
use super::moments::{self, Part};
use super::shared::{Change, Shared};
use crate::limiter::Limiter;
use crate::machine::{Machine, Power, Speed};
use crate::power::{Epoch, Overlap, PPM, PowerModel, Spent, Together};
use crate::schedutil::Schedutil;
use crate::trace::{RecordKind, State};

/// Length of an epoch in nanoseconds.
pub const EPOCH_NS: u64 = 10_000;

/// Interface of the meter to the engine.
pub(crate) trait Metering {
    /// Every core spends `fill_ns` per `every_ns` on statistics (SANDMAN, Table 3).
    fn fill(&mut self, fill_ns: u32, every_ns: u64, cores: &mut [Core]);

    /// Commands a core's frequency at `at_ns`. Calls for a core are in time order.
    fn order(&mut self, at_ns: u64, core: usize, khz: u32);

    /// Sets the package's power limit from `at_ns` on, in microwatts; `None` for no limit. Calls are in time order.
    fn limit(&mut self, at_ns: u64, limit_uw: Option<u64>);

    /// Accounts for the time until `to_ns`, a multiple of epochs, and sets the speed of every core from then on.
    fn account(&mut self, to_ns: u64, cores: &mut [Core], shared: &mut Shared<'_>);

    /// End of the accounted time.
    fn until_ns(&self) -> u64;

    /// Totals since the last call.
    fn take(&mut self) -> Total;

    /// Whether cores have been unchanged for some epochs, and remain so unless a command or response occurs; `changed_ns` is the last state change of
    /// any core.
    fn is_calm(&self, changed_ns: u64) -> bool;
}

/// The meter's state of a core.
#[derive(Clone, Debug)]
struct TrackedCore {
    state: State,
    low: State,
    khz: u32,
    /// Future frequency commands: time, frequency.
    orders: VecDeque<(u64, u32)>,
    /// Target frequency and end of the current transition.
    transition: Option<(u32, u64)>,
    /// End of the exit from the last idle state.
    exited_ns: u64,
    spent: Spent,
}

impl TrackedCore {
    /// Accounts for its state from `from_ns` until `at_ns`; returns `at_ns`.
    fn pass(&mut self, from_ns: u64, at_ns: u64) -> u64 {
        match self.state {
            State::Awake => {
                self.spent.awake_ns += at_ns - from_ns;
                self.spent.exit_ns += self.exited_ns.min(at_ns).saturating_sub(from_ns);
            }
            State::Spins => self.spent.awake_ns += at_ns - from_ns,
            State::Shallow | State::Deep => {}
        }
        at_ns
    }

    /// The same, as parts of an epoch.
    fn part(&self, from_ns: u64, at_ns: u64, parts: &mut Vec<Part>) {
        let exited_ns = self.exited_ns.min(at_ns);
        if self.state == State::Awake && exited_ns > from_ns {
            parts.push(Part { until_ns: exited_ns, state: State::Awake, at_rest: self.low });
        }
        parts.push(Part { until_ns: at_ns, state: self.state, at_rest: self.state });
    }

    fn turn(&mut self, change: Change) {
        self.state = change.state;
        match change.state {
            State::Awake => self.exited_ns = change.at_ns + change.exit_ns,
            State::Spins => {}
            State::Shallow | State::Deep => {
                self.low = change.state;
                self.spent.low = change.state;
            }
        }
    }

    /// The next effect of a command or transition; epochs that end earlier are unaffected.
    fn due_ns(&self) -> u64 {
        let order_ns = self.orders.front().map_or(u64::MAX, |&(at_ns, _)| at_ns + 1);
        self.transition.map_or(order_ns, |(_, end_ns)| order_ns.min(end_ns))
    }

    /// Applies commands issued before `now_ns`; returns whether the frequency changed.
    fn follow(&mut self, now_ns: u64, speed: &Speed) -> bool {
        let mut ended = false;
        while let Some(&(at_ns, khz)) = self.orders.front().filter(|&&(at_ns, _)| at_ns < now_ns) {
            self.orders.pop_front();
            ended |= self.end_transition(at_ns);
            if self.transition.map_or(self.khz, |(khz, _)| khz) == khz {
                continue;
            }
            let end_ns = match self.transition {
                Some((_, end_ns)) if !speed.transition_restarts => end_ns,
                _ => at_ns + speed.transition_ns,
            };
            self.transition = Some((khz, end_ns));
        }
        self.end_transition(now_ns) || ended
    }

    fn end_transition(&mut self, now_ns: u64) -> bool {
        let ended = self.transition.take_if(|&mut (_, end_ns)| end_ns <= now_ns);
        ended.inspect(|&(khz, _)| self.khz = khz).is_some()
    }
}

pub(crate) struct Meter {
    /// Power models of the machine and of further members of its family.
    models: Vec<PowerModel>,
    speed: Speed,
    /// Share of each core's time spent on statistics for the policy, in millionths.
    filling_ppm: u64,
    siblings: Vec<Option<usize>>,
    cores: Vec<TrackedCore>,
    /// Parts of the epoch by core, for machines with scheduled cores.
    parts: Option<Vec<Vec<Part>>>,
    limiter: Limiter,
    /// The highest frequency that the package's power limit allows.
    ceiling_khz: u32,
    /// Its next possible change; `u64::MAX` without a limit.
    limit_ns: u64,
    /// The kernel's frequency governor, if any, and its next update; `u64::MAX` without one.
    governor: Option<Schedutil>,
    governor_ns: u64,
    until_ns: u64,
    /// Totals since the last [`Metering::take`].
    total: Total,
    /// Totals of the last epoch.
    unit: Total,
    /// Time of the last change.
    calm_ns: u64,
    /// The next effect of a command or transition; `u64::MAX` for none.
    due_ns: u64,
    /// Whether the next epoch has the same totals, if it ends before `due_ns` and no core changes its state.
    steady: bool,
}

/// Totals of a time span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Total {
    /// By member of the family.
    pub(crate) epochs: Vec<Epoch>,
    pub(crate) awake_ns: u64,
    /// Awake time times frequency over the highest frequency.
    pub(crate) capacity_ns: u64,
}

impl Total {
    pub(crate) fn new(members: usize) -> Self {
        Self { epochs: vec![Epoch::default(); members], ..Self::default() }
    }

    pub(crate) fn add(&mut self, other: &Self, times: u64) {
        for (epoch, more) in self.epochs.iter_mut().zip(&other.epochs) {
            epoch.cpu_fj += more.cpu_fj * u128::from(times);
            epoch.cores_fj += more.cores_fj * u128::from(times);
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

/// Power of the machine, and of further members of its family.
pub(crate) fn members<'a>(machine: &'a Machine, family: &'a [Power]) -> impl Iterator<Item = &'a Power> {
    std::iter::once(&machine.power).chain(family)
}

impl Meter {
    pub(crate) fn new(machine: &Machine, family: &[Power], topology: &Topology) -> Self {
        let spent = Spent { awake_ns: 0, exit_ns: 0, step: 0, low: State::Shallow };
        let models: Vec<_> = members(machine, family).map(|power| PowerModel::new(power, &machine.speed)).collect();
        let governor = Schedutil::new(machine, topology.len());
        let watched = TrackedCore {
            state: State::Awake,
            low: State::Shallow,
            khz: machine.speed.max_khz,
            orders: VecDeque::new(),
            transition: None,
            exited_ns: 0,
            spent,
        };
        Self {
            total: Total::new(models.len()),
            unit: Total::new(models.len()),
            models,
            speed: machine.speed,
            filling_ppm: 0,
            siblings: topology.cores().map(|core| topology.sibling(core).map(|other| other.index())).collect(),
            cores: vec![watched; topology.len()],
            parts: machine.power.scheduled.map(|_| vec![Vec::new(); topology.len()]),
            limiter: Limiter::new(machine),
            ceiling_khz: machine.speed.max_khz,
            limit_ns: u64::MAX,
            governor_ns: governor.as_ref().map_or(u64::MAX, |_| Schedutil::due_ns(0)),
            governor,
            until_ns: 0,
            calm_ns: 0,
            due_ns: u64::MAX,
            steady: false,
        }
    }

    fn epoch(&mut self, cores: &mut [Core], shared: &mut Shared<'_>) {
        let to_ns = self.until_ns + EPOCH_NS;
        let before_ns = self.calm_ns;
        for (index, core) in cores.iter_mut().enumerate() {
            self.drain(index, core, to_ns);
        }
        if self.parts.is_some() {
            self.sum_moments()
        } else {
            self.sum()
        }
        self.total.add(&self.unit, 1);
        self.until_ns = to_ns;
        if self.governor_ns != u64::MAX {
            self.govern(1, shared);
        }
        let limited = self.limit_ns != u64::MAX && self.follow_limit(to_ns, shared);
        let settled = self.settle(to_ns, cores, shared) && !limited;
        let exits = self.cores.iter().any(|core| core.spent.exit_ns > 0);
        self.steady = settled && self.calm_ns == before_ns && !exits;
    }

    /// Applies the kernel's governor to `epochs` epochs equal to the last one, which end now.
    fn govern(&mut self, epochs: u64, shared: &mut Shared<'_>) {
        let Some(mut governor) = self.governor.take() else { return };
        for (index, core) in self.cores.iter().enumerate() {
            governor.spend(index, core.spent.awake_ns, self.khz(index), epochs);
        }
        let now_ns = self.until_ns;
        for (index, khz) in governor.update(now_ns) {
            shared.recorder.note(now_ns, RecordKind::Ordered, index as u64, u64::from(khz));
            self.order(now_ns, index, khz);
        }
        (self.governor_ns, self.governor) = (Schedutil::due_ns(now_ns), Some(governor));
    }

    /// The next effect of a command, limit or the governor.
    fn next_ns(&self) -> u64 {
        self.due_ns.min(self.limit_ns).min(self.governor_ns)
    }

    /// Applies the power limit to the epoch that ends now; returns whether frequencies changed.
    fn follow_limit(&mut self, now_ns: u64, shared: &mut Shared<'_>) -> bool {
        self.limiter.spend(self.unit.epochs[0].cpu_fj);
        let changed = self.limiter.end_period(now_ns);
        self.limit_ns = self.limiter.due_ns(now_ns);
        if changed {
            self.ceiling_khz = self.limiter.ceiling_khz();
            self.calm_ns = now_ns;
            shared.recorder.note(now_ns, RecordKind::Limited, u64::from(self.ceiling_khz), self.limiter.limit_uw());
        }
        changed
    }

    /// The frequency of a core.
    fn khz(&self, index: usize) -> u32 {
        self.cores[index].khz.min(self.ceiling_khz)
    }

    /// Collects a core's states until `to_ns`.
    fn drain(&mut self, index: usize, core: &mut Core, to_ns: u64) {
        let above = self.khz(index) - self.speed.min_khz;
        let watched = &mut self.cores[index];
        let mut parts = self.parts.as_mut().map(|parts| &mut parts[index]);
        if let Some(parts) = &mut parts {
            parts.clear();
        }
        let step = above.div_ceil(self.speed.step_khz.max(1)) as usize;
        watched.spent = Spent { awake_ns: 0, exit_ns: 0, step, low: watched.low };
        let mut from_ns = self.until_ns;
        while let Some(&change) = core.changes.front().filter(|change| change.at_ns < to_ns) {
            core.changes.pop_front();
            if let Some(parts) = &mut parts {
                watched.part(from_ns, change.at_ns.max(from_ns), parts);
            }
            from_ns = watched.pass(from_ns, change.at_ns.max(from_ns));
            watched.turn(change);
            self.calm_ns = self.calm_ns.max(change.at_ns);
        }
        if let Some(parts) = &mut parts {
            watched.part(from_ns, to_ns, parts);
        }
        watched.pass(from_ns, to_ns);
    }

    /// Computes the totals of the epoch.
    fn sum(&mut self) {
        let Self { models, cores, siblings, unit, speed, ceiling_khz, limiter, .. } = self;
        unit.clear();
        let (mut any, mut pairs) = ([false; 2], 0);
        for (index, core) in cores.iter().enumerate() {
            unit.awake_ns += core.spent.awake_ns;
            unit.capacity_ns += core.spent.awake_ns * u64::from(core.khz.min(*ceiling_khz)) / u64::from(speed.max_khz);
            let sibling = siblings[index];
            if sibling.is_some_and(|sibling| sibling < index) {
                continue;
            }
            let sibling = sibling.map(|sibling| cores[sibling].spent);
            let exits = core.spent.exit_ns > 0 || sibling.is_some_and(|spent| spent.exit_ns > 0);
            let awake = Overlap::new(EPOCH_NS, core.spent, sibling);
            let resting = Overlap::new(EPOCH_NS, core.spent.exit_at_rest(), sibling.map(Spent::exit_at_rest));
            let overlaps = [awake, if exits { resting } else { awake }];
            for (epoch, model) in unit.epochs.iter_mut().zip(models.iter()) {
                let overlap = &overlaps[usize::from(model.exits_at_rest())];
                let pair = model.pair(EPOCH_NS, overlap, pairs >= model.pairs());
                epoch.add(&pair);
            }
            any = std::array::from_fn(|at| any[at] || overlaps[at].not_deep);
            pairs += 1;
        }
        for (epoch, model) in unit.epochs.iter_mut().zip(models.iter()) {
            let not_deep_ns = if any[usize::from(model.exits_at_rest())] { EPOCH_NS } else { 0 };
            epoch.cpu_fj += model.package_fj(EPOCH_NS, not_deep_ns, limiter.ceiling());
        }
    }

    /// The same for a machine with scheduled cores.
    #[inline(never)] // outside the hot path
    fn sum_moments(&mut self) {
        let Self { models, cores, siblings, unit, speed, ceiling_khz, limiter, parts, until_ns, .. } = self;
        let Some(parts) = parts else { return };
        unit.clear();
        let mut pairs = 0;
        for (index, core) in cores.iter().enumerate() {
            unit.awake_ns += core.spent.awake_ns;
            unit.capacity_ns += core.spent.awake_ns * u64::from(core.khz.min(*ceiling_khz)) / u64::from(speed.max_khz);
            let sibling = siblings[index];
            if sibling.is_some_and(|sibling| sibling < index) {
                continue;
            }
            let steps = [core.spent.step, sibling.map_or(0, |sibling| cores[sibling].spent.step)];
            for (epoch, model) in unit.epochs.iter_mut().zip(models.iter()) {
                let second = sibling.map(|sibling| &parts[sibling][..]);
                let together = moments::together(*until_ns, &parts[index], second, model.exits_at_rest());
                let together = Together { steps, ..together };
                epoch.add(&model.pair_by_moments(EPOCH_NS, &together, pairs >= model.pairs()));
            }
            pairs += 1;
        }
        for (epoch, model) in unit.epochs.iter_mut().zip(models.iter()) {
            let not_deep_ns = moments::not_deep_ns(*until_ns, parts, model.exits_at_rest());
            epoch.cpu_fj += model.package_fj(EPOCH_NS, not_deep_ns, limiter.ceiling());
        }
    }

    /// Applies current frequencies and the resulting speeds; returns whether all speeds are unchanged.
    fn settle(&mut self, now_ns: u64, cores: &mut [Core], shared: &mut Shared<'_>) -> bool {
        let mut same = true;
        let follows = self.due_ns <= now_ns;
        for (index, core) in cores.iter_mut().enumerate() {
            if follows && self.cores[index].follow(now_ns, &self.speed) {
                self.calm_ns = now_ns;
                shared.recorder.note(now_ns, RecordKind::Frequency, index as u64, u64::from(self.cores[index].khz));
            }
            let factor = self.factor(index);
            if factor != core.factor() {
                same = false;
                core.set_factor(factor);
            }
        }
        if follows {
            self.due_ns = self.cores.iter().map(TrackedCore::due_ns).min().unwrap_or(u64::MAX);
        }
        same
    }

    /// Cost of a nanosecond at full speed, in 1/65536.
    fn factor(&self, index: usize) -> u32 {
        let Speed { max_khz, stalled_ppm, sibling_gain_ppm, .. } = self.speed;
        let stalled = u64::from(stalled_ppm);
        let clocked = (PPM - stalled) * u64::from(max_khz) / u64::from(self.khz(index));
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

impl Metering for Meter {
    fn fill(&mut self, fill_ns: u32, every_ns: u64, cores: &mut [Core]) {
        self.filling_ppm = u64::from(fill_ns) * PPM / every_ns.max(1);
        for (index, core) in cores.iter_mut().enumerate() {
            core.set_factor(self.factor(index));
        }
    }

    fn order(&mut self, at_ns: u64, core: usize, khz: u32) {
        let Speed { min_khz, max_khz, step_khz, .. } = self.speed;
        let khz = khz.clamp(min_khz, max_khz);
        let khz = min_khz + (khz - min_khz + step_khz / 2) / step_khz.max(1) * step_khz;
        self.cores[core].orders.push_back((at_ns, khz.min(max_khz)));
        self.due_ns = self.due_ns.min(at_ns + 1);
    }

    fn limit(&mut self, at_ns: u64, limit_uw: Option<u64>) {
        self.limiter.order(at_ns, limit_uw);
        self.limit_ns = self.limit_ns.min(self.limiter.due_ns(at_ns.max(self.until_ns)));
    }

    fn account(&mut self, to_ns: u64, cores: &mut [Core], shared: &mut Shared<'_>) {
        while self.until_ns < to_ns {
            let quiet = cores.iter().all(|core| core.changes.front().is_none_or(|change| change.at_ns >= to_ns));
            let same_until_ns = to_ns.min((self.next_ns() - 1) / EPOCH_NS * EPOCH_NS);
            if self.steady && quiet && same_until_ns > self.until_ns {
                let epochs = (same_until_ns - self.until_ns) / EPOCH_NS;
                self.total.add(&self.unit, epochs);
                if self.limit_ns != u64::MAX {
                    self.limiter.spend(self.unit.epochs[0].cpu_fj * u128::from(epochs));
                }
                self.until_ns = same_until_ns;
                if self.governor_ns != u64::MAX {
                    self.govern(epochs, shared);
                }
            } else {
                self.epoch(cores, shared);
            }
        }
    }

    fn until_ns(&self) -> u64 {
        self.until_ns
    }

    fn take(&mut self) -> Total {
        let none = Total::new(self.models.len());
        std::mem::replace(&mut self.total, none)
    }

    fn is_calm(&self, changed_ns: u64) -> bool {
        let last_ns = changed_ns.max(self.calm_ns);
        self.until_ns >= last_ns + 3 * EPOCH_NS && self.next_ns() == u64::MAX
    }
}
