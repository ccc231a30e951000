//! The Task Migrator: selects the cores in use and the homes of I/O threads (PACER IV-D).
//!
//! I/O threads of cores that are no longer in use move to others of their group, between two polls, so that running work finishes; the cores then
//! sleep. With all cores in use I/O threads are spread as under `static`; else the heaviest is placed first on the least loaded core, and stays at
//! home if that is not much worse.

use pilotlight_plant::{
    Capabilities, Command, CoreId, CoreSample, CoreState, KnobId, Sample, SleepGoal, Start, ThreadId, ThreadSample,
    Topology,
};

use super::groups::Groups;
use crate::hotplug::Hotplug;
use crate::load::share;

/// Load of a core up to which its I/O threads stay, in per cent of an equal share; chosen.
const UNEVEN_PER_CENT: u64 = 110;
/// CPU use at which the queueing time is capped; chosen.
const FULL: f64 = 0.95;

/// Placement of I/O threads.
#[derive(Debug)]
pub(super) struct Migrator {
    groups: Groups,
    /// Whether each core is in use.
    in_use: Vec<bool>,
    /// Target home of each I/O thread.
    homes: Vec<CoreId>,
    /// Whether I/O threads can be moved, and cores sleep.
    can_gather: bool,
    /// Cores that can go offline, if wanted.
    hotplug: Option<Hotplug>,
    main: CoreId,
    /// Kept buffers: cores in use, load and number of I/O threads of each core, candidate homes, I/O threads by load.
    used: Vec<CoreId>,
    loads: Vec<(u64, u32)>,
    trial: Vec<CoreId>,
    order: Vec<(u64, usize)>,
    turns: Vec<usize>,
}

/// Busy and awake time of a core group, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuUse {
    busy_ns: u64,
    awake_ns: u64,
}

impl CpuUse {
    pub(super) fn add(&mut self, more: Self) {
        self.busy_ns += more.busy_ns;
        self.awake_ns += more.awake_ns;
    }

    /// As a share.
    pub(super) fn share(self) -> f64 {
        share(self.busy_ns, self.awake_ns) as f64 / 1e6
    }
}

impl Migrator {
    /// All cores in use.
    pub(super) fn new(start: &Start<'_>, offline: bool) -> Self {
        let (topology, capabilities): (&Topology, &Capabilities) = (start.topology, start.capabilities);
        let mut hotplug = offline.then(Hotplug::default);
        hotplug.iter_mut().for_each(|hotplug| hotplug.find(capabilities));
        let mut migrator = Self {
            groups: Groups::new(topology, capabilities, start.homes.len()),
            in_use: vec![true; topology.len()],
            homes: start.homes.to_vec(),
            can_gather: capabilities.moves.is_some() && !capabilities.sleeps.is_empty(),
            hotplug,
            main: topology.main(),
            used: topology.cores().collect(),
            loads: vec![(0, 0); topology.len()],
            trial: start.homes.to_vec(),
            order: Vec::with_capacity(start.homes.len()),
            turns: Vec::new(),
        };
        migrator.spread();
        migrator
    }

