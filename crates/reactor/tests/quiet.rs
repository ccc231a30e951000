//! After the last request no core polls, under every policy that does not promise that it does.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use pilotlight_plant::{
    CoreId, Cost, Goals, Kind, Knob, KnobId, Quantity, ReadingId, Refusal, Scope, Source, Values, Window,
};
use pilotlight_policy::{build, registry};
use pilotlight_reactor::{Idle, Knobs, ReadingBoard, Refusals, Runtime, RuntimeOptions, clock};
use support::{ProbeState, eventually, frequencies, knob, probe};

/// Policies under which cores always poll, as published.
const POLLING: [(&str, &[(&str, &str)]); 3] = [("static", &[]), ("dynamic", &[]), ("sandman", &[("variant", "paper")])];

/// After the last request a core may be awake for so long.
const LATEST_NS: u64 = 5_000_000;
/// Core time that an idle server may take: 0.015 cores.
const IDLE_SHARE: f64 = 0.015;

/// Knobs of each kind that a policy may need.
#[derive(Debug)]
struct Accepting;

impl Knobs for Accepting {
    fn knobs(&self) -> Vec<Knob> {
        let range = |min, max, step| Values::Range { min, max, step };
        let mut knobs = frequencies(2, 400_000, 3_600_000, 100_000);
        knobs.push(knob(Scope::Server, Kind::LimitUw, range(50_000_000, 90_000_000, 1)));
        knobs.push(knob(Scope::Server, Kind::QuotaPpm, range(10_000, 1_000_000, 1_000)));
        knobs.push(knob(Scope::Namespace(1), Kind::BytesPerS, range(1_000_000, 10_000_000_000, 1)));
        knobs
    }
    fn connect(&self, _refusals: Refusals, _workers: &[u32]) {}
    fn set(&self, _knob: KnobId, _value: u64) -> Result<(), Refusal> {
        Ok(())
    }
    fn restore(&self) {}
}

/// Two reactors and three I/O threads, with a power reading.
struct Server {
    runtime: Runtime,
    readings: Arc<ReadingBoard>,
    threads: Vec<Arc<ProbeState>>,
}

impl Server {
    fn new(name: &str, settings: &[(&str, &str)], goals: Goals) -> Self {
        let power = Source {
            scope: Scope::Server,
            quantity: Quantity::PowerUw,
            window_ns: 5_000_000,
            lag: Cost::Assumed(1_000_000),
        };
        let readings = Arc::new(ReadingBoard::new(vec![power]));
        let options = RuntimeOptions::new(vec![None; 2], Idle::Yield);
        let runtime = Runtime::start(&RuntimeOptions {
            monitor: None,
            knobs: Some(Arc::new(Accepting)),
            readings: Some(Arc::clone(&readings) as _),
            ..options
        })
        .expect("starts");
        let adopt = |id: u16| {
            let (probe_state, thread) = probe(u32::from(id));
            probe_state.can_wait.store(true, SeqCst);
            runtime.adopt(CoreId(id.min(1)), thread);
            probe_state
        };
        let threads = (0..3).map(adopt).collect();
        runtime.set_goals(goals);
        runtime.set_policy(build(name, settings).expect("a policy")).expect("supported");
        Self { runtime, readings, threads }
    }

    /// A request for each I/O thread, all of which are polled.
    fn serve(&self) {
        self.readings.put(ReadingId(0), Window { ended_ns: clock::now_ns(), value: Some(8_000_000) });
        for thread in &self.threads {
            thread.waiting.fetch_add(1, SeqCst);
            rustix::io::write(thread.bell.get().expect("a bell"), &1_u64.to_ne_bytes()).expect("rung");
        }
        eventually("all requests are polled", || self.threads.iter().all(|thread| thread.waiting.load(SeqCst) == 0));
    }

    fn awake_ns(&self) -> u64 {
        self.runtime.stats().reactors.iter().map(|reactor| reactor.busy_ns + reactor.idle_ns).sum()
    }

    /// Cores awake over 50 ms.
    fn cores_awake(&self) -> f64 {
        let (before_ns, began) = (self.awake_ns(), Instant::now());
        std::thread::sleep(Duration::from_millis(50));
        (self.awake_ns() - before_ns) as f64 / began.elapsed().as_nanos() as f64
    }
}

fn goals(budget: bool) -> Goals {
    Goals { budget_uw: budget.then_some(10_000_000), ..Goals::default() }
}

#[test]
fn no_core_polls_after_the_last_request() {
    for name in registry::NAMES.into_iter().filter(|name| !["static", "dynamic"].contains(name)) {
        for budget in [false, true] {
            let server = Server::new(name, &[], goals(budget));
            // a busy machine may take longer, but not each time
            eventually(&format!("{name}, budget: {budget}: two cores rest within 5 ms"), || {
                (0..50).for_each(|_| server.serve());
                let before_ns = server.awake_ns();
                eventually(&format!("{name} is quiet, budget: {budget}"), || server.cores_awake() < IDLE_SHARE);
                server.awake_ns() - before_ns <= LATEST_NS * 2
            });
        }
    }
}

#[test]
fn published_policies_keep_polling() {
    for (name, settings) in POLLING {
        let server = Server::new(name, settings, goals(false));
        server.serve();
        assert!((0..5).all(|_| server.cores_awake() > 0.5), "{name} {settings:?}");
    }
}
