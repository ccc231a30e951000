//! IP addresses with ports as users write them. A link-local address of IPv6 names its interface, by name or index: `[fe80::1%eth0]:4420`.

use std::net::{AddrParseError, IpAddr, SocketAddr};

use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Why a text is not an address of this machine or of another one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressError {
    /// Not an IP address and a port.
    #[error(transparent)]
    Format(#[from] AddrParseError),
    /// The interface does not exist.
    #[error("this machine has no interface `{0}`")]
    NoInterface(String),
    /// A link-local address without an interface.
    #[error("`{0}` does not name an interface: link-local addresses exist on each")]
    InterfaceMissing(String),
}

/// What to do about a wrong or missing interface.
pub(crate) const INTERFACE_HELP: &str =
    "write its name or index after the address, such as [fe80::1%eth0]:4420; `ip link` lists interfaces";

/// Reads an IP address and a port.
pub(crate) fn parse(text: &str) -> Result<SocketAddr, AddressError> {
    let (bare, interface) = without_interface(text);
    let mut address: SocketAddr = bare.parse()?;
    if let SocketAddr::V6(v6) = &mut address {
        match interface {
            Some(name) => v6.set_scope_id(index(name).ok_or_else(|| AddressError::NoInterface(name.to_owned()))?),
            None if v6.ip().is_unicast_link_local() => return Err(AddressError::InterfaceMissing(text.to_owned())),
            None => {}
        }
    }
    Ok(address)
}

/// Splits `[fe80::1%eth0]:4420` into `[fe80::1]:4420` and `eth0`. Only addresses of IPv6 have an interface.
pub(crate) fn without_interface(text: &str) -> (String, Option<&str>) {
    let parts = text.split_once('%').filter(|(address, _)| address.contains(':'));
    let Some((address, rest)) = parts else { return (text.to_owned(), None) };
    let (interface, port) = rest.split_at(rest.find(']').unwrap_or(rest.len()));
    (format!("{address}{port}"), Some(interface))
}

/// A list of addresses, as text.
pub(crate) fn list(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The IP address in `text`, which may have brackets and an interface.
pub(crate) fn ip(text: &str) -> Option<IpAddr> {
    without_interface(text).0.trim_matches(['[', ']']).parse().ok()
}

/// The index of an interface by its name, or by its index.
fn index(interface: &str) -> Option<u32> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    let by_index = || interface.parse::<u32>().ok().filter(|index| index_to_name(&socket, *index).is_ok());
    name_to_index(&socket, interface).ok().or_else(by_index)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux gives the loopback interface index 1 in each network namespace.
    #[test]
    fn link_local_addresses_have_an_interface_by_name_or_index() {
        let scope = |text: &str| match parse(text) {
            Ok(SocketAddr::V6(address)) => Ok((address.ip().to_string(), address.scope_id(), address.port())),
            other => Err(other),
        };
        for (text, ip, index) in
            [("[fe80::1%lo]:4420", "fe80::1", 1), ("[fe80::1%1]:4420", "fe80::1", 1), ("[::1]:4420", "::1", 0)]
        {
            assert_eq!(scope(text), Ok((ip.to_owned(), index, 4420)), "{text}");
        }
        for name in ["no such one", "", "0", "4000000000", "a-name-longer-than-the-kernel-has"] {
            assert_eq!(parse(&format!("[fe80::1%{name}]:1")), Err(AddressError::NoInterface(name.to_owned())));
        }
        assert!(matches!(parse("[fe80::1]:4420"), Err(AddressError::InterfaceMissing(_))));
        for text in ["127.0.0.1%lo:4420", "fe80::1%lo:4420", "[fe80::1%lo]", "[fe80::1%lo]4420", "%lo", "[::1%lo:1"] {
            assert!(matches!(parse(text), Err(AddressError::Format(_))), "{text}: {:?}", parse(text));
        }
        assert_eq!(ip("[fe80::1%lo]"), ip("fe80::1"));
    }
}
