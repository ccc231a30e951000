//! TLS keys that DH-HMAC-CHAP has generated (secure channel concatenation), until hosts connect with them.
//!
//! A host that has authenticated on an address for that has a key, and connects again with TLS and this key. Only hosts with a secret get
//! keys, so the table is bounded by the configuration: a few keys for each host and subsystem, the newest ones. A key is good only
//! while its host has the secret that it was generated with, and some time after its last use.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pilotlight_auth::Secret;
use pilotlight_auth::tls::{Derivation, IdentityVersion, NqnTooLong, RetainedPsk, TlsPsk};

/// Keys of one host and subsystem: as many paths of a host can be connecting at once.
const MOST: usize = 8;
/// Nanoseconds after its last handshake in which a key is kept: a host that loses a connection generates another one.
const LIFETIME_NS: u64 = 3_600_000_000_000;

struct Key {
    psk: TlsPsk,
    /// Of the host, with which it was generated.
    secret: Secret,
    used_ns: u64,
}

/// By NQN of host and subsystem.
type Keys = BTreeMap<(Box<str>, Box<str>), Vec<Key>>;

/// The keys of all hosts.
#[derive(Default)]
pub(crate) struct GeneratedKeys(Mutex<Keys>);

impl GeneratedKeys {
    /// Keeps a key of this host and subsystem at `now_ns`.
    ///
    /// # Errors
    /// The NQNs are too long for a key.
    pub(crate) fn keep(
        &self,
        (psk, secret): (&RetainedPsk, Secret),
        (hostnqn, subnqn): (&str, &str),
        now_ns: u64,
    ) -> Result<(), NqnTooLong> {
        let psk = psk.tls_psk(IdentityVersion::V1, hostnqn, subnqn, Derivation::Specification)?;
        let mut keys = self.lock();
        keys.retain(|_, keys| {
            keys.retain(|key| now_ns.saturating_sub(key.used_ns) < LIFETIME_NS);
            !keys.is_empty()
        });
        let keys = keys.entry((hostnqn.into(), subnqn.into())).or_default();
        if keys.len() >= MOST {
            keys.remove(0);
        }
        keys.push(Key { psk, secret, used_ns: now_ns });
        Ok(())
    }

    /// The key with this identity, of a host whose secret in force is `secret`, which a handshake uses at `now_ns`.
    pub(crate) fn find(
        &self,
        identity: &[u8],
        (hostnqn, subnqn): (&str, &str),
        secret: &Secret,
        now_ns: u64,
    ) -> Option<TlsPsk> {
        let mut keys = self.lock();
        let keys = keys.get_mut(&(Box::from(hostnqn), Box::from(subnqn)))?;
        let is_valid = |key: &&mut Key| key.secret == *secret && now_ns.saturating_sub(key.used_ns) < LIFETIME_NS;
        let key = keys.iter_mut().filter(is_valid).find(|key| key.psk.identity().as_bytes() == identity)?;
        key.used_ns = now_ns;
        Some(key.psk.clone())
    }

    /// Drops the keys of hosts other than these.
    pub(crate) fn retain(&self, keeps: impl Fn(&str) -> bool) {
        self.lock().retain(|(hostnqn, _), _| keeps(hostnqn));
    }

    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_auth::SecretLen;
    use pilotlight_auth::tls::PskHash;

    use super::*;

    const NQNS: (&str, &str) = ("nqn.host", "nqn.subsystem");

    fn psk(byte: u8) -> (RetainedPsk, String) {
        let psk = RetainedPsk::generated(PskHash::Sha256, &[byte; 32], &[1; 32], &[2; 32]);
        let tls = psk.tls_psk(IdentityVersion::V1, NQNS.0, NQNS.1, Derivation::Specification).unwrap();
        (psk, tls.identity().to_owned())
    }

    fn secret(byte: u8) -> Secret {
        let fill = &mut |bytes: &mut [u8]| {
            bytes.fill(byte);
            Ok(())
        };
        Secret::generate(None, SecretLen::Bytes32, fill).unwrap()
    }

    /// Whenever the secret was replaced: during the exchange, or before a renewal over an open connection.
    #[test]
    fn a_key_of_another_secret_than_that_in_force_is_not_found() {
        let (keys, (psk, identity)) = (GeneratedKeys::default(), psk(1));
        keys.keep((&psk, secret(1)), NQNS, 1).unwrap();
        assert!(keys.find(identity.as_bytes(), NQNS, &secret(1), 2).is_some());
        assert!(keys.find(identity.as_bytes(), NQNS, &secret(2), 2).is_none());
    }

    #[test]
    fn the_newest_keys_are_found_until_they_expire() {
        let keys = GeneratedKeys::default();
        let identities: Vec<String> = (0..10)
            .map(|byte| {
                let (psk, identity) = psk(byte);
                keys.keep((&psk, secret(1)), NQNS, 1).unwrap();
                identity
            })
            .collect();
        let found = |identity: &str, nqns, now_ns| keys.find(identity.as_bytes(), nqns, &secret(1), now_ns).is_some();
        assert_eq!(identities.iter().filter(|one| found(one, NQNS, 2)).count(), MOST);
        assert!(!found(&identities[0], NQNS, 2) && found(&identities[9], NQNS, LIFETIME_NS));
        assert!(!found(&identities[9], ("nqn.other", NQNS.1), 2));
        assert!(found(&identities[9], NQNS, 2 * LIFETIME_NS - 1), "used in between");
        assert!(!found(&identities[8], NQNS, 2 * LIFETIME_NS - 1));
        keys.retain(|host| host != NQNS.0);
        assert!(!found(&identities[9], NQNS, 2 * LIFETIME_NS - 1));
    }
}
