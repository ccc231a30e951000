//! Who may hold how much of an I/O thread's buffers.
//!
//! # The problem
//! Some buffers wait for a peer: data that an R2T has asked for, answers that a socket does not take. A peer that never
//! moves holds them for good, and memory for all that every queue could ask for cannot be set aside. Yet a host that does
//! move must get on, whatever the others hold, and data that has been asked for must always be read: it is what frees
//! buffers.
//!
//! # The words
//! A *share* is what one queue holds. Its *own* part, up to [`OWN`] bytes, comes out of a part of the memory that is kept
//! for such parts; the rest comes out of what all have in *common*. Data that comes with a command is taken *at once*: it
//! is on loan to a backend, waits for no peer, and comes back by itself. A part of the memory is kept for that alone.
//!
//! # The algorithm
//! The memory is divided: an eighth for data that comes with commands, half of the rest for own parts, the other half in
//! common. A queue takes from its own part first. Of the common part nobody takes more than is left for others, so that
//! the first of many queues leaves half, the second a quarter. What comes back is taken off the common part first.
//! Data with commands may use whatever of the common part is free, never what is kept for own parts: when the rest is
//! used up, nothing more is read that could bring any, until some comes back.
//!
//! # The properties
//! - As long as there are not more queues than own parts ([`Memory::own_parts`]), every queue can hold [`OWN`] bytes,
//!   whatever others hold: one command of any size, or 32 of one page.
//! - Where there are more, a queue that holds nothing and gets nothing is noticed ([`Memory::take_refusal`]): the I/O thread then
//!   ends connections whose peers have not moved for long.
//! - Room for data with commands comes back without the help of any peer.
//! - When every share is empty, so are the books.

use crate::buffer::{Buffer, BufferPool, MAX_BUFFER};

/// Bytes that a queue can always hold.
pub const OWN: usize = MAX_BUFFER;
/// The part kept for data that comes with commands: one of so many.
const KEPT_ONE_IN: usize = 8;

/// What one queue holds.
#[derive(Debug, Default)]
pub struct Share {
    own: usize,
    common: usize,
}

impl Share {
    /// Bytes.
    #[must_use]
    pub fn held(&self) -> usize {
        self.own + self.common
    }
}

/// An I/O thread's buffers and the books about them.
#[derive(Debug)]
pub struct Memory {
    /// The buffers.
    pub pool: BufferPool,
    own_limit: usize,
    own_used: usize,
    common_limit: usize,
    common_used: usize,
    refused: bool,
}

impl Memory {
    /// Divides what `pool` has.
    #[must_use]
    pub fn new(pool: BufferPool) -> Self {
        let bytes = pool.capacity_bytes();
        let kept = (bytes / KEPT_ONE_IN).max(2 * MAX_BUFFER).min(bytes / 2);
        let own_limit = (bytes - kept) / 2 / OWN * OWN;
        let common_limit = bytes - kept - own_limit;
        Self { pool, own_limit, own_used: 0, common_limit, common_used: 0, refused: false }
    }

    /// Queues that can hold [`OWN`] bytes each at the same time.
    #[must_use]
    pub fn own_parts(&self) -> usize {
        self.own_limit / OWN
    }

    /// A buffer that may wait for a peer; `None` if `share` may not hold more now.
    #[must_use]
    pub fn take(&mut self, share: &mut Share, len: usize) -> Option<Buffer> {
        let size = BufferPool::size_of(len);
        let common_free = self.common_limit.saturating_sub(self.common_used);
        let own = share.own + size <= OWN && self.own_used + size <= self.own_limit;
        let common = size <= common_free && (share.common == 0 || share.common + size <= common_free);
        let buffer = if own || common { self.pool.alloc(len) } else { None };
        let Some(buffer) = buffer else {
            self.refused |= share.held() == 0;
            return None;
        };
        if own {
            share.own += size;
            self.own_used += size;
        } else {
            self.charge(share, size);
        }
        Some(buffer)
    }

    /// A buffer for data that has come with a command.
    #[must_use]
    pub fn take_at_once(&mut self, share: &mut Share, len: usize) -> Option<Buffer> {
        let size = BufferPool::size_of(len);
        if size > self.room_at_once() {
            return None;
        }
        let buffer = self.pool.alloc(len)?;
        self.charge(share, size);
        Some(buffer)
    }

    /// Bytes that data with commands may take now.
    #[must_use]
    pub fn room_at_once(&self) -> usize {
        self.pool.available_bytes().saturating_sub(self.own_limit - self.own_used)
    }

    fn charge(&mut self, share: &mut Share, size: usize) {
        share.common += size;
        self.common_used += size;
    }

    /// Takes a buffer of `share` back.
    #[inline]
    pub fn give_back(&mut self, share: &mut Share, buffer: Buffer) {
        self.release(share, buffer.capacity());
        self.pool.free(buffer);
    }

    /// Notes that `size` bytes of `share` are back in the pool.
    pub fn release(&mut self, share: &mut Share, size: usize) {
        let common = size.min(share.common);
        let own = (size - common).min(share.own);
        share.common -= common;
        share.own -= own;
        self.common_used -= common;
        self.own_used -= own;
    }

