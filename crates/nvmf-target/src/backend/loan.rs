//! Blocks that are read from where they lie.
//!
//! A read usually copies blocks into a buffer. A channel whose storage is memory can lend them instead
//! ([`Channel::lend`](super::Channel::lend)): who borrows them reads them in place, and ends the loan.
//!
//! Properties:
//! - while a loan lasts, nobody changes its blocks: whoever tries is [`Submitted::Busy`](super::Submitted::Busy);
//! - a loan that is lost keeps its blocks unchangeable for good, so losing one panics.

use std::ptr::NonNull;

use super::guard::Hold;
use crate::buffer::MAX_BUFFER;

/// What blocks without content are read from.
static ZEROES: [u8; MAX_BUFFER] = [0; MAX_BUFFER];

/// Blocks on loan. Given back with [`Channel::end_loan`](super::Channel::end_loan).
#[derive(Debug)]
#[must_use]
pub struct Loan {
    bytes: NonNull<[u8]>,
    /// What keeps the blocks as they are; zeroes need nothing.
    hold: Option<Hold>,
}

// SAFETY: nobody writes to the bytes while the loan lasts, so any thread may read them.
unsafe impl Send for Loan {}
// SAFETY: as above.
unsafe impl Sync for Loan {}

impl Loan {
    /// `bytes`, which `hold` protects.
    ///
    /// # Safety
    /// Until the loan is taken apart with [`Loan::into_hold`] the bytes stay mapped, and nobody writes to them.
    pub(super) unsafe fn new(bytes: NonNull<[u8]>, hold: Hold) -> Self {
        Self { bytes, hold: Some(hold) }
    }

    /// `len` bytes of zeroes; `None` for more than one command's data.
    pub(super) fn zeroes(len: usize) -> Option<Self> {
        ZEROES.get(..len).map(|bytes| Self { bytes: NonNull::from(bytes), hold: None })
    }

    /// The blocks' content.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: zeroes are static; for others as `new` demands.
        unsafe { self.bytes.as_ref() }
    }

    /// Where the bytes are, and what protects them.
    pub(super) fn into_hold(self) -> Option<(NonNull<u8>, Hold)> {
        self.hold.map(|hold| (self.bytes.cast(), hold))
    }
}
