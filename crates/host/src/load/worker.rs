//! One thread's polling loop over its connections.
//!
//! A turn: receive from each connection once, account for what ended, put new commands in the freed slots, send them as
//! one batch. In a closed loop a new command starts when its batch is begun; in an open loop it has been due since its
//! arrival. Nothing is allocated in a turn, and the clock is read once a batch.
//!
//! The loop never sleeps: latencies and due times would suffer. It yields only where the spec says so.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::{DsmRange, cdw12, opcode::io};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use crate::clock;
use crate::connection::{Connection, SCRATCH_LEN};
use crate::error::HostError;
use crate::ledger::{Journal, Ledger, LedgerError};
use crate::load::due::Due;
use crate::load::picker::{Kind, Picker};
use crate::load::stats::Stats;
use crate::queue::{Completed, Transfer};

/// Turns without news between two looks at the clock.
const SPINS_PER_CLOCK: u32 = 32;
/// Addresses tried when blocks are under change already.
const TRIES: u32 = 16;
/// Dataset Management, command dword 11: attribute Deallocate (NVM 3.2.3).
const DSM_DEALLOCATE: u32 = 1 << 2;

/// What a thread shows of its progress while it runs.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) ios: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) errors: AtomicU64,
}

/// A command in flight.
#[derive(Clone, Copy, Debug)]
struct Meta {
    start_ns: u64,
    /// First block; of a flush the journal's mark.
    lba: u64,
    blocks: u32,
    kind: Kind,
    phase: u8,
}

/// One connection and what belongs to it.
#[derive(Debug)]
pub(crate) struct Lane {
    connection: Connection,
    picker: Picker,
    meta: Vec<Meta>,
    /// The least generation that each block of each read must have.
    floors: Vec<u32>,
    /// Commands that this connection may still start.
    left: u64,
    writes_since_flush: u32,
}

impl Lane {
    pub(crate) fn new(mut connection: Connection, picker: Picker, limits: &Limits) -> Self {
        let depth = connection.queue().depth();
        let meta = vec![Meta { start_ns: 0, lba: 0, blocks: 0, kind: Kind::Read, phase: 0 }; depth];
        let floors = vec![0; depth * limits.blocks_per_io as usize];
        Self { connection, picker, meta, floors, left: limits.ios, writes_since_flush: 0 }
    }
}

/// What does not change during a run.
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
    /// Nothing but the pass that reads what the ledger says was written.
    pub(crate) verify_only: bool,
    pub(crate) timeout_ms: u64,
    pub(crate) yield_when_idle: bool,
}

/// Everything of a thread but its connections.
#[derive(Debug)]
struct Core {
    limits: Limits,
    stats: Stats,
    ledger: Option<Ledger>,
    /// The ledger in a file.
    journal: Option<Journal>,
    /// Why that could not be written: nothing more is sent.
    journal_fault: Option<LedgerError>,
    /// The pass at the end that reads what was written: ranges left to read.
    read_back: Option<std::vec::IntoIter<(u64, u32)>>,
    now_ns: u64,
    ramped: bool,
    stopping: bool,
}

