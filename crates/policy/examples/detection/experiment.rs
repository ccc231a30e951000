//! Section 5.3 of SANDMAN, "Accuracy of burst detection", on the policy alone.
//!
//! The policy runs on a plant of 48 cores in pairs with 48 I/O threads that has settled for the load and refuses every wake-up and move, so that
//! each tick is a trial under the same conditions. Counted are the moves that were commanded.

use pilotlight_plant::{
    Capabilities, Command, CoreId, CoreSample, CoreState, Cost, Depth, Goals, Policy, Refusal, Sample, SleepCost,
    Start, ThreadCount, ThreadId, ThreadSample, Tick, Topology,
};
use pilotlight_policy::registry::sandman;
use pilotlight_policy::{ParameterError, Sandman};

use crate::workload::{Arrivals, Core, Place, REQUEST_NS, Random, Shape};

pub(crate) const CORES: u16 = 48;
/// I/O threads (5.3: "48 cores running 48 threads").
pub(crate) const THREADS: usize = 48;
/// The fine interval (4.4.2).
pub(crate) const TICK_NS: u64 = 10_000;
pub(crate) const SECOND_NS: u64 = 1_000_000_000;
/// Rate of one SSD (2.2), in requests a second.
pub(crate) const SSD_IOPS: f64 = 2_500_000.0;

/// Guards, with their name in the table.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) name: String,
    guards: Vec<(String, String)>,
}

impl Setting {
    /// The standard error of the mean, the printed words alone, with these guards.
    pub(crate) fn new(name: &str, guards: &[(&str, &str)]) -> Self {
        let owned = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
        let words = [("guards", "printed"), ("spread", "error"), ("exempt_alone", "false")];
        let names_a_set = guards.iter().any(|(key, _)| *key == "guards");
        let words = if names_a_set { &[] } else { &words[..] };
        Self { name: name.to_owned(), guards: words.iter().chain(guards).map(owned).collect() }
    }

    pub(crate) fn policy(&self) -> Result<Sandman, ParameterError> {
        let guards: Vec<_> = self.guards.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        sandman(&guards)
    }
}

/// A policy on the plant.
struct Trial {
    policy: Sandman,
    out: Vec<Command>,
    moved: Vec<ThreadId>,
}

impl Trial {
    /// Settled for a load of `rate` requests for each tick and thread; the threads from `active` on have none.
    fn new(setting: &Setting, rate: f64, active: usize, first: impl Fn(u16) -> CoreId) -> Self {
        let mut policy = setting.policy().expect("the settings are right");
        settle(&mut policy, rate, active, (0..THREADS as u16).map(first).collect());
        Self { policy, out: Vec::with_capacity(4 * THREADS), moved: Vec::with_capacity(THREADS) }
    }

    /// The threads that would have moved.
    fn tick(&mut self, now_ns: u64, elapsed_ns: u64, counts: &[ThreadCount]) -> &[ThreadId] {
        self.out.clear();
        self.moved.clear();
        self.policy.on_tick(&Tick { now_ns, elapsed_ns, counts }, &mut self.out);
        for command in self.out.iter().rev() {
            self.policy.on_refused(now_ns, command, Refusal::Unsupported);
            if let Command::Move { thread, .. } = *command {
                self.moved.push(thread);
            }
        }
        &self.moved
    }
}

/// One thread on each core, as the paper begins (4.3).
fn spread(thread: u16) -> CoreId {
    CoreId(thread % CORES)
}

