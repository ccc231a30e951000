//! Requests of jobs on scheduled cores: each goes to its job's drive and comes back, no job has more in progress than it may.
//!
//! In a trace they are named like those of connections, with the numbers that follow the last connection's.

use std::collections::HashMap;

use super::requests::Moved;
use super::{Findings, Law};
use crate::outcome::Outcome;
use crate::scenario::Scenario;
use crate::trace::{Record, What};

#[derive(Clone, Copy, Debug)]
struct Progress {
    issued_ns: u64,
    bytes: u32,
    write: bool,
    submitted: bool,
    completed: bool,
}

pub(super) struct JobBook<'a> {
    scenario: &'a Scenario,
    first: usize,
    /// The number of the next request, and how many are in progress, by job.
    next: Vec<u64>,
    open: Vec<u32>,
    in_progress: HashMap<u64, Progress>,
    issued: u64,
    answered: u64,
}

impl<'a> JobBook<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        let jobs = scenario.scheduled.as_ref().map_or(0, |scheduled| scheduled.jobs.len());
        let first = scenario.workload.connections.len();
        let (next, open) = (vec![0; jobs], vec![0; jobs]);
        Self { scenario, first, next, open, in_progress: HashMap::new(), issued: 0, answered: 0 }
    }

    /// Whether a record is about a job's request.
    pub(super) fn is_about(&self, record: &Record) -> bool {
        let about = matches!(record.what, What::Issued | What::Submitted | What::Completed | What::Received);
        let place = (record.a >> 40) as usize;
        about && (self.first..self.first + self.next.len()).contains(&place)
    }

    pub(super) fn enter(&mut self, record: &Record, findings: &mut Findings) -> Option<Moved> {
        let index = (record.a >> 40) as usize - self.first;
        let job = self.scenario.scheduled.as_ref()?.jobs.get(index)?;
        let mut broken = |how: &str| findings.add(Law::Requests, format!("job {index}, {:?}: {how}", record.what));
        if record.what == What::Issued {
            if self.next[index] != record.a & ((1 << 40) - 1) {
                broken("it is not the job's next request");
            }
            self.next[index] += 1;
            self.open[index] += 1;
            let depth = if job.way.is_synchronous() { 1 } else { job.depth };
            if self.open[index] > depth {
                broken("more is in progress than its depth");
            }
            let (bytes, write) = (record.b as u32, record.b >> 32 == 1);
            if bytes != job.bytes || (write && job.writes_ppm == 0) {
                broken("this is no request of its");
            }
            let progress = Progress { issued_ns: record.at_ns, bytes, write, submitted: false, completed: false };
            self.in_progress.insert(record.a, progress);
            self.issued += 1;
            return None;
        }
        let Some(progress) = self.in_progress.get_mut(&record.a) else {
            broken("it is not in progress");
            return None;
        };
        match record.what {
            What::Submitted => {
                if std::mem::replace(&mut progress.submitted, true) || record.b != u64::from(job.drive) {
                    broken("it was submitted before, or to another drive");
                }
                return Some(Moved { drive: record.b as usize, bytes: progress.bytes, write: progress.write });
            }
            What::Completed => {
                if std::mem::replace(&mut progress.completed, true) || !progress.submitted {
                    broken("it was completed before, or not submitted");
                }
            }
            _ => {
                let latency_ns = record.at_ns - progress.issued_ns;
                if !progress.completed || record.b != latency_ns {
                    broken("the drive has not completed it, or it took another time");
                }
                self.in_progress.remove(&record.a);
                self.open[index] -= 1;
                self.answered += 1;
            }
        }
        None
    }

    pub(super) fn finish(&self, outcome: &Outcome, findings: &mut Findings) {
        let (end_ns, claimed) = (self.scenario.duration_ns, outcome.jobs.requests);
        let mut same = |what, counted: u64, claimed: u64| {
            findings.same(Law::Requests, end_ns, what, u128::from(counted), u128::from(claimed));
        };
        same("requests that jobs issued", self.issued, claimed.issued);
        same("requests that jobs have the answers of", self.answered, claimed.answered);
        same("requests of jobs in progress", self.in_progress.len() as u64, claimed.in_progress);
    }
}