/// One thread's work.
#[derive(Debug)]
pub(crate) struct Worker<'a> {
    lanes: Vec<Lane>,
    core: Core,
    due: Option<Due>,
    next_lane: usize,
    scratch: Vec<u8>,
    counters: &'a Counters,
    stop: &'a AtomicBool,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(
        lanes: Vec<Lane>,
        limits: Limits,
        (ledger, journal): (Option<Ledger>, Option<Journal>),
        due: Option<Due>,
        phases: usize,
        (counters, stop): (&'a Counters, &'a AtomicBool),
    ) -> Self {
        let core = Core {
            limits,
            stats: Stats::new(phases),
            ledger,
            journal,
            journal_fault: None,
            read_back: None,
            now_ns: 0,
            ramped: false,
            stopping: false,
        };
        Self { lanes, core, due, next_lane: 0, scratch: vec![0; SCRATCH_LEN], counters, stop }
    }

    /// Does the work; what has been gathered is returned in any case.
    pub(crate) fn run(mut self) -> (Stats, Result<(), HostError>) {
        let result = self.work();
        (self.core.stats, result)
    }

    fn work(&mut self) -> Result<(), HostError> {
        while clock::now_ns() < self.core.limits.start_ns {
            std::hint::spin_loop();
        }
        let cpu_ns = clock::thread_cpu_ns();
        let outcome = if self.core.limits.verify_only { self.read_back() } else { self.drive() };
        self.core.stats.cpu_ns = clock::thread_cpu_ns() - cpu_ns;
        outcome?;
        if self.core.limits.verify_only {
            return Ok(());
        }
        self.count_unstarted();
        let clean = self.core.stats.mismatches == 0 || self.core.limits.continue_on_error;
        if clean { self.read_back() } else { Ok(()) }
    }

    /// Reads all that was written, if a ledger is kept.
    fn read_back(&mut self) -> Result<(), HostError> {
        let Some(ledger) = &self.core.ledger else { return Ok(()) };
        let ranges: Vec<(u64, u32)> = ledger.touched(self.core.limits.blocks_per_io).collect();
        self.core.read_back = Some(ranges.into_iter());
        self.core.stopping = false;
        self.core.limits.end_ns = u64::MAX;
        self.due = None;
        self.lanes.iter_mut().for_each(|l| l.left = u64::MAX);
        self.drive()
    }

    /// Turns until it is time to stop and nothing is in flight.
    fn drive(&mut self) -> Result<(), HostError> {
        self.core.now_ns = clock::now_ns();
        let mut last_news_ns = self.core.now_ns;
        let mut spins = 0u32;
        loop {
            if self.turn()? {
                last_news_ns = self.core.now_ns;
                self.publish();
                spins = 0;
            } else {
                spins += 1;
                if self.core.limits.yield_when_idle {
                    std::thread::yield_now();
                }
                if spins.is_multiple_of(SPINS_PER_CLOCK) {
                    self.core.now_ns = clock::now_ns();
                }
            }
            self.core.look_at_the_time(self.stop);
            let in_flight: u32 = self.lanes.iter_mut().map(|l| l.connection.queue().in_flight()).sum();
            if in_flight == 0 {
                if self.core.stopping || self.nothing_left() {
                    return Ok(());
                }
                last_news_ns = self.core.now_ns; // nobody owes an answer
            }
            let silent_ms = self.core.now_ns.saturating_sub(last_news_ns) / 1_000_000;
            if in_flight > 0 && silent_ms > self.core.limits.timeout_ms {
                // This process may itself have been kept from running: the answer may be in the socket by now.
                if !self.turn()? {
                    return Err(self.give_up());
                }
                self.core.now_ns = clock::now_ns();
                (last_news_ns, spins) = (self.core.now_ns, 0);
                self.publish();
            }
        }
    }

    fn nothing_left(&self) -> bool {
        match &self.core.read_back {
            Some(ranges) => ranges.len() == 0,
            None => self.due.as_ref().is_some_and(Due::is_over) || self.lanes.iter().all(|l| l.left == 0),
        }
    }

    /// One round over the connections; whether any of them received something.
    fn turn(&mut self) -> Result<bool, HostError> {
        let mut news = false;
        for lane in &mut self.lanes {
            news |= self.core.receive(lane, &mut self.scratch)?;
            if self.due.is_none() {
                while self.core.issue(lane, self.core.now_ns, 0, None) {}
                self.core.check_journal()?;
                lane.connection.flush()?;
            }
        }
        if self.due.is_some() {
            self.core.now_ns = clock::now_ns();
            self.start_due();
            self.core.check_journal()?;
            for lane in &mut self.lanes {
                lane.connection.flush()?;
            }
        }
        Ok(news)
    }

    /// Open loop: starts what is due, as far as there are free slots, on one connection after the other.
    fn start_due(&mut self) {
        let Some(due) = &mut self.due else { return };
        let (now_ns, until_ns) = (self.core.now_ns, self.core.limits.end_ns);
        while let Some(next) = due.next().filter(|next| next.due_ns <= now_ns && next.due_ns < until_ns) {
            let n = self.lanes.len();
            let started = (0..n).any(|i| {
                let lane = (self.next_lane + i) % n;
                let started = self.core.issue(&mut self.lanes[lane], next.due_ns, next.phase, next.command);
                if started {
                    self.next_lane = (lane + 1) % n;
                }
                started
            });
            if !started {
                return;
            }
            self.core.stats.start(now_ns - next.due_ns);
            due.advance();
        }
    }

    /// Open loop: counts what was due before the end and never sent.
    fn count_unstarted(&mut self) {
        let Some(due) = &mut self.due else { return };
        let until_ns = self.core.limits.end_ns.min(self.core.now_ns);
        if self.lanes.iter().all(|l| l.left == 0) {
            return; // it ended because all were sent
        }
        while due.next_waiting().is_some_and(|next| next.due_ns < until_ns) {
            self.core.stats.unstarted += 1;
            due.advance();
        }
    }

    #[inline]
    fn publish(&self) {
        let stats = &self.core.stats;
        self.counters.ios.store(stats.ios(), Relaxed);
        self.counters.bytes.store(stats.kinds.iter().map(|k| k.bytes).sum(), Relaxed);
        self.counters.errors.store(stats.io_errors() + stats.mismatches, Relaxed);
    }

    #[cold]
    fn give_up(&mut self) -> HostError {
        let waiting = self.lanes.iter_mut().map(|l| l.connection.queue().in_flight()).sum::<u32>();
        self.core.stats.sample(|| format!("{waiting} commands were never answered"));
        HostError::Timeout { what: "I/O commands", after_ms: self.core.limits.timeout_ms }
    }
}

