//! Setpoints: values of knobs, written by the main core and applied by a worker thread.
//!
//! *Problem.* Setting a knob takes the kernel micro- to milliseconds. The main core must not wait for it or for space in a queue, and of
//! several values for one knob only the last matters.
//!
//! *Algorithm.* A word for each knob has its setpoint, a value or "initial", and a count of writes. The worker keeps the last word that it
//! has applied, compares, and applies the differences, one knob after the other. Without differences it waits at a bell (`doorbell.rs`).
//!
//! *Properties.*
//! - The last setpoint of a knob is applied. A value that is written again is applied again, because it may have been refused.
//! - A write never blocks and allocates nothing; it makes a system call only if the worker sleeps.
//! - A knob that changes all the time does not delay the others.
//! - The worker ends when all setpoints written before the end are applied.

use crate::doorbell::{Bell, WaitKind};
use crate::sync::{Arc, AtomicU64, Ordering, Step, leaves_out};

/// Bits of a word that hold the value; those above count.
const VALUE_BITS: u32 = 48;
/// The knob's initial value.
const INITIAL: u64 = (1 << VALUE_BITS) - 1;
/// No time.
const NEVER: u64 = u64::MAX;

/// What is shared.
struct Shared {
    values: Box<[AtomicU64]>,
    stopped: AtomicU64,
    bell: Bell,
}

/// Writes setpoints. When it is dropped, all knobs are restored and the worker ends.
pub(crate) struct Setpoints(Arc<Shared>);

/// Applies setpoints.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    /// The last applied word of each knob.
    taken: Box<[u64]>,
    /// The next knob to compare.
    turn: usize,
}

/// Both ends, for `knobs` knobs at their initial values.
pub(crate) fn setpoints(knobs: usize) -> (Setpoints, Worker) {
    let values = (0..knobs).map(|_| AtomicU64::new(INITIAL)).collect();
    let shared = Arc::new(Shared { values, stopped: AtomicU64::new(0), bell: Bell::new() });
    let taken = vec![INITIAL; knobs].into();
    (Setpoints(Arc::clone(&shared)), Worker { shared, taken, turn: 0 })
}

impl Setpoints {
    /// Sets a knob to a value (at most 2^48 - 2), or `None` for its initial one. Unknown knobs are ignored. Called by one thread at a time.
    pub(crate) fn set(&self, knob: usize, value: Option<u64>) {
        let Some(word) = self.0.values.get(knob) else { return };
        let before = word.load(Ordering::Relaxed);
        if value.is_none() && before & INITIAL == INITIAL {
            return; // it is restored, or will be
        }
        let count = (before >> VALUE_BITS).wrapping_add(1);
        let new = count << VALUE_BITS | value.map_or(INITIAL, |value| value.min(INITIAL - 1));
        word.store(new, Ordering::Release);
        self.0.bell.message_is_in();
    }

    /// Every knob is to be as it was found.
    pub(crate) fn put_all_back(&self) {
        (0..self.0.values.len()).for_each(|knob| self.set(knob, None));
    }
}

impl Drop for Setpoints {
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
            let stopped = self.is_stopped(); // before reading values written before it
            if let Some((knob, word)) = self.take() {
                return Some((knob, Some(word & INITIAL).filter(|&value| value != INITIAL)));
            }
            if stopped {
                return None;
            }
            let armed = self.shared.bell.arm(WaitKind::Futex);
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
