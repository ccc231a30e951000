//! H2CData PDUs that answer an R2T.

use pilotlight_nvme::pdu::{Digests, Flags, H2CData};

use crate::receiver::TransferRequest;

/// An H2CData PDU to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct H2CFrame {
    pub(crate) cid: u16,
    ttag: u16,
    pub(crate) offset: u32,
    pub(crate) len: u32,
    last: bool,
}

impl H2CFrame {
    /// Takes at most `max_len` bytes from the front of `rest`; `None` when it is empty.
    pub(crate) fn take(rest: &mut TransferRequest, max_len: u32) -> Option<Self> {
        if rest.len == 0 {
            return None;
        }
        let len = rest.len.min(max_len);
        let frame = Self { cid: rest.cid, ttag: rest.ttag, offset: rest.offset, len, last: len == rest.len };
        rest.offset += len;
        rest.len -= len;
        Some(frame)
    }

    pub(crate) fn header(&self, pdo: u8, digests: Digests) -> H2CData {
        let flags = if self.last { Flags::LAST_PDU } else { Flags::empty() };
        H2CData::new(self.cid, self.ttag, self.offset, self.len, pdo, flags, digests)
    }
}
