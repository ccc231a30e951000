//! A job's pieces of CPU work, by I/O method.
//!
//! | method | submission | until completion | completion |
//! |---|---|---|---|
//! | interrupt | the call, half a switch | asleep | interrupt, half a switch |
//! | classic polling | the call | polling | half a poll, the end of the call |
//! | hybrid polling | the call with a timer, half a switch | asleep for half of the mean, then polling | as classic |
//! | `io_uring` polled | a ring; a worker calls | polling | the worker completes |
//! | SPDK | no call | polling | nothing |
//! | `posixaio` | passed to a helper thread, which makes one call at a time | asleep | interrupt, half a switch |
//!
//! A request larger than a command's maximum is split ([`super::split`]): the submitter continues with the next command, all end with the last
//! (interrupts raised together are one batch), and the request completes with it.
//!
//! Requests in progress and think time are as in fio: `think_after` requests, then a pause once they are all complete. A job that can continue yields
//! to others on its core after each request.

use std::collections::VecDeque;

use super::split::Tally;
use super::task::{Ended, Piece};
use super::{Scheduled, work};
use crate::engine::shared::Shared;
use crate::jobs::{IoMethod, Job};
use crate::rng::Stream;
use crate::trace::RecordKind;

/// A request in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Request {
    pub(super) issued_ns: u64,
    pub(super) left_ns: u64,
    pub(super) number: u64,
    pub(super) write: bool,
    /// Index of the command.
    pub(super) command: u32,
    pub(super) operation: Operation,
}

/// The operation of a request; a client's operation may need no request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Operation {
    began_ns: u64,
    writes: bool,
    hit: bool,
}

/// An external event of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum JobEvent {
    /// It begins, or continues after a pause.
    Begins(usize),
    /// The drive has completed a request.
    Done(usize, Request),
    /// A timer wakes it to poll (hybrid polling).
    Timer(usize, Request),
    /// A request leaves a core's scheduler queue for its drive.
    Dispatched(usize, u16, Request),
}

impl JobEvent {
    pub(super) fn job(&self) -> usize {
        match self {
            Self::Begins(job) | Self::Done(job, _) | Self::Timer(job, _) | Self::Dispatched(job, ..) => *job,
        }
    }
}

/// The continuation of a piece.
#[derive(Clone, Copy, Debug)]
pub(super) enum Continuation {
    /// None: it sleeps if it has no other piece.
    Nothing,
    /// It selects its next step.
    GoesOn(usize),
    /// It begins the submission.
    Issues(usize, Request),
    /// The request leaves the program.
    Leaves(usize, Request),
    /// The request leaves its submitter, or holds the scheduler's lock.
    Submits(usize, Request, bool),
    /// The interrupt of a request has been handled, or its worker has completed it.
    Handled(usize, Request),
    /// It is awake and polls.
    Spins(usize, Request),
    /// It has found the completion.
    Found(usize, Request),
    /// It has the result.
    Has(usize, Request),
}

pub(super) struct Program {
    pub(super) job: Job,
    pub(super) task: usize,
    pub(super) helper: Option<usize>,
    ready: VecDeque<Request>,
    /// Requests that wait for the helper thread ([`IoMethod::PosixAio`]), and whether it is in a call.
    pub(super) handed_over: VecDeque<Request>,
    pub(super) helper_is_busy: bool,
    outstanding: u32,
    /// Remaining commands of split requests: at their drive, and whose interrupts the kernel has not handled.
    tally: Tally,
    handled: Tally,
    waits: bool,
    /// It waits for a backlog: for due work, or to start the held write.
    blocked: bool,
    held: Option<Operation>,
    /// End of the last operation without a successor: the next one's latency counts from here, regardless of when it runs.
    free_ns: Option<u64>,
    /// Raised but unhandled interrupts of its requests.
    pending: u32,
    /// Requests submitted since the last pause.
    burst: u32,
    number: u64,
    draws: Stream,
    /// Of the polled request: start of polling, and completion time if known.
    pub(super) awake_ns: Option<u64>,
    pub(super) done_ns: Option<u64>,
}

impl Program {
    pub(super) fn new(job: Job, task: usize, helper: Option<usize>, draws: Stream) -> Self {
        Self {
            job,
            task,
            helper,
            ready: VecDeque::new(),
            handed_over: VecDeque::new(),
            helper_is_busy: false,
            outstanding: 0,
            tally: Tally::default(),
            handled: Tally::default(),
            waits: false,
            blocked: false,
            held: None,
            free_ns: None,
            pending: 0,
            burst: 0,
            number: 0,
            draws,
            awake_ns: None,
            done_ns: None,
        }
    }

