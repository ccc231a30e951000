//! What all cores share: I/O threads, requests in progress, and what they have handed to drives, network and each other.

use pilotlight_plant::{Arrivals, CompletionMode};

use super::background::{self, Background};
use super::caps::Caps;
use super::due::{Due, Line};
use super::interrupts::Interrupts;
use super::md::Md;
use super::polls::Polls;
use super::quota::Pool;
use super::request::{Command, Job, Plan, Shape};
use crate::machine::{Machine, PollCosts};
use crate::scenario::Step;
use crate::trace::{Recorder, State, What};

/// An I/O thread.
#[derive(Debug)]
pub(crate) struct IoThread {
    mode: CompletionMode,
    /// Where it is to live; where it lives is in the ring of a core.
    pub(crate) destination: u16,
    /// How often it has been ordered elsewhere: an order that was overtaken by another counts for nothing.
    pub(crate) orders: u32,
    /// The core in whose ring it is; `None` on its way.
    pub(crate) home: Option<u16>,
    /// Requests at its network queue: since when, which.
    received: Line<(u64, u32)>,
    /// Commands that drives have completed or will have: when, which request by number and by place.
    completed: Due<(u64, u64, u32)>,
    pub(crate) polled: u64,
    pub(crate) answered: u64,
    pub(crate) busy_ns: u64,
    pub(crate) in_progress: u64,
    in_progress_ns: u64,
    since_ns: u64,
    /// When the requests in progress came, while it waits by hybrid polling.
    arrivals: Box<Arrivals>,
    /// Requests polled when that was last noted.
    noted: u64,
}

impl IoThread {
    pub(crate) fn new(home: u16) -> Self {
        Self {
            mode: CompletionMode::Poll,
            destination: home,
            orders: 0,
            home: Some(home),
            received: Line::new(),
            completed: Due::new(),
            polled: 0,
            answered: 0,
            busy_ns: 0,
            in_progress: 0,
            in_progress_ns: 0,
            since_ns: 0,
            arrivals: Box::default(),
            noted: 0,
        }
    }

    fn due_ns(&self) -> u64 {
        let received = self.received.first().map_or(u64::MAX, |&(at_ns, _)| at_ns);
        let completed = self.completed.first().map_or(u64::MAX, |&(at_ns, ..)| at_ns);
        received.min(completed)
    }

    /// When it next has a packet, and a completion.
    pub(crate) fn comes_ns(&self) -> (u64, u64) {
        let received = self.received.first().map_or(u64::MAX, |&(at_ns, _)| at_ns);
        (received, self.completed.first().map_or(u64::MAX, |&(at_ns, ..)| at_ns))
    }

    /// Whether it does not wait by interrupts.
    pub(crate) fn is_polled(&self) -> bool {
        self.mode != CompletionMode::Interrupt
    }

    pub(crate) fn how(&self) -> CompletionMode {
        self.mode
    }

    /// It waits in this way from now on.
    pub(crate) fn set_how(&mut self, mode: CompletionMode) {
        if !matches!(self.mode, CompletionMode::Hybrid { .. }) {
            (*self.arrivals, self.noted) = (Arrivals::default(), self.polled);
        }
        self.mode = mode;
    }

    /// Hybrid polling: after a poll that began at `now_ns`.
    #[cold]
    fn note_arrivals(&mut self, now_ns: u64) {
        let requests = self.polled - std::mem::replace(&mut self.noted, self.polled);
        self.arrivals.note(now_ns, requests as u32, self.in_progress as u32);
    }

    /// How long it may be left alone, by the way in which it waits.
    pub(crate) fn rest_ns(&self, now_ns: u64) -> Option<u64> {
        self.mode.rest_ns(self.arrivals.oldest_ns(), now_ns)
    }

    /// Requests in progress, integrated until `now_ns`.
    pub(crate) fn in_progress_ns(&mut self, now_ns: u64) -> u64 {
        self.in_progress_ns += self.in_progress * now_ns.saturating_sub(self.since_ns);
        self.since_ns = self.since_ns.max(now_ns);
        self.in_progress_ns
    }
}

/// A command on its way to a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Submission {
    pub(crate) at_ns: u64,
    pub(crate) core: u16,
    pub(crate) number: u32,
    pub(crate) job: u32,
    pub(crate) part: u8,
    pub(crate) write: bool,
    pub(crate) bytes: u32,
}

impl Submission {
    #[inline]
    pub(crate) fn command(&self) -> Command {
        Command { at_ns: self.at_ns, part: self.part, write: self.write, bytes: self.bytes }
    }
}

