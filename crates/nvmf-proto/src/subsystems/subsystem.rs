//! Identity of a subsystem and its namespaces.
//!
//! Linux drops a namespace whose identifiers change, so they are derived from the configuration: the serial number from the
//! NQN, NGUID and UUID from NQN and NSID, unless configured. The same configuration gives the same identity after every
//! restart.

use std::sync::Arc;

use pilotlight_storage::Geometry;
use pilotlight_storage::background::upkeep::Upkeep;
use uuid::Uuid;

use crate::reservation::published::Reservation;
use crate::subsystems::allocated_bytes::AllocatedBytes;
use crate::subsystems::config::{ControllerIds, MAX_SERIAL, NamespaceConfig, SubsystemConfig};
use crate::subsystems::failures::Failures;

/// The name space of Pilotlight's version 5 UUIDs (a random UUID).
const NAME_SPACE: Uuid = Uuid::from_u128(0x6f0c_3f2e_93a5_4c1b_8d54_1f6a_5f0e_7a21);

/// A subsystem's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subsystem {
    nqn: String,
    serial: String,
    controller_ids: Option<ControllerIds>,
}

impl Subsystem {
    /// The identity for `config`.
    #[must_use]
    pub fn new(config: &SubsystemConfig) -> Self {
        let serial = config.serial.clone().unwrap_or_else(|| derived_serial(&config.nqn));
        Self { nqn: config.nqn.clone(), serial, controller_ids: config.controller_ids }
    }

    /// NVMe qualified name.
    #[must_use]
    pub fn nqn(&self) -> &str {
        &self.nqn
    }

    /// Serial number, at most 20 ASCII characters.
    #[must_use]
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// The range of its controller identifiers; `None`: any unreserved one.
    #[must_use]
    pub fn controller_ids(&self) -> Option<ControllerIds> {
        self.controller_ids
    }
}

fn derived_serial(nqn: &str) -> String {
    let id = named(&format!("{nqn} serial"));
    let mut serial = id.simple().to_string().to_uppercase();
    serial.truncate(MAX_SERIAL);
    serial
}

fn named(name: &str) -> Uuid {
    Uuid::new_v5(&NAME_SPACE, name.as_bytes())
}

/// A namespace in Identify.
#[derive(Clone, Debug)]
pub struct NamespaceInfo {
    /// Size and properties.
    pub geometry: Geometry,
    /// UUID.
    pub uuid: [u8; 16],
    /// Namespace globally unique identifier.
    pub nguid: [u8; 16],
    /// Allocated bytes, if reported by the medium.
    pub allocated_bytes: AllocatedBytes,
    /// Failed commands.
    pub failures: Failures,
    /// Its background work.
    pub upkeep: Arc<Upkeep>,
    /// Its ANA group.
    pub ana_group: u32,
    /// Its reservation.
    pub reservation: Arc<Reservation>,
}

impl NamespaceInfo {
    /// The identity of the namespace `config` of `subsystem`.
    #[must_use]
    pub fn new(subsystem: &Subsystem, config: &NamespaceConfig, geometry: Geometry) -> Self {
        let name = format!("{} namespace {}", subsystem.nqn, config.nsid);
        Self {
            geometry,
            uuid: config.uuid.unwrap_or_else(|| named(&name).into_bytes()),
            nguid: named(&format!("{name} nguid")).into_bytes(),
            allocated_bytes: AllocatedBytes::new(None),
            failures: Failures::default(),
            upkeep: Arc::default(),
            ana_group: config.ana_group,
            reservation: Arc::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subsystem(nqn: &str) -> Subsystem {
        Subsystem::new(&SubsystemConfig::new(nqn, Vec::new()))
    }

    fn info(nqn: &str, nsid: u32, uuid: Option<[u8; 16]>) -> NamespaceInfo {
        let backend = "mem:1MiB".parse().expect("a valid backend");
        let config = NamespaceConfig { uuid, ..NamespaceConfig::new(nsid, backend, 512) };
        let geometry = Geometry {
            block_size: 512,
            blocks: 2048,
            volatile_write_cache: false,
            deallocated_reads_zero: true,
            is_read_only: false,
        };
        NamespaceInfo::new(&subsystem(nqn), &config, geometry)
    }

    /// The values must not change: every Linux host would drop its namespaces after an update.
    #[test]
    fn the_identity_is_stable() {
        let nqn = "nqn.2014-08.org.example:storage";
        assert_eq!(subsystem(nqn).serial(), "91D9EF1C9EA05D67AF90");
        let one = info(nqn, 1, None);
        assert_eq!(Uuid::from_bytes(one.uuid).to_string(), "cc8608dc-9e43-54fe-bddd-fc83e93f8afc");
        let again = info(nqn, 1, None);
        assert_eq!((one.uuid, one.nguid), (again.uuid, again.nguid));
    }

    #[test]
    fn namespaces_have_different_identifiers() {
        let one = info("nqn.2014-08.org.example:a", 1, None);
        for other in [info("nqn.2014-08.org.example:a", 2, None), info("nqn.2014-08.org.example:b", 1, None)] {
            assert_ne!(one.uuid, other.uuid);
            assert_ne!(one.nguid, other.nguid);
        }
        assert_ne!(one.uuid, one.nguid);
    }

    #[test]
    fn a_configured_uuid_is_used() {
        assert_eq!(info("nqn.2014-08.org.example:a", 1, Some([7; 16])).uuid, [7; 16]);
    }
}
