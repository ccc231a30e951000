//! A policy that says what a test tells it to, and an I/O thread whose requests a test makes up.

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

pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "{what} did not come about");
        std::thread::yield_now();
    }
}

/// A knob with these values, found at the highest.
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

/// Passes on what a test says, at the next interval.
pub struct Puppet {
    commands: mpsc::Receiver<Command>,
    wants: Wants,
    sleeps: bool,
    refused: mpsc::Sender<(Command, Refusal)>,
}

pub struct Strings {
    pub commands: mpsc::Sender<Command>,
    pub refused: mpsc::Receiver<(Command, Refusal)>,
}

pub const EVERY_MS: Wants =
    Wants { tick_ns: None, tick_busy: false, interval_ns: Some(1_000_000), service: false, readings: Vec::new() };

pub fn puppet(wants: Wants) -> (Strings, Box<Puppet>) {
    puppet_that_sleeps(wants, false)
}

/// One that lets the server sleep at once, or not at all.
pub fn puppet_that_sleeps(wants: Wants, sleeps: bool) -> (Strings, Box<Puppet>) {
    let (send, commands) = mpsc::channel();
    let (refuse, refused) = mpsc::channel();
    (Strings { commands: send, refused }, Box::new(Puppet { commands, wants, sleeps, refused: refuse }))
}

impl Strings {
    pub fn say(&self, command: Command) {
        self.commands.send(command).expect("the policy lives");
    }
    pub fn sleep(&self, core: u16) {
        self.say(Command::Sleep { core: CoreId(core), goal: SleepGoal::SHALLOWEST });
    }
    pub fn go(&self, thread: u16, to: u16) {
        self.say(Command::Move { thread: ThreadId(thread), to: CoreId(to) });
    }
}

impl Policy for Puppet {
    fn name(&self) -> &'static str {
        "puppet"
    }
    fn wants(&self) -> Wants {
        self.wants.clone()
    }
    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        out.extend(self.commands.try_iter());
        Ok(Next { needed_ns: start.now_ns, awake_ns: if self.sleeps { 0 } else { NEVER } })
    }
    fn on_tick(&mut self, tick: &Tick<'_>, _out: &mut Vec<Command>) -> Next {
        Next::at(tick.now_ns)
    }
    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        out.extend(self.commands.try_iter());
        if self.sleeps { Next { needed_ns: NEVER, awake_ns: 0 } } else { Next::at(sample.now_ns) }
    }
    fn on_refused(&mut self, _now_ns: u64, command: &Command, refusal: Refusal) {
        let _ = self.refused.send((*command, refusal));
    }
    fn view(&self) -> View {
        vec![("strings", "2".into())]
    }
}

/// What the test sees of an I/O thread.
#[derive(Default)]
pub struct Shown {
    pub polls: AtomicU64,
    pub polled_now: AtomicBool,
    pub dropped: AtomicBool,
    pub finish: AtomicBool,
    /// Requests that have "arrived" and were not polled.
    pub waiting: AtomicU32,
    pub can_wait: AtomicBool,
    /// Wakes whoever waits for the I/O thread.
    pub bell: OnceLock<OwnedFd>,
}

/// An I/O thread whose requests a test makes up.
pub struct Probe {
    id: u32,
    shown: Arc<Shown>,
    bell: OwnedFd,
    completions: CompletionMode,
}

pub fn probe(id: u32) -> (Arc<Shown>, Box<Probe>) {
    let shown = Arc::new(Shown::default());
    let bell = eventfd(0, EventfdFlags::NONBLOCK).expect("a descriptor");
    shown.bell.set(bell.try_clone().expect("a descriptor")).expect("once");
    (Arc::clone(&shown), Box::new(Probe { id, shown, bell, completions: CompletionMode::Poll }))
}

impl IoThread for Probe {
    fn id(&self) -> u32 {
        self.id
    }
    fn poll(&mut self, _now_ns: u64) -> Polled {
        assert!(!self.shown.polled_now.swap(true, SeqCst), "two reactors poll one I/O thread");
        self.shown.polls.fetch_add(1, SeqCst);
        let requests = self.shown.waiting.swap(0, SeqCst);
        let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
        self.shown.polled_now.store(false, SeqCst);
        Polled { requests, in_progress: 0, busy: requests > 0, finished: self.shown.finish.load(SeqCst) }
    }
    fn set_completions(&mut self, mode: CompletionMode) {
        self.completions = mode;
    }
    fn prepare_wait(&mut self, _now_ns: u64) -> Option<u64> {
        let nothing = self.shown.waiting.load(SeqCst) == 0 && !self.shown.finish.load(SeqCst);
        (nothing && self.shown.can_wait.load(SeqCst)).then_some(u64::MAX)
    }
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.shown.dropped.store(true, SeqCst);
    }
}

impl Shown {
    pub fn polls(&self) -> u64 {
        self.polls.load(SeqCst)
    }
    pub fn is_polled_again(&self) {
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
