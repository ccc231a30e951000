//! Reactors with a scripted policy: moves, sleeps, wake-ups, waits in the kernel.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use pilotlight_plant::{Command, CompletionMode, CoreId, CoreState, Cost, Depth, Refusal, ThreadId, Topology, Wants};
use pilotlight_reactor::{Idle, IdleTimeout, IoThread, Polled, Runtime, RuntimeOptions, StartError};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use support::{
    Control, EVERY_MS, ProbeState, TIMEOUT, eventually, probe, scripted_policy, sleeping_policy, start, state,
};

#[test]
fn a_moved_thread_is_polled_by_its_new_core_only() {
    let runtime = start(2);
    let (probe_state, thread) = probe(0);
    runtime.adopt(CoreId(0), thread);
    let (control, policy) = scripted_policy(EVERY_MS);
    runtime.set_policy(policy).expect("supported");
    control.move_thread(0, 1);
    eventually("the move", || runtime.stats().threads[0].home == CoreId(1));
    probe_state.assert_polled();
    let stats = runtime.stats();
    assert_eq!((stats.reactors[0].io_threads, stats.reactors[1].io_threads), (0, 1));
    assert_eq!((stats.reactors[0].moves_out, stats.reactors[1].moves_in), (1, 1));
    assert_eq!(runtime.view(), Some(("scripted", vec![("test", "1".to_owned())])));
}

#[test]
fn a_finished_thread_is_dropped() {
    let runtime = start(2);
    let (probe_state, thread) = probe(0);
    runtime.adopt(CoreId(1), thread);
    probe_state.finish.store(true, SeqCst);
    eventually("the end", || probe_state.dropped.load(SeqCst));
    eventually("its note", || !runtime.is_serving());
}

#[test]
fn stopping_drops_every_thread() {
    let mut runtime = start(3);
    let probe_state: Vec<_> = (0..3)
        .map(|id| {
            let (probe_state, thread) = probe(u32::from(id));
            runtime.adopt(CoreId(id), thread);
            probe_state
        })
        .collect();
    runtime.stop();
    drop(runtime);
    assert!(probe_state.iter().all(|probe_state| probe_state.dropped.load(SeqCst)));
}

/// Blocks in a poll until the test ends it.
struct Stuck {
    polled: Arc<AtomicBool>,
    resume: Receiver<()>,
}

impl IoThread for Stuck {
    fn id(&self) -> u32 {
        0
    }
    fn poll(&mut self, _now_ns: u64) -> Polled {
        self.polled.store(true, SeqCst);
        let _ = self.resume.recv();
        Polled::default()
    }
}

#[test]
fn a_blocked_reactor_is_returned_by_stop() {
    let mut runtime = start(3);
    let (polled, (resume, wait)) = (Arc::<AtomicBool>::default(), channel());
    runtime.adopt(CoreId(1), Box::new(Stuck { polled: Arc::clone(&polled), resume: wait }));
    let (probe_state, thread) = probe(1);
    runtime.adopt(CoreId(2), thread);
    eventually("a poll", || polled.load(SeqCst));
    let left = runtime.stop_until(Instant::now() + Duration::from_millis(100));
    assert!(left.contains(&CoreId(1)), "{left:?}"); // on a busy machine others may need longer
    eventually("the end of the others", || probe_state.dropped.load(SeqCst));
    drop((resume, runtime));
}

#[test]
fn the_error_names_a_missing_core() {
    let options = RuntimeOptions::new(vec![Some(1023)], Idle::Yield);
    let Err(error) = Runtime::start(&options) else { panic!("started on core 1023") };
    assert!(error.to_string().contains("core 1023"), "{error}");
}

#[test]
fn a_topology_of_another_size_is_rejected() {
    let options = RuntimeOptions::new(vec![None], Idle::Yield);
    let options = RuntimeOptions { topology: Topology::flat(2).expect("cores"), ..options };
    assert!(matches!(Runtime::start(&options), Err(StartError::Topology { topology: 2, cores: 1 })));
}

/// Repeated, because a busy machine leaves costs assumed.
#[test]
fn costs_of_sleep_are_measured_if_reactors_have_their_own_cores() {
    let costs = |idle| {
        let options = RuntimeOptions { monitor: None, ..RuntimeOptions::new(vec![None; 2], idle) };
        let mut runtime = Runtime::start(&options).expect("starts");
        runtime.stop();
        let capabilities = runtime.capabilities().clone();
        let sleep = capabilities.sleeps[0];
        [sleep.waker, sleep.wake, capabilities.server_sleep.expect("it can sleep")]
    };
    let is_measured = |cost: &Cost| matches!(cost, Cost::Measured(ns) if *ns > 0);
    let mut seen = [false; 3];
    eventually("a measured cost of each kind", || {
        for (seen, cost) in seen.iter_mut().zip(costs(Idle::Spin)) {
            *seen |= is_measured(&cost);
        }
        seen == [true; 3]
    });
    assert!(!costs(Idle::Yield).iter().any(is_measured), "in test mode nothing is measured");
}

