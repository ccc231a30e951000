//! `rapl-only`: a power budget enforced by the power limits of the CPU packages (RAPL; PASS sections 2.3 and 5).
//!
//! All packages get the same share of the range between their lowest and their initial limit. See [`crate::budget`].

use pilotlight_plant::Kind;

use crate::budget::{CapKind, Mechanism};

/// The mechanism. On PASS's machine 50 W of limit (160 to 110 W) change the server's power by 86 W (`polling-interval-rapl.csv`): 1.7 W a watt. The range
/// of a package is 265 W there, so its effect is nearer to the whole budget (300 to 450 W) than to half of it.
pub const RAPL_ONLY: Mechanism = Mechanism {
    name: "rapl-only",
    cap: CapKind::Knobs(Kind::LimitUw),
    missing: [
        "power limits of CPU packages",
        "give the server write access to Linux powercap (/sys/class/powercap/intel-rapl:*), which virtual machines lack; or choose \
         policy cpu-bandwidth",
    ],
    span_ppm: 1_000_000,
};
