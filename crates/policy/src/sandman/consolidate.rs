//! Placement of I/O threads after a coarse interval (SANDMAN section 4.4.1): a pure function from a sample, a topology and parameters to a
//! home for each thread. Workers without threads sleep.
//!
//! **Terms.** The *load* of a core is its busy time over its awake time. It is *idle* below the idle threshold, *busy* above the healthy
//! one, *healthy* between. A thread is *active* if it had a request in the interval. A core *can take* a thread if its load plus the
//! thread's is not above the healthy threshold.
//!
//! **Steps**, each on the result of the one before:
//!
//! 1. Threads without a request go to the main core. With `main_gives_active` the main core gives the others to workers (5.3): to one that
//!    can take a thread, else to a core that is woken.
//! 2. With `relieve` a busy core gives its largest threads away until it is not busy: to a worker that can take one, else to a whole core.
//! 3. Idle workers are emptied, the emptiest first. Their threads go, the largest first, to the fullest worker that can take them (best fit),
//!    healthy ones before idle ones, and to the main core only if no worker can. All threads of a core move or none: a core that keeps one
//!    thread does not sleep, so moving the others would gain nothing.
//! 4. Pairs of siblings with one half in use: the threads of one half move to the free half of another pair, so that a whole pair sleeps
//!    (Figure 10: after "B and D onto A and C", A's threads go onto D). The main core never sleeps, so its sibling is filled first. Skipped
//!    with `siblings = false` (Figure 11(b) before "+SS").
//!
//! **Properties** (tests/properties.rs, tests/figure_10.rs). No thread is lost; a core that was not busy does not become busy; a worker is
//! emptied whole or not at all; at most one pair of workers is left half in use; the same sample gives the same plan.

use pilotlight_plant::{Command, CoreId, CoreState, Sample, SleepGoal, ThreadId, Topology};

use super::give_back::MARGIN_PPM;
use super::parameters::Parameters;
use super::select::{Cores, Selection, whole_core};
use crate::load::share;

/// The target home of each I/O thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// By thread.
    pub homes: Vec<CoreId>,
}

/// The plan for a sample.
#[must_use]
pub fn plan(sample: &Sample<'_>, topology: &Topology, parameters: &Parameters) -> Plan {
    let mut layout = Layout::new(sample, topology, parameters);
    layout.gather_quiet_threads();
    if parameters.main_gives_active {
        layout.spare_main();
    }
    if parameters.relieve {
        layout.relieve_busy_cores();
    }
    layout.empty_idle_workers();
    if parameters.siblings {
        layout.fill_pairs();
    }
    Plan { homes: layout.homes }
}

/// The plan of a check ([`super::give_back`]): threads without a request go to the main core, busy cores give threads
/// away by the loads of `mean`, and otherwise idle workers are emptied by those of `most`, unless that is left out.
pub(super) fn give_back(
    most: Option<&Sample<'_>>,
    mean: &Sample<'_>,
    topology: &Topology,
    parameters: &Parameters,
) -> Plan {
    let mut layout = Layout::new(mean, topology, parameters);
    layout.gather_quiet_threads();
    if parameters.relieve {
        let before = layout.homes.clone();
        layout.relieve_busy_cores();
        if layout.homes != before {
            return Plan { homes: layout.homes };
        }
    }
    let is_used = |core: CoreId| layout.is_awake(core) && !layout.is_empty(core);
    let Some(most) = most.filter(|_| topology.workers().any(is_used)) else { return Plan { homes: layout.homes } };
    let mut layout = Layout::new(most, topology, parameters);
    layout.take_ppm = layout.take_ppm.saturating_sub(MARGIN_PPM);
    layout.gather_quiet_threads();
    layout.empty_idle_workers();
    if parameters.siblings {
        layout.fill_pairs();
    }
    Plan { homes: layout.homes }
}

