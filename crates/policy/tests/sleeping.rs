//! A server of eight reactors that sleeps between requests, thousands of times a second, finds the same bursts as one that polls.

#[path = "support/machine.rs"]
mod machine;
#[path = "support/random.rs"]
mod random;

use machine::capabilities;
use pilotlight_plant::{
    Command, CoreId, CoreSample, CoreState, Depth, Goals, Policy, Start, ThreadCount, ThreadId, Tick, Topology,
};
use pilotlight_policy::build;
use random::Random;

const TICK_NS: u64 = 10_000;
const CORES: u16 = 8;
/// Light load for 200 ms, then a burst.
const BURST_NS: u64 = 200_000_000;
const END_NS: u64 = 210_000_000;
const LIGHT_IOPS: u64 = 20_000;
/// For each of the eight I/O threads.
const BURST_IOPS: u64 = 90_000;
/// Wake-up time of the server.
const WAKE_NS: u64 = 5_000;
/// Duration of a poll.
const POLL_NS: u64 = 1_000;

/// Arrival time and I/O thread of each request.
fn arrivals(seed: u64) -> Vec<(u64, u16)> {
    let mut random = Random::new(seed);
    let mut gap_ns = move |iops: u64| {
        let share = (random.below(1 << 32) + 1) as f64 / (1_u64 << 32) as f64;
        ((-share.ln() * 1e9 / iops as f64) as u64, random.below(u64::from(CORES)) as u16)
    };
    let (mut at_ns, mut all) = (0, Vec::new());
    while at_ns < END_NS {
        let iops = if at_ns < BURST_NS { LIGHT_IOPS } else { BURST_IOPS * u64::from(CORES) };
        let (gap_ns, thread) = gap_ns(iops);
        at_ns += gap_ns;
        all.push((at_ns, thread));
    }
    all
}

/// All I/O threads are on the main core, and the workers sleep.
fn start(guards: &str) -> (Box<dyn Policy>, u64) {
    start_with(&[("guards", guards)])
}

fn start_with(settings: &[(&str, &str)]) -> (Box<dyn Policy>, u64) {
    let topology = Topology::flat(CORES).unwrap();
    let state = |core: CoreId| if core.0 == 0 { CoreState::Awake } else { CoreState::Asleep(Depth::MonitorWait) };
    let cores: Vec<_> = topology.cores().map(|core| CoreSample::new(state(core))).collect();
    let (homes, capabilities) = (vec![CoreId(0); CORES.into()], capabilities());
    let mut policy = build("sandman", settings).unwrap();
    let plant = Start {
        now_ns: 0,
        topology: &topology,
        capabilities: &capabilities,
        cores: &cores,
        homes: &homes,
        goals: &Goals::default(),
    };
    let next = policy.start(&plant, &mut Vec::new()).unwrap();
    (policy, next.idle_timeout_ns)
}

#[derive(Debug, Default)]
struct Found {
    /// Moves before the burst.
    early: usize,
    /// Times of moves from the main core, from the start of the burst on.
    moved_ns: Vec<u64>,
    sleeps: u64,
}

/// Simulates the loop of the main core; it sleeps as the policy allows, or never.
fn run(guards: &str, arrivals: &[(u64, u16)], sleeps: bool) -> Found {
    let (mut policy, mut awake_ns) = start(guards);
    let mut found = Found::default();
    let (mut now_ns, mut polled_ns, mut tick_ns, mut next) = (0, 0, 0, 0);
    let mut requests = [0_u32; CORES as usize];
    let mut out: Vec<Command> = Vec::new();
    while now_ns < END_NS && next < arrivals.len() {
        now_ns += POLL_NS;
        while let Some(&(_, thread)) = arrivals.get(next).filter(|(at_ns, _)| *at_ns <= now_ns) {
            requests[usize::from(thread)] += 1;
            polled_ns = now_ns;
            next += 1;
        }
        if now_ns - tick_ns >= TICK_NS {
            let counts: Vec<_> = (0..CORES)
                .map(|thread| ThreadCount {
                    thread: ThreadId(thread),
                    requests: std::mem::take(&mut requests[usize::from(thread)]),
                    busy_ns: 0,
                })
                .filter(|count| count.requests > 0)
                .collect();
            let elapsed_ns = now_ns - std::mem::replace(&mut tick_ns, now_ns);
            if !counts.is_empty() {
                awake_ns = policy.on_tick(&Tick { now_ns, elapsed_ns, counts: &counts }, &mut out).idle_timeout_ns;
            }
            let moves = out.drain(..).filter(|command| matches!(command, Command::Move { .. })).count();
            let (early, at_ns) = (now_ns < BURST_NS, now_ns.saturating_sub(BURST_NS));
            if early { found.early += moves } else { found.moved_ns.extend(std::iter::repeat_n(at_ns, moves)) }
        }
        if sleeps && now_ns - polled_ns >= awake_ns && arrivals.get(next).is_some_and(|(at_ns, _)| *at_ns > now_ns) {
            let woken_ns = arrivals[next].0 + WAKE_NS;
            tick_ns += woken_ns - now_ns; // ticks resume
            now_ns = woken_ns;
            policy.on_resume(now_ns);
            found.sleeps += 1;
        }
    }
    found
}

