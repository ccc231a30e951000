//! Polls the I/O threads that may have work.
//!
//! A poll of an idle I/O thread costs a system call. With 48 of them on a core a round took 10 us, mostly for such calls, and requests waited
//! that long.
//!
//! An I/O thread is *active* from when its descriptor becomes readable to a poll without work. One that is not active and whose descriptor is
//! watched (`watch.rs`) is *quiet*. With many quiet ones, a round begins with one system call for all descriptors, and polls those that are
//! active and those that need a poll (`needs_poll`). Otherwise each is polled, which is cheaper if few are quiet or many have work.
//!
//! Under a flood a poll can take half a millisecond and a round several. So the director (main core) steps between polls, and a round ends
//! before its end if an event has arrived, such as the order to hand an I/O thread over; the next one begins with the I/O thread after.
//!
//! # Properties
//! - An I/O thread whose descriptor is readable when a round begins is polled in that round, or first in those after it if an event ends it.
//! - Between the arrival of an event, or the director's next step, and its handling there is at most one poll with work.
//! - All time is accounted: the time of the system call is idle time, in equal parts for every I/O thread here.

use std::sync::atomic::Ordering::{Relaxed, Release};

use pilotlight_plant::{Arrivals, LongRound};

use super::{Reactor, Slot};
use crate::cells::add;
use crate::clock;
use crate::event::Event;
use crate::io_thread::{CompletionMode, Polled};

/// Polls without work, one after the other, after which an I/O thread's descriptor is watched: registering it costs as much as
/// a few of them, up to some tens of them with many connections, and one that gets work all the time is better not watched.
const EMPTY_POLLS: u8 = 32;

/// Quiet I/O threads from which on a look is worth its system call: it costs one, and about two for each watched descriptor that
/// has become readable (`cargo bench -p pilotlight-nvmf-target --bench rounds`).
const MANY_QUIET: usize = 3;

impl Reactor {
    /// Polls every I/O thread that may have something to do, once; one clock reading per step, which ends it and begins the
    /// next. Whether any work was done.
    pub(super) fn poll_all(&mut self, now: &mut u64) -> bool {
        if self.slots.is_empty() {
            let end = clock::now_ns();
            add(&self.cell.idle_ns, end - *now);
            *now = end;
            return false;
        }
        let each = !self.polls_readiness_first();
        if !each {
            self.find_due(now);
        }
        self.poll_due(each, now)
    }

    /// Whether one check of all descriptors costs less than a poll of each.
    fn polls_readiness_first(&self) -> bool {
        let active = self.slots.len() - self.quiet;
        self.quiet >= MANY_QUIET && self.quiet >= 2 * active
    }

    /// Looks which I/O threads this round polls.
    fn find_due(&mut self, now: &mut u64) {
        let Self { slots, watch, due, quiet, .. } = self;
        watch.poll_readable(|at| *quiet -= usize::from(!std::mem::replace(&mut slots[at].active, true)));
        due.clear();
        for (at, slot) in (0..).zip(slots) {
            if slot.active || slot.thread.needs_poll(*now) {
                due.push(at);
            } else {
                slot.renew_completions();
            }
        }
        let end = clock::now_ns();
        self.share(end - *now);
        *now = end;
    }

    /// Polls the I/O threads that are due, or each.
    fn poll_due(&mut self, each: bool, now: &mut u64) -> bool {
        let (mut busy, mut finished, mut unwatched) = (false, false, None);
        let count = if each { self.slots.len() } else { self.due.len() };
        let resume = self.resume;
        let first = if each { resume } else { self.due.partition_point(|&at| (at as usize) < resume) };
        for index in first..first + count {
            let index = if index < count { index } else { (index - count) % count };
            let at = if each { index } else { self.due[index] as usize };
            let polled = self.poll_one(at, each, now);
            busy |= polled.busy;
            finished |= polled.finished;
            if self.slots[at].empty_polls >= EMPTY_POLLS {
                unwatched = Some(at);
            }
            if polled.busy {
                self.note_long_round(*now);
            }
            if let Some(director) = &mut self.director {
                director.step(*now);
            }
            if polled.busy && !self.inbox.is_empty() {
                self.resume = at + 1;
                break;
            }
        }
        if let Some(at) = unwatched.filter(|_| self.slots.len() >= MANY_QUIET) {
            self.watch(at, *now);
        }
        if finished {
            self.drop_finished();
        }
        busy
    }

