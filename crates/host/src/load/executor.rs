//! Issues the commands of a thread, and checks and counts their completions.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::{DsmRange, cdw12, dsm, opcode::io};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use crate::clock;
use crate::connection::Connection;
use crate::error::HostError;
use crate::ledger::{Journal, Ledger, LedgerError};
use crate::load::picker::{Kind, Picker};
use crate::load::stats::Stats;
use crate::queue::{Completed, Transfer};

/// Addresses tried if their blocks are already being changed.
const MAX_TRIES: u32 = 16;

/// A command in flight.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    start_ns: u64,
    /// First block; the journal's mark for a flush.
    lba: u64,
    blocks: u32,
    kind: Kind,
    phase: u8,
}

/// A connection and its state.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) connection: Connection,
    picker: Picker,
    in_flight: Vec<InFlight>,
    /// Minimum generation of each block of each read.
    min_generations: Vec<u32>,
    /// Remaining commands of this connection.
    pub(super) left: u64,
    writes_since_flush: u32,
}

impl Job {
    pub(crate) fn new(mut connection: Connection, picker: Picker, limits: &Limits) -> Self {
        let depth = connection.queue().depth();
        let in_flight = vec![InFlight { start_ns: 0, lba: 0, blocks: 0, kind: Kind::Read, phase: 0 }; depth];
        let min_generations = vec![0; depth * limits.blocks_per_io as usize];
        Self { connection, picker, in_flight, min_generations, left: limits.ios, writes_since_flush: 0 }
    }
}

/// Constants of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) nsid: u32,
    pub(crate) block_size: u32,
    pub(crate) blocks_per_io: u32,
    pub(crate) fua: bool,
    pub(crate) flush_every: u32,
    pub(crate) continue_on_error: bool,
    pub(crate) start_ns: u64,
    pub(crate) ramp_end_ns: u64,
    pub(crate) end_ns: u64,
    /// Commands per connection.
    pub(crate) ios: u64,
    /// Only the pass that reads the blocks of the ledger.
    pub(crate) verify_only: bool,
    pub(crate) timeout_ms: u64,
    pub(crate) yield_when_idle: bool,
}

/// State of a thread without its connections.
#[derive(Debug)]
pub(crate) struct Executor {
    pub(super) limits: Limits,
    pub(super) stats: Stats,
    pub(super) ledger: Option<Ledger>,
    /// The ledger in a file.
    pub(super) journal: Option<Journal>,
    /// The first write error of the journal: nothing more is sent.
    pub(super) journal_error: Option<LedgerError>,
    /// Ranges left to read of the final pass.
    pub(super) read_back: Option<std::vec::IntoIter<(u64, u32)>>,
    pub(super) now_ns: u64,
    pub(super) ramped: bool,
    pub(super) stopping: bool,
}

impl Executor {
    /// Receives once from a connection and handles completions; whether anything arrived.
    #[inline]
    pub(super) fn receive(&mut self, job: &mut Job, scratch: &mut [u8]) -> Result<bool, HostError> {
        let Job { connection, in_flight, min_generations, .. } = job;
        let mut is_time_read = false;
        let received = connection.poll(scratch, |completed, data| {
            if !is_time_read {
                self.now_ns = clock::now_ns();
                is_time_read = true;
            }
            self.complete(in_flight, min_generations, &completed, data);
        })?;
        if received > 0 && !is_time_read {
            self.now_ns = clock::now_ns();
        }
        Ok(received > 0)
    }

    #[inline]
    fn complete(&mut self, in_flight: &[InFlight], min_generations: &[u32], completed: &Completed, data: &[u8]) {
        let m = in_flight[usize::from(completed.cid)];
        let succeeded = completed.status.is_success() && !completed.digest_error;
        if let Some(ledger) = &mut self.ledger
            && m.kind.changes()
        {
            ledger.end(m.lba, m.blocks, succeeded);
        }
        if succeeded {
            self.record_success(&m);
        }
        if !succeeded {
            return self.failed(&m, completed);
        }
        if self.read_back.is_none() || self.limits.verify_only {
            let moves = matches!(m.kind, Kind::Read | Kind::Write);
            let bytes = if moves { m.blocks * self.limits.block_size } else { 0 };
            let latency_ns = self.now_ns.saturating_sub(m.start_ns);
            self.stats.record(m.kind, bytes, m.phase, latency_ns, self.now_ns);
        }
        if self.ledger.is_some() && m.kind == Kind::Read {
            let at = usize::from(completed.cid) * self.limits.blocks_per_io as usize;
            self.check(m.lba, &min_generations[at..at + m.blocks as usize], data);
        }
    }

    /// Records the durable generations of a successful command.
    fn record_success(&mut self, m: &InFlight) {
        let (Some(journal), Some(ledger)) = (&mut self.journal, &self.ledger) else { return };
        // Dataset Management has no FUA.
        let fua = self.limits.fua && m.kind != Kind::Deallocate;
        let recorded = match m.kind {
            Kind::Flush => journal.flushed(ledger, m.lba),
            kind if kind.changes() => journal.succeeded(ledger, m.lba, m.blocks, fua),
            _ => Ok(()),
        };
        self.check_recorded(recorded);
    }

    #[inline]
    fn check_recorded(&mut self, recorded: Result<(), LedgerError>) {
        if let Err(fault) = recorded {
            self.journal_error.get_or_insert(fault);
            self.stopping = true;
        }
    }

    /// Called before commands are sent: a command without its record must not be sent.
    #[inline]
    pub(super) fn check_journal(&mut self) -> Result<(), HostError> {
        self.journal_error.take().map_or(Ok(()), |fault| Err(HostError::Ledger(fault)))
    }

