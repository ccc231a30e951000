//! Requests of jobs on scheduled cores: each goes to its job's drive and comes back, no job has more in progress than it may, and none
//! has fewer without a reason.
//!
//! *Problem.* A way of doing I/O may let requests wait where no latency includes the wait, for example between the program and its helper
//! thread. The integral of requests in progress then still equals the sum of latencies, because both omit the wait. *Law.* A job is a
//! closed loop: each of its `depth` places holds a request in progress, or the job thinks, or its processor has work (the job's own, or
//! of others who go first). So a job that neither thinks nor has `depth` requests in progress never has a processor that rests, and a job
//! that has a processor to itself does not look at queues either. Together with Little's law over each stretch: depth x time = sum of
//! latencies + time in which the job thinks or its processor works. Not checked under a quota, which stops a job between two requests, nor of
//! jobs that wait for a backlog. A job with a backlog has issued what was due and is not left, but for what it is about to.
//!
//! In a trace they are named like those of connections, with the numbers that follow the last connection's.

use std::collections::HashMap;

use super::in_progress::InProgress;
use super::requests::Moved;
use super::{Findings, Law};
use crate::jobs::Job;
use crate::outcome::Outcome;
use crate::scenario::Scenario;
use crate::trace::{Record, State, THROTTLED, What};

#[derive(Clone, Copy, Debug)]
struct Progress {
    issued_ns: u64,
    bytes: u32,
    write: bool,
    /// Of its commands.
    submitted: u32,
    completed: u32,
}

pub(super) struct JobBook<'a> {
    scenario: &'a Scenario,
    jobs: &'a [Job],
    first: usize,
    /// The number of the next request, and how many are in progress, by job.
    next: Vec<u64>,
    open: Vec<u32>,
    /// Since when a job has had fewer in progress than its depth, without a reason.
    idle_ns: Vec<Option<u64>>,
    /// Whether it has its processor to itself.
    alone: Vec<bool>,
    /// Jobs that may use each core.
    by_core: Vec<Vec<usize>>,
    /// What cores do, [`State`] as a number.
    cores: Vec<u64>,
    in_progress: HashMap<u64, Progress>,
    issued: u64,
    answered: u64,
    /// Number and sum of the latencies in the measured time.
    measured: (u64, u128),
    over_time: InProgress,
}

