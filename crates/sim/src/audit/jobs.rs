//! Checks requests of jobs on scheduled cores: each goes to its job's drive and returns, and a job has as many in progress as its depth.
//!
//! *Problem.* An I/O method may delay requests outside every latency, for example between the program and its helper thread. The integral
//! of requests in progress then still equals the sum of latencies, as both omit the delay. *Law.* A job is a closed loop: it has `depth`
//! requests in progress, or thinks, or its processor has work. So while a job neither thinks nor has `depth` requests in progress, its
//! processor does not rest; if it has the processor to itself, it does not poll either. With Little's law over each stretch: depth x time =
//! sum of latencies + time in which the job thinks or its processor works. Not checked under a quota, nor for jobs that wait for a backlog.
//! A job with a backlog has issued what was due and is not left, except for what it is about to issue.
//!
//! In a trace, jobs are numbered after the last connection.

use std::collections::HashMap;

use super::in_progress::InProgress;
use super::requests::Moved;
use super::{Findings, Law};
use crate::jobs::Job;
use crate::outcome::Outcome;
use crate::scenario::Scenario;
use crate::trace::{Record, RecordKind, State, THROTTLED};

#[derive(Clone, Copy, Debug)]
struct Progress {
    issued_ns: u64,
    bytes: u32,
    write: bool,
    /// Of its commands.
    submitted: u32,
    completed: u32,
}

pub(super) struct JobCheck<'a> {
    scenario: &'a Scenario,
    jobs: &'a [Job],
    first: usize,
    /// The number of the next request, and how many are in progress, by job.
    next: Vec<u64>,
    open: Vec<u32>,
    /// Time since a job has had fewer in progress than its depth without a reason.
    idle_ns: Vec<Option<u64>>,
    /// Whether it has its processor to itself.
    alone: Vec<bool>,
    /// Jobs on each core.
    by_core: Vec<Vec<usize>>,
    /// The [`State`] of each core as a number.
    cores: Vec<u64>,
    in_progress: HashMap<u64, Progress>,
    issued: u64,
    answered: u64,
    /// Number and sum of latencies in the measured time.
    measured: (u64, u128),
    over_time: InProgress,
}

impl<'a> JobCheck<'a> {
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

    /// Whether a record is of a job's request.
    pub(super) fn is_about(&self, record: &Record) -> bool {
        let about = matches!(
            record.kind,
            RecordKind::Issued | RecordKind::Submitted | RecordKind::Completed | RecordKind::Received
        );
        let place = (record.a >> 40) as usize;
        about && (self.first..self.first + self.next.len()).contains(&place)
    }