    /// Closes the books about a queue whose buffers are all back in the pool.
    pub fn close(&mut self, share: &mut Share) {
        self.release(share, share.held());
    }

    /// Whether, since the last call, a queue that held nothing was refused.
    #[must_use]
    pub fn take_refusal(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }

    /// Whether [`Memory::take_refusal`] would say so.
    #[must_use]
    pub fn has_refused(&self) -> bool {
        self.refused
    }

    /// Bytes in the books: for tests.
    #[must_use]
    pub fn booked(&self) -> usize {
        self.own_used + self.common_used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: usize = 4096;

    fn memory(bytes: usize) -> Memory {
        Memory::new(BufferPool::new(bytes).expect("memory"))
    }

    /// Takes as much as there is; the buffers stay out.
    fn hog(memory: &mut Memory, share: &mut Share, len: usize) -> Vec<Buffer> {
        std::iter::from_fn(|| memory.take(share, len)).collect()
    }

    fn give_all_back(memory: &mut Memory, share: &mut Share, buffers: Vec<Buffer>) {
        buffers.into_iter().for_each(|buffer| memory.give_back(share, buffer));
    }

    #[test]
    fn every_queue_has_its_own_part_whatever_others_hold() {
        let mut memory = memory(4 << 20);
        let queues = memory.own_parts();
        assert_eq!(queues, 14);
        let mut hogs: Vec<(Share, Vec<Buffer>)> = Vec::new();
        for _ in 1..queues {
            let mut share = Share::default();
            let buffers = hog(&mut memory, &mut share, MAX_BUFFER);
            hogs.push((share, buffers));
        }
        assert!(
            hogs[0].1.len() > hogs[1].1.len() && hogs[5].1.len() == 1,
            "the first takes most, the last its own part"
        );
        for len in [PAGE, MAX_BUFFER / 2, MAX_BUFFER] {
            let mut share = Share::default();
            let mine = hog(&mut memory, &mut share, len);
            assert!(mine.len() * len >= OWN);
            let waiting = memory.take_at_once(&mut share, PAGE).expect("data with commands has room of its own");
            memory.give_back(&mut share, waiting);
            give_all_back(&mut memory, &mut share, mine);
        }
        assert!(!memory.take_refusal(), "nobody went away with nothing");
        for (mut share, buffers) in hogs {
            give_all_back(&mut memory, &mut share, buffers);
        }
        assert_eq!((memory.booked(), memory.pool.outstanding()), (0, 0));
    }

    #[test]
    fn more_queues_than_own_parts_are_noticed() {
        let mut memory = memory(1 << 20);
        let mut shares: Vec<Share> = (0..20).map(|_| Share::default()).collect();
        let buffers: Vec<Vec<Buffer>> = shares.iter_mut().map(|share| hog(&mut memory, share, MAX_BUFFER)).collect();
        assert!(buffers.last().is_some_and(Vec::is_empty) && memory.take_refusal() && !memory.take_refusal());
        for (share, buffers) in shares.iter_mut().zip(buffers) {
            give_all_back(&mut memory, share, buffers);
        }
        assert_eq!(memory.booked(), 0);
    }

    #[test]
    fn data_with_commands_never_takes_what_is_kept_for_own_parts() {
        let mut memory = memory(4 << 20);
        let mut share = Share::default();
        let flood: Vec<Buffer> = std::iter::from_fn(|| memory.take_at_once(&mut share, PAGE)).collect();
        assert!(memory.room_at_once() < PAGE);
        let mut other = Share::default();
        let large = memory.take(&mut other, MAX_BUFFER).expect("its own part");
        memory.give_back(&mut other, large);
        give_all_back(&mut memory, &mut share, flood);
        assert_eq!(memory.booked(), 0);
    }

    proptest! {
        /// Whatever is taken and given back in whatever order, the books agree with what is out, and end empty.
        #[test]
        fn the_books_agree(ops in prop::collection::vec((0usize..4, 0usize..3, 1usize..MAX_BUFFER), 0..300)) {
            let mut memory = memory(2 << 20);
            let mut shares: [Share; 4] = Default::default();
            let mut out: [Vec<Buffer>; 4] = Default::default();
            for (who, what, len) in ops {
                let share = &mut shares[who];
                match what {
                    0 => out[who].extend(memory.take(share, len)),
                    1 => out[who].extend(memory.take_at_once(share, len % 8192)),
                    _ => {
                        if let Some(buffer) = out[who].pop() {
                            memory.give_back(share, buffer);
                        }
                    }
                }
                let held: usize = out.iter().flatten().map(Buffer::capacity).sum();
                prop_assert_eq!(memory.booked(), held);
                for (share, out) in shares.iter().zip(&out) {
                    prop_assert!(share.own <= OWN);
                    prop_assert_eq!(share.held(), out.iter().map(Buffer::capacity).sum::<usize>());
                }
            }
            for (share, out) in shares.iter_mut().zip(out) {
                give_all_back(&mut memory, share, out);
            }
            prop_assert_eq!(memory.booked(), 0);
        }
    }
}
