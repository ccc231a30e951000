//! The host and the subsystem for which the key of a TLS connection is (TCP 3.6.1).

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
