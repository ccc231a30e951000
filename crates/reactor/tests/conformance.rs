//! Live reactors execute commands as every plant does.

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use pilotlight_conformance::script::Board;
use pilotlight_conformance::{Plant, PolicyAndBoard, Setup, suite};
use pilotlight_plant::{
    CoreId, CoreState, Cost, Kind, Knob, KnobId, Policy, Quantity, ReadingId, Refusal, Scope, Source, Values, Window,
};
use pilotlight_reactor::{Idle, Knobs, ReactorStats, ReadingBoard, Refusals, Runtime, RuntimeOptions, clock};
use support::{ProbeState, TIMEOUT, eventually, knob, probe};

const INTERVAL_NS: u64 = 1_000_000;

struct Live;

fn threads(runtime: &Runtime, setup: &Setup) -> Vec<Arc<ProbeState>> {
    let adopt = |id: u16| {
        let (probe_state, thread) = probe(u32::from(id));
        probe_state.can_wait.store(true, SeqCst);
        runtime.adopt(CoreId(id % setup.cores), thread);
        probe_state
    };
    (0..setup.threads).map(adopt).collect()
}

/// A knob that is set by another thread, or refused.
#[derive(Debug, Default)]
struct Switch {
    received: Mutex<Vec<(KnobId, u64)>>,
    refusals: OnceLock<Refusals>,
    values: Mutex<BTreeMap<KnobId, u64>>,
}

/// The lowest and the highest power limit.
const LIMITS: [u64; 2] = [50, 90];
const WHOLE_PPM: u64 = 1_000_000;

impl Switch {
    /// Power of the machine with these settings and this number of sleeping cores: 14 mW initially.
    fn power_uw(&self, asleep: usize) -> u64 {
        let values = self.values.lock().expect("no panic");
        let limit = values.get(&KnobId(0)).map_or(LIMITS[1], |&value| value.clamp(LIMITS[0], LIMITS[1]));
        let quota_ppm = values.get(&KnobId(1)).copied().unwrap_or(WHOLE_PPM);
        let cores_uw = 3_000 - (1_200 * asleep as u64).min(3_000);
        2_000 + cores_uw + 100 * (limit - LIMITS[0]) + 5_000 * quota_ppm / WHOLE_PPM
    }

    /// The work of the other thread.
    fn work(&self, refuses: bool) {
        for (knob, value) in self.received.lock().expect("no panic").drain(..) {
            if !refuses {
                self.values.lock().expect("no panic").insert(knob, value);
                continue;
            }
            let refusals = self.refusals.get().expect("connected at the start");
            assert!(refusals.report(knob, value, Refusal::Failed));
        }
    }
}

impl Knobs for Switch {
    fn knobs(&self) -> Vec<Knob> {
        let limit = knob(Scope::Server, Kind::LimitUw, Values::Range { min: LIMITS[0], max: LIMITS[1], step: 1 });
        vec![limit, knob(Scope::Server, Kind::QuotaPpm, Values::Range { min: 10_000, max: WHOLE_PPM, step: 1_000 })]
    }
    fn connect(&self, refusals: Refusals, _workers: &[u32]) {
        self.refusals.set(refusals).expect("once");
    }
    fn set(&self, knob: KnobId, value: u64) -> Result<(), Refusal> {
        self.received.lock().expect("no panic").push((knob, value));
        Ok(())
    }
    fn restore(&self) {
        self.values.lock().expect("no panic").clear();
    }
}

const POWER: ReadingId = ReadingId(0);

/// A source that is written by another thread.
fn meter() -> ReadingBoard {
    let (scope, quantity) = (Scope::Server, Quantity::PowerUw);
    ReadingBoard::new(vec![Source { scope, quantity, window_ns: 5_000_000, lag: Cost::Assumed(1_000_000) }])
}

