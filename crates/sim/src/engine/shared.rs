//! State shared by all cores: I/O threads, requests in progress, submissions, answers and messages.

use pilotlight_plant::{Arrivals, CompletionMode, LongRound};

use super::background::{self, Background};
use super::caps::Caps;
use super::due::{DueQueue, Fifo};
use super::interrupts::{Interrupt, Interrupts, NETWORK};
use super::md::Md;
use super::polls::Polls;
use super::quota::QuotaPool;
use super::request::{Job, RequestTemplate, Shape, Submission};
use crate::machine::Machine;
use crate::trace::{RecordKind, Recorder, State};

/// An I/O thread.
#[derive(Debug)]
pub(crate) struct IoThread {
    pub(super) mode: CompletionMode,
    /// Its assigned core; its present core has it in the ring.
    pub(crate) destination: u16,
    /// Number of moves commanded: a superseded move has no effect.
    pub(crate) orders: u32,
    /// The core in whose ring it is; `None` while it moves.
    pub(crate) home: Option<u16>,
    /// Received requests: arrival time and slot.
    pub(super) received: Fifo<(u64, u32)>,
    /// Past and future completions: time, request name and slot.
    pub(super) completed: DueQueue<(u64, u64, u32)>,
    pub(crate) polled: u64,
    pub(crate) answered: u64,
    pub(crate) busy_ns: u64,
    pub(crate) in_progress: u64,
    in_progress_ns: u64,
    since_ns: u64,
    /// Arrival times under hybrid polling.
    arrivals: Box<Arrivals>,
    /// Value of `polled` at the last update of `arrivals`.
    noted: u64,
    /// Value of `polled` when last asked whether it has received requests.
    seen: u64,
}

impl IoThread {
    pub(crate) fn new(home: u16) -> Self {
        Self {
            mode: CompletionMode::Poll,
            destination: home,
            orders: 0,
            home: Some(home),
            received: Fifo::new(),
            completed: DueQueue::new(),
            polled: 0,
            answered: 0,
            busy_ns: 0,
            in_progress: 0,
            in_progress_ns: 0,
            since_ns: 0,
            arrivals: Box::default(),
            noted: 0,
            seen: 0,
        }
    }

    /// Whether it has received requests since this was last asked.
    pub(crate) fn has_received(&mut self) -> bool {
        std::mem::replace(&mut self.seen, self.polled) != self.polled
    }

    #[inline]
    pub(super) fn due_ns(&self) -> u64 {
        let received = self.received.first().map_or(u64::MAX, |&(at_ns, _)| at_ns);
        let completed = self.completed.first().map_or(u64::MAX, |&(at_ns, ..)| at_ns);
        received.min(completed)
    }

    /// Times of the next packet and the next completion.
    pub(crate) fn comes_ns(&self) -> (u64, u64) {
        let received = self.received.first().map_or(u64::MAX, |&(at_ns, _)| at_ns);
        (received, self.completed.first().map_or(u64::MAX, |&(at_ns, ..)| at_ns))
    }

    /// Whether it is not in interrupt mode.
    pub(crate) fn is_polled(&self) -> bool {
        self.mode != CompletionMode::Interrupt
    }

    pub(crate) fn how(&self) -> CompletionMode {
        self.mode
    }

    /// Sets the completion mode.
    pub(crate) fn set_how(&mut self, mode: CompletionMode) {
        if !matches!(self.mode, CompletionMode::Hybrid { .. }) {
            (*self.arrivals, self.noted) = (Arrivals::default(), self.polled);
        }
        self.mode = mode;
    }

    /// Hybrid polling: after a poll that began at `now_ns`.
    #[cold]
    pub(super) fn note_arrivals(&mut self, now_ns: u64) {
        let requests = self.polled - std::mem::replace(&mut self.noted, self.polled);
        self.arrivals.note(now_ns, requests as u32, self.in_progress as u32);
    }

    /// Longest rest that its completion mode allows.
    pub(crate) fn rest_ns(&self, now_ns: u64) -> Option<u64> {
        self.mode.rest_ns(self.arrivals.oldest_ns(), now_ns)
    }

    /// Requests in progress, integrated until `now_ns`.
    #[inline]
    pub(crate) fn in_progress_ns(&mut self, now_ns: u64) -> u64 {
        self.in_progress_ns += self.in_progress * now_ns.saturating_sub(self.since_ns);
        self.since_ns = self.since_ns.max(now_ns);
        self.in_progress_ns
    }
}

/// A response to the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Answer {
    pub(crate) at_ns: u64,
    pub(crate) core: u16,
    pub(crate) number: u32,
    pub(crate) job: u32,
}

/// A change of a core's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// When.
    pub(crate) at_ns: u64,
    /// Which.
    pub(crate) state: State,
    /// Exit latency of the previous state.
    pub(crate) exit_ns: u64,
}

/// A message from one core to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) at_ns: u64,
    pub(crate) kind: MessageKind,
}

