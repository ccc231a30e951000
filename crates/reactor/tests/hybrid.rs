//! Hybrid polling, service times, and knobs: the director's execution of the commands of policies that use them.

mod support;

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use pilotlight_plant::{
    Command, CompletionMode, CoreId, Knob, KnobId, Next, Policy, Refusal, Sample, Start, ThreadId, Unsupported, Wants,
};
use pilotlight_reactor::{Idle, IoThread, Knobs, Polled, Refusals, Runtime, RuntimeOptions, RuntimeStats};
use support::{Control, EVERY_MS, ProbeState, TIMEOUT, eventually, frequencies, probe, scripted_policy, start};

/// A rest longer than any test's timeout.
const FOR_EVER_NS: u32 = u32::MAX;

/// A runtime with one I/O thread for each of these cores, controlled by the test's policy.
fn start_with_policy(cores: usize, homes: &[u16], wants: Wants) -> (Runtime, Vec<Arc<ProbeState>>, Control) {
    let runtime = start(cores);
    let adopt = |(id, &home): (u32, &u16)| {
        let (probe_state, thread) = probe(id);
        runtime.adopt(CoreId(home), thread);
        probe_state
    };
    let probe_state = (0..).zip(homes).map(adopt).collect();
    let (control, policy) = scripted_policy(wants);
    runtime.set_policy(policy).expect("supported");
    (runtime, probe_state, control)
}

/// Rests of this length, with or without requests in progress.
fn hybrid(thread: u16, rest_ns: u32) -> Command {
    Command::Completions { thread: ThreadId(thread), mode: CompletionMode::Hybrid { idle_ns: rest_ns, rest_ns } }
}

/// Polls in an interval.
fn polls_in(probe_state: &ProbeState, time: Duration) -> u64 {
    let before = probe_state.polls();
    std::thread::sleep(time);
    probe_state.polls() - before
}

/// Mean polls per millisecond, over at least a tenth of a second.
fn polls_per_ms(probe_state: &ProbeState) -> f64 {
    let began = Instant::now();
    let polls = polls_in(probe_state, Duration::from_millis(100));
    polls as f64 / began.elapsed().as_secs_f64() / 1e3
}

fn rests(stats: &RuntimeStats, core: usize) -> u64 {
    stats.reactors[core].asleep[1].wakes
}

#[test]
fn a_core_rests_between_empty_polls_and_accounts_for_it() {
    let (runtime, probe_state, control) = start_with_policy(2, &[1], EVERY_MS);
    control.command(hybrid(0, 20_000_000));
    eventually("rests", || rests(&runtime.stats(), 1) > 2);
    let polls = polls_per_ms(&probe_state[0]);
    assert!(polls <= 0.07, "{polls} polls in 1 ms with rests of 20 ms");
    let stats = runtime.stats();
    assert!(stats.threads[0].asleep_ns[1] >= 60_000_000, "{:?}", stats.threads[0].asleep_ns);
}

#[test]
fn a_message_or_the_stop_ends_a_rest() {
    let (mut runtime, probe_state, control) = start_with_policy(2, &[1, 0], EVERY_MS);
    control.command(hybrid(0, FOR_EVER_NS));
    eventually("a rest", || polls_in(&probe_state[0], Duration::from_millis(5)) == 0);
    control.move_thread(1, 1);
    eventually("a move into the rest", || runtime.stats().threads[1].home == CoreId(1));
    probe_state[1].assert_polled(); // it polls continuously, so its core does not rest
    probe_state[0].assert_polled();
    control.command(hybrid(1, FOR_EVER_NS));
    eventually("both rest", || polls_in(&probe_state[1], Duration::from_millis(5)) == 0);
    control.command(Command::Completions { thread: ThreadId(0), mode: CompletionMode::Poll });
    probe_state[0].assert_polled();
    control.command(hybrid(0, FOR_EVER_NS));
    eventually("both rest again", || polls_in(&probe_state[0], Duration::from_millis(5)) == 0);
    let began = Instant::now();
    runtime.stop();
    assert!(began.elapsed() < Duration::from_secs(2), "the end came after {:?}", began.elapsed());
}

#[test]
fn the_shortest_rest_of_a_core_counts() {
    let (runtime, probe_state, control) = start_with_policy(2, &[1, 1], EVERY_MS);
    control.command(hybrid(0, FOR_EVER_NS));
    control.command(hybrid(1, 1_000_000));
    eventually("rests", || rests(&runtime.stats(), 1) > 2);
    let polls = polls_per_ms(&probe_state[0]);
    assert!(polls > 0.0 && polls <= 1.05, "{polls} polls in 1 ms with rests of 1 ms");
}

