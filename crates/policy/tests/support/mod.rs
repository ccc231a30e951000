//! A plant for tests: cores and I/O threads as tables, commands with delays and refusals, and assertions about invalid commands.

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

/// CPU time of a request at its arrival; half of that at its completion.
const REQUEST_NS: u64 = 1_250;
/// Time from a request's arrival to its completion.
const SERVICE_NS: u64 = 23_000;

/// Policies that wake cores without an I/O thread: those that restart an inner policy with another number of cores, those that end savings with
/// all cores, and `adaptive`, which wakes a core for it to sleep deeper.
const WAKE_ALL: [&str; 5] = ["adaptive", "cpu-jailing", "pass", "pacer", "pg"];

/// Delay and refusals of commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Ticks until a command takes effect.
    pub(crate) delay: u64,
    /// One of this number of commands is refused; 0 for none.
    pub(crate) refuse_every: u64,
}

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
    /// Samples of the current interval, without homes.
    threads: Vec<ThreadSample>,
    /// Requests in progress: arrival, thread and number.
    in_progress: VecDeque<(u64, usize, u64)>,
    busy_ns: Vec<u64>,
    awake_ns: Vec<u64>,
    /// Start of the interval.
    since_ns: u64,
    knobs: Knobs,
    goals: Goals,
    /// Whether cores without an I/O thread may be woken.
    wakes_all: bool,
}

impl Plant {
    /// Starts a policy on a plant in this state; also returns its commands.
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

    /// Starts another policy.
    pub(crate) fn change_policy(&mut self, policy: Box<dyn Policy>) -> Vec<Command> {
        self.policy = policy;
        self.pending.clear();
        self.knobs.restore();
        self.start()
    }

    /// Sets a budget; returns the policy's commands.
    pub(crate) fn set_budget(&mut self, budget_uw: Option<u64>) -> Vec<Command> {
        self.goals.budget_uw = budget_uw;
        let mut out = Vec::new();
        self.policy.on_goals(self.now_ns, &self.goals, &mut out);
        self.next_needed_ns = self.now_ns;
        self.apply(&out, false);
        out
    }

    fn start(&mut self) -> Vec<Command> {
        let cores: Vec<_> = self.cores.iter().map(|&state| CoreSample::new(state)).collect();
        let capabilities = capabilities();
        let (now_ns, topology, homes) = (self.now_ns, &self.topology, &self.homes[..]);
        let mut out = Vec::new();
        let plant = Start { now_ns, topology, capabilities: &capabilities, cores: &cores, homes, goals: &self.goals };
        let next = self.policy.start(&plant, &mut out).expect("this plant can do everything");
        (self.next_needed_ns, self.stays_awake_ns) = (next.needed_ns, next.idle_timeout_ns);
        self.wakes_all = WAKE_ALL.contains(&self.policy.name());
        let wakes_all = !["sandman", "dynamic", "thunderbolt"].contains(&self.policy.name());
        self.apply(&out, wakes_all);
        out
    }

    /// Advances the time; arrivals are counted whether or not the policy gets the tick.
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

    /// Advances requests in progress, and completes them.
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

    /// Adds busy time of a thread.
    pub(crate) fn work(&mut self, thread: usize, busy_ns: u64) {
        self.threads[thread].busy_ns += busy_ns;
        self.busy_ns[self.homes[thread].index()] += busy_ns;
    }

    /// A tick, if the policy wants ticks; returns its commands.
    pub(crate) fn tick(&mut self, elapsed_ns: u64, counts: &[ThreadCount]) -> Vec<Command> {
        let mut out = Vec::new();
        if self.policy.wants().tick_ns.is_none() {
            return out;
        }
        let tick = Tick { now_ns: self.now_ns, elapsed_ns, counts };
        let next = self.policy.on_tick(&tick, &mut out);
        (self.next_needed_ns, self.stays_awake_ns) = (next.needed_ns, next.idle_timeout_ns);
        self.check_whole_cores(&out);
        self.apply(&out, false);
        out
    }

    /// Ends an interval. If `notify`, the policy gets the sample; returns its commands.
    pub(crate) fn interval(&mut self, notify: bool) -> Vec<Command> {
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
        if notify {
            let readings = self.knobs.readings(&self.policy.wants().readings, self.now_ns);
            let sample =
                Sample { now_ns: self.now_ns, elapsed_ns, cores: &cores, threads: &threads, readings: &readings };
            let next = self.policy.on_interval(&sample, &mut out);
            (self.next_needed_ns, self.stays_awake_ns) = (next.needed_ns, next.idle_timeout_ns);
            self.apply(&out, false);
        }
        out
    }

    /// Requests of each thread since the interval began.
    pub(crate) fn requests(&self) -> Vec<u64> {
        self.threads.iter().map(|thread| thread.requests).collect()
    }

    /// Whether no request arrived or was in progress in this interval.
    pub(crate) fn is_quiet(&self) -> bool {
        let quiet = |thread: &ThreadSample| (thread.requests, thread.answered, thread.in_progress_ns) == (0, 0, 0);
        self.threads.iter().all(quiet)
    }

    /// Ends a sleep of the server.
    pub(crate) fn resume(&mut self) {
        self.policy.on_resume(self.now_ns);
    }

    /// Checks and queues commands.
    fn apply(&mut self, commands: &[Command], may_wake: bool) {
        self.check(commands, may_wake || self.wakes_all);
        let ready_ns = self.now_ns + self.faults.delay * 10_000;
        self.pending.extend(commands.iter().map(|&command| Pending { ready_ns, command }));
        self.take_effect();
    }

    fn check(&self, commands: &[Command], may_wake: bool) {
        let mut moved = Vec::new();
        let mut awake: Vec<bool> = self.cores.iter().map(|state| *state == CoreState::Awake).collect();
        for command in commands {
            match *command {
                Command::Move { thread, to } => {
                    assert!(!moved.contains(&thread), "{thread:?} moves twice: {commands:?}");
                    moved.push(thread);
                    let at_once = self.faults.delay == 0 && self.faults.refuse_every == 0;
                    assert!(!at_once || awake[to.index()], "{to:?} gets a thread while asleep: {commands:?}");
                }
                Command::Sleep { core, .. } => {
                    assert_ne!(core, self.topology.main(), "the main core is commanded to sleep");
                    let gets_one = |other: &Command| matches!(other, Command::Move { to, .. } if *to == core);
                    assert!(!commands.iter().any(gets_one), "{core:?} gets a thread and is to sleep: {commands:?}");
                }
                Command::Wake { core } => {
                    awake[core.index()] = true;
                    let gets_one = |other: &Command| matches!(other, Command::Move { to, .. } if *to == core);
                    assert!(
                        may_wake || commands.iter().any(gets_one),
                        "{core:?} is woken without an I/O thread: {commands:?}"
                    );
                }
                Command::Completions { .. } | Command::Set { .. } => {}
            }
        }
    }

    /// Each thread that moves in a tick gets a separate core, which no other thread keeps.
    fn check_whole_cores(&self, commands: &[Command]) {
        let mut given = Vec::new();
        let mut homes: Vec<_> = self.homes.iter().copied().map(Some).collect();
        for command in commands {
            if let Command::Move { thread, to } = *command {
                homes[thread.index()] = None;
                assert!(!given.contains(&to), "{to:?} is given away twice: {commands:?}");
                let in_use = homes.contains(&Some(to)) && self.faults == Faults::default();
                assert!(!in_use, "{to:?} is in use: {commands:?}");
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
