//! A plant for tests: cores and I/O threads as a table, commands with delays and refusals, and complaints about whatever a policy
//! must not do.

mod knobs;
mod machine;
mod random;

use std::collections::VecDeque;

use pilotlight_plant::{
    Command, CoreId, CoreSample, CoreState, Goals, Policy, Refusal, Sample, Start, ThreadCount, ThreadId, ThreadSample,
    Tick, Topology,
};

use knobs::Knobs;
use machine::capabilities;
pub(crate) use random::Random;

/// Time that one request keeps a core busy when it comes; half of that when it is answered.
const REQUEST_NS: u64 = 1_250;
/// Time from a request's arrival to its answer.
const SERVICE_NS: u64 = 23_000;

/// Policies that wake cores for no I/O thread: those that start an inner policy again when it gets another number of cores, and those that end
/// their savings with all cores.
const WAKE_ALL: [&str; 4] = ["cpu-jailing", "pass", "pacer", "pg"];

/// How a plant takes commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Ticks until a command takes effect.
    pub(crate) delay: u64,
    /// One command in so many is refused; 0 for none.
    pub(crate) refuse_every: u64,
}

/// What a plant has been commanded and not done yet.
#[derive(Clone, Debug)]
struct Pending {
    ready_ns: u64,
    command: Command,
}

/// A plant with a policy in charge.
pub(crate) struct Plant {
    pub(crate) topology: Topology,
    pub(crate) cores: Vec<CoreState>,
    pub(crate) homes: Vec<CoreId>,
    pub(crate) now_ns: u64,
    pub(crate) next_needed_ns: u64,
    pub(crate) stays_awake_ns: u64,
    policy: Box<dyn Policy>,
    faults: Faults,
    random: Random,
    pending: VecDeque<Pending>,
    /// What each thread did since the interval began; its home is filled in later.
    threads: Vec<ThreadSample>,
    /// Requests in progress: when they came, of which thread, how many.
    in_progress: VecDeque<(u64, usize, u64)>,
    busy_ns: Vec<u64>,
    awake_ns: Vec<u64>,
    /// When the interval began.
    since_ns: u64,
    knobs: Knobs,
    goals: Goals,
    /// Whether cores may be woken for no I/O thread: what `static` does wherever it begins.
    wakes_all: bool,
}

impl Plant {
    /// Puts a policy in charge of a plant in this state. Also what it commanded.
    pub(crate) fn new(
        topology: Topology,
        cores: Vec<CoreState>,
        homes: Vec<CoreId>,
        faults: Faults,
        policy: Box<dyn Policy>,
    ) -> (Self, Vec<Command>) {
        let mut plant = Self {
            threads: vec![ThreadSample::default(); homes.len()],
            in_progress: VecDeque::new(),
            busy_ns: vec![0; cores.len()],
            awake_ns: vec![0; cores.len()],
            topology,
            cores,
            homes,
            now_ns: 1_000_000,
            next_needed_ns: 0,
            stays_awake_ns: 0,
            policy,
            faults,
            random: Random::new(1),
            pending: VecDeque::new(),
            since_ns: 1_000_000,
            knobs: Knobs::new(capabilities()),
            goals: Goals::default(),
            wakes_all: false,
        };
        let out = plant.start();
        (plant, out)
    }

    /// Another policy takes over.
    pub(crate) fn change_policy(&mut self, policy: Box<dyn Policy>) -> Vec<Command> {
        self.policy = policy;
        self.pending.clear();
        self.knobs.put_back();
        self.start()
    }

    /// Another budget holds; what the policy commanded.
    pub(crate) fn set_budget(&mut self, budget_uw: Option<u64>) -> Vec<Command> {
        self.goals.budget_uw = budget_uw;
        let mut out = Vec::new();
        self.policy.on_goals(self.now_ns, &self.goals, &mut out);
        self.next_needed_ns = self.now_ns;
        self.obey(&out, false);
        out
    }

    fn start(&mut self) -> Vec<Command> {
        let cores: Vec<_> = self.cores.iter().map(|&state| CoreSample::new(state)).collect();
        let capabilities = capabilities();
        let (now_ns, topology, homes) = (self.now_ns, &self.topology, &self.homes[..]);
        let mut out = Vec::new();
        let plant = Start { now_ns, topology, capabilities: &capabilities, cores: &cores, homes, goals: &self.goals };
        let next = self.policy.start(&plant, &mut out).expect("this plant can do everything");
        (self.next_needed_ns, self.stays_awake_ns) = (next.needed_ns, next.awake_ns);
        self.wakes_all = WAKE_ALL.contains(&self.policy.name());
        let wakes_all = !["sandman", "dynamic", "thunderbolt"].contains(&self.policy.name());
        self.obey(&out, wakes_all);
        out
    }

