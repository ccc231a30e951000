//! Properties of every policy over random histories: phases of load on a small plant that may be slow and may refuse.

mod support;

use std::ops::Range;

use pilotlight_plant::{Command, CoreId, CoreState, Depth, Policy, ThreadCount, ThreadId, Topology};
use pilotlight_policy::build;
use proptest::prelude::*;
use support::{Faults, Plant, Random};

const TICK_NS: u64 = 10_000;
/// Ticks in a coarse interval of these tests.
const COARSE_TICKS: u64 = 25;
const COARSE: (&str, &str) = ("coarse_interval", "250us");
const PRINTED: (&str, &str) = ("guards", "printed");
const INTERVAL: (&str, &str) = ("interval", "250us");
/// An interval at each tick.
const FINE: (&str, &str) = ("interval", "10us");

type Settings = &'static [(&'static str, &'static str)];

/// Parameters of policies with a power budget, in the time scale of these tests.
const LESS: (&str, &str) = ("stale_after", "1ms");
const SAMPLE: (&str, &str) = ("sample_interval", "50us");

/// Parameters of `pacer`, in the time scale of these tests.
const IDLE: (&str, &str) = ("idle_after", "500us");
const WINDOW: (&str, &str) = ("window", "250us");
const FEW: (&str, &str) = ("min_requests", "4");
const STABLE: (&str, &str) = ("unstable_threshold", "90%");

