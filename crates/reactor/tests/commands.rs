//! Commands that overlap each other or a core's changes of state.

mod support;

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use pilotlight_plant::{
    Command, CompletionMode, CoreId, CoreState, Depth, LONGEST_PAUSE_NS, LongRound, NEVER, Next, Policy, Refusal,
    Sample, SleepGoal, Start, ThreadId, Tick, Unsupported, Wants,
};
use pilotlight_reactor::{Idle, IdleTimeout, Runtime, RuntimeOptions};
use support::{EVERY_MS, ProbeState, TIMEOUT, eventually, probe, scripted_policy, start, state};

const ASLEEP: CoreState = CoreState::Asleep(Depth::SoftwareWait);

/// Waits long enough for all events to arrive.
fn settle(runtime: &Runtime) {
    let before = runtime.stats().director.intervals;
    eventually("some intervals", || runtime.stats().director.intervals > before + 20);
}

fn home(runtime: &Runtime, core: u16) {
    eventually("the move", || runtime.stats().threads[0].home == CoreId(core));
}

/// A runtime with one I/O thread.
fn one_thread(cores: usize, on: u16) -> (Runtime, Arc<ProbeState>) {
    let runtime = start(cores);
    let (probe_state, thread) = probe(0);
    runtime.adopt(CoreId(on), thread);
    (runtime, probe_state)
}

#[test]
fn a_core_with_an_arriving_thread_refuses_to_sleep() {
    let (runtime, _shown) = one_thread(2, 0);
    let (control, policy) = scripted_policy(EVERY_MS);
    control.sleep(1);
    runtime.set_policy(policy).expect("supported");
    eventually("sleep", || state(&runtime, 1) == ASLEEP);
    let (control, policy) = scripted_policy(EVERY_MS);
    control.move_thread(0, 1);
    control.sleep(1);
    runtime.set_policy(policy).expect("supported");
    assert_eq!(control.refused.recv_timeout(TIMEOUT).expect("a refusal").1, Refusal::NotEmpty);
    home(&runtime, 1);
}

#[test]
fn a_completion_mode_does_not_cancel_a_sleep_command() {
    let (runtime, _shown) = one_thread(2, 1);
    let (control, policy) = scripted_policy(EVERY_MS);
    control.sleep(1);
    control.command(Command::Completions { thread: ThreadId(0), mode: CompletionMode::Interrupt });
    control.move_thread(0, 0);
    runtime.set_policy(policy).expect("supported");
    home(&runtime, 0);
    eventually("sleep", || state(&runtime, 1) == ASLEEP);
}

#[test]
fn a_core_sleeps_after_a_thread_has_passed_through() {
    let (runtime, _shown) = one_thread(3, 0);
    for _ in 0..200 {
        let (control, policy) = scripted_policy(EVERY_MS);
        control.move_thread(0, 1);
        runtime.set_policy(policy).expect("supported");
        let (control, policy) = scripted_policy(EVERY_MS);
        control.move_thread(0, 2);
        control.sleep(1);
        runtime.set_policy(policy).expect("supported");
        home(&runtime, 2);
        eventually("sleep", || state(&runtime, 1) == ASLEEP);
        let (control, policy) = scripted_policy(EVERY_MS);
        control.command(Command::Wake { core: CoreId(1) });
        control.move_thread(0, 0);
        runtime.set_policy(policy).expect("supported");
        home(&runtime, 0);
        eventually("its wake-up", || state(&runtime, 1) == CoreState::Awake);
    }
}

#[test]
fn a_new_policy_cancels_pending_sleep_commands() {
    let (runtime, _shown) = one_thread(2, 1);
    let (control, policy) = scripted_policy(EVERY_MS);
    control.sleep(1); // takes effect when its I/O thread has left
    runtime.set_policy(policy).expect("supported");
    let (control, policy) = scripted_policy(EVERY_MS);
    control.move_thread(0, 0);
    runtime.set_policy(policy).expect("supported");
    home(&runtime, 0);
    settle(&runtime);
    assert_eq!(state(&runtime, 1), CoreState::Awake);
}

#[test]
fn a_stopped_runtime_responds() {
    let (done, finished) = mpsc::channel();
    std::thread::spawn(move || {
        let mut runtime = start(2);
        runtime.stop();
        let _ = runtime.set_policy(scripted_policy(EVERY_MS).1);
        let _ = done.send(runtime.view().is_none());
    });
    assert_eq!(finished.recv_timeout(TIMEOUT), Ok(true));
}