    fn burst_over(&self) -> bool {
        self.job.think_after > 0 && self.burst >= self.job.think_after
    }

    /// The next operation: the held one, or a new one.
    fn operation(&mut self, now_ns: u64) -> Operation {
        if let Some(held) = self.held.take() {
            return held;
        }
        let writes = self.draws.below(1_000_000) < u64::from(self.job.writes_ppm);
        let hits_ppm = if writes { self.job.write_hits_ppm } else { self.job.hits_ppm };
        let hit = self.job.bytes == 0 || (hits_ppm > 0 && self.draws.below(1_000_000) < u64::from(hits_ppm));
        Operation { began_ns: self.free_ns.take().unwrap_or(now_ns), writes, hit }
    }

    /// CPU time of an operation.
    fn cpu_ns(&self, operation: Operation) -> u64 {
        self.job.write_cpu_ns.filter(|_| operation.writes).unwrap_or(self.job.cpu_ns)
    }

    /// Whether the depth allows another request.
    fn may_submit(&self) -> bool {
        let depth = if self.job.method.is_synchronous() { 1 } else { self.job.depth };
        self.outstanding < depth && !self.burst_over()
    }
}

impl Scheduled {
    /// Handles the end of a piece; returns whether its task yields to others of its class.
    pub(super) fn ended(&mut self, ended: &Ended<Continuation>, shared: &mut Shared<'_>) -> bool {
        let (now_ns, task) = (ended.at_ns, ended.task);
        match ended.then {
            Continuation::Nothing => false,
            Continuation::GoesOn(job) => self.goes_on(job, now_ns, shared),
            Continuation::Issues(job, request) => {
                self.jobs.requests.issued += 1;
                let bytes = u64::from(self.programs[job].job.bytes);
                let code = bytes | u64::from(request.write) << 32;
                shared.recorder.note(now_ns, RecordKind::Issued, self.name_of(job, request.number), code);
                let own_ns = self.own_ns(job);
                self.dispatch.push(
                    task,
                    work(own_ns),
                    Continuation::Leaves(job, Request { issued_ns: now_ns, ..request }),
                );
                false
            }
            Continuation::Leaves(job, request) => self.leaves(job, task, request, ended),
            Continuation::Submits(job, request, locked) => self.submits(job, task, request, locked, ended),
            Continuation::Handled(job, request) => self.handled(job, request, now_ns),
            Continuation::Spins(job, request) => {
                let program = &mut self.programs[job];
                program.awake_ns = Some(now_ns);
                let found_ns = program.done_ns.unwrap_or(u64::MAX);
                self.looks(job, request, found_ns);
                self.was_away(job, request);
                false
            }
            Continuation::Found(job, request) => {
                let commands = u64::from(self.split(job).commands());
                self.dispatch.push(task, work(self.costs.complete_ns * commands), Continuation::Has(job, request));
                false
            }
            Continuation::Has(job, request) => {
                self.taken(job, request, now_ns, shared);
                self.dispatch.push(task, work(0), Continuation::GoesOn(job));
                true
            }
        }
    }

    /// Handles an external event of a job.
    pub(super) fn happens(&mut self, now_ns: u64, event: JobEvent) {
        match event {
            JobEvent::Begins(job) => self.wake(job, now_ns, work(0), Continuation::GoesOn(job), true),
            JobEvent::Timer(job, request) => {
                if let Some(stretch) = self.stretch(now_ns) {
                    stretch.timers += 1;
                }
                let ns = self.costs.timer_ns / 2 + self.costs.switch_ns / 2;
                self.wake(job, now_ns, work(ns), Continuation::Spins(job, request), false);
            }
            JobEvent::Dispatched(job, core, request) => self.dispatched(job, core, request, now_ns),
            JobEvent::Done(job, request) => match (self.programs[job].job.method, self.programs[job].helper) {
                (_, Some(helper)) => {
                    self.dispatch.push(helper, work(self.costs.complete_ns), Continuation::Handled(job, request));
                    self.dispatch.wake(now_ns, helper, true);
                }
                (IoMethod::Bypass, _) => {
                    self.handled(job, request, now_ns);
                }
                _ => self.interrupt(job, request, now_ns),
            },
        }
    }

    /// Raises an interrupt, or adds a request to a running handler.
    fn interrupt(&mut self, job: usize, request: Request, now_ns: u64) {
        let cpu = self.dispatch.cpu_of(self.programs[job].task);
        let handler = self.handlers[cpu];
        let mut ns = self.costs.complete_ns;
        if self.dispatch.is_asleep(handler) {
            ns += self.costs.interrupt_ns;
            if let Some(stretch) = self.stretch(now_ns) {
                stretch.interrupts += 1;
            }
        }
        self.programs[job].pending += 1;
        self.dispatch.push(handler, work(ns), Continuation::Handled(job, request));
        self.dispatch.wake(now_ns, handler, false);
    }