/// Every policy; `sandman` with different guards and as in the steps of Figure 11. New
/// ones go to the end: `GATHERING` and `PAIRING` are ranges of it.
const POLICIES: &[(&str, Settings)] = &[
    ("static", &[]),
    ("interrupt", &[]),
    ("governor", &[INTERVAL]),
    ("governor", &[INTERVAL, ("up", "max"), ("siblings", "false")]),
    ("hybrid-poll", &[INTERVAL]),
    ("hybrid-poll", &[INTERVAL, ("fraction", "25%"), ("initial_rest", "0us"), ("max_rest", "4us")]),
    ("governor", &[FINE]),
    ("dynamic", &[INTERVAL]),
    ("dynamic", &[FINE]),
    ("dynamic", &[INTERVAL, ("sleep", "monitor"), ("load_limit", "0")]),
    ("dynamic", &[INTERVAL, ("thread_load", "core"), ("load_limit", "5"), ("core_limit", "40")]),
    ("sandman", &[COARSE, PRINTED]),
    ("sandman", &[COARSE, ("guards", "recommended"), ("give_back_interval", "never")]),
    (
        "sandman",
        &[COARSE, PRINTED, ("spread", "deviation"), ("confirm", "2/3"), ("window", "8"), ("reuse_awake", "true")],
    ),
    (
        "sandman",
        &[
            COARSE,
            PRINTED,
            ("min_requests", "2"),
            ("exempt_alone", "true"),
            ("relieve", "true"),
            ("after_sleep", "zeros"),
        ],
    ),
    (
        "sandman",
        &[COARSE, PRINTED, ("window", "4"), ("min_samples", "4"), ("main_takes_active", "false"), ("z", "0.5")],
    ),
    ("sandman", &[COARSE, ("variant", "paper")]),
    ("sandman", &[COARSE, ("variant", "paper"), ("spread", "deviation"), ("sleep", "software")]),
    ("sandman", &[COARSE, PRINTED, ("sleep", "software")]),
    ("sandman", &[COARSE, PRINTED, ("sleep", "software"), ("detect", "load")]),
    ("sandman", &[COARSE, PRINTED, ("siblings", "false")]),
    ("sandman", &[COARSE, PRINTED, ("siblings", "false"), ("detect", "load"), ("relieve", "true")]),
    ("sandman", &[COARSE, ("guards", "recommended"), ("give_back_interval", "50us")]),
    (
        "sandman",
        &[COARSE, PRINTED, ("give_back_interval", "50us"), ("relieve", "true"), ("main_takes_active", "false")],
    ),
    ("adaptive", &[("check_interval", "250us"), ("hold", "250us"), ("sample_interval", "500us")]),
    (
        "adaptive",
        &[("check_interval", "50us"), ("waits", "false"), ("sample_interval", "250us"), ("stale_after", "2ms")],
    ),
    ("pacer", &[INTERVAL, ("idle_after", "250us"), ("after_writes", "800us"), WINDOW, FEW, ("background", "false")]),
    (
        "pacer",
        &[
            INTERVAL,
            ("idle_after", "250us"),
            WINDOW,
            FEW,
            STABLE,
            ("baseline_interval", "3ms"),
            ("background", "false"),
        ],
    ),
    (
        "pg",
        &[
            FINE,
            ("idle_after", "10us"),
            ("window", "10us"),
            FEW,
            STABLE,
            ("max_window", "1ms"),
            ("background", "false"),
        ],
    ),
    ("rapl-only", &[INTERVAL, LESS]),
    ("rapl-only", &[FINE, LESS, ("domain", "cpu"), ("span", "10%")]),
    ("cpu-bandwidth", &[INTERVAL, LESS]),
    ("cpu-bandwidth", &[FINE, LESS, ("retry_after", "1ms")]),
    ("ssd-bandwidth", &[INTERVAL, LESS, ("span", "100%")]),
    ("cpu-jailing", &[INTERVAL, LESS]),
    ("cpu-jailing", &[FINE, LESS, ("inner", "dynamic"), ("inner_interval", "250us")]),
    ("cpu-jailing", &[INTERVAL, LESS, ("inner", "dynamic"), ("inner_interval", "10us")]),
    ("cpu-jailing", &[INTERVAL, LESS, ("inner", "sandman"), ("inner_give_back_interval", "1ms")]),
    ("cpu-jailing", &[INTERVAL, LESS, ("inner", "hybrid-poll"), ("inner_interval", "100us")]),
    ("rapl-only", &[INTERVAL, LESS, ("inner", "governor"), ("inner_interval", "500us")]),
    ("thunderbolt", &[INTERVAL, LESS, ("inner_interval", "250us")]),
    ("thunderbolt", &[INTERVAL, LESS, ("rates", "artifact"), ("inner_interval", "10us")]),
    ("pass", &[INTERVAL, LESS, SAMPLE]),
    ("pass", &[FINE, LESS, ("sample_interval", "10us"), ("domain", "cpu"), ("start", "full")]),
    (
        "pass",
        &[
            INTERVAL,
            LESS,
            SAMPLE,
            ("inner", "sandman"),
            ("inner_give_back_interval", "never"),
            ("inner_coarse_interval", "250us"),
        ],
    ),
    ("pass", &[INTERVAL, LESS, SAMPLE, ("inner", "sandman"), ("inner_give_back_interval", "1ms"), ("start", "full")]),
    ("pass", &[INTERVAL, LESS, SAMPLE, ("inner", "dynamic"), ("inner_interval", "10us")]),
    ("pacer", &[INTERVAL, IDLE, WINDOW, FEW, STABLE, ("baseline_interval", "3ms")]),
    (
        "pacer",
        &[
            FINE,
            ("idle_after", "100us"),
            ("after_writes", "10us"),
            ("window", "10us"),
            FEW,
            STABLE,
            ("server_sleep", "false"),
        ],
    ),
    ("dvfs", &[INTERVAL, IDLE, WINDOW, FEW, STABLE]),
    ("pass", &[INTERVAL, LESS, SAMPLE, ("inner", "pacer"), ("inner_interval", "250us"), ("inner_idle_after", "1ms")]),
    (
        "pass",
        &[INTERVAL, LESS, SAMPLE, ("inner", "adaptive"), ("inner_check_interval", "250us"), ("inner_hold", "250us")],
    ),
    ("ondemand", &[INTERVAL]),
    ("ondemand", &[FINE, ("up_threshold", "50%"), ("siblings", "false")]),
    ("native", &[]),
    ("ssd-apst", &[]),
];
/// Policies that put unneeded cores to sleep, with intervals longer than the delay of a slow plant.
const GATHERING: Range<usize> = 7..24;
/// `sandman` with pairs of siblings.
const PAIRING: Range<usize> = 11..18;

