//! The data of an answer: in a buffer, or on loan from the namespace.
//!
//! # The problem
//! Copying blocks from a namespace in memory into a buffer, from which the kernel copies them again, costs a third of a
//! read. The kernel has copied what it accepts when `sendmsg` returns, so blocks can be sent from where they lie; but they
//! can be on loan only for a short time, as nobody can write to them meanwhile, and a socket may take nothing for hours.
//!
//! # The algorithm
//! A read takes its buffer as if it were copied, and borrows its blocks. The answer is sent from the loan, in the same poll.
//! What the socket did not take is copied into the buffers that are there for it ([`Payload::keep`]), and then all loans are
//! ended. So a loan needs no memory that may be missing, and what a queue holds does not depend on loans.
//!
//! # The properties
//! - Loans last from a command's start to the end of its connection's turn: only one connection has any at a time.
//! - There are at most as many as commands are started in one turn; beyond that reads are copied.

use crate::backend::{Channel, Loan};
use crate::buffer::Buffer;
use crate::queue_pair::BUDGET;

/// Names a loan until all loans end.
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
    /// Borrows blocks of the namespace at index `namespace`, whose channel this is. `None` if it does not lend them, or too
    /// many are on loan.
    pub fn borrow(&mut self, namespace: u32, channel: &mut dyn Channel, lba: u64, blocks: u32) -> Option<LoanId> {
        if self.loans.len() == self.loans.capacity() {
            return None;
        }
        let id = LoanId(self.loans.len() as u8);
        self.loans.push((namespace, channel.lend(lba, blocks)?));
        Some(id)
    }

    /// Whether nothing is on loan.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.loans.is_empty()
    }

    /// A loan that is to be ended, and the index of its namespace.
    pub fn pop(&mut self) -> Option<(u32, Loan)> {
        self.loans.pop()
    }

    fn bytes(&self, id: LoanId) -> &[u8] {
        self.loans[usize::from(id.0)].1.bytes()
    }
}

/// An answer's data.
#[derive(Debug)]
pub struct Payload {
    /// Holds the data, or has room for it while it is on loan.
    buffer: Buffer,
    len: u32,
    loan: Option<LoanId>,
}

impl Payload {
    /// The first `len` bytes of `buffer`.
    #[must_use]
    pub fn new(buffer: Buffer, len: u32) -> Self {
        Self { buffer, len, loan: None }
    }

    /// `len` bytes on loan; `buffer` has room for them.
    #[must_use]
    pub fn lent(loan: LoanId, buffer: Buffer, len: u32) -> Self {
        Self { buffer, len, loan: Some(loan) }
    }

    /// Bytes of data.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is no data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The data.
    #[must_use]
    pub fn bytes<'a>(&'a self, loans: &'a Loans) -> &'a [u8] {
        self.loan.map_or(&self.buffer[..self.len as usize], |id| loans.bytes(id))
    }

    /// Copies what is on loan into the buffer: the loans are about to end.
    pub fn keep(&mut self, loans: &Loans) {
        if let Some(id) = self.loan.take() {
            self.buffer[..self.len as usize].copy_from_slice(loans.bytes(id));
        }
    }

    /// The buffer, which is needed no more.
    #[must_use]
    pub fn into_buffer(self) -> Buffer {
        self.buffer
    }

    /// Bytes that the buffer takes from its pool.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }
}