/// Must run at `needed_ns` after the start, and never again after the next interval.
struct QuietPolicy {
    wants: Wants,
    needed_ns: u64,
    /// When cores rest.
    rests: Next,
    completions: CompletionMode,
    received: Arc<Received>,
}

#[derive(Default)]
struct Received {
    requests: AtomicU64,
    intervals: AtomicU64,
    /// Intervals before the last tick.
    intervals_before: AtomicU64,
    /// Length of the last interval with requests, and how long the main core was awake in it.
    elapsed_ns: AtomicU64,
    awake_ns: AtomicU64,
    /// Reports of long rounds, and the core of the last one.
    long_rounds: AtomicU64,
    long_core: AtomicU64,
}

impl QuietPolicy {
    fn next(&self) -> Next {
        Next { needed_ns: self.needed_ns, ..self.rests }
    }
}

impl Policy for QuietPolicy {
    fn name(&self) -> &'static str {
        "quiet_policy"
    }
    fn wants(&self) -> Wants {
        self.wants.clone()
    }
    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        out.extend((0..start.homes.len()).map(|thread| {
            let thread = ThreadId(thread as u16);
            Command::Completions { thread, mode: self.completions }
        }));
        let empty = start.topology.workers().filter(|core| !start.homes.contains(core));
        out.extend(empty.map(|core| Command::Sleep { core, goal: SleepGoal::SHALLOWEST }));
        self.needed_ns = start.now_ns.saturating_add(self.needed_ns);
        Ok(self.next())
    }
    fn on_tick(&mut self, tick: &Tick<'_>, _out: &mut Vec<Command>) -> Next {
        self.received.intervals_before.store(self.received.intervals.load(SeqCst), SeqCst);
        self.received.requests.fetch_add(tick.counts.iter().map(|count| u64::from(count.requests)).sum(), SeqCst);
        self.next()
    }
    fn on_long_round(&mut self, long: LongRound, sample: &Sample<'_>, _out: &mut Vec<Command>) -> Next {
        self.received.long_rounds.fetch_add(1, SeqCst);
        self.received.long_core.store(u64::from(long.core.0), SeqCst);
        let requests: u64 = sample.threads.iter().map(|thread| thread.requests).sum();
        self.received.requests.fetch_add(requests, SeqCst);
        self.next()
    }
    fn on_interval(&mut self, sample: &Sample<'_>, _out: &mut Vec<Command>) -> Next {
        self.received.intervals.fetch_add(1, SeqCst);
        if self.wants.tick_ns.is_none() {
            let requests = sample.threads.iter().map(|thread| thread.requests).sum();
            if requests > 0 {
                self.received.elapsed_ns.store(sample.elapsed_ns, SeqCst);
                self.received.awake_ns.store(sample.cores[0].awake_ns, SeqCst);
            }
            self.received.requests.fetch_add(requests, SeqCst);
        }
        if sample.now_ns >= self.needed_ns {
            self.needed_ns = NEVER;
        }
        self.next()
    }
}

fn quiet_policy(needed_ns: u64, interval_ns: u64, completions: CompletionMode) -> (Arc<Received>, Box<QuietPolicy>) {
    let received = Arc::<Received>::default();
    let wants = Wants { tick_ns: Some(10_000), interval_ns: Some(interval_ns), ..Wants::default() };
    (
        Arc::clone(&received),
        Box::new(QuietPolicy { wants, needed_ns, rests: Next::with_idle_timeout(0, 0), completions, received }),
    )
}

/// Two cores that may sleep after `idle_timeout_ns` without requests, and an I/O thread that can wait.
fn waiting_thread(on: u16, idle_timeout_ns: u64) -> (Runtime, Arc<ProbeState>) {
    let options = RuntimeOptions::new(vec![None; 2], Idle::Yield);
    let options = RuntimeOptions { idle_timeout: IdleTimeout::Fixed(idle_timeout_ns), monitor: None, ..options };
    let runtime = Runtime::start(&options).expect("starts");
    let (probe_state, thread) = probe(0);
    probe_state.can_wait.store(true, SeqCst);
    runtime.adopt(CoreId(on), thread);
    (runtime, probe_state)
}

