//! A policy that executes a precomputed schedule of core counts.
//!
//! Cores are used in a fixed order, the main core first. The first cores are awake and share the I/O threads by load, the next are in the shallow
//! state, the others in the deepest state of the plant. A schedule wakes cores early enough to be awake when needed ([`Schedule::new`]).

use pilotlight_plant::{
    Capabilities, Command, CoreId, Next, Policy, Refusal, SleepGoal, Start, ThreadId, Tick, Topology, Unsupported,
    View, Wants,
};

use super::bound::Level;

/// A change of the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Start time, in nanoseconds.
    pub at_ns: u64,
    /// The level from then on.
    pub level: Level,
}

/// The schedule of a [`Replay`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The changes, in time order; the first level applies from the beginning.
    changes: Vec<Change>,
    /// Tick period, in nanoseconds.
    tick_ns: u64,
    /// Cores in the order in which they are used.
    order: Vec<CoreId>,
    /// Load of each I/O thread, in any unit.
    loads: Vec<u64>,
}

/// Order in which cores are used, after the main core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Both siblings of a physical core, then the next.
    Pairs,
    /// One of each physical core, then their siblings.
    Spread,
}

impl Fill {
    /// The cores of a plant in this order.
    #[must_use]
    pub fn order(self, topology: &Topology) -> Vec<CoreId> {
        let mut cores: Vec<CoreId> = std::iter::once(topology.main()).chain(topology.workers()).collect();
        let first = |core: CoreId| topology.sibling(core).map_or(core, |sibling| sibling.min(core));
        let main = first(topology.main());
        let second = |core: CoreId| match topology.sibling(core) {
            Some(sibling) if sibling == topology.main() => true,
            Some(sibling) => core != topology.main() && sibling < core,
            None => false,
        };
        match self {
            Self::Pairs => cores.sort_by_key(|&core| (first(core) != main, first(core), second(core))),
            Self::Spread => cores.sort_by_key(|&core| (second(core), first(core) != main, first(core))),
        }
        cores
    }
}

impl Schedule {
    /// Schedule from levels as `(begin, level)`, in time order. Every rise is moved `lead_ns` ahead.
    #[must_use]
    pub fn new(levels: &[(u64, Level)], lead_ns: u64, tick_ns: u64, order: Vec<CoreId>, loads: Vec<u64>) -> Self {
        let mut changes: Vec<Change> = Vec::new();
        let mut points: Vec<u64> =
            levels.iter().flat_map(|&(at_ns, _)| [at_ns, at_ns.saturating_sub(lead_ns)]).collect();
        points.sort_unstable();
        points.dedup();
        let mut first = 0;
        for at_ns in points {
            while levels.get(first + 1).is_some_and(|&(begin_ns, _)| begin_ns <= at_ns) {
                first += 1;
            }
            let ahead = levels[first..].iter().take_while(|&&(begin_ns, _)| begin_ns <= at_ns + lead_ns);
            let level = ahead.fold(Level::default(), |most, &(_, level)| Level {
                awake: most.awake.max(level.awake),
                not_deep: most.not_deep.max(level.not_deep),
            });
            if changes.last().is_none_or(|last| last.level != level) {
                changes.push(Change { at_ns, level });
            }
        }
        Self { changes, tick_ns, order, loads }
    }
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Replay {
    schedule: Schedule,
    /// Index of the next change.
    next: usize,
    homes: Vec<CoreId>,
    /// The commanded sleep goal of each core; `None` for awake.
    commanded: Vec<Option<SleepGoal>>,
    /// Time from which each core can take I/O threads, in nanoseconds.
    ready_ns: Vec<u64>,
    capabilities: Capabilities,
    refused: bool,
}

/// A core that wakes within this time receives I/O threads at once, in nanoseconds; others once awake.
const AT_ONCE_NS: u64 = 10_000;

impl Replay {
    /// A policy that executes `schedule`.
    #[must_use]
    pub fn new(schedule: Schedule) -> Self {
        Self {
            schedule,
            next: 0,
            homes: Vec::new(),
            commanded: Vec::new(),
            ready_ns: Vec::new(),
            capabilities: Capabilities::default(),
            refused: false,
        }
    }