/// Content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// Send away this I/O thread, for this move.
    MoveOut(u16, u32),
    /// Take this I/O thread.
    MoveIn(u16),
    /// Sleep once there is no I/O thread.
    Sleep { deep: bool, exit_ns: u64 },
    /// Stay awake.
    Wake,
    /// Go offline once there is no I/O thread.
    Offline { exit_ns: u64 },
    /// Come back online.
    Online,
    /// To the main core: a core's rounds are long.
    LongRound(LongRound),
}

/// A setting of a drive.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DriveOrder {
    /// Operational power state.
    PowerState(usize),
    /// Longest wake-up time of idle states that it may enter autonomously.
    WakeLimitNs(u64),
}

pub(crate) struct Shared<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) plans: Vec<RequestTemplate<'a>>,
    /// Cost of an empty poll step.
    pub(crate) empty_step_ns: u32,
    pub(crate) threads: Vec<IoThread>,
    /// Earliest known event of each thread.
    pub(crate) due_ns: Vec<u64>,
    pub(super) jobs: Vec<Job>,
    unused: Vec<u32>,
    pub(crate) submissions: Vec<Submission>,
    pub(crate) answers: Vec<Answer>,
    /// Undelivered messages: core and message.
    pub(crate) messages: Vec<(u16, Message)>,
    /// Number of I/O threads not on their assigned core.
    pub(crate) moving: u32,
    /// Bandwidth that namespaces and hosts may use.
    pub(crate) caps: Caps,
    /// Interrupts that cores take for I/O threads.
    pub(crate) interrupts: Interrupts,
    /// Background work.
    pub(crate) background: Background,
    /// CPU time quota of workers.
    pub(crate) quota: QuotaPool,
    /// Pending settings of drives in order of time: time, drive, setting.
    pub(crate) drive_orders: Vec<(u64, u16, DriveOrder)>,
    /// Last change of any core's state.
    pub(crate) changed_ns: u64,
    /// The main core.
    pub(crate) main: u16,
    /// Next call of the policy; the main core stops there.
    pub(crate) policy_due_ns: u64,
    /// Idle timeout of the main core, after which it asks for a sleep of the whole server; `u64::MAX` for never.
    pub(crate) idle_timeout_ns: u64,
    /// Earliest time at which it asks, as a worker polls until then.
    pub(crate) ask_ns: u64,
    /// Idle timeout of a worker, after which it rests; `u64::MAX` for never.
    pub(crate) worker_idle_timeout_ns: u64,
    /// Length of a round from which on cores report it, and a report that the policy has not got; `u64::MAX` for never.
    pub(crate) round_ns: u64,
    pub(crate) long_round: Option<LongRound>,
    /// Longest wait of a core that has I/O threads; `u64::MAX` for no limit.
    pub(crate) wait_ns: u64,
    /// Time after its last requests in which a core does not wait, but rests; 0 for none.
    pub(crate) pause_ns: u64,
    /// Whether a core looks after each poll step with work for what interrupts its loop, and notes when it received requests.
    pub(crate) looks_at_steps: bool,
    /// Whether the main core may wait in the kernel for its own I/O threads, until the policy is due.
    pub(crate) main_waits: bool,
    /// Whether a request on a worker ends a sleep of the main core.
    pub(crate) wakes_main: bool,
    pub(crate) switches: u64,
    /// Sequence number of submissions and answers.
    pub(super) numbers: u32,
    /// Intervals between polls, only in a run without skipping.
    pub(crate) polls: Option<Polls>,
    pub(crate) recorder: Recorder<'a>,
}

impl<'a> Shared<'a> {
    pub(crate) fn new(
        machine: &'a Machine,
        plans: Vec<RequestTemplate<'a>>,
        queues: u32,
        cores: usize,
        threads: Vec<IoThread>,
        recorder: Recorder<'a>,
    ) -> Self {
        let (due_ns, hosts) = (vec![u64::MAX; threads.len()], plans.len());
        Self {
            machine,
            plans,
            empty_step_ns: machine.poll.thread_ns + machine.poll.queue_ns * queues,
            due_ns,
            jobs: Vec::new(),
            unused: Vec::new(),
            submissions: Vec::new(),
            answers: Vec::new(),
            messages: Vec::new(),
            moving: 0,
            caps: Caps::new(queues as usize, hosts),
            interrupts: Interrupts::new(machine.kernel, cores, threads.len()),
            threads,
            background: Background::default(),
            quota: QuotaPool::new(machine.limits.quota_slice_ns),
            drive_orders: Vec::new(),
            changed_ns: 0,
            main: 0,
            policy_due_ns: u64::MAX,
            idle_timeout_ns: u64::MAX,
            ask_ns: 0,
            worker_idle_timeout_ns: u64::MAX,
            round_ns: u64::MAX,
            long_round: None,
            wait_ns: u64::MAX,
            pause_ns: 0,
            looks_at_steps: machine.sockets.between_polls,
            main_waits: false,
            wakes_main: false,
            switches: 0,
            numbers: 0,
            polls: None,
            recorder,
        }
    }