#[test]
fn a_quiet_server_whose_policy_waits_for_an_interval_does_not_spin() {
    let (runtime, _shown) = waiting_thread(0, 0);
    // Must run long before the next interval: the waits end at that time without work.
    let (received, policy) = quiet_policy(10_000_000, 400_000_000, CompletionMode::Poll);
    runtime.set_policy(policy).expect("supported");
    eventually("the interval", || received.intervals.load(SeqCst) == 1);
    let wakes = runtime.stats().reactors[0].asleep[2].wakes;
    assert!(wakes < 100, "{wakes} waits ended early");
}

#[test]
fn an_interval_that_ended_during_a_sleep_is_quiet() {
    let (runtime, probe_state) = waiting_thread(0, 0);
    let (received, policy) = quiet_policy(NEVER, 300_000_000, CompletionMode::Poll);
    runtime.set_policy(policy).expect("supported");
    std::thread::sleep(Duration::from_millis(350));
    arrives(&probe_state);
    eventually("the request", || received.requests.load(SeqCst) == 1);
    assert_eq!(received.intervals_before.load(SeqCst), 0, "the interval that has ended was quiet");
}

/// A wait that ended only to report the request before it would be a second one for each.
#[test]
fn a_request_is_reported_without_another_wake_up() {
    let (runtime, probe_state) = waiting_thread(0, 0);
    let (received, policy) = quiet_policy(NEVER, 60_000_000_000, CompletionMode::Poll);
    runtime.set_policy(policy).expect("supported");
    let asleep = || runtime.stats().reactors[0].state == CoreState::Asleep(Depth::ServerSleep);
    eventually("a sleep", asleep);
    let wakes = || runtime.stats().reactors[0].asleep[2].wakes;
    let before = wakes();
    for request in 1..=20 {
        arrives(&probe_state);
        eventually("the request is reported and the server asleep", || {
            received.requests.load(SeqCst) == request && asleep()
        });
    }
    let ended = wakes() - before;
    assert!((20..30).contains(&ended), "{ended} waits ended for 20 requests");
}

#[test]
fn the_main_core_and_workers_rest_as_the_policy_says() {
    // idle timeouts of the main core and a worker, and whether the main core and the worker rest
    for ((main_ns, worker_ns), expected) in
        [((NEVER, 0), [false, true]), ((0, 0), [true, true]), ((0, NEVER), [false; 2])]
    {
        let options = RuntimeOptions::new(vec![None; 2], Idle::Yield);
        let runtime = Runtime::start(&RuntimeOptions { monitor: None, ..options }).expect("starts");
        let (probe_state, thread) = probe(0);
        probe_state.can_wait.store(true, SeqCst);
        runtime.adopt(CoreId(1), thread);
        let (received, mut policy) = quiet_policy(NEVER, 1_000_000, CompletionMode::Poll);
        policy.rests = Next { idle_timeout_ns: main_ns, worker_idle_timeout_ns: worker_ns, ..Next::NEVER };
        runtime.set_policy(policy).expect("supported");
        for request in 1..=20 {
            arrives(&probe_state);
            eventually("the request is reported", || received.requests.load(SeqCst) == request);
            let rests = || [0, 1].map(|core| state(&runtime, core) != CoreState::Awake);
            eventually(&format!("{main_ns} {worker_ns} ns: cores rest: {expected:?}"), || rests() == expected);
        }
        let waits = |core: usize| runtime.stats().reactors[core].asleep.iter().map(|asleep| asleep.wakes).sum::<u64>();
        assert_eq!([0, 1].map(|core| waits(core) > 0), expected, "{main_ns} {worker_ns}: waits that have ended");
    }
}

/// As [`waiting_thread`], with work in each poll, and on the same core others that have none.
fn busy_thread(on: u16, others: u32) -> (Runtime, Arc<ProbeState>) {
    let (runtime, probe_state) = waiting_thread(on, 0);
    for other in 1..=others {
        let (other_state, thread) = probe(other);
        other_state.can_wait.store(true, SeqCst);
        runtime.adopt(CoreId(on), thread);
    }
    probe_state.work_ns.store(300_000, SeqCst);
    (runtime, probe_state)
}

#[test]
fn a_core_whose_rounds_are_long_calls_the_policy_before_its_interval() {
    for core in 0..2 {
        let (runtime, _probe_state) = busy_thread(core, 1);
        let (received, mut policy) = quiet_policy(NEVER, 3_600_000_000_000, CompletionMode::Interrupt);
        (policy.wants.tick_ns, policy.rests) = (None, Next { round_ns: 200_000, ..Next::NEVER });
        runtime.set_policy(policy).expect("supported");
        eventually("reports", || received.long_rounds.load(SeqCst) > 3);
        assert_eq!(received.long_core.load(SeqCst), u64::from(core));
        assert!(received.requests.load(SeqCst) > 0, "the sample has the requests");
        assert_eq!(received.intervals.load(SeqCst), 0);
    }
}

