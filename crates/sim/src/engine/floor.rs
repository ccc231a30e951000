//! What all cores share: I/O threads, requests in progress, and what they have handed to drives, network and each other.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use pilotlight_plant::Completions;

use super::host::{Contents, Sent};
use crate::machine::Machine;
use crate::scenario::{Connection, Kind, Step, Traced};
use crate::ssd::Op;
use crate::trace::{Recorder, What};

/// An I/O thread.
#[derive(Debug)]
pub(crate) struct IoThread {
    pub(crate) how: Completions,
    /// Where it is to live; where it lives is in the ring of a core.
    pub(crate) destination: u16,
    /// How often it has been ordered elsewhere: an order that was overtaken by another counts for nothing.
    pub(crate) orders: u32,
    /// The core in whose ring it is; `None` on its way.
    pub(crate) home: Option<u16>,
    /// Requests at its network queue: since when, which.
    received: VecDeque<(u64, u32)>,
    /// Commands that drives have completed or will have: when, which request by number and by place.
    completed: BinaryHeap<Reverse<(u64, u64, u32)>>,
    pub(crate) polled: u64,
    pub(crate) answered: u64,
    pub(crate) busy_ns: u64,
    pub(crate) in_progress: u64,
    in_progress_ns: u64,
    since_ns: u64,
    /// When it got the first request in progress.
    first_ns: u64,
}

impl IoThread {
    pub(crate) fn new(home: u16) -> Self {
        Self {
            how: Completions::Poll,
            destination: home,
            orders: 0,
            home: Some(home),
            received: VecDeque::new(),
            completed: BinaryHeap::new(),
            polled: 0,
            answered: 0,
            busy_ns: 0,
            in_progress: 0,
            in_progress_ns: 0,
            since_ns: 0,
            first_ns: 0,
        }
    }

    fn due_ns(&self) -> u64 {
        let received = self.received.front().map_or(u64::MAX, |&(at_ns, _)| at_ns);
        let completed = self.completed.peek().map_or(u64::MAX, |&Reverse((at_ns, ..))| at_ns);
        received.min(completed)
    }

    /// How long it may be left alone, by the way in which it waits.
    pub(crate) fn rest_ns(&self, now_ns: u64) -> Option<u64> {
        self.how.rest_ns((self.in_progress > 0).then_some(self.first_ns), now_ns)
    }

    /// Requests in progress, integrated until `now_ns`.
    pub(crate) fn in_progress_ns(&mut self, now_ns: u64) -> u64 {
        self.in_progress_ns += self.in_progress * now_ns.saturating_sub(self.since_ns);
        self.since_ns = self.since_ns.max(now_ns);
        self.in_progress_ns
    }
}

/// A request in progress on the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) sent: Sent,
    pub(crate) thread: u16,
    step: u8,
    /// Commands of the present step that drives have not completed.
    left: u8,
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

/// An answer on its way to the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Answer {
    pub(crate) at_ns: u64,
    pub(crate) core: u16,
    pub(crate) number: u32,
    pub(crate) job: u32,
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
}

pub(crate) struct Floor<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) connections: &'a [Connection],
    pub(crate) contents: Vec<Contents>,
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
    /// When a core last changed its state.
    pub(crate) changed_ns: u64,
    /// When the policy is to be asked next; the main core stops there.
    pub(crate) ask_ns: u64,
    pub(crate) switches: u64,
    pub(crate) recorder: Recorder<'a>,
}

impl<'a> Floor<'a> {
    pub(crate) fn new(
        machine: &'a Machine,
        connections: &'a [Connection],
        contents: Vec<Contents>,
        queues: u32,
        threads: Vec<IoThread>,
        recorder: Recorder<'a>,
    ) -> Self {
        let due_ns = vec![u64::MAX; threads.len()];
        Self {
            machine,
            connections,
            contents,
            empty_step_ns: machine.poll.thread_ns + machine.poll.queue_ns * queues,
            threads,
            due_ns,
            jobs: Vec::new(),
            unused: Vec::new(),
            submissions: Vec::new(),
            answers: Vec::new(),
            mail: Vec::new(),
            moving: 0,
            changed_ns: 0,
            ask_ns: u64::MAX,
            switches: 0,
            recorder,
        }
    }

