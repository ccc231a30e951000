//! The drive: when a request is done, given all that came before it.
//!
//! Every stage is a recursion over the time at which it is free, `start = max(at, free)`, `free = start + service`; requests come in
//! order of time. *Reads* pass the controller and then wait for a unit of flash, unless they follow the one before: those are read
//! ahead. *Writes* are done when they are in the buffer, which empties to flash at the power state's rate until the cache is full,
//! and then only as fast as older data is moved. What was written is moved later (garbage collection), when nothing else is to do.

use super::load::Load;
use super::machine::{Drive as Model, State};
use super::tally::Tally;
use crate::rng::{Purpose, Stream};

/// A drive within a run.
pub struct Drive<'a> {
    model: &'a Model,
    state: &'a State,
    sequential: bool,
    autonomous: bool,
    draws: Stream,
    controller_ns: u64,
    cap_ns: u64,
    units: Vec<u64>,
    /// When the buffer will be empty.
    drained_ns: u64,
    /// Written and not yet moved, in bytes.
    owed: u64,
    /// When the last request was done.
    quiet_ns: u64,
    /// When the last request came.
    came_ns: u64,
    wrote_last: bool,
}

impl<'a> Drive<'a> {
    /// At rest for less than it takes to go to its own rest, with nothing to move.
    #[must_use]
    pub fn new(model: &'a Model, load: &Load) -> Self {
        let state = &model.state[load.state];
        let draws = Stream::new(load.seed, Purpose::Devices, 0);
        let units = vec![0; model.units as usize];
        let (controller_ns, cap_ns, drained_ns, quiet_ns, came_ns) = (0, 0, 0, 0, 0);
        let (sequential, autonomous, owed, wrote_last) = (load.sequential, load.autonomous, 0, false);
        Self {
            model,
            state,
            sequential,
            autonomous,
            draws,
            controller_ns,
            cap_ns,
            units,
            drained_ns,
            owed,
            quiet_ns,
            came_ns,
            wrote_last,
        }
    }

    /// When a request that comes now is done; not before the one that came last.
    pub fn submit(&mut self, now: u64, bytes: u64, write: bool, tally: &mut Tally) -> u64 {
        debug_assert!(now >= self.came_ns, "{now} after {}", self.came_ns);
        self.came_ns = now;
        let begin = self.woken(now, tally);
        let turn_ns = if self.sequential && self.wrote_last != write { self.model.turn_ns } else { 0 };
        self.wrote_last = write;
        let (mut left, mut done, mut turn_ns) = (bytes, begin, turn_ns);
        while left > 0 {
            let part = left.min(self.model.mdts_bytes);
            left -= part;
            let at = self.through(begin, part, write, std::mem::take(&mut turn_ns));
            done = done.max(if write { self.written(at, part) } else { self.read(at, part) });
        }
        self.quiet_ns = self.quiet_ns.max(done);
        done
    }

    /// Ends the time without work, if there was any: data is moved in it, then the drive rests by itself.
    fn woken(&mut self, now: u64, tally: &mut Tally) -> u64 {
        let quiet = self.quiet_ns.max(self.drained_ns);
        if now <= quiet {
            return now;
        }
        self.idle(quiet, now, tally);
        let resting = self.owed == 0 && now - quiet >= self.model.rest_after_ns;
        if resting { now + self.model.wake_ns } else { now }
    }

    /// What it does without work from one moment to another.
    pub fn idle(&mut self, from: u64, to: u64, tally: &mut Tally) {
        let begin = from + self.model.gc_after_ns;
        let moving_ns = self.to_move_ns().min(to.saturating_sub(begin));
        tally.over(begin, begin + moving_ns, |slot, ns| slot.gc_ns += ns);
        if moving_ns == self.to_move_ns() {
            self.owed = 0;
        }
        self.owed -= self.owed.min(bytes_in(moving_ns, self.state.gc_bytes_per_s));
        let rest = (from + self.model.rest_after_ns).max(begin + moving_ns);
        if self.owed == 0 {
            let asleep = if self.autonomous { (from + self.model.asleep_after_ns).max(rest).min(to) } else { to };
            tally.over(rest, asleep, |slot, ns| slot.rest_ns += ns);
            tally.over(asleep, to, |slot, ns| slot.asleep_ns += ns);
        }
    }

