//! A bounded ring of messages: many senders, one receiver, no lock.
//!
//! *Problem.* Senders on several cores put messages into one ring; its owner takes them in order, and a sleeping owner needs a
//! single word to watch that the next message changes.
//!
//! *Terms.* A *position* counts messages since the start; its *slot* is the position modulo the capacity, its *lap* the
//! position divided by it. Each slot has a *sequence* word: `2 * lap` while it is free for that lap's message,
//! `2 * lap + 1` while it holds it. So the word grows by one whenever the slot is filled or emptied, and odd means full.
//!
//! *Algorithm.* A sender reads the sequence of the slot at the tail. Free for this lap: it claims the position by advancing the
//! tail, writes the message, and fills the slot with a store to its sequence. Still full from the lap before: the ring is full.
//! Otherwise another sender was faster, and it tries again. Only the receiver has the head position; it reads a slot that is full
//! for its lap and frees it for the next.
//!
//! *Properties.*
//! - Messages of one sender arrive in order; none is lost or duplicated.
//! - A slot is touched by one side at a time: by the sender that claimed its position, from free to full; by the receiver,
//!   from full to free.
//! - No side waits. A sender that is interrupted between claim and fill hides later messages until it continues; it then fills
//!   the slot that the receiver watches, so a waiting receiver is woken.
//! - Each slot has its own cache lines: only the sender of the next message stores to the line that a sleeping owner watches.

use std::mem::MaybeUninit;

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, Ordering, UnsafeCell};

/// One place for a message.
#[repr(C, align(64))]
struct Slot<T> {
    sequence: AtomicU64,
    message: UnsafeCell<MaybeUninit<T>>,
}

/// The ring itself. Its head position is its owner's and is handed in.
pub(crate) struct Ring<T> {
    slots: Box<[Slot<T>]>,
    /// log2 of the number of slots.
    lap_shift: u32,
    tail: CachePadded<AtomicU64>,
}

// SAFETY: a message is written by the one sender that claimed its position and read by the one receiver, ordered by the
// slot's sequence; it crosses threads, so it has to be `Send`. No reference to a message is ever shared.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: as above; the ring owns the messages in it.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T> Ring<T> {
    /// A ring for `capacity` messages, rounded up to a power of two; at least one.
    pub(crate) fn new(capacity: usize) -> Self {
        let slots = capacity.max(1).next_power_of_two();
        let slot = |_| Slot { sequence: AtomicU64::new(0), message: UnsafeCell::new(MaybeUninit::uninit()) };
        Self {
            slots: (0..slots).map(slot).collect(),
            lap_shift: slots.trailing_zeros(),
            tail: CachePadded::new(AtomicU64::new(0)),
        }
    }

    fn slot(&self, position: u64) -> &Slot<T> {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }

    /// What the sequence of `position`'s slot is while the slot waits for its message.
    fn free(&self, position: u64) -> u64 {
        (position >> self.lap_shift) * 2
    }

    /// Puts a message in, or hands it back if there is no room.
    #[inline]
    pub(crate) fn send(&self, message: T) -> Result<(), T> {
        let mut position = self.tail.load(Ordering::Relaxed);
        loop {
            let (slot, free) = (self.slot(position), self.free(position));
            let sequence = slot.sequence.load(Ordering::Acquire);
            if sequence < free {
                return Err(message);
            }
            match self.claim(position) {
                Ok(_) => {
                    // SAFETY: the slot is free (Acquire: the receiver has read the last message out of it), and the
                    // claim made this the only sender to fill it. The pointer is to a live cell.
                    slot.message.with_mut(|place| unsafe { (*place).write(message) });
                    slot.sequence.store(free + 1, Ordering::Release);
                    return Ok(());
                }
                Err(tail) => position = tail,
            }
        }
    }

    /// Advances the tail from `position`, or returns its position. Relaxed: the sequence words order everything else.
    fn claim(&self, position: u64) -> Result<u64, u64> {
        self.tail.compare_exchange_weak(position, position + 1, Ordering::Relaxed, Ordering::Relaxed)
    }

    /// The word that the message at `head` will change, and its value until then.
    pub(crate) fn next(&self, head: u64) -> (&AtomicU64, u64) {
        (&self.slot(head).sequence, self.free(head))
    }

    /// Whether the message at `head` is not there yet.
    #[inline]
    pub(crate) fn is_empty(&self, head: u64) -> bool {
        !is_full(self.slot(head).sequence.load(Ordering::Acquire))
    }

    /// Takes the message at `head`, if it is there; the caller's next head is one further then.
    ///
    /// # Safety
    /// One receiver at a time, whose `head` is the number of messages that have been taken.
    #[inline]
    pub(crate) unsafe fn take(&self, head: u64) -> Option<T> {
        let slot = self.slot(head);
        let sequence = slot.sequence.load(Ordering::Acquire);
        if !is_full(sequence) {
            return None;
        }
        // SAFETY: the slot is full (Acquire: its sender's write is seen), and by the caller's promise no other thread reads
        // it; the store below gives it back to the senders only after the message has been read out.
        let message = slot.message.with_mut(|place| unsafe { (*place).assume_init_read() });
        slot.sequence.store(sequence + 1, Ordering::Release);
        Some(message)
    }
}

/// Whether a slot holds a message. Says nothing about whose turn it is: the receiver's own slot is free or full for the
/// receiver's lap and never anything else.
fn is_full(sequence: u64) -> bool {
    sequence % 2 == 1
}

impl<T> Drop for Ring<T> {
    /// Drops what a sender put in after the receiver had gone.
    fn drop(&mut self) {
        for slot in &self.slots {
            if is_full(slot.sequence.load(Ordering::Acquire)) {
                // SAFETY: the slot is full, and `&mut self` is exclusive.
                slot.message.with_mut(|place| unsafe { (*place).assume_init_drop() });
            }
        }
    }
}
