//! Cores that run tasks instead of polling: programs, kernel workers, interrupts and background work.
//!
//! *Problem.* In most servers, programs do not poll continuously: they call the kernel, sleep until an interrupt or poll a queue, and share cores.
//! *Terms.* A *job* is a closed loop of operations, each with CPU time and a request or none ([`crate::jobs`]). *Algorithm.* [`dispatch`] assigns
//! tasks to CPUs; [`program`] determines a job's next step. Both advance window by window, as the polling cores do: drives receive requests in time
//! order with the submissions of I/O threads, and completion times are known at the end of the window of submission, never later, as windows are no
//! longer than a drive's minimum latency. A core's idle state is decided at the end of the window in which it becomes idle, from the next event due
//! on it: a perfect prediction. *Properties* (`tests/scheduled.rs`): one scenario yields one trace; the auditor's laws hold; closed forms of
//! single jobs.

mod backlog;
mod dispatch;
#[cfg(test)]
mod naive;
mod program;
mod split;
mod submit;
mod task;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::core::Core;
use super::shared::{Change, Shared};
use crate::outcome::{JobStretch, Jobs, Requests};
use crate::rng::{Purpose, Stream};
use crate::scenario::Scenario;
use crate::ssd::{self, Op};
use crate::trace::{RecordKind, State};
use backlog::Backlog;
use dispatch::Dispatch;
use program::{Continuation, JobEvent, Program};
use split::Split;
use task::{Class, CpuActivity, Group, Hardware, Piece};

/// A request on its way to a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Io {
    pub(crate) at_ns: u64,
    pub(crate) core: u16,
    number: u64,
    job: usize,
    request: program::Request,
}

/// All scheduled cores.
pub(crate) struct Scheduled {
    first_core: usize,
    dispatch: Dispatch<Continuation>,
    programs: Vec<Program>,
    backlog: Backlog,
    /// The interrupt handler task of each core.
    handlers: Vec<usize>,
    events: BinaryHeap<Reverse<(u64, u64, JobEvent)>>,
    made: u64,
    costs: crate::jobs::JobCosts,
    deep_after_ns: u64,
    /// Time at which the scheduler's lock is free.
    lock_ns: u64,
    /// Number and sum of request latencies; hybrid polling sleeps for half of their mean.
    away: (u64, u64),
    ios: Vec<Io>,
    devices: Vec<Stream>,
    /// First name of jobs' requests in a trace.
    names: u64,
    until_ns: u64,
    measured_ns: (u64, u64),
    stretch_ns: u64,
    pub(crate) jobs: Jobs,
}

impl Scheduled {
    /// `None` if all cores poll.
    pub(crate) fn new(scenario: &Scenario) -> Option<Self> {
        let scheduled = scenario.scheduled.as_ref()?;
        let first_core = usize::from(scheduled.first_core);
        let topology = &scenario.topology;
        let sibling = |core: pilotlight_plant::CoreId| {
            topology.sibling(core).and_then(|other| other.index().checked_sub(first_core))
        };
        let siblings: Vec<Option<usize>> = topology.cores().skip(first_core).map(sibling).collect();
        let (machine, count) = (&scenario.machine, siblings.len());
        let hardware = Hardware {
            light_exit_ns: machine.kernel.shallow_exit_ns,
            deep_exit_ns: machine.kernel.deep_exit_ns,
            sibling_slows_ppm: machine.jobs.sibling_slows_ppm,
        };
        let mut dispatch = Dispatch::new(siblings, hardware);
        for quota in &scheduled.quotas {
            dispatch.add_group(Group::new(quota.quota_ns, quota.period_ns, quota.slice_ns));
        }
        let handlers = (0..count).map(|cpu| dispatch.add_task(Class::Interrupt, (cpu, 1), None, false)).collect();
        let place = |core: u16| usize::from(core) - first_core;
        let (mut programs, mut backlog) = (Vec::new(), Backlog::default());
        for (index, job) in scheduled.jobs.iter().enumerate() {
            let class = if job.background { Class::Background } else { Class::Client };
            if job.backlog_ppm > 0 {
                backlog.share(index, job.backlog_ppm, job.bytes);
            }
            let cpus = (place(job.cores.0), usize::from(job.cores.1));
            let spins = job.method.spins() && job.bytes > 0;
            let task = dispatch.add_task(class, cpus, job.quota.map(usize::from), spins);
            let helps = job.method == crate::jobs::IoMethod::UringPolled && job.bytes > 0;
            let helper = helps.then(|| dispatch.add_task(Class::Worker, (place(job.helper), 1), None, true));
            let draws = Stream::new(scenario.seed, Purpose::Arrivals, names(scenario) * 4 + index as u64);
            programs.push(Program::new(*job, task, helper, draws));
        }
        let devices = |index: usize| Stream::new(scenario.seed, Purpose::Devices, names(scenario) + index as u64);
        let stretches = (scenario.duration_ns / scenario.series_ns) as usize;
        let mut all = Self {
            first_core,
            dispatch,
            backlog,
            handlers,
            events: BinaryHeap::new(),
            made: 0,
            costs: machine.jobs,
            deep_after_ns: machine.kernel.deep_residency_ns,
            lock_ns: 0,
            away: (0, 0),
            ios: Vec::new(),
            devices: (0..programs.len()).map(devices).collect(),
            names: names(scenario),
            until_ns: scheduled.until_ns.min(scenario.duration_ns),
            measured_ns: (scenario.warm_up_ns, scheduled.until_ns.min(scenario.duration_ns)),
            stretch_ns: scenario.series_ns,
            jobs: Jobs {
                operations: vec![0; programs.len()],
                latency_ns: vec![0; programs.len()],
                series: vec![JobStretch::default(); stretches],
                ..Jobs::default()
            },
            programs,
        };
        for job in 0..all.programs.len() {
            all.push(job as u64 * 100, JobEvent::Begins(job)); // staggers the jobs' start
        }
        Some(all)
    }

