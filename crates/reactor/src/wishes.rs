//! What each knob is to be: said by the main core, carried out by a worker thread.
//!
//! *Problem.* Setting a knob of the machine takes the kernel micro- to milliseconds. The main core must wait neither for that nor for
//! room in a queue, and of several values for one knob only the last matters.
//!
//! *Algorithm.* A word for each knob holds the value it is to have, or says that it is to be put back, and how often that was said.
//! The worker holds the word that it has carried out, compares, and carries out what differs, one knob after the other in turn. With
//! nothing left to do it waits at a bell (`doorbell.rs`).
//!
//! *Properties.*
//! - Whatever was said last about a knob is carried out, however often that changes meanwhile. What is said again is carried out
//!   again: it may have been refused.
//! - Saying never blocks and allocates nothing; it makes a system call only if the worker sleeps.
//! - A knob that changes all the time keeps no other from its turn.
//! - Who stops says so after everything else: the worker ends when all that was said before is carried out.

use crate::doorbell::{Bell, How};
use crate::sync::{Arc, AtomicU64, Ordering, Step, leaves_out};

/// Bits of a word that hold the value; those above count.
const VALUE_BITS: u32 = 48;
/// In place of a value: the knob is to be as it was found. The count is then 0, as at the start.
const PUT_BACK: u64 = (1 << VALUE_BITS) - 1;
/// No moment.
const NEVER: u64 = u64::MAX;

/// What is shared.
struct Shared {
    values: Box<[AtomicU64]>,
    stopped: AtomicU64,
    bell: Bell,
}

/// Says what knobs are to be. Dropped, it has every knob put back and the worker end.
pub(crate) struct Wishes(Arc<Shared>);

/// Takes wishes, one after the other.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    /// What was taken last, by knob.
    taken: Box<[u64]>,
    /// The knob whose turn it is.
    turn: usize,
}

/// Both ends, for so many knobs, all of which are as they were found.
pub(crate) fn wishes(knobs: usize) -> (Wishes, Worker) {
    let values = (0..knobs).map(|_| AtomicU64::new(PUT_BACK)).collect();
    let shared = Arc::new(Shared { values, stopped: AtomicU64::new(0), bell: Bell::new() });
    let taken = vec![PUT_BACK; knobs].into();
    (Wishes(Arc::clone(&shared)), Worker { shared, taken, turn: 0 })
}

impl Wishes {
    /// The knob is to have this value (at most 2^48 - 2); `None`: the one that was found. Nothing happens if there is no such knob.
    /// Called by one thread at a time.
    pub(crate) fn say(&self, knob: usize, value: Option<u64>) {
        let Some(word) = self.0.values.get(knob) else { return };
        let count = (word.load(Ordering::Relaxed) >> VALUE_BITS).wrapping_add(1);
        let said = value.map_or(PUT_BACK, |value| count << VALUE_BITS | value.min(PUT_BACK - 1));
        word.store(said, Ordering::Release);
        self.0.bell.message_is_in();
    }

    /// Every knob is to be as it was found.
    pub(crate) fn put_all_back(&self) {
        (0..self.0.values.len()).for_each(|knob| self.say(knob, None));
    }
}

impl Drop for Wishes {
    fn drop(&mut self) {
        self.put_all_back();
        self.0.stopped.store(1, Ordering::Release);
        self.0.bell.message_is_in();
    }
}

impl Worker {
    /// The next knob to set, and what to; `None` in place of a value: put it back. Waits until there is one; nothing at all when
    /// stopped.
    pub(crate) fn next(&mut self) -> Option<(usize, Option<u64>)> {
        loop {
            let stopped = self.is_stopped(); // before the look at what was said before it
            if let Some((knob, word)) = self.take() {
                return Some((knob, Some(word & PUT_BACK).filter(|&value| value != PUT_BACK)));
            }
            if stopped {
                return None;
            }
            let armed = self.shared.bell.arm(How::Futex);
            if leaves_out(Step::Recheck) || (self.differs().is_none() && !self.is_stopped()) {
                self.shared.bell.wait(armed, NEVER);
            }
            self.shared.bell.disarm();
        }
    }

    fn is_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::Acquire) != 0
    }

    fn take(&mut self) -> Option<(usize, u64)> {
        let (knob, word) = self.differs()?;
        self.taken[knob] = word;
        self.turn = knob + 1;
        Some((knob, word))
    }

    /// The first knob from the one whose turn it is that is to be something else, and its word.
    fn differs(&self) -> Option<(usize, u64)> {
        let knobs = self.taken.len();
        (0..knobs).map(|ahead| (self.turn + ahead) % knobs).find_map(|knob| {
            let word = self.shared.values[knob].load(Ordering::Acquire);
            (word != self.taken[knob]).then_some((knob, word))
        })
    }
}
