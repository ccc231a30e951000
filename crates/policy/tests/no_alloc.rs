//! Decisions every 10 us allocate nothing: fine ticks of `sandman`, including surges, late ticks and times without requests, and intervals of
//! the other policies. A counting allocator counts per thread, as the test harness allocates too.

#[path = "support/machine.rs"]
mod machine;
#[path = "support/random.rs"]
mod random;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use machine::capabilities;
use pilotlight_plant::{
    Command, CoreId, CoreSample, CoreState, Depth, Goals, Policy, Reading, Refusal, Sample, Start, ThreadCount,
    ThreadId, ThreadSample, Tick, Topology,
};
use pilotlight_policy::build;
use random::Random;

/// Counts allocations.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1)); // fails while a thread exits
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) };
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const THREADS: u16 = 40;

/// Starts a policy on a plant whose workers sleep.
fn start(name: &str, settings: &[(&str, &str)]) -> Box<dyn Policy> {
    let topology = Topology::paired(16).unwrap();
    let state = |core: CoreId| if core.0 == 0 { CoreState::Awake } else { CoreState::Asleep(Depth::MonitorWait) };
    let cores: Vec<_> = topology.cores().map(|core| CoreSample::new(state(core))).collect();
    let homes = vec![CoreId(0); THREADS.into()];
    let capabilities = capabilities();
    let mut policy = build(name, settings).unwrap();
    let plant = Start {
        now_ns: 0,
        topology: &topology,
        capabilities: &capabilities,
        cores: &cores,
        homes: &homes,
        goals: &Goals::default(),
    };
    policy.start(&plant, &mut Vec::new()).unwrap();
    policy
}

#[test]
fn decisions_every_10_us_allocate_nothing() {
    for settings in [&[("guards", "printed")][..], &[("guards", "recommended")], &[("detect", "load")]] {
        ticks(settings);
    }
    for name in ["governor", "dynamic", "hybrid-poll", "ondemand"] {
        intervals(name, &[("interval", "10us")]);
    }
    let times = [
        ("interval", "10us"),
        ("window", "20us"),
        ("baseline_interval", "2ms"),
        ("unstable_threshold", "90%"),
        ("stable_threshold", "50%"),
    ];
    intervals("pacer", &times);
}

fn ticks(settings: &[(&str, &str)]) {
    let mut policy = start("sandman", settings);
    let mut out = Vec::with_capacity(4 * usize::from(THREADS));
    let mut random = Random::new(5);
    let mut counts = Vec::with_capacity(THREADS.into());
    let (mut now_ns, mut moves) = (0, 0);
    let before = allocations();
    for _ in 0..20_000 {
        let quiet_ns = if random.below(50) == 0 { 10_000 * random.below(400) } else { 0 };
        let elapsed_ns = 10_000 * if random.below(50) == 0 { 1 + random.below(100) } else { 1 };
        now_ns += quiet_ns + elapsed_ns;
        let most = if random.below(200) == 0 { 4_000 } else { 4 };
        counts.clear();
        for thread in (0..THREADS).map(ThreadId) {
            let requests = random.below(most) as u32;
            if requests > 0 {
                counts.push(ThreadCount { thread, requests, busy_ns: 200 * u64::from(requests) });
            }
        }
        out.clear();
        policy.on_tick(&Tick { now_ns, elapsed_ns, counts: &counts }, &mut out);
        moves += out.len();
        out.iter().rev().for_each(|command| policy.on_refused(now_ns, command, Refusal::Unsupported));
    }
    assert_eq!(allocations() - before, 0, "{settings:?}");
    assert!(moves > 100, "{settings:?}: {moves} commands");
}

fn intervals(name: &str, settings: &[(&str, &str)]) {
    let mut policy = start(name, settings);
    let mut out = Vec::with_capacity(4 * usize::from(THREADS));
    let mut random = Random::new(5);
    let mut threads = vec![ThreadSample::default(); THREADS.into()];
    let mut cores = vec![CoreSample { state: CoreState::Awake, busy_ns: 0, awake_ns: 10_000 }; 16];
    let known = |&id| Reading { id, value: Some(50_000), age_ns: 0 };
    let readings: Vec<_> = policy.wants().readings.iter().map(known).collect();
    let (mut now_ns, mut commands, mut before) = (0, 0, 0);
    for interval in 0..20_000 {
        if interval == 1 {
            before = allocations(); // the first interval allocates the buffers
        }
        now_ns += 10_000;
        cores.iter_mut().for_each(|core| core.busy_ns = 0);
        for thread in &mut threads {
            let requests = random.below(4);
            (thread.requests, thread.answered) = (requests, requests);
            (thread.busy_ns, thread.in_progress_ns) = (requests * 500, requests * random.below(90_000));
            let core = &mut cores[thread.home.index()];
            core.busy_ns = (core.busy_ns + thread.busy_ns).min(core.awake_ns);
        }
        out.clear();
        policy.on_interval(
            &Sample { now_ns, elapsed_ns: 10_000, cores: &cores, threads: &threads, readings: &readings },
            &mut out,
        );
        commands += out.len();
        for command in &out {
            match *command {
                Command::Move { thread, to } => threads[thread.index()].home = to,
                Command::Sleep { core, .. } => cores[core.index()].awake_ns = 0,
                Command::Wake { core } => cores[core.index()].awake_ns = 10_000,
                Command::Completions { .. } | Command::Set { .. } => {}
            }
        }
    }
    assert_eq!(allocations() - before, 0, "{name}");
    assert!(commands > 10, "{name}: {commands} commands");
}
