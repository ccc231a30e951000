//! Live reactors understand commands as every plant does.

mod puppet;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use pilotlight_conformance::script::Board;
use pilotlight_conformance::{Plant, Setup, suite};
use pilotlight_plant::{CoreId, Policy};
use pilotlight_reactor::Runtime;
use puppet::{PATIENCE, Shown, eventually, probe, start};

const INTERVAL_NS: u64 = 1_000_000;

struct Live;

fn threads(runtime: &Runtime, setup: &Setup) -> Vec<Arc<Shown>> {
    let adopt = |id: u16| {
        let (shown, thread) = probe(u32::from(id));
        shown.can_wait.store(true, SeqCst);
        runtime.adopt(CoreId(id % setup.cores), thread);
        shown
    };
    (0..setup.threads).map(adopt).collect()
}

/// Requests for those that get any, until the script wants no more or is done, or patience ends.
fn feed(setup: &Setup, shown: &[Arc<Shown>], board: &Board) -> Vec<u64> {
    let mut fed = vec![0; shown.len()];
    let until = Instant::now() + PATIENCE;
    while !board.is_done() && Instant::now() < until {
        for &thread in setup.fed.iter().filter(|_| board.feeds()) {
            let shown = &shown[usize::from(thread)];
            shown.waiting.fetch_add(1, SeqCst);
            rustix::io::write(shown.bell.get().expect("a bell"), &1_u64.to_ne_bytes()).expect("rung");
            fed[usize::from(thread)] += 1;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    fed
}

impl Plant for Live {
    fn interval_ns(&self) -> u64 {
        INTERVAL_NS
    }

    fn run(&mut self, setup: &Setup, policy: Box<dyn Policy>, board: &Board) -> Vec<u64> {
        let mut runtime = start(setup.cores.into());
        let shown = threads(&runtime, setup);
        runtime.set_policy(policy).expect("it needs nothing");
        let fed = feed(setup, &shown, board);
        eventually("the last poll", || shown.iter().all(|shown| shown.waiting.load(SeqCst) == 0));
        let intervals = runtime.stats().director.intervals;
        eventually("the last interval", || runtime.stats().director.intervals > intervals + 3);
        runtime.stop();
        fed
    }
}

suite!(Live);
