//! `pacer` keeps its tolerance on PACER's machine (eight of its cores, for short runs) under random loads with steps, ramps and bursts:
//! `cargo test -p pilotlight-lab --test pacer_tolerance -- --ignored --nocapture` prints every run and the worst values.
//!
//! **Reaction window.** A time is in a reaction window if rate, size or read share changed by more than 25 % in the
//! `REACTION_NS / (1 - load)` before it; `load` is the share of the capacity at that time. `REACTION_NS` is three intervals: the rest of the
//! interval of the change (500 ms), the first whole interval after it (500 ms), and the delay of the readings of latency and bytes (500 ms).
//! Requests queued until then are served with the remaining capacity.

use std::path::Path;

use pilotlight_lab::simulated::machine::{MachineFiles, calibration_of};
use pilotlight_plant::{Goals, Tolerance, Topology};
use pilotlight_sim::outcome::{Outcome, Stretch};
use pilotlight_sim::rng::{Purpose, Stream};
use pilotlight_sim::run;
use pilotlight_sim::scenario::{Connection, Kind, Phase, Rate, Scenario, Sensors, Spacing, Workload};
use pilotlight_sim::ssd::SsdModel;

const MS: u64 = 1_000_000;
const CORES: u16 = 8;
const DRIVES: u16 = 24;
/// Requests per second that keep all cores busy: 96 cores serve 600 k (PACER III-B1).
const CAPACITY: f64 = 600e3 / 96.0 * CORES as f64;
/// Length of a slot of the load, and of a stretch of the results.
const SLOT_NS: u64 = 100 * MS;
const INTERVAL_NS: u64 = 500 * MS;
const REACTION_NS: u64 = 3 * INTERVAL_NS;
/// Time until the policy has a baseline, without a change of the load.
const START_SLOTS: usize = 100;
const RUNS: u64 = 12;
/// Minimum number of slots for which a loss is calculated.
const MIN_SLOTS: usize = 20;
/// A run with a smaller fraction of awake capacity counts as saving.
const SAVING: f64 = 0.9;

/// Load of a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Slot {
    /// Share of the capacity.
    load: f64,
    /// Index of the kind of request.
    what: usize,
}

/// Load over time.
#[derive(Debug)]
struct Loads {
    slots: Vec<Slot>,
    /// Bytes and share of writes in millionths.
    requests: Vec<(u32, u32)>,
}

/// Random numbers of a run.
struct Chance(Stream);

impl Chance {
    fn share(&mut self) -> f64 {
        self.0.unit()
    }

    fn index(&mut self, below: usize) -> usize {
        (self.share() * below as f64) as usize
    }

    /// From 0.5 to 60 % of the capacity, log-uniform.
    fn load(&mut self) -> f64 {
        0.005 * 120_f64.powf(self.share())
    }
}

impl Loads {
    /// Steps, ramps and bursts in random order, each with its own kind of request.
    fn at_random(seed: u64) -> Self {
        let mut chance = Chance(Stream::new(seed, Purpose::Constants, 0));
        let mut loads = Self { slots: Vec::new(), requests: Vec::new() };
        let mut load = chance.load();
        for _ in 0..3 {
            let what = loads.requests.len();
            let bytes = [4_096, 8_192, 32_768, 65_536][chance.index(4)];
            loads.requests.push((bytes, (chance.share() * 1e6) as u32));
            let slots = 150 + chance.index(150);
            let before = std::mem::replace(&mut load, chance.load());
            match chance.index(3) {
                0 => loads.extend(slots, what, |_| load),
                1 => loads.extend(slots, what, |at| before * (load / before).powf(at as f64 / slots as f64)),
                _ => {
                    let (low, every, length) = (load / 8.0, 30 + chance.index(100), 2 + chance.index(25));
                    loads.extend(slots, what, |at| if at % every < length { load } else { low.max(0.005) });
                }
            }
        }
        loads
    }

    fn extend(&mut self, slots: usize, what: usize, load: impl Fn(usize) -> f64) {
        self.slots.extend((0..slots).map(|at| Slot { load: load(at), what }));
    }

    /// Whether each slot is within a reaction window of this length.
    fn reacts(&self, reaction_ns: u64) -> Vec<bool> {
        (0..self.slots.len()).map(|at| self.moves(at, reaction_ns)).collect()
    }

