//! Keys of TLS connections, and the host and subsystem for which a key is (TCP 3.6.1).

use std::sync::Arc;

use pilotlight_auth::tls::{ConfiguredPsk, PskHash, TlsPsk};
use pilotlight_reactor::clock::now_ns;
use pilotlight_tls::{Hash, Psk, ServerConfig};

use crate::shared::Shared;

/// The NQNs in the identity of a connection's key: `NVMe1R01 HOSTNQN SUBNQN DIGEST`, or without a digest in version 0. Connect must have
/// the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsPeer {
    /// NQN of the host.
    pub hostnqn: Box<str>,
    /// NQN of the subsystem.
    pub subnqn: Box<str>,
    /// The whole identity, if DH-HMAC-CHAP has generated the key: then the host has authenticated with its secret.
    pub generated: Option<Box<str>>,
}

impl TlsPeer {
    /// From an identity; `None` if it is not one of NVMe/TCP.
    #[must_use]
    pub fn parse(identity: &[u8]) -> Option<Self> {
        let identity = std::str::from_utf8(identity).ok()?;
        let mut words = identity.split(' ');
        let prefix = words.next()?;
        if !prefix.starts_with("NVMe") {
            return None;
        }
        let generated = prefix.starts_with("NVMe1G").then(|| identity.into());
        Some(Self { hostnqn: words.next()?.into(), subnqn: words.next()?.into(), generated })
    }

    /// The generated key with the identity `generated`, if it is good at `now_ns`: it is known, and its host still has its secret.
    pub(crate) fn generated_key(&self, shared: &Shared, now_ns: u64) -> Option<TlsPsk> {
        let identity = self.generated.as_deref()?;
        let config = shared.hosts.authenticator.config();
        let secret = &config.hosts.get(&*self.hostnqn)?.host;
        shared.hosts.generated.find(identity, (&self.hostnqn, &self.subnqn), secret, now_ns)
    }
}

/// What the handshakes of this server accept.
pub(crate) fn server_config(shared: &Arc<Shared>) -> ServerConfig {
    let (shared, in_kernel) = (Arc::clone(shared), shared.config.kernel_tls);
    let lookup = move |identity: &[u8]| lookup(&shared, identity);
    if in_kernel { ServerConfig::with_kernel(lookup) } else { ServerConfig::new(lookup) }
}

/// The key with this identity.
fn lookup(shared: &Shared, identity: &[u8]) -> Option<Psk> {
    let peer = TlsPeer::parse(identity)?;
    if peer.generated.is_some() {
        return peer.generated_key(shared, now_ns()).and_then(|psk| to_psk(&psk));
    }
    let TlsPeer { hostnqn, subnqn, .. } = peer;
    let config = shared.hosts.authenticator.config();
    let key = config.tls_keys.get(&*hostnqn)?;
    let accepts_old = config.accepts_old_libnvme;
    let found = derived(key, (&hostnqn, &subnqn), accepts_old, identity);
    if found.is_none() && !accepts_old && derived(key, (&hostnqn, &subnqn), true, identity).is_some() {
        let reason = "the host derives its TLS key as libnvme before 1.16 does, against the specification; update it, or set \
                      security.accept_old_libnvme";
        tracing::warn!(host = &*hostnqn, reason, "TLS key not accepted");
    }
    found.and_then(|psk| to_psk(&psk))
}

fn to_psk(psk: &TlsPsk) -> Option<Psk> {
    Psk::new(psk.identity().as_bytes(), psk.key(), hash(psk.hash())).ok()
}

fn derived(key: &ConfiguredPsk, (hostnqn, subnqn): (&str, &str), old: bool, identity: &[u8]) -> Option<TlsPsk> {
    key.accept(hostnqn, subnqn, old).ok()?.into_iter().find(|psk| psk.identity().as_bytes() == identity)
}

fn hash(hash: PskHash) -> Hash {
    match hash {
        PskHash::Sha256 => Hash::Sha256,
        PskHash::Sha384 => Hash::Sha384,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_names_host_and_subsystem() {
        let peer = |identity: &str| TlsPeer::parse(identity.as_bytes()).map(|peer| (peer.hostnqn, peer.subnqn));
        let expected = Some(("nqn.a".into(), "nqn.b".into()));
        assert_eq!(peer("NVMe1R01 nqn.a nqn.b VRSbtnN9+Q2wNwIyRGlUyfs="), expected);
        assert_eq!(peer("NVMe0R02 nqn.a nqn.b"), expected);
        assert_eq!((peer("NVMe0R02 nqn.a"), peer("client 1 2"), peer("")), (None, None, None));
        assert_eq!(TlsPeer::parse(&[0xff, 0x20]), None);
    }
}
