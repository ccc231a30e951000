//! Compare-and-write: both under one exclusive hold.

use super::{Refusal, Store, pages_of, piece_of};
use crate::guard::{Hold, PageState};
use crate::{IoError, Request};

impl Store {
    /// Writes the second half of the request's buffer if the blocks are equal to the first.
    pub(super) fn compare_and_write(&self, request: &Request) -> Result<(), Refusal> {
        let bytes = request.bytes(self.block_size);
        let (expected, data) = request.compare_and_write_data(self.block_size);
        let hold = self.guards.try_exclusive(pages_of(&bytes)).ok_or(Refusal::Busy)?;
        let accepted = match () {
            () if bytes.end > self.end() => Err(IoError::OutOfRange),
            () if !self.equals(&hold, request, expected) => Err(IoError::Miscompare),
            () => self.charge(hold.pages()),
        };
        if let Err(error) = accepted {
            self.guards.release(hold);
            return Err(Refusal::Failed(error));
        }
        // SAFETY: all pages of the range are held exclusively, and the buffer is the request's.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.at(bytes.start), data.len()) };
        self.guards.release_with(hold, |_| PageState::Content);
        Ok(())
    }

    /// Whether the held blocks of `request` have these bytes.
    fn equals(&self, hold: &Hold, request: &Request, mut expected: &[u8]) -> bool {
        let bytes = request.bytes(self.block_size);
        hold.pages().all(|page| {
            let piece = piece_of(page, &bytes);
            let (here, behind) = expected.split_at((piece.end - piece.start) as usize);
            expected = behind;
            if !self.guards.has_content(page) {
                return here.iter().all(|&byte| byte == 0);
            }
            // SAFETY: the piece is within its page, which is held exclusively, so that it does not change.
            here == unsafe { std::slice::from_raw_parts(self.at(piece.start), here.len()) }
        })
    }
}