impl<'a> JobBook<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        let jobs = scenario.scheduled.as_ref().map_or(&[][..], |scheduled| &scheduled.jobs);
        let first = scenario.workload.connections.len();
        let count = jobs.len();
        Self {
            scenario,
            jobs,
            first,
            next: vec![0; count],
            open: vec![0; count],
            idle_ns: vec![None; count],
            alone: (0..count).map(|index| is_alone(jobs, index)).collect(),
            by_core: (0..scenario.topology.len()).map(|core| jobs_on(jobs, core)).collect(),
            cores: vec![State::Deep as u64; scenario.topology.len()],
            in_progress: HashMap::new(),
            issued: 0,
            answered: 0,
            measured: (0, 0),
            over_time: InProgress::default(),
        }
    }

    /// Whether a record is about a job's request.
    pub(super) fn is_about(&self, record: &Record) -> bool {
        let about = matches!(record.what, What::Issued | What::Submitted | What::Completed | What::Received);
        let place = (record.a >> 40) as usize;
        about && (self.first..self.first + self.next.len()).contains(&place)
    }

    pub(super) fn enter(&mut self, record: &Record, findings: &mut Findings) -> Option<Moved> {
        let index = (record.a >> 40) as usize - self.first;
        let job = self.jobs.get(index)?;
        let mut broken = |how: &str| findings.add(Law::Requests, format!("job {index}, {:?}: {how}", record.what));
        if record.what == What::Issued {
            if self.next[index] != record.a & ((1 << 40) - 1) {
                broken("it is not the job's next request");
            }
            self.next[index] += 1;
            self.open[index] += 1;
            if self.open[index] > depth(job) {
                broken("more is in progress than its depth");
            }
            let (bytes, write) = (record.b as u32, record.b >> 32 == 1);
            if bytes != job.bytes || (write && job.writes_ppm == 0) {
                broken("this is no request of its");
            }
            let progress = Progress { issued_ns: record.at_ns, bytes, write, submitted: 0, completed: 0 };
            self.in_progress.insert(record.a, progress);
            self.issued += 1;
            self.over_time.begin(record.at_ns);
            self.judge(index, record.at_ns, findings);
            return None;
        }
        let Some(progress) = self.in_progress.get_mut(&record.a) else {
            broken("it is not in progress");
            return None;
        };
        let most_bytes = self.scenario.machine.jobs.command_bytes;
        let commands = commands(progress.bytes, most_bytes);
        match record.what {
            What::Submitted => {
                progress.submitted += 1;
                if progress.submitted > commands || record.b != u64::from(job.drive) {
                    broken("it was submitted before, or to another drive");
                }
                let bytes = bytes_of(progress, most_bytes);
                return Some(Moved { drive: record.b as usize, bytes, write: progress.write });
            }
            What::Completed => {
                progress.completed += 1;
                if progress.completed > progress.submitted {
                    broken("it was completed before, or not submitted");
                }
            }
            _ => {
                let latency_ns = record.at_ns - progress.issued_ns;
                if progress.completed != commands || record.b != latency_ns {
                    broken("the drive has not completed it, or it took another time");
                }
                self.receive(index, record, findings);
            }
        }
        None
    }

    fn receive(&mut self, index: usize, record: &Record, findings: &mut Findings) {
        let Some(progress) = self.in_progress.remove(&record.a) else { return };
        let latency_ns = record.at_ns - progress.issued_ns;
        self.over_time.end(record.at_ns, progress.issued_ns);
        self.open[index] -= 1;
        self.answered += 1;
        if (self.scenario.warm_up_ns..self.until_ns()).contains(&record.at_ns) {
            self.measured.0 += 1;
            self.measured.1 += u128::from(latency_ns);
        }
        self.judge(index, record.at_ns, findings);
    }

    /// A core does something else.
    pub(super) fn core(&mut self, record: &Record, findings: &mut Findings) {
        let Some(state) = self.cores.get_mut(record.a as usize) else { return };
        *state = record.b & (THROTTLED - 1);
        for at in 0..self.by_core[record.a as usize].len() {
            self.judge(self.by_core[record.a as usize][at], record.at_ns, findings);
        }
    }

    /// Whether a job has fewer requests in progress than it should from now on; until now it may have.
    fn judge(&mut self, index: usize, at_ns: u64, findings: &mut Findings) {
        let idles = self.idles(index);
        let until_ns = self.until_ns();
        match self.idle_ns[index] {
            Some(since_ns) if since_ns < at_ns.min(until_ns) => {
                let (ns, depth) = (at_ns.min(until_ns) - since_ns, depth(&self.jobs[index]));
                let text = format!(
                    "job {index} waited for {ns} ns with less than its {depth} requests in progress: the wait is in no latency"
                );
                findings.add(Law::Little, text);
                self.idle_ns[index] = None;
            }
            Some(_) if idles => {}
            _ => self.idle_ns[index] = idles.then_some(at_ns),
        }
    }

    fn idles(&self, index: usize) -> bool {
        let job = &self.jobs[index];
        let thinks = job.think_after > 0 && self.next[index].is_multiple_of(u64::from(job.think_after));
        let waits_for_backlog = job.backlog_ppm > 0 || job.stalls_bytes > 0;
        if waits_for_backlog
            || job.bytes == 0
            || job.quota.is_some()
            || self.next[index] == 0
            || thinks
            || self.open[index] >= depth(job)
        {
            return false;
        }
        let (first, count) = (usize::from(job.cores.0), usize::from(job.cores.1));
        let rests = |&state: &u64| {
            state == State::Shallow as u64
                || state == State::Deep as u64
                || (state == State::Looks as u64 && self.alone[index])
        };
        self.cores.get(first..first + count).is_some_and(|cores| cores.iter().all(rests))
    }

    /// Jobs with a backlog did what was added, and nothing else.
    fn backlogs(&self, outcome: &Outcome, findings: &mut Findings) {
        for (index, job) in self.jobs.iter().enumerate().filter(|(_, job)| job.backlog_ppm > 0) {
            let due = u128::from(outcome.jobs.added_bytes) * u128::from(job.backlog_ppm) / 1_000_000;
            let left = outcome.jobs.left_bytes.get(index).map_or(0, |left| u128::from(*left));
            let issued = u128::from(self.next[index]) * u128::from(job.bytes);
            let about_to = u128::from(job.bytes) * u128::from(depth(job));
            if !(issued + left..=issued + left + about_to).contains(&due) {
                let text = format!(
                    "job {index} had {due} bytes of its backlog to do, has issued {issued} and has {left} left"
                );
                findings.add(Law::Requests, text);
            }
        }
    }

    /// When jobs end.
    fn until_ns(&self) -> u64 {
        self.scenario.scheduled.as_ref().map_or(0, |scheduled| scheduled.until_ns.min(self.scenario.duration_ns))
    }

    pub(super) fn stretch(&mut self, end_ns: u64) {
        self.over_time.stretch(end_ns);
    }

    /// The mean of requests in progress over the whole run.
    pub(super) fn mean_in_progress(&self) -> f64 {
        self.over_time.mean(self.scenario.duration_ns)
    }

    pub(super) fn finish(&mut self, outcome: &Outcome, findings: &mut Findings) {
        let (end_ns, claimed) = (self.scenario.duration_ns, outcome.jobs.requests);
        for index in 0..self.jobs.len() {
            self.judge(index, end_ns, findings);
        }
        self.backlogs(outcome, findings);
        let mut same = |law, what, counted: u128, claimed: u128| findings.same(law, end_ns, what, counted, claimed);
        same(Law::Requests, "requests that jobs issued", self.issued.into(), claimed.issued.into());
        same(Law::Requests, "requests that jobs have the answers of", self.answered.into(), claimed.answered.into());
        same(Law::Requests, "requests of jobs in progress", self.in_progress.len() as u128, claimed.in_progress.into());
        let of = |of: fn(&crate::histogram::Histogram) -> u64| {
            u128::from(of(&outcome.jobs.reads)) + u128::from(of(&outcome.jobs.writes))
        };
        same(Law::Requests, "latencies of jobs", self.measured.0.into(), of(crate::histogram::Histogram::count));
        same(Law::Little, "sum of latencies of jobs", self.measured.1, of(crate::histogram::Histogram::sum));
        let by_job = outcome.jobs.latency_ns.iter().map(|ns| u128::from(*ns)).sum();
        same(Law::Little, "sum of latencies by job", self.measured.1, by_job);
        let claims = outcome.jobs.series.iter().map(|stretch| (stretch.requests, stretch.latency_ns));
        self.over_time.compare(self.scenario.series_ns, "requests of jobs", claims, findings);
    }
}

