//! The loop of one core.
//!
//! One round: take what came through the event ring, poll each I/O thread once in ring order, let the director look (main
//! core), account the time; and where nothing was found to do, rest as deep as is allowed.
//!
//! # The words
//! To *hand over* an I/O thread is to put its box into the ring of its new home. To *rest* is what a round without work
//! ends with: polling on, a *pause* of fixed length (hybrid polling; a message ends it too), *sleeping* (a worker without I/O
//! threads that was told to; a message ends it), or *waiting in the kernel* (for the sockets of its I/O threads too:
//! interrupts, or the whole server is quiet).
//!
//! # The properties
//! - An I/O thread is in exactly one place: a reactor's slots, or one event ring. Only the reactor that owns the box touches
//!   it, so nothing in it needs a lock.
//! - A reactor that owns an I/O thread never sleeps; it waits in the kernel only if every I/O thread has armed its
//!   wake-ups and found nothing to do after that.
//! - A full ring of the new home loses nothing: the old home keeps the I/O thread, serves it and tries again.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;

use pilotlight_plant::{CoreId, CoreState, Depth, ThreadId};
use rustix::thread::{sched_yield, set_current_timer_slack};

use crate::cells::{ReactorCell, ThreadCell, add};
use crate::clock;
use crate::director::{Director, Instruction};
use crate::inbox::{Inbox, Sender};
use crate::io_thread::{Completions, IoThread};
use crate::kernel_wait::KernelWait;
use crate::wait::Monitor;

#[cfg(test)]
mod tests;

/// What a reactor does with a loop that found no work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// Polls on at once.
    #[default]
    Spin,
    /// Yields to the scheduler, and naps when that goes on: for tests with more reactors than CPUs. Figures never come from
    /// it.
    Yield,
}

/// Loops without work, one after the other, until a reactor that yields naps: threads that do nothing but yield can keep
/// those of the kernel from running that finish direct writes, for seconds (seen on Linux 6.18 with two CPUs).
const YIELDS: u32 = 32;

/// A message to a reactor.
pub(crate) enum Event {
    /// An I/O thread comes to live here.
    Adopt {
        /// The I/O thread.
        slot: Slot,
        /// When it was sent.
        sent_ns: u64,
    },
    /// Hand this I/O thread over.
    Hand {
        /// The I/O thread; nothing happens if it does not live here.
        thread: ThreadId,
        /// Its new home.
        to: CoreId,
    },
    /// Sleep as soon as no I/O thread lives here, now and whenever the last one has left, until `Wake` comes.
    Sleep(Depth),
    /// Poll.
    Wake {
        /// When it was sent.
        sent_ns: u64,
    },
    /// Look how I/O threads are to wait from now on. Says nothing about sleep.
    Look,
    /// For the director, on the main core.
    Instruct(Box<Instruction>),
    /// End.
    Stop,
}

/// An I/O thread and what is written down about it.
pub(crate) struct Slot {
    pub(crate) thread: Box<dyn IoThread>,
    pub(crate) cell: Arc<ThreadCell>,
    /// What the I/O thread has been told last.
    pub(crate) completions: Completions,
    /// When its last poll ended, and how many requests were in progress then.
    polled: (u64, u32),
    /// When it got the first of them, if there are any: the beginning of that poll.
    since_ns: Option<u64>,
}

impl Slot {
    /// An I/O thread that polls.
    pub(crate) fn new(thread: Box<dyn IoThread>, cell: Arc<ThreadCell>) -> Self {
        Self { thread, cell, completions: Completions::default(), polled: (0, 0), since_ns: None }
    }
}

/// A reactor as others see it.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) events: Sender<Event>,
    pub(crate) cell: Arc<ReactorCell>,
}

