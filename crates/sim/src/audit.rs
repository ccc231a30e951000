//! Checks the trace of a run against conservation laws.
//!
//! **Problem.** An engine that loses a request or energy still prints plausible results. The auditor checks a run independently: it knows
//! the format of a trace ([`crate::trace`]), the scenario and the run's result ([`Outcome`]), and shares no code with the engine or its
//! power model.
//!
//! **Terms.** A *stretch* is an entry of [`Outcome::series`]; an *epoch* is 10 us, the grid of energy accounting.
//!
//! **Algorithm.** One pass, in memory proportional to cores, I/O threads and requests in progress. Each record goes to the checks of
//! requests (`requests.rs`, `jobs.rs`), cores and I/O threads (`cores.rs`), frequencies (`orders.rs`) and energy (`energy.rs`). They save
//! their totals at the end of each stretch, which are compared with the outcome in integers.
//!
//! **Properties.** `tests/laws.rs`: runs of every policy break no [`Law`]. `tests/laws_broken.rs`: a changed trace or outcome breaks the
//! expected law. `pilotlab run FILE --audit` checks the runs of an experiment.
//!
//! Further validation: closed forms of queueing theory within 2 % (`tests/queueing.rs`, `tests/ssd_queueing.rs`), of scheduled cores
//! (`tests/scheduled.rs`), and conformance of commands (`tests/conformance.rs`).

mod background;
mod cores;
mod drives;
mod energy;
mod in_progress;
mod jobs;
mod orders;
mod requests;

use std::fmt;
use std::io::{self, Read, Write};

use crate::outcome::{Energy, Outcome};
use crate::scenario::Scenario;
use crate::trace::{Record, RecordKind};
use background::BackgroundCheck;
use cores::CoreCheck;
use energy::EnergyCheck;
use jobs::JobCheck;
use orders::FrequencyCheck;
use requests::RequestCheck;

/// Invariants of every run under any policy. They do not validate the model against a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Law {
    /// A trace consists of whole records in order of time.
    Trace,
    /// Requests issued equal those answered plus those in progress, in the run and in each stretch. Each request is issued, arrives, is polled,
    /// submits its commands, gets their completions, is answered and received, in this order. A step of a RAID request begins when all commands of
    /// the previous step are complete. A connection's requests are numbered without gaps and polled in order. At the end, no request has waited on an
    /// I/O thread for longer than its longest loop, and drives and wires hold no request that is due.
    Requests,
    /// In each stretch, the integral of requests in progress is the sum of latencies, plus the elapsed time of requests in progress at the end, minus
    /// that of those at the beginning; exactly, in integers. Divided by the length this is Little's law. It holds for connections and for jobs on
    /// scheduled cores. A job is a closed loop: unless it thinks or has a quota, its CPU is idle only while the number of requests in progress equals
    /// its depth, and if it has the CPU to itself it polls queues only then.
    Little,
    /// Each I/O thread has one home, or moves between two, for at most the machine's longest loop and wake-up. It moves only by command, and requests
    /// are polled and answered on its home only.
    Threads,
    /// A core works only while it is awake, and is idle only if it has no polling I/O thread; without any thread, only by command. A command takes
    /// effect within the time of one decision: 1 us for each I/O thread, times the slowest clock. Only workers are throttled by the quota, and a
    /// throttled worker's requests wait for it.
    Sleep,
    /// The numbers of polled requests that a policy receives are correct.
    Counts,
    /// Energy recomputed from states, frequencies and bytes equals the outcome's, in each stretch and component, to the microjoule; likewise awake
    /// time and capacity. The rule with its rounding is in `audit/energy.rs`.
    Energy,
    /// In each stretch, CPU and other components draw no less than with every core deep, and no more than with all polling at the highest frequency;
    /// drives no less than idle and no more than their ceilings. Frequencies and exit latencies are the machine's. A drive's autonomous activity
    /// takes no longer than its time without commands.
    Bounds,
    /// A drive has one background I/O at a time, of at most 64 KiB. An I/O thread starts none while it has a request in progress; one in progress
    /// when a request is polled ends within 1 ms of that poll, or within the maximum time of one I/O on a slower drive (not checked if that has no
    /// bound, or if the drive had host commands when it began). Completed and remaining bytes equal the outcome's.
    Background,
    /// Every accepted frequency command takes effect within its transition time plus an epoch; if a command restarts the transition, the last one
    /// does. No frequency changes early or without a command.
    Frequencies,
}