    pub(super) fn wake(&mut self, job: usize, now_ns: u64, piece: Piece, then: Continuation, early: bool) {
        let task = self.programs[job].task;
        self.dispatch.push(task, piece, then);
        self.dispatch.wake(now_ns, task, early);
    }

    fn goes_on(&mut self, job: usize, now_ns: u64, shared: &mut Shared<'_>) -> bool {
        (self.programs[job].waits, self.programs[job].blocked) = (false, false);
        if let Some(request) = self.programs[job].ready.pop_front() {
            self.taken(job, request, now_ns, shared);
        }
        if self.thinks(job, now_ns) {
            return false;
        }
        let program = &mut self.programs[job];
        if !program.may_submit() {
            return self.waits(job, now_ns);
        }
        if program.job.backlog_ppm > 0 {
            if !self.backlog.take(job) {
                return self.blocks(job, now_ns);
            }
            self.unblock_writers(now_ns);
        }
        let program = &mut self.programs[job];
        let operation = program.operation(now_ns);
        if operation.writes && self.backlog.is_behind_by_more(program.job.stalls_bytes) {
            program.held = Some(operation);
            return self.blocks(job, now_ns);
        }
        self.begins(job, operation);
        false
    }

    /// Begins an operation.
    fn begins(&mut self, job: usize, operation: Operation) {
        let program = &mut self.programs[job];
        let write = operation.writes && !program.job.fetches;
        let request = Request { number: program.number, write, operation, ..Request::default() };
        let ns = self.costs.job_ns + program.cpu_ns(operation);
        program.number += u64::from(!operation.hit);
        program.outstanding += 1;
        program.burst += 1;
        let then = if operation.hit { Continuation::Has(job, request) } else { Continuation::Issues(job, request) };
        self.dispatch.push(program.task, Piece::Compute(ns), then);
    }

    /// Blocks the job on a backlog, and on its requests in progress, if any.
    fn blocks(&mut self, job: usize, now_ns: u64) -> bool {
        let yields = self.waits(job, now_ns);
        self.programs[job].blocked = self.programs[job].waits;
        yields
    }

    fn unblock(&mut self, job: usize, now_ns: u64) {
        (self.programs[job].waits, self.programs[job].blocked) = (false, false);
        self.wake(job, now_ns, work(self.costs.switch_ns / 2), Continuation::GoesOn(job), false);
    }

    /// After work of a backlog was taken: unblocks writes held for it.
    fn unblock_writers(&mut self, now_ns: u64) {
        for job in 0..self.programs.len() {
            let program = &self.programs[job];
            let held = program.blocked && program.held.is_some();
            if held && !self.backlog.is_behind_by_more(program.job.stalls_bytes) {
                self.unblock(job, now_ns);
            }
        }
    }

    /// After a completed write: starts jobs for which a whole request is now due.
    fn adds(&mut self, bytes: u32, now_ns: u64) {
        self.backlog.add(bytes);
        for at in 0..self.backlog.shares() {
            let job = self.backlog.job(at);
            if self.programs[job].blocked && self.programs[job].held.is_none() && self.backlog.is_due(at) {
                self.unblock(job, now_ns);
            }
        }
    }

    /// Pauses if a pause is due and no request is in progress.
    fn thinks(&mut self, job: usize, now_ns: u64) -> bool {
        let program = &mut self.programs[job];
        if !program.burst_over() || program.outstanding > 0 {
            return false;
        }
        program.burst = 0;
        let (spin_ns, think_ns, task) = (program.job.think_spin_ns, program.job.think_ns, program.task);
        if spin_ns > 0 {
            self.dispatch.push(task, Piece::Compute(spin_ns), Continuation::Nothing);
        }
        self.push(now_ns + think_ns.max(spin_ns), JobEvent::Begins(job));
        true
    }

    /// Continues a job after a submission: it waits if it has no other work.
    pub(super) fn submitted(&mut self, job: usize, now_ns: u64) -> bool {
        let program = &self.programs[job];
        if program.ready.is_empty() && !program.may_submit() {
            return self.waits(job, now_ns);
        }
        self.dispatch.push(program.task, work(0), Continuation::GoesOn(job));
        true
    }

