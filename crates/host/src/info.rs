//! Fields of Identify data that a host needs, read by offset.

use std::ops::Range;

/// Fields of Identify Controller (Base 5.17.2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerInfo {
    /// Serial number.
    pub serial: String,
    /// Model number.
    pub model: String,
    /// Most bytes of data per command (MDTS, in units of 4 KiB pages); `None` for no limit.
    pub max_transfer: Option<u32>,
    /// Most bytes of data in an I/O command capsule (from IOCCSZ; the command takes 64 of it).
    pub in_capsule: u32,
    /// Most commands outstanding per I/O queue (MAXCMD); 0 where not reported.
    pub max_commands: u16,
    /// Granularity of the keep-alive timeout, in milliseconds (KAS); 0 where keep-alive is not supported.
    pub keep_alive_ms: u32,
    /// Optional NVM commands (ONCS).
    pub oncs: u16,
    /// Whether there is a volatile write cache (VWC bit 0).
    pub volatile_write_cache: bool,
}

impl ControllerInfo {
    /// Reads 4,096 bytes of Identify data.
    #[must_use]
    pub fn decode(d: &[u8; 4096]) -> Self {
        let kas = u32::from(u16_at(d, 320));
        Self {
            serial: text(d, 4..24),
            model: text(d, 24..64),
            max_transfer: (d[77] != 0).then(|| 4096u32.checked_shl(u32::from(d[77])).unwrap_or(u32::MAX)),
            in_capsule: u32_at(d, 1792).saturating_mul(16).saturating_sub(64),
            max_commands: u16_at(d, 514),
            keep_alive_ms: kas * 100,
            oncs: u16_at(d, 520),
            volatile_write_cache: d[525] & 1 != 0,
        }
    }

    /// Whether Dataset Management is supported (ONCS bit 2).
    #[must_use]
    pub fn can_deallocate(&self) -> bool {
        self.oncs & 1 << 2 != 0
    }

    /// Whether Write Zeroes is supported (ONCS bit 3).
    #[must_use]
    pub fn can_write_zeroes(&self) -> bool {
        self.oncs & 1 << 3 != 0
    }
}

/// Fields of Identify Namespace (NVM 4.1.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// Namespace identifier.
    pub nsid: u32,
    /// Size in logical blocks (NSZE).
    pub blocks: u64,
    /// Logical block size in bytes.
    pub block_size: u32,
    /// Deallocated blocks read as zeroes (DLFEAT bits 2:0 are 1).
    pub deallocated_reads_zero: bool,
}

impl NamespaceInfo {
    /// Reads 4,096 bytes of Identify data; `None` if the namespace does not exist, its block size is not a power of two of
    /// at least 512 bytes, or it has metadata.
    #[must_use]
    pub fn decode(nsid: u32, d: &[u8; 4096]) -> Option<Self> {
        let blocks = u64_at(d, 0);
        let format = 128 + 4 * usize::from(d[26] & 0xf);
        let (metadata, lbads) = (u16_at(d, format), d[format + 2]);
        if blocks == 0 || metadata != 0 || !(9..=16).contains(&lbads) {
            return None;
        }
        Some(Self { nsid, blocks, block_size: 1 << lbads, deallocated_reads_zero: d[33] & 7 == 1 })
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_size)
    }
}

/// One entry of the discovery log (Base 5.16.1.23).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryEntry {
    /// Transport type; 3 is TCP.
    pub trtype: u8,
    /// Subsystem type; 2 is an NVM subsystem, 1 a referral to another discovery service.
    pub subtype: u8,
    /// Transport requirements; 1 requires a secure channel.
    pub treq: u8,
    /// Security type of a TCP transport (TSAS): 0 for none, 2 for TLS 1.3.
    pub security_type: u8,
    /// Transport service identifier: the port.
    pub trsvcid: String,
    /// Transport address.
    pub traddr: String,
    /// Subsystem NQN.
    pub subnqn: String,
}

impl DiscoveryEntry {
    /// Reads one entry.
    #[must_use]
    pub fn decode(d: &[u8; 1024]) -> Self {
        Self {
            trtype: d[0],
            subtype: d[2],
            treq: d[3],
            security_type: d[768],
            trsvcid: text(d, 32..64),
            subnqn: text(d, 256..512),
            traddr: text(d, 512..768),
        }
    }
}

fn text(d: &[u8], range: Range<usize>) -> String {
    let field = &d[range];
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).trim_end().to_owned()
}

fn u16_at(d: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([d[at], d[at + 1]])
}

fn u32_at(d: &[u8], at: usize) -> u32 {
    u32::from(u16_at(d, at)) | u32::from(u16_at(d, at + 2)) << 16
}

pub(crate) fn u64_at(d: &[u8], at: usize) -> u64 {
    u64::from(u32_at(d, at)) | u64::from(u32_at(d, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controller_fields_are_read_at_the_specified_offsets() {
        let mut d = [0u8; 4096];
        d[4..8].copy_from_slice(b"PL01");
        d[77] = 5;
        d[320] = 10;
        d[514..516].copy_from_slice(&1024u16.to_le_bytes());
        d[520] = 0b1100;
        d[525] = 7;
        d[1792..1796].copy_from_slice(&((4096u32 + 64) / 16).to_le_bytes());
        let info = ControllerInfo::decode(&d);
        assert_eq!(info.serial, "PL01");
        assert_eq!(info.max_transfer, Some(128 * 1024));
        assert_eq!((info.in_capsule, info.max_commands, info.keep_alive_ms), (4096, 1024, 1000));
        assert!(info.can_deallocate() && info.can_write_zeroes() && info.volatile_write_cache);
    }

    #[test]
    fn the_block_size_is_that_of_the_current_format() {
        let mut d = [0u8; 4096];
        d[0..8].copy_from_slice(&1000u64.to_le_bytes());
        d[26] = 1;
        d[130] = 9;
        d[134] = 12;
        d[33] = 9;
        let expected = NamespaceInfo { nsid: 1, blocks: 1000, block_size: 4096, deallocated_reads_zero: true };
        assert_eq!(NamespaceInfo::decode(1, &d), Some(expected));
        d[132] = 8; // metadata
        assert_eq!(NamespaceInfo::decode(1, &d), None);
        assert_eq!(NamespaceInfo::decode(1, &[0; 4096]), None);
    }

    #[test]
    fn discovery_fields_are_read_at_the_specified_offsets() {
        let mut d = [0u8; 1024];
        d[..4].copy_from_slice(&[3, 1, 1, 0]);
        d[32..36].copy_from_slice(b"8009");
        d[256..275].copy_from_slice(b"nqn.2024-05.example");
        d[512..520].copy_from_slice(b"10.0.0.2");
        let expected = DiscoveryEntry {
            trtype: 3,
            subtype: 1,
            treq: 0,
            security_type: 0,
            trsvcid: "8009".to_owned(),
            traddr: "10.0.0.2".to_owned(),
            subnqn: "nqn.2024-05.example".to_owned(),
        };
        assert_eq!(DiscoveryEntry::decode(&d), expected);
    }
}