/// Commands that lead to the plan: wake-ups, moves, sleep.
pub fn commands(
    plan: &Plan,
    sample: &Sample<'_>,
    topology: &Topology,
    goal: impl Fn(CoreId) -> SleepGoal,
    out: &mut Vec<Command>,
) {
    let mut used = vec![false; topology.len()];
    let mut reached = vec![false; topology.len()];
    for (thread, &to) in sample.threads.iter().zip(&plan.homes) {
        used[to.index()] = true;
        reached[to.index()] |= thread.home != to;
    }
    let asleep = |core: &CoreId| sample.cores[core.index()].state != CoreState::Awake;
    let woken = topology.cores().filter(|core| reached[core.index()] && asleep(core));
    out.extend(woken.map(|core| Command::Wake { core }));
    for (thread, (now, &to)) in sample.threads.iter().zip(&plan.homes).enumerate() {
        if now.home != to {
            out.push(Command::Move { thread: ThreadId(thread as u16), to });
        }
    }
    let done = topology.workers().filter(|core| !used[core.index()] && !asleep(core));
    out.extend(done.map(|core| Command::Sleep { core, goal: goal(core) }));
}

/// The working state of a plan.
struct Layout<'a> {
    topology: &'a Topology,
    idle_ppm: u64,
    healthy_ppm: u64,
    /// Load up to which a core takes threads: the healthy threshold, or less.
    take_ppm: u64,
    main_takes_active: bool,
    siblings: bool,
    homes: Vec<CoreId>,
    /// Load of each thread, in millionths of a core.
    threads: Vec<u64>,
    active: Vec<bool>,
    cores: Vec<Core>,
}

/// One core of the plan.
#[derive(Clone, Debug)]
struct Core {
    awake: bool,
    load: u64,
    /// Its threads: those of the sample in the order of their numbers, then those added.
    owned: Vec<usize>,
}

impl Cores for Layout<'_> {
    fn is_awake(&self, core: CoreId) -> bool {
        self.cores[core.index()].awake
    }
    fn is_empty(&self, core: CoreId) -> bool {
        self.cores[core.index()].owned.is_empty()
    }
}

impl<'a> Layout<'a> {
    /// Loads of a sample. That of a core is its busy over its awake time (4.4.1), or the busy time of its threads over the
    /// interval if that is more: a thread that arrived in the middle counts in full. That of a thread is its busy time over
    /// its home's awake time, at most its home's load.
    fn new(sample: &Sample<'_>, topology: &'a Topology, parameters: &Parameters) -> Self {
        let mut cores: Vec<Core> = Vec::with_capacity(topology.len());
        for core in sample.cores {
            let awake = core.state == CoreState::Awake;
            cores.push(Core { awake, load: share(core.busy_ns, core.awake_ns), owned: Vec::new() });
        }
        let mut brought = vec![0; topology.len()];
        for (number, thread) in sample.threads.iter().enumerate() {
            cores[thread.home.index()].owned.push(number);
            brought[thread.home.index()] += thread.busy_ns;
        }
        for (core, brought) in cores.iter_mut().zip(brought) {
            core.load = core.load.max(share(brought, sample.elapsed_ns));
        }
        let load = |thread: &pilotlight_plant::ThreadSample| {
            let home = thread.home.index();
            share(thread.busy_ns, sample.cores[home].awake_ns).min(cores[home].load)
        };
        Self {
            topology,
            idle_ppm: u64::from(parameters.idle_ppm),
            healthy_ppm: u64::from(parameters.healthy_ppm),
            take_ppm: u64::from(parameters.healthy_ppm),
            main_takes_active: parameters.main_takes_active,
            siblings: parameters.siblings,
            homes: sample.threads.iter().map(|thread| thread.home).collect(),
            threads: sample.threads.iter().map(load).collect(),
            active: sample.threads.iter().map(|thread| thread.requests > 0).collect(),
            cores,
        }
    }

