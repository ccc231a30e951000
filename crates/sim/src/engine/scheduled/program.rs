//! What a job does next: pieces of work for the processor, by the way in which its requests are had done.
//!
//! | way | on the way in | until it is done | on the way back |
//! |---|---|---|---|
//! | interrupt | the call, half a switch | asleep | interrupt, half a switch |
//! | classic polling | the call | looking | half a look, the end of the call |
//! | hybrid polling | the call with a timer, half a switch | asleep for half of the mean, then looking | as classic |
//! | `io_uring` polled | a ring; a worker calls | looking | the worker completes |
//! | SPDK | no call | looking | nothing |
//! | `posixaio` | handed to a helper thread, which makes a call for one after the other | asleep | interrupt, half a switch |
//!
//! A request of more bytes than a command may have is cut ([`super::split`]): the submitter goes on with its next command, each is completed
//! on its own (an interrupt, or a further look), and who waits for the request goes on once the last one is.
//!
//! Which requests are in progress, and when a job thinks, is as in fio: `think_after` requests, then a rest once they are all back. A job
//! that can go on lets others of its core go first after each request.

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
    /// Which of its commands.
    pub(super) command: u32,
    pub(super) operation: Operation,
}

/// What a request is for; an operation of a client may need none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Operation {
    began_ns: u64,
    writes: bool,
    hit: bool,
}

/// What happens to a job from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum JobEvent {
    /// It begins, or goes on after a rest.
    Begins(usize),
    /// The drive has done a request.
    Done(usize, Request),
    /// It slept before it looks, and a timer wakes it.
    Timer(usize, Request),
    /// A request that waited in the scheduler's queue, of a core, goes to its drive.
    Dispatched(usize, u16, Request),
}

impl JobEvent {
    pub(super) fn job(&self) -> usize {
        match self {
            Self::Begins(job) | Self::Done(job, _) | Self::Timer(job, _) | Self::Dispatched(job, ..) => *job,
        }
    }
}

/// What a piece leads to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Continuation {
    /// Nothing: it sleeps, if it has nothing else to do.
    Nothing,
    /// It looks what there is to do.
    GoesOn(usize),
    /// It submits from now on.
    Issues(usize, Request),
    /// The request leaves the program.
    Leaves(usize, Request),
    /// It leaves whoever submits for it, or has the scheduler's lock.
    Submits(usize, Request, bool),
    /// The interrupt of a request has been handled, or its worker is done.
    Handled(usize, Request),
    /// It is awake, and looks.
    Spins(usize, Request),
    /// It has seen that the request is done.
    Found(usize, Request),
    /// And has the answer.
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
    /// What is left of requests that were cut.
    tally: Tally,
    waits: bool,
    /// It waits for a backlog: for something to do, or to write the operation that it holds.
    blocked: bool,
    held: Option<Operation>,
    /// When an operation ended that no other has followed: the next begins then, whenever it has the processor.
    free_ns: Option<u64>,
    /// Interrupts of its requests that have come and are not handled.
    pending: u32,
    /// Submitted since it rested last.
    burst: u32,
    number: u64,
    draws: Stream,
    /// Of the request that it looks for: since when it looks, and when it is done, as far as is known.
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

    /// The next operation: the one that it holds, or another.
    fn operation(&mut self, now_ns: u64) -> Operation {
        if let Some(held) = self.held.take() {
            return held;
        }
        let writes = self.draws.below(1_000_000) < u64::from(self.job.writes_ppm);
        let hits_ppm = if writes { self.job.write_hits_ppm } else { self.job.hits_ppm };
        let hit = self.job.bytes == 0 || (hits_ppm > 0 && self.draws.below(1_000_000) < u64::from(hits_ppm));
        Operation { began_ns: self.free_ns.take().unwrap_or(now_ns), writes, hit }
    }

    /// Processor time of an operation.
    fn cpu_ns(&self, operation: Operation) -> u64 {
        self.job.write_cpu_ns.filter(|_| operation.writes).unwrap_or(self.job.cpu_ns)
    }

    /// Whether it may have one more request in progress.
    fn may_submit(&self) -> bool {
        let depth = if self.job.method.is_synchronous() { 1 } else { self.job.depth };
        self.outstanding < depth && !self.burst_over()
    }
}