/// An answer on its way to the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Answer {
    pub(crate) at_ns: u64,
    pub(crate) core: u16,
    pub(crate) number: u32,
    pub(crate) job: u32,
}

/// A core is in another state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// When.
    pub(crate) at_ns: u64,
    /// Which.
    pub(crate) state: State,
    /// How long the hardware takes to leave the state before; it works after that.
    pub(crate) exit_ns: u64,
}

/// A message from one core to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) at_ns: u64,
    pub(crate) say: Say,
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Say {
    /// This I/O thread is to leave, by this order.
    Give(u16, u32),
    /// Here is an I/O thread.
    Take(u16),
    /// Sleep when you have none, deep or not; how long the way back takes.
    Sleep { deep: bool, exit_ns: u64 },
    /// Be awake.
    Wake,
    /// Be off when you have no I/O thread; how long the way back takes.
    Leave { exit_ns: u64 },
    /// Be part of the system again.
    Return,
}

/// An order to a drive.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DriveOrder {
    /// To work in this power state.
    PowerState(usize),
    /// To enter by itself only idle states from which it comes back within this time.
    WakeLimitNs(u64),
}

pub(crate) struct Floor<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) plans: Vec<Plan<'a>>,
    /// What a poll step costs that finds nothing.
    pub(crate) empty_step_ns: u32,
    pub(crate) threads: Vec<IoThread>,
    /// When each thread next has something to do, as far as is known.
    pub(crate) due_ns: Vec<u64>,
    jobs: Vec<Job>,
    unused: Vec<u32>,
    pub(crate) submissions: Vec<Submission>,
    pub(crate) answers: Vec<Answer>,
    /// Messages not yet delivered: to which core, what.
    pub(crate) mail: Vec<(u16, Message)>,
    /// I/O threads that are not where they are to be.
    pub(crate) moving: u32,
    /// Bandwidth that namespaces and hosts may use.
    pub(crate) caps: Caps,
    /// What cores take for I/O threads that wait by interrupts.
    pub(crate) interrupts: Interrupts,
    /// What I/O threads do without a request.
    pub(crate) background: Background,
    /// CPU time that workers may use.
    pub(crate) quota: Pool,
    /// What drives are ordered, in the order of time: when, which drive, what.
    pub(crate) drive_orders: Vec<(u64, u16, DriveOrder)>,
    /// When a core last changed its state.
    pub(crate) changed_ns: u64,
    /// When the policy is to be asked next; the main core stops there.
    pub(crate) ask_ns: u64,
    pub(crate) switches: u64,
    /// Of submissions and answers: those of a core leave in this order.
    numbers: u32,
    /// Times between two polls, where they are measured: only in a run that walks through every loop.
    pub(crate) polls: Option<Polls>,
    pub(crate) recorder: Recorder<'a>,
}

impl<'a> Floor<'a> {
    pub(crate) fn new(
        machine: &'a Machine,
        plans: Vec<Plan<'a>>,
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
            mail: Vec::new(),
            moving: 0,
            caps: Caps::new(queues as usize, hosts),
            interrupts: Interrupts::new(machine.kernel, cores, threads.len()),
            threads,
            background: Background::default(),
            quota: Pool::new(machine.limits.quota_slice_ns),
            drive_orders: Vec::new(),
            changed_ns: 0,
            ask_ns: u64::MAX,
            switches: 0,
            numbers: 0,
            polls: None,
            recorder,
        }
    }

    /// A request is at the target's network card.
    #[inline(always)]
    pub(crate) fn arrive(&mut self, at_ns: u64, job: Job) {
        let thread = usize::from(job.thread);
        self.recorder.note(at_ns, What::Arrived, job.name(), u64::from(job.thread));
        let place = self.place(job);
        self.threads[thread].received.push((at_ns, place));
        let due = &mut self.due_ns[thread];
        *due = (*due).min(at_ns);
    }

    /// A request that has arrived is there for its I/O thread, once an interrupt has been taken.
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

    /// A drive will have completed a command.
    #[inline(always)] // into the hot path; the compiler else calls it, and what it calls, because of its second caller
    pub(crate) fn complete(&mut self, at_ns: u64, thread: u16, name: u64, place: u32) {
        let thread = usize::from(thread);
        self.threads[thread].completed.push((at_ns, name, place));
        let due = &mut self.due_ns[thread];
        *due = (*due).min(at_ns);
    }

    /// The same, where a call costs nothing that counts: of background I/O, and after interrupts.
    #[cold]
    #[inline(never)]
    pub(crate) fn complete_beside(&mut self, at_ns: u64, thread: u16, name: u64, place: u32) {
        self.complete(at_ns, thread, name, place);
    }

    /// Whether a command goes through md's thread.
    pub(crate) fn goes_through(&self, md: &Md, submission: &Submission) -> bool {
        submission.job < background::FIRST && md.handles(self.job(submission.job).connection)
    }

    #[inline]
    pub(crate) fn job(&self, place: u32) -> &Job {
        &self.jobs[place as usize]
    }

    /// The host has its answer.
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