    /// Step 1. A thread on a sleeping core, which a plant should never report, also goes to the main core.
    fn gather_quiet_threads(&mut self) {
        for thread in 0..self.homes.len() {
            if !self.active[thread] || !self.is_awake(self.homes[thread]) {
                self.move_to(thread, self.topology.main());
            }
        }
    }

    /// Step 1, second half.
    fn spare_main(&mut self) {
        let selection = Selection { reuse_awake: true, siblings: self.siblings };
        let main = self.topology.main();
        for thread in self.largest_first(main).into_iter().filter(|&thread| self.active[thread]).collect::<Vec<_>>() {
            let to = self.fullest_worker(main, thread).or_else(|| whole_core(self.topology, self, selection));
            let Some(to) = to else { return };
            self.move_to(thread, to);
        }
    }

    /// Step 2.
    fn relieve_busy_cores(&mut self) {
        let selection = Selection { reuse_awake: true, siblings: self.siblings };
        for core in self.topology.cores() {
            let mut active = self.largest_first(core);
            active.retain(|&thread| self.active[thread]);
            for thread in active {
                let alone = core != self.topology.main() && self.owned(core).len() < 2;
                if self.load(core) <= self.healthy_ppm || alone {
                    break;
                }
                let to = self.fullest_worker(core, thread).or_else(|| whole_core(self.topology, self, selection));
                let Some(to) = to else { break };
                self.move_to(thread, to);
            }
        }
    }

    /// Step 3.
    fn empty_idle_workers(&mut self) {
        let mut idle: Vec<CoreId> = self.topology.workers().filter(|&core| self.is_idle(core)).collect();
        idle.sort_by_key(|&core| (self.load(core), core));
        for core in idle {
            // It may have received threads since.
            if self.is_idle(core) {
                self.empty(core);
            }
        }
    }

    /// Moves all threads of a core to others, or none.
    fn empty(&mut self, core: CoreId) {
        let threads = self.largest_first(core);
        let load = self.load(core);
        for (moved, &thread) in threads.iter().enumerate() {
            let Some(to) = self.fullest_worker(core, thread).or_else(|| self.main_for(thread)) else {
                for &thread in &threads[..moved] {
                    self.move_to(thread, core);
                }
                self.cores[core.index()].load = load;
                return;
            };
            self.move_to(thread, to);
        }
    }

    /// Step 4. The half with fewer threads moves.
    fn fill_pairs(&mut self) {
        let mut halves: Vec<CoreId> = self.topology.workers().filter(|&core| self.is_half(core)).collect();
        halves.sort_by_key(|&core| (self.owned(core).len(), self.load(core), core));
        let mut halves = std::collections::VecDeque::from(halves);
        let main = self.topology.main();
        if let Some(beside_main) = self.topology.sibling(main).filter(|&core| self.is_empty(core))
            && let Some(from) = halves.pop_front()
        {
            self.move_all(from, beside_main);
        }
        while halves.len() >= 2
            && let (Some(from), Some(other)) = (halves.pop_front(), halves.pop_back())
            && let Some(to) = self.topology.sibling(other)
        {
            self.move_all(from, to);
        }
    }

    /// Whether a worker is in use and its sibling, also a worker, is not.
    fn is_half(&self, core: CoreId) -> bool {
        let free = |sibling| sibling != self.topology.main() && self.is_empty(sibling);
        !self.is_empty(core) && self.topology.sibling(core).is_some_and(free)
    }

    fn is_idle(&self, core: CoreId) -> bool {
        self.is_awake(core) && !self.is_empty(core) && self.load(core) < self.idle_ppm
    }

    /// The fullest worker in use that can take a thread.
    fn fullest_worker(&self, from: CoreId, thread: usize) -> Option<CoreId> {
        let used = |&core: &CoreId| core != from && self.is_awake(core) && !self.is_empty(core);
        let able = self.topology.workers().filter(used).filter(|&core| self.can_take(core, thread));
        // This puts healthy cores before idle ones. Of equals the lowest number.
        able.max_by_key(|&core| (self.load(core), std::cmp::Reverse(core)))
    }

