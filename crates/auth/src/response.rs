//! The responses of DH-HMAC-CHAP (Base 8.3.5.5.4 and 8.3.5.5.5).

use subtle::ConstantTimeEq as _;

use crate::config::{Concatenation, Config};
use crate::hash::{Digest, HashFunction};
use crate::tls::{PskHash, RetainedPsk};

/// What both responses of an exchange depend on.
pub(crate) struct Exchange<'a> {
    pub(crate) config: &'a Config,
    pub(crate) hash: HashFunction,
    pub(crate) t_id: u16,
    pub(crate) concatenation: Concatenation,
    /// KS; none without a group.
    pub(crate) session_key: Option<Digest>,
}

/// A challenge and its sequence number.
#[derive(Clone)]
pub(crate) struct Challenge {
    pub(crate) value: Digest,
    pub(crate) seqnum: u32,
}

impl Exchange<'_> {
    /// KS of the value that both sides share: its digest.
    pub(crate) fn session_key(hash: HashFunction, shared: &[u8]) -> Digest {
        hash.digest(shared)
    }

    /// R1, with the host's secret.
    pub(crate) fn host_response(&self, c1: &Challenge) -> Digest {
        let (host, subsystem) = (&self.config.hostnqn, &self.config.subnqn);
        self.response(&self.config.host_secret.key_of(host), c1, b"HostHost", host, subsystem)
    }

    /// R2, with the controller's secret; none if there is none.
    pub(crate) fn controller_response(&self, c2: &Challenge) -> Option<Digest> {
        let (host, subsystem) = (&self.config.hostnqn, &self.config.subnqn);
        let secret = self.config.controller_secret.as_ref()?;
        Some(self.response(&secret.key_of(subsystem), c2, b"Controller", subsystem, host))
    }

    /// The PSK of secure channel concatenation; none where it was not negotiated.
    pub(crate) fn psk(&self, c1: &Digest, c2: &Digest) -> Option<RetainedPsk> {
        let hash = PskHash::of(self.hash).filter(|_| self.concatenation != Concatenation::None)?;
        let session_key = self.session_key.as_ref()?;
        Some(RetainedPsk::generated(hash, session_key.as_slice(), c1.as_slice(), c2.as_slice()))
    }

    /// HMAC over the challenge, its sequence number, the transaction, SC_C, the role, and the NQNs of responder and peer.
    fn response(&self, key: &[u8], challenge: &Challenge, role: &[u8], own: &str, peer: &str) -> Digest {
        let augmented = self.augmented(&challenge.value);
        let (seqnum, t_id) = (challenge.seqnum.to_le_bytes(), self.t_id.to_le_bytes());
        let sc_c = [self.concatenation as u8];
        let parts = [augmented.as_slice(), &seqnum, &t_id, &sc_c, role, own.as_bytes(), &[0], peer.as_bytes()];
        self.hash.hmac(key, &parts)
    }

    /// Ca: the challenge bound to the session key.
    fn augmented(&self, challenge: &Digest) -> Digest {
        match &self.session_key {
            Some(key) => self.hash.hmac(key.as_slice(), &[challenge.as_slice()]),
            None => challenge.clone(),
        }
    }
}

/// Compares in a time that does not depend on the contents.
pub(crate) fn is_equal(expected: &Digest, received: &[u8]) -> bool {
    expected.as_slice().ct_eq(received).into()
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