/// A violated law.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The law.
    pub law: Law,
    /// Index of the offending record; `None` if the outcome as a whole violates the law.
    pub record: Option<u64>,
    /// Time in nanoseconds.
    pub at_ns: u64,
    /// Description.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}: {} (at {} ns", self.law, self.what, self.at_ns)?;
        match self.record {
            Some(record) => write!(out, ", record {record})"),
            None => write!(out, ")"),
        }
    }
}

/// Totals of a run without violations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Audit {
    /// Records in the trace.
    pub records: u64,
    /// Requests sent by hosts.
    pub issued: u64,
    /// Responses received by hosts.
    pub answered: u64,
    /// Requests in progress at the end.
    pub in_progress: u64,
    /// Mean of requests in progress over the whole run.
    pub mean_in_progress: f64,
    /// The same of jobs on scheduled cores.
    pub jobs_mean_in_progress: f64,
    /// Completed moves of I/O threads.
    pub moves: u64,
    /// Number of times a core went idle.
    pub rests: u64,
    /// Energy over the measured time, recomputed.
    pub energy: Energy,
}

/// Violations beyond this many are only counted.
const MAX_VIOLATIONS: usize = 100;

/// Collects violations.
#[derive(Debug, Default)]
struct Findings {
    list: Vec<Violation>,
    more: u64,
    records: u64,
    at_ns: u64,
}

impl Findings {
    /// The current record violates a law.
    fn add(&mut self, law: Law, what: String) {
        self.push(Violation { law, record: Some(self.records), at_ns: self.at_ns, what });
    }

    /// The outcome disagrees with the trace.
    fn add_for_run(&mut self, law: Law, at_ns: u64, what: String) {
        self.push(Violation { law, record: None, at_ns, what });
    }

    fn push(&mut self, violation: Violation) {
        if self.list.len() < MAX_VIOLATIONS {
            self.list.push(violation);
        } else {
            self.more += 1;
        }
    }

    /// Compares two integers.
    fn check_equal(&mut self, law: Law, at_ns: u64, what: &str, counted: u128, claimed: u128) {
        if counted != claimed {
            self.add_for_run(law, at_ns, format!("{what}: {counted} by the trace, {claimed} by the outcome"));
        }
    }
}

/// Checks a trace that is written into it; [`TraceAuditor::finish`] returns the result.
pub struct TraceAuditor<'a> {
    scenario: &'a Scenario,
    requests: RequestCheck<'a>,
    jobs: JobCheck<'a>,
    cores: CoreCheck<'a>,
    orders: FrequencyCheck,
    background: BackgroundCheck<'a>,
    energy: EnergyCheck<'a>,
    findings: Findings,
    /// Number of finished stretches.
    stretches: usize,
    /// An incomplete record.
    part: Vec<u8>,
}

impl<'a> TraceAuditor<'a> {
    /// Creates an auditor for a run of `scenario`.
    #[must_use]
    pub fn new(scenario: &'a Scenario) -> Self {
        Self {
            scenario,
            requests: RequestCheck::new(scenario),
            jobs: JobCheck::new(scenario),
            cores: CoreCheck::new(scenario),
            orders: FrequencyCheck::new(scenario),
            background: BackgroundCheck::new(scenario),
            energy: EnergyCheck::new(scenario),
            findings: Findings::default(),
            stretches: 0,
            part: Vec::new(),
        }
    }

