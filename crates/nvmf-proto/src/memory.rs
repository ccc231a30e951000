//! Quotas of queues for an I/O thread's buffers.
//!
//! # The problem
//! Some buffers wait for a peer: data requested by R2T, responses that a socket does not accept. A stalled peer holds them
//! indefinitely, and there is not enough memory to reserve the maximum for every queue. Yet a host that makes progress must
//! not starve, and requested data must always be received, because that frees buffers.
//!
//! # Terms
//! A *quota* counts the memory of one queue. Its *reserved* part, up to [`RESERVED`] bytes, comes from memory reserved for
//! queues; the rest comes from *shared* memory. *In-capsule* data goes directly to a backend and does not wait for a peer.
//! A part of the memory is kept for it.
//!
//! # The algorithm
//! An eighth of the memory is for in-capsule data, half of the rest is reserved for queues, the other half is shared. A
//! queue uses its reserved part first. It may not take more of the shared memory than it leaves free, so that the first of
//! many queues leaves half, the second a quarter. Freed memory is returned to the shared part first. In-capsule data may
//! use free shared memory, but never the reserved parts: when the rest is exhausted, receiving pauses until memory is freed.
//!
//! # The properties
//! - With at most [`Memory::reserved_parts`] queues, every queue can hold [`RESERVED`] bytes at any time: one command of any
//!   size, or 32 of one page.
//! - With more, the refusal of a queue that holds nothing is recorded ([`Memory::take_refusal`]): the I/O thread then ends
//!   connections of stalled peers.
//! - Memory for in-capsule data is freed without a peer.
//! - When every quota is empty, nothing is charged.

use pilotlight_storage::buffer::{Buffer, BufferPool, MAX_BUFFER};

/// Bytes reserved for a queue.
pub const RESERVED: usize = MAX_BUFFER;
/// Fraction (divisor) kept for in-capsule data.
const IN_CAPSULE_DIVISOR: usize = 8;

/// Memory charged to one queue.
#[derive(Debug, Default)]
pub struct QueueQuota {
    reserved: usize,
    shared: usize,
}

impl QueueQuota {
    /// Bytes held.
    #[inline]
    #[must_use]
    pub fn held(&self) -> usize {
        self.reserved + self.shared
    }
}

/// An I/O thread's buffers and their accounting.
#[derive(Debug)]
pub struct Memory {
    /// The buffers.
    pub pool: BufferPool,
    reserved_limit: usize,
    reserved_used: usize,
    shared_limit: usize,
    shared_used: usize,
    refused: bool,
}

impl Memory {
    /// Divides the memory of `pool`.
    #[must_use]
    pub fn new(pool: BufferPool) -> Self {
        let bytes = pool.capacity_bytes();
        let in_capsule = (bytes / IN_CAPSULE_DIVISOR).max(2 * MAX_BUFFER).min(bytes / 2);
        let reserved_limit = (bytes - in_capsule) / 2 / RESERVED * RESERVED;
        let shared_limit = bytes - in_capsule - reserved_limit;
        Self { pool, reserved_limit, reserved_used: 0, shared_limit, shared_used: 0, refused: false }
    }

    /// Number of queues that can hold [`RESERVED`] bytes each.
    #[must_use]
    pub fn reserved_parts(&self) -> usize {
        self.reserved_limit / RESERVED
    }

    /// A buffer that may wait for a peer; `None` if the quota is exhausted.
    #[inline]
    #[must_use]
    pub fn take(&mut self, quota: &mut QueueQuota, len: usize) -> Option<Buffer> {
        let size = BufferPool::size_of(len);
        let shared_free = self.shared_limit.saturating_sub(self.shared_used);
        let reserved = quota.reserved + size <= RESERVED && self.reserved_used + size <= self.reserved_limit;
        let shared = size <= shared_free && (quota.shared == 0 || quota.shared + size <= shared_free);
        let buffer = if reserved || shared { self.pool.alloc(len) } else { None };
        let Some(buffer) = buffer else {
            self.refused |= quota.held() == 0;
            return None;
        };
        if reserved {
            quota.reserved += size;
            self.reserved_used += size;
        } else {
            self.charge(quota, size);
        }
        Some(buffer)
    }

    /// A buffer for in-capsule data.
    #[inline]
    #[must_use]
    pub fn take_in_capsule(&mut self, quota: &mut QueueQuota, len: usize) -> Option<Buffer> {
        let size = BufferPool::size_of(len);
        if size > self.in_capsule_room() {
            return None;
        }
        let buffer = self.pool.alloc(len)?;
        self.charge(quota, size);
        Some(buffer)
    }

    /// Bytes available for in-capsule data.
    #[inline]
    #[must_use]
    pub fn in_capsule_room(&self) -> usize {
        self.pool.available_bytes().saturating_sub(self.reserved_limit - self.reserved_used)
    }

    #[inline]
    fn charge(&mut self, quota: &mut QueueQuota, size: usize) {
        quota.shared += size;
        self.shared_used += size;
    }

    /// Frees a buffer of `quota`.
    #[inline]
    pub fn free(&mut self, quota: &mut QueueQuota, buffer: Buffer) {
        self.release(quota, buffer.capacity());
        self.pool.free(buffer);
    }