    fn main_for(&self, thread: usize) -> Option<CoreId> {
        let main = self.topology.main();
        (self.main_takes_active && self.can_take(main, thread)).then_some(main)
    }

    fn can_take(&self, core: CoreId, thread: usize) -> bool {
        self.load(core) + self.threads[thread] <= self.take_ppm
    }

    fn largest_first(&self, core: CoreId) -> Vec<usize> {
        let mut threads = self.owned(core).to_vec();
        threads.sort_by_key(|&thread| (std::cmp::Reverse(self.threads[thread]), thread));
        threads
    }

    fn load(&self, core: CoreId) -> u64 {
        self.cores[core.index()].load
    }

    fn owned(&self, core: CoreId) -> &[usize] {
        &self.cores[core.index()].owned
    }

    fn move_all(&mut self, from: CoreId, to: CoreId) {
        for thread in self.owned(from).to_vec() {
            self.move_to(thread, to);
        }
    }

    fn move_to(&mut self, thread: usize, to: CoreId) {
        let from = self.homes[thread];
        if from == to {
            return;
        }
        self.homes[thread] = to;
        let load = self.threads[thread];
        let source = &mut self.cores[from.index()];
        source.owned.retain(|&other| other != thread);
        // The remaining load of an empty worker belongs to threads that have left.
        let gone = source.owned.is_empty() && from != self.topology.main();
        source.load = if gone { 0 } else { source.load.saturating_sub(load) };
        let target = &mut self.cores[to.index()];
        target.owned.push(thread);
        target.load += load;
        target.awake = true;
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::{CoreSample, ThreadSample};
    use proptest::prelude::*;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// A sample of one second with all cores awake; each thread has a home and a load in per cent.
    fn sample(cores: u16, threads: &[(u16, u64)]) -> (Vec<CoreSample>, Vec<ThreadSample>) {
        let mut samples = vec![CoreSample { state: CoreState::Awake, busy_ns: 0, awake_ns: SECOND_NS }; cores.into()];
        let thread = |&(home, load): &(u16, u64)| {
            let (home, busy_ns) = (CoreId(home % cores), load * SECOND_NS / 100);
            samples[home.index()].busy_ns += busy_ns;
            ThreadSample { home, requests: load, busy_ns, ..ThreadSample::default() }
        };
        let threads = threads.iter().map(thread).collect();
        samples.iter_mut().for_each(|core| core.busy_ns = core.busy_ns.min(SECOND_NS));
        (samples, threads)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_core_exceeds_the_healthy_threshold(
            cores in 1..10u16,
            threads in prop::collection::vec((any::<u16>(), 0..40u64), 0..20),
            relieve in any::<bool>(),
        ) {
            let (cores, threads) = sample(cores, &threads);
            let topology = Topology::paired(cores.len() as u16).unwrap();
            let parameters = Parameters { relieve, ..Parameters::printed() };
            let now = Sample { now_ns: SECOND_NS, elapsed_ns: SECOND_NS, cores: &cores, threads: &threads, readings: &[] };
            let plan = plan(&now, &topology, &parameters);
            prop_assert_eq!(plan.homes.len(), threads.len());
            let load = |homes: &dyn Fn(usize) -> CoreId, core: CoreId| {
                (0..threads.len()).filter(|&t| homes(t) == core).map(|t| threads[t].busy_ns).sum::<u64>()
            };
            let most = topology.cores().map(|core| load(&|t| threads[t].home, core)).max().unwrap();
            for core in topology.cores() {
                let now = load(&|t| plan.homes[t], core);
                prop_assert!(now <= most.max(SECOND_NS * 8 / 10), "{core:?} has {now} ns, the maximum before was {most}");
            }
        }
    }
}