    /// Whether I/O threads have the same groups as in another.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.groups.of == other.groups.of
    }

    /// Whether cores can be taken out of use.
    pub(super) fn can_gather(&self) -> bool {
        self.can_gather
    }

    /// Number of cores of each group.
    pub(super) fn sizes(&self) -> impl Iterator<Item = usize> {
        self.groups.cores.iter().map(Vec::len)
    }

    /// Whether each core is in use.
    pub(super) fn in_use(&self) -> &[bool] {
        &self.in_use
    }

    /// Uses all cores.
    pub(super) fn spread(&mut self) {
        if !self.can_gather {
            return;
        }
        self.in_use.fill(true);
        self.note_used();
        self.turns.clear();
        self.turns.resize(self.groups.cores.len(), 0);
        let turns = &mut self.turns;
        for (home, &group) in self.homes.iter_mut().zip(&self.groups.of) {
            let cores = &self.groups.cores[group];
            // With one group as `static` does it, by the number of the core.
            *home = if turns.len() == 1 {
                CoreId((turns[0] % cores.len()) as u16)
            } else {
                cores[turns[group] % cores.len()]
            };
            turns[group] += 1;
        }
    }

    /// Uses these numbers of cores of the groups.
    pub(super) fn gather(&mut self, sizes: impl Iterator<Item = usize>, threads: &[ThreadSample]) {
        if !self.can_gather {
            return;
        }
        self.in_use.fill(false);
        self.in_use[self.main.index()] = true;
        for (group, size) in sizes.enumerate() {
            for core in &self.groups.cores[group][..size] {
                self.in_use[core.index()] = true;
            }
            self.assign(group, size, threads);
            for thread in (0..self.homes.len()).filter(|&thread| self.groups.of[thread] == group) {
                self.homes[thread] = self.trial[thread];
            }
        }
        self.note_used();
    }

    fn note_used(&mut self) {
        let in_use = &self.in_use;
        self.used.clear();
        self.used.extend((0..in_use.len() as u16).map(CoreId).filter(|core| in_use[core.index()]));
    }

    /// Assigns the I/O threads of a group to `size` of its cores: homes go to `trial`, loads of cores to `loads`.
    fn assign(&mut self, group: usize, size: usize, threads: &[ThreadSample]) {
        let cores = &self.groups.cores[group][..size];
        let of_group = (0..self.homes.len()).filter(|&thread| self.groups.of[thread] == group);
        // An I/O thread without load counts a little, so that such threads are spread too.
        let load = |thread: usize| threads.get(thread).map_or(0, |sample| sample.busy_ns) + 1;
        self.order.clear();
        self.order.extend(of_group.map(|thread| (load(thread), thread)));
        self.order.sort_unstable_by_key(|&(load, thread)| (u64::MAX - load, thread));
        let all: u64 = self.order.iter().map(|(load, _)| load).sum();
        let even = all * UNEVEN_PER_CENT / 100 / size as u64;
        self.loads.fill((0, 0));
        for &(load, thread) in &self.order {
            let home = self.homes[thread];
            let stays = cores.contains(&home) && self.loads[home.index()].0 + load <= even;
            let least = || cores.iter().copied().min_by_key(|core| (self.loads[core.index()].0, *core != home, *core));
            let to = if stays { home } else { least().unwrap_or(home) };
            let (sum, count) = &mut self.loads[to.index()];
            (*sum, *count) = (*sum + load, *count + 1);
            self.trial[thread] = to;
        }
    }

    /// Time of requests at the cores of a group, including queueing, with the I/O threads on `size` of them (`None` for the current homes) and service
    /// `slower` times as long; each core is a queue (M/M/1), whose queueing time is multiplied by `times`. Infinite if a shared core would exceed the
    /// limit.
    pub(super) fn core_time(
        &mut self,
        group: usize,
        size: Option<usize>,
        slower: f64,
        (times, limit): (f64, f64),
        sample: &Sample<'_>,
    ) -> f64 {
        match size {
            Some(size) => self.assign(group, size, sample.threads),
            None => {
                self.loads.fill((0, 0));
                for (at, thread) in sample.threads.iter().enumerate().filter(|(at, _)| self.groups.of[*at] == group) {
                    let (sum, count) = &mut self.loads[self.homes[at].index()];
                    (*sum, *count) = (*sum + thread.busy_ns, *count + 1);
                }
            }
        }
        let is_changed = size.is_some() || slower > 1.0;
        let mut time_ns = 0.0;
        for &(load, count) in self.loads.iter().filter(|(load, _)| *load > 0) {
            let cpu_use = load as f64 * slower / sample.elapsed_ns.max(1) as f64;
            if is_changed && cpu_use > limit && (count > 1 || slower > 1.0) {
                return f64::INFINITY;
            }
            let queued = cpu_use.min(FULL);
            time_ns += load as f64 * slower * (1.0 + times * queued / (1.0 - queued));
        }
        time_ns
    }

    /// CPU use of each group's cores in an interval.
    pub(super) fn cpu_use(&self, cores: &[CoreSample]) -> impl Iterator<Item = CpuUse> {
        self.groups.cores.iter().map(move |group| {
            let mut sum = CpuUse::default();
            for core in group.iter().filter_map(|core| cores.get(core.index())) {
                sum.add(CpuUse { busy_ns: core.busy_ns.min(core.awake_ns), awake_ns: core.awake_ns });
            }
            sum
        })
    }

    /// Whether all I/O threads are at their target homes, and the cores in use awake.
    pub(super) fn is_in_place(&self, sample: &Sample<'_>) -> bool {
        let is_awake = |core: &CoreId| sample.cores[core.index()].state == CoreState::Awake;
        !self.can_gather
            || (sample.threads.iter().map(|thread| thread.home).eq(self.homes.iter().copied())
                && self.used.iter().all(is_awake))
    }

    /// Commands the target placement.
    pub(super) fn command(
        &mut self,
        cores: &[CoreSample],
        homes: impl Iterator<Item = CoreId>,
        out: &mut Vec<Command>,
    ) {
        if !self.can_gather {
            return;
        }
        if let Some(hotplug) = &mut self.hotplug {
            hotplug.set(&self.used, cores, out);
        }
        let is_awake = |core: CoreId| cores[core.index()].state == CoreState::Awake;
        out.extend(self.used.iter().filter(|core| !is_awake(**core)).map(|&core| Command::Wake { core }));
        let moves = self.homes.iter().zip(homes).enumerate().filter(|(_, (to, home))| **to != *home);
        out.extend(moves.map(|(thread, (&to, _))| Command::Move { thread: ThreadId(thread as u16), to }));
        let rests = |core: &CoreId| !self.in_use[core.index()] && is_awake(*core);
        let goal = SleepGoal::DEEPEST;
        out.extend((0..cores.len() as u16).map(CoreId).filter(rests).map(|core| Command::Sleep { core, goal }));
    }

    /// Whether a core is to go offline as soon as it sleeps.
    pub(super) fn is_switching(&self) -> bool {
        self.hotplug.as_ref().is_some_and(|hotplug| hotplug.has_pending(&self.used))
    }

    /// Updates the hotplug knobs.
    pub(super) fn find(&mut self, capabilities: &Capabilities) {
        self.hotplug.iter_mut().for_each(|hotplug| hotplug.find(capabilities));
    }

    /// Whether the knob is a hotplug knob.
    pub(super) fn on_refused(&mut self, knob: KnobId, value: u64) -> bool {
        self.hotplug.as_mut().is_some_and(|hotplug| hotplug.on_refused(knob, value))
    }
}