/// Runs the policy under steady load until it commands nothing.
fn settle(policy: &mut Sandman, rate: f64, active: usize, mut homes: Vec<CoreId>) {
    let topology = Topology::paired(CORES).expect("there are cores");
    let sleeps = vec![SleepCost { depth: Depth::MonitorWait, waker: Cost::Measured(0), wake: Cost::Measured(3_000) }];
    let capabilities = Capabilities { moves: Some(Cost::Measured(0)), sleeps, ..Capabilities::default() };
    let mut cores = vec![CoreSample::new(CoreState::Awake); usize::from(CORES)];
    let mut out = Vec::new();
    let plant = Start {
        now_ns: 0,
        topology: &topology,
        capabilities: &capabilities,
        cores: &cores,
        homes: &homes,
        goals: &Goals::default(),
    };
    policy.start(&plant, &mut out).expect("the plant can do everything");
    let busy_ns = |thread: usize| if thread < active { (rate * REQUEST_NS * 100_000.0) as u64 } else { 0 };
    for second in 1..20 {
        out.clear();
        cores.iter_mut().for_each(|core| (core.busy_ns, core.awake_ns) = (0, SECOND_NS));
        let sample = |(thread, &home): (usize, &CoreId)| {
            cores[home.index()].busy_ns += busy_ns(thread);
            ThreadSample {
                home,
                requests: u64::from(thread < active),
                busy_ns: busy_ns(thread),
                ..ThreadSample::default()
            }
        };
        let threads: Vec<_> = homes.iter().enumerate().map(sample).collect();
        let now_ns = second * SECOND_NS;
        policy.on_interval(
            &Sample { now_ns, elapsed_ns: SECOND_NS, cores: &cores, threads: &threads, readings: &[] },
            &mut out,
        );
        for command in &out {
            match *command {
                Command::Move { thread, to } => homes[thread.index()] = to,
                Command::Sleep { core, .. } => cores[core.index()].state = CoreState::Asleep(Depth::MonitorWait),
                Command::Wake { core } => cores[core.index()].state = CoreState::Awake,
                Command::Completions { .. } | Command::Set { .. } => {}
            }
        }
    }
    policy.on_resume(20 * SECOND_NS);
}

/// False moves under steady load.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stable {
    pub(crate) runs: u64,
    pub(crate) runs_with_moves: u64,
    pub(crate) thread_ticks: u64,
    /// Those with a request or more.
    pub(crate) busy_thread_ticks: u64,
    pub(crate) moves: u64,
}

/// A load that does not change, for all threads together.
pub(crate) struct Steady {
    pub(crate) shape: Shape,
    pub(crate) iops: f64,
    pub(crate) lateness: Lateness,
}

/// Whether ticks come late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lateness {
    Never,
    /// One tick in a thousand covers 100 fine intervals: the main core was delayed by a millisecond.
    Stalls,
}

impl Steady {
    pub(crate) fn name(&self) -> &'static str {
        if self.lateness == Lateness::Stalls { "stalls" } else { self.shape.name() }
    }

    fn intervals(&self, tick: u64) -> u64 {
        if self.lateness == Lateness::Stalls && tick % 1_000 == 500 { 100 } else { 1 }
    }
}

/// `runs` runs of `ticks` ticks under each setting, with the same requests.
pub(crate) fn stable(load: &Steady, settings: &[Setting], runs: u64, ticks: u64, seed: u64) -> Vec<Stable> {
    let rate = load.iops / THREADS as f64 / 100_000.0;
    let mut results = vec![Stable::default(); settings.len()];
    let mut counts = Vec::with_capacity(THREADS);
    for run in 0..runs {
        let mut random = Random::new(seed ^ (run << 20) ^ load.iops.to_bits());
        let mut arrivals = Arrivals::new(load.shape, rate, THREADS, &mut random);
        let mut trials: Vec<_> = settings.iter().map(|setting| Trial::new(setting, rate, THREADS, spread)).collect();
        let mut moves = vec![0; settings.len()];
        let mut busy = 0;
        let mut now_ns = 20 * SECOND_NS;
        for tick in 0..WARM_UP_TICKS + ticks {
            let counted = u64::from(tick >= WARM_UP_TICKS);
            let elapsed_ns = load.intervals(tick) * TICK_NS;
            now_ns += elapsed_ns;
            counts.clear();
            for thread in 0..THREADS {
                let requests = (0..load.intervals(tick)).map(|_| arrivals.next(thread, &mut random)).sum();
                push(&mut counts, thread, requests);
            }
            busy += counted * counts.len() as u64;
            for (trial, moves) in trials.iter_mut().zip(&mut moves) {
                *moves += counted * trial.tick(now_ns, elapsed_ns, &counts).len() as u64;
            }
        }
        for (result, moves) in results.iter_mut().zip(moves) {
            result.runs += 1;
            result.runs_with_moves += u64::from(moves > 0);
            result.thread_ticks += ticks * THREADS as u64;
            result.busy_thread_ticks += busy;
            result.moves += moves;
        }
    }
    results
}

/// Ticks of warm-up, more than any window.
pub(crate) const WARM_UP_TICKS: u64 = 1_024;

/// Bursts found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bursts {
    pub(crate) bursts: u64,
    /// Threads of all bursts.
    pub(crate) threads: u64,
    /// In the `SOON_NS` before the burst.
    pub(crate) by_chance: Found,
    pub(crate) soon: Found,
    pub(crate) late: Found,
}