    /// Time of the next known event.
    pub(crate) fn next_ns(&self) -> u64 {
        let event_ns = self.events.peek().map_or(u64::MAX, |Reverse((at_ns, ..))| *at_ns);
        event_ns.min(self.dispatch.next_ns()).min(self.until_ns)
    }

    /// Whether all cores are idle, so that nothing changes until [`Self::next_ns`].
    pub(crate) fn is_quiet(&self) -> bool {
        self.dispatch.rests() && self.ios.is_empty()
    }

    /// Advances to `until_ns`, at the speeds of `cores`.
    pub(crate) fn advance(&mut self, from_ns: u64, until_ns: u64, cores: &[Core], shared: &mut Shared<'_>) {
        for (cpu, core) in cores[self.first_core..].iter().enumerate() {
            self.dispatch.set_factor(from_ns, cpu, core.factor());
        }
        loop {
            let event_ns = self.events.peek().map_or(u64::MAX, |Reverse((at_ns, ..))| *at_ns);
            let piece_ns = self.dispatch.next_ns();
            let next_ns = event_ns.min(piece_ns);
            if next_ns >= until_ns.min(self.until_ns) {
                break;
            }
            if piece_ns <= event_ns {
                if let Some(ended) = self.dispatch.step() {
                    let yields = self.ended(&ended, shared);
                    self.dispatch.release(ended.at_ns, ended.cpu, yields);
                }
            } else if let Some(Reverse((at_ns, _, event))) = self.events.pop() {
                self.happens(at_ns, event);
            }
        }
    }

    /// Ends the work if its end is reached; returns whether it did.
    pub(crate) fn halts(&mut self, until_ns: u64) -> bool {
        if until_ns < self.until_ns {
            return false;
        }
        self.events.clear();
        self.dispatch.halt(self.until_ns);
        self.until_ns = u64::MAX;
        true
    }

    /// Takes the requests to drives, in time order.
    pub(crate) fn take_ios(&mut self) -> Vec<Io> {
        std::mem::take(&mut self.ios)
    }

    /// A request's drive and drive command.
    pub(crate) fn command(&self, io: &Io) -> (usize, ssd::Request) {
        let job = &self.programs[io.job].job;
        let (number, command) = (io.request.number, io.request.command);
        let (within, bytes) = self.split(io.job).part(command);
        let begin = if job.sequential { number.wrapping_mul(u64::from(job.bytes)) % super::host::SPAN } else { 0 };
        let op = if io.request.write { Op::Write } else { Op::Read };
        let draw = self.devices[io.job].at(number | u64::from(command) << 40);
        let request =
            ssd::Request { at_ns: io.at_ns, op, offset: begin + within, bytes, draw, sequential: job.sequential };
        (usize::from(job.drive), request)
    }

