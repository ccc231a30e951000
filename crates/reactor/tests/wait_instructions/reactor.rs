//! A whole reactor: a worker without I/O threads sleeps in the instruction, and the move of an I/O thread to it wakes it.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use pilotlight_plant::{
    Command, CompletionMode, CoreId, CoreState, Depth, Next, Policy, Refusal, Sample, SleepGoal, Start, ThreadId, Tick,
    Unsupported, Wants,
};
use pilotlight_reactor::{Idle, IoThread, Monitor, Polled, Runtime, RuntimeOptions};

use crate::emulator::Emulator;
use crate::x86::{is_native, ops, runs};

/// Moves to the worker and back.
const ROUNDS: u16 = 50;

/// Emulates the instructions of the reactor that polls it, and reports the poll.
struct Emulated(&'static Emulator, &'static AtomicBool);

impl IoThread for Emulated {
    fn id(&self) -> u32 {
        0
    }
    fn poll(&mut self, _now_ns: u64) -> Polled {
        self.0.serve_this_thread();
        self.1.store(true, SeqCst);
        Polled::default()
    }
}

/// Sends the test's commands.
struct ScriptedPolicy(Receiver<Command>);

impl Policy for ScriptedPolicy {
    fn name(&self) -> &'static str {
        "scripted"
    }
    fn wants(&self) -> Wants {
        Wants { interval_ns: Some(100_000), ..Wants::default() }
    }
    fn start(&mut self, start: &Start<'_>, _out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        let depths: Vec<Depth> = start.capabilities.sleeps.iter().map(|sleep| sleep.depth).collect();
        assert_eq!(depths, [Depth::MonitorWait, Depth::SoftwareWait]);
        Ok(Next::at(start.now_ns))
    }
    fn on_tick(&mut self, tick: &Tick<'_>, _out: &mut Vec<Command>) -> Next {
        Next::at(tick.now_ns)
    }
    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        out.extend(self.0.try_iter());
        Next::at(sample.now_ns)
    }
    fn on_refused(&mut self, _now_ns: u64, command: &Command, refusal: Refusal) {
        panic!("{command:?}: {refusal}");
    }
}

fn eventually(what: &str, holds: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < until, "{what} was not observed");
        std::thread::yield_now();
    }
}

fn a_move_wakes(how: Monitor, emulator: &'static Emulator) {
    if !runs(how, emulator) {
        return;
    }
    emulator.stop_the_clock();
    let is_polled: &AtomicBool = Box::leak(Box::default());
    let options = RuntimeOptions::new(vec![None, None], Idle::Yield);
    let runtime = Runtime::start(&RuntimeOptions { monitor: Some(how), ..options }).expect("starts");
    runtime.adopt(CoreId(1), Box::new(Emulated(emulator, is_polled)));
    // A reactor that has not polled it would execute the instructions without emulation.
    eventually("the worker's first poll", || is_polled.load(SeqCst));
    let (commands, script) = channel();
    let send = |command| commands.send(command).expect("a policy");
    runtime.set_policy(Box::new(ScriptedPolicy(script))).expect("supported");
    let (main, worker, thread) = (CoreId(0), CoreId(1), ThreadId(0));
    for _ in 0..ROUNDS {
        send(Command::Move { thread, to: main });
        send(Command::Sleep { core: worker, goal: SleepGoal::SHALLOWEST });
        eventually("sleep", || runtime.stats().reactors[1].state == CoreState::Asleep(Depth::MonitorWait));
        eventually("the arrival", || runtime.stats().threads[0].home == main); // during the move it still reports its old home
        send(Command::Wake { core: worker });
        send(Command::Move { thread, to: worker });
        eventually("the move", || runtime.stats().threads[0].home == worker);
    }
    // Between two polls it rests in the instruction too, and a message ends the rest long before its end.
    send(Command::Completions { thread, mode: CompletionMode::Hybrid { idle_ns: u32::MAX, rest_ns: 0 } });
    eventually("a rest", || runtime.stats().reactors[1].state == CoreState::Asleep(Depth::MonitorWait));
    let began = Instant::now();
    send(Command::Move { thread, to: main });
    eventually("the move out of a rest", || runtime.stats().threads[0].home == main);
    assert!(began.elapsed() < Duration::from_secs(2), "it came after {:?}", began.elapsed());
    let asleep = &runtime.stats().reactors[1].asleep[0];
    println!("{how:?}: {} sleeps, {:?}, {emulator:?}", asleep.wakes, asleep.latency);
    assert!(asleep.wakes > u64::from(ROUNDS), "each round a sleep, and then a rest: {asleep:?}");
    assert!(is_native(how) || emulator.traps(ops(how).1) > 0, "it slept in the instruction: {emulator:?}");
}

#[test]
fn a_move_wakes_umwait() {
    static EMULATOR: Emulator = Emulator::new();
    a_move_wakes(Monitor::Umwait, &EMULATOR);
}

#[test]
fn a_move_wakes_mwaitx() {
    static EMULATOR: Emulator = Emulator::new();
    a_move_wakes(Monitor::Mwaitx, &EMULATOR);
}