#[test]
fn the_main_core_rests_until_the_policy_is_due_at_most() {
    let (runtime, probe_state, control) = start_with_policy(1, &[0], EVERY_MS);
    control.command(hybrid(0, FOR_EVER_NS));
    eventually("a rest", || rests(&runtime.stats(), 0) > 2);
    let intervals = runtime.stats().director.intervals;
    eventually("intervals", || runtime.stats().director.intervals > intervals + 10);
    control.command(Command::Completions { thread: ThreadId(0), mode: CompletionMode::Poll });
    eventually("polls without a rest between them", || {
        let (rests_before, polls_before) = (rests(&runtime.stats(), 0), probe_state[0].polls());
        eventually("polls", || probe_state[0].polls() > polls_before + 100);
        rests(&runtime.stats(), 0) == rests_before
    });
}

/// Accepts requests from the test, and answers each after `takes_ns`.
struct Slow {
    orders: mpsc::Receiver<u32>,
    answered_at: Vec<u64>,
    takes_ns: u64,
}

impl IoThread for Slow {
    fn id(&self) -> u32 {
        0
    }
    fn poll(&mut self, now_ns: u64) -> Polled {
        let in_progress = self.answered_at.len();
        self.answered_at.retain(|&at_ns| at_ns > now_ns);
        let busy = self.answered_at.len() < in_progress;
        let requests = self.orders.try_iter().sum();
        self.answered_at.extend((0..requests).map(|_| now_ns + self.takes_ns));
        let in_progress = self.answered_at.len() as u32;
        Polled { requests, in_progress, busy: busy || requests > 0, finished: false }
    }
}

/// Passes on the sample of each interval.
struct Listener {
    wants: Wants,
    received: mpsc::Sender<(u64, u64, u64)>,
}

impl Policy for Listener {
    fn name(&self) -> &'static str {
        "listener"
    }
    fn wants(&self) -> Wants {
        self.wants.clone()
    }
    fn start(&mut self, _start: &Start<'_>, _out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        Ok(Next::NEVER)
    }
    fn on_interval(&mut self, sample: &Sample<'_>, _out: &mut Vec<Command>) -> Next {
        let thread = &sample.threads[0];
        let _ = self.received.send((thread.requests, thread.answered, thread.in_progress_ns));
        Next::NEVER
    }
}

fn listener(wants: Wants) -> (mpsc::Receiver<(u64, u64, u64)>, Box<Listener>) {
    let (received, heard) = mpsc::channel();
    (heard, Box::new(Listener { wants, received }))
}

/// Samples of three requests that take 30 ms each, with intervals of 1 ms.
fn three_slow_requests(service: bool) -> Vec<(u64, u64, u64)> {
    let runtime = start(1);
    let (order, orders) = mpsc::channel();
    runtime.adopt(CoreId(0), Box::new(Slow { orders, answered_at: Vec::new(), takes_ns: 30_000_000 }));
    let (heard, policy) = listener(Wants { service, ..EVERY_MS });
    runtime.set_policy(policy).expect("supported");
    order.send(3).expect("received");
    let (mut all, until) = (Vec::new(), Instant::now() + TIMEOUT);
    let answered = |all: &[(u64, u64, u64)]| !service || all.iter().map(|one| one.1).sum::<u64>() == 3;
    while Instant::now() < until && (all.is_empty() || !answered(&all)) {
        all.extend(heard.recv_timeout(Duration::from_millis(100)));
    }
    std::thread::sleep(Duration::from_millis(50)); // for further samples
    all.extend(heard.try_iter());
    all
}

#[test]
fn service_times_are_reported_and_intervals_with_requests_in_progress_are_not_quiet() {
    let heard = three_slow_requests(true);
    let sum = heard.iter().fold((0, 0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2));
    assert_eq!((sum.0, sum.1), (3, 3));
    assert!(sum.2 >= 90_000_000, "{} request-nanoseconds", sum.2);
    assert!(heard.len() > 2, "{heard:?}");
    let quiet = heard.iter().filter(|one| **one == (0, 0, 0)).count();
    assert!(quiet < heard.len() / 2 + 2, "{quiet} of {} intervals are quiet, and were not left out", heard.len());
}

#[test]
fn without_service_times_only_requests_are_reported() {
    assert_eq!(three_slow_requests(false), [(3, 0, 0)]);
}