    /// Waits for a completion, or handles the remaining ones.
    fn waits(&mut self, job: usize, now_ns: u64) -> bool {
        let handled_here = !self.dispatch.is_asleep(self.handlers[self.dispatch.cpu_of(self.programs[job].task)]);
        let program = &mut self.programs[job];
        // A raised interrupt is handled before it goes to sleep.
        let interrupted = handled_here && program.pending > 0;
        if interrupted || !program.ready.is_empty() {
            self.dispatch.push(program.task, work(0), Continuation::GoesOn(job));
            return true;
        }
        program.waits = true;
        let (task, spins) = (program.task, program.job.method.spins());
        if !spins {
            self.switches(now_ns);
            self.dispatch.push(task, work(self.costs.switch_ns / 2), Continuation::Nothing);
        }
        false
    }

    pub(super) fn switches(&mut self, now_ns: u64) {
        if let Some(stretch) = self.stretch(now_ns) {
            stretch.switches += 1;
        }
    }

    pub(super) fn looks(&mut self, job: usize, request: Request, found_ns: u64) {
        let more_ns = self.costs.look_ns / 2;
        self.dispatch.push(
            self.programs[job].task,
            Piece::Look { found_ns, more_ns },
            Continuation::Found(job, request),
        );
    }

    /// Records a latency; hybrid polling sleeps for half of the mean.
    fn was_away(&mut self, job: usize, request: Request) {
        if let (Some(awake_ns), Some(done_ns)) = (self.programs[job].awake_ns, self.programs[job].done_ns) {
            self.away.0 += 1;
            self.away.1 += awake_ns.max(done_ns) - request.left_ns;
        }
    }

    /// Records the completion time of a command.
    pub(super) fn will_be_done(&mut self, job: usize, request: Request, done_ns: u64) {
        let commands = self.split(job).commands();
        let program = &mut self.programs[job];
        // A drive works on the commands of a request together, so they end together. Polling finds the last; other methods handle each
        // ([`Self::handled`]).
        let Some(done_ns) = program.tally.done(request.number, commands, done_ns) else { return };
        match program.job.method {
            IoMethod::Classic => self.dispatch.found(program.task, done_ns),
            IoMethod::Hybrid => {
                program.done_ns = Some(done_ns);
                if program.awake_ns.is_some() {
                    self.dispatch.found(program.task, done_ns);
                    self.was_away(job, request);
                }
            }
            _ => (0..commands).for_each(|_| self.push(done_ns, JobEvent::Done(job, request))),
        }
    }

    /// Handles a command's completion in the kernel; the job continues after the request's last command.
    fn handled(&mut self, job: usize, request: Request, now_ns: u64) -> bool {
        let commands = self.split(job).commands();
        let program = &mut self.programs[job];
        program.pending = program.pending.saturating_sub(1);
        if program.handled.done(request.number, commands, now_ns).is_none() {
            return false;
        }
        program.ready.push_back(request);
        if std::mem::take(&mut program.helper_is_busy) {
            self.call_by_helper(job, now_ns);
        }
        let program = &mut self.programs[job];
        if std::mem::take(&mut program.waits) {
            let ns = if program.job.method.spins() { 0 } else { self.costs.switch_ns / 2 };
            self.wake(job, now_ns, work(ns), Continuation::GoesOn(job), true);
        }
        false
    }

    /// The program has received a result.
    fn taken(&mut self, job: usize, request: Request, now_ns: u64, shared: &mut Shared<'_>) {
        let measured = (self.measured_ns.0..self.measured_ns.1).contains(&now_ns);
        let name = self.name_of(job, request.number);
        let program = &mut self.programs[job];
        program.outstanding -= 1;
        program.free_ns = Some(now_ns);
        let (bytes, adds, operation) = (u64::from(program.job.bytes), program.job.adds, request.operation);
        self.jobs.operations[job] += u64::from(measured);
        if measured && program.job.is_client() {
            let of = if operation.writes { &mut self.jobs.client_writes } else { &mut self.jobs.client_reads };
            of.record(now_ns - operation.began_ns);
        }
        if operation.writes && adds > 0 {
            self.adds(adds, now_ns);
        }
        if operation.hit {
            return;
        }
        let latency_ns = now_ns - request.issued_ns;
        shared.recorder.note(now_ns, RecordKind::Received, name, latency_ns);
        self.jobs.requests.answered += 1;
        if measured {
            let of = if request.write { &mut self.jobs.writes } else { &mut self.jobs.reads };
            of.record(latency_ns);
            self.jobs.latency_ns[job] += latency_ns;
        }
        if let Some(stretch) = self.stretch(now_ns) {
            stretch.requests += 1;
            stretch.latency_ns += latency_ns;
            *(if request.write { &mut stretch.written_bytes } else { &mut stretch.read_bytes }) += bytes;
        }
    }
}
