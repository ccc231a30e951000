//! `cpu-bandwidth`: a power budget held with the CPU time of the polling cores alone (CFS bandwidth control; PASS sections 2.3 and 5).
//!
//! A core that has used its quota does not poll for the rest of the period, and requests wait. See [`crate::budget`].

use pilotlight_plant::Kind;

use crate::budget::{Means, Mechanism};

/// The mechanism. On PASS's machine one core takes 53 W (100 to 1 %: 370 to 317 W, `polling-interval-cpu-bandwidth.csv`), eight take
/// 94 W more than one (`polling-interval-cores.csv`): less than half of a budget of 400 W.
pub const CPU_BANDWIDTH: Mechanism = Mechanism {
    name: "cpu-bandwidth",
    means: Means::Knobs(Kind::QuotaPpm),
    missing: [
        "a quota of CPU time for its cores",
        "it takes a cgroup that the server may write and put its reactors into (cpu.max); or choose policy rapl-only",
    ],
    span_ppm: 500_000,
};