    /// How long moving everything that is to be moved takes, in nanoseconds.
    #[must_use]
    pub fn to_move_ns(&self) -> u64 {
        time_of(self.owed, self.state.gc_bytes_per_s)
    }

    /// When it has nothing in progress.
    #[must_use]
    pub fn quiet_ns(&self) -> u64 {
        self.quiet_ns.max(self.drained_ns)
    }

    fn through(&mut self, at: u64, bytes: u64, write: bool, turn_ns: u64) -> u64 {
        let stream = !write && self.sequential && self.model.stream_bytes_per_s > 0;
        let rate = if stream { self.model.stream_bytes_per_s } else { self.model.link_bytes_per_s };
        let service_ns = time_of(bytes, rate).max(self.model.command_ns) + turn_ns;
        let service_ns = self.drawn(service_ns, self.model.random_ppm);
        let start = at.max(self.controller_ns);
        self.controller_ns = start + service_ns;
        self.controller_ns
    }

    /// A part of a time is exponential, the rest as it is.
    fn drawn(&mut self, ns: u64, random_ppm: u64) -> u64 {
        if random_ppm == 0 {
            return ns;
        }
        let random = ns as f64 * random_ppm as f64 / 1e6;
        (ns as f64 - random + self.draws.exponential(random)) as u64
    }

    fn read(&mut self, at: u64, bytes: u64) -> u64 {
        let at = self.capped(at, bytes);
        let read_ahead = self.sequential && self.model.stream_bytes_per_s > 0;
        let flash = if self.units.is_empty() || read_ahead { at } else { self.flash(at, bytes) };
        flash + self.model.front_ns
    }

    /// A lower power state lets through so much.
    fn capped(&mut self, at: u64, bytes: u64) -> u64 {
        if self.state.read_bytes_per_s == 0 {
            return at;
        }
        let service_ns = time_of(bytes, self.state.read_bytes_per_s);
        self.cap_ns = at.max(self.cap_ns) + self.drawn(service_ns, 1_000_000);
        self.cap_ns
    }

    fn flash(&mut self, at: u64, bytes: u64) -> u64 {
        let (mut left, mut done) = (bytes, at);
        while left > 0 {
            let part = left.min(self.model.page_bytes);
            left -= part;
            let unit_ns = self.model.unit_ns + self.model.unit_ns_per_kib * part / 1024;
            done = done.max(self.on_unit(at, unit_ns));
        }
        done
    }

    fn on_unit(&mut self, at: u64, service_ns: u64) -> u64 {
        let unit = self.draws.below(self.units.len() as u64) as usize;
        self.units[unit] = self.units[unit].max(at) + service_ns;
        self.units[unit]
    }

    fn written(&mut self, at: u64, bytes: u64) -> u64 {
        let at = if self.model.map_reads && !self.sequential { self.on_unit(at, self.model.unit_ns) } else { at };
        let is_full = self.owed + bytes > self.model.cache_bytes;
        let rate = if is_full { self.model.full_bytes_per_s } else { self.state.write_bytes_per_s };
        let drained = at.max(self.drained_ns) + time_of(bytes, rate);
        self.drained_ns = drained;
        // While the cache is full as much is moved as comes.
        self.owed += if is_full { 0 } else { bytes };
        at.max(drained.saturating_sub(time_of(self.model.buffer_bytes, rate))) + self.model.write_ns
    }
}

/// Time of so many bytes at a rate, in nanoseconds.
fn time_of(bytes: u64, bytes_per_s: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s.max(1))) as u64
}

fn bytes_in(ns: u64, bytes_per_s: u64) -> u64 {
    (u128::from(ns) * u128::from(bytes_per_s) / 1_000_000_000) as u64
}
