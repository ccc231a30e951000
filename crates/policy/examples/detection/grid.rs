//! False moves per second and cores awake, over arrival process x window x spread x min_requests.
//!
//! Unlike in `experiment.rs` commands take effect at once: a thread that has surged gets its core, the core is awake until the next consolidation
//! within a second, and without a free core no thread moves. The first second is not counted.

use pilotlight_plant::{
    Capabilities, Command, CoreId, CoreSample, CoreState, Cost, Depth, Goals, Policy, Sample, SleepCost, Start,
    ThreadCount, ThreadId, ThreadSample, Tick, Topology,
};
use pilotlight_policy::Sandman;
use serde::Serialize;

use crate::experiment::{CORES, LATE_NS, SECOND_NS, Setting, THREADS, TICK_NS};
use crate::workload::{Arrivals, REQUEST_NS, Random, Shape};

const TICKS_A_SECOND: u64 = SECOND_NS / TICK_NS;

/// Varied parameters: that of the printed rule, the interpretation of its spread, and the guard against single requests.
pub(crate) const WINDOWS: [&str; 3] = ["16", "32", "256"];
pub(crate) const SPREADS: [&str; 2] = ["error", "deviation"];
pub(crate) const MIN_REQUESTS: [&str; 3] = ["0", "2", "8"];
pub(crate) const SHAPES: [Shape; 3] = [Shape::Paced, Shape::Poisson, Shape::Mmpp];

/// Every combination, and the recommended guards.
pub(crate) fn settings() -> Vec<Setting> {
    let mut settings = Vec::new();
    for window in WINDOWS {
        for spread in SPREADS {
            for min_requests in MIN_REQUESTS {
                let name = format!("window {window}, {spread}, min_requests {min_requests}");
                settings.push(Setting::new(
                    &name,
                    &[("window", window), ("spread", spread), ("min_requests", min_requests)],
                ));
            }
        }
    }
    settings.push(Setting::new("recommended", &[("guards", "recommended")]));
    settings
}

/// One load under one setting.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) load: &'static str,
    pub(crate) iops: u64,
    pub(crate) setting: String,
    /// Moves of threads whose rate had not risen in the last 5 ms.
    pub(crate) false_moves_per_s: f64,
    /// Moves of threads whose rate had risen.
    pub(crate) right_moves_per_s: f64,
    /// Mean number of cores awake.
    pub(crate) cores_awake: f64,
}

/// `seconds` seconds of a load under a setting.
pub(crate) fn row(shape: Shape, iops: u64, setting: &Setting, seconds: u64, seed: u64) -> Row {
    let rate = iops as f64 / THREADS as f64 / TICKS_A_SECOND as f64;
    let mut random = Random::new(seed ^ iops);
    let mut arrivals = Arrivals::new(shape, rate, THREADS, &mut random);
    let mut plant = InstantPlant::new(setting.policy().expect("the settings are right"));
    let (mut wrong, mut right, mut awake) = (0, 0, 0);
    for tick in 0..(1 + seconds) * TICKS_A_SECOND {
        let counts: Vec<_> =
            (0..THREADS).filter_map(|thread| count(thread, arrivals.next(thread, &mut random))).collect();
        let moved = plant.tick(&counts);
        if tick < TICKS_A_SECOND {
            continue;
        }
        let risen = |thread: &&ThreadId| arrivals.has_risen(thread.index(), LATE_NS / TICK_NS);
        let rightly = moved.iter().filter(risen).count();
        right += rightly;
        wrong += moved.len() - rightly;
        awake += plant.cores_awake();
    }
    Row {
        load: shape.name(),
        iops,
        setting: setting.name.clone(),
        false_moves_per_s: wrong as f64 / seconds as f64,
        right_moves_per_s: right as f64 / seconds as f64,
        cores_awake: awake as f64 / (seconds * TICKS_A_SECOND) as f64,
    }
}

fn count(thread: usize, requests: u32) -> Option<ThreadCount> {
    (requests > 0).then_some(ThreadCount { thread: ThreadId(thread as u16), requests, busy_ns: 0 })
}

/// 48 cores in pairs and 48 threads, initially one on each; commands take effect at once.
struct InstantPlant {
    policy: Sandman,
    now_ns: u64,
    cores: Vec<CoreSample>,
    threads: Vec<ThreadSample>,
    out: Vec<Command>,
}

impl InstantPlant {
    fn new(mut policy: Sandman) -> Self {
        let topology = Topology::paired(CORES).expect("there are cores");
        let sleeps =
            vec![SleepCost { depth: Depth::MonitorWait, waker: Cost::Measured(0), wake: Cost::Measured(3_000) }];
        let capabilities = Capabilities { moves: Some(Cost::Measured(0)), sleeps, ..Capabilities::default() };
        let cores = vec![CoreSample::new(CoreState::Awake); usize::from(CORES)];
        let homes: Vec<_> = (0..THREADS as u16).map(|thread| CoreId(thread % CORES)).collect();
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
        let threads = homes.into_iter().map(|home| ThreadSample { home, ..ThreadSample::default() }).collect();
        Self { policy, now_ns: 0, cores, threads, out }
    }