#[test]
fn short_rounds_are_not_reported_nor_those_of_a_lone_thread() {
    for (others, round_ns) in [(1, 3_600_000_000_000), (0, 200_000)] {
        let (runtime, _probe_state) = busy_thread(1, others);
        let (received, mut policy) = quiet_policy(NEVER, 1_000_000, CompletionMode::Interrupt);
        (policy.wants.tick_ns, policy.rests) = (None, Next { round_ns, ..Next::NEVER });
        runtime.set_policy(policy).expect("supported");
        eventually("some intervals", || received.intervals.load(SeqCst) > 20);
        assert_eq!(received.long_rounds.load(SeqCst), 0, "{round_ns} ns, {others} others");
    }
}

#[test]
fn a_wait_ends_after_the_longest_that_the_policy_allows() {
    for core in 0..2 {
        let (runtime, _shown) = waiting_thread(core, 0);
        let (_, mut policy) = quiet_policy(NEVER, 3_600_000_000_000, CompletionMode::Interrupt);
        (policy.wants.tick_ns, policy.rests) = (None, Next { wait_ns: 200_000, ..Next::NEVER });
        runtime.set_policy(policy).expect("supported");
        let waits = || runtime.stats().reactors[usize::from(core)].asleep.iter().map(|one| one.wakes).sum::<u64>();
        let before = waits();
        eventually("waits without a request", || waits() > before + 100);
    }
}

/// Each request ends a wait; a core that pauses after it sleeps once more.
#[test]
fn a_core_pauses_after_requests_before_it_waits() {
    let sleeps_more = |pause_ns, until: &dyn Fn(u64, u64) -> bool| {
        let (runtime, probe_state) = waiting_thread(1, 0);
        let (received, mut policy) = quiet_policy(NEVER, 1_000_000, CompletionMode::Interrupt);
        (policy.wants.tick_ns, policy.rests) = (None, Next { pause_ns, ..Next::NEVER });
        runtime.set_policy(policy).expect("supported");
        let sleeps = || runtime.stats().reactors[1].asleep.iter().map(|one| one.wakes).sum::<u64>();
        eventually("it waits", || state(&runtime, 1) != CoreState::Awake);
        let (before, mut requests) = (sleeps(), 0);
        eventually("requests", || {
            arrives(&probe_state);
            requests += 1;
            eventually("the request is reported", || received.requests.load(SeqCst) == requests);
            eventually("it waits again", || state(&runtime, 1) != CoreState::Awake);
            until(requests, sleeps() - before)
        });
        sleeps() - before > requests + 20
    };
    assert!(sleeps_more(LONGEST_PAUSE_NS, &|requests, sleeps| sleeps > requests + 20));
    assert!(!sleeps_more(0, &|requests, _| requests == 50));
}

fn arrives(probe_state: &ProbeState) {
    probe_state.waiting.store(1, SeqCst);
    rustix::io::write(probe_state.bell.get().expect("a bell"), &1_u64.to_ne_bytes()).expect("rung");
}

/// Requests that arrive on a worker while the whole server sleeps, or is just falling asleep.
fn every_request_of_a_worker_is_reported(tick_ns: Option<u64>, completions: CompletionMode) {
    let (runtime, probe_state) = waiting_thread(1, 0);
    let (received, mut policy) = quiet_policy(NEVER, 1_000_000, completions);
    policy.wants.tick_ns = tick_ns;
    runtime.set_policy(policy).expect("supported");
    let is_asleep = |core| state(&runtime, core) != CoreState::Awake;
    for request in 1..=100 {
        if request % 2 == 0 {
            eventually("the server sleeps", || is_asleep(0) && is_asleep(1));
        }
        arrives(&probe_state);
        eventually("the request is reported", || received.requests.load(SeqCst) == request);
    }
    eventually("the server sleeps again", || is_asleep(0) && is_asleep(1));
}

#[test]
fn a_request_of_a_waiting_worker_wakes_the_main_core_for_a_tick() {
    every_request_of_a_worker_is_reported(Some(10_000), CompletionMode::Interrupt);
    every_request_of_a_worker_is_reported(Some(10_000), CompletionMode::Poll);
}

