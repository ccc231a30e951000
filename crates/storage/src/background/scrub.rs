//! Scrubbing and trimming of one namespace: a state machine polled by its I/O thread.
//!
//! # The algorithm
//! Another thread looks up a range in the sums file; then its data is read (64 KiB, one read at a time). A *clean* range is
//! compared with its checksums. A *dirty* one is summed, and its unwritten blocks are compared. On a mismatch the range is
//! dropped from caches and read again. Blocks that differ twice, without a write in between, are bad.
//!
//! New checksums are collected. Before they are written the drive is flushed, so that they match the data that survives a
//! power failure.
//!
//! Dirty ranges precede the pass, so that their checksums become valid soon, unless the pass is behind its schedule.

mod found;
mod io;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use super::control::{Background, Class};
use super::pace::{Pace, Round, Schedule, may_begin};
use super::sums::format::Pass;
use super::sums::ranges::Mark;
use super::sums::tracker::{Reply, Tracker, Work};
use super::sums::{RANGE, Sums};
use super::upkeep::Upkeep;
use crate::buffer::{Buffer, BufferPool};
use crate::{Channel, Geometry, Tag};

const NS_PER_S: u64 = 1_000_000_000;
/// Interval between searches for dirty ranges without recent writes, in nanoseconds.
const QUIET_NS: u64 = 5 * NS_PER_S;
/// Ranges whose checksums are written together, after one flush.
const BATCH: usize = 64;
/// Maximum age of a batch of checksums, in nanoseconds.
const BATCH_NS: u64 = NS_PER_S;
/// Words of the set of dirty ranges searched in one poll: a microsecond.
const WORDS_PER_POLL: usize = 512;
/// Ranges between records of the position of a pass: 256 MiB.
const NOTED: u64 = 4096;
/// Maximum interval of polls while there is work, in nanoseconds: the delay of a raised rate.
const MAX_POLL_INTERVAL_NS: u64 = NS_PER_S;
/// Interval of retries of work blocked by requests, in nanoseconds.
const BLOCKED_NS: u64 = 1_000_000;

/// Purpose of reading a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Only reading: there are no checksums.
    Read,
    /// Comparison with its checksums.
    Verify,
    /// Summing; these blocks were written, a bit each.
    Sum(u16),
}

/// Work on a range.
#[derive(Clone, Copy, Debug)]
struct Job {
    range: u64,
    purpose: Purpose,
    /// Whether it belongs to the pass.
    in_pass: bool,
    /// Its checksums, after the lookup.
    old: Option<Sums>,
    /// Whether it is the second read after a mismatch.
    is_retry: bool,
}

#[derive(Debug)]
enum State {
    Idle,
    /// The lookup of its checksums is in progress.
    LookingUp(Job),
    /// Ready to read.
    Ready(Job),
    Reading(Job),
    Flushing,
    Committing,
    Punching(u64),
}

/// Context of a poll.
pub struct Cx<'a> {
    /// The channel of the I/O thread.
    pub channel: &'a mut dyn Channel,
    /// Rates, pauses, activity of hosts.
    pub shared: &'a Background,
    /// The poll.
    pub round: Round,
    /// The tag of this namespace's requests.
    pub tag: Tag,
}

/// The background work of a namespace on its I/O thread.
pub struct Scrubber {
    /// The namespace's background work.
    pub upkeep: Arc<Upkeep>,
    bytes: u64,
    block_size: u64,
    state: State,
    pool: BufferPool,
    buffer: Option<Buffer>,
    scrub: Pace,
    trim: Pace,
    schedule: Schedule,
    /// Position and time of the next search for dirty ranges.
    dirty_from: u64,
    dirty_ns: u64,
    batch: Vec<(u64, Sums)>,
    batch_ns: u64,
    /// Time of the last poll.
    now_ns: u64,
    /// Start of the work of the current I/O: the lookup, or the flush.
    work_ns: u64,
    /// Start of the current I/O.
    io_ns: u64,
    noted: u64,
}

impl Scrubber {
    /// For a namespace of this geometry, with a pass every `days` days.
    ///
    /// # Errors
    /// If there is no memory for its buffer.
    pub fn new(upkeep: &Arc<Upkeep>, geometry: Geometry, days: u32, now_ns: u64) -> std::io::Result<Self> {
        let block_size = u64::from(geometry.block_size);
        let bytes = geometry.blocks * block_size;
        let mut pool = BufferPool::new(RANGE as usize)?;
        let buffer = pool.alloc(RANGE as usize);
        let pass = upkeep.tracker().map(|tracker| tracker.pass()).unwrap_or_default();
        let period_ns = u64::from(days.max(1)) * 86_400 * NS_PER_S;
        let mut scrubber = Self {
            upkeep: Arc::clone(upkeep),
            bytes,
            block_size,
            state: State::Idle,
            pool,
            buffer,
            scrub: Pace::default(),
            trim: Pace::default(),
            schedule: Schedule { began_ns: 0, period_ns },
            dirty_from: 0,
            dirty_ns: 0,
            batch: Vec::with_capacity(BATCH),
            batch_ns: 0,
            now_ns,
            work_ns: 0,
            io_ns: 0,
            noted: pass.position,
        };
        scrubber.upkeep.progress.ranges.store(bytes.div_ceil(RANGE), Relaxed);
        scrubber.begin_pass(if pass.began_s == 0 { Pass { began_s: unix_s(), position: 0 } } else { pass }, now_ns);
        Ok(scrubber)
    }

