//! Checks the stages of each request, and counts those in progress.

use std::collections::HashMap;

use super::in_progress::InProgress;
use super::{Audit, Findings, Law};
use crate::engine::capabilities;
use crate::outcome::Outcome;
use crate::scenario::{Connection, Kind, Scenario};
use crate::trace::{Record, RecordKind};

/// Stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Issued,
    Arrived,
    Polled,
    Answered,
}

#[derive(Clone, Copy, Debug)]
struct Progress {
    stage: Stage,
    issued_ns: u64,
    /// Size of its data in bytes.
    brought: u32,
    submitted: usize,
    completed: usize,
    /// Time of its last record.
    since_ns: u64,
}

/// An expected command of a request.
#[derive(Clone, Copy, Debug)]
struct Planned {
    /// Number of commands of earlier steps, which must be completed before.
    after: usize,
    /// `None`: the size of a replayed write. (Sizes of replayed reads are not recorded.)
    bytes: Option<u32>,
    /// `None`: a request with data is a write.
    write: Option<bool>,
}

/// A transfer of a drive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    pub(super) drive: usize,
    pub(super) bytes: u32,
    pub(super) write: bool,
}

pub(super) struct RequestCheck<'a> {
    scenario: &'a Scenario,
    plans: Vec<Vec<Planned>>,
    /// The number of the next request to send, and to poll, by connection.
    next: Vec<u64>,
    next_polled: Vec<u64>,
    /// Time of the last activity of each I/O thread.
    active_ns: Vec<u64>,
    in_progress: HashMap<u64, Progress>,
    issued: u64,
    answered: u64,
    /// Answered requests that were sent after the warm-up.
    measured: u64,
    /// Counted independently of `in_progress`.
    over_time: InProgress,
    /// The first bandwidth cap (later knobs are caps too), and whether one was set.
    first_cap: Option<usize>,
    capped: bool,
}

impl<'a> RequestCheck<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        let connections = &scenario.workload.connections;
        Self {
            scenario,
            plans: connections.iter().map(plan).collect(),
            next: vec![0; connections.len()],
            next_polled: vec![0; connections.len()],
            active_ns: vec![0; usize::from(scenario.threads)],
            in_progress: HashMap::new(),
            issued: 0,
            answered: 0,
            measured: 0,
            over_time: InProgress::default(),
            first_cap: capabilities(scenario)
                .knobs_of(pilotlight_plant::Kind::BytesPerS)
                .next()
                .map(|(knob, _)| knob.index()),
            capped: false,
        }
    }

    /// Processes a record of a request; returns the transfer of a submitted command.
    pub(super) fn enter(&mut self, record: &Record, findings: &mut Findings) -> Option<Moved> {
        match record.kind {
            RecordKind::Issued => {
                self.issue(record, findings);
                return None;
            }
            RecordKind::Commanded => {
                let sets_cap = record.a == 5 && self.first_cap.is_some_and(|first| (record.b >> 32) as usize >= first);
                self.capped |= sets_cap;
                return None;
            }
            RecordKind::Arrived
            | RecordKind::Polled
            | RecordKind::Submitted
            | RecordKind::Completed
            | RecordKind::Answered
            | RecordKind::Received => {}
            _ => return None,
        }
        let name = record.a;
        let Some(progress) = self.in_progress.get_mut(&name) else {
            findings.add(Law::Requests, format!("{:?} of {}, which is not in progress", record.kind, called(name)));
            return None;
        };
        let connection = (name >> 40) as usize;
        let plan = &self.plans[connection];
        progress.since_ns = record.at_ns;
        if matches!(record.kind, RecordKind::Polled | RecordKind::Submitted | RecordKind::Answered) {
            self.active_ns[usize::from(self.scenario.workload.connections[connection].thread)] = record.at_ns;
        }
        let mut broken =
            |how: String| findings.add(Law::Requests, format!("{:?} of {}: {how}", record.kind, called(name)));
        match record.kind {
            RecordKind::Arrived => step(progress, Stage::Issued, Stage::Arrived, &mut broken),
            RecordKind::Polled => {
                let next = &mut self.next_polled[connection];
                if *next != number(name) {
                    broken(format!("request {next} is next"));
                }
                *next = number(name) + 1;
                step(progress, Stage::Arrived, Stage::Polled, &mut broken);
            }
            RecordKind::Submitted => {
                let (first, count) = self.scenario.workload.connections[connection].drives;
                if !(u64::from(first)..u64::from(first) + u64::from(count)).contains(&record.b) {
                    broken(format!("its connection does not use drive {}", record.b));
                }
                return submit(progress, plan, record.b as usize, &mut broken);
            }
            RecordKind::Completed => complete(progress, &mut broken),
            RecordKind::Answered => {
                if progress.completed < plan.len() {
                    broken(format!("{} of {} commands are completed", progress.completed, plan.len()));
                }
                step(progress, Stage::Polled, Stage::Answered, &mut broken);
            }
            _ => self.receive(record, findings),
        }
        None
    }

    fn issue(&mut self, record: &Record, findings: &mut Findings) {
        let connection = (record.a >> 40) as usize;
        match self.next.get_mut(connection) {
            Some(next) if *next == number(record.a) => *next += 1,
            _ => findings.add(Law::Requests, format!("{} is not its connection's next request", called(record.a))),
        }
        if connection >= self.plans.len() {
            return;
        }
        let (issued_ns, brought) = (record.at_ns, record.b as u32);
        let since_ns = issued_ns;
        let progress = Progress { stage: Stage::Issued, issued_ns, brought, submitted: 0, completed: 0, since_ns };
        self.in_progress.insert(record.a, progress);
        self.over_time.begin(issued_ns);
        self.issued += 1;
    }

    fn receive(&mut self, record: &Record, findings: &mut Findings) {
        let Some(progress) = self.in_progress.remove(&record.a) else { return };
        let latency_ns = record.at_ns - progress.issued_ns;
        if progress.stage != Stage::Answered {
            findings.add(Law::Requests, format!("{} is received while it is {:?}", called(record.a), progress.stage));
        }
        if record.b != latency_ns {
            findings.add(Law::Requests, format!("{} took {latency_ns} ns, not {}", called(record.a), record.b));
        }
        if record.at_ns >= self.scenario.duration_ns {
            return; // in flight at the end
        }
        self.over_time.end(record.at_ns, progress.issued_ns);
        self.answered += 1;
        self.measured += u64::from(progress.issued_ns >= self.scenario.warm_up_ns);
    }

    pub(super) fn stretch(&mut self, end_ns: u64) {
        self.over_time.stretch(end_ns);
    }

    /// Reports requests that are in progress at the end without a reason: a trace contains the completion times of drives and network, and an
    /// I/O thread is active at least every `max_wait_ns` while it has work.
    pub(super) fn find_lost(&self, max_wait_ns: u64, findings: &mut Findings) {
        let end_ns = self.scenario.duration_ns;
        let mut open: Vec<_> = self.in_progress.iter().collect();
        open.sort_unstable_by_key(|&(name, _)| name);
        for (&name, progress) in open {
            let thread = self.scenario.workload.connections[(name >> 40) as usize].thread;
            let active_ns = self.active_ns[usize::from(thread)].max(progress.since_ns);
            let lost = match progress.stage {
                Stage::Issued => true,
                Stage::Answered => progress.since_ns < end_ns,
                _ if progress.submitted > progress.completed => true,
                // A cap, or the queue of md's thread, may delay it without limit.
                Stage::Polled if self.capped || self.scenario.machine.kernel.md => false,
                Stage::Arrived | Stage::Polled => end_ns.saturating_sub(active_ns) > max_wait_ns,
            };
            if lost {
                let text = format!(
                    "{} is lost: its last record is {:?} at {} ns",
                    called(name),
                    progress.stage,
                    progress.since_ns
                );
                findings.add_for_run(Law::Requests, end_ns, text);
            }
        }
    }

    pub(super) fn finish(&self, outcome: &Outcome, findings: &mut Findings) -> Audit {
        let end_ns = self.scenario.duration_ns;
        let claimed = outcome.requests;
        let mut check_equal = |what, counted: u64, claimed: u64| {
            findings.check_equal(Law::Requests, end_ns, what, u128::from(counted), u128::from(claimed));
        };
        check_equal("requests issued", self.issued, claimed.issued);
        check_equal("requests answered", self.answered, claimed.answered);
        check_equal("requests in progress at the end", self.over_time.count(), claimed.in_progress);
        check_equal("requests out and in progress", self.issued, self.answered + self.over_time.count());
        check_equal("stretches", self.over_time.stretches() as u64, outcome.series.len() as u64);
        let histograms = outcome.latency.iter().map(|(_, histogram)| histogram.count()).sum();
        check_equal("latencies of requests sent after the warm-up", self.measured, histograms);
        let claims = outcome.series.iter().map(|stretch| (stretch.answered, stretch.latency_ns));
        self.over_time.compare(self.scenario.series_ns, "requests", claims, findings);
        Audit {
            issued: self.issued,
            answered: self.answered,
            in_progress: self.over_time.count(),
            mean_in_progress: self.over_time.mean(end_ns),
            ..Audit::default()
        }
    }
}