    pub(super) fn enter(&mut self, record: &Record, findings: &mut Findings) -> Option<Moved> {
        let index = (record.a >> 40) as usize - self.first;
        let job = self.jobs.get(index)?;
        let mut broken = |how: &str| findings.add(Law::Requests, format!("job {index}, {:?}: {how}", record.kind));
        if record.kind == RecordKind::Issued {
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
                broken("size or direction is not the job's");
            }
            let progress = Progress { issued_ns: record.at_ns, bytes, write, submitted: 0, completed: 0 };
            self.in_progress.insert(record.a, progress);
            self.issued += 1;
            self.over_time.begin(record.at_ns);
            self.check_pending(index, record.at_ns, findings);
            return None;
        }
        let Some(progress) = self.in_progress.get_mut(&record.a) else {
            broken("it is not in progress");
            return None;
        };
        let most_bytes = self.scenario.machine.jobs.command_bytes;
        let commands = commands(progress.bytes, most_bytes);
        match record.kind {
            RecordKind::Submitted => {
                progress.submitted += 1;
                if progress.submitted > commands || record.b != u64::from(job.drive) {
                    broken("it was submitted before, or to another drive");
                }
                let bytes = bytes_of(progress, most_bytes);
                return Some(Moved { drive: record.b as usize, bytes, write: progress.write });
            }
            RecordKind::Completed => {
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
        self.check_pending(index, record.at_ns, findings);
    }

    /// A core changes its state.
    pub(super) fn core(&mut self, record: &Record, findings: &mut Findings) {
        let Some(state) = self.cores.get_mut(record.a as usize) else { return };
        *state = record.b & (THROTTLED - 1);
        for at in 0..self.by_core[record.a as usize].len() {
            self.check_pending(self.by_core[record.a as usize][at], record.at_ns, findings);
        }
    }

    /// Checks whether a job had fewer requests in progress than it should until now.
    fn check_pending(&mut self, index: usize, at_ns: u64, findings: &mut Findings) {
        let idles = self.idles(index);
        let until_ns = self.until_ns();
        match self.idle_ns[index] {
            Some(since_ns) if since_ns < at_ns.min(until_ns) => {
                let (ns, depth) = (at_ns.min(until_ns) - since_ns, depth(&self.jobs[index]));
                let text = format!(
                    "job {index} waited for {ns} ns with fewer than {depth} requests in progress; no latency includes the wait"
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
                || (state == State::Spins as u64 && self.alone[index])
        };
        self.cores.get(first..first + count).is_some_and(|cores| cores.iter().all(rests))
    }

    /// Jobs with a backlog issue exactly what was added.
    fn backlogs(&self, outcome: &Outcome, findings: &mut Findings) {
        for (index, job) in self.jobs.iter().enumerate().filter(|(_, job)| job.backlog_ppm > 0) {
            let due = u128::from(outcome.jobs.added_bytes) * u128::from(job.backlog_ppm) / 1_000_000;
            let left = outcome.jobs.left_bytes.get(index).map_or(0, |left| u128::from(*left));
            let issued = u128::from(self.next[index]) * u128::from(job.bytes);
            let about_to = u128::from(job.bytes) * u128::from(depth(job));
            if !(issued + left..=issued + left + about_to).contains(&due) {
                let text = format!("job {index} had a backlog of {due} bytes, has issued {issued} and has {left} left");
                findings.add(Law::Requests, text);
            }
        }
    }

    /// End of all jobs.
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
            self.check_pending(index, end_ns, findings);
        }
        self.backlogs(outcome, findings);
        let mut check_equal =
            |law, what, counted: u128, claimed: u128| findings.check_equal(law, end_ns, what, counted, claimed);
        check_equal(Law::Requests, "requests that jobs issued", self.issued.into(), claimed.issued.into());
        check_equal(
            Law::Requests,
            "requests that jobs have the answers of",
            self.answered.into(),
            claimed.answered.into(),
        );
        check_equal(
            Law::Requests,
            "requests of jobs in progress",
            self.in_progress.len() as u128,
            claimed.in_progress.into(),
        );
        let of = |of: fn(&crate::histogram::Histogram) -> u64| {
            u128::from(of(&outcome.jobs.reads)) + u128::from(of(&outcome.jobs.writes))
        };
        check_equal(Law::Requests, "latencies of jobs", self.measured.0.into(), of(crate::histogram::Histogram::count));
        check_equal(Law::Little, "sum of latencies of jobs", self.measured.1, of(crate::histogram::Histogram::sum));
        let by_job = outcome.jobs.latency_ns.iter().map(|ns| u128::from(*ns)).sum();
        check_equal(Law::Little, "sum of latencies by job", self.measured.1, by_job);
        let claims = outcome.jobs.series.iter().map(|stretch| (stretch.requests, stretch.latency_ns));
        self.over_time.compare(self.scenario.series_ns, "requests of jobs", claims, findings);
    }
}

/// Requests in progress of a job that does not think.
fn depth(job: &Job) -> u32 {
    if job.method.is_synchronous() { 1 } else { job.depth }
}

/// Number of commands of a request, each of at most `most_bytes` (0: no limit).
fn commands(bytes: u32, most_bytes: u32) -> u32 {
    if most_bytes == 0 { 1 } else { bytes.div_ceil(most_bytes) }
}

/// Size of the command submitted last.
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

/// Whether the job has its processor to itself.
fn is_alone(jobs: &[Job], index: usize) -> bool {
    let job = &jobs[index];
    let (core, polled) = (job.cores.0, crate::jobs::IoMethod::UringPolled);
    let uses = |other: &Job| {
        (other.cores.0..other.cores.0 + other.cores.1).contains(&core)
            || (other.method == polled && other.helper == core)
    };
    job.cores.1 == 1
        && !(job.method == polled && job.helper == core)
        && jobs.iter().enumerate().all(|(at, other)| at == index || !uses(other))
}
