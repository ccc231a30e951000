//! What has come from a host in part: the beginning of a PDU, or of the data of one.

use pilotlight_nvme::digest::DIGEST_LEN;

use super::wire::MAX_CAPSULE;

/// Data of an H2CData PDU on its way in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body {
    pub(super) transfer: u16,
    pub(super) r2t: usize,
    /// Bytes of data still to come.
    pub(super) remaining: u32,
    /// Bytes of the data digest still to come.
    pub(super) digest_left: usize,
    pub(super) digest: [u8; DIGEST_LEN],
    /// Digest of the data so far.
    pub(super) crc: u32,
}

impl Body {
    pub(super) fn is_complete(&self) -> bool {
        self.remaining == 0 && self.digest_left == 0
    }
}

/// What has come in part.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    /// The beginning of a PDU that has not come in full.
    pub(super) stash: Vec<u8>,
    pub(super) body: Option<Body>,
}

impl Inbound {
    /// Bytes that [`Inbound::reserve`] sets aside.
    pub(super) const BYTES: usize = MAX_CAPSULE;

    /// Makes room for the longest beginning of a PDU.
    pub(super) fn reserve(&mut self) {
        self.stash.reserve_exact(MAX_CAPSULE - self.stash.len());
    }

    /// Keeps the beginning of a PDU of at most [`MAX_CAPSULE`] bytes.
    pub(super) fn keep(&mut self, rest: &[u8]) {
        self.stash.reserve_exact(rest.len()); // a queue has MAX_CAPSULE bytes set aside, and no more
        self.stash.extend_from_slice(rest);
    }

    /// Moves what is kept to the beginning of `into`; returns how many bytes that are.
    pub(super) fn take(&mut self, into: &mut [u8]) -> usize {
        let len = self.stash.len();
        into[..len].copy_from_slice(&self.stash);
        self.stash.clear();
        len
    }

    /// Takes bytes of a data digest from the start of `bytes`; returns how many.
    pub(super) fn take_digest(&mut self, bytes: &[u8]) -> usize {
        let Some(body) = &mut self.body else { return 0 };
        let len = bytes.len().min(body.digest_left);
        let from = DIGEST_LEN - body.digest_left;
        body.digest[from..from + len].copy_from_slice(&bytes[..len]);
        body.digest_left -= len;
        len
    }

    /// Whether something has come in part.
    pub(super) fn is_partial(&self) -> bool {
        !self.stash.is_empty() || self.body.is_some()
    }

    /// Forgets it.
    pub(super) fn clear(&mut self) {
        self.stash.clear();
        self.body = None;
    }
}
