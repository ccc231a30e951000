//! Partially received PDUs.

use pilotlight_nvme::digest::DIGEST_LEN;

use super::wire::MAX_CAPSULE;

/// The partially received data of an H2CData PDU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body {
    pub(super) transfer: u16,
    pub(super) r2t: usize,
    /// Outstanding bytes of data.
    pub(super) remaining: u32,
    /// Outstanding bytes of the data digest.
    pub(super) digest_left: usize,
    pub(super) digest: [u8; DIGEST_LEN],
    /// Digest of the received data.
    pub(super) crc: u32,
}

impl Body {
    #[inline]
    pub(super) fn is_complete(&self) -> bool {
        self.remaining == 0 && self.digest_left == 0
    }
}

/// Partially received PDUs.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    /// The beginning of an incomplete PDU.
    pub(super) stash: Vec<u8>,
    pub(super) body: Option<Body>,
}

impl Inbound {
    /// Bytes that [`Inbound::reserve`] allocates.
    pub(super) const BYTES: usize = MAX_CAPSULE;

    /// Allocates space for the longest incomplete PDU.
    pub(super) fn reserve(&mut self) {
        self.stash.reserve_exact(MAX_CAPSULE - self.stash.len());
    }

    /// Keeps the beginning of a PDU of at most [`MAX_CAPSULE`] bytes.
    #[inline]
    pub(super) fn keep(&mut self, rest: &[u8]) {
        self.stash.reserve_exact(rest.len()); // for a queue, MAX_CAPSULE bytes are allocated already
        self.stash.extend_from_slice(rest);
    }

    /// Moves the kept bytes to the beginning of `into`; returns their number.
    #[inline]
    pub(super) fn take(&mut self, into: &mut [u8]) -> usize {
        let len = self.stash.len();
        into[..len].copy_from_slice(&self.stash);
        self.stash.clear();
        len
    }

    /// Consumes bytes of a data digest from the start of `bytes`; returns their number.
    #[inline]
    pub(super) fn take_digest(&mut self, bytes: &[u8]) -> usize {
        let Some(body) = &mut self.body else { return 0 };
        let len = bytes.len().min(body.digest_left);
        let from = DIGEST_LEN - body.digest_left;
        body.digest[from..from + len].copy_from_slice(&bytes[..len]);
        body.digest_left -= len;
        len
    }

    /// Whether there is a partially received PDU.
    #[cfg(feature = "testing")]
    #[inline]
    pub(super) fn is_partial(&self) -> bool {
        !self.stash.is_empty() || self.body.is_some()
    }

    /// Discards it.
    pub(super) fn clear(&mut self) {
        self.stash.clear();
        self.body = None;
    }
}