    /// A request is at the target's network card.
    pub(crate) fn arrive(&mut self, at_ns: u64, sent: Sent) {
        let thread = self.connections[sent.connection as usize].thread;
        let job = Job { sent, thread, step: 0, left: 0 };
        let place = match self.unused.pop() {
            Some(place) => {
                self.jobs[place as usize] = job;
                place
            }
            None => {
                self.jobs.push(job);
                (self.jobs.len() - 1) as u32
            }
        };
        self.recorder.note(at_ns, What::Arrived, name(&sent), u64::from(thread));
        self.threads[usize::from(thread)].received.push_back((at_ns, place));
        let due = &mut self.due_ns[usize::from(thread)];
        *due = (*due).min(at_ns);
    }

    /// A drive will have completed a command.
    pub(crate) fn complete(&mut self, at_ns: u64, job: u32) {
        let Job { sent, thread, .. } = self.jobs[job as usize];
        self.threads[usize::from(thread)].completed.push(Reverse((at_ns, name(&sent), job)));
        let due = &mut self.due_ns[usize::from(thread)];
        *due = (*due).min(at_ns);
    }

    pub(crate) fn job(&self, job: u32) -> &Job {
        &self.jobs[job as usize]
    }

    /// The host has its answer.
    pub(crate) fn finish(&mut self, job: u32) {
        self.unused.push(job);
        let sent = self.jobs[job as usize].sent;
        if self.connections[sent.connection as usize].request == Kind::Traced {
            self.contents[sent.connection as usize].forget(sent.number);
        }
    }
}

/// A request by connection and number.
pub(crate) fn name(sent: &Sent) -> u64 {
    (u64::from(sent.connection) << 40) | sent.number
}

/// One poll step of one I/O thread: it sees what is there at `now_ns`; its answers and commands leave as the time for them has been
/// spent.
pub(crate) struct PollStep<'f, 'a> {
    floor: &'f mut Floor<'a>,
    core: u16,
    thread: u16,
    now_ns: u64,
    /// Cost of a nanosecond at full speed, in 1/65536.
    factor: u32,
    cost_ns: u32,
    /// Of the core's submissions and answers.
    number: u32,
}

/// What a poll step did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Polled {
    pub(crate) took_ns: u64,
    pub(crate) number: u32,
}

/// Nanoseconds at full speed as nanoseconds at a core's speed.
#[inline]
pub(crate) fn scaled(cost_ns: u32, factor: u32) -> u64 {
    (u64::from(cost_ns) * u64::from(factor)) >> 16
}

impl<'f, 'a> PollStep<'f, 'a> {
    pub(crate) fn new(floor: &'f mut Floor<'a>, core: u16, thread: u16, now_ns: u64, factor: u32, number: u32) -> Self {
        let cost_ns = floor.empty_step_ns;
        Self { floor, core, thread, now_ns, factor, cost_ns, number }
    }

    /// What there is, and there is something.
    pub(crate) fn run(mut self) -> Polled {
        let thread = usize::from(self.thread);
        self.floor.threads[thread].in_progress_ns(self.now_ns);
        self.receive();
        self.complete();
        let took_ns = scaled(self.cost_ns, self.factor);
        let io = &mut self.floor.threads[thread];
        io.busy_ns += took_ns;
        self.floor.due_ns[thread] = io.due_ns();
        Polled { took_ns, number: self.number }
    }

    fn spend(&mut self, cost_ns: u32) -> u64 {
        self.cost_ns += cost_ns;
        self.now_ns + scaled(self.cost_ns, self.factor)
    }

    fn receive(&mut self) {
        let costs = &self.floor.machine.poll;
        let thread = usize::from(self.thread);
        let interrupts = self.floor.threads[thread].how == Completions::Interrupt;
        let extra = if interrupts { self.floor.machine.kernel.request_ns } else { 0 };
        for _ in 0..costs.batch {
            let io = &mut self.floor.threads[thread];
            let Some(&(at_ns, job)) = io.received.front() else { break };
            if at_ns > self.now_ns {
                break;
            }
            io.received.pop_front();
            io.polled += 1;
            if io.in_progress == 0 {
                io.first_ns = self.now_ns;
            }
            io.in_progress += 1;
            self.spend(costs.receive_ns + extra);
            let name = name(&self.floor.jobs[job as usize].sent);
            self.floor.recorder.note(self.now_ns, What::Polled, name, u64::from(self.core));
            self.begin_step(job);
        }
    }