    /// Applies the level at `now_ns`; returns the time of the next possible action.
    fn follow(&mut self, now_ns: u64, out: &mut Vec<Command>) -> u64 {
        let changes = &self.schedule.changes;
        let due = changes.partition_point(|change| change.at_ns <= now_ns).max(1);
        let ready = self.ready_ns.iter().any(|&ready_ns| (1..=now_ns).contains(&ready_ns));
        if (due > self.next || self.refused || ready) && !changes.is_empty() {
            let level = changes[due - 1].level;
            self.next = due;
            self.refused = false;
            self.carry_out(now_ns, level, out);
        }
        let change_ns = self.schedule.changes.get(self.next).map_or(u64::MAX, |change| change.at_ns);
        let ready_ns = self.ready_ns.iter().copied().filter(|&ready_ns| ready_ns > 0).min();
        if self.refused { now_ns } else { change_ns.min(ready_ns.unwrap_or(u64::MAX)) }
    }

    fn carry_out(&mut self, now_ns: u64, level: Level, out: &mut Vec<Command>) {
        let order = self.schedule.order.clone();
        let awake = usize::from(level.awake.max(1)).min(order.len());
        for &core in &order[..awake] {
            self.wake(now_ns, core, out);
        }
        let ready: Vec<CoreId> =
            order[..awake].iter().copied().filter(|core| self.ready_ns[core.index()] == 0).collect();
        self.spread(&ready, out);
        for (place, &core) in order.iter().enumerate().skip(awake) {
            let shallow = place < usize::from(level.not_deep);
            let goal = if shallow { SleepGoal::SHALLOWEST } else { SleepGoal::DEEPEST };
            self.ready_ns[core.index()] = 0;
            if self.commanded[core.index()] != Some(goal) {
                self.commanded[core.index()] = Some(goal);
                out.push(Command::Sleep { core, goal });
            }
        }
    }

    /// Wakes a sleeping core, and records when it will be awake.
    fn wake(&mut self, now_ns: u64, core: CoreId, out: &mut Vec<Command>) {
        let ready_ns = &mut self.ready_ns[core.index()];
        if *ready_ns <= now_ns {
            *ready_ns = 0;
        }
        let Some(goal) = self.commanded[core.index()].take() else { return };
        out.push(Command::Wake { core });
        let Some(sleep) = self.capabilities.sleep_for(goal) else { return };
        if sleep.wake.ns() > AT_ONCE_NS {
            // Earlier wake-ups of the list delay this one.
            *ready_ns = now_ns + sleep.wake.ns() + sleep.waker.ns() * out.len() as u64;
        }
    }

    /// Moves threads of cores that will sleep to the least loaded cores; then balances from the most to the least loaded core.
    fn spread(&mut self, awake: &[CoreId], out: &mut Vec<Command>) {
        let mut homes = self.homes.clone();
        let loads = &self.schedule.loads;
        let load = |homes: &[CoreId], core: CoreId| -> u64 {
            homes.iter().zip(loads).filter(|(home, _)| **home == core).map(|(_, load)| load).sum()
        };
        for thread in 0..homes.len() {
            if !awake.contains(&homes[thread])
                && let Some(&to) = awake.iter().min_by_key(|&&core| load(&homes, core))
            {
                homes[thread] = to;
            }
        }
        for _ in 0..homes.len() {
            let by_load = |&&core: &&CoreId| load(&homes, core);
            let (Some(&from), Some(&to)) = (awake.iter().max_by_key(by_load), awake.iter().min_by_key(by_load)) else {
                break;
            };
            let gap = load(&homes, from) - load(&homes, to);
            let helps = |&thread: &usize| homes[thread] == from && loads[thread] > 0 && loads[thread] < gap;
            let Some(thread) =
                (0..homes.len()).filter(helps).max_by_key(|&thread| loads[thread].min(gap - loads[thread]))
            else {
                break;
            };
            homes[thread] = to;
        }
        for (thread, (before, &to)) in self.homes.iter_mut().zip(&homes).enumerate() {
            if *before != to {
                *before = to;
                out.push(Command::Move { thread: ThreadId(thread as u16), to });
            }
        }
    }
}

impl Policy for Replay {
    fn name(&self) -> &'static str {
        "oracle-replay"
    }

