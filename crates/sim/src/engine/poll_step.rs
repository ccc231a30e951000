//! One poll step of an I/O thread: requests in, completions in, commands and answers out.

use pilotlight_plant::CompletionMode;

use super::background::{self, Background};
use super::request::{Job, RequestTemplate, Shape, Submission};
use super::shared::{Answer, CoreTime, IoThread, Shared, scaled};
use crate::machine::PollCosts;
use crate::scenario::Step;
use crate::trace::{RecordKind, Recorder};

/// A poll step sees the events until `now_ns`; answers and commands leave as their time is spent. It borrows the parts of [`Shared`]
/// separately, so that its thread is looked up once.
struct PollStep<'f, 'a> {
    at: CoreTime,
    costs: &'f PollCosts,
    plans: &'f [RequestTemplate<'a>],
    io: &'f mut IoThread,
    jobs: &'f mut [Job],
    submissions: &'f mut Vec<Submission>,
    answers: &'f mut Vec<Answer>,
    recorder: &'f mut Recorder<'a>,
    numbers: &'f mut u32,
    background: &'f mut Background,
    /// Time spent so far, at full speed.
    cost_ns: u32,
    /// Additional cost per request in interrupt mode.
    extra_ns: u32,
    /// Cost of the system calls for a connection.
    connection_ns: u32,
}

impl Shared<'_> {
    /// Runs a poll step of a thread with work; returns its duration.
    #[inline(never)] // once, with all that it calls inside; the compiler else shares parts of it, at 69 instructions a request
    pub(crate) fn poll(&mut self, thread: u16, at: CoreTime) -> u64 {
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
            connection_ns: machine.sockets.connection_ns,
        };
        if machine.sockets.memory {
            step.serve();
        } else {
            step.receive();
            step.complete();
        }
        let PollStep { io, cost_ns, background, .. } = step; // its address is never taken, so it stays in registers
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

    /// Finishes a poll step that has spent `cost_ns` so far: starts background I/O if the thread has no requests. Returns its duration.
    #[cold]
    #[inline(never)]
    fn start_background(&mut self, thread: u16, at: CoreTime, mut cost_ns: u32) -> u64 {
        while self.threads[usize::from(thread)].in_progress == 0 {
            let Some(begun) = self.background.begin(thread, at.now_ns) else { break };
            let background::StartedIo { number: job, write, bytes } = begun;
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

    /// Includes background work in a thread's next event.
    fn wait_for_background(&mut self, thread: u16) {
        let io = &self.threads[usize::from(thread)];
        let free_ns = if io.in_progress == 0 { self.background.due_ns(thread) } else { u64::MAX };
        self.due_ns[usize::from(thread)] = io.due_ns().min(free_ns);
    }

    /// Updates all threads after a change of background work.
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
            self.recorder.note(now_ns, RecordKind::Polled, job.name(), u64::from(self.at.core));
            if job.shape == Shape::Steps {
                self.begin_step(place);
            } else {
                let Job { write, bytes, .. } = *job;
                self.submit(place, 0, write, bytes);
            }
        }
    }

    /// Answers all requests from memory, one connection after the other; the answers of a connection leave together.
    #[inline(never)] // not on the path of the papers' machines
    fn serve(&mut self) {
        let now_ns = self.at.now_ns;
        let mut places = Vec::new();
        while let Some((_, place)) = self.io.received.pop_if(|&(at_ns, _)| at_ns <= now_ns) {
            places.push((self.jobs[place as usize].connection, place));
        }
        places.sort_by_key(|&(connection, _)| connection);
        for mine in places.chunk_by(|a, b| a.0 == b.0) {
            self.spend(self.connection_ns);
            for &(_, place) in mine {
                self.io.polled += 1;
                self.io.in_progress += 1;
                self.spend(self.costs.receive_ns + self.costs.respond_ns + self.extra_ns);
                self.recorder.note(now_ns, RecordKind::Polled, self.jobs[place as usize].name(), self.at.core.into());
            }
            let respond_ns = self.cost_ns;
            for &(_, place) in mine {
                self.cost_ns = respond_ns - self.costs.respond_ns;
                self.answer(place);
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

    /// Submits the commands of a request's next step, or its answer.
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
        self.recorder.note(at_ns, RecordKind::Answered, self.jobs[place as usize].name(), u64::from(self.at.core));
    }

    #[inline]
    fn next_number(&mut self) -> u32 {
        *self.numbers = self.numbers.wrapping_add(1);
        *self.numbers
    }
}
