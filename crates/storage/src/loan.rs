//! Zero-copy reads.
//!
//! A read usually copies blocks into a buffer. A channel whose storage is memory can lend them instead
//! ([`Channel::lend`](super::Channel::lend)): the borrower reads them in place and ends the loan.
//!
//! Properties:
//! - during a loan its blocks do not change: writes to them are [`Submitted::Busy`](super::Submitted::Busy);
//! - a leaked loan would lock its blocks permanently, so dropping one panics.

use std::ptr::NonNull;

use super::guard::Hold;
use crate::buffer::MAX_BUFFER;

/// The source of blocks without content.
static ZEROES: [u8; MAX_BUFFER] = [0; MAX_BUFFER];

/// Blocks on loan until [`Channel::end_loan`](super::Channel::end_loan).
#[derive(Debug)]
#[must_use]
pub struct Loan {
    bytes: NonNull<[u8]>,
    /// Protects the blocks; zeroes need no hold.
    hold: Option<Hold>,
}

// SAFETY: the bytes do not change during the loan, so any thread may read them.
unsafe impl Send for Loan {}
// SAFETY: as above.
unsafe impl Sync for Loan {}

impl Loan {
    /// A loan of `bytes`, protected by `hold`.
    ///
    /// # Safety
    /// Until [`Loan::into_hold`] the bytes stay mapped and do not change.
    pub(super) unsafe fn new(bytes: NonNull<[u8]>, hold: Hold) -> Self {
        Self { bytes, hold: Some(hold) }
    }

    /// `len` bytes of zeroes; `None` beyond the size of one command's data.
    pub(super) fn zeroes(len: usize) -> Option<Self> {
        ZEROES.get(..len).map(|bytes| Self { bytes: NonNull::from(bytes), hold: None })
    }

    /// The blocks' content.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: zeroes are static; other bytes are valid by the contract of `new`.
        unsafe { self.bytes.as_ref() }
    }

    /// The address of the bytes, and their hold.
    pub(super) fn into_hold(self) -> Option<(NonNull<u8>, Hold)> {
        self.hold.map(|hold| (self.bytes.cast(), hold))
    }
}