    fn complete(&mut self) {
        let costs = &self.floor.machine.poll;
        let thread = usize::from(self.thread);
        for _ in 0..costs.batch {
            let io = &mut self.floor.threads[thread];
            let Some(&Reverse((at_ns, _, job))) = io.completed.peek() else { break };
            if at_ns > self.now_ns {
                break;
            }
            io.completed.pop();
            self.spend(costs.complete_ns);
            let left = &mut self.floor.jobs[job as usize].left;
            *left -= 1;
            if *left == 0 {
                self.floor.jobs[job as usize].step += 1;
                self.begin_step(job);
            }
        }
    }

    /// The commands of a request's next step, or its answer.
    fn begin_step(&mut self, job: u32) {
        let Job { sent, step, .. } = self.floor.jobs[job as usize];
        let connections = self.floor.connections;
        match &connections[sent.connection as usize].request {
            Kind::Traced if step == 0 => {
                let Traced { write, bytes, .. } = self.floor.contents[sent.connection as usize].traced(sent.number);
                self.submit(job, 0, write, bytes);
            }
            Kind::Plain { writes_ppm, bytes, .. } if step == 0 => {
                let writes_ppm = *writes_ppm;
                let write = self.floor.contents[sent.connection as usize].writes(sent.number, writes_ppm);
                self.submit(job, 0, write, *bytes);
            }
            Kind::Steps { steps, .. } if usize::from(step) < steps.len() => {
                self.commands(job, steps[usize::from(step)])
            }
            _ => self.answer(job),
        }
    }

    fn commands(&mut self, job: u32, step: Step) {
        self.spend(step.parity_kib * self.floor.machine.poll.parity_ns_per_kib);
        for part in 0..step.reads + step.writes {
            self.submit(job, part, part >= step.reads, step.bytes);
        }
    }

    fn submit(&mut self, job: u32, part: u8, write: bool, bytes: u32) {
        let at_ns = self.spend(self.floor.machine.poll.submit_ns);
        self.floor.jobs[job as usize].left += 1;
        let number = self.next_number();
        let submission = Submission { at_ns, core: self.core, number, job, part, write, bytes };
        self.floor.submissions.push(submission);
    }

    fn answer(&mut self, job: u32) {
        let at_ns = self.spend(self.floor.machine.poll.respond_ns);
        let io = &mut self.floor.threads[usize::from(self.thread)];
        io.answered += 1;
        io.in_progress -= 1;
        let number = self.next_number();
        self.floor.answers.push(Answer { at_ns, core: self.core, number, job });
        let name = name(&self.floor.jobs[job as usize].sent);
        self.floor.recorder.note(at_ns, What::Answered, name, u64::from(self.core));
    }

    fn next_number(&mut self) -> u32 {
        self.number = self.number.wrapping_add(1);
        self.number
    }
}

impl Submission {
    /// As the drive gets it: which one, and what.
    pub(crate) fn request(&self, floor: &Floor<'_>) -> (u16, crate::ssd::Request) {
        let sent = floor.job(self.job).sent;
        let connection = &floor.connections[sent.connection as usize];
        let contents = &floor.contents[sent.connection as usize];
        if connection.request == Kind::Traced {
            let Traced { drive, offset, .. } = contents.traced(sent.number);
            let op = if self.write { Op::Write } else { Op::Read };
            let draw = contents.device_draw(sent.number, 0);
            return (drive, crate::ssd::Request { at_ns: self.at_ns, op, offset, bytes: self.bytes, draw });
        }
        let (first, count) = connection.drives;
        let part = u64::from(self.part);
        let base = u64::from(contents.drive(sent.number, 0, count));
        let drive = first + ((base + part) % u64::from(count.max(1))) as u16;
        let sequential = matches!(connection.request, Kind::Plain { sequential: true, .. });
        let offset = if sequential {
            (sent.number / u64::from(count.max(1))).wrapping_mul(u64::from(self.bytes)) % (1 << 40)
        } else {
            contents.offset(sent.number, part, self.bytes)
        };
        let step = u64::from(floor.job(self.job).step);
        let op = if self.write { Op::Write } else { Op::Read };
        let draw = contents.device_draw(sent.number, step * 16 + part);
        (drive, crate::ssd::Request { at_ns: self.at_ns, op, offset, bytes: self.bytes, draw })
    }
}
