//! Addresses to listen on and to advertise.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use pilotlight_nvme::ana::AnaState;
use pilotlight_nvmf_target::config::{DEFAULT_GROUP, DEFAULT_PORT, DISCOVERY_PORT, MAX_GROUP, PathRule};

use super::Checker;
use crate::address::{self, AddressError, INTERFACE_HELP};
use crate::config::keys::{self, Referral, Server};
use crate::config::problem::{Located, Number, Problem, Text};

/// Longest transport address that a discovery log entry holds, in bytes (Base 5.1.12.3.1, TRADDR).
const MAX_TRADDR: usize = 256;

/// Addresses to listen on, by how their connections are encrypted.
pub(super) struct Listeners {
    pub(super) plain: Vec<SocketAddr>,
    pub(super) tls: Vec<SocketAddr>,
    pub(super) concat: Vec<SocketAddr>,
}

impl Checker<'_> {
    /// Addresses to listen on.
    pub(super) fn listeners(&mut self, draft: &Server) -> Listeners {
        let written = [&draft.listen, &draft.tls_listen, &draft.concat_listen];
        if written.iter().all(|list| list.is_empty()) {
            let plain = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT))];
            return Listeners { plain, tls: Vec::new(), concat: Vec::new() };
        }
        let [plain, tls, concat] = written.map(|list| self.addresses(list));
        let all: Vec<_> = plain.iter().chain(&tls).chain(&concat).cloned().collect();
        // port 0 takes a free one each time
        self.no_duplicates(all.iter().filter(|listener| listener.value.port() != 0));
        self.no_overlap(&all);
        let values = |listeners: Vec<Located<SocketAddr>>| listeners.into_iter().map(|one| one.value).collect();
        Listeners { plain: values(plain), tls: values(tls), concat: values(concat) }
    }

    /// Addresses as they are written, each with its place.
    pub(super) fn addresses(&mut self, written: &[Text]) -> Vec<Located<SocketAddr>> {
        let mut listeners = Vec::new();
        for text in written {
            match parse_listener(&text.value) {
                Ok(address) => listeners.push(Located::new(address, text.at.clone())),
                Err((what, help)) => self.problem(Problem::error(&text.at, what).help(help)),
            }
        }
        listeners
    }

    /// Addresses, each of them one of these listeners.
    pub(super) fn own_addresses(&mut self, written: &[Text], listeners: &[SocketAddr]) -> Vec<SocketAddr> {
        let addresses = self.addresses(written);
        for other in addresses.iter().filter(|one| !listeners.contains(&one.value)) {
            let what = format!("the server does not listen on {}", other.value);
            let help = format!("name some of its addresses as they are written there: {}", address::list(listeners));
            self.problem(Problem::error(&other.at, what).help(help));
        }
        addresses.into_iter().map(|one| one.value).collect()
    }

    /// States of paths.
    pub(super) fn paths(&mut self, written: &[keys::Path], listeners: &[SocketAddr]) -> Vec<PathRule> {
        written.iter().filter_map(|path| self.path_rule(path, listeners)).collect()
    }

    fn path_rule(&mut self, written: &keys::Path, listeners: &[SocketAddr]) -> Option<PathRule> {
        let (Some(address), Some(state)) = (&written.address, &written.state) else {
            let help = "write `address` and `state`, such as \"192.0.2.7:4420\" and \"non-optimized\"";
            self.problem(Problem::error(&written.at, "`address` or `state` is missing").help(help));
            return None;
        };
        let group = written.group.as_ref();
        let group = group.map(|_| self.number(group, 1..=MAX_GROUP, DEFAULT_GROUP, "is not an ANA group"));
        let state = self.parsed(Some(state), parse_state)?;
        let address = *self.own_addresses(std::slice::from_ref(address), listeners).first()?;
        Some(PathRule { address, group, state })
    }

    /// Notes listeners that another one, on all addresses of the machine, already covers.
    fn no_overlap(&mut self, listeners: &[Located<SocketAddr>]) {
        for one in listeners.iter().filter(|one| one.value.ip().is_unspecified() && one.value.port() != 0) {
            let overlaps = |other: &&Located<SocketAddr>| {
                other.value.port() == one.value.port()
                    && other.value.is_ipv4() == one.value.is_ipv4()
                    && !other.value.ip().is_unspecified()
            };
            for other in listeners.iter().filter(overlaps) {
                let what = format!("{} is already part of {}", other.value, one.value);
                self.problem(Problem::error(&other.at, what).help("remove one of them"));
            }
            let takes_ipv4 =
                |other: &&Located<SocketAddr>| other.value.is_ipv4() && other.value.port() == one.value.port();
            let ipv4 = listeners
                .iter()
                .find(takes_ipv4)
                .filter(|other| one.value.is_ipv6() && !other.value.ip().is_unspecified());
            if let Some(other) = ipv4 {
                let what = format!("{} accepts IPv6 only, as {} has its port", one.value, other.value);
                let help = "other addresses of IPv4 are not served; 0.0.0.0 instead of it has all of them";
                self.problem(Problem::warning(&one.at, what).help(help));
            }
        }
    }

    /// The address for metrics; a warning if it is not loopback.
    pub(super) fn metrics(&mut self, written: &Text) -> Option<SocketAddr> {
        if written.value == "none" {
            return None;
        }
        let Some(address) = port_or_address(&written.value) else {
            let what = format!("`{}` is not an address for metrics", written.value);
            let help = "write a port of 127.0.0.1, such as 9808, or an IP address and a port, such as 192.0.2.7:9808";
            self.problem(Problem::error(&written.at, what).help(help));
            return None;
        };
        if !address.ip().is_loopback() {
            let what = format!(
                "the metrics on {address} are not protected: any client can read names of namespaces, load and power"
            );
            let help = "listen on 127.0.0.1, or restrict access by a firewall or a proxy";
            self.problem(Problem::warning(&written.at, what).help(help));
        }
        Some(address)
    }

    /// The port of the discovery service.
    pub(super) fn discovery_port(&mut self, written: Option<&Number>) -> Option<u16> {
        written.map(|port| self.number(Some(port), 1..=u16::MAX, DISCOVERY_PORT, "is not a port"))
    }

    /// Referrals to other discovery services. A referral to this server would be a loop.
    pub(super) fn referrals(&mut self, written: &[Referral], listeners: &[SocketAddr]) -> Vec<(String, u16)> {
        let mut referrals: Vec<(String, u16)> = Vec::new();
        for draft in written {
            let Some(text) = &draft.address else {
                let help = "write `address = \"ADDRESS:PORT\"`, such as 192.0.2.8:8009 or discovery.example.com";
                self.problem(Problem::error(&draft.at, "`address` is missing").help(help));
                continue;
            };
            match parse_referral(&text.value) {
                None => {
                    let what = format!("`{}` is not the address of a discovery service", text.value);
                    let help = "write an IP address or a name, and a port where it is not 8009, such as 192.0.2.8:4420";
                    self.problem(Problem::error(&text.at, what).help(help));
                }
                Some(referral) if referrals.contains(&referral) => {
                    self.error(&text.at, format!("{} is a duplicate", text.value));
                }
                Some((host, port))
                    if listeners.iter().any(|own| address::ip(&host) == Some(own.ip()) && own.port() == port) =>
                {
                    let what = format!("{} is this server itself", text.value);
                    let help =
                        "name the discovery services of other servers: hosts follow a referral, which would be a loop";
                    self.problem(Problem::error(&text.at, what).help(help));
                }
                Some(referral) => referrals.push(referral),
            }
        }
        referrals
    }

    /// The address that the discovery log gives.
    pub(super) fn advertise(&mut self, written: Option<&Text>) -> Option<(String, u16)> {
        let text = written?;
        let address = parse_advertised(&text.value);
        if address.is_none() {
            let what = format!("`{}` is not an address to advertise", text.value);
            let help =
                "write the address (or name) and port under which hosts reach this server, such as 192.0.2.7:4420";
            self.problem(Problem::error(&text.at, what).help(help));
        }
        address
    }
}

