//! Arrival and response times, read from a run's trace while it is written.

use std::io::{self, Write};

use super::demand::{Demand, Slot};
use crate::machine::PollCosts;
use crate::scenario::{Connection, Kind, Scenario};
use crate::trace::{Record, RecordKind};

/// Requests and their work in each bin of a run.
#[derive(Debug)]
pub(crate) struct Ledger {
    bin_ns: u64,
    half_trip_ns: u64,
    /// Work of a request, by connection, in nanoseconds of a core.
    work_ns: Vec<u64>,
    pub(crate) arrived: Vec<Bin>,
    /// Counted at the latest time at which the response can have left the target, given its arrival at the host.
    pub(crate) answered: Vec<Bin>,
    /// Requests that arrived, by I/O thread.
    pub(crate) threads: Vec<u64>,
    /// Times of responses at hosts, in ascending order.
    answers_ns: Vec<u64>,
    /// The same by connection and number, if requested.
    received_ns: Option<Vec<Vec<u64>>>,
    part: Vec<u8>,
}

/// A stretch of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bin {
    pub(crate) requests: u64,
    pub(crate) work_ns: u64,
}

/// No answer yet.
const UNANSWERED: u64 = u64::MAX;

/// Minimum core time of a request at full speed, in nanoseconds: its steps, without loops, queues and threads.
pub(crate) fn request_ns(costs: &PollCosts, connection: &Connection) -> u64 {
    let command = u64::from(costs.submit_ns + costs.complete_ns);
    let commands = match &connection.request {
        Kind::Plain { .. } | Kind::Traced { .. } => command,
        Kind::Steps { steps, .. } => steps
            .iter()
            .map(|step| {
                u64::from(step.reads + step.writes) * command
                    + u64::from(step.parity_kib) * u64::from(costs.parity_ns_per_kib)
            })
            .sum(),
    };
    u64::from(costs.receive_ns + costs.respond_ns) + commands
}

impl Ledger {
    pub(crate) fn new(scenario: &Scenario, bin_ns: u64, each_request: bool) -> Self {
        let bins = vec![Bin::default(); scenario.duration_ns.div_ceil(bin_ns) as usize];
        let connections = &scenario.workload.connections;
        Self {
            bin_ns,
            half_trip_ns: scenario.machine.network.round_trip_ns / 2,
            work_ns: connections.iter().map(|one| request_ns(&scenario.machine.poll, one)).collect(),
            arrived: bins.clone(),
            answered: bins,
            threads: vec![0; usize::from(scenario.threads)],
            answers_ns: Vec::new(),
            received_ns: each_request.then(|| vec![Vec::new(); connections.len()]),
            part: Vec::with_capacity(Record::BYTES),
        }
    }

    /// The work, with one slot per bin.
    pub(crate) fn demand(&self, epsilon_ns: u64) -> Demand {
        let slot = |(arrived, answered): (&Bin, &Bin)| Slot {
            length_ns: self.bin_ns,
            work_ns: arrived.work_ns,
            done_static_ns: answered.work_ns,
        };
        Demand { slots: self.arrived.iter().zip(&self.answered).map(slot).collect(), epsilon_ns }
    }

    /// Requests between arrival and response, or late by less than epsilon, at a time on the grid.
    pub(crate) fn open_requests(&self, at_ns: u64, epsilon_ns: u64) -> u64 {
        let until =
            |bins: &[Bin], ns: u64| bins.iter().take((ns / self.bin_ns) as usize).map(|bin| bin.requests).sum::<u64>();
        until(&self.arrived, at_ns).saturating_sub(until(&self.answered, at_ns.saturating_sub(epsilon_ns)))
    }

    fn take(&mut self, record: Record) {
        let connection = (record.a >> 40) as usize;
        match record.kind {
            RecordKind::Arrived => {
                self.threads[record.b as usize] += 1;
                count(&mut self.arrived, record.at_ns / self.bin_ns, self.work_ns[connection]);
            }
            RecordKind::Received => {
                let left_ns = record.at_ns.saturating_sub(self.half_trip_ns);
                count(&mut self.answered, left_ns / self.bin_ns, self.work_ns[connection]);
                self.answers_ns.push(record.at_ns);
                if let Some(received_ns) = &mut self.received_ns {
                    note(&mut received_ns[connection], (record.a & ((1 << 40) - 1)) as usize, record.at_ns);
                }
            }
            _ => {}
        }
    }
}

fn count(bins: &mut [Bin], at: u64, work_ns: u64) {
    if let Some(bin) = bins.get_mut(at as usize) {
        bin.requests += 1;
        bin.work_ns += work_ns;
    }
}

fn note(times: &mut Vec<u64>, number: usize, at_ns: u64) {
    if times.len() <= number {
        times.resize(number + 1, UNANSWERED);
    }
    times[number] = at_ns;
}

impl Write for Ledger {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(Record::BYTES - self.part.len());
        self.part.extend_from_slice(&bytes[..taken]);
        if let Ok(whole) = <&[u8; Record::BYTES]>::try_from(self.part.as_slice()) {
            let record = Record::decode(whole).ok_or_else(|| io::Error::other("a trace has an unknown record"))?;
            self.part.clear();
            self.take(record);
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Delays of one run's responses relative to another run's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Responses delayed by more than epsilon.
    pub late: u64,
    /// The largest delay in nanoseconds.
    pub most_ns: u64,
}

impl Delays {
    /// Adds a delay; a missing response counts as received at the end.
    fn add(&mut self, before_ns: u64, after_ns: Option<&u64>, epsilon_ns: u64, end_ns: u64) {
        let seen_ns = after_ns.copied().filter(|&ns| ns != UNANSWERED).unwrap_or(end_ns);
        let delay_ns = seen_ns.saturating_sub(before_ns);
        self.late += u64::from(delay_ns > epsilon_ns);
        self.most_ns = self.most_ns.max(delay_ns);
    }
}

/// Delays of responses in a run relative to a base run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Responses of the base run.
    pub answers: u64,
    /// Delays of the n-th response relative to the n-th.
    pub by_rank: Delays,
    /// Delays by request, if requested.
    pub by_request: Option<Delays>,
}

/// Delays of `other`'s responses relative to `base`.
pub(crate) fn lateness(base: &Ledger, other: &Ledger, epsilon_ns: u64, end_ns: u64) -> Lateness {
    let mut by_rank = Delays::default();
    for (rank, &before_ns) in base.answers_ns.iter().enumerate() {
        by_rank.add(before_ns, other.answers_ns.get(rank), epsilon_ns, end_ns);
    }
    let by_request = base.received_ns.as_ref().zip(other.received_ns.as_ref()).map(|(before, after)| {
        let mut delays = Delays::default();
        for (before, after) in before.iter().zip(after) {
            for (number, &before_ns) in before.iter().enumerate().filter(|&(_, &ns)| ns != UNANSWERED) {
                delays.add(before_ns, after.get(number), epsilon_ns, end_ns);
            }
        }
        delays
    });
    Lateness { answers: base.answers_ns.len() as u64, by_rank, by_request }
}
