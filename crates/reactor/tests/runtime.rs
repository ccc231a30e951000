//! Reactors under a policy that says what the test tells it to: moves, sleeps, wake-ups, waiting in the kernel.

mod puppet;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use pilotlight_plant::{Command, CompletionMode, CoreId, CoreState, Cost, Depth, Refusal, ThreadId, Topology, Wants};
use pilotlight_reactor::{Idle, IoThread, Polled, QuietTime, Runtime, RuntimeOptions, StartError};
use puppet::{EVERY_MS, PATIENCE, Shown, Strings, eventually, probe, puppet, puppet_that_sleeps, start, state};

#[test]
fn a_moved_thread_is_polled_by_its_new_home_only() {
    let runtime = start(2);
    let (shown, thread) = probe(0);
    runtime.adopt(CoreId(0), thread);
    let (strings, policy) = puppet(EVERY_MS);
    runtime.set_policy(policy).expect("it needs nothing");
    strings.go(0, 1);
    eventually("the move", || runtime.stats().threads[0].home == CoreId(1));
    shown.is_polled_again();
    let stats = runtime.stats();
    assert_eq!((stats.reactors[0].io_threads, stats.reactors[1].io_threads), (0, 1));
    assert_eq!((stats.reactors[0].moves_out, stats.reactors[1].moves_in), (1, 1));
    assert_eq!(runtime.view(), Some(("puppet", vec![("strings", "2".to_owned())])));
}

#[test]
fn a_finished_thread_is_dropped() {
    let runtime = start(2);
    let (shown, thread) = probe(0);
    runtime.adopt(CoreId(1), thread);
    shown.finish.store(true, SeqCst);
    eventually("the end", || shown.dropped.load(SeqCst));
    eventually("its note", || !runtime.is_serving());
}

#[test]
fn stopping_drops_every_thread() {
    let mut runtime = start(3);
    let shown: Vec<_> = (0..3)
        .map(|id| {
            let (shown, thread) = probe(u32::from(id));
            runtime.adopt(CoreId(id), thread);
            shown
        })
        .collect();
    runtime.stop();
    drop(runtime);
    assert!(shown.iter().all(|shown| shown.dropped.load(SeqCst)));
}

/// Never returns from a poll before it is told to.
struct Stuck {
    polled: Arc<AtomicBool>,
    go_on: Receiver<()>,
}

impl IoThread for Stuck {
    fn id(&self) -> u32 {
        0
    }
    fn poll(&mut self, _now_ns: u64) -> Polled {
        self.polled.store(true, SeqCst);
        let _ = self.go_on.recv();
        Polled::default()
    }
}

#[test]
fn a_reactor_that_is_stuck_is_named_and_left_behind() {
    let mut runtime = start(3);
    let (polled, (go_on, wait)) = (Arc::<AtomicBool>::default(), channel());
    runtime.adopt(CoreId(1), Box::new(Stuck { polled: Arc::clone(&polled), go_on: wait }));
    let (shown, thread) = probe(1);
    runtime.adopt(CoreId(2), thread);
    eventually("a poll", || polled.load(SeqCst));
    let left = runtime.stop_until(Instant::now() + Duration::from_millis(100));
    assert!(left.contains(&CoreId(1)), "{left:?}"); // on a busy machine others may need longer
    eventually("the end of the others", || shown.dropped.load(SeqCst));
    drop((go_on, runtime));
}

#[test]
fn a_core_that_does_not_exist_is_named() {
    let options = RuntimeOptions::new(vec![Some(1023)], Idle::Yield);
    let Err(error) = Runtime::start(&options) else { panic!("started on core 1023") };
    assert!(error.to_string().contains("core 1023"), "{error}");
}

#[test]
fn a_topology_of_another_size_is_refused() {
    let options = RuntimeOptions::new(vec![None], Idle::Yield);
    let options = RuntimeOptions { topology: Topology::flat(2).expect("cores"), ..options };
    assert!(matches!(Runtime::start(&options), Err(StartError::Topology { topology: 2, cores: 1 })));
}

