//! The data of a response: in a buffer, or on loan from the namespace.
//!
//! # The problem
//! Copying blocks from a namespace in memory to a buffer, from which the kernel copies them again, costs a third of a read.
//! When `sendmsg` returns, the kernel has copied the accepted data, so blocks can be sent in place. But loans must be short,
//! because they block writes, and a socket may accept nothing for hours.
//!
//! # The algorithm
//! A read allocates its buffer and borrows its blocks. The response is sent from the loan in the same poll. Data that the
//! socket did not accept is copied to the buffer ([`Payload::keep`]), and then all loans end. So ending a loan needs no new
//! memory, and a queue's quota does not depend on loans.
//!
//! # The properties
//! - Loans last until the end of their connection's turn in the poll: only one connection has any at a time.
//! - Their number is limited to the commands of one turn; further reads are copied.

use pilotlight_storage::buffer::Buffer;
use pilotlight_storage::{Channel, Loan};

/// Maximum commands of a queue pair started in one poll: bounds the latency of other work on the core (`design.md`, section
/// 6).
pub const BUDGET: u32 = 32;

/// Identifies a loan until all loans end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoanId(u8);

/// The loans of one connection's turn.
#[derive(Debug)]
pub struct Loans {
    /// Each with the index of its namespace.
    loans: Vec<(u32, Loan)>,
}

impl Default for Loans {
    fn default() -> Self {
        Self { loans: Vec::with_capacity(BUDGET as usize) }
    }
}

impl Loans {
    /// Borrows blocks of the namespace at index `namespace` from its channel. `None` if it does not lend them, or there are
    /// too many loans.
    #[inline]
    pub fn borrow(&mut self, namespace: u32, channel: &mut dyn Channel, lba: u64, blocks: u32) -> Option<LoanId> {
        if self.loans.len() == self.loans.capacity() {
            return None;
        }
        let id = LoanId(self.loans.len() as u8);
        self.loans.push((namespace, channel.lend(lba, blocks)?));
        Some(id)
    }

    /// Whether there are no loans.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.loans.is_empty()
    }

    /// Removes a loan, with the index of its namespace.
    #[inline]
    pub fn pop(&mut self) -> Option<(u32, Loan)> {
        self.loans.pop()
    }

    #[inline]
    fn bytes(&self, id: LoanId) -> &[u8] {
        self.loans[usize::from(id.0)].1.bytes()
    }
}

/// A response's data.
#[derive(Debug)]
pub struct Payload {
    /// The data, or space for it while it is on loan.
    buffer: Buffer,
    len: u32,
    loan: Option<LoanId>,
}

impl Payload {
    /// The first `len` bytes of `buffer`.
    #[inline]
    #[must_use]
    pub fn new(buffer: Buffer, len: u32) -> Self {
        Self { buffer, len, loan: None }
    }

    /// `len` bytes on loan, with a buffer for them.
    #[inline]
    #[must_use]
    pub fn lent(loan: LoanId, buffer: Buffer, len: u32) -> Self {
        Self { buffer, len, loan: Some(loan) }
    }

    /// Bytes of data.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is no data.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The data.
    #[inline]
    #[must_use]
    pub fn bytes<'a>(&'a self, loans: &'a Loans) -> &'a [u8] {
        self.loan.map_or(&self.buffer[..self.len as usize], |id| loans.bytes(id))
    }

    /// Copies loaned data to the buffer before the loans end.
    #[inline]
    pub fn keep(&mut self, loans: &Loans) {
        if let Some(id) = self.loan.take() {
            self.buffer[..self.len as usize].copy_from_slice(loans.bytes(id));
        }
    }

    /// The buffer.
    #[inline]
    #[must_use]
    pub fn into_buffer(self) -> Buffer {
        self.buffer
    }

    /// Bytes allocated from the pool.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }
}