    /// Finishes the checks, and compares the trace with `outcome`.
    ///
    /// # Errors
    /// All violations; beyond a hundred only their number.
    pub fn finish(mut self, outcome: &Outcome) -> Result<Audit, Vec<Violation>> {
        self.pass(self.scenario.duration_ns);
        let findings = &mut self.findings;
        if !self.part.is_empty() {
            findings.add(Law::Trace, format!("the trace ends with {} bytes of an incomplete record", self.part.len()));
        }
        self.cores.finish(findings);
        self.orders.finish(findings);
        self.requests.find_lost(self.cores.max_wait_ns, findings);
        let audit = Audit {
            records: findings.records,
            moves: self.cores.moves,
            rests: self.cores.rests,
            jobs_mean_in_progress: self.jobs.mean_in_progress(),
            ..self.requests.finish(outcome, findings)
        };
        self.jobs.finish(outcome, findings);
        self.background.finish(outcome, findings);
        let energy = self.energy.finish(outcome, findings);
        let Findings { mut list, more, records, at_ns } = self.findings;
        if more > 0 {
            list.push(Violation {
                law: Law::Trace,
                record: Some(records),
                at_ns,
                what: format!("{more} further violations"),
            });
        }
        if list.is_empty() { Ok(Audit { energy, ..audit }) } else { Err(list) }
    }

    fn take(&mut self, bytes: &[u8; Record::BYTES]) {
        match Record::decode(bytes) {
            Some(record) => self.enter(&record),
            None => self.findings.add(Law::Trace, "invalid record".to_owned()),
        }
        self.findings.records += 1;
    }

    fn enter(&mut self, record: &Record) {
        if record.at_ns < self.findings.at_ns {
            self.findings.add(Law::Trace, format!("a record of {} ns is out of order", record.at_ns));
        }
        let record = &Record { at_ns: record.at_ns.max(self.findings.at_ns), ..*record };
        self.findings.at_ns = record.at_ns;
        self.pass(record.at_ns);
        let findings = &mut self.findings;
        self.orders.pass(record.at_ns, findings);
        match record.kind {
            RecordKind::Ordered => self.orders.order(record, findings),
            RecordKind::Frequency => self.orders.enter(record, findings),
            _ => {}
        }
        self.energy.command(record);
        if let Some(moved) = self.background.enter(record, findings) {
            self.energy.moved(record.at_ns, &moved);
        }
        if self.jobs.is_about(record) {
            if let Some(moved) = self.jobs.enter(record, findings) {
                self.energy.moved(record.at_ns, &moved);
            }
            return;
        }
        if matches!(
            record.kind,
            RecordKind::Core | RecordKind::Frequency | RecordKind::Limited | RecordKind::Exits | RecordKind::Drive
        ) {
            self.energy.enter(record, findings);
        }
        if record.kind == RecordKind::Core {
            self.jobs.core(record, findings);
        }
        self.cores.enter(record, findings);
        if let Some(moved) = self.requests.enter(record, findings) {
            self.energy.moved(record.at_ns, &moved);
        }
    }

    /// Ends the stretches that end at `at_ns` or before.
    fn pass(&mut self, at_ns: u64) {
        let step = self.scenario.series_ns;
        let count = (self.scenario.duration_ns / step) as usize;
        while self.stretches < count && at_ns / step > self.stretches as u64 {
            self.stretches += 1;
            let end_ns = self.stretches as u64 * step;
            self.requests.stretch(end_ns);
            self.jobs.stretch(end_ns);
            self.energy.stretch(end_ns, &mut self.findings);
        }
    }
}

impl Write for TraceAuditor<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        if !self.part.is_empty() {
            let (head, tail) = rest.split_at(rest.len().min(Record::BYTES - self.part.len()));
            self.part.extend_from_slice(head);
            rest = tail;
            if let Ok(record) = <[u8; Record::BYTES]>::try_from(self.part.as_slice()) {
                self.part.clear();
                self.take(&record);
            }
        }
        let (records, tail) = rest.as_chunks();
        records.iter().for_each(|record| self.take(record));
        self.part.extend_from_slice(tail);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Audits a trace from the beginning to the end.
///
/// # Errors
/// All violations; an unreadable trace violates [`Law::Trace`].
pub fn audit(mut trace: impl Read, scenario: &Scenario, outcome: &Outcome) -> Result<Audit, Vec<Violation>> {
    let mut audit = TraceAuditor::new(scenario);
    if let Err(error) = io::copy(&mut trace, &mut audit) {
        audit.findings.add(Law::Trace, format!("the trace cannot be read: {error}"));
    }
    audit.finish(outcome)
}
