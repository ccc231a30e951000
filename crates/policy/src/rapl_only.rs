//! `rapl-only`: a power budget held with the power limits of the CPU packages alone (RAPL; PASS sections 2.3 and 5).
//!
//! All packages get the same share of the range between their lowest limit and the one that they were found with. See [`crate::budget`].

use pilotlight_plant::Kind;

use crate::budget::{Means, Mechanism};

/// The mechanism. On PASS's machine 50 W of limit (160 to 110 W) move 86 W of the server (`polling-interval-rapl.csv`): 1.7 W a watt. The range
/// of a package is 265 W there, so the whole budget (300 to 450 W) is nearer to what it moves than half of it.
pub const RAPL_ONLY: Mechanism = Mechanism {
    name: "rapl-only",
    means: Means::Knobs(Kind::LimitUw),
    missing: [
        "power limits of CPU packages",
        "it takes Linux powercap (/sys/class/powercap/intel-rapl:*) that the server may write, which virtual machines lack; or choose \
         policy cpu-bandwidth",
    ],
    span_ppm: 1_000_000,
};
