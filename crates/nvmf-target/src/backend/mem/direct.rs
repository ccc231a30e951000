//! Reads without a buffer: blocks on loan.

use std::ptr::NonNull;

use super::{Store, pages_of};
use crate::backend::loan::Loan;

impl Store {
    /// Lends blocks that the caller has checked against the end, if all of their pages have content or none has: what has
    /// none is read from zeroes elsewhere, so that its memory is not touched.
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
        // SAFETY: all pages of the range are in the mapping and held shared, so nobody writes to them; the channel keeps the
        // mapping until the loan is ended, or for good.
        Some(unsafe {
            Loan::new(NonNull::slice_from_raw_parts(NonNull::new_unchecked(self.at(bytes.start)), len), hold)
        })
    }

    /// Takes a loan back.
    ///
    /// # Panics
    /// If it is another namespace's: its hold would unlock pages here.
    pub(super) fn end_loan(&self, loan: Loan) {
        let Some((first, hold)) = loan.into_hold() else { return };
        let own = self.data.base().as_ptr().addr();
        assert!((own..own + self.data.len()).contains(&first.as_ptr().addr()), "a loan of another namespace");
        self.guards.release(hold);
    }
}
