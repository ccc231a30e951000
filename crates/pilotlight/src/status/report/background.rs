//! Background work in the report.

use serde::{Deserialize, Serialize};

/// Background work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackgroundReport {
    pub(crate) classes: Vec<ClassReport>,
    pub(crate) namespaces: Vec<UpkeepReport>,
    /// Background I/Os that overlapped a host's request, since the start of the server.
    pub(crate) ios_met: u64,
    /// Of these the time from the poll that took the first request until the I/O was over.
    pub(crate) met_for_p99_ns: u64,
}

/// A class of background work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClassReport {
    /// `scrub` or `trim`.
    pub(crate) class: String,
    /// The highest rate of a namespace.
    pub(crate) highest_bytes_per_s: u64,
    /// The rate set by the policy, in millionths of the highest.
    pub(crate) rate_ppm: u64,
    /// Paused over the control socket.
    pub(crate) paused: bool,
    /// Work to do.
    pub(crate) backlog_bytes: u64,
}

/// Background work of a namespace. Counts are since the start of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UpkeepReport {
    pub(crate) nqn: String,
    pub(crate) nsid: u32,
    pub(crate) bytes: u64,
    pub(crate) checksums: bool,
    pub(crate) scrubbed: bool,
    pub(crate) trimmed: bool,
    /// Bytes scrubbed in the present pass.
    pub(crate) scrubbed_bytes: u64,
    /// When the pass began, in seconds since 1970; 0 before the first.
    pub(crate) began_unix_s: u64,
    pub(crate) passes: u64,
    pub(crate) read_bytes: u64,
    /// Written, and not summed since.
    pub(crate) dirty_bytes: u64,
    /// Freed, and not trimmed.
    pub(crate) freed_bytes: u64,
    pub(crate) trimmed_bytes: u64,
    /// Blocks that did not match their checksums.
    pub(crate) mismatches: u64,
    /// Blocks of which reads fail now.
    pub(crate) bad_blocks: u64,
    /// Reads of scrubbing that failed.
    pub(crate) read_errors: u64,
}
