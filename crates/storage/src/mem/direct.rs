//! Zero-copy reads: blocks on loan.

use std::ptr::NonNull;

use super::{Store, pages_of};
use crate::loan::Loan;

impl Store {
    /// Lends blocks that the caller has checked against the end, if all of their pages have content or none has. Pages without
    /// content are read from static zeroes, so that their memory is not accessed.
    pub(super) fn lend(&self, lba: u64, blocks: u32) -> Option<Loan> {
        let bytes = self.bytes_of(lba, blocks);
        let len = (bytes.end - bytes.start) as usize;
        let hold = self.guards.try_shared(pages_of(&bytes))?;
        let (pages, content) =
            (hold.pages(), hold.pages().filter(|&page| self.guards.has_content(page)).count() as u64);
        if bytes.end > self.end() || content != pages.end - pages.start {
            self.guards.release(hold);
            return if bytes.end <= self.end() && content == 0 { Loan::zeroes(len) } else { None };
        }
        // SAFETY: all pages of the range are in the mapping and held shared, so they do not change; the channel keeps the
        // mapping until the loan has ended, or leaks it.
        Some(unsafe {
            Loan::new(NonNull::slice_from_raw_parts(NonNull::new_unchecked(self.at(bytes.start)), len), hold)
        })
    }

    /// Ends a loan.
    ///
    /// # Panics
    /// If the loan is another namespace's.
    pub(super) fn end_loan(&self, loan: Loan) {
        let Some((first, hold)) = loan.into_hold() else { return };
        let own = self.data.base().as_ptr().addr();
        assert!((own..own + self.data.len()).contains(&first.as_ptr().addr()), "a loan of another namespace");
        self.guards.release(hold);
    }
}
