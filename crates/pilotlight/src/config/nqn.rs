//! NVMe Qualified Names (Base 4.5): validation, and the default NQN of this machine.

use std::net::SocketAddr;

use anyhow::{bail, ensure};
use pilotlight_nvme::fabrics::{DISCOVERY_NQN, MAX_NQN};
use uuid::Uuid;

/// How an NQN begins that carries a UUID instead of a domain.
const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// Generated names are version 5 UUIDs in this name space (a random UUID that must not change).
const NAMES: Uuid = Uuid::from_u128(0x9c5d_f4de_2b7a_4ad1_8a1e_5c3b_0f67_d2e4);

/// Checks that `nqn` is valid for a subsystem or a host.
pub(crate) fn check(nqn: &str) -> anyhow::Result<()> {
    if nqn.len() > MAX_NQN {
        bail!("an NQN has at most {MAX_NQN} bytes, this one has {}", nqn.len());
    }
    if let Some(found) = nqn.chars().find(|c| c.is_control() || c.is_whitespace()) {
        bail!("an NQN contains no {found:?}");
    }
    if nqn == DISCOVERY_NQN {
        bail!("this NQN belongs to the discovery service, which Pilotlight provides by itself");
    }
    let well_formed = match nqn.strip_prefix(UUID_PREFIX) {
        Some(uuid) => uuid.len() == 36 && Uuid::try_parse(uuid).is_ok(),
        None => is_domain_form(nqn),
    };
    ensure!(well_formed, "`{nqn}` is not an NQN");
    Ok(())
}

/// The forms that [`check`] accepts.
pub(crate) const FORMS: &str = "an NQN is `nqn.2014-08.org.nvmexpress:uuid:` and a UUID, or `nqn.`, a year and month in \
     which you owned a domain, the domain reversed, `:` and a name: nqn.2024-05.com.example:disks";

/// `nqn.yyyy-mm.reversed.domain[:name]`
fn is_domain_form(nqn: &str) -> bool {
    let Some(rest) = nqn.strip_prefix("nqn.") else { return false };
    let Some((date, rest)) = rest.split_once('.') else { return false };
    let (domain, name) = rest.split_once(':').unwrap_or((rest, "-"));
    is_year_and_month(date) && !name.is_empty() && domain.split('.').all(is_domain_label)
}

fn is_year_and_month(text: &str) -> bool {
    let digits = |text: &str, len| text.len() == len && text.bytes().all(|b| b.is_ascii_digit());
    let Some((year, month)) = text.split_once('-') else { return false };
    digits(year, 4) && digits(month, 2) && (1..=12).contains(&month.parse().unwrap_or(0))
}

fn is_domain_label(label: &str) -> bool {
    !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// The NQN of a subsystem that was given none: it follows from the machine and the address, so that it is the same
/// after a restart, and two servers never share one (a host takes equal NQNs for two paths to the same blocks).
pub(crate) fn of_machine(machine_id: &str, listener: Option<SocketAddr>) -> String {
    let address = listener.map(|address| address.to_string()).unwrap_or_default();
    let uuid = Uuid::new_v5(&NAMES, format!("subsystem\0{machine_id}\0{address}").as_bytes());
    format!("{UUID_PREFIX}{uuid}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_nqns() {
        for nqn in [
            "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
            "nqn.2024-05.com.example:disks",
            "nqn.2024-12.com.example",
            "nqn.2024-01.com.ex-ample.a:x:y/z",
        ] {
            assert!(check(nqn).is_ok(), "{nqn}");
        }
    }

    #[test]
    fn names_that_are_not() {
        let long = format!("nqn.2024-05.com.example:{}", "x".repeat(200));
        for nqn in [
            "",
            "disks",
            "nqn.",
            "nqn.2024-13.com.example:x",
            "nqn.2024-00.com.example:x",
            "nqn.24-01.com.example:x",
            "nqn.2024-1.com.example:x",
            "nqn.2024-01.com..example:x",
            "nqn.2024-01.com.example:",
            "nqn.2024-01.com.exa mple:x",
            "nqn.2024-01.:x",
            "nqn.2014-08.org.nvmexpress:uuid:f81d4fae7dec11d0a76500a0c91e6bf6",
            "nqn.2014-08.org.nvmexpress:uuid:",
            DISCOVERY_NQN,
            &long,
        ] {
            assert!(check(nqn).is_err(), "{nqn}");
        }
    }

    #[test]
    fn the_machine_s_nqn_depends_on_machine_and_address_only() {
        let address = |port| Some(SocketAddr::from(([127, 0, 0, 1], port)));
        let nqn = of_machine("0123", address(4420));
        check(&nqn).unwrap();
        assert_eq!(nqn, of_machine("0123", address(4420)));
        assert_ne!(nqn, of_machine("0124", address(4420)));
        assert_ne!(nqn, of_machine("0123", address(4421)));
        // must not change: hosts identify namespaces by values derived from it
        assert_eq!(nqn, "nqn.2014-08.org.nvmexpress:uuid:c2607604-bd3f-5aae-8767-65141f614989");
    }
}