/// The number of a request on its connection.
fn number(name: u64) -> u64 {
    name & ((1 << 40) - 1)
}

fn called(name: u64) -> String {
    format!("request {} of connection {}", number(name), name >> 40)
}

/// The commands of a connection's requests, in order.
fn plan(connection: &Connection) -> Vec<Planned> {
    match &connection.request {
        Kind::Plain { bytes, .. } => vec![Planned { after: 0, bytes: Some(*bytes), write: None }],
        Kind::Traced { .. } => vec![Planned { after: 0, bytes: None, write: None }],
        Kind::Steps { steps, .. } => {
            let mut plan = Vec::new();
            for step in steps {
                let after = plan.len();
                let commands = (0..step.reads + step.writes).map(|part| Some(part >= step.reads));
                plan.extend(commands.map(|write| Planned { after, bytes: Some(step.bytes), write }));
            }
            plan
        }
    }
}

fn step(progress: &mut Progress, from: Stage, to: Stage, broken: &mut impl FnMut(String)) {
    if progress.stage != from {
        broken(format!("it is {:?}, not {from:?}", progress.stage));
    }
    progress.stage = to;
}

fn submit(progress: &mut Progress, plan: &[Planned], drive: usize, broken: &mut impl FnMut(String)) -> Option<Moved> {
    if progress.stage != Stage::Polled {
        broken(format!("it is {:?}, not Polled", progress.stage));
    }
    let Some(planned) = plan.get(progress.submitted) else {
        broken(format!("it has only {} commands", plan.len()));
        return None;
    };
    if progress.completed < planned.after {
        broken(format!("{} of {} commands that it waits for are completed", progress.completed, planned.after));
    }
    progress.submitted += 1;
    let bytes = planned.bytes.unwrap_or(progress.brought);
    Some(Moved { drive, bytes, write: planned.write.unwrap_or(progress.brought > 0) })
}

fn complete(progress: &mut Progress, broken: &mut impl FnMut(String)) {
    if progress.completed >= progress.submitted {
        broken("its commands were completed before".to_owned());
    }
    progress.completed += 1;
}
