//! TLS keys that DH-HMAC-CHAP has generated (secure channel concatenation), until hosts connect with them.
//!
//! A host that has authenticated on an address for that has a key, and connects again with TLS and this key. Properties:
//!
//! - Only hosts with a secret get keys, and each host and subsystem has a few, the newest ones: the table is bounded by the configuration.
//! - A key is good for a time that begins when it was generated, and only while its host has the secret of that exchange.
//! - The next key that a connection generates replaces the one before it.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

use pilotlight_auth::Secret;
use pilotlight_auth::tls::TlsPsk;

/// Keys of one host and subsystem: a key for each path that connects within [`LIFETIME_NS`].
const MOST: usize = 64;
/// Nanoseconds for which a key is good: enough for all queues to connect. A host that loses a connection generates another key.
const LIFETIME_NS: u64 = 3_600_000_000_000;

struct Key {
    psk: TlsPsk,
    /// Of the host, with which it was generated.
    secret: Secret,
    generated_ns: u64,
}

impl Key {
    fn has_identity(&self, identity: &str) -> bool {
        self.psk.identity() == identity
    }

    fn has_expired(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.generated_ns) >= LIFETIME_NS
    }
}

/// By NQN of host and subsystem.
type Keys = BTreeMap<(Box<str>, Box<str>), Vec<Key>>;

/// The keys of all hosts. Locked for moments, when a key is generated and when a queue connects.
#[derive(Default)]
pub(crate) struct GeneratedKeys(RwLock<Keys>);

impl GeneratedKeys {
    /// Keeps a key of this host and subsystem, generated at `now_ns`, instead of the one with the identity `replaced`.
    pub(crate) fn keep(
        &self,
        (psk, secret): (TlsPsk, Secret),
        (hostnqn, subnqn): (&str, &str),
        replaced: Option<&str>,
        now_ns: u64,
    ) {
        let mut keys = self.lock();
        let keys = keys.entry((hostnqn.into(), subnqn.into())).or_default();
        keys.retain(|key| !key.has_expired(now_ns) && !replaced.is_some_and(|replaced| key.has_identity(replaced)));
        if keys.len() >= MOST {
            keys.remove(0);
        }
        keys.push(Key { psk, secret, generated_ns: now_ns });
    }

    /// The key with this identity, if it is good at `now_ns` for a host whose secret in force is `secret`.
    pub(crate) fn find(
        &self,
        identity: &str,
        (hostnqn, subnqn): (&str, &str),
        secret: &Secret,
        now_ns: u64,
    ) -> Option<TlsPsk> {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let keys = keys.get(&(Box::from(hostnqn), Box::from(subnqn)))?;
        let key = keys.iter().find(|key| key.has_identity(identity))?;
        (key.secret == *secret && !key.has_expired(now_ns)).then(|| key.psk.clone())
    }

    /// Drops the keys of hosts other than these.
    pub(crate) fn retain(&self, keeps: impl Fn(&str) -> bool) {
        self.lock().retain(|(hostnqn, _), _| keeps(hostnqn));
    }

    fn lock(&self) -> RwLockWriteGuard<'_, Keys> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_auth::SecretLen;
    use pilotlight_auth::tls::{Derivation, IdentityVersion, PskHash, RetainedPsk};

    use super::*;

    const NQNS: (&str, &str) = ("nqn.host", "nqn.subsystem");

    fn key(byte: u8) -> TlsPsk {
        let psk = RetainedPsk::generated(PskHash::Sha256, &[byte; 32], &[1; 32], &[2; 32]);
        psk.tls_psk(IdentityVersion::V1, NQNS.0, NQNS.1, Derivation::Specification).unwrap()
    }

    fn secret(byte: u8) -> Secret {
        let fill = &mut |bytes: &mut [u8]| {
            bytes.fill(byte);
            Ok(())
        };
        Secret::generate(None, SecretLen::Bytes32, fill).unwrap()
    }

    fn has(keys: &GeneratedKeys, byte: u8, nqns: (&str, &str), secret: &Secret, now_ns: u64) -> bool {
        keys.find(key(byte).identity(), nqns, secret, now_ns).is_some()
    }

    /// Whenever the secret was replaced: during the exchange, or before a renewal over an open connection.
    #[test]
    fn a_key_of_another_secret_than_that_in_force_is_not_found() {
        let keys = GeneratedKeys::default();
        keys.keep((key(1), secret(1)), NQNS, None, 1);
        assert!(has(&keys, 1, NQNS, &secret(1), 2) && !has(&keys, 1, NQNS, &secret(2), 2));
    }

    #[test]
    fn the_newest_keys_are_found() {
        let keys = GeneratedKeys::default();
        (0..100).for_each(|byte| keys.keep((key(byte), secret(1)), NQNS, None, 1));
        let found = |byte, nqns| has(&keys, byte, nqns, &secret(1), 2);
        assert_eq!((0..100).filter(|&byte| found(byte, NQNS)).count(), MOST);
        assert!(!found(0, NQNS) && found(99, NQNS) && !found(99, ("nqn.other", NQNS.1)));
        keys.retain(|host| host != NQNS.0);
        assert!(!found(99, NQNS));
    }

    /// Its identity is not secret: whoever saw it could prolong a time that began with the last use.
    #[test]
    fn use_does_not_prolong_a_key() {
        let keys = GeneratedKeys::default();
        keys.keep((key(1), secret(1)), NQNS, None, 1);
        assert!(has(&keys, 1, NQNS, &secret(1), LIFETIME_NS) && !has(&keys, 1, NQNS, &secret(1), LIFETIME_NS + 1));
        keys.keep((key(2), secret(1)), NQNS, None, LIFETIME_NS + 1);
        assert!(!has(&keys, 1, NQNS, &secret(1), 2), "removed");
    }

    #[test]
    fn a_key_that_replaces_another_leaves_the_rest() {
        let keys = GeneratedKeys::default();
        (1..=3).for_each(|byte| keys.keep((key(byte), secret(1)), NQNS, None, 1));
        keys.keep((key(4), secret(1)), NQNS, Some(key(2).identity()), 1);
        assert_eq!([1, 2, 3, 4].map(|byte| has(&keys, byte, NQNS, &secret(1), 2)), [true, false, true, true]);
    }
}