#[test]
fn a_request_of_a_waiting_worker_wakes_the_main_core_for_an_interval() {
    every_request_of_a_worker_is_reported(None, CompletionMode::Poll);
}

#[test]
fn a_request_that_ends_a_sleep_is_not_of_the_interval_in_which_nothing_came() {
    let (runtime, probe_state) = waiting_thread(1, 0);
    let (received, mut policy) = quiet_policy(NEVER, 1_000_000, CompletionMode::Poll);
    policy.wants.tick_ns = None;
    runtime.set_policy(policy).expect("supported");
    let slept = Duration::from_millis(300);
    let is_short = |request| {
        eventually("the server sleeps", || (0..2).all(|core| state(&runtime, core) != CoreState::Awake));
        std::thread::sleep(slept); // many intervals
        arrives(&probe_state);
        eventually("the request is reported", || received.requests.load(SeqCst) == request);
        u128::from(received.elapsed_ns.load(SeqCst)) < slept.as_nanos()
    };
    assert!((1..=60).any(is_short), "a busy machine may delay some, but not each");
}

#[test]
fn a_main_core_that_sleeps_between_requests_has_the_load_of_the_interval_not_of_its_wake_ups() {
    let (runtime, probe_state) = waiting_thread(0, 0);
    let (received, mut policy) = quiet_policy(NEVER, 20_000_000, CompletionMode::Poll);
    policy.wants.tick_ns = None;
    runtime.set_policy(policy).expect("supported");
    // A busy machine may delay the core while it is awake, so not in each interval.
    let mut idle = 0;
    eventually("ten intervals in which the main core is idle", || {
        let before = received.requests.load(SeqCst);
        eventually("the server sleeps", || state(&runtime, 0) != CoreState::Awake);
        arrives(&probe_state);
        eventually("the request is reported", || received.requests.load(SeqCst) > before);
        idle += u32::from(received.awake_ns.load(SeqCst) >= received.elapsed_ns.load(SeqCst) * 9 / 10);
        idle == 10
    });
}

#[test]
fn a_resting_core_takes_an_io_thread_and_polls_again_under_a_policy_that_keeps_it_awake() {
    let (runtime, probe_state) = waiting_thread(0, 0);
    runtime.set_policy(quiet_policy(NEVER, 1_000_000, CompletionMode::Poll).1).expect("supported");
    eventually("the server sleeps", || (0..2).all(|core| state(&runtime, core) != CoreState::Awake));
    let (control, policy) = scripted_policy(EVERY_MS);
    control.move_thread(0, 1);
    runtime.set_policy(policy).expect("supported");
    home(&runtime, 1);
    probe_state.assert_polled();
    settle(&runtime);
    assert!((0..2).all(|core| state(&runtime, core) == CoreState::Awake));
}

/// Lets core 1 sleep, wakes it, and reports its state in the next sample.
struct WakingPolicy {
    commanded: Option<CoreState>,
    states: mpsc::Sender<CoreState>,
}

impl Policy for WakingPolicy {
    fn name(&self) -> &'static str {
        "rouser"
    }
    fn wants(&self) -> Wants {
        Wants { interval_ns: Some(1), ..EVERY_MS }
    }
    fn start(&mut self, start: &Start<'_>, _out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        Ok(Next::at(start.now_ns))
    }
    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        let (core, found) = (CoreId(1), sample.cores[1].state);
        match self.commanded {
            Some(CoreState::Asleep(_)) if found == ASLEEP => {
                out.push(Command::Wake { core });
                self.commanded = Some(CoreState::Awake);
            }
            Some(CoreState::Asleep(_)) => {}
            commanded => {
                if commanded.is_some() {
                    let _ = self.states.send(found);
                }
                out.push(Command::Sleep { core, goal: SleepGoal::SHALLOWEST });
                self.commanded = Some(ASLEEP);
            }
        }
        Next::at(sample.now_ns)
    }
}

#[test]
fn a_core_that_is_being_woken_is_reported_as_awake() {
    let options = RuntimeOptions::new(vec![None; 2], Idle::Spin); // with `Yield` a core would run only after the other is awake
    let runtime = Runtime::start(&RuntimeOptions { monitor: None, ..options }).expect("starts");
    let (states, found) = mpsc::channel();
    runtime.set_policy(Box::new(WakingPolicy { commanded: None, states })).expect("supported");
    for _ in 0..100 {
        assert_eq!(found.recv_timeout(TIMEOUT), Ok(CoreState::Awake));
    }
}