    fn begin_pass(&mut self, pass: Pass, now_ns: u64) {
        let age_ns = i128::from(unix_s().saturating_sub(pass.began_s)) * i128::from(NS_PER_S);
        self.schedule.began_ns = i128::from(now_ns) - age_ns;
        let progress = &self.upkeep.progress;
        progress.began_s.store(pass.began_s, Relaxed);
        progress.position.store(pass.position.min(progress.ranges.load(Relaxed)), Relaxed);
    }

    fn tracker(&self) -> Option<&Arc<Tracker>> {
        self.upkeep.tracker()
    }

    fn position(&self) -> (u64, u64) {
        (self.upkeep.progress.position.load(Relaxed), self.upkeep.progress.ranges.load(Relaxed))
    }

    /// Whether an I/O of this namespace is in flight.
    pub fn is_on_drive(&self) -> bool {
        matches!(self.state, State::Reading(_) | State::Flushing | State::Punching(_))
    }

    /// Due time of the next range of the pass by its schedule, in nanoseconds.
    fn schedule_ns(&self, shared: &Background) -> u64 {
        if !self.upkeep.has(Class::Scrub) || shared.is_paused(Class::Scrub) {
            return u64::MAX;
        }
        let (position, ranges) = self.position();
        self.schedule.due_ns(position, ranges)
    }

    /// Due time of the next I/O of a class by its rate, in nanoseconds.
    fn by_rate_ns(&self, class: Class, shared: &Background, round: Round) -> u64 {
        let pace = if class == Class::Scrub { &self.scrub } else { &self.trim };
        let place = self.upkeep.placed().filter(|_| round.has_hosts);
        pace.due_ns(shared.rate(class)).max(place.map_or(0, |place| place.drive.earliest_ns()))
    }

    /// Ends the last I/O with its preparation, after `took_ns`.
    fn end(&self, took_ns: u64) {
        self.upkeep.placed().iter().for_each(|place| place.drive.space(self.io_ns, took_ns));
    }

    /// Time of the next work, in nanoseconds, other than by events.
    pub fn due_ns(&self, shared: &Background, round: Round) -> u64 {
        let now_ns = round.now_ns;
        match self.state {
            State::Reading(_) | State::Flushing | State::Punching(_) => return u64::MAX,
            State::LookingUp(_) | State::Committing => return now_ns + crate::wait::BUSY_RETRY_NS,
            State::Idle | State::Ready(_) => {}
        }
        let (position, ranges) = self.position();
        let mut due_ns = self.schedule_ns(shared);
        if self.upkeep.has(Class::Scrub) {
            let by_rate_ns = self.by_rate_ns(Class::Scrub, shared, round);
            if position < ranges {
                due_ns = due_ns.min(by_rate_ns);
            }
            if !self.batch.is_empty() {
                due_ns = due_ns.min(by_rate_ns.max(self.batch_ns.saturating_add(BATCH_NS)));
            }
            if self.tracker().is_some_and(|tracker| !tracker.dirty.is_empty()) {
                due_ns = due_ns.min(by_rate_ns.max(self.dirty_ns));
            }
        }
        if self.upkeep.backlog(Class::Trim) > 0 {
            due_ns = due_ns.min(self.by_rate_ns(Class::Trim, shared, round));
        }
        // work may be blocked by requests or a drive in use, and ranges become dirty without a notification
        let retry_ns = if round.has_requests { BLOCKED_NS } else { crate::wait::BUSY_RETRY_NS };
        let backlog = self.tracker().is_some() || position < ranges;
        due_ns.max(now_ns + retry_ns).min(if backlog { now_ns + MAX_POLL_INTERVAL_NS } else { u64::MAX })
    }

    /// Advances the work. Returns whether anything was done.
    pub fn poll(&mut self, cx: &mut Cx<'_>) -> bool {
        self.now_ns = cx.round.now_ns;
        match self.state {
            State::LookingUp(job) => {
                // ignore a reply to a request of the namespace's previous I/O thread
                if let Some(Reply::Lookup { range, uncached, sums }) =
                    self.tracker().and_then(|tracker| tracker.reply())
                    && (range, uncached) == (job.range, job.is_retry)
                {
                    self.on_lookup(job, sums);
                }
            }
            State::Committing => {
                if let Some(Reply::Committed(batch)) = self.tracker().and_then(|tracker| tracker.reply()) {
                    self.batch = batch;
                    self.state = State::Idle;
                    self.end(self.now_ns.saturating_sub(self.work_ns));
                }
            }
            _ => {}
        }
        match self.state {
            State::Idle => self.choose(cx),
            State::Ready(job) if may_begin(cx.round, ready_ns(cx.shared), self.schedule_ns(cx.shared)) => {
                self.read(job, cx)
            }
            _ => false,
        }
    }