/// What a reactor is made of.
pub(crate) struct Reactor {
    pub(crate) id: CoreId,
    pub(crate) inbox: Inbox<Event>,
    pub(crate) peers: Arc<[Peer]>,
    pub(crate) cell: Arc<ReactorCell>,
    pub(crate) idle: Idle,
    pub(crate) monitor: Option<Monitor>,
    /// On the main core only.
    pub(crate) director: Option<Director>,
    pub(crate) slots: Vec<Slot>,
    /// I/O threads whose new home had no room in its ring.
    pub(crate) unsent: Vec<(ThreadId, CoreId)>,
    pub(crate) sleep: Option<Depth>,
    /// The sleep that has just ended, until the first message after it says who ended it.
    pub(crate) woken: Option<Depth>,
    /// When an I/O thread here last took a request.
    pub(crate) last_request_ns: u64,
    /// Loops that found no work and were not slept through, for ever.
    pub(crate) fruitless: u32,
    pub(crate) kernel_wait: KernelWait,
    /// Whether the kernel was asked to end waits on time.
    pub(crate) on_time: bool,
}

/// How a round without work ends.
enum Rest {
    Poll,
    Sleep(Depth),
    Pause { until_ns: u64 },
    Kernel { depth: Depth, until_ns: u64 },
}

impl Reactor {
    /// Runs until it is told to stop.
    pub(crate) fn run(&mut self) {
        self.cell.tid.store(rustix::thread::gettid().as_raw_pid() as u32, Relaxed);
        let mut now = clock::now_ns();
        self.last_request_ns = now;
        while let Some(busy) = self.round(&mut now) {
            if !busy {
                self.rest(&mut now);
            }
        }
    }

    /// One round, the rest after it apart: whether there was work; `None` if this is the end.
    fn round(&mut self, now: &mut u64) -> Option<bool> {
        while let Some(event) = self.inbox.take() {
            if !self.apply(event) {
                return None;
            }
        }
        self.woken = None;
        self.try_again();
        let busy = self.poll_all(now);
        if let Some(director) = &mut self.director {
            director.step(*now);
        }
        add(&self.cell.loops, 1);
        Some(busy)
    }

    pub(crate) fn apply(&mut self, event: Event) -> bool {
        match event {
            Event::Adopt { slot, sent_ns } => {
                self.note_wake(sent_ns);
                self.adopt(slot);
            }
            Event::Hand { thread, to } => self.hand(thread, to),
            Event::Sleep(depth) => self.sleep = Some(depth),
            Event::Look => {} // a wait has ended, and the next poll looks
            Event::Wake { sent_ns } => {
                self.note_wake(sent_ns);
                self.sleep = None;
            }
            Event::Instruct(instruction) => {
                if let Some(director) = &mut self.director {
                    director.instruct(*instruction);
                }
            }
            Event::Stop => return false,
        }
        true
    }

    fn note_wake(&mut self, sent_ns: u64) {
        if let Some(depth) = self.woken.take() {
            self.cell.woken_by(depth, sent_ns, clock::now_ns());
        }
    }

    fn adopt(&mut self, slot: Slot) {
        self.slots.push(slot);
        add(&self.cell.moves_in, 1);
        self.count();
        if let Some(slot) = self.slots.last() {
            slot.cell.home.store(self.id.0, Release);
        }
    }

    fn count(&self) {
        self.cell.io_threads.store(self.slots.len() as u64, Relaxed);
    }

    pub(crate) fn hand(&mut self, thread: ThreadId, to: CoreId) {
        let Some(at) = self.slots.iter().position(|slot| slot.thread.id() == u32::from(thread.0)) else { return };
        if to == self.id {
            return;
        }
        let slot = self.slots.remove(at);
        add(&slot.cell.moves, 1);
        match self.peers[to.index()].events.send(Event::Adopt { slot, sent_ns: clock::now_ns() }) {
            Ok(()) => add(&self.cell.moves_out, 1),
            Err(Event::Adopt { slot, .. }) => {
                slot.cell.moves.store(slot.cell.moves.load(Relaxed) - 1, Relaxed);
                self.slots.insert(at, slot);
                self.unsent.push((thread, to));
            }
            Err(_) => unreachable!("a full ring hands back what was sent"),
        }
        self.count();
    }

    fn try_again(&mut self) {
        for _ in 0..self.unsent.len() {
            let (thread, to) = self.unsent.remove(0);
            self.hand(thread, to);
        }
    }