    /// Time passes; what arrived in it is counted whether or not the policy is commanded.
    pub(crate) fn arrive(&mut self, now_ns: u64, counts: &[ThreadCount]) {
        for (core, state) in self.cores.iter().enumerate() {
            self.awake_ns[core] += if *state == CoreState::Awake { now_ns - self.now_ns } else { 0 };
        }
        let before_ns = std::mem::replace(&mut self.now_ns, now_ns);
        self.serve(before_ns);
        for count in counts {
            let (thread, requests) = (count.thread.index(), u64::from(count.requests));
            self.threads[thread].requests += requests;
            self.work(thread, requests * REQUEST_NS);
            self.in_progress.push_back((now_ns, thread, requests));
        }
        self.take_effect();
    }

    /// Requests are in progress, and answered when it is time.
    fn serve(&mut self, before_ns: u64) {
        for &(came_ns, thread, requests) in &self.in_progress {
            let (from_ns, to_ns) = (came_ns.max(before_ns), (came_ns + SERVICE_NS).min(self.now_ns));
            self.threads[thread].in_progress_ns += requests * to_ns.saturating_sub(from_ns);
        }
        while let Some(&(came_ns, thread, requests)) = self.in_progress.front()
            && came_ns + SERVICE_NS <= self.now_ns
        {
            self.in_progress.pop_front();
            self.threads[thread].answered += requests;
            self.work(thread, requests * REQUEST_NS / 2);
        }
    }

    /// A thread keeps its core busy; also with what is no request.
    pub(crate) fn work(&mut self, thread: usize, busy_ns: u64) {
        self.threads[thread].busy_ns += busy_ns;
        self.busy_ns[self.homes[thread].index()] += busy_ns;
    }

    /// A tick, if the policy wants any; what it commanded.
    pub(crate) fn tick(&mut self, elapsed_ns: u64, counts: &[ThreadCount]) -> Vec<Command> {
        let mut out = Vec::new();
        if self.policy.wants().tick_ns.is_none() {
            return out;
        }
        let tick = Tick { now_ns: self.now_ns, elapsed_ns, counts };
        let next = self.policy.on_tick(&tick, &mut out);
        (self.next_needed_ns, self.stays_awake_ns) = (next.needed_ns, next.awake_ns);
        self.check_whole_cores(&out);
        self.obey(&out, false);
        out
    }

    /// The end of an interval. The policy is commanded, and what it commanded returned, unless `commanded` is false.
    pub(crate) fn interval(&mut self, commanded: bool) -> Vec<Command> {
        let cores: Vec<_> = (0..self.cores.len())
            .map(|core| CoreSample {
                state: self.cores[core],
                busy_ns: self.busy_ns[core].min(self.awake_ns[core]),
                awake_ns: self.awake_ns[core],
            })
            .collect();
        let class = |at: usize| Some((at % 3) as u8).filter(|&class| class > 0);
        let live = |(at, (thread, &home)): (usize, (&ThreadSample, &CoreId))| ThreadSample {
            home,
            class: class(at),
            ..*thread
        };
        let threads: Vec<_> = self.threads.iter().zip(&self.homes).enumerate().map(live).collect();
        let elapsed_ns = self.now_ns - self.since_ns;
        self.since_ns = self.now_ns;
        self.threads.fill(ThreadSample::default());
        self.busy_ns.fill(0);
        self.awake_ns.fill(0);
        let mut out = Vec::new();
        if commanded {
            let readings = self.knobs.readings(&self.policy.wants().readings, self.now_ns);
            let sample =
                Sample { now_ns: self.now_ns, elapsed_ns, cores: &cores, threads: &threads, readings: &readings };
            let next = self.policy.on_interval(&sample, &mut out);
            (self.next_needed_ns, self.stays_awake_ns) = (next.needed_ns, next.awake_ns);
            self.obey(&out, false);
        }
        out
    }

    /// Requests of each thread since the interval began.
    pub(crate) fn requests(&self) -> Vec<u64> {
        self.threads.iter().map(|thread| thread.requests).collect()
    }