fn policy(which: usize) -> Box<dyn Policy> {
    let (name, settings) = POLICIES[which];
    build(name, settings).unwrap()
}

/// Ticks in an interval of a policy.
fn interval_ticks(which: usize) -> u64 {
    let is_interval = |(key, _): &&(&str, &str)| key.ends_with("interval");
    let shortest = POLICIES[which].1.iter().filter(is_interval).map(|(_, value)| *value);
    match shortest.min_by_key(|value| (value.len(), *value)) {
        Some("10us") => 1,
        Some("50us") => 5,
        _ => COARSE_TICKS,
    }
}

/// A period of steady load: in each tick a thread gets up to twice `rates` thousandths of requests on average.
#[derive(Clone, Debug)]
struct Phase {
    ticks: u64,
    rates: Vec<u64>,
    /// Whether the whole server sleeps before it.
    slept: bool,
    /// The new power budget at its start, if it changes.
    budget_uw: Option<Option<u64>>,
}

/// A plant and its history.
#[derive(Clone, Debug)]
struct History {
    topology: Topology,
    asleep: Vec<bool>,
    homes: Vec<u16>,
    phases: Vec<Phase>,
    /// Maximum lateness of ticks, in nanoseconds.
    late_ns: u64,
    seed: u64,
}

impl History {
    /// A plant in the history's state. Only one without faults can start with an I/O thread on a sleeping core.
    fn plant(&self, faults: Faults, policy: Box<dyn Policy>) -> (Plant, Vec<Command>) {
        let homes: Vec<_> = self.homes.iter().map(|&home| CoreId(home % self.topology.len() as u16)).collect();
        let awake = |core: CoreId| {
            let used = homes.contains(&core) && faults != Faults::default();
            used || core == self.topology.main() || !self.asleep[core.index()]
        };
        let state = |core| if awake(core) { CoreState::Awake } else { CoreState::Asleep(Depth::SoftwareWait) };
        let cores = self.topology.cores().map(state).collect();
        Plant::new(self.topology.clone(), cores, homes, faults, policy)
    }

    /// Requests of threads in a tick of a phase.
    fn counts(&self, phase: &Phase, random: &mut Random) -> Vec<ThreadCount> {
        let mut counts = Vec::new();
        for thread in 0..self.homes.len() {
            let rate = phase.rates[thread % phase.rates.len()];
            let requests = (rate * 2 * random.below(1_000) / 1_000 + random.below(1_000)) / 1_000;
            if requests > 0 {
                let thread = ThreadId(thread as u16);
                counts.push(ThreadCount { thread, requests: requests as u32, busy_ns: 0 });
            }
        }
        counts
    }
}

fn topology() -> impl Strategy<Value = Topology> {
    let paired = (1..12u16).prop_map(|cores| Topology::paired(cores).unwrap());
    let flat = (1..8u16).prop_map(|cores| Topology::flat(cores).unwrap());
    // The main core without a sibling, the others in pairs: Figure 10's shape.
    let odd = (1..5u16).prop_map(|pairs| {
        let sibling = |core: u16| (core > 0).then(|| CoreId(((core - 1) ^ 1) + 1));
        Topology::new(CoreId(0), (0..=2 * pairs).map(sibling).collect()).unwrap()
    });
    prop_oneof![paired, flat, odd]
}

fn phase() -> impl Strategy<Value = Phase> {
    // In thousandths of a request per tick; a core carries 8,000.
    let rate = prop_oneof![3 => Just(0u64), 2 => 1..300u64, 2 => 300..3_000u64, 1 => 3_000..8_000u64];
    let budget_uw = prop::option::weighted(0.5, prop::option::weighted(0.7, 50_000_000..350_000_000u64));
    (1..120u64, prop::collection::vec(rate, 1..10), prop::bool::weighted(0.1), budget_uw)
        .prop_map(|(ticks, rates, slept, budget_uw)| Phase { ticks, rates, slept, budget_uw })
}