    /// Polls each I/O thread once; one clock reading per step, which ends it and begins the next.
    fn poll_all(&mut self, now: &mut u64) -> bool {
        let mut any = false;
        let mut at = 0;
        while at < self.slots.len() {
            let slot = &mut self.slots[at];
            slot.renew_completions();
            let begin = *now;
            let polled = slot.thread.poll(begin);
            let end = clock::now_ns();
            let spent = end - begin;
            if slot.cell.service.load(Relaxed) {
                slot.cell.served(slot.polled, &polled, begin, end);
            }
            slot.polled = (end, polled.in_progress);
            slot.since_ns = if polled.in_progress == 0 { None } else { slot.since_ns.or(Some(begin)) };
            let (of_core, of_thread) = if polled.busy {
                (&self.cell.busy_ns, &slot.cell.busy_ns)
            } else {
                (&self.cell.idle_ns, &slot.cell.idle_ns)
            };
            add(of_core, spent);
            add(of_thread, spent);
            *now = end;
            if polled.requests > 0 {
                add(&self.cell.requests, u64::from(polled.requests));
                add(&slot.cell.requests, u64::from(polled.requests));
                self.last_request_ns = end;
            }
            any |= polled.busy;
            if polled.finished {
                let slot = self.slots.remove(at);
                drop(slot.thread);
                slot.cell.finished.store(true, Release);
                self.count();
            } else {
                at += 1;
            }
        }
        if self.slots.is_empty() {
            let end = clock::now_ns();
            add(&self.cell.idle_ns, end - *now);
            *now = end;
        }
        any
    }

    fn rest(&mut self, now: &mut u64) {
        match self.way_to_rest(*now) {
            Rest::Poll => self.spin(),
            Rest::Pause { until_ns } => self.pause(until_ns, now),
            Rest::Sleep(depth) => self.fall_asleep(depth, now),
            Rest::Kernel { depth, until_ns } => self.wait_in_kernel(depth, until_ns, now),
        }
    }

    fn spin(&mut self) {
        self.fruitless = self.fruitless.wrapping_add(1);
        match self.idle {
            Idle::Spin => std::hint::spin_loop(),
            Idle::Yield if self.fruitless.is_multiple_of(YIELDS) => std::thread::sleep(Duration::from_nanos(1)),
            Idle::Yield => sched_yield(),
        }
    }

    fn way_to_rest(&self, now: u64) -> Rest {
        if !self.unsent.is_empty() {
            return Rest::Poll;
        }
        let interrupts = |slot: &Slot| slot.completions == Completions::Interrupt;
        let interrupts = !self.slots.is_empty() && self.slots.iter().all(interrupts);
        let pause = || match self.pause_ns(now) {
            0 => Rest::Poll,
            ns => Rest::Pause { until_ns: now.saturating_add(ns) },
        };
        if let Some(director) = &self.director {
            let depth = if director.is_quiet(now, now.saturating_sub(self.last_request_ns)) {
                Depth::ServerSleep
            } else if interrupts && director.may_wait() {
                Depth::SoftwareWait
            } else {
                return pause();
            };
            return Rest::Kernel { depth, until_ns: director.due_ns() };
        }
        match self.sleep {
            Some(depth) if self.slots.is_empty() => Rest::Sleep(depth),
            _ if interrupts => Rest::Kernel { depth: Depth::SoftwareWait, until_ns: u64::MAX },
            _ => pause(),
        }
    }

    /// The shortest pause that an I/O thread here is to have between two polls; 0 if one is to be polled all the time.
    fn pause_ns(&self, now: u64) -> u64 {
        let rest = |slot: &Slot| slot.completions.rest_ns(slot.since_ns, now);
        self.slots.iter().filter_map(rest).min().unwrap_or(0)
    }

    /// Rests until then, until a message comes, or until the director is due.
    fn pause(&mut self, mut until_ns: u64, now: &mut u64) {
        if let Some(director) = &self.director {
            until_ns = until_ns.min(director.next_step_ns());
        }
        let depth = if self.monitor.is_some() { Depth::MonitorWait } else { Depth::SoftwareWait };
        if until_ns <= *now {
            return self.spin();
        }
        self.end_pauses_on_time();
        self.fall_asleep_together(depth, *now);
        while self.inbox.is_empty() && *now < until_ns {
            match self.monitor {
                Some(monitor) => self.inbox.wait_monitor(monitor, until_ns),
                None => self.inbox.wait_futex(until_ns),
            }
            *now = clock::now_ns();
        }
        self.wake_together(*now);
    }