    fn choose(&mut self, cx: &mut Cx<'_>) -> bool {
        let (shared, round) = (cx.shared, cx.round);
        let now_ns = round.now_ns;
        if self.upkeep.backlog(Class::Trim) > 0
            && may_begin(round, self.by_rate_ns(Class::Trim, shared, round), u64::MAX)
        {
            return self.punch(cx);
        }
        let by_schedule_ns = self.schedule_ns(shared);
        let by_rate_ns = self.by_rate_ns(Class::Scrub, shared, round);
        if !self.upkeep.has(Class::Scrub) || !may_begin(round, by_rate_ns, by_schedule_ns) {
            return false;
        }
        let (position, ranges) = self.position();
        if position >= ranges && by_schedule_ns <= now_ns {
            self.begin_pass(Pass { began_s: unix_s(), position: 0 }, now_ns);
            return true;
        }
        let is_late = !self.batch.is_empty() && self.batch_ns.saturating_add(BATCH_NS) <= now_ns;
        if self.batch.len() >= BATCH || is_late {
            return self.flush(cx);
        }
        let is_behind = position < ranges && by_schedule_ns <= now_ns;
        if !is_behind && let Some(job) = self.next_dirty(now_ns) {
            return self.start(job);
        }
        if position < ranges {
            return self.next_of_pass(position);
        }
        false
    }

    /// The next dirty range without recent writes.
    fn next_dirty(&mut self, now_ns: u64) -> Option<Job> {
        let tracker = self.upkeep.tracker()?;
        if tracker.dirty.is_empty() || now_ns < self.dirty_ns {
            return None;
        }
        match tracker.dirty.next(self.dirty_from, WORDS_PER_POLL) {
            Ok(range) => {
                self.dirty_from = range + 1;
                let written = tracker.ranges.begin_summing(range, true)?;
                Some(Job { range, purpose: Purpose::Sum(written), in_pass: false, old: None, is_retry: false })
            }
            Err(Some(from)) => {
                self.dirty_from = from;
                None
            }
            Err(None) => {
                (self.dirty_from, self.dirty_ns) = (0, now_ns + QUIET_NS);
                None
            }
        }
    }

    fn next_of_pass(&mut self, range: u64) -> bool {
        let purpose = match self.tracker() {
            Some(tracker) if tracker.has_sums() => match tracker.ranges.mark(range) {
                Mark::Clean => Some(Purpose::Verify),
                Mark::Dirty => tracker.ranges.begin_summing(range, false).map(Purpose::Sum),
                Mark::Marking | Mark::Committing => None,
            },
            _ => Some(Purpose::Read),
        };
        let Some(purpose) = purpose else {
            self.advance(range); // a write is in progress
            return true;
        };
        self.start(Job { range, purpose, in_pass: true, old: None, is_retry: false })
    }

    fn start(&mut self, job: Job) -> bool {
        self.work_ns = self.now_ns;
        if job.purpose == Purpose::Read {
            self.state = State::Ready(job);
            return true;
        }
        self.look_up(job)
    }

    fn look_up(&mut self, job: Job) -> bool {
        let work = Work::Lookup { range: job.range, uncached: job.is_retry };
        let taken = self.tracker().is_some_and(|tracker| tracker.submit(work).is_ok());
        self.state = if taken { State::LookingUp(job) } else { State::Idle };
        taken
    }

    fn on_lookup(&mut self, job: Job, old: Option<Sums>) {
        let job = Job { old, ..job };
        if let (Purpose::Verify, None, Some(tracker)) = (job.purpose, old, self.upkeep.tracker()) {
            // its record is damaged: mark the whole range as written, so that it is summed again
            if tracker.ranges.start_marking(job.range, true) {
                tracker.request_mark(job.range);
            }
            return self.done(job);
        }
        self.state = State::Ready(job);
    }

    /// Ends the work on a range.
    fn done(&mut self, job: Job) {
        self.state = State::Idle;
        if job.in_pass {
            self.advance(job.range);
        }
    }

    fn advance(&mut self, range: u64) {
        let (progress, ranges) = (&self.upkeep.progress, self.position().1);
        let position = range + 1;
        progress.position.store(position, Relaxed);
        if position == ranges {
            progress.passes.fetch_add(1, Relaxed);
        }
        if position == ranges || position.saturating_sub(self.noted) >= NOTED || position < self.noted {
            self.noted = position;
            let pass = Pass { began_s: progress.began_s.load(Relaxed), position };
            self.tracker().iter().for_each(|tracker| _ = tracker.submit(Work::Note(pass)));
        }
    }
}

impl Drop for Scrubber {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.free(buffer);
        }
        if let Some(tracker) = self.upkeep.tracker() {
            for (range, _) in &self.batch {
                let _ = tracker.ranges.end_commit(*range, false);
            }
        }
    }
}

/// A range is read at once after its lookup, unless its class has rate 0.
fn ready_ns(shared: &Background) -> u64 {
    if shared.rate(Class::Scrub) == 0 { u64::MAX } else { 0 }
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