    /// Checks the data of a read.
    fn check(&mut self, lba: u64, min_generations: &[u32], data: &[u8]) {
        let Some(ledger) = &self.ledger else { return };
        let stats = &mut self.stats;
        let good = ledger.check(lba, min_generations, data, |mismatch| {
            stats.mismatches += 1;
            stats.sample(|| mismatch.to_string());
        });
        self.stats.blocks_checked += u64::from(good);
        if self.read_back.is_some() {
            self.stats.blocks_read_back += u64::from(good);
        }
        if (good as usize) < min_generations.len() && !self.limits.continue_on_error {
            self.stopping = true;
        }
    }

    #[cold]
    fn failed(&mut self, m: &InFlight, completed: &Completed) {
        self.stats.kinds[m.kind as usize].errors += 1;
        let (kind, lba, blocks) = (m.kind.name(), m.lba, m.blocks);
        self.stats.sample(|| {
            let why = if completed.digest_error { "data digest mismatch".into() } else { completed.status.to_string() };
            format!("{kind} of {blocks} blocks at {lba}: {why}")
        });
        self.stopping |= !self.limits.continue_on_error;
    }

    /// Issues a command on a connection, `given` or the picker's; false without a free slot or a command.
    #[inline]
    pub(super) fn issue(&mut self, job: &mut Job, start_ns: u64, phase: u8, given: Option<(Kind, u64, u32)>) -> bool {
        if self.stopping || job.left == 0 {
            return false;
        }
        let Some(cid) = job.connection.queue().reserve() else { return false };
        let flush_every = self.limits.flush_every;
        let next = if flush_every > 0 && job.writes_since_flush >= flush_every {
            job.writes_since_flush = 0;
            Some((Kind::Flush, self.journal.as_ref().map_or(0, Journal::mark), 0))
        } else {
            given.or_else(|| self.choose(&mut job.picker))
        };
        let Some((kind, lba, blocks)) = next else {
            job.connection.queue().release(cid);
            return false;
        };
        job.in_flight[usize::from(cid)] = InFlight { start_ns, lba, blocks, kind, phase };
        job.writes_since_flush += u32::from(kind == Kind::Write);
        job.left -= 1;
        self.send(job, cid, kind, lba, blocks);
        true
    }

    /// The next command that the ledger allows.
    #[inline]
    fn choose(&mut self, picker: &mut Picker) -> Option<(Kind, u64, u32)> {
        if let Some(ranges) = &mut self.read_back {
            return ranges.next().map(|(lba, blocks)| (Kind::Read, lba, blocks));
        }
        let blocks = self.limits.blocks_per_io;
        let Some(ledger) = &mut self.ledger else {
            let (kind, lba) = picker.pick();
            return Some((kind, lba, blocks));
        };
        for _ in 0..MAX_TRIES {
            let (kind, lba) = picker.pick();
            if !kind.changes() {
                return Some((kind, lba, blocks));
            }
            if ledger.begin(lba, blocks, kind != Kind::Write) {
                let recorded = self.journal.as_mut().map_or(Ok(()), |journal| journal.begun(ledger, lba, blocks));
                self.check_recorded(recorded);
                return Some((kind, lba, blocks));
            }
        }
        None
    }

    #[inline]
    fn send(&mut self, job: &mut Job, cid: u16, kind: Kind, lba: u64, blocks: u32) {
        let (nsid, bytes) = (self.limits.nsid, blocks * self.limits.block_size);
        let fua = if self.limits.fua { cdw12::FUA } else { 0 };
        let queue = job.connection.queue();
        let changing = |opcode, bits| {
            let sqe = Sqe::block_io(opcode, nsid, lba, blocks);
            sqe.with_cdw(12, sqe.cdw12() | fua | bits)
        };
        match kind {
            Kind::Read => {
                if let Some(ledger) = &self.ledger {
                    let at = usize::from(cid) * self.limits.blocks_per_io as usize;
                    ledger.min_generations(lba, &mut job.min_generations[at..at + blocks as usize]);
                }
                queue.issue(cid, Sqe::block_io(io::READ, nsid, lba, blocks), Transfer::In(bytes));
            }
            Kind::Write => {
                if let Some(ledger) = &self.ledger {
                    ledger.fill(lba, &mut queue.buffer_mut(cid)[..bytes as usize]);
                }
                queue.issue(cid, changing(io::WRITE, 0), Transfer::Out(bytes));
            }
            Kind::WriteZeroes => queue.issue(cid, changing(io::WRITE_ZEROES, cdw12::DEAC), Transfer::None),
            Kind::Deallocate => {
                let range = DsmRange { attributes: U32::ZERO, blocks: U32::new(blocks), slba: U64::new(lba) };
                queue.buffer_mut(cid)[..16].copy_from_slice(range.as_bytes());
                // dword 10: number of ranges less one, 0
                let sqe = Sqe::new(io::DATASET_MANAGEMENT, nsid).with_cdw(11, dsm::AD);
                queue.issue(cid, sqe, Transfer::Out(16));
            }
            Kind::Flush => queue.issue(cid, Sqe::new(io::FLUSH, nsid), Transfer::None),
        }
    }

    /// Ends the ramp and the run in time.
    #[inline]
    pub(super) fn check_time(&mut self, stop: &AtomicBool) {
        if !self.ramped && self.now_ns >= self.limits.ramp_end_ns {
            self.ramped = true;
            if self.limits.ramp_end_ns > self.limits.start_ns {
                self.stats.reset_timing();
            }
        }
        if self.now_ns >= self.limits.end_ns || stop.load(Relaxed) {
            self.stopping = true;
        }
    }
}