#[test]
fn a_core_sleeps_without_threads_and_wakes_for_the_next() {
    let runtime = start(2);
    let (probe_state, thread) = probe(0);
    runtime.adopt(CoreId(1), thread);
    let (control, policy) = scripted_policy(EVERY_MS);
    runtime.set_policy(policy).expect("supported");
    control.sleep(1);
    probe_state.assert_polled(); // it owns an I/O thread: it does not sleep
    assert_eq!(state(&runtime, 1), CoreState::Awake);
    control.move_thread(0, 0);
    eventually("sleep", || state(&runtime, 1) == CoreState::Asleep(Depth::SoftwareWait));
    probe_state.assert_polled();
    control.move_thread(0, 1);
    eventually("the move", || runtime.stats().threads[0].home == CoreId(1));
    probe_state.assert_polled();
    let asleep = &runtime.stats().reactors[1].asleep[1];
    assert_eq!(asleep.wakes, 1);
    assert!(asleep.ns > 0);
    assert_eq!(asleep.latency.count(), 1, "the wake-up was sent by the main core");
}

#[test]
fn the_main_core_does_not_sleep_by_command_and_unknown_cores_are_refused() {
    let runtime = start(2);
    let (control, policy) = scripted_policy(EVERY_MS);
    runtime.set_policy(policy).expect("supported");
    control.sleep(0);
    control.move_thread(7, 1);
    let refusals = [(); 2].map(|()| control.refused.recv_timeout(TIMEOUT).expect("a refusal").1);
    assert_eq!(refusals, [Refusal::MainCore, Refusal::Unknown]);
    assert_eq!(state(&runtime, 0), CoreState::Awake);
}

/// A policy that lets the server sleep immediately.
fn start_sleepy(cores: usize, threads: u16) -> (Runtime, Control, Vec<Arc<ProbeState>>) {
    let options = RuntimeOptions::new(vec![None; cores], Idle::Yield);
    let runtime = Runtime::start(&RuntimeOptions { idle_timeout: IdleTimeout::Fixed(0), monitor: None, ..options })
        .expect("starts");
    let probe_state = (0..threads).map(|id| {
        let (probe_state, thread) = probe(u32::from(id));
        runtime.adopt(CoreId(0), thread);
        probe_state
    });
    let probe_state = probe_state.collect();
    let (control, policy) = sleeping_policy(EVERY_MS, true);
    (1..cores as u16).for_each(|core| control.sleep(core));
    runtime.set_policy(policy).expect("supported");
    (runtime, control, probe_state)
}

#[test]
fn a_quiet_server_sleeps_and_a_request_wakes_it() {
    let (runtime, _strings, probe_state) = start_sleepy(2, 3);
    probe_state[1].assert_polled(); // an I/O thread that cannot wait keeps the main core awake
    assert_eq!(state(&runtime, 0), CoreState::Awake);
    probe_state.iter().for_each(|probe_state| probe_state.can_wait.store(true, SeqCst));
    eventually("server sleep", || state(&runtime, 0) == CoreState::Asleep(Depth::ServerSleep));
    let before = probe_state[2].polls();
    probe_state[2].waiting.store(5, SeqCst);
    assert_eq!(probe_state[2].polls(), before, "no ring yet");
    rustix::io::write(probe_state[2].bell.get().expect("a bell"), &1_u64.to_ne_bytes()).expect("rung");
    eventually("a poll", || probe_state[2].waiting.load(SeqCst) == 0);
}

#[test]
fn messages_wake_a_sleeping_server() {
    let (runtime, control, probe_state) = start_sleepy(2, 1);
    probe_state[0].can_wait.store(true, SeqCst);
    for _ in 0..50 {
        eventually("server sleep", || state(&runtime, 0) == CoreState::Asleep(Depth::ServerSleep));
        assert!(runtime.view().is_some());
    }
    let asleep = &runtime.stats().reactors[0].asleep[2];
    assert!(asleep.wakes >= 50 && asleep.ns > 0, "{asleep:?}");
    drop(control);
}