    /// Subtracts `size` bytes that have been freed from `quota`.
    #[inline]
    pub fn release(&mut self, quota: &mut QueueQuota, size: usize) {
        let shared = size.min(quota.shared);
        let reserved = (size - shared).min(quota.reserved);
        quota.shared -= shared;
        quota.reserved -= reserved;
        self.shared_used -= shared;
        self.reserved_used -= reserved;
    }

    /// Closes the quota of a queue whose buffers are all freed.
    pub fn close(&mut self, quota: &mut QueueQuota) {
        self.release(quota, quota.held());
    }

    /// Whether a queue that held nothing was refused since the last call.
    #[must_use]
    pub fn take_refusal(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }

    /// As [`Memory::take_refusal`], without clearing it.
    #[must_use]
    pub fn has_refused(&self) -> bool {
        self.refused
    }

    /// Charged bytes.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn charged(&self) -> usize {
        self.reserved_used + self.shared_used
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

    /// Takes all available buffers.
    fn take_all(memory: &mut Memory, quota: &mut QueueQuota, len: usize) -> Vec<Buffer> {
        std::iter::from_fn(|| memory.take(quota, len)).collect()
    }

    fn free_all(memory: &mut Memory, quota: &mut QueueQuota, buffers: Vec<Buffer>) {
        buffers.into_iter().for_each(|buffer| memory.free(quota, buffer));
    }

    #[test]
    fn every_queue_has_its_reserved_part() {
        let mut memory = memory(4 << 20);
        let queues = memory.reserved_parts();
        assert_eq!(queues, 14);
        let mut queues_held: Vec<(QueueQuota, Vec<Buffer>)> = Vec::new();
        for _ in 1..queues {
            let mut quota = QueueQuota::default();
            let buffers = take_all(&mut memory, &mut quota, MAX_BUFFER);
            queues_held.push((quota, buffers));
        }
        assert!(
            queues_held[0].1.len() > queues_held[1].1.len() && queues_held[5].1.len() == 1,
            "the first takes most, the last its reserved part"
        );
        for len in [PAGE, MAX_BUFFER / 2, MAX_BUFFER] {
            let mut quota = QueueQuota::default();
            let mine = take_all(&mut memory, &mut quota, len);
            assert!(mine.len() * len >= RESERVED);
            let waiting = memory.take_in_capsule(&mut quota, PAGE).expect("memory kept for in-capsule data");
            memory.free(&mut quota, waiting);
            free_all(&mut memory, &mut quota, mine);
        }
        assert!(!memory.take_refusal(), "no refusal");
        for (mut quota, buffers) in queues_held {
            free_all(&mut memory, &mut quota, buffers);
        }
        assert_eq!((memory.charged(), memory.pool.outstanding()), (0, 0));
    }

    #[test]
    fn more_queues_than_reserved_parts_are_noticed() {
        let mut memory = memory(1 << 20);
        let mut quotas: Vec<QueueQuota> = (0..20).map(|_| QueueQuota::default()).collect();
        let buffers: Vec<Vec<Buffer>> =
            quotas.iter_mut().map(|quota| take_all(&mut memory, quota, MAX_BUFFER)).collect();
        assert!(buffers.last().is_some_and(Vec::is_empty) && memory.take_refusal() && !memory.take_refusal());
        for (quota, buffers) in quotas.iter_mut().zip(buffers) {
            free_all(&mut memory, quota, buffers);
        }
        assert_eq!(memory.charged(), 0);
    }

    #[test]
    fn data_with_commands_never_takes_what_is_kept_for_reserved_parts() {
        let mut memory = memory(4 << 20);
        let mut quota = QueueQuota::default();
        let in_capsule: Vec<Buffer> = std::iter::from_fn(|| memory.take_in_capsule(&mut quota, PAGE)).collect();
        assert!(memory.in_capsule_room() < PAGE);
        let mut other = QueueQuota::default();
        let large = memory.take(&mut other, MAX_BUFFER).expect("its reserved part");
        memory.free(&mut other, large);
        free_all(&mut memory, &mut quota, in_capsule);
        assert_eq!(memory.charged(), 0);
    }

    proptest! {
        /// The accounting agrees with the outstanding buffers in any order of operations.
        #[test]
        fn the_accounting_agrees(ops in prop::collection::vec((0usize..4, 0usize..3, 1usize..MAX_BUFFER), 0..300)) {
            let mut memory = memory(2 << 20);
            let mut quotas: [QueueQuota; 4] = Default::default();
            let mut out: [Vec<Buffer>; 4] = Default::default();
            for (queue, operation, len) in ops {
                let quota = &mut quotas[queue];
                match operation {
                    0 => out[queue].extend(memory.take(quota, len)),
                    1 => out[queue].extend(memory.take_in_capsule(quota, len % 8192)),
                    _ => {
                        if let Some(buffer) = out[queue].pop() {
                            memory.free(quota, buffer);
                        }
                    }
                }
                let held: usize = out.iter().flatten().map(Buffer::capacity).sum();
                prop_assert_eq!(memory.charged(), held);
                for (quota, out) in quotas.iter().zip(&out) {
                    prop_assert!(quota.reserved <= RESERVED);
                    prop_assert_eq!(quota.held(), out.iter().map(Buffer::capacity).sum::<usize>());
                }
            }
            for (quota, out) in quotas.iter_mut().zip(out) {
                free_all(&mut memory, quota, out);
            }
            prop_assert_eq!(memory.charged(), 0);
        }
    }
}
