//! The accountant: reads the trace of a run and says which laws the run has broken.
//!
//! **Problem.** An engine that loses a request, or forgets a joule, still prints plausible results. So every run can be checked by
//! somebody who was not there: the accountant knows the format of a trace ([`crate::trace`]), the scenario with the machine's figures,
//! and what the run claims ([`Outcome`]); it shares no code with the engine or its power model.
//!
//! **Words.** A *stretch* is an entry of [`Outcome::series`]; an *epoch* the grid of 10 us on which energy is looked at.
//!
//! **Algorithm.** One pass, in memory that depends on cores, I/O threads and requests in progress only. Each record goes to four
//! books: requests (`requests.rs`, `jobs.rs`), cores and I/O threads (`cores.rs`), frequencies (`orders.rs`), energy (`energy.rs`). At the end of each stretch the books
//! write down what they hold, and at the end that is compared with the outcome, integer by integer.
//!
//! **Properties.** `tests/laws.rs`: runs of every policy break no [`Law`]. `tests/laws_broken.rs`: a trace or an outcome that is changed in one
//! place breaks the law that it should. `pilotlab run FILE --audit` checks the runs of an experiment.
//!
//! What else the simulator is held to: closed forms of queueing theory within 2 % (`tests/queueing.rs`, `tests/ssd_queueing.rs`), of scheduled
//! cores (`tests/scheduled.rs`), and the meaning of commands (`tests/conformance.rs`).

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
use crate::trace::{Record, What};
use background::BackgroundBook;
use cores::Cores;
use energy::EnergyBook;
use jobs::JobBook;
use orders::OrderBook;
use requests::RequestBook;

/// What holds in every run, whatever the policy. None of it says that the model is like a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Law {
    /// A trace is whole records in the order of time.
    Trace,
    /// Requests issued are those answered and those in progress, in the run and in each stretch. Each request is issued, arrives, is polled,
    /// submits its commands, gets their completions, is answered and received, in this order. A step of a RAID request begins when
    /// all commands of the step before are completed. A connection's requests are numbered without a gap and polled in order. At
    /// the end, no I/O thread has let a request wait for longer than its longest loop, and drives and wires have none that they should
    /// have passed on.
    Requests,
    /// In each stretch, the integral of requests in progress is the sum of latencies, plus the time so far of what is in progress at the end, less
    /// that of what was at the beginning. In integers, exactly. Divided by the length this is Little's law. It holds for connections and for
    /// jobs on scheduled cores. A job is a closed loop: unless it thinks or has a quota, its processor rests only while as many of its
    /// requests are in progress as its depth, and where it has the processor to itself it looks at queues only then.
    Little,
    /// Each I/O thread has one home, or is on its way between two, at most for the machine's longest loop and wake-up. It moves only by
    /// command, and requests are polled and answered on its home only.
    Threads,
    /// A core works only while it is awake, and rests only if it has no I/O thread that polls; without one, only by command. Between a
    /// command and its effect there is at most one decision's time: 1 us for each I/O thread, times the slowest clock. A core that its quota
    /// keeps from running is a worker, and what it owns waits for it.
    Sleep,
    /// What a policy is told to have been polled has been polled.
    Counts,
    /// Energy recomputed from states, frequencies and bytes is the outcome's, in each stretch and component, to the microjoule; so are time
    /// awake and capacity. The rule with its rounding is in `accountant/energy.rs`.
    Energy,
    /// In each stretch, CPU and other components draw no less than with every core deep, and no more than with all polling at the highest
    /// frequency; drives no less than idle and no more than their ceilings. Frequencies and exit latencies are the machine's. What a
    /// drive does of its own takes no longer than the time in which it has no command.
    Bounds,
    /// A drive has one background I/O at a time, of at most 64 KiB. An I/O thread starts none while it has a request in progress; one that is
    /// in progress when a request is polled is over within 1 ms of that poll, or within the longest that one I/O takes a slower drive (not
    /// checked where that has no bound, or where the drive had commands of hosts when it began). What was done and what is left are what the
    /// outcome says.
    Background,
    /// Every accepted order of a frequency shows within its transition time and an epoch; where an order begins the transition anew, the
    /// last one does. No frequency changes early or without an order.
    Frequencies,
}

/// A law that is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub law: Law,
    /// By which record of the trace, counted from 0; `None` if by the outcome as a whole.
    pub record: Option<u64>,
    /// When, in nanoseconds.
    pub at_ns: u64,
    /// How.
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