    /// Whether since the interval began no request came and none was in progress.
    pub(crate) fn is_quiet(&self) -> bool {
        let quiet = |thread: &ThreadSample| (thread.requests, thread.answered, thread.in_progress_ns) == (0, 0, 0);
        self.threads.iter().all(quiet)
    }

    /// The server slept until now.
    pub(crate) fn resume(&mut self) {
        self.policy.on_resume(self.now_ns);
    }

    /// Checks an answer, and queues it.
    fn obey(&mut self, answer: &[Command], may_wake: bool) {
        self.check(answer, may_wake || self.wakes_all);
        let ready_ns = self.now_ns + self.faults.delay * 10_000;
        self.pending.extend(answer.iter().map(|&command| Pending { ready_ns, command }));
        self.take_effect();
    }

    fn check(&self, answer: &[Command], may_wake: bool) {
        let mut moved = Vec::new();
        let mut awake: Vec<bool> = self.cores.iter().map(|state| *state == CoreState::Awake).collect();
        for command in answer {
            match *command {
                Command::Move { thread, to } => {
                    assert!(!moved.contains(&thread), "{thread:?} moves twice: {answer:?}");
                    moved.push(thread);
                    let at_once = self.faults.delay == 0 && self.faults.refuse_every == 0;
                    assert!(!at_once || awake[to.index()], "{to:?} gets a thread in its sleep: {answer:?}");
                }
                Command::Sleep { core, .. } => {
                    assert_ne!(core, self.topology.main(), "the main core is commanded to sleep");
                    let gets_one = |other: &Command| matches!(other, Command::Move { to, .. } if *to == core);
                    assert!(!answer.iter().any(gets_one), "{core:?} gets a thread and is to sleep: {answer:?}");
                }
                Command::Wake { core } => {
                    awake[core.index()] = true;
                    let gets_one = |other: &Command| matches!(other, Command::Move { to, .. } if *to == core);
                    assert!(may_wake || answer.iter().any(gets_one), "{core:?} is woken for nothing: {answer:?}");
                }
                Command::Completions { .. } | Command::Set { .. } => {}
            }
        }
    }

    /// Each thread of a tick gets a core that nobody else gets, and nobody else has who does not leave it in the same tick.
    fn check_whole_cores(&self, answer: &[Command]) {
        let mut given = Vec::new();
        let mut homes: Vec<_> = self.homes.iter().copied().map(Some).collect();
        for command in answer {
            if let Command::Move { thread, to } = *command {
                homes[thread.index()] = None;
                assert!(!given.contains(&to), "{to:?} is given away twice: {answer:?}");
                let in_use = homes.contains(&Some(to)) && self.faults == Faults::default();
                assert!(!in_use, "{to:?} is in use: {answer:?}");
                given.push(to);
            }
        }
    }

    fn take_effect(&mut self) {
        while let Some(pending) = self.pending.front()
            && pending.ready_ns <= self.now_ns
        {
            let command = pending.command;
            self.pending.pop_front();
            if let Err(refusal) = self.execute(command) {
                self.policy.on_refused(self.now_ns, &command, refusal);
            }
        }
        for (thread, home) in self.homes.iter().enumerate() {
            assert_eq!(self.cores[home.index()], CoreState::Awake, "thread {thread} is on {home:?}, which sleeps");
        }
    }

    fn execute(&mut self, command: Command) -> Result<(), Refusal> {
        let refused = self.faults.refuse_every > 0 && self.random.below(self.faults.refuse_every) == 0;
        match command {
            Command::Move { .. } if refused => return Err(Refusal::Unknown),
            Command::Move { thread: ThreadId(thread), to } => {
                self.homes[usize::from(thread)] = to;
                self.cores[to.index()] = CoreState::Awake;
            }
            Command::Sleep { core, .. } if refused || self.homes.contains(&core) => return Err(Refusal::NotEmpty),
            Command::Sleep { core, goal } => {
                let sleep = capabilities().sleep_for(goal).expect("it can sleep");
                self.cores[core.index()] = CoreState::Asleep(sleep.depth);
            }
            Command::Wake { core } => self.cores[core.index()] = CoreState::Awake,
            Command::Set { .. } if refused => return Err(Refusal::Failed),
            Command::Set { knob, value } => self.knobs.set(knob, value),
            Command::Completions { .. } if refused => return Err(Refusal::Unsupported),
            Command::Completions { .. } => {}
        }
        Ok(())
    }
}