    fn wants(&self) -> Wants {
        // Without further changes it needs no ticks, and costs the main core nothing.
        let tick_ns = (self.schedule.changes.len() > 1).then_some(self.schedule.tick_ns);
        Wants { tick_ns, ..Wants::default() }
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        self.homes = start.homes.to_vec();
        self.commanded = vec![None; start.topology.len()];
        self.ready_ns = vec![0; start.topology.len()];
        self.capabilities = start.capabilities.clone();
        self.schedule.loads.resize(self.homes.len(), 0);
        Ok(Next::at(self.follow(start.now_ns, out)))
    }

    fn on_tick(&mut self, tick: &Tick<'_>, out: &mut Vec<Command>) -> Next {
        Next::at(self.follow(tick.now_ns, out))
    }

    fn on_refused(&mut self, _now_ns: u64, command: &Command, _refusal: Refusal) {
        if let Command::Sleep { core, .. } = *command {
            self.commanded[core.index()] = None;
            self.refused = true;
        }
    }

    fn view(&self) -> View {
        vec![("changes_left", (self.schedule.changes.len() - self.next).to_string())]
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::{Capabilities, CoreSample, CoreState, Goals};

    use super::*;

    fn level(awake: u16) -> Level {
        Level { awake, not_deep: 4 }
    }

    fn replay(levels: &[(u64, Level)], fill: Fill) -> (Replay, Vec<Command>) {
        let topology = Topology::paired(4).unwrap();
        let mut replay = Replay::new(Schedule::new(levels, 10, 5, fill.order(&topology), vec![1; 4]));
        let mut out = Vec::new();
        let capabilities = Capabilities::default();
        let cores = [CoreSample::new(CoreState::Awake); 4];
        let homes = [0, 1, 2, 3].map(CoreId);
        let start = Start {
            now_ns: 0,
            topology: &topology,
            capabilities: &capabilities,
            cores: &cores,
            homes: &homes,
            goals: &Goals::default(),
        };
        replay.start(&start, &mut out).unwrap();
        (replay, out)
    }

    #[test]
    fn rises_are_early_and_falls_on_time() {
        let schedule = Schedule::new(&[(0, level(1)), (100, level(3)), (200, level(2))], 10, 5, Vec::new(), Vec::new());
        let changes: Vec<_> = schedule.changes.iter().map(|change| (change.at_ns, change.level.awake)).collect();
        assert_eq!(changes, [(0, 1), (90, 3), (200, 2)]);
    }

    #[test]
    fn siblings_are_filled_or_spared() {
        let topology = Topology::new(CoreId(3), [1, 0, 3, 2].map(|core| Some(CoreId(core))).to_vec()).unwrap();
        assert_eq!(Fill::Pairs.order(&topology), [3, 2, 0, 1].map(CoreId));
        assert_eq!(Fill::Spread.order(&topology), [3, 0, 2, 1].map(CoreId));
    }

    #[test]
    fn threads_leave_a_sleeping_core_and_return_evenly() {
        let (mut replay, out) = replay(&[(0, level(1)), (100, level(2))], Fill::Pairs);
        let moves = |out: &[Command]| out.iter().filter(|command| matches!(command, Command::Move { .. })).count();
        let sleeps = |out: &[Command]| out.iter().filter(|command| matches!(command, Command::Sleep { .. })).count();
        assert_eq!((moves(&out), sleeps(&out)), (3, 3));
        assert!(matches!(out[0], Command::Move { .. }), "moves come before sleeps");
        let mut out = Vec::new();
        let tick = |now_ns| Tick { now_ns, elapsed_ns: 5, counts: &[] };
        assert_eq!(replay.on_tick(&tick(50), &mut out), Next::at(90));
        assert!(out.is_empty());
        assert_eq!(replay.on_tick(&tick(95), &mut out), Next::NEVER);
        assert_eq!(out[0], Command::Wake { core: CoreId(1) });
        assert_eq!((moves(&out), sleeps(&out)), (2, 0));
    }
}