/// Otherwise the whole of a long wait would be counted at its end.
#[test]
fn time_asleep_of_an_io_thread_grows_during_the_sleep() {
    let (runtime, _strings, probe_state) = start_sleepy(2, 1);
    probe_state[0].can_wait.store(true, SeqCst);
    eventually("server sleep", || state(&runtime, 0) == CoreState::Asleep(Depth::ServerSleep));
    eventually("more time asleep in the same sleep", || {
        // the third reading confirms that the sleep lasted until the second was complete
        let looks = [(); 3].map(|()| runtime.stats());
        let of_core = looks.each_ref().map(|look| (look.reactors[0].state, look.reactors[0].asleep[2].wakes));
        let same = of_core[0].0 == CoreState::Asleep(Depth::ServerSleep) && of_core.iter().all(|it| *it == of_core[0]);
        same && looks[1].threads[0].asleep_ns[2] > looks[0].threads[0].asleep_ns[2]
    });
}

#[test]
fn cores_wait_with_interrupt_threads_which_can_still_move() {
    let runtime = start(3);
    let (probe_state, thread) = probe(0);
    probe_state.can_wait.store(true, SeqCst);
    runtime.adopt(CoreId(1), thread);
    let (control, policy) = scripted_policy(EVERY_MS);
    runtime.set_policy(policy).expect("supported");
    control.command(Command::Completions { thread: ThreadId(0), mode: CompletionMode::Interrupt });
    for (to, other) in [(2, 1), (1, 2), (2, 1)] {
        control.move_thread(0, to);
        eventually("the move", || runtime.stats().threads[0].home == CoreId(to));
        eventually("a wait", || state(&runtime, usize::from(to)) == CoreState::Asleep(Depth::SoftwareWait));
        assert_eq!(state(&runtime, other), CoreState::Awake, "no sleep command");
    }
    let (_strings, policy) = scripted_policy(EVERY_MS);
    runtime.set_policy(policy).expect("supported");
    let [_, software, server] = runtime.stats().threads[0].asleep_ns;
    assert!(software > 0 && server == 0, "{software} ns, {server} ns");
    probe_state.assert_polled();
    assert_eq!(state(&runtime, 2), CoreState::Awake, "a new policy begins with polling");
}

/// Random commands at the highest rate: no I/O thread is lost, polled by two cores or left without polls.
#[test]
fn random_commands_lose_no_thread() {
    const CORES: u16 = 4;
    const THREADS: u16 = 6;
    let options = RuntimeOptions::new(vec![None; CORES.into()], Idle::Yield);
    let options = RuntimeOptions { idle_timeout: IdleTimeout::Fixed(50_000), monitor: None, ..options };
    let mut runtime = Runtime::start(&options).expect("starts");
    let probe_state: Vec<_> = (0..THREADS)
        .map(|id| {
            let (probe_state, thread) = probe(u32::from(id));
            runtime.adopt(CoreId(id % CORES), thread);
            probe_state.can_wait.store(id % 2 == 0, SeqCst);
            probe_state
        })
        .collect();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut random = move |below: u16| (rng.next_u64() % u64::from(below)) as u16;
    for round in 0..200 {
        // a new policy each round, while I/O threads move and cores sleep
        let wants = Wants { interval_ns: Some(20_000), ..EVERY_MS };
        let (control, policy) = sleeping_policy(wants, round % 3 == 0);
        for _ in 0..50 {
            match random(3) {
                0 => control.sleep(1 + random(CORES - 1)),
                1 => control.command(Command::Wake { core: CoreId(random(CORES)) }),
                _ => control.move_thread(random(THREADS), random(CORES)),
            }
        }
        runtime.set_policy(policy).expect("supported");
    }
    let (control, policy) = scripted_policy(EVERY_MS);
    (0..THREADS).for_each(|thread| control.move_thread(thread, thread % CORES));
    runtime.set_policy(policy).expect("supported");
    probe_state.iter().for_each(|probe_state| probe_state.assert_polled());
    for thread in 0..THREADS {
        eventually("home", || runtime.stats().threads[usize::from(thread)].home == CoreId(thread % CORES));
    }
    let stats = runtime.stats();
    assert_eq!(stats.reactors.iter().map(|reactor| reactor.io_threads).sum::<u64>(), u64::from(THREADS));
    println!("{} moves, {} wakes", stats.director.moves, stats.director.wakes);
    runtime.stop();
    drop(runtime);
    assert!(probe_state.iter().all(|probe_state| probe_state.dropped.load(SeqCst)));
}