    /// Accounts idle time in which every I/O thread here was checked.
    pub(super) fn share(&self, spent_ns: u64) {
        add(&self.cell.idle_ns, spent_ns);
        let threads = self.slots.len() as u64;
        let (each, rest) = (spent_ns / threads, spent_ns % threads);
        let first = self.cell.loops.load(Relaxed) % threads; // each in its turn
        add(&self.slots[first as usize].cell.idle_ns, rest);
        self.slots.iter().for_each(|slot| add(&slot.cell.idle_ns, each));
    }

    /// Polls an I/O thread, with a check of its descriptor unless it is known not to be readable.
    fn poll_one(&mut self, at: usize, look: bool, now: &mut u64) -> Polled {
        let slot = &mut self.slots[at];
        slot.renew_completions();
        let begin = *now;
        let polled = if look || slot.active { slot.thread.poll(begin) } else { slot.thread.poll_unreadable(begin) };
        let end = clock::now_ns();
        slot.account(&polled, begin, end);
        slot.finished = polled.finished;
        self.quiet = self.quiet + usize::from(slot.active) - usize::from(slot.note(polled.busy));
        add(if polled.busy { &self.cell.busy_ns } else { &self.cell.idle_ns }, end - begin);
        *now = end;
        if polled.requests > 0 {
            add(&self.cell.requests, u64::from(polled.requests));
            add(&slot.cell.requests, u64::from(polled.requests));
            (self.last_request_ns, self.received_ns) = (end, end);
            if self.has_rested {
                self.announce_request();
            }
        }
        polled
    }

    /// Reports a long round, if the policy has armed that rule.
    fn note_long_round(&mut self, now: u64) {
        let limit_ns = self.cell.round_ns.load(Relaxed);
        if limit_ns > 0
            && self.slots.len() > 1
            && let Some(round_ns) = self.rounds.long_ns(now, limit_ns)
        {
            self.report_long_round(LongRound { core: self.id, round_ns }, now);
        }
    }

    /// On a worker this rings the main core's bell, a write to an eventfd that does not block; at most once a round.
    #[cold]
    fn report_long_round(&mut self, long: LongRound, now: u64) {
        match &mut self.director {
            Some(director) => director.long_round(long, now),
            None => drop(self.peers[self.main.index()].events.send(Event::LongRound(long))), // a full ring: the next round reports
        }
    }

    /// A worker's first request since it rested, which has been counted: the main core may sleep.
    #[cold]
    fn announce_request(&mut self) {
        self.has_rested = false;
        let main = &self.peers[self.main.index()];
        if main.cell.rests.is_set_after_request() {
            let _ = main.events.send(Event::EndWait); // a full ring wakes it too
        }
    }

    /// Has the descriptor of an I/O thread watched, unless it has none or needs a poll in each round.
    fn watch(&mut self, at: usize, now: u64) {
        let slot = &mut self.slots[at];
        slot.empty_polls = 0;
        if slot.thread.needs_poll(now) {
            return;
        }
        let Some(fd) = slot.thread.watch_fd() else { return };
        slot.watched = self.watch.register(slot.id, fd);
    }

    fn drop_finished(&mut self) {
        for at in (0..self.slots.len()).rev() {
            if self.slots[at].finished {
                let slot = self.remove(at);
                drop(slot.thread);
                slot.cell.finished.store(true, Release);
            }
        }
    }
}

impl Slot {
    /// Sets how it waits, if that has changed.
    fn renew_completions(&mut self) {
        let how = self.cell.completions();
        if how != self.completions {
            if !matches!(self.completions, CompletionMode::Hybrid { .. }) {
                *self.arrivals = Arrivals::default();
            }
            self.completions = how;
            self.thread.set_completions(how);
        }
    }

    fn account(&mut self, polled: &Polled, begin: u64, end: u64) {
        if self.cell.service.load(Relaxed) {
            self.cell.served(self.polled, polled, begin, end);
        }
        self.polled = (end, polled.in_progress);
        if matches!(self.completions, CompletionMode::Hybrid { .. }) {
            self.arrivals.note(begin, polled.requests, polled.in_progress);
        }
        add(if polled.busy { &self.cell.busy_ns } else { &self.cell.idle_ns }, end - begin);
    }

    /// After a poll: whether it is active.
    fn note(&mut self, busy: bool) -> bool {
        if busy {
            (self.active, self.empty_polls) = (true, 0);
        } else if self.watched {
            self.active = false;
        } else {
            self.empty_polls = self.empty_polls.saturating_add(1);
        }
        self.active
    }
}