/// The state of a path.
pub(crate) fn parse_state(text: &str) -> anyhow::Result<AnaState> {
    let names = AnaState::ALL.map(AnaState::name).join(", ");
    let found = AnaState::ALL.into_iter().find(|state| state.name() == text);
    found.with_context(|| format!("`{text}` is not a state of a path: use one of {names}"))
}

/// A port of 127.0.0.1, or an IP address and a port.
pub(super) fn port_or_address(text: &str) -> Option<SocketAddr> {
    let port = text.parse().ok().map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    port.or_else(|| address::parse(text).ok())
}

/// An IP address and a port; otherwise what is wrong and what to write.
pub(crate) fn parse_listener(text: &str) -> Result<SocketAddr, (String, String)> {
    match address::parse(text) {
        Ok(address) => return Ok(address),
        Err(AddressError::Format(_)) => {}
        Err(error) => return Err((error.to_string(), INTERFACE_HELP.to_owned())),
    }
    if address::ip(text).is_some() {
        return Err((format!("`{text}` has no port"), format!("write {}", with_port(text, DEFAULT_PORT))));
    }
    let wrong = format!("`{text}` is not an address to listen on");
    let name = text.rsplit_once(':').map_or(text, |(name, _)| name);
    let example = "write an IP address and a port, such as 127.0.0.1:4420, 0.0.0.0:4420 or [::]:4420";
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) && !name.contains(':') {
        return Err((wrong, format!("names are not looked up: {example}")));
    }
    Err((wrong, example.to_owned()))
}