    /// A request arrives at the target's network card.
    #[inline(always)]
    pub(crate) fn arrive(&mut self, at_ns: u64, job: Job) {
        let thread = usize::from(job.thread);
        self.recorder.note(at_ns, RecordKind::Arrived, job.name(), u64::from(job.thread));
        let place = self.place(job);
        self.threads[thread].received.push((at_ns, place));
        let due = &mut self.due_ns[thread];
        *due = (*due).min(at_ns);
    }

    /// Delivers an arrived request to its I/O thread after an interrupt.
    pub(crate) fn receive(&mut self, at_ns: u64, thread: u16, place: u32) {
        let thread = usize::from(thread);
        self.threads[thread].received.push((at_ns, place));
        self.due_ns[thread] = self.due_ns[thread].min(at_ns);
    }

    #[inline(always)]
    pub(crate) fn place(&mut self, job: Job) -> u32 {
        if let Some(place) = self.unused.pop() {
            self.jobs[place as usize] = job;
            return place;
        }
        self.jobs.push(job);
        (self.jobs.len() - 1) as u32
    }

    /// Schedules the completion of a command.
    #[inline(always)] // into the hot path; otherwise the compiler does not inline it and its callees, because of its second caller
    pub(crate) fn complete(&mut self, at_ns: u64, thread: u16, name: u64, place: u32) {
        let thread = usize::from(thread);
        self.threads[thread].completed.push((at_ns, name, place));
        let due = &mut self.due_ns[thread];
        *due = (*due).min(at_ns);
    }

    /// As [`Self::complete`], off the hot path: background I/O and interrupts.
    #[cold]
    #[inline(never)]
    pub(crate) fn complete_beside(&mut self, at_ns: u64, thread: u16, name: u64, place: u32) {
        self.complete(at_ns, thread, name, place);
    }

    /// Adds a request that has reached the network card.
    #[cold]
    #[inline(never)]
    pub(crate) fn arrive_by_interrupt(&mut self, at_ns: u64, job: Job) {
        let io = &self.threads[usize::from(job.thread)];
        if !self.interrupts.takes_packets() || io.how() != CompletionMode::Interrupt {
            return self.arrive(at_ns, job);
        }
        let home = io.destination;
        self.recorder.note(at_ns, RecordKind::Arrived, job.name(), u64::from(job.thread));
        let place = self.place(job);
        self.interrupts.add_packet(at_ns, job.thread, home, job.name(), place);
    }

    /// Adds the interrupt for a completion of a command that `core` submitted, if the drive interrupts.
    #[cold]
    #[inline(never)]
    pub(crate) fn complete_by_interrupt(
        &mut self,
        at_ns: u64,
        (drive, core): (u16, u16),
        thread: u16,
        name: u64,
        place: u32,
    ) {
        if !self.interrupts.takes_completions() || self.threads[usize::from(thread)].how() != CompletionMode::Interrupt
        {
            return self.complete_beside(at_ns, thread, name, place);
        }
        self.interrupts.add_completion(at_ns, (drive, core), thread, name, place);
    }

    /// Delivers an interrupt's event; its handler ran on `core` from `begins_ns` to `ends_ns`.
    pub(crate) fn taken(&mut self, core: u16, interrupt: &Interrupt, begins_ns: u64, ends_ns: u64) {
        let Interrupt { source, thread, name, place, .. } = *interrupt;
        let is_home = self.threads[usize::from(thread)].destination == core;
        let at_ns = ends_ns + if is_home { 0 } else { self.machine.kernel.ipi_ns };
        if source != NETWORK {
            return self.complete_beside(at_ns, thread, name, place);
        }
        while let Some(place) = self.interrupts.pop_packet(thread, begins_ns) {
            self.receive(at_ns, thread, place);
        }
    }

    /// Whether a command goes through md's thread.
    pub(crate) fn goes_through(&self, md: &Md, submission: &Submission) -> bool {
        submission.job < background::FIRST && md.handles(self.job(submission.job).connection)
    }

    #[inline]
    pub(crate) fn job(&self, place: u32) -> &Job {
        &self.jobs[place as usize]
    }

    /// Frees a request whose host has the response.
    #[inline]
    pub(crate) fn finish(&mut self, place: u32) -> Job {
        self.unused.push(place);
        let job = self.jobs[place as usize];
        if job.shape == Shape::Traced {
            self.plans[job.connection as usize].contents.forget(job.number);
        }
        job
    }
}

/// Converts nanoseconds at full speed to a core's speed.
#[inline]
pub(crate) fn scaled(cost_ns: u32, factor: u32) -> u64 {
    (u64::from(cost_ns) * u64::from(factor)) >> 16
}

/// Core, time and speed of a poll step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreTime {
    pub(crate) core: u16,
    pub(crate) now_ns: u64,
    /// Cost of a nanosecond at full speed, in 1/65536.
    pub(crate) factor: u32,
}

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;