fn history(phases: Range<usize>) -> impl Strategy<Value = History> {
    let state = (prop::collection::vec(any::<bool>(), 16), prop::collection::vec(any::<u16>(), 0..20));
    let late_ns = prop_oneof![Just(0u64), 1..9_000u64];
    (topology(), state, prop::collection::vec(phase(), phases), late_ns, any::<u64>()).prop_map(
        |(topology, (asleep, homes), phases, late_ns, seed)| History { topology, asleep, homes, phases, late_ns, seed },
    )
}

fn faults() -> impl Strategy<Value = Faults> {
    (prop_oneof![Just(0u64), 1..8u64], prop_oneof![Just(0u64), 3..12u64])
        .prop_map(|(delay, refuse_every)| Faults { delay, refuse_every })
}

/// Ticks of a history, with the lateness of each.
struct Clock<'a> {
    history: &'a History,
    random: Random,
    tick: u64,
    now_ns: u64,
}

impl<'a> Clock<'a> {
    fn new(history: &'a History, plant: &Plant) -> Self {
        Self { history, random: Random::new(history.seed), tick: 0, now_ns: plant.now_ns }
    }

    /// The next tick: its time, the time since the last one, and its requests.
    fn next(&mut self, phase: &Phase, start_ns: u64) -> (u64, u64, Vec<ThreadCount>) {
        self.tick += 1;
        let late_ns = if self.history.late_ns == 0 { 0 } else { self.random.below(self.history.late_ns) };
        let now_ns = start_ns + self.tick * TICK_NS + late_ns;
        let elapsed_ns = now_ns - self.now_ns;
        self.now_ns = now_ns;
        (now_ns, elapsed_ns, self.history.counts(phase, &mut self.random))
    }

    fn interval_ends(&self, which: usize) -> bool {
        self.tick.is_multiple_of(interval_ticks(which))
    }
}