/// A machine that is busy for too long leaves a cost assumed; then it is started again.
#[test]
fn what_sleeping_costs_is_measured_at_the_start_where_reactors_have_cores_to_themselves() {
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
fn a_core_sleeps_when_its_last_thread_has_left_and_wakes_for_the_next() {
    let runtime = start(2);
    let (shown, thread) = probe(0);
    runtime.adopt(CoreId(1), thread);
    let (strings, policy) = puppet(EVERY_MS);
    runtime.set_policy(policy).expect("it needs nothing");
    strings.sleep(1);
    shown.is_polled_again(); // it owns a thread: it does not sleep
    assert_eq!(state(&runtime, 1), CoreState::Awake);
    strings.go(0, 0);
    eventually("sleep", || state(&runtime, 1) == CoreState::Asleep(Depth::SoftwareWait));
    shown.is_polled_again();
    strings.go(0, 1);
    eventually("the move", || runtime.stats().threads[0].home == CoreId(1));
    shown.is_polled_again();
    let asleep = &runtime.stats().reactors[1].asleep[1];
    assert_eq!(asleep.wakes, 1);
    assert!(asleep.ns > 0);
    assert_eq!(asleep.latency.count(), 1, "the wake-up was sent by the main core");
}

#[test]
fn the_main_core_does_not_sleep_by_command_and_unknown_cores_are_refused() {
    let runtime = start(2);
    let (strings, policy) = puppet(EVERY_MS);
    runtime.set_policy(policy).expect("it needs nothing");
    strings.sleep(0);
    strings.go(7, 1);
    let refusals = [(); 2].map(|()| strings.refused.recv_timeout(PATIENCE).expect("a refusal").1);
    assert_eq!(refusals, [Refusal::MainCore, Refusal::Unknown]);
    assert_eq!(state(&runtime, 0), CoreState::Awake);
}

/// A policy that lets the server sleep, at once.
fn start_sleepy(cores: usize, threads: u16) -> (Runtime, Strings, Vec<Arc<Shown>>) {
    let options = RuntimeOptions::new(vec![None; cores], Idle::Yield);
    let runtime =
        Runtime::start(&RuntimeOptions { quiet: QuietTime::Fixed(0), monitor: None, ..options }).expect("starts");
    let shown = (0..threads).map(|id| {
        let (shown, thread) = probe(u32::from(id));
        runtime.adopt(CoreId(0), thread);
        shown
    });
    let shown = shown.collect();
    let (strings, policy) = puppet_that_sleeps(EVERY_MS, true);
    (1..cores as u16).for_each(|core| strings.sleep(core));
    runtime.set_policy(policy).expect("it needs nothing");
    (runtime, strings, shown)
}

#[test]
fn a_quiet_server_sleeps_and_a_request_wakes_it() {
    let (runtime, _strings, shown) = start_sleepy(2, 3);
    shown[1].is_polled_again(); // one that cannot wait keeps the main core awake
    assert_eq!(state(&runtime, 0), CoreState::Awake);
    shown.iter().for_each(|shown| shown.can_wait.store(true, SeqCst));
    eventually("server sleep", || state(&runtime, 0) == CoreState::Asleep(Depth::ServerSleep));
    let before = shown[2].polls();
    shown[2].waiting.store(5, SeqCst);
    assert_eq!(shown[2].polls(), before, "nobody has rung yet");
    rustix::io::write(shown[2].bell.get().expect("a bell"), &1_u64.to_ne_bytes()).expect("rung");
    eventually("a poll", || shown[2].waiting.load(SeqCst) == 0);
}

#[test]
fn messages_wake_a_sleeping_server() {
    let (runtime, strings, shown) = start_sleepy(2, 1);
    shown[0].can_wait.store(true, SeqCst);
    for _ in 0..50 {
        eventually("server sleep", || state(&runtime, 0) == CoreState::Asleep(Depth::ServerSleep));
        assert!(runtime.view().is_some());
    }
    let asleep = &runtime.stats().reactors[0].asleep[2];
    assert!(asleep.wakes >= 50 && asleep.ns > 0, "{asleep:?}");
    drop(strings);
}

/// Else the whole of a long wait would count in the moment in which it ends.
#[test]
fn an_io_threads_time_asleep_grows_while_its_core_sleeps() {
    let (runtime, _strings, shown) = start_sleepy(2, 1);
    shown[0].can_wait.store(true, SeqCst);
    eventually("server sleep", || state(&runtime, 0) == CoreState::Asleep(Depth::ServerSleep));
    eventually("more time asleep in the same sleep", || {
        // the third look says that the sleep lasted until the second was complete
        let looks = [(); 3].map(|()| runtime.stats());
        let of_core = looks.each_ref().map(|look| (look.reactors[0].state, look.reactors[0].asleep[2].wakes));
        let same = of_core[0].0 == CoreState::Asleep(Depth::ServerSleep) && of_core.iter().all(|it| *it == of_core[0]);
        same && looks[1].threads[0].asleep_ns[2] > looks[0].threads[0].asleep_ns[2]
    });
}

#[test]
fn threads_that_wait_for_interrupts_let_their_cores_wait_and_can_still_be_moved() {
    let runtime = start(3);
    let (shown, thread) = probe(0);
    shown.can_wait.store(true, SeqCst);
    runtime.adopt(CoreId(1), thread);
    let (strings, policy) = puppet(EVERY_MS);
    runtime.set_policy(policy).expect("it needs nothing");
    strings.say(Command::Completions { thread: ThreadId(0), mode: CompletionMode::Interrupt });
    for (to, other) in [(2, 1), (1, 2), (2, 1)] {
        strings.go(0, to);
        eventually("the move", || runtime.stats().threads[0].home == CoreId(to));
        eventually("a wait", || state(&runtime, usize::from(to)) == CoreState::Asleep(Depth::SoftwareWait));
        assert_eq!(state(&runtime, other), CoreState::Awake, "nobody told it to sleep");
    }
    let (_strings, policy) = puppet(EVERY_MS);
    runtime.set_policy(policy).expect("it needs nothing");
    let [_, software, server] = runtime.stats().threads[0].asleep_ns;
    assert!(software > 0 && server == 0, "{software} ns, {server} ns");
    shown.is_polled_again();
    assert_eq!(state(&runtime, 2), CoreState::Awake, "a new policy begins with polling");
}

/// Moves and sleeps at random, as fast as it can: nothing is lost, nothing is polled twice at once, everyone is served.
#[test]
fn random_orders_lose_nothing() {
    const CORES: u16 = 4;
    const THREADS: u16 = 6;
    let options = RuntimeOptions::new(vec![None; CORES.into()], Idle::Yield);
    let options = RuntimeOptions { quiet: QuietTime::Fixed(50_000), monitor: None, ..options };
    let mut runtime = Runtime::start(&options).expect("starts");
    let shown: Vec<_> = (0..THREADS)
        .map(|id| {
            let (shown, thread) = probe(u32::from(id));
            runtime.adopt(CoreId(id % CORES), thread);
            shown.can_wait.store(id % 2 == 0, SeqCst);
            shown
        })
        .collect();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u16| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % u64::from(below)) as u16
    };
    for round in 0..200 {
        // A new policy each round: changes while I/O threads are on their way, and cores asleep.
        let wants = Wants { interval_ns: Some(20_000), ..EVERY_MS };
        let (strings, policy) = puppet_that_sleeps(wants, round % 3 == 0);
        for _ in 0..50 {
            match random(3) {
                0 => strings.sleep(1 + random(CORES - 1)),
                1 => strings.say(Command::Wake { core: CoreId(random(CORES)) }),
                _ => strings.go(random(THREADS), random(CORES)),
            }
        }
        runtime.set_policy(policy).expect("it needs nothing");
    }
    let (strings, policy) = puppet(EVERY_MS);
    (0..THREADS).for_each(|thread| strings.go(thread, thread % CORES));
    runtime.set_policy(policy).expect("it needs nothing");
    shown.iter().for_each(|shown| shown.is_polled_again());
    for thread in 0..THREADS {
        eventually("home", || runtime.stats().threads[usize::from(thread)].home == CoreId(thread % CORES));
    }
    let stats = runtime.stats();
    assert_eq!(stats.reactors.iter().map(|reactor| reactor.io_threads).sum::<u64>(), u64::from(THREADS));
    println!("{} moves, {} wakes", stats.director.moves, stats.director.wakes);
    runtime.stop();
    drop(runtime);
    assert!(shown.iter().all(|shown| shown.dropped.load(SeqCst)));
}
