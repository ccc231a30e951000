//! `sandman` under a constant load: the same work in every tick.

use pilotlight_plant::{
    Capabilities, Command, CoreId, CoreSample, CoreState, Cost, Depth, Goals, Policy, Sample, SleepCost, Start,
    ThreadCount, ThreadId, ThreadSample, Tick, Topology,
};
use pilotlight_policy::Sandman;
use pilotlight_policy::registry::sandman;

const TICK_NS: u64 = 10_000;
/// Number of different rows of counts, used in turn.
const ROWS: u64 = 61;

/// A policy and its input.
pub(crate) struct Load {
    policy: Sandman,
    topology: Topology,
    rows: Vec<Vec<ThreadCount>>,
    tick: u64,
    threads: u16,
    out: Vec<Command>,
}

impl Load {
    /// `threads` I/O threads on 48 cores that are all awake, so that a surge finds no sleeping core and nothing moves; `active` of them get 1 to 12
    /// requests in each tick.
    pub(crate) fn new(threads: u16, active: u16, settings: &[(&str, &str)]) -> Self {
        let topology = Topology::paired(48).expect("there are cores");
        let cores = vec![CoreSample::new(CoreState::Awake); 48];
        let homes: Vec<_> = (0..threads).map(|thread| CoreId(thread % 48)).collect();
        let sleeps =
            vec![SleepCost { depth: Depth::MonitorWait, waker: Cost::Measured(0), wake: Cost::Measured(3_000) }];
        let capabilities = Capabilities { moves: Some(Cost::Measured(0)), sleeps, ..Capabilities::default() };
        let mut policy = sandman(settings).expect("the settings are right");
        let mut out = Vec::with_capacity(20_000);
        let plant = Start {
            now_ns: 0,
            topology: &topology,
            capabilities: &capabilities,
            cores: &cores,
            homes: &homes,
            goals: &Goals::default(),
        };
        policy.start(&plant, &mut out).expect("the plant can do everything");
        let rows = (0..ROWS).map(|row| counts(row, active)).collect();
        Self { policy, topology, rows, tick: 0, threads, out }
    }

    /// One fine tick; returns the number of commands. Not inlined, so that its instructions can be counted.
    #[inline(never)]
    pub(crate) fn tick(&mut self) -> usize {
        self.out.clear();
        self.tick += 1;
        let counts = &self.rows[(self.tick % ROWS) as usize];
        let tick = Tick { now_ns: self.tick * TICK_NS, elapsed_ns: TICK_NS, counts };
        self.policy.on_tick(&tick, &mut self.out);
        self.out.len()
    }

    /// One coarse interval in which every thread kept its core busy for `percent`; returns the number of commands.
    #[allow(dead_code)]
    pub(crate) fn interval(&mut self, percent: u64) -> usize {
        self.out.clear();
        self.tick += 1;
        let elapsed_ns = 1_000_000_000;
        let busy_ns = percent * elapsed_ns / 100;
        let core = CoreSample { state: CoreState::Awake, busy_ns, awake_ns: elapsed_ns };
        let thread =
            |thread| ThreadSample { home: CoreId(thread % 48), requests: percent, busy_ns, ..ThreadSample::default() };
        let cores = vec![core; self.topology.len()];
        let threads: Vec<_> = (0..self.threads).map(thread).collect();
        let sample =
            Sample { now_ns: self.tick * elapsed_ns, elapsed_ns, cores: &cores, threads: &threads, readings: &[] };
        self.policy.on_interval(&sample, &mut self.out);
        self.out.len()
    }
}

fn counts(row: u64, active: u16) -> Vec<ThreadCount> {
    let count = |thread: u16| ThreadCount {
        thread: ThreadId(thread),
        requests: 1 + ((row * 7 + u64::from(thread) * 5 + row * row * 3) % 12) as u32,
        busy_ns: 0,
    };
    (0..active).map(count).collect()
}