    fn moves(&self, at: usize, reaction_ns: u64) -> bool {
        let window_ns = reaction_ns as f64 / (1.0 - self.slots[at].load);
        let slots = (window_ns / SLOT_NS as f64).ceil() as usize;
        let differs = |one: &Slot, other: &Slot| {
            one.what != other.what || one.load > other.load * 1.25 || other.load > one.load * 1.25
        };
        at < START_SLOTS || self.slots[at - slots..at].iter().any(|slot| differs(slot, &self.slots[at]))
    }

    fn workload(&self) -> Workload {
        let connections = (0..self.requests.len()).flat_map(|what| (0..CORES).map(move |thread| (what, thread)));
        let connection = |(what, thread): (usize, u16)| {
            let (bytes, writes_ppm) = self.requests[what];
            let rate = |slot: &Slot| match slot.what == what {
                true => Rate::PerSecond(slot.load * CAPACITY / f64::from(CORES)),
                false => Rate::Off,
            };
            let phases = self.slots.iter().map(|slot| Phase { label: 0, length_ns: SLOT_NS, rate: rate(slot) });
            Connection {
                thread,
                drives: (0, DRIVES),
                request: Kind::Plain { writes_ppm, bytes, sequential: false },
                depth: u32::MAX,
                spacing: Spacing::Poisson,
                phases: merged(phases),
                think_ns: 0,
            }
        };
        Workload { connections: connections.map(connection).collect(), ..Workload::default() }
    }
}

/// Merges consecutive phases with equal rates.
fn merged(phases: impl Iterator<Item = Phase>) -> Vec<Phase> {
    let mut all: Vec<Phase> = Vec::new();
    for phase in phases {
        match all.last_mut().filter(|last| last.rate == phase.rate) {
            Some(last) => last.length_ns += phase.length_ns,
            None => all.push(phase),
        }
    }
    all
}

fn text(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

fn simulated(policy: &str, loads: &Loads, plf_ppm: u32, seed: u64, series_ns: u64) -> Outcome {
    let profile = text("profiles/pacer-dorado-6000.toml");
    let files = MachineFiles::parse(&profile, &text(&calibration_of(&profile).unwrap())).unwrap();
    let drive = SsdModel::parse(&text("profiles/ssd/pacer-ssd.toml")).unwrap();
    let duration_ns = loads.slots.len() as u64 * SLOT_NS;
    let scenario = Scenario {
        machine: files.machine(&[]).unwrap(),
        family: Vec::new(),
        topology: Topology::flat(CORES).unwrap(),
        threads: CORES,
        drives: vec![drive; usize::from(DRIVES)],
        workload: loads.workload(),
        scheduled: None,
        duration_ns,
        warm_up_ns: 0,
        series_ns,
        seed,
        sensors: Sensors { window_ns: INTERVAL_NS, ..Sensors::default() },
        goals: vec![(0, Goals { tolerances: vec![Tolerance::mean_loss(plf_ppm)], ..Goals::default() })],
        changes: Vec::new(),
        eager: false,
    };
    run(&scenario, pilotlight_policy::build(policy, &[]).unwrap()).unwrap()
}

/// Sums of completions and latencies over stretches.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    answered: u64,
    latency_ns: u64,
    capacity_ns: u64,
}

impl Sum {
    fn new(stretches: &[Stretch], is_in: impl Fn(usize) -> bool) -> Self {
        let mut sum = Self::default();
        for (_, stretch) in stretches.iter().enumerate().filter(|(at, _)| is_in(*at)) {
            sum.answered += stretch.answered;
            sum.latency_ns += stretch.latency_ns;
            sum.capacity_ns += stretch.capacity_ns;
        }
        sum
    }

    fn mean_us(&self) -> f64 {
        self.latency_ns as f64 / self.answered.max(1) as f64 / 1e3
    }

    fn loss(&self, native: &Self) -> f64 {
        self.mean_us() / native.mean_us() - 1.0
    }
}

/// A run of `pacer`, and one without savings with the same seed.
struct Pair {
    loads: Loads,
    plf: f64,
    pacer: Outcome,
    native: Outcome,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let loads = Loads::at_random(seed);
        let plf = [0.1, 0.2, 0.3, 0.5][seed as usize % 4];
        let run = |policy| simulated(policy, &loads, (plf * 1e6) as u32, seed, SLOT_NS);
        let (native, pacer) = (run("native"), run("pacer"));
        Self { loads, plf, pacer, native }
    }

    /// The loss in the selected slots; `None` if there are fewer than [`MIN_SLOTS`].
    fn loss(&self, is_in: impl Fn(usize) -> bool) -> Option<f64> {
        let is_in = |at: usize| at >= START_SLOTS && is_in(at);
        let slots = (0..self.loads.slots.len()).filter(|&at| is_in(at)).count();
        let loss = Sum::new(&self.pacer.series, is_in).loss(&Sum::new(&self.native.series, is_in));
        (slots >= MIN_SLOTS).then_some(loss)
    }

    /// The largest loss of a part of the run outside the reaction windows.
    fn worst_part(&self, reacts: &[bool]) -> f64 {
        let parts = 0..self.loads.requests.len();
        let of = |part| self.loss(|at| !reacts[at] && self.loads.slots[at].what == part);
        parts.filter_map(of).fold(f64::MIN, f64::max)
    }

    /// Awake share of the cores' capacity.
    fn awake(&self) -> f64 {
        let capacity = |outcome: &Outcome| Sum::new(&outcome.series, |at| at >= START_SLOTS).capacity_ns as f64;
        capacity(&self.pacer) / capacity(&self.native)
    }
}

