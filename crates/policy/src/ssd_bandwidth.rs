//! `ssd-bandwidth`: a power budget held with caps on the bandwidth of namespaces alone (PASS sections 2.3 and 5).
//!
//! All namespaces get the same cap, down to 10 MiB/s as in section 5.1. See [`crate::budget`].

use crate::budget::{Means, Mechanism};

/// The mechanism. On PASS's machine ten drives move 100 W at most, a quarter of a budget of 400 W; what one drive can do is 7,000 MiB/s
/// (errata 28).
pub const SSD_BANDWIDTH: Mechanism = Mechanism {
    name: "ssd-bandwidth",
    means: Means::Bandwidth { least: 10 << 20, most: 7_000 << 20 },
    missing: ["caps on the bandwidth of namespaces", "choose policy cpu-bandwidth or rapl-only"],
    span_ppm: 250_000,
};