    /// One tick, and a consolidation after each second; returns the threads moved by surges.
    fn tick(&mut self, counts: &[ThreadCount]) -> Vec<ThreadId> {
        self.now_ns += TICK_NS;
        for core in self.cores.iter_mut().filter(|core| core.state == CoreState::Awake) {
            core.awake_ns += TICK_NS;
        }
        for count in counts {
            let thread = &mut self.threads[count.thread.index()];
            let busy_ns = (f64::from(count.requests) * REQUEST_NS) as u64;
            thread.requests += u64::from(count.requests);
            thread.busy_ns += busy_ns;
            self.cores[thread.home.index()].busy_ns += busy_ns;
        }
        self.policy.on_tick(&Tick { now_ns: self.now_ns, elapsed_ns: TICK_NS, counts }, &mut self.out);
        let moved = self.apply();
        if self.now_ns.is_multiple_of(SECOND_NS) {
            self.consolidate();
        }
        moved
    }

    fn consolidate(&mut self) {
        for core in &mut self.cores {
            core.busy_ns = core.busy_ns.min(core.awake_ns);
        }
        let (now_ns, elapsed_ns) = (self.now_ns, SECOND_NS);
        let sample = Sample { now_ns, elapsed_ns, cores: &self.cores, threads: &self.threads, readings: &[] };
        self.policy.on_interval(&sample, &mut self.out);
        self.apply();
        self.cores.iter_mut().for_each(|core| *core = CoreSample::new(core.state));
        self.threads.iter_mut().for_each(|thread| *thread = ThreadSample { home: thread.home, ..Default::default() });
    }

    fn apply(&mut self) -> Vec<ThreadId> {
        let mut moved = Vec::new();
        for command in self.out.drain(..) {
            match command {
                Command::Move { thread, to } => {
                    self.threads[thread.index()].home = to;
                    moved.push(thread);
                }
                Command::Sleep { core, .. } => self.cores[core.index()].state = CoreState::Asleep(Depth::MonitorWait),
                Command::Wake { core } => self.cores[core.index()].state = CoreState::Awake,
                Command::Completions { .. } | Command::Set { .. } => {}
            }
        }
        moved
    }

    fn cores_awake(&self) -> usize {
        self.cores.iter().filter(|core| core.state == CoreState::Awake).count()
    }
}

/// Prints a table.
pub(crate) fn print(rows: &[Row], seconds: u64) {
    println!(
        "Steady load, {seconds} s each, 48 cores and 48 I/O threads; commands take effect at once. MMPP: rates change, and a"
    );
    println!("move within {} ms of a rise is right.\n", LATE_NS / 1_000_000);
    println!(
        "{:8} {:>9} {:32} {:>14} {:>14} {:>12}",
        "load", "IOPS", "setting", "false moves/s", "right moves/s", "cores awake"
    );
    for row in rows {
        let Row { load, iops, setting, false_moves_per_s, right_moves_per_s, cores_awake } = row;
        println!("{load:8} {iops:9} {setting:32} {false_moves_per_s:14.1} {right_moves_per_s:14.1} {cores_awake:12.2}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_row_and_guards_cost_fewer_cores() {
        let row = |guards: &[(&str, &str)]| row(Shape::Mmpp, 640_000, &Setting::new("own", guards), 1, 3);
        let (printed, guarded) = (row(&[]), row(&[("guards", "recommended")]));
        assert_eq!(format!("{printed:?}"), format!("{:?}", row(&[])));
        assert!(printed.false_moves_per_s > guarded.false_moves_per_s, "{printed:?} {guarded:?}");
        assert!(printed.cores_awake > guarded.cores_awake, "{printed:?} {guarded:?}");
        assert!(guarded.right_moves_per_s > 0.0, "rises by five are found: {guarded:?}");
    }

    /// Each process has the requested mean rate.
    #[test]
    fn mean_rates_are_as_requested() {
        for shape in SHAPES {
            let mut random = Random::new(11);
            let mut arrivals = Arrivals::new(shape, 0.5, THREADS, &mut random);
            let ticks = 400_000;
            let sum: u64 = (0..ticks).map(|tick| u64::from(arrivals.next(tick % THREADS, &mut random))).sum();
            let rate = sum as f64 / ticks as f64;
            assert!((rate / 0.5 - 1.0).abs() < 0.1, "{shape:?}: {rate}");
        }
    }
}