    /// The commands of a job's requests.
    fn split(&self, job: usize) -> Split {
        Split::new(self.programs[job].job.bytes, self.costs.command_bytes)
    }

    /// A request's name in a trace.
    pub(crate) fn name(&self, io: &Io) -> u64 {
        self.name_of(io.job, io.request.number)
    }

    fn name_of(&self, job: usize, number: u64) -> u64 {
        (self.names + job as u64) << 40 | number
    }

    /// Records the completion time of a request.
    pub(crate) fn completed(&mut self, io: &Io, done_ns: u64) {
        self.will_be_done(io.job, io.request, done_ns);
    }

    /// Ends a window: decides idle states, and updates cores and totals.
    pub(crate) fn settle(&mut self, until_ns: u64, cores: &mut [Core], shared: &mut Shared<'_>) {
        let undecided: Vec<(usize, u64)> = self.dispatch.undecided().collect();
        for (cpu, since_ns) in undecided {
            let deep = self.due_ns(cpu).saturating_sub(since_ns) >= self.deep_after_ns;
            self.dispatch.decide(cpu, deep);
        }
        self.dispatch.count(until_ns);
        for turn in self.dispatch.take_turns() {
            let state = match turn.activity {
                CpuActivity::Works => State::Awake,
                CpuActivity::Spins => State::Spins,
                CpuActivity::IdlesShallow => State::Shallow,
                CpuActivity::IdlesDeep => State::Deep,
            };
            let core = self.first_core + turn.cpu;
            cores[core].changes.push_back(Change { at_ns: turn.at_ns, state, exit_ns: 0 });
            shared.changed_ns = shared.changed_ns.max(turn.at_ns);
            shared.recorder.note(turn.at_ns, RecordKind::Core, core as u64, state as u64);
        }
        for used in std::mem::take(&mut self.dispatch.used) {
            over(&mut self.jobs.series, self.stretch_ns, used.from_ns, used.to_ns, |stretch, ns| {
                *(if used.looks { &mut stretch.look_ns } else { &mut stretch.work_ns }) += ns;
            });
        }
    }

    /// The next known event on an idle core.
    fn due_ns(&self, cpu: usize) -> u64 {
        let on = |Reverse((at_ns, _, event)): &Reverse<(u64, u64, JobEvent)>| {
            (self.dispatch.cpu_of(self.programs[event.job()].task) == cpu).then_some(*at_ns)
        };
        self.events.iter().filter_map(on).min().unwrap_or(u64::MAX)
    }

    fn push(&mut self, at_ns: u64, event: JobEvent) {
        self.made += 1;
        self.events.push(Reverse((at_ns, self.made, event)));
    }

    fn stretch(&mut self, at_ns: u64) -> Option<&mut JobStretch> {
        self.jobs.series.get_mut((at_ns / self.stretch_ns) as usize)
    }

    /// Results of the jobs.
    pub(crate) fn finish(self) -> Jobs {
        let Requests { issued, answered, .. } = self.jobs.requests;
        let left_bytes = (0..self.programs.len()).map(|job| self.backlog.left_bytes(job)).collect();
        Jobs {
            requests: Requests { issued, answered, in_progress: issued - answered },
            added_bytes: self.backlog.added_bytes(),
            left_bytes,
            ..self.jobs
        }
    }
}

/// Number of connections; jobs are numbered after them.
fn names(scenario: &Scenario) -> u64 {
    scenario.workload.connections.len() as u64
}

/// Distributes a time span over the stretches that it overlaps.
fn over(
    series: &mut [JobStretch],
    stretch_ns: u64,
    from_ns: u64,
    to_ns: u64,
    mut add: impl FnMut(&mut JobStretch, u64),
) {
    let mut from_ns = from_ns;
    while from_ns < to_ns {
        let at = from_ns / stretch_ns;
        let end_ns = ((at + 1) * stretch_ns).min(to_ns);
        let Some(stretch) = series.get_mut(at as usize) else { return };
        add(stretch, end_ns - from_ns);
        from_ns = end_ns;
    }
}

impl Io {
    pub(crate) fn write(&self) -> bool {
        self.request.write
    }
}

/// Work of `ns` at full speed.
fn work(ns: u64) -> Piece {
    Piece::Work(ns)
}