#[test]
fn bursts_are_found_as_on_a_server_that_polls() {
    for seed in 1..=10 {
        let arrivals = arrivals(seed);
        let polling = run("recommended", &arrivals, false);
        let sleeping = run("recommended", &arrivals, true);
        let case = format!("seed {seed}: {polling:?}, {sleeping:?}");
        assert!(sleeping.sleeps > 1_000, "thousands a second: {case}");
        assert_eq!((polling.early, sleeping.early), (0, 0), "{case}");
        assert_eq!(polling.moved_ns.len(), usize::from(CORES) - 1, "as many as there are workers: {case}");
        assert_eq!(sleeping.moved_ns.len(), polling.moved_ns.len(), "{case}");
        let last = |found: &Found| found.moved_ns.last().copied().unwrap_or(0);
        assert!(last(&sleeping) <= last(&polling) + 100_000, "{case}");
    }
}

/// Commands of a history of ticks, each with its time; if `sleeps`, the server sleeps through ticks without requests.
fn commands(settings: &[(&str, &str)], seed: u64, sleeps: bool) -> Vec<(u64, Command)> {
    let (mut policy, _) = start_with(settings);
    let (mut all, mut out) = (Vec::new(), Vec::new());
    let (mut tick_ns, mut has_slept) = (TICK_NS, false);
    let arrivals = arrivals(seed);
    let mut next = arrivals.iter().peekable();
    while tick_ns < END_NS {
        let mut requests = [0_u32; CORES as usize];
        while let Some((_, thread)) = next.next_if(|(at_ns, _)| *at_ns <= tick_ns) {
            requests[usize::from(*thread)] += 1;
        }
        let count = |(thread, &requests): (u16, &u32)| ThreadCount { thread: ThreadId(thread), requests, busy_ns: 0 };
        let counts: Vec<_> = (0..).zip(&requests).filter(|(_, requests)| **requests > 0).map(count).collect();
        if counts.is_empty() {
            has_slept = true;
        } else {
            if sleeps && std::mem::take(&mut has_slept) {
                policy.on_resume(tick_ns - TICK_NS);
            }
            policy.on_tick(&Tick { now_ns: tick_ns, elapsed_ns: TICK_NS, counts: &counts }, &mut out);
            all.extend(out.drain(..).map(|command| (tick_ns, command)));
        }
        tick_ns += TICK_NS;
    }
    all
}

/// A sleep shorter than the window keeps the counts before it.
#[test]
fn a_short_sleep_keeps_the_window() {
    for guards in ["printed", "recommended"] {
        for after_sleep in ["empty", "zeros"] {
            let settings = [("guards", guards), ("after_sleep", after_sleep)];
            for seed in 1..=5 {
                let polling = commands(&settings, seed, false);
                assert!(polling.len() >= usize::from(CORES) - 1, "{settings:?}: {polling:?}");
                assert_eq!(commands(&settings, seed, true), polling, "{settings:?}, seed {seed}");
            }
        }
    }
}

/// Threads that move in a tick of `elapsed_ns` in which thread 0 surges, thread 1 has five times its usual requests, thread 2, which has most,
/// hardly more than usual, and the others none.
fn moved_by_a_surge(settings: &[(&str, &str)], elapsed_ns: u64) -> Vec<u16> {
    let (mut policy, _) = start_with(settings);
    let mut out = Vec::new();
    let mut tick = |now_ns, elapsed_ns, requests: [u32; CORES as usize]| {
        let count = |(thread, requests): (u16, u32)| ThreadCount { thread: ThreadId(thread), requests, busy_ns: 0 };
        let counts: Vec<_> = (0..).zip(requests).filter(|(_, requests)| *requests > 0).map(count).collect();
        policy.on_tick(&Tick { now_ns, elapsed_ns, counts: &counts }, &mut out);
        std::mem::take(&mut out)
    };
    for at in 1..400 {
        let mut usual = [u32::from(at % 16 == 0); CORES as usize]; // two in the recent 320 us
        usual[2] = u32::from(at % 8 == 0);
        assert_eq!(tick(at * TICK_NS, TICK_NS, usual), []);
    }
    let mut surge = [0; CORES as usize];
    (surge[0], surge[1], surge[2]) = (60, 8, 4);
    let commands = tick(399 * TICK_NS + elapsed_ns, elapsed_ns, surge);
    let moved = |command: &Command| match command {
        Command::Move { thread, .. } => Some(thread.0),
        _ => None,
    };
    commands.iter().filter_map(moved).collect()
}

#[test]
fn a_late_tick_with_a_surge_moves_all_active_threads() {
    let recommended = [("guards", "recommended")];
    assert_eq!(moved_by_a_surge(&recommended, 20 * TICK_NS), [0, 1, 2]);
    assert_eq!(moved_by_a_surge(&recommended, TICK_NS), [0], "the main core is not flooded");
    let published = [("guards", "recommended"), ("give_back_interval", "never")];
    assert_eq!(moved_by_a_surge(&published, 20 * TICK_NS), [0]);
}
