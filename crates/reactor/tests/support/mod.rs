//! A policy and an I/O thread that are controlled by a test.

#![allow(dead_code, unreachable_pub)] // each test file uses its part

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

use pilotlight_plant::{
    Command, CompletionMode, CoreId, CoreState, Cost, Kind, Knob, NEVER, Next, Policy, Refusal, Sample, Scope,
    SleepGoal, Start, ThreadId, Tick, Unsupported, Values, View, Wants,
};
use pilotlight_reactor::{Idle, IoThread, Polled, Runtime, RuntimeOptions};
use rustix::event::{EventfdFlags, eventfd};

pub const TIMEOUT: Duration = Duration::from_secs(60);

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < until, "timeout: {what}");
        std::thread::yield_now();
    }
}

/// A knob with these values, initially at the highest.
pub fn knob(scope: Scope, kind: Kind, values: Values) -> Knob {
    let found = values.highest().expect("a value");
    Knob { scope, kind, values, initial: found, caller: Cost::Assumed(0), effect: Cost::Assumed(0) }
}

/// The frequency of each core, in steps.
pub fn frequencies(cores: u16, min: u64, max: u64, step: u64) -> Vec<Knob> {
    (0..cores)
        .map(|core| knob(Scope::Core(CoreId(core)), Kind::FrequencyKhz, Values::Range { min, max, step }))
        .collect()
}

/// Sends a test's commands at the next interval.
pub struct ScriptedPolicy {
    commands: mpsc::Receiver<Command>,
    wants: Wants,
    sleeps: bool,
    refused: mpsc::Sender<(Command, Refusal)>,
}

pub struct Control {
    pub commands: mpsc::Sender<Command>,
    pub refused: mpsc::Receiver<(Command, Refusal)>,
}

pub const EVERY_MS: Wants =
    Wants { tick_ns: None, tick_busy: false, interval_ns: Some(1_000_000), service: false, readings: Vec::new() };

pub fn scripted_policy(wants: Wants) -> (Control, Box<ScriptedPolicy>) {
    sleeping_policy(wants, false)
}

/// A scripted policy that lets the server sleep at once (`sleeps`), or never.
pub fn sleeping_policy(wants: Wants, sleeps: bool) -> (Control, Box<ScriptedPolicy>) {
    let (send, commands) = mpsc::channel();
    let (refuse, refused) = mpsc::channel();
    (Control { commands: send, refused }, Box::new(ScriptedPolicy { commands, wants, sleeps, refused: refuse }))
}

impl Control {
    pub fn command(&self, command: Command) {
        self.commands.send(command).expect("a policy");
    }
    pub fn sleep(&self, core: u16) {
        self.command(Command::Sleep { core: CoreId(core), goal: SleepGoal::SHALLOWEST });
    }
    pub fn move_thread(&self, thread: u16, to: u16) {
        self.command(Command::Move { thread: ThreadId(thread), to: CoreId(to) });
    }
}

impl Policy for ScriptedPolicy {
    fn name(&self) -> &'static str {
        "scripted"
    }
    fn wants(&self) -> Wants {
        self.wants.clone()
    }
    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        out.extend(self.commands.try_iter());
        Ok(Next::with_idle_timeout(start.now_ns, if self.sleeps { 0 } else { NEVER }))
    }
    fn on_tick(&mut self, tick: &Tick<'_>, _out: &mut Vec<Command>) -> Next {
        Next::at(tick.now_ns)
    }
    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        out.extend(self.commands.try_iter());
        if self.sleeps { Next::with_idle_timeout(NEVER, 0) } else { Next::at(sample.now_ns) }
    }
    fn on_refused(&mut self, _now_ns: u64, command: &Command, refusal: Refusal) {
        let _ = self.refused.send((*command, refusal));
    }
    fn view(&self) -> View {
        vec![("test", "1".into())]
    }
}

/// State of a [`Probe`], shared with the test.
#[derive(Default)]
pub struct ProbeState {
    pub polls: AtomicU64,
    pub polled_now: AtomicBool,
    pub dropped: AtomicBool,
    pub finish: AtomicBool,
    /// Requests that arrived and were not polled.
    pub waiting: AtomicU32,
    pub can_wait: AtomicBool,
    /// If not 0, each poll finds a request and takes this long, in nanoseconds.
    pub work_ns: AtomicU64,
    /// Wakes a reactor that waits for the I/O thread.
    pub bell: OnceLock<OwnedFd>,
}

/// An I/O thread whose requests are set by a test.
pub struct Probe {
    id: u32,
    probe_state: Arc<ProbeState>,
    bell: OwnedFd,
    completions: CompletionMode,
}

pub fn probe(id: u32) -> (Arc<ProbeState>, Box<Probe>) {
    let probe_state = Arc::new(ProbeState::default());
    let bell = eventfd(0, EventfdFlags::NONBLOCK).expect("a descriptor");
    probe_state.bell.set(bell.try_clone().expect("a descriptor")).expect("once");
    (Arc::clone(&probe_state), Box::new(Probe { id, probe_state, bell, completions: CompletionMode::Poll }))
}

impl IoThread for Probe {
    fn id(&self) -> u32 {
        self.id
    }
    fn poll(&mut self, _now_ns: u64) -> Polled {
        assert!(!self.probe_state.polled_now.swap(true, SeqCst), "two reactors poll one I/O thread");
        self.probe_state.polls.fetch_add(1, SeqCst);
        let mut requests = self.probe_state.waiting.swap(0, SeqCst);
        let work = Duration::from_nanos(self.probe_state.work_ns.load(SeqCst));
        if !work.is_zero() {
            let begin = Instant::now();
            while begin.elapsed() < work {
                std::hint::spin_loop();
            }
            requests += 1;
        }
        let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
        self.probe_state.polled_now.store(false, SeqCst);
        Polled { requests, in_progress: 0, busy: requests > 0, finished: self.probe_state.finish.load(SeqCst) }
    }
    fn set_completions(&mut self, mode: CompletionMode) {
        self.completions = mode;
    }
    fn prepare_wait(&mut self, _now_ns: u64) -> Option<u64> {
        let nothing = self.probe_state.waiting.load(SeqCst) == 0 && !self.probe_state.finish.load(SeqCst);
        (nothing && self.probe_state.can_wait.load(SeqCst)).then_some(u64::MAX)
    }
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.probe_state.dropped.store(true, SeqCst);
    }
}

impl ProbeState {
    pub fn polls(&self) -> u64 {
        self.polls.load(SeqCst)
    }
    pub fn assert_polled(&self) {
        let before = self.polls();
        eventually("a poll", || self.polls() > before + 10);
    }
}

pub fn start(cores: usize) -> Runtime {
    let options = RuntimeOptions::new(vec![None; cores], Idle::Yield);
    Runtime::start(&RuntimeOptions { monitor: None, ..options }).expect("starts")
}

pub fn state(runtime: &Runtime, core: usize) -> CoreState {
    runtime.stats().reactors[core].state
}
