//! Keys of TLS connections.

use std::sync::Arc;

use pilotlight_auth::tls::{ConfiguredPsk, PskHash, TlsPsk};
use pilotlight_nvmf_proto::tls_peer::TlsPeer;
use pilotlight_reactor::clock::now_ns;
use pilotlight_tls::{Hash, Psk, ServerConfig};

use crate::shared::Shared;

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
        return shared.hosts.generated_key(&peer, now_ns()).and_then(|psk| to_psk(&psk));
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