/// Moves in a period.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    /// Bursts in which a thread moved.
    pub(crate) bursts: u64,
    pub(crate) threads: u64,
}

/// From the start of the burst, nanoseconds.
pub(crate) const SOON_NS: u64 = 500_000;
pub(crate) const LATE_NS: u64 = 5_000_000;
const BASE_NS: u64 = 15_000_000;

/// Bursts of one SSD from 5 % to 100 % of its rate (3.2), over the first `active` threads, on one core.
pub(crate) struct Burst {
    pub(crate) shape: Shape,
    pub(crate) active: usize,
    pub(crate) place: Place,
    /// Whether the whole server slept before the burst, without any load.
    pub(crate) from_sleep: bool,
}

/// For each setting, the threads that would have moved.
type Moved = Vec<[bool; THREADS]>;

pub(crate) fn bursts(burst: &Burst, settings: &[Setting], runs: u64, seed: u64) -> Vec<Bursts> {
    let full = SSD_IOPS / burst.active as f64;
    let home = CoreId(u16::from(burst.place == Place::Worker));
    let base = if burst.from_sleep { 0.0 } else { full * 0.05 };
    let mut random = Random::new(seed ^ burst.active as u64);
    let mut trials: Vec<_> = settings
        .iter()
        .map(|setting| Trial::new(&burst.at_place(setting), base / 100_000.0, burst.active, |_| home))
        .collect();
    let mut results = vec![Bursts::default(); settings.len()];
    let mut now_ns = 20 * SECOND_NS;
    for _ in 0..runs {
        let mut core = Core::new(burst.place, burst.active, now_ns);
        let starts_ns = now_ns + BASE_NS;
        let mut before: Moved = vec![[false; THREADS]; settings.len()];
        let [mut soon, mut late] = [before.clone(), before.clone()];
        for (rate, until_ns) in [(base, starts_ns), (full, starts_ns + LATE_NS)] {
            core.set_rate(now_ns, burst.shape, rate, &mut random);
            if burst.from_sleep {
                trials.iter_mut().for_each(|trial| trial.policy.on_resume(now_ns));
            }
            while now_ns < until_ns {
                let (end_ns, counts) = poll(&mut core, burst.active, &mut random);
                for (number, trial) in trials.iter_mut().enumerate() {
                    for thread in trial.tick(end_ns, end_ns - now_ns, &counts) {
                        let thread = thread.index();
                        before[number][thread] |= end_ns + SOON_NS > starts_ns && end_ns <= starts_ns;
                        soon[number][thread] |= end_ns > starts_ns && end_ns <= starts_ns + SOON_NS;
                        late[number][thread] |= end_ns > starts_ns && end_ns <= starts_ns + LATE_NS;
                    }
                }
                now_ns = end_ns;
            }
        }
        for (number, result) in results.iter_mut().enumerate() {
            result.bursts += 1;
            result.threads += burst.active as u64;
            result.by_chance.add(&before[number]);
            result.soon.add(&soon[number]);
            result.late.add(&late[number]);
        }
    }
    results
}

impl Burst {
    /// A policy that must not move light load to the main core leaves it on a worker.
    fn at_place(&self, setting: &Setting) -> Setting {
        let mut setting = setting.clone();
        let main = (self.place == Place::Main).to_string();
        setting.guards.push(("main_takes_active".to_owned(), main));
        setting
    }
}

impl Found {
    fn add(&mut self, moved: &[bool; THREADS]) {
        let threads = moved.iter().filter(|&&moved| moved).count() as u64;
        self.bursts += u64::from(threads > 0);
        self.threads += threads;
    }
}

/// The end and the counts of the core's next tick.
fn poll(core: &mut Core, active: usize, random: &mut Random) -> (u64, Vec<ThreadCount>) {
    let mut taken = vec![0; active];
    let at_ns = core.tick(TICK_NS, &mut taken, random);
    let mut counts = Vec::with_capacity(active);
    for (thread, requests) in taken.into_iter().enumerate() {
        push(&mut counts, thread, requests);
    }
    (at_ns, counts)
}

fn push(counts: &mut Vec<ThreadCount>, thread: usize, requests: u32) {
    if requests > 0 {
        counts.push(ThreadCount { thread: ThreadId(thread as u16), requests, busy_ns: 0 });
    }
}