/// What the accountant has seen of a run that breaks no law.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Audit {
    /// Records in the trace.
    pub records: u64,
    /// Requests sent by hosts.
    pub issued: u64,
    /// Answers that hosts have got.
    pub answered: u64,
    /// Requests between the two at the end.
    pub in_progress: u64,
    /// Mean of requests in progress over the whole run.
    pub mean_in_progress: f64,
    /// The same of jobs on scheduled cores.
    pub jobs_mean_in_progress: f64,
    /// I/O threads that have come to a new home.
    pub moves: u64,
    /// Times that a core went to rest.
    pub rests: u64,
    /// Energy over the measured time, recomputed.
    pub energy: Energy,
}

/// Violations beyond this many are only counted.
const MOST: usize = 100;

/// Collects violations.
#[derive(Debug, Default)]
struct Findings {
    list: Vec<Violation>,
    more: u64,
    records: u64,
    at_ns: u64,
}

impl Findings {
    /// The present record breaks a law.
    fn add(&mut self, law: Law, what: String) {
        self.push(Violation { law, record: Some(self.records), at_ns: self.at_ns, what });
    }

    /// The outcome does not agree with the trace.
    fn claim(&mut self, law: Law, at_ns: u64, what: String) {
        self.push(Violation { law, record: None, at_ns, what });
    }

    fn push(&mut self, violation: Violation) {
        if self.list.len() < MOST {
            self.list.push(violation);
        } else {
            self.more += 1;
        }
    }

    /// Two integers that are to be the same.
    fn same(&mut self, law: Law, at_ns: u64, what: &str, counted: u128, claimed: u128) {
        if counted != claimed {
            self.claim(law, at_ns, format!("{what}: {counted} by the trace, {claimed} by the outcome"));
        }
    }
}

/// Checks a trace that is written into it; [`Accountant::finish`] has the verdict.
pub struct Accountant<'a> {
    scenario: &'a Scenario,
    requests: RequestBook<'a>,
    jobs: JobBook<'a>,
    cores: Cores<'a>,
    orders: OrderBook,
    background: BackgroundBook<'a>,
    energy: EnergyBook<'a>,
    findings: Findings,
    /// Ends of stretches that have passed.
    stretches: usize,
    /// The beginning of a record whose end has not come.
    part: Vec<u8>,
}

impl<'a> Accountant<'a> {
    /// An accountant for a run of `scenario`.
    #[must_use]
    pub fn new(scenario: &'a Scenario) -> Self {
        Self {
            scenario,
            requests: RequestBook::new(scenario),
            jobs: JobBook::new(scenario),
            cores: Cores::new(scenario),
            orders: OrderBook::new(scenario),
            background: BackgroundBook::new(scenario),
            energy: EnergyBook::new(scenario),
            findings: Findings::default(),
            stretches: 0,
            part: Vec::new(),
        }
    }

    /// Whether the run was as it has to be, and as `outcome` says.
    ///
    /// # Errors
    /// Every law that is broken, with the record that breaks it; beyond a hundred only their number.
    pub fn finish(mut self, outcome: &Outcome) -> Result<Audit, Vec<Violation>> {
        self.pass(self.scenario.duration_ns);
        let findings = &mut self.findings;
        if !self.part.is_empty() {
            findings.add(Law::Trace, format!("the trace ends with {} bytes that are no record", self.part.len()));
        }
        self.cores.finish(findings);
        self.orders.finish(findings);
        self.requests.find_lost(self.cores.patience_ns, findings);
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
            None => self.findings.add(Law::Trace, "this is no record".to_owned()),
        }
        self.findings.records += 1;
    }

    fn enter(&mut self, record: &Record) {
        if record.at_ns < self.findings.at_ns {
            self.findings.add(Law::Trace, format!("a record of {} ns comes late", record.at_ns));
        }
        let record = &Record { at_ns: record.at_ns.max(self.findings.at_ns), ..*record };
        self.findings.at_ns = record.at_ns;
        self.pass(record.at_ns);
        let findings = &mut self.findings;
        self.orders.pass(record.at_ns, findings);
        match record.what {
            What::Ordered => self.orders.order(record, findings),
            What::Frequency => self.orders.enter(record, findings),
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
        if matches!(record.what, What::Core | What::Frequency | What::Limited | What::Exits | What::Drive) {
            self.energy.enter(record, findings);
        }
        if record.what == What::Core {
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

impl Write for Accountant<'_> {
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
/// Every law that is broken; a trace that cannot be read breaks [`Law::Trace`].
pub fn audit(mut trace: impl Read, scenario: &Scenario, outcome: &Outcome) -> Result<Audit, Vec<Violation>> {
    let mut accountant = Accountant::new(scenario);
    if let Err(error) = io::copy(&mut trace, &mut accountant) {
        accountant.findings.add(Law::Trace, format!("the trace cannot be read: {error}"));
    }
    accountant.finish(outcome)
}