impl Scheduled {
    /// A piece has ended; whether its task lets others of its class go first.
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

    /// Something happens to a job.
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

    /// An interrupt, or one more request for a handler that is at work.
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

    /// It waits for a backlog, and for requests in progress if it has any.
    fn blocks(&mut self, job: usize, now_ns: u64) -> bool {
        let yields = self.waits(job, now_ns);
        self.programs[job].blocked = self.programs[job].waits;
        yields
    }

    fn unblock(&mut self, job: usize, now_ns: u64) {
        (self.programs[job].waits, self.programs[job].blocked) = (false, false);
        self.wake(job, now_ns, work(self.costs.switch_ns / 2), Continuation::GoesOn(job), false);
    }

    /// Some of a backlog was taken: who held a write for it may go on.
    fn unblock_writers(&mut self, now_ns: u64) {
        for job in 0..self.programs.len() {
            let program = &self.programs[job];
            let held = program.blocked && program.held.is_some();
            if held && !self.backlog.is_behind_by_more(program.job.stalls_bytes) {
                self.unblock(job, now_ns);
            }
        }
    }

    /// A write has ended: who has a whole request to do of what it adds begins.
    fn adds(&mut self, bytes: u32, now_ns: u64) {
        self.backlog.add(bytes);
        for at in 0..self.backlog.shares() {
            let job = self.backlog.job(at);
            if self.programs[job].blocked && self.programs[job].held.is_none() && self.backlog.is_due(at) {
                self.unblock(job, now_ns);
            }
        }
    }

    /// Rests where it is time to, and everything it has submitted is back.
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

    /// What a job does once a request is on its way: it waits if there is nothing else to do.
    pub(super) fn submitted(&mut self, job: usize, now_ns: u64) -> bool {
        let program = &self.programs[job];
        if program.ready.is_empty() && !program.may_submit() {
            return self.waits(job, now_ns);
        }
        self.dispatch.push(program.task, work(0), Continuation::GoesOn(job));
        true
    }

    /// Nothing to do until something is done, or the rest of what is done.
    fn waits(&mut self, job: usize, now_ns: u64) -> bool {
        let handled_here = !self.dispatch.is_asleep(self.handlers[self.dispatch.cpu_of(self.programs[job].task)]);
        let program = &mut self.programs[job];
        // An interrupt that has come for it is taken before it goes to sleep.
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

    /// Half of this is how long others sleep.
    fn was_away(&mut self, job: usize, request: Request) {
        if let (Some(awake_ns), Some(done_ns)) = (self.programs[job].awake_ns, self.programs[job].done_ns) {
            self.away.0 += 1;
            self.away.1 += awake_ns.max(done_ns) - request.left_ns;
        }
    }

    /// It is known when a drive will have done a command.
    pub(super) fn will_be_done(&mut self, job: usize, request: Request, done_ns: u64) {
        let commands = self.split(job).commands();
        let program = &mut self.programs[job];
        // Who looks at the queue has the request with its last command; all others hear of each ([`Self::handled`]).
        let looks = matches!(program.job.method, IoMethod::Classic | IoMethod::Hybrid);
        let all_ns = if looks { program.tally.done(request.number, commands, done_ns) } else { Some(done_ns) };
        let Some(done_ns) = all_ns else { return };
        match program.job.method {
            IoMethod::Classic => self.dispatch.found(program.task, done_ns),
            IoMethod::Hybrid => {
                program.done_ns = Some(done_ns);
                if program.awake_ns.is_some() {
                    self.dispatch.found(program.task, done_ns);
                    self.was_away(job, request);
                }
            }
            _ => self.push(done_ns, JobEvent::Done(job, request)),
        }
    }

    /// The kernel has the end of a command for a job, which goes on if that was the request's last.
    fn handled(&mut self, job: usize, request: Request, now_ns: u64) -> bool {
        let commands = self.split(job).commands();
        let program = &mut self.programs[job];
        program.pending = program.pending.saturating_sub(1);
        if program.tally.done(request.number, commands, now_ns).is_none() {
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

    /// The program has an answer.
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