#[test]
#[ignore = "slow: .ci/run test runs it"]
fn random_loads_stay_within_the_tolerance_outside_the_reaction_windows() {
    let (mut worst, mut worst_part, mut worst_inside, mut worst_of_500_ms) = (f64::MIN, f64::MIN, f64::MIN, f64::MIN);
    let mut saving = 0;
    for seed in 1..=RUNS {
        let pair = Pair::new(seed);
        let (reacts, of_500_ms) = (pair.loads.reacts(REACTION_NS), pair.loads.reacts(INTERVAL_NS));
        let outside = pair.loss(|at| !reacts[at]).unwrap();
        let (inside, short) = (pair.loss(|at| reacts[at]).unwrap(), pair.loss(|at| !of_500_ms[at]).unwrap());
        let (part, awake, plf) = (pair.worst_part(&reacts), pair.awake(), pair.plf);
        println!(
            "run {seed}: plf {plf}, loss {:+.1} % outside reaction windows ({:.0} % of the time), {:+.1} % in the worst part of the run, {:+.1} % inside; \
             outside windows of 500 ms {:+.1} %; {:.0} % of the cores' capacity awake",
            outside * 100.0,
            100.0 * reacts.iter().filter(|reacts| !**reacts).count() as f64 / reacts.len() as f64,
            part * 100.0,
            inside * 100.0,
            short * 100.0,
            100.0 * awake,
        );
        worst = worst.max(outside / plf);
        worst_part = worst_part.max(part / plf);
        worst_inside = worst_inside.max(inside);
        worst_of_500_ms = worst_of_500_ms.max(short / plf);
        saving += u64::from(awake < SAVING);
    }
    println!(
        "worst: {:.0} % of the tolerance outside reaction windows ({:.0} % with windows of 500 ms), {:.0} % in a part of a run, a loss of {:.0} % inside",
        worst * 100.0,
        worst_of_500_ms * 100.0,
        worst_part * 100.0,
        worst_inside * 100.0
    );
    assert!(worst <= 1.0 && worst_part <= 1.0, "{worst} of the tolerance, {worst_part} in a part of a run");
    assert!(saving * 2 > RUNS, "{saving} of {RUNS} runs save capacity");
}

/// From the first request of a burst until all cores are awake at the highest frequency: the rest of the interval in which it starts, the first whole
/// interval, and the time to wake cores and set a frequency.
#[test]
fn a_burst_has_all_cores_within_two_intervals() {
    let stretch_ns = 10 * MS;
    let mut longest_ms = 0;
    for (seed, offset_slots) in (0..5).enumerate() {
        let before = 400 + offset_slots;
        let mut loads = Loads { slots: Vec::new(), requests: vec![(8_192, 300_000), (32_768, 300_000)] };
        loads.extend(before, 0, |_| 0.03);
        loads.extend(20, 1, |_| 1.0);
        let outcome = simulated("pacer", &loads, 200_000, seed as u64, stretch_ns);
        let first = before * (SLOT_NS / stretch_ns) as usize;
        let is_full = |stretch: &Stretch| stretch.capacity_ns >= u64::from(CORES) * stretch_ns * 999 / 1_000;
        assert!(!is_full(&outcome.series[first - 1]), "nothing was saved");
        let stretches = outcome.series[first..].iter().position(is_full).expect("all cores");
        let ms = (stretches as u64 + 1) * stretch_ns / MS;
        println!("a burst {} ms after an interval began: {ms} ms", offset_slots * 100);
        longest_ms = longest_ms.max(ms);
    }
    println!("longest: {longest_ms} ms");
    assert!(longest_ms * MS <= 2 * INTERVAL_NS + 2 * stretch_ns, "{longest_ms} ms");
}