/// Invariants on a plant without faults, after an interval with these requests of threads.
fn check_consolidated(plant: &Plant, requests: &[u64]) -> Result<(), TestCaseError> {
    let main = plant.topology.main();
    let empty = |core: CoreId| !plant.homes.contains(&core);
    for (thread, home) in plant.homes.iter().enumerate() {
        prop_assert!(requests[thread] > 0 || *home == main, "thread {thread} had no request and is on {home:?}");
    }
    for core in plant.topology.workers() {
        let asleep = plant.cores[core.index()] != CoreState::Awake;
        prop_assert_eq!(asleep, empty(core), "{:?} sleeps exactly if it owns no thread", core);
    }
    let half = |core: &CoreId| {
        let free = |sibling| sibling != main && empty(sibling);
        !empty(*core) && plant.topology.sibling(*core).is_some_and(free)
    };
    let halves = plant.topology.workers().filter(half).count();
    prop_assert!(halves < 2, "{halves} pairs are half in use");
    let beside_main = plant.topology.sibling(main).is_some_and(empty);
    prop_assert!(halves == 0 || !beside_main, "a pair is half in use, and the main core's sibling is free");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The plant's own checks always hold (tests/support); after each interval threads have their target homes.
    #[test]
    fn on_a_plant_without_faults(history in history(1..12), which in PAIRING) {
        let (mut plant, _) = history.plant(Faults::default(), policy(which));
        let start_ns = plant.now_ns;
        let mut clock = Clock::new(&history, &plant);
        for phase in &history.phases {
            for _ in 0..phase.ticks {
                let (now_ns, elapsed_ns, counts) = clock.next(phase, start_ns);
                plant.arrive(now_ns, &counts);
                plant.tick(elapsed_ns, &counts);
                if clock.interval_ends(which) {
                    let requests = plant.requests();
                    plant.interval(true);
                    check_consolidated(&plant, &requests)?;
                }
            }
        }
    }

    /// A plant with delays and random refusals: no I/O thread is on a sleeping core, and after a period without requests all are
    /// on the main core.
    #[test]
    fn on_a_plant_that_is_slow_and_refuses(history in history(1..10), faults in faults(), which in GATHERING) {
        let (mut plant, _) = history.plant(faults, policy(which));
        let start_ns = plant.now_ns;
        let mut clock = Clock::new(&history, &plant);
        let calm = Phase { ticks: 40 * COARSE_TICKS, rates: vec![0], slept: false, budget_uw: None };
        for phase in history.phases.iter().chain([&calm]) {
            for _ in 0..phase.ticks {
                let (now_ns, elapsed_ns, counts) = clock.next(phase, start_ns);
                plant.arrive(now_ns, &counts);
                plant.tick(elapsed_ns, &counts);
                if clock.interval_ends(which) {
                    plant.interval(true);
                }
            }
        }
        let main = plant.topology.main();
        prop_assert!(plant.homes.iter().all(|home| *home == main), "{:?}", plant.homes);
        let awake = plant.cores.iter().filter(|state| **state == CoreState::Awake).count();
        prop_assert_eq!(awake, 1, "an idle server keeps one core awake");
    }

    /// Skipping ticks and intervals without requests, as far as `next_needed` allows, changes no command.
    #[test]
    fn skipping_ticks_and_intervals_changes_no_command(history in history(1..14), faults in faults(), which in 0..POLICIES.len(), skip in 0..4u64) {
        let (mut eager, eagerly) = history.plant(faults, policy(which));
        let (mut lazy, lazily) = history.plant(faults, policy(which));
        prop_assert_eq!(eagerly, lazily);
        let start_ns = eager.now_ns;
        let mut clock = Clock::new(&history, &eager);
        // A plant may skip calls, but does not have to.
        let mut skips = Random::new(history.seed ^ 7);
        // Busy time without requests, such as keep-alives.
        let mut noise = Random::new(history.seed ^ 9);
        for phase in &history.phases {
            if phase.slept {
                eager.resume();
                lazy.resume();
            }
            if let Some(budget_uw) = phase.budget_uw {
                prop_assert_eq!(eager.set_budget(budget_uw), lazy.set_budget(budget_uw));
            }
            for _ in 0..phase.ticks {
                let (now_ns, elapsed_ns, counts) = clock.next(phase, start_ns);
                eager.arrive(now_ns, &counts);
                lazy.arrive(now_ns, &counts);
                if !eager.homes.is_empty() && noise.below(4) == 0 {
                    let thread = noise.below(eager.homes.len() as u64) as usize;
                    let busy_ns = noise.below(10_000);
                    eager.work(thread, busy_ns);
                    lazy.work(thread, busy_ns);
                }
                let is_skipped = counts.is_empty() && now_ns < lazy.next_needed_ns && skips.below(4) >= skip;
                let eagerly = eager.tick(elapsed_ns, &counts);
                let lazily = if is_skipped { Vec::new() } else { lazy.tick(elapsed_ns, &counts) };
                prop_assert_eq!(eagerly, lazily, "tick at {} ns, skipped: {}", now_ns, is_skipped);
                prop_assert_eq!(eager.stays_awake_ns, lazy.stays_awake_ns, "at {} ns", now_ns);
                if clock.interval_ends(which) {
                    let is_skipped = lazy.is_quiet() && now_ns < lazy.next_needed_ns && skips.below(4) >= skip;
                    let (eagerly, lazily) = (eager.interval(true), lazy.interval(!is_skipped));
                    prop_assert_eq!(eagerly, lazily, "interval at {} ns, skipped: {}", now_ns, is_skipped);
                }
            }
        }
        prop_assert_eq!(&eager.homes, &lazy.homes);
        prop_assert_eq!(&eager.cores, &lazy.cores);
    }

    /// Policies are replaced at any time: no thread is left on a sleeping core (the plant's check).
    #[test]
    fn policies_can_be_replaced_at_any_time(history in history(1..8), turns in prop::collection::vec(0..POLICIES.len(), 2..6)) {
        let (mut plant, _) = history.plant(Faults::default(), policy(turns[0]));
        let start_ns = plant.now_ns;
        let mut clock = Clock::new(&history, &plant);
        for (number, phase) in history.phases.iter().enumerate() {
            let which = turns[number % turns.len()];
            plant.change_policy(policy(which));
            if let Some(budget_uw) = phase.budget_uw {
                plant.set_budget(budget_uw);
            }
            for _ in 0..phase.ticks {
                let (now_ns, elapsed_ns, counts) = clock.next(phase, start_ns);
                plant.arrive(now_ns, &counts);
                plant.tick(elapsed_ns, &counts);
                if clock.interval_ends(which) {
                    plant.interval(true);
                }
            }
        }
    }
}

