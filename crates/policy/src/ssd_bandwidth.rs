//! `ssd-bandwidth`: a power budget enforced by bandwidth caps of namespaces (PASS sections 2.3 and 5).
//!
//! All namespaces get the same cap, down to 10 MiB/s as in section 5.1. See [`crate::budget`].

use crate::budget::{CapKind, Mechanism};

/// The mechanism. On PASS's machine ten drives change power by at most 100 W, a quarter of a budget of 400 W; one drive reaches 7,000 MiB/s
/// (errata 28).
pub const SSD_BANDWIDTH: Mechanism = Mechanism {
    name: "ssd-bandwidth",
    cap: CapKind::Bandwidth { least: 10 << 20, most: 7_000 << 20 },
    missing: ["caps on the bandwidth of namespaces", "choose policy cpu-bandwidth or rapl-only"],
    span_ppm: 250_000,
};