/// Sends requests until the script is done or the timeout; calls `meanwhile` in between.
fn feed(setup: &Setup, probe_state: &[Arc<ProbeState>], board: &Board, mut meanwhile: impl FnMut()) -> Vec<u64> {
    let mut fed = vec![0; probe_state.len()];
    let until = Instant::now() + TIMEOUT;
    while !board.is_done() && Instant::now() < until {
        for &thread in setup.fed.iter().filter(|_| board.feeds()) {
            let probe_state = &probe_state[usize::from(thread)];
            probe_state.waiting.fetch_add(1, SeqCst);
            rustix::io::write(probe_state.bell.get().expect("a bell"), &1_u64.to_ne_bytes()).expect("rung");
            fed[usize::from(thread)] += 1;
        }
        meanwhile();
        std::thread::sleep(Duration::from_micros(100));
    }
    fed
}

impl Plant for Live {
    fn interval_ns(&self) -> u64 {
        INTERVAL_NS
    }

    fn run(&mut self, setup: &Setup, policy: Box<dyn Policy>, board: &Board) -> Vec<u64> {
        drive(setup, (policy, board.clone()), None)
    }

    fn exchange(&mut self, setup: &Setup, first: PolicyAndBoard, second: PolicyAndBoard) {
        drive(setup, first, Some(second));
    }

    fn budget_uw(&self) -> u64 {
        12_000
    }
}

/// The class of each I/O thread, as known to the target: each with requests has those of a host.
fn classes(setup: &Setup) -> Vec<Option<u8>> {
    let goals = setup.goals.last().cloned().unwrap_or_default();
    let of = |thread: u16| {
        let hosts = (0..).map(Scope::Host).zip(&setup.fed).filter(move |(_, fed)| **fed == thread);
        hosts.map(|(host, _)| goals.class(host, Scope::Namespace(0))).max()
    };
    (0..setup.threads).map(of).collect()
}

/// Runs a policy until it is done, and then the second one, if any.
fn drive(setup: &Setup, (policy, board): PolicyAndBoard, second: Option<PolicyAndBoard>) -> Vec<u64> {
    let (knobs, readings) = (Arc::new(Switch::default()), Arc::new(meter()));
    let options = RuntimeOptions::new(vec![None; setup.cores.into()], Idle::Yield);
    let options = RuntimeOptions {
        monitor: None,
        knobs: Some(Arc::clone(&knobs) as _),
        readings: Some(Arc::clone(&readings) as _),
        ..options
    };
    let mut runtime = Runtime::start(&options).expect("starts");
    let probe_state = threads(&runtime, setup);
    runtime.set_policy(policy).expect("supported");
    setup.goals.iter().for_each(|goals| runtime.set_goals(goals.clone()));
    runtime.set_classes(classes(setup));
    let mut windows = 0;
    let mut work = || {
        knobs.work(setup.refuses);
        windows += 1;
        // a core that rests because nothing comes draws as one that polls: the budget is exceeded until the policy acts
        let is_asleep = |reactor: &&ReactorStats| reactor.state != CoreState::Awake && reactor.io_threads == 0;
        let asleep = runtime.stats().reactors.iter().filter(is_asleep).count();
        if readings.is_wanted(POWER) && (!setup.sensors_fail || windows < 1_000) {
            readings.put(POWER, Window { ended_ns: clock::now_ns(), value: Some(knobs.power_uw(asleep)) });
        }
    };
    let fed = feed(setup, &probe_state, &board, &mut work);
    if let Some((policy, board)) = second {
        runtime.set_policy(policy).expect("supported");
        feed(setup, &probe_state, &board, &mut work);
    }
    eventually("the last poll", || probe_state.iter().all(|probe_state| probe_state.waiting.load(SeqCst) == 0));
    let intervals = runtime.stats().director.intervals;
    eventually("the last interval", || runtime.stats().director.intervals > intervals + 3);
    runtime.stop();
    fed
}

suite!(Live);