impl Core {
    /// Receives once from a connection and accounts for what ended; whether anything came.
    #[inline]
    fn receive(&mut self, lane: &mut Lane, scratch: &mut [u8]) -> Result<bool, HostError> {
        let Lane { connection, meta, floors, .. } = lane;
        let mut fresh = false;
        let received = connection.poll(scratch, |completed, data| {
            if !fresh {
                self.now_ns = clock::now_ns();
                fresh = true;
            }
            self.complete(meta, floors, &completed, data);
        })?;
        if received > 0 && !fresh {
            self.now_ns = clock::now_ns();
        }
        Ok(received > 0)
    }

    #[inline]
    fn complete(&mut self, meta: &[Meta], floors: &[u32], completed: &Completed, data: &[u8]) {
        let m = meta[usize::from(completed.cid)];
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
            self.check(m.lba, &floors[at..at + m.blocks as usize], data);
        }
    }

    /// Records in the ledger's file what a command that succeeded has made durable.
    fn record_success(&mut self, m: &Meta) {
        let (Some(journal), Some(ledger)) = (&mut self.journal, &self.ledger) else { return };
        // Dataset Management has no FUA.
        let fua = self.limits.fua && m.kind != Kind::Deallocate;
        let recorded = match m.kind {
            Kind::Flush => journal.flushed(ledger, m.lba),
            kind if kind.changes() => journal.succeeded(ledger, m.lba, m.blocks, fua),
            _ => Ok(()),
        };
        self.note_journal(recorded);
    }

    #[inline]
    fn note_journal(&mut self, recorded: Result<(), LedgerError>) {
        if let Err(fault) = recorded {
            self.journal_fault.get_or_insert(fault);
            self.stopping = true;
        }
    }

    /// To be called before commands are handed to the socket: those whose record is not in the file must not be sent.
    #[inline]
    fn check_journal(&mut self) -> Result<(), HostError> {
        self.journal_fault.take().map_or(Ok(()), |fault| Err(HostError::Ledger(fault)))
    }

    /// Compares what a read returned with the book.
    fn check(&mut self, lba: u64, floors: &[u32], data: &[u8]) {
        let Some(ledger) = &self.ledger else { return };
        let stats = &mut self.stats;
        let good = ledger.judge(lba, floors, data, |mismatch| {
            stats.mismatches += 1;
            stats.sample(|| mismatch.to_string());
        });
        self.stats.blocks_checked += u64::from(good);
        if self.read_back.is_some() {
            self.stats.blocks_read_back += u64::from(good);
        }
        if (good as usize) < floors.len() && !self.limits.continue_on_error {
            self.stopping = true;
        }
    }

    #[cold]
    fn failed(&mut self, m: &Meta, completed: &Completed) {
        self.stats.kinds[m.kind as usize].errors += 1;
        let (kind, lba, blocks) = (m.kind.name(), m.lba, m.blocks);
        self.stats.sample(|| {
            let why = if completed.digest_error { "data digest mismatch".into() } else { completed.status.to_string() };
            format!("{kind} of {blocks} blocks at {lba}: {why}")
        });
        self.stopping |= !self.limits.continue_on_error;
    }

    /// Starts a command on a connection, the one given or the picker's choice; false if there is no free slot or nothing to
    /// do.
    #[inline]
    fn issue(&mut self, lane: &mut Lane, start_ns: u64, phase: u8, given: Option<(Kind, u64, u32)>) -> bool {
        if self.stopping || lane.left == 0 {
            return false;
        }
        let Some(cid) = lane.connection.queue().reserve() else { return false };
        let flush_every = self.limits.flush_every;
        let next = if flush_every > 0 && lane.writes_since_flush >= flush_every {
            lane.writes_since_flush = 0;
            Some((Kind::Flush, self.journal.as_ref().map_or(0, Journal::mark), 0))
        } else {
            given.or_else(|| self.choose(&mut lane.picker))
        };
        let Some((kind, lba, blocks)) = next else {
            lane.connection.queue().release(cid);
            return false;
        };
        lane.meta[usize::from(cid)] = Meta { start_ns, lba, blocks, kind, phase };
        lane.writes_since_flush += u32::from(kind == Kind::Write);
        lane.left -= 1;
        self.send(lane, cid, kind, lba, blocks);
        true
    }

    /// The next command that the book allows.
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
        for _ in 0..TRIES {
            let (kind, lba) = picker.pick();
            if !kind.changes() {
                return Some((kind, lba, blocks));
            }
            if ledger.begin(lba, blocks, kind != Kind::Write) {
                let recorded = self.journal.as_mut().map_or(Ok(()), |journal| journal.begun(ledger, lba, blocks));
                self.note_journal(recorded);
                return Some((kind, lba, blocks));
            }
        }
        None
    }

    #[inline]
    fn send(&mut self, lane: &mut Lane, cid: u16, kind: Kind, lba: u64, blocks: u32) {
        let (nsid, bytes) = (self.limits.nsid, blocks * self.limits.block_size);
        let fua = if self.limits.fua { cdw12::FUA } else { 0 };
        let queue = lane.connection.queue();
        let changing = |opcode, bits| {
            let sqe = Sqe::block_io(opcode, nsid, lba, blocks);
            sqe.with_cdw(12, sqe.cdw12() | fua | bits)
        };
        match kind {
            Kind::Read => {
                if let Some(ledger) = &self.ledger {
                    let at = usize::from(cid) * self.limits.blocks_per_io as usize;
                    ledger.floors(lba, &mut lane.floors[at..at + blocks as usize]);
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
                let sqe = Sqe::new(io::DATASET_MANAGEMENT, nsid).with_cdw(11, DSM_DEALLOCATE);
                queue.issue(cid, sqe, Transfer::Out(16));
            }
            Kind::Flush => queue.issue(cid, Sqe::new(io::FLUSH, nsid), Transfer::None),
        }
    }

    /// Ends the ramp and the run when it is time.
    #[inline]
    fn look_at_the_time(&mut self, stop: &AtomicBool) {
        if !self.ramped && self.now_ns >= self.limits.ramp_end_ns {
            self.ramped = true;
            if self.limits.ramp_end_ns > self.limits.start_ns {
                self.stats.forget_timing();
            }
        }
        if self.now_ns >= self.limits.end_ns || stop.load(Relaxed) {
            self.stopping = true;
        }
    }
}