/// Nanoseconds at full speed as nanoseconds at a core's speed.
#[inline]
pub(crate) fn scaled(cost_ns: u32, factor: u32) -> u64 {
    (u64::from(cost_ns) * u64::from(factor)) >> 16
}

/// Where and when a poll step is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) core: u16,
    pub(crate) now_ns: u64,
    /// Cost of a nanosecond at full speed, in 1/65536.
    pub(crate) factor: u32,
}

/// One poll step of one I/O thread: it sees what is there at `now_ns`; its answers and commands leave as the time for them has been
/// spent. It borrows the parts of the floor one by one, so that its thread is looked up once.
struct PollStep<'f, 'a> {
    at: At,
    costs: &'f PollCosts,
    plans: &'f [Plan<'a>],
    io: &'f mut IoThread,
    jobs: &'f mut [Job],
    submissions: &'f mut Vec<Submission>,
    answers: &'f mut Vec<Answer>,
    recorder: &'f mut Recorder<'a>,
    numbers: &'f mut u32,
    background: &'f mut Background,
    /// What it has spent so far, at full speed.
    cost_ns: u32,
    /// What its way of waiting adds to a request.
    extra_ns: u32,
}

impl Floor<'_> {
    /// A poll step of a thread that has something to do; how long it takes.
    #[inline(never)] // once, with all that it calls inside; the compiler else shares parts of it, at 69 instructions a request
    pub(crate) fn poll(&mut self, thread: u16, at: At) -> u64 {
        let Self { machine, plans, threads, jobs, submissions, answers, recorder, due_ns, background, .. } = self;
        let io = &mut threads[usize::from(thread)];
        let extra_ns = if io.mode == CompletionMode::Interrupt { machine.kernel.request_ns } else { 0 };
        let (costs, cost_ns) = (&machine.poll, self.empty_step_ns);
        io.in_progress_ns(at.now_ns);
        let numbers = &mut self.numbers;
        let mut step = PollStep {
            at,
            costs,
            plans,
            io,
            jobs,
            submissions,
            answers,
            recorder,
            numbers,
            background,
            cost_ns,
            extra_ns,
        };
        step.receive();
        step.complete();
        let PollStep { io, cost_ns, background, .. } = step; // whose address is never taken, so that it lies in registers
        if matches!(io.mode, CompletionMode::Hybrid { .. }) {
            io.note_arrivals(at.now_ns);
        }
        if !background.is_empty() {
            return self.start_background(thread, at, cost_ns);
        }
        let took_ns = scaled(cost_ns, at.factor);
        io.busy_ns += took_ns;
        due_ns[usize::from(thread)] = io.due_ns();
        took_ns
    }

    /// The end of a poll step that has spent `cost_ns` so far, at full speed, where there is background work: what a thread without requests
    /// starts of it, and when it is due again. How long the step takes.
    #[cold]
    #[inline(never)]
    fn start_background(&mut self, thread: u16, at: At, mut cost_ns: u32) -> u64 {
        while self.threads[usize::from(thread)].in_progress == 0 {
            let Some(begun) = self.background.begin(thread, at.now_ns) else { break };
            let background::Begun { number: job, write, bytes } = begun;
            cost_ns += self.machine.poll.submit_ns;
            self.numbers = self.numbers.wrapping_add(1);
            let (at_ns, core, number) = (at.now_ns + scaled(cost_ns, at.factor), at.core, self.numbers);
            self.submissions.push(Submission { at_ns, core, number, job, part: 0, write, bytes });
        }
        let took_ns = scaled(cost_ns, at.factor);
        self.threads[usize::from(thread)].busy_ns += took_ns;
        self.wait_for_background(thread);
        took_ns
    }

    /// A thread is due for background work too.
    fn wait_for_background(&mut self, thread: u16) {
        let io = &self.threads[usize::from(thread)];
        let free_ns = if io.in_progress == 0 { self.background.due_ns(thread) } else { u64::MAX };
        self.due_ns[usize::from(thread)] = io.due_ns().min(free_ns);
    }

    /// Background work begins, or has another rate.
    pub(crate) fn look_at_background(&mut self) {
        self.background.threads().for_each(|thread| self.wait_for_background(thread));
    }
}