/// Most requests that a job has in progress, and has where it does not think.
fn depth(job: &Job) -> u32 {
    if job.way.is_synchronous() { 1 } else { job.depth }
}

/// How many commands a request is, none of which has more than `most_bytes` (0: any number).
fn commands(bytes: u32, most_bytes: u32) -> u32 {
    if most_bytes == 0 { 1 } else { bytes.div_ceil(most_bytes) }
}

/// The bytes of the command that was submitted last: all but the last of a request have as many as one may have.
fn bytes_of(progress: &Progress, most_bytes: u32) -> u32 {
    if most_bytes == 0 {
        return progress.bytes;
    }
    progress.bytes.saturating_sub((progress.submitted - 1).saturating_mul(most_bytes)).min(most_bytes)
}

fn jobs_on(jobs: &[Job], core: usize) -> Vec<usize> {
    let on =
        |job: &Job| (usize::from(job.cores.0)..usize::from(job.cores.0) + usize::from(job.cores.1)).contains(&core);
    (0..jobs.len()).filter(|&index| on(&jobs[index])).collect()
}

/// Whether no other job, and no helper but its own, uses the job's one processor.
fn is_alone(jobs: &[Job], index: usize) -> bool {
    let job = &jobs[index];
    let (core, polled) = (job.cores.0, crate::jobs::Way::UringPolled);
    let uses = |other: &Job| {
        (other.cores.0..other.cores.0 + other.cores.1).contains(&core) || (other.way == polled && other.helper == core)
    };
    job.cores.1 == 1
        && !(job.way == polled && job.helper == core)
        && jobs.iter().enumerate().all(|(at, other)| at == index || !uses(other))
}
