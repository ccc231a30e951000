//! Figure 10 of SANDMAN as a golden test, as interpreted in src/sandman/consolidate.rs: B and D onto A and C, then A's threads onto D.

use pilotlight_plant::{
    Capabilities, Command, CoreId, CoreSample, CoreState, Cost, Depth, Goals, Policy, Sample, SleepCost, SleepGoal,
    Start, ThreadCount, ThreadId, ThreadSample, Tick, Topology,
};
use pilotlight_policy::Sandman;
use pilotlight_policy::sandman::Parameters;

const MAIN: CoreId = CoreId(0);
const A: CoreId = CoreId(1);
const B: CoreId = CoreId(2);
const C: CoreId = CoreId(3);
const D: CoreId = CoreId(4);

/// Nanoseconds in a millionth of the interval of one second.
const PPM: u64 = 1_000;

/// A and B are siblings, and C and D; the main core, which the figure does not show, has no sibling.
fn topology() -> Topology {
    Topology::new(MAIN, vec![None, Some(B), Some(A), Some(D), Some(C)]).unwrap()
}

/// Commands of one interval with these threads: home and load in per cent of each.
fn commands(topology: &Topology, threads: &[(CoreId, u64)]) -> Vec<Command> {
    commands_with(Parameters::printed(), topology, threads)
}

fn commands_with(parameters: Parameters, topology: &Topology, threads: &[(CoreId, u64)]) -> Vec<Command> {
    let sleeps = vec![SleepCost { depth: Depth::MonitorWait, waker: Cost::Measured(0), wake: Cost::Measured(3_000) }];
    let capabilities = Capabilities { moves: Some(Cost::Measured(0)), sleeps, ..Capabilities::default() };
    let mut cores: Vec<_> = topology.cores().map(|_| CoreSample::new(CoreState::Awake)).collect();
    let homes: Vec<_> = threads.iter().map(|&(home, _)| home).collect();
    let mut policy = Sandman::new(parameters);
    let mut out = Vec::new();
    let plant = Start {
        now_ns: 0,
        topology,
        capabilities: &capabilities,
        cores: &cores,
        homes: &homes,
        goals: &Goals::default(),
    };
    policy.start(&plant, &mut out).unwrap();
    out.clear();

    cores.iter_mut().for_each(|core| core.awake_ns = 1_000_000 * PPM);
    let mut samples = Vec::new();
    for &(home, load) in threads {
        let busy_ns = load * 10_000 * PPM;
        cores[home.index()].busy_ns += busy_ns;
        samples.push(ThreadSample { home, requests: 1_000 * load, busy_ns, ..ThreadSample::default() });
    }
    let (now_ns, elapsed_ns) = (1_000_000_000, 1_000_000_000);
    policy.on_interval(&Sample { now_ns, elapsed_ns, cores: &cores, threads: &samples, readings: &[] }, &mut out);
    out
}

fn to(thread: u16, to: CoreId) -> Command {
    Command::Move { thread: ThreadId(thread), to }
}

fn sleep(core: CoreId) -> Command {
    Command::Sleep { core, goal: SleepGoal::SHALLOWEST }
}

#[test]
fn figure_10() {
    // A and C are healthy, B and D under the idle threshold. D is the emptiest and goes onto C, which is then the fullest that
    // can take it; B onto A. Then A's threads, and B's with them, go onto D; each thread moves once.
    let threads = [(A, 50), (B, 20), (C, 60), (D, 15)];
    assert_eq!(commands(&topology(), &threads), [to(0, D), to(1, D), to(3, C), sleep(A), sleep(B)]);
}

#[test]
fn without_siblings_the_two_idle_cores_sleep() {
    let topology = Topology::flat(5).unwrap();
    let threads = [(A, 50), (B, 20), (C, 60), (D, 15)];
    assert_eq!(commands(&topology, &threads), [to(1, A), to(3, C), sleep(B), sleep(D)]);
}

#[test]
fn the_sibling_of_the_main_core_is_filled_first() {
    // The main core's sibling is E; C stays where it is because no further half is left.
    let e = CoreId(5);
    let topology = Topology::new(MAIN, vec![Some(e), Some(B), Some(A), Some(D), Some(C), Some(MAIN)]).unwrap();
    let threads = [(A, 50), (B, 20), (C, 70), (D, 65)];
    assert_eq!(commands(&topology, &threads), [to(0, e), to(1, e), sleep(A), sleep(B)]);
}

#[test]
fn an_idle_core_whose_threads_do_not_all_fit_keeps_them() {
    let topology = Topology::flat(3).unwrap();
    // One of A's two threads fits on the core with 65 %; the other fits on no core, including the main core (75 %).
    let threads = [(A, 15), (A, 15), (B, 65), (MAIN, 75)];
    assert_eq!(commands(&topology, &threads), []);
}

#[test]
fn a_lightly_loaded_server_keeps_one_core_awake() {
    let asleep = [sleep(A), sleep(B), sleep(C), sleep(D)];
    let threads = [(A, 5), (B, 10), (C, 0), (D, 20)];
    let moves = [to(0, MAIN), to(1, MAIN), to(2, MAIN), to(3, MAIN)];
    assert_eq!(commands(&topology(), &threads), [&moves[..], &asleep[..]].concat());
}

#[test]
fn without_main_takes_active_the_last_worker_stays_awake() {
    let parameters = Parameters { main_takes_active: false, ..Parameters::printed() };
    let threads = [(A, 5), (B, 10), (D, 20)];
    let moves = [to(0, D), to(1, D)];
    let asleep = [sleep(A), sleep(B), sleep(C)];
    assert_eq!(commands_with(parameters, &topology(), &threads), [&moves[..], &asleep[..]].concat());
}

