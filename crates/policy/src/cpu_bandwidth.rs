//! `cpu-bandwidth`: a power budget enforced by the CPU time of the polling cores (CFS bandwidth control; PASS sections 2.3 and 5).
//!
//! A core that has used its quota does not poll for the rest of the period. See [`crate::budget`].

use pilotlight_plant::Kind;

use crate::budget::{CapKind, Mechanism};

/// The mechanism. On PASS's machine one core draws 53 W (100 to 1 %: 370 to 317 W, `polling-interval-cpu-bandwidth.csv`), eight draw
/// 94 W more than one (`polling-interval-cores.csv`): less than half of a budget of 400 W.
pub const CPU_BANDWIDTH: Mechanism = Mechanism {
    name: "cpu-bandwidth",
    cap: CapKind::Knobs(Kind::QuotaPpm),
    missing: [
        "a quota of CPU time for its cores",
        "give the server write access to a cgroup for its reactors (cpu.max); or choose policy rapl-only",
    ],
    span_ppm: 500_000,
};
