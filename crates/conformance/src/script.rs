//! A policy that follows a script and logs its calls.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pilotlight_plant::{
    Capabilities, Command, CoreSample, CoreState, Goals, NEVER, Next, Policy, Reading, ReadingId, Refusal, Sample,
    Start, ThreadSample, Tick, Unsupported, Wants,
};

/// A logged sample.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The end of the interval in nanoseconds.
    pub now_ns: u64,
    /// Length of the interval in nanoseconds.
    pub elapsed_ns: u64,
    /// Every core.
    pub cores: Vec<CoreSample>,
    /// Every I/O thread.
    pub threads: Vec<ThreadSample>,
    /// Every reading, if the script wants them.
    pub readings: Vec<Reading>,
    /// Number of refused commands until then.
    pub refused: usize,
}

impl Seen {
    /// Whether a core is asleep by command.
    #[must_use]
    pub fn sleeps(&self, core: usize) -> bool {
        matches!(self.cores[core].state, CoreState::Asleep(_))
    }

    /// Whether a core has processed requests and was awake at the end.
    #[must_use]
    pub fn serves(&self, core: usize) -> bool {
        !self.sleeps(core) && self.cores[core].busy_ns > 0
    }

    /// Whether there were no requests.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.threads.iter().all(|thread| thread.requests == 0)
    }
}

/// The calls of the policy.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// When it started, in nanoseconds.
    pub started_ns: u64,
    /// The plant's capabilities.
    pub capabilities: Capabilities,
    /// The core of each I/O thread at the start.
    pub homes: Vec<u16>,
    /// Every sample.
    pub samples: Vec<Seen>,
    /// Ticks: time in nanoseconds and number of requests.
    pub ticks: Vec<(u64, u64)>,
    /// Requests by I/O thread, from ticks.
    pub tick_requests: Vec<u64>,
    /// The initial goals and each change.
    pub goals: Vec<Goals>,
    /// Refused commands.
    pub refused: Vec<(Command, Refusal)>,
    /// Errors in the calls.
    pub errors: Vec<String>,
    /// Completed steps of the script.
    pub steps: usize,
}

/// State shared by script and plant during a run.
#[derive(Clone, Debug, Default)]
pub struct Board {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    done: AtomicBool,
    fed: AtomicBool,
    log: Mutex<Log>,
}

impl Board {
    /// Whether the script has finished.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.shared.done.load(SeqCst)
    }

    /// Marks the case as finished.
    pub(crate) fn finish(&self) {
        self.shared.done.store(true, SeqCst);
    }

    /// Whether the plant is to send further requests.
    #[must_use]
    pub fn feeds(&self) -> bool {
        !self.shared.fed.load(SeqCst)
    }

    /// The log so far.
    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.shared.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Condition = Box<dyn FnMut(&Seen) -> bool + Send>;

struct Step {
    awaited: &'static str,
    condition: Condition,
    commands: Vec<Command>,
    feeds: bool,
}

/// A sequence of steps: wait for a condition on samples, then issue commands.
pub struct Script {
    wants: Wants,
    steps: Vec<Step>,
    /// Commands at each change of goals.
    at_goals: Vec<Command>,
    /// Whether all readings are requested.
    reads: bool,
    /// Whether intervals and readings are requested only under a budget.
    waits_for_budget: bool,
    /// The only deadline, relative to the start.
    needed_after_ns: Option<u64>,
}

impl Script {
    /// A script with intervals of this length, and ticks of a quarter of it.
    #[must_use]
    pub fn every(interval_ns: u64) -> Self {
        let wants = Wants { tick_ns: Some(interval_ns / 4), interval_ns: Some(interval_ns), ..Wants::default() };
        Self {
            wants,
            steps: Vec::new(),
            at_goals: Vec::new(),
            reads: false,
            waits_for_budget: false,
            needed_after_ns: None,
        }
    }

    /// Sets a single deadline, relative to the start.
    #[must_use]
    pub fn needed_after(mut self, ns: u64) -> Self {
        self.needed_after_ns = Some(ns);
        self
    }

    /// Requests all readings.
    #[must_use]
    pub fn reads(mut self) -> Self {
        self.reads = true;
        self
    }

    /// Requests intervals and readings only under a budget.
    #[must_use]
    pub fn waits_for_budget(mut self) -> Self {
        self.waits_for_budget = true;
        self
    }

    /// Issues commands at each change of goals.
    #[must_use]
    pub fn at_goals(mut self, commands: &[Command]) -> Self {
        self.at_goals = commands.to_vec();
        self
    }

    /// Issues commands at the first sample after the previous step for which `condition` holds.
    #[must_use]
    pub fn when(
        mut self,
        awaited: &'static str,
        condition: impl FnMut(&Seen) -> bool + Send + 'static,
        commands: &[Command],
    ) -> Self {
        let condition = Box::new(condition);
        self.steps.push(Step { awaited, condition, commands: commands.to_vec(), feeds: true });
        self
    }

    /// Issues commands at the next sample.
    #[must_use]
    pub fn command(self, commands: &[Command]) -> Self {
        self.when("a sample", |_| true, commands)
    }

    /// Waits until `condition` holds for this many consecutive samples.
    #[must_use]
    pub fn holds(
        self,
        awaited: &'static str,
        samples: u32,
        mut condition: impl FnMut(&Seen) -> bool + Send + 'static,
    ) -> Self {
        let mut consecutive = 0;
        let all = move |seen: &Seen| {
            consecutive = if condition(seen) { consecutive + 1 } else { 0 };
            consecutive >= samples
        };
        self.when(awaited, all, &[])
    }