/// Address or name, and a port that is not needed.
fn parse_referral(text: &str) -> Option<(String, u16)> {
    let has_port = address::ip(text).is_none() && text.contains(':');
    let text = if has_port { text.to_owned() } else { with_port(text, DISCOVERY_PORT) };
    parse_advertised(&text)
}

/// An address or name with this port.
fn with_port(text: &str, port: u16) -> String {
    let bare = text.trim_matches(['[', ']']);
    if bare.contains(':') { format!("[{bare}]:{port}") } else { format!("{bare}:{port}") }
}

/// Address or name, and port. An interface is the host's.
fn parse_advertised(text: &str) -> Option<(String, u16)> {
    let (bare, interface) = address::without_interface(text);
    if let Ok(address) = bare.parse::<SocketAddr>() {
        let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_graphic() && c != '%');
        if address.ip().is_unspecified() || address.port() == 0 || !interface.is_none_or(is_name) {
            return None;
        }
        let interface = interface.map(|name| format!("%{name}")).unwrap_or_default();
        return Some((format!("{}{interface}", address.ip()), address.port()));
    }
    let (name, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let named = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    // digits and dots only: a mistyped address
    let is_name = name.chars().all(named) && name.chars().any(|c| c.is_ascii_alphabetic());
    (is_name && name.len() <= MAX_TRADDR).then(|| (name.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_addresses_with_ports() {
        for text in ["127.0.0.1:4420", "0.0.0.0:0", "[::]:4420", "[fe80::1%2]:4420", "[fe80::1%lo]:4420"] {
            assert!(parse_listener(text).is_ok(), "{text}");
        }
        for (text, help) in [
            ("192.0.2.1", "write 192.0.2.1:4420"),
            ("::1", "write [::1]:4420"),
            ("[::1]", "write [::1]:4420"),
            ("fe80::1%lo", "write [fe80::1%lo]:4420"),
            ("[fe80::1]:4420", "write its name or index"),
            ("[fe80::1%none]:4420", "write its name or index"),
            ("localhost:4420", "names are not looked up"),
            ("127.0.0.1:99999", "write an IP address and a port"),
            ("", "write an IP address and a port"),
            ("4420", "write an IP address and a port"),
        ] {
            let (_, found) = parse_listener(text).unwrap_err();
            assert!(found.starts_with(help), "{text}: {found}");
        }
    }

    #[test]
    fn advertised_addresses_are_validated_and_can_be_names() {
        assert_eq!(parse_advertised("nvme.example.com:4420"), Some(("nvme.example.com".to_owned(), 4420)));
        assert_eq!(parse_advertised("[2001:db8::1]:1"), Some(("2001:db8::1".to_owned(), 1)));
        assert_eq!(parse_advertised("[fe80::1%eth9]:1"), Some(("fe80::1%eth9".to_owned(), 1)), "the host's interface");
        for text in [
            "[fe80::1%]:1",
            "[fe80::1%a b]:1",
            "0.0.0.0:4420",
            "192.0.2.1:0",
            "192.0.2.1",
            "name",
            "name:0",
            "na me:1",
            "300.0.2.1:1",
            ":4420",
        ] {
            assert_eq!(parse_advertised(text), None, "{text}");
        }
    }

    #[test]
    fn referrals_have_the_default_port_unless_given() {
        for (text, host, port) in [
            ("10.0.0.2:4420", "10.0.0.2", 4420),
            ("10.0.0.2", "10.0.0.2", 8009),
            ("2001:db8::2", "2001:db8::2", 8009),
            ("[2001:db8::2]", "2001:db8::2", 8009),
            ("fe80::1%eth0", "fe80::1%eth0", 8009),
            ("[2001:db8::2]:4420", "2001:db8::2", 4420),
            ("discovery.example.com", "discovery.example.com", 8009),
            ("discovery.example.com:4420", "discovery.example.com", 4420),
        ] {
            assert_eq!(parse_referral(text), Some((host.to_owned(), port)), "{text}");
        }
        for text in ["", ":8009", "0.0.0.0", "::", "10.0.0.2:0", "10.0.0.300", "a b", "name:"] {
            assert_eq!(parse_referral(text), None, "{text}");
        }
    }
}