impl PollStep<'_, '_> {
    #[inline]
    fn spend(&mut self, cost_ns: u32) -> u64 {
        self.cost_ns += cost_ns;
        self.at.now_ns + scaled(self.cost_ns, self.at.factor)
    }

    #[inline(always)]
    fn receive(&mut self) {
        let now_ns = self.at.now_ns;
        for _ in 0..self.costs.batch {
            let Some((_, place)) = self.io.received.pop_if(|&(at_ns, _)| at_ns <= now_ns) else { break };
            self.io.polled += 1;
            self.io.in_progress += 1;
            self.spend(self.costs.receive_ns + self.extra_ns);
            let job = &self.jobs[place as usize];
            self.recorder.note(now_ns, What::Polled, job.name(), u64::from(self.at.core));
            if job.shape == Shape::Steps {
                self.begin_step(place);
            } else {
                let Job { write, bytes, .. } = *job;
                self.submit(place, 0, write, bytes);
            }
        }
    }

    #[inline(always)]
    fn complete(&mut self) {
        let now_ns = self.at.now_ns;
        for _ in 0..self.costs.batch {
            let Some((_, _, place)) = self.io.completed.pop_if(|&(at_ns, ..)| at_ns <= now_ns) else { break };
            self.spend(self.costs.complete_ns);
            if place >= background::FIRST {
                let data_ns = self.background.end(place);
                self.spend(data_ns);
                continue;
            }
            let job = &mut self.jobs[place as usize];
            job.left -= 1;
            if job.shape != Shape::Steps {
                self.answer(place);
            } else if job.left == 0 {
                job.step += 1;
                self.begin_step(place);
            }
        }
    }

    /// The commands of a request's next step, or its answer.
    #[inline(always)] // a call would need the whole step in memory
    fn begin_step(&mut self, place: u32) {
        let Job { connection, step, .. } = self.jobs[place as usize];
        match self.plans[connection as usize].step(step) {
            Some(step) => self.commands(place, step),
            None => self.answer(place),
        }
    }

    #[inline(always)]
    fn commands(&mut self, place: u32, step: Step) {
        self.spend(step.parity_kib * self.costs.parity_ns_per_kib);
        for part in 0..step.reads + step.writes {
            self.submit(place, part, part >= step.reads, step.bytes);
        }
    }

    #[inline(always)]
    fn submit(&mut self, place: u32, part: u8, write: bool, bytes: u32) {
        let at_ns = self.spend(self.costs.submit_ns);
        self.jobs[place as usize].left += 1;
        let number = self.next_number();
        self.submissions.push(Submission { at_ns, core: self.at.core, number, job: place, part, write, bytes });
    }

    #[inline(always)]
    fn answer(&mut self, place: u32) {
        let at_ns = self.spend(self.costs.respond_ns);
        self.io.answered += 1;
        self.io.in_progress -= 1;
        let number = self.next_number();
        self.answers.push(Answer { at_ns, core: self.at.core, number, job: place });
        self.recorder.note(at_ns, What::Answered, self.jobs[place as usize].name(), u64::from(self.at.core));
    }

    #[inline]
    fn next_number(&mut self) -> u32 {
        *self.numbers = self.numbers.wrapping_add(1);
        *self.numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_hybrid_polling_each_request_has_its_own_rest() {
        let mut io = IoThread::new(0);
        (io.polled, io.in_progress) = (5, 2);
        io.set_how(CompletionMode::Hybrid { idle_ns: 10, rest_ns: 50 });
        let mut after_poll = |now_ns, polled, in_progress| {
            (io.polled, io.in_progress) = (polled, in_progress);
            io.note_arrivals(now_ns);
            io.rest_ns(now_ns)
        };
        assert_eq!(after_poll(100, 5, 2), Some(50), "requests that were there before count from now");
        assert_eq!(after_poll(140, 6, 3), Some(10));
        assert_eq!(after_poll(160, 6, 3), Some(0), "the oldest is polled for");
        assert_eq!(after_poll(170, 6, 1), Some(20), "the one of 140 is left alone until 190");
        assert_eq!(after_poll(200, 6, 0), Some(10));
    }
}