    /// Waits for a sample for which `condition` holds.
    #[must_use]
    pub fn until(self, awaited: &'static str, condition: impl FnMut(&Seen) -> bool + Send + 'static) -> Self {
        self.when(awaited, condition, &[])
    }

    /// Stops the load, and waits for samples without requests.
    #[must_use]
    pub fn until_all_is_quiet(mut self) -> Self {
        self = self.command(&[]);
        if let Some(step) = self.steps.last_mut() {
            step.feeds = false;
        }
        self.holds("quiet", 20, Seen::is_quiet)
    }

    /// The condition of each step, in words.
    #[must_use]
    pub fn awaited(&self) -> Vec<&'static str> {
        self.steps.iter().map(|step| step.awaited).collect()
    }

    /// The policy and its board.
    #[must_use]
    pub fn policy(self) -> (Box<dyn Policy>, Board) {
        let board = Board::default();
        board.shared.done.store(self.steps.is_empty() && self.needed_after_ns.is_none(), SeqCst);
        let Self { wants, steps, at_goals, reads, waits_for_budget, needed_after_ns } = self;
        let steps = steps.into_iter();
        let board_of = board.clone();
        let policy = ScriptedPolicy {
            wants,
            steps,
            present: None,
            at_goals,
            reads,
            waits_for_budget,
            needed_after_ns,
            needed_ns: 0,
            board: board_of,
        };
        (Box::new(policy), board)
    }
}

/// The scripted policy.
struct ScriptedPolicy {
    wants: Wants,
    steps: std::vec::IntoIter<Step>,
    present: Option<Step>,
    at_goals: Vec<Command>,
    reads: bool,
    waits_for_budget: bool,
    needed_after_ns: Option<u64>,
    needed_ns: u64,
    board: Board,
}

impl ScriptedPolicy {
    /// Performs at most one step, so that the next sees a later sample.
    fn act(&mut self, seen: &Seen, out: &mut Vec<Command>) {
        if self.present.is_none() {
            self.present = self.steps.next();
        }
        let Some(step) = &mut self.present else { return };
        if !(step.condition)(seen) {
            return;
        }
        out.extend_from_slice(&step.commands);
        if !step.feeds {
            self.board.shared.fed.store(true, SeqCst);
        }
        self.board.log().steps += 1;
        self.present = self.steps.next();
        if self.present.is_none() {
            self.board.shared.done.store(true, SeqCst);
        }
    }

    fn needed_ns(&mut self, now_ns: u64) -> u64 {
        if self.needed_after_ns.is_none() {
            return now_ns;
        }
        if now_ns >= self.needed_ns {
            self.needed_ns = NEVER;
            if self.steps.len() == 0 && self.present.is_none() {
                self.board.shared.done.store(true, SeqCst);
            }
        }
        self.needed_ns
    }
}

impl Policy for ScriptedPolicy {
    fn name(&self) -> &'static str {
        "script"
    }

    fn wants(&self) -> Wants {
        let wants = self.wants.clone();
        if self.waits_for_budget { Wants { interval_ns: None, readings: Vec::new(), ..wants } } else { wants }
    }

    fn start(&mut self, start: &Start<'_>, _out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        let mut log = self.board.log();
        log.started_ns = start.now_ns;
        log.capabilities = start.capabilities.clone();
        log.homes = start.homes.iter().map(|home| home.0).collect();
        log.tick_requests = vec![0; start.homes.len()];
        log.goals.push(start.goals.clone());
        if self.reads {
            self.wants.readings = (0..start.capabilities.sources.len() as u16).map(ReadingId).collect();
        }
        self.needed_ns = self.needed_after_ns.map_or(start.now_ns, |after| start.now_ns.saturating_add(after));
        Ok(Next::at(self.needed_ns))
    }

    fn on_tick(&mut self, tick: &Tick<'_>, _out: &mut Vec<Command>) -> Next {
        let mut log = self.board.log();
        let requests = tick.counts.iter().map(|count| u64::from(count.requests)).sum();
        log.ticks.push((tick.now_ns, requests));
        if !tick.counts.is_sorted_by(|one, other| one.thread < other.thread) {
            log.errors.push(format!("counts of a tick are out of order: {:?}", tick.counts));
        }
        for count in tick.counts {
            if count.requests == 0 {
                log.errors.push(format!("a tick lists I/O thread {} without requests", count.thread.0));
            }
            match log.tick_requests.get_mut(count.thread.index()) {
                Some(sum) => *sum += u64::from(count.requests),
                None => log.errors.push(format!("a tick lists I/O thread {}, which does not exist", count.thread.0)),
            }
        }
        drop(log);
        Next::at(self.needed_ns(tick.now_ns))
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        let seen = Seen {
            now_ns: sample.now_ns,
            elapsed_ns: sample.elapsed_ns,
            cores: sample.cores.to_vec(),
            threads: sample.threads.to_vec(),
            readings: sample.readings.to_vec(),
            refused: self.board.log().refused.len(),
        };
        self.board.log().samples.push(seen.clone());
        self.act(&seen, out);
        Next::at(self.needed_ns(sample.now_ns))
    }

    fn on_goals(&mut self, now_ns: u64, goals: &Goals, out: &mut Vec<Command>) {
        let mut log = self.board.log();
        log.goals.push(goals.clone());
        if self.waits_for_budget && !log.samples.is_empty() {
            log.errors.push("an interval that was not requested".to_owned());
        }
        drop(log);
        self.waits_for_budget &= goals.budget_uw.is_none();
        self.needed_ns = self.needed_ns.min(now_ns);
        out.extend_from_slice(&self.at_goals);
    }

    fn on_refused(&mut self, _now_ns: u64, command: &Command, refusal: Refusal) {
        self.board.log().refused.push((*command, refusal));
    }
}
