//! Programs and garbage collection: immediate and later effects of writes on dies.
//!
//! Host data fills one program unit at a time; full units go to the dies in turn, as in a log over all dies. A unit may be filled while the backlog
//! of its die is no more than the die's part of the buffer; otherwise the write waits. The buffer needs no list: a die's backlog of programs is the
//! fill level of its part.
//!
//! Garbage collection is modelled as a pool of erased flash. Each program of host data removes a unit; when half of the pool is used, collection
//! starts, copies a unit every `interval` and returns the flash that one copy frees, until the pool is full: it continues after the writes that
//! caused it. While the pool is empty, host data waits for copies.

use super::die::Die;
use super::model::{Gc, Program, SsdModel};
use super::{Activity, around};

/// The write path to the dies.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    program: Program,
    /// Maximum backlog of the die of the open unit.
    backlog_ns: u64,
    filled: u64,
    die: usize,
    until_erase: Vec<u32>,
    collector: Option<Collector>,
}

#[derive(Clone, Debug)]
struct Collector {
    pool: u64,
    full: u64,
    freed_per_copy: u64,
    read_ns: u64,
    interval_ns: u64,
    next: u64,
    running: bool,
    die: usize,
    copied: u64,
}

impl Collector {
    fn new(gc: &Gc, program: &Program, model: &SsdModel) -> Option<Self> {
        let copies = gc.copies_permille();
        if copies == 0 {
            return None; // victims are empty
        }
        let busy = program.program_ns + model.flash.read_ns;
        let parallel = u64::from(model.flash.dies) * u64::from(gc.duty_permille);
        Some(Self {
            pool: gc.pool_bytes * u64::from(gc.start_permille) / 1000,
            full: gc.pool_bytes,
            freed_per_copy: (u64::from(program.program_bytes) * 1000 / copies).max(1),
            read_ns: model.flash.read_ns,
            interval_ns: (busy * 1000 / parallel).max(1),
            next: 0,
            running: false,
            die: 0,
            copied: 0,
        })
    }

    fn gain(&mut self) {
        self.pool = (self.pool + self.freed_per_copy).min(self.full);
        self.running &= self.pool < self.full;
    }

    fn take(&mut self, bytes: u64, at: u64) {
        self.pool = self.pool.saturating_sub(bytes);
        if !self.running && self.pool < self.full / 2 {
            self.running = true;
            self.next = self.next.max(at);
        }
    }
}

impl Writer {
    pub(super) fn new(program: &Program, model: &SsdModel) -> Self {
        let dies = u64::from(model.flash.dies);
        let each = u128::from(dies) * u128::from(program.program_bytes);
        let every = u64::from(program.programs_per_erase);
        Self {
            program: *program,
            backlog_ns: (u128::from(program.buffer_bytes) * u128::from(program.program_ns) / each) as u64
                - program.program_ns,
            filled: 0,
            die: 0,
            until_erase: (0..dies).map(|die| (1 + die * every / dies) as u32).collect(),
            collector: model.gc.as_ref().and_then(|gc| Collector::new(gc, program, model)),
        }
    }

    /// Stores `bytes` that arrive at `at`; returns when the buffer holds them all.
    #[inline]
    pub(super) fn write(&mut self, at: u64, bytes: u32, draw: u64, dies: &mut [Die], activity: &mut Activity) -> u64 {
        let unit = u64::from(self.program.program_bytes);
        let mut room = at;
        let mut left = u64::from(bytes);
        while left > 0 {
            room = room.max(dies[self.die].programmed().saturating_sub(self.backlog_ns));
            let part = left.min(unit - self.filled);
            left -= part;
            self.filled += part;
            if self.filled == unit {
                self.filled = 0;
                self.store(at, room, draw.wrapping_add(left), dies, activity);
            }
        }
        room
    }

    /// Programs the unit that is full at `at`; garbage collection starts its copies for it at `now`.
    fn store(&mut self, now: u64, at: u64, draw: u64, dies: &mut [Die], activity: &mut Activity) {
        let unit = u64::from(self.program.program_bytes);
        while self.collector.as_ref().is_some_and(|collector| collector.pool < unit) {
            self.copy(now, dies, activity);
        }
        if let Some(collector) = &mut self.collector {
            collector.take(unit, now);
        }
        activity.host_programs += 1;
        self.put(self.die, at, 0, draw, dies, activity);
        self.die = (self.die + 1) % dies.len();
    }

    /// Programs a unit that another module's buffer has flushed at `at`.
    pub(super) fn program(&mut self, at: u64, dies: &mut [Die], activity: &mut Activity) {
        activity.host_programs += 1;
        let draw = activity.host_programs.wrapping_mul(GOLDEN);
        self.put(self.die, at, 0, draw, dies, activity);
        self.die = (self.die + 1) % dies.len();
    }

    /// Bytes of a program.
    pub(super) fn unit_bytes(&self) -> u64 {
        u64::from(self.program.program_bytes)
    }

    /// Time from which garbage collection has work.
    #[inline]
    pub(super) fn busy_from_ns(&self) -> u64 {
        self.collector.as_ref().filter(|one| one.running).map_or(u64::MAX, |one| one.next)
    }

    /// Performs garbage collection's copies up to `now`.
    #[inline]
    pub(super) fn advance(&mut self, now: u64, dies: &mut [Die], activity: &mut Activity) {
        while let Some(collector) = self.collector.as_mut().filter(|one| one.running && one.next <= now) {
            let at = collector.next;
            collector.next += collector.interval_ns;
            self.copy(at, dies, activity);
        }
    }

    fn copy(&mut self, at: u64, dies: &mut [Die], activity: &mut Activity) {
        let Some(collector) = &mut self.collector else { return };
        collector.gain();
        collector.copied += 1;
        collector.die = (collector.die + 1) % dies.len();
        let (die, read_ns, draw) = (collector.die, collector.read_ns, collector.copied.wrapping_mul(GOLDEN));
        activity.copy_programs += 1;
        self.put(die, at, read_ns, draw, dies, activity);
    }

    /// Programs a die, with an erase if one is due.
    fn put(&mut self, die: usize, at: u64, extra: u64, draw: u64, dies: &mut [Die], activity: &mut Activity) {
        let mut busy = extra + around(self.program.program_ns, self.program.program_spread_ns, draw);
        let until = &mut self.until_erase[die];
        *until = until.saturating_sub(1);
        if *until == 0 && self.program.erase_ns > 0 {
            *until = self.program.programs_per_erase;
            activity.erases += 1;
            busy += self.program.erase_ns;
        }
        activity.die_busy_ns += busy;
        dies[die].program(at, busy, self.program.suspend_ns);
    }
}

/// The golden ratio of the low half of a draw: copies are distributed evenly over faster and slower pages.
const GOLDEN: u64 = 0x9e37_79b9;