#[test]
fn a_busy_core_is_relieved_with_relieve() {
    let topology = Topology::flat(4).unwrap();
    let threads = [(MAIN, 50), (MAIN, 40), (A, 30), (A, 65), (B, 90)];
    let relieved = Parameters { relieve: true, ..Parameters::printed() };
    // No thread fits on another core; the empty core sleeps, or takes the main core's largest. B is busy but has one thread.
    assert_eq!(commands(&topology, &threads), [sleep(C)]);
    assert_eq!(commands_with(relieved, &topology, &threads), [to(0, C)]);
}

#[test]
fn a_sample_corrects_the_plant_state() {
    // At the start A slept; then the plant shows that A is awake and owns a thread. A surge goes to B, which does sleep.
    let topology = Topology::flat(4).unwrap();
    let sleeps = vec![SleepCost { depth: Depth::MonitorWait, waker: Cost::Measured(0), wake: Cost::Measured(3_000) }];
    let capabilities = Capabilities { moves: Some(Cost::Measured(0)), sleeps, ..Capabilities::default() };
    let asleep = CoreState::Asleep(Depth::MonitorWait);
    let mut cores = [CoreState::Awake, asleep, asleep, asleep].map(CoreSample::new);
    let homes = [MAIN; 2];
    let mut policy = Sandman::new(Parameters { main_takes_active: false, ..Parameters::printed() });
    let mut out = Vec::new();
    let plant = Start {
        now_ns: 0,
        topology: &topology,
        capabilities: &capabilities,
        cores: &cores,
        homes: &homes,
        goals: &Goals::default(),
    };
    policy.start(&plant, &mut out).unwrap();
    let tick = |policy: &mut Sandman, nth: u64, requests| {
        let mut out = Vec::new();
        let counts = [ThreadCount { thread: ThreadId(0), requests, busy_ns: 0 }];
        policy.on_tick(&Tick { now_ns: 1_000_000_000 + nth * 10_000, elapsed_ns: 10_000, counts: &counts }, &mut out);
        out
    };
    cores[1].state = CoreState::Awake;
    cores.iter_mut().for_each(|core| core.awake_ns = 1_000_000_000);
    let thread = |home| ThreadSample { home, requests: 1, busy_ns: 500_000_000, ..ThreadSample::default() };
    let threads = [thread(MAIN), thread(A)];
    let sample =
        Sample { now_ns: 1_000_000_000, elapsed_ns: 1_000_000_000, cores: &cores, threads: &threads, readings: &[] };
    out.clear();
    policy.on_interval(&sample, &mut out);
    assert_eq!(out, []);
    assert_eq!(tick(&mut policy, 1, 50), [Command::Wake { core: B }, to(0, B)]);
}

#[test]
fn in_the_paper_variant_the_main_core_gives_its_active_threads_to_workers() {
    let paper = || Parameters::read(&[("variant", "paper")]).unwrap();
    let threads = [(MAIN, 20), (A, 60), (MAIN, 0), (MAIN, 30)];
    let rest = [sleep(B), sleep(C), sleep(D)];
    // The larger does not fit on A (60 %) and gets a core, the sibling of one in use. The other goes to A.
    let moves = [to(0, A), to(3, B)];
    let plan = commands_with(paper(), &topology(), &threads);
    assert_eq!(plan, [&moves[..], &[sleep(C), sleep(D)]].concat());
    assert_eq!(commands_with(Parameters::printed(), &topology(), &threads), rest);
}

#[test]
fn in_the_paper_variant_a_core_sleeps_when_its_last_thread_leaves() {
    let surge = |settings: &[(&str, &str)]| {
        let topology = Topology::flat(4).unwrap();
        let sleeps =
            vec![SleepCost { depth: Depth::MonitorWait, waker: Cost::Measured(0), wake: Cost::Measured(3_000) }];
        let capabilities = Capabilities { moves: Some(Cost::Measured(0)), sleeps, ..Capabilities::default() };
        let asleep = CoreState::Asleep(Depth::MonitorWait);
        let cores = [CoreState::Awake, CoreState::Awake, CoreState::Awake, asleep].map(CoreSample::new);
        let mut policy = Sandman::new(Parameters::read(settings).unwrap());
        let plant = Start {
            now_ns: 0,
            topology: &topology,
            capabilities: &capabilities,
            cores: &cores,
            homes: &[A, A, B],
            goals: &Goals::default(),
        };
        policy.start(&plant, &mut Vec::new()).unwrap();
        // Two ticks without requests, then requests for the only thread of B; then for one of A's two threads.
        [(3, 2), (4, 0)].map(|(nth, thread)| {
            let mut out = Vec::new();
            let counts = [ThreadCount { thread: ThreadId(thread), requests: 50, busy_ns: 0 }];
            policy.on_tick(&Tick { now_ns: nth * 10_000, elapsed_ns: 10_000, counts: &counts }, &mut out);
            out
        })
    };
    let wake = |core| Command::Wake { core };
    let paper = surge(&[("variant", "paper"), ("exempt_alone", "false")]);
    assert_eq!(paper, [vec![wake(C), to(2, C), sleep(B)], vec![wake(B), to(0, B)]]);
    let printed = surge(&[("guards", "printed"), ("exempt_alone", "false")]);
    assert_eq!(printed, [vec![wake(C), to(2, C)], vec![]], "no sleeping core is left");
}