    /// Accounts a sleep to the core and to every I/O thread here.
    fn fall_asleep_together(&self, depth: Depth, now_ns: u64) {
        self.cell.fall_asleep(depth, now_ns);
        self.slots.iter().for_each(|slot| slot.cell.fall_asleep(depth, now_ns));
    }

    fn wake_together(&self, now_ns: u64) {
        self.slots.iter().for_each(|slot| slot.cell.wake(now_ns));
        self.cell.wake(now_ns);
    }

    /// The kernel ends waits up to 50 us late so as to end several together (`prctl(2)`, `PR_SET_TIMERSLACK`); as long as a
    /// pause is to be.
    fn end_pauses_on_time(&mut self) {
        if !std::mem::replace(&mut self.on_time, true) {
            let _ = set_current_timer_slack(NonZeroU64::new(1)); // refused nowhere; a pause would be longer
        }
    }

    /// Sleeps until a message comes. Arming, looking once more and waiting, in that order, are the inbox's.
    fn fall_asleep(&mut self, depth: Depth, now: &mut u64) {
        self.cell.fall_asleep(depth, *now);
        while self.inbox.is_empty() {
            match self.monitor.filter(|_| depth == Depth::MonitorWait) {
                Some(monitor) => self.inbox.wait_monitor(monitor, u64::MAX),
                None => self.inbox.wait_futex(u64::MAX),
            }
        }
        *now = clock::now_ns();
        self.cell.wake(*now);
        self.woken = Some(depth);
    }

    /// Waits in the kernel for messages and for whatever the I/O threads wait for, unless one of them has work.
    fn wait_in_kernel(&mut self, depth: Depth, mut until_ns: u64, now: &mut u64) {
        self.kernel_wait.clear();
        for at in 0..self.slots.len() {
            let Some(until) = self.slots[at].thread.prepare_wait(*now) else { return self.end_waits(at) };
            until_ns = until_ns.min(until);
            if let Some(fd) = self.slots[at].thread.wait_fd() {
                self.kernel_wait.add(fd);
            }
        }
        if self.inbox.arm() && self.waits_as_told() {
            let server = depth == Depth::ServerSleep;
            if let Some(director) = self.director.as_mut().filter(|_| server) {
                director.before_sleep();
            }
            self.fall_asleep_together(depth, *now);
            if let Ok(bell) = self.inbox.doorbell() {
                self.kernel_wait.add(bell);
            }
            let left_ns = if until_ns == u64::MAX { until_ns } else { until_ns.saturating_sub(clock::now_ns()) };
            self.kernel_wait.wait(left_ns);
            *now = clock::now_ns();
            self.wake_together(*now);
            self.woken = Some(depth);
            if let Some(director) = self.director.as_mut().filter(|_| server) {
                director.after_sleep(*now);
            }
        }
        self.inbox.disarm();
        self.end_waits(self.slots.len());
    }

    /// Whether every I/O thread still is to wait as it was told last. The director writes that down and then tells the home it
    /// sees; one that has just come here may have another in its eyes. So we have said where it lives before we look, and
    /// between the two lies the fence of arming.
    fn waits_as_told(&self) -> bool {
        self.slots.iter().all(|slot| slot.cell.completions() == slot.completions)
    }

    fn end_waits(&mut self, of_first: usize) {
        self.slots[..of_first].iter_mut().for_each(|slot| slot.thread.end_wait());
    }
}

impl Slot {
    fn renew_completions(&mut self) {
        let how = self.cell.completions();
        if how != self.completions {
            self.completions = how;
            self.thread.set_completions(how);
        }
    }
}

impl Peer {
    /// Awake or asleep; waiting in the kernel for its own I/O threads is no sleep.
    pub(crate) fn state(&self) -> CoreState {
        if self.cell.io_threads.load(Relaxed) > 0 { CoreState::Awake } else { self.cell.state() }
    }

    /// Whether an I/O thread can be sent there now: it polls, or a store wakes it, or it has others to wake for anyway.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.state(), CoreState::Awake | CoreState::Asleep(Depth::MonitorWait))
    }
}
