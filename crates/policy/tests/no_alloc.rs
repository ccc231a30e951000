//! A fine tick allocates nothing, surges, late ticks and quiet times included: a counting allocator looks on. One test, as the
//! count is the process's.

#[path = "support/dice.rs"]
mod dice;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use dice::Dice;
use pilotlight_plant::{
    Capabilities, CoreId, CoreSample, CoreState, Depth, Policy, Refusal, SleepCost, Start, ThreadCount, ThreadId, Tick,
    Topology,
};
use pilotlight_policy::registry::sandman;

/// Counts what it is asked for.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
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

#[test]
fn a_fine_tick_allocates_nothing() {
    for guards in ["printed", "recommended"] {
        let topology = Topology::paired(16).unwrap();
        let sleeps = vec![SleepCost { depth: Depth::MonitorWait, waker_ns: 0, wake_ns: 3_000 }];
        let capabilities = Capabilities { moves: true, sleeps, ..Capabilities::default() };
        let state = |core: CoreId| if core.0 == 0 { CoreState::Awake } else { CoreState::Asleep(Depth::MonitorWait) };
        let cores: Vec<_> = topology.cores().map(|core| CoreSample::new(state(core))).collect();
        let homes = vec![CoreId(0); THREADS.into()];
        let mut policy = sandman(&[("guards", guards)]).unwrap();
        let mut out = Vec::with_capacity(4 * usize::from(THREADS));
        let plant = Start { now_ns: 0, topology: &topology, capabilities: &capabilities, cores: &cores, homes: &homes };
        policy.start(&plant, &mut out).unwrap();

        let mut dice = Dice(5);
        let mut counts = Vec::with_capacity(THREADS.into());
        let (mut now_ns, mut moves) = (0, 0);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for _ in 0..20_000 {
            let quiet_ns = if dice.below(50) == 0 { 10_000 * dice.below(400) } else { 0 };
            let elapsed_ns = 10_000 * if dice.below(50) == 0 { 1 + dice.below(100) } else { 1 };
            now_ns += quiet_ns + elapsed_ns;
            let most = if dice.below(200) == 0 { 4_000 } else { 4 };
            counts.clear();
            for thread in (0..THREADS).map(ThreadId) {
                let requests = dice.below(most) as u32;
                if requests > 0 {
                    counts.push(ThreadCount { thread, requests, busy_ns: 0 });
                }
            }
            out.clear();
            policy.on_tick(&Tick { now_ns, elapsed_ns, counts: &counts }, &mut out);
            moves += out.len();
            out.iter().rev().for_each(|command| policy.on_refused(now_ns, command, Refusal::Unsupported));
        }
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0, "{guards}");
        assert!(moves > 100, "{guards}: {moves} commands");
    }
}
