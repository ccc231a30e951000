//! Event trace of a run: one record per event, in time order.
//!
//! Records of equal time are ordered by their other fields, so that two equivalent engines write the same bytes. A record is 26 bytes, little-endian:
//! time in nanoseconds (8), kind (2), two numbers (8 each).

use std::io::{self, Write};

/// Kind of a record, with the meaning of its numbers `a` and `b` in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum RecordKind {
    /// A host sends a request \[request, size in bytes\].
    Issued = 1,
    /// A request reaches the target's network card \[request, I/O thread\].
    Arrived = 2,
    /// An I/O thread polls a request \[request, core\].
    Polled = 3,
    /// A command is submitted to a drive \[request, drive\].
    Submitted = 4,
    /// A drive completes a command \[request, drive\].
    Completed = 5,
    /// The response goes to the network card \[request, core\].
    Answered = 6,
    /// The host receives the response \[request, latency in nanoseconds\].
    Received = 7,
    /// A core changes its state \[core, [`State`] as a number, plus [`THROTTLED`] if its quota is used up\].
    Core = 8,
    /// A core changes its frequency \[core, kHz\].
    Frequency = 9,
    /// An I/O thread leaves a core \[I/O thread, core\].
    Left = 10,
    /// An I/O thread is on a core \[I/O thread, core\].
    Home = 11,
    /// The policy is called \[1 for a tick, 2 for an interval, requests polled since the last\].
    PolicyCalled = 12,
    /// The policy issues a command \[[`crate::engine::command_code`], its argument\].
    Commanded = 13,
    /// A core's frequency is commanded \[core, kHz in the command\].
    Ordered = 14,
    /// A core begins to exit an idle state \[core, exit latency in nanoseconds\].
    Exits = 15,
    /// A drive was autonomously active earlier in the same stretch \[drive plus activity times 2^32 ([`crate::ssd::AutonomousActivity::code`]);
    /// duration in nanoseconds\].
    Drive = 16,
    /// The package's power limit changes the highest allowed frequency \[kHz, the limit in microwatts, 0 for none\].
    Limited = 17,
    /// Background I/O is submitted to a drive \[class times 2^32 plus drive; bytes, plus 2^32 for a write\].
    Background = 18,
    /// A drive completes background I/O \[class times 2^32 plus drive; bytes\].
    BackgroundDone = 19,
}

impl RecordKind {
    const ALL: [Self; 19] = [
        Self::Issued,
        Self::Arrived,
        Self::Polled,
        Self::Submitted,
        Self::Completed,
        Self::Answered,
        Self::Received,
        Self::Core,
        Self::Frequency,
        Self::Left,
        Self::Home,
        Self::PolicyCalled,
        Self::Commanded,
        Self::Ordered,
        Self::Exits,
        Self::Drive,
        Self::Limited,
        Self::Background,
        Self::BackgroundDone,
    ];
}

/// Power-relevant state of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Polling, working, or waking up.
    #[default]
    Awake = 0,
    /// In a shallow sleep (C-1).
    Shallow = 1,
    /// In a deep sleep (C-N).
    Deep = 2,
    /// Awake, and only polls a queue. Polling cores are [`Self::Awake`] all the time.
    Spins = 3,
}

/// Added to the number of a core's state while its quota is used up.
pub const THROTTLED: u64 = 16;

/// A record of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// Time in nanoseconds.
    pub at_ns: u64,
    /// Kind.
    pub kind: RecordKind,
    /// The first number.
    pub a: u64,
    /// The second number.
    pub b: u64,
}

impl Record {
    /// Encoded length.
    pub const BYTES: usize = 26;

    /// The encoded record.
    #[must_use]
    pub fn bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.at_ns.to_le_bytes());
        bytes[8..10].copy_from_slice(&(self.kind as u16).to_le_bytes());
        bytes[10..18].copy_from_slice(&self.a.to_le_bytes());
        bytes[18..].copy_from_slice(&self.b.to_le_bytes());
        bytes
    }

    /// Decodes a record; `None` if `bytes` are invalid.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let eight = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let kind = u16::from_le_bytes([bytes[8], bytes[9]]);
        let kind = RecordKind::ALL.into_iter().find(|&known| known as u16 == kind)?;
        Some(Self { at_ns: eight(0), kind, a: eight(10), b: eight(18) })
    }
}

/// Sorts records and writes them in order.
pub(crate) struct Recorder<'a> {
    out: Option<&'a mut dyn Write>,
    waiting: Vec<Record>,
    /// Waiting records from which on they are sorted. Twice those that the last sorting left, or each of many small steps would sort
    /// them all: with 24,000 requests in flight that took three quarters of the time of an audited run.
    limit: usize,
    failed: Option<io::Error>,
}

/// The least records to sort.
const MIN_SORTED: usize = 4096;

impl<'a> Recorder<'a> {
    pub(crate) fn new(out: Option<&'a mut dyn Write>) -> Self {
        Self { out, waiting: Vec::new(), limit: MIN_SORTED, failed: None }
    }

    #[inline]
    pub(crate) fn note(&mut self, at_ns: u64, kind: RecordKind, a: u64, b: u64) {
        if self.out.is_some() {
            self.waiting.push(Record { at_ns, kind, a, b });
        }
    }

    /// Writes the records before `until_ns`; no earlier ones follow.
    pub(crate) fn settle(&mut self, until_ns: u64) {
        let Some(out) = &mut self.out else { return };
        if self.waiting.len() < self.limit && until_ns != u64::MAX {
            return;
        }
        self.waiting.sort_unstable();
        let settled = self.waiting.partition_point(|record| record.at_ns < until_ns);
        for record in self.waiting.drain(..settled) {
            if let Err(error) = out.write_all(&record.bytes()) {
                self.failed.get_or_insert(error);
            }
        }
        self.limit = MIN_SORTED.max(2 * self.waiting.len());
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.settle(u64::MAX);
        self.failed.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_ordered_and_survive_a_round_trip() {
        let mut bytes = Vec::new();
        let mut recorder = Recorder::new(Some(&mut bytes));
        for (at_ns, a) in [(30, 1), (10, 2), (10, 1), (20, 9)] {
            recorder.note(at_ns, RecordKind::Polled, a, 7);
        }
        recorder.finish().unwrap();
        let (records, rest) = bytes.as_chunks::<{ Record::BYTES }>();
        assert!(rest.is_empty());
        let read: Vec<_> = records.iter().map(|bytes| Record::decode(bytes).unwrap()).map(|r| (r.at_ns, r.a)).collect();
        assert_eq!(read, [(10, 1), (10, 2), (20, 9), (30, 1)]);
    }
}
