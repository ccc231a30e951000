//! Messages to reactors, and the I/O threads that they carry.

use std::sync::Arc;

use pilotlight_plant::{Arrivals, CoreId, Depth, LongRound, ThreadId};

use crate::cells::{ReactorCell, ThreadCell};
use crate::inbox::Sender;
use crate::instruction::Instruction;
use crate::io_thread::{CompletionMode, IoThread};

/// A message to a reactor.
pub(crate) enum Event {
    /// Take over an I/O thread.
    Adopt {
        /// The I/O thread.
        slot: Slot,
        /// When it was sent.
        sent_ns: u64,
    },
    /// Hand this I/O thread over.
    HandOver {
        /// The I/O thread; ignored if it is not here.
        thread: ThreadId,
        /// Its new home.
        to: CoreId,
    },
    /// Sleep whenever no I/O thread is here, until `Wake`.
    Sleep(Depth),
    /// Poll.
    Wake {
        /// When it was sent.
        sent_ns: u64,
    },
    /// End a wait and read the completion modes of I/O threads. Does not cancel `Sleep`.
    EndWait,
    /// For the director: a core's rounds are long.
    LongRound(LongRound),
    /// For the director, on the main core.
    Instruct(Box<Instruction>),
    /// Stop.
    Stop,
}

/// An I/O thread and its state on a reactor.
pub(crate) struct Slot {
    pub(crate) thread: Box<dyn IoThread>,
    /// Its number.
    pub(crate) id: u32,
    /// Whether its descriptor is watched here.
    pub(crate) watched: bool,
    /// Its descriptor may be readable: it is polled in each round.
    pub(crate) active: bool,
    /// Consecutive polls without work, until it is watched.
    pub(crate) empty_polls: u8,
    /// Its last poll has finished it.
    pub(crate) finished: bool,
    pub(crate) cell: Arc<ThreadCell>,
    /// Its current completion mode.
    pub(crate) completions: CompletionMode,
    /// When its last poll ended, and how many requests were in progress then.
    pub(crate) polled: (u64, u32),
    /// Arrivals of requests in progress, for hybrid polling: the beginning of the poll that took each.
    pub(crate) arrivals: Box<Arrivals>,
}

impl Slot {
    /// An I/O thread that polls.
    pub(crate) fn new(thread: Box<dyn IoThread>, cell: Arc<ThreadCell>) -> Self {
        let (id, completions) = (thread.id(), CompletionMode::default());
        let (watched, active, empty_polls, finished, polled) = (false, true, 0, false, (0, 0));
        Self { thread, id, watched, active, empty_polls, finished, cell, completions, polled, arrivals: Box::default() }
    }
}

/// A reactor for other threads.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) events: Sender<Event>,
    pub(crate) cell: Arc<ReactorCell>,
}
