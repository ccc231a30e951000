//! The loop of one core.
//!
//! A round: handle the events of the ring, poll each I/O thread that may have work (`reactor/poll.rs`), run the director (main core), account
//! the time; without work, rest as deep as allowed.
//!
//! To *hand over* an I/O thread is to put its box into the ring of its new core. A *rest* is what follows a round without work: polling on, a
//! *pause* of fixed length (hybrid polling), *sleeping* (a worker without I/O threads after a sleep command), or *waiting in the kernel* (also
//! for the sockets of its I/O threads: interrupts, or no request for a while). An event ends each.
//!
//! # Properties
//! - An I/O thread is in exactly one place: a reactor's slots, or one event ring. Only the owning reactor accesses it, so it needs no lock.
//! - A reactor that owns an I/O thread never sleeps; it waits in the kernel only if every I/O thread has armed its wake-ups and then found
//!   no work.
//! - The whole server sleeps only while every worker rests or sleeps, and the first request of a worker then wakes the main core (`resting.rs`).
//! - If the ring of the new core is full, the old core keeps and serves the I/O thread and tries again.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use pilotlight_plant::{CoreId, CoreState, Depth, Rounds, ThreadId};

use crate::cells::{ReactorCell, add};
use crate::clock;
use crate::director::Director;
use crate::event::{Event, Peer, Slot};
use crate::inbox::Inbox;
use crate::kernel_wait::KernelWait;
use crate::wait::Monitor;
use crate::watch::Watch;

mod poll;
mod rest;
#[cfg(test)]
mod tests;

/// Behaviour after a round without work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// Polls again at once.
    #[default]
    Spin,
    /// Yields to the scheduler, and sleeps briefly after many yields: for tests with more reactors than CPUs, not for measurements.
    Yield,
    /// The main core yields, the others poll: for a main core that shares its CPU with the load generator.
    YieldMain,
}

impl Idle {
    /// Behaviour of the main core or a worker.
    pub(crate) fn for_core(self, is_main: bool) -> Self {
        match self {
            Self::YieldMain if is_main => Self::Yield,
            Self::YieldMain => Self::Spin,
            _ => self,
        }
    }
}

/// The reactor of a core.
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
    pub(crate) watch: Watch,
    /// I/O threads here that are not active.
    pub(crate) quiet: usize,
    /// Indices of the I/O threads that this round polls; the room is kept.
    pub(crate) due: Vec<u32>,
    /// Index of the I/O thread with which a round begins.
    pub(crate) resume: usize,
    /// I/O threads that found the ring of their new core full.
    pub(crate) unsent: Vec<(ThreadId, CoreId)>,
    pub(crate) rounds: Rounds,
    pub(crate) sleep: Option<Depth>,
    /// Depth of the sleep that has just ended, until the first event.
    pub(crate) woken: Option<Depth>,
    /// Time of the last request here; on a worker also of the last I/O thread or wake-up that came, as requests follow.
    pub(crate) last_request_ns: u64,
    /// Time of the last request here alone.
    pub(crate) received_ns: u64,
    /// When a quiet worker may try to wait again.
    pub(crate) retry_ns: u64,
    /// The main core, which may sleep while a worker rests.
    pub(crate) main: CoreId,
    /// A worker has rested since its last request.
    pub(crate) has_rested: bool,
    /// Rounds without work or sleep.
    pub(crate) empty_rounds: u32,
    pub(crate) kernel_wait: KernelWait,
    /// Whether the timer slack was set.
    pub(crate) is_slack_set: bool,
}

impl Reactor {
    /// A reactor without I/O threads.
    pub(crate) fn new(id: CoreId, inbox: Inbox<Event>, peers: &Arc<[Peer]>, idle: Idle) -> Self {
        Self {
            id,
            inbox,
            peers: Arc::clone(peers),
            cell: Arc::clone(&peers[id.index()].cell),
            idle,
            monitor: None,
            director: None,
            slots: Vec::new(),
            watch: Watch::default(),
            quiet: 0,
            due: Vec::new(),
            resume: 0,
            unsent: Vec::new(),
            rounds: Rounds::default(),
            sleep: None,
            woken: None,
            last_request_ns: 0,
            received_ns: 0,
            retry_ns: 0,
            main: CoreId(0),
            has_rested: false,
            empty_rounds: 0,
            kernel_wait: KernelWait::new(),
            is_slack_set: false,
        }
    }