#[test]
fn every_policy_is_tested() {
    for name in pilotlight_policy::NAMES {
        assert!(POLICIES.iter().any(|(listed, _)| *listed == name), "add {name} to POLICIES");
    }
}

/// An idle server needs no interval, so that the whole server can sleep.
#[test]
fn an_idle_server_needs_nothing() {
    for which in GATHERING {
        let topology = Topology::paired(8).unwrap();
        let homes = (0..8).map(CoreId).collect();
        let (mut plant, _) = Plant::new(topology, vec![CoreState::Awake; 8], homes, Faults::default(), policy(which));
        let start_ns = plant.now_ns;
        let mut commands = Vec::new();
        for interval in 1..4 {
            let end_ns = start_ns + interval * interval_ticks(which) * TICK_NS;
            assert_eq!(plant.next_needed_ns, end_ns, "{:?}", POLICIES[which]);
            plant.arrive(end_ns, &[]);
            let before = commands.len();
            commands.extend(plant.interval(true));
            if commands.len() == before {
                break;
            }
        }
        assert!(!commands.is_empty());
        assert_eq!(plant.next_needed_ns, u64::MAX, "{:?}", POLICIES[which]);
    }
}

/// On an idle server a surge makes the end of its interval needed, also while its move is pending.
#[test]
fn a_surge_ends_the_idle_state_before_a_sample_shows_it() {
    let topology = Topology::paired(4).unwrap();
    let asleep = CoreState::Asleep(Depth::MonitorWait);
    let cores = vec![CoreState::Awake, asleep, asleep, asleep];
    let faults = Faults { delay: 3, refuse_every: 0 };
    let (mut plant, _) = Plant::new(topology, cores, vec![CoreId(0); 2], faults, policy(PAIRING.start));
    let start_ns = plant.now_ns;
    let interval_ns = |nth| start_ns + nth * COARSE_TICKS * TICK_NS;
    plant.arrive(interval_ns(1), &[]);
    plant.interval(true);
    assert_eq!(plant.next_needed_ns, u64::MAX);

    // Two intervals were skipped; one tick before the end of the fourth a thread surges.
    let counts = [ThreadCount { thread: ThreadId(1), requests: 3, busy_ns: 0 }];
    plant.arrive(interval_ns(4) - TICK_NS, &counts);
    assert!(!plant.tick(TICK_NS, &counts).is_empty());
    assert_eq!(plant.next_needed_ns, interval_ns(4));
    plant.arrive(interval_ns(4), &[]);
    plant.interval(true);
    assert_eq!(plant.next_needed_ns, interval_ns(5), "the move is pending, so the sample looks idle");
    plant.arrive(interval_ns(5), &[]);
    assert!(!plant.interval(true).is_empty());
    for nth in 6..9 {
        plant.arrive(interval_ns(nth), &[]);
        plant.interval(true);
    }
    assert_eq!(plant.next_needed_ns, u64::MAX, "idle again");
}
