//! Compare-and-write of a medium.

use super::super::guard::PAGE;
use super::medium::Medium;
use crate::IoError;

/// A page, aligned for O_DIRECT.
#[repr(align(4096))]
struct Page([u8; PAGE]);

impl Medium {
    /// Writes `data` at `offset` if the medium has the bytes `expected` there, of the same length; `durable` adds a sync. The caller holds
    /// the blocks exclusively.
    pub(super) fn compare_and_write(
        &self,
        offset: u64,
        expected: &[u8],
        data: &[u8],
        durable: bool,
    ) -> Result<(), IoError> {
        let mut page = Page([0; PAGE]);
        for (at, piece) in (offset..).step_by(PAGE).zip(expected.chunks(PAGE)) {
            let read = &mut page.0[..piece.len()];
            self.read(at, read).map_err(|error| match error {
                IoError::Medium(number) => IoError::UnreadMedium(number),
                other => other,
            })?;
            if read != piece {
                return Err(IoError::Miscompare);
            }
        }
        // Half a buffer may be aligned to less than the medium requires.
        for (at, piece) in (offset..).step_by(PAGE).zip(data.chunks(PAGE)) {
            let copy = &mut page.0[..piece.len()];
            copy.copy_from_slice(piece);
            self.write(at, copy, false)?;
        }
        if durable { self.sync(self.now()) } else { Ok(()) }
    }
}