/// Knobs whose settings are recorded: number 1 refuses at once, number 2 later.
#[derive(Debug, Default)]
struct RecordedKnobs {
    lines: Mutex<Vec<(u16, u64)>>,
    refusals: Mutex<Option<Refusals>>,
}

const RESTORED: (u16, u64) = (u16::MAX, 0);

impl RecordedKnobs {
    fn lines(&self) -> Vec<(u16, u64)> {
        self.lines.lock().expect("no panic").clone()
    }
    fn add(&self, line: (u16, u64)) {
        self.lines.lock().expect("no panic").push(line);
    }
    fn report(&self, knob: u16, value: u64) {
        let refusals = self.refusals.lock().expect("no panic");
        let refusals = refusals.as_ref().expect("connected at the start");
        assert!(refusals.report(KnobId(knob), value, Refusal::Failed));
    }
}

impl Knobs for RecordedKnobs {
    fn knobs(&self) -> Vec<Knob> {
        frequencies(3, 400, 3_600, 100)
    }
    fn connect(&self, refusals: Refusals, _workers: &[u32]) {
        *self.refusals.lock().expect("no panic") = Some(refusals);
    }
    fn set(&self, knob: KnobId, value: u64) -> Result<(), Refusal> {
        if knob == KnobId(1) {
            return Err(Refusal::Unsupported);
        }
        self.add((knob.0, value));
        Ok(())
    }
    fn restore(&self) {
        self.add(RESTORED);
    }
}

fn with_knobs(recorded: &Arc<RecordedKnobs>) -> (Runtime, Control) {
    let options = RuntimeOptions::new(vec![None; 2], Idle::Yield);
    let knobs: Arc<dyn Knobs> = Arc::clone(recorded) as _;
    let runtime = Runtime::start(&RuntimeOptions { monitor: None, knobs: Some(knobs), ..options }).expect("starts");
    let (control, policy) = scripted_policy(EVERY_MS);
    runtime.set_policy(policy).expect("supported");
    (runtime, control)
}

fn set(control: &Control, knob: u16, value: u64) -> Command {
    let command = Command::Set { knob: KnobId(knob), value };
    control.command(command);
    command
}

#[test]
fn knobs_are_set_refused_and_restored() {
    let recorded = Arc::new(RecordedKnobs::default());
    let (mut runtime, control) = with_knobs(&recorded);
    assert_eq!(runtime.capabilities().knobs, recorded.knobs());
    set(&control, 0, 549);
    set(&control, 1, 600);
    set(&control, 3, 700);
    let refused = || control.refused.recv_timeout(TIMEOUT).expect("a refusal").1;
    assert_eq!((refused(), refused()), (Refusal::Unsupported, Refusal::Unknown));
    runtime.set_policy(scripted_policy(EVERY_MS).1).expect("supported");
    runtime.stop();
    assert_eq!(
        recorded.lines(),
        [RESTORED, (0, 500), RESTORED, RESTORED],
        "the nearest; at each change of policy, and at the end"
    );
}

#[test]
fn a_late_refusal_reaches_the_policy_if_the_value_is_current() {
    let recorded = Arc::new(RecordedKnobs::default());
    let (runtime, control) = with_knobs(&recorded);
    let first = set(&control, 2, 1_010);
    eventually("the setting", || recorded.lines().contains(&(2, 1_000)));
    recorded.report(2, 1_000);
    let refused = |control: &Control| control.refused.recv_timeout(TIMEOUT).expect("a refusal");
    assert_eq!(refused(&control), (first, Refusal::Failed), "as the policy has said it");
    set(&control, 2, 2_000);
    eventually("the setting", || recorded.lines().contains(&(2, 2_000)));
    recorded.report(2, 1_000); // not its current value
    let last = set(&control, 1, 600);
    assert_eq!(refused(&control), (last, Refusal::Unsupported), "nothing between");
    let (next, policy) = scripted_policy(EVERY_MS);
    runtime.set_policy(policy).expect("supported");
    recorded.report(2, 2_000); // set by the previous policy
    let last = set(&next, 1, 700);
    assert_eq!(refused(&next), (last, Refusal::Unsupported), "nothing before");
}

#[test]
fn without_knobs_the_command_is_refused() {
    let (runtime, probe_state, control) = start_with_policy(1, &[0], EVERY_MS);
    assert_eq!(runtime.capabilities().knobs, []);
    set(&control, 0, 1);
    assert_eq!(control.refused.recv_timeout(TIMEOUT).expect("a refusal").1, Refusal::Unknown);
    assert!(probe_state[0].polls.load(SeqCst) > 0);
}