    /// Runs until [`Event::Stop`].
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

    /// One round without its rest; whether there was work, `None` after [`Event::Stop`].
    fn round(&mut self, now: &mut u64) -> Option<bool> {
        while let Some(event) = self.inbox.take() {
            if !self.apply(event) {
                return None;
            }
        }
        self.woken = None;
        self.retry_unsent();
        self.watch.forget_one();
        self.rounds.begin(*now);
        let busy = self.poll_all(now);
        self.rounds.end(*now, busy);
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
                self.stay_awake();
                self.adopt(slot);
            }
            Event::HandOver { thread, to } => self.hand_over(thread, to),
            Event::Sleep(depth) => self.sleep = Some(depth),
            Event::EndWait => {} // the wait has ended; the next poll reads the modes
            Event::Wake { sent_ns } => {
                self.note_wake(sent_ns);
                self.stay_awake();
                self.sleep = None;
            }
            Event::LongRound(long) => {
                if let Some(director) = &mut self.director {
                    director.long_round(long, clock::now_ns());
                }
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

    /// A worker that was woken expects requests.
    fn stay_awake(&mut self) {
        if self.director.is_none() {
            self.last_request_ns = clock::now_ns();
        }
    }

    fn adopt(&mut self, slot: Slot) {
        add(&self.cell.moves_in, 1);
        let cell = Arc::clone(&slot.cell);
        self.insert(slot);
        cell.home.store(self.id.0, Release);
    }

    /// Adds an I/O thread, polled in each round until a poll finds no work.
    fn insert(&mut self, mut slot: Slot) {
        slot.watched = self.watch.insert(slot.id, self.slots.len());
        (slot.active, slot.empty_polls) = (true, 0);
        self.slots.push(slot);
        self.due.reserve(self.slots.len()); // a round allocates nothing
        self.count();
    }

    /// Removes the I/O thread at this index; the last one takes its index.
    fn remove(&mut self, at: usize) -> Slot {
        let slot = self.slots.swap_remove(at);
        self.watch.remove(slot.id);
        self.quiet -= usize::from(!slot.active);
        if let Some(moved) = self.slots.get(at) {
            self.watch.insert(moved.id, at);
        }
        self.count();
        slot
    }

    fn count(&self) {
        self.cell.io_threads.store(self.slots.len() as u64, Relaxed);
    }

    pub(crate) fn hand_over(&mut self, thread: ThreadId, to: CoreId) {
        let Some(at) = self.slots.iter().position(|slot| slot.id == u32::from(thread.0)) else { return };
        if to == self.id {
            return;
        }
        let slot = self.remove(at);
        add(&slot.cell.moves, 1);
        match self.peers[to.index()].events.send(Event::Adopt { slot, sent_ns: clock::now_ns() }) {
            Ok(()) => add(&self.cell.moves_out, 1),
            Err(Event::Adopt { slot, .. }) => {
                slot.cell.moves.store(slot.cell.moves.load(Relaxed) - 1, Relaxed);
                self.insert(slot);
                self.unsent.push((thread, to));
            }
            Err(_) => unreachable!("a full ring hands back what was sent"),
        }
    }

    fn retry_unsent(&mut self) {
        for _ in 0..self.unsent.len() {
            let (thread, to) = self.unsent.remove(0);
            self.hand_over(thread, to);
        }
    }
}

impl Peer {
    /// Awake or asleep; waiting in the kernel for its own I/O threads is no sleep.
    pub(crate) fn state(&self) -> CoreState {
        if self.cell.io_threads.load(Relaxed) > 0 { CoreState::Awake } else { self.cell.state() }
    }

    /// Whether an I/O thread can be sent now: it polls, a store wakes it, it has other I/O threads, or it rests without a command.
    pub(crate) fn is_ready(&self) -> bool {
        self.cell.rests.is_set() || matches!(self.state(), CoreState::Awake | CoreState::Asleep(Depth::MonitorWait))
    }
}
