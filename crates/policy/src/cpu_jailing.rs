//! `cpu-jailing`: a power budget enforced by the number of polling cores (PASS sections 2.3 and 5).
//!
//! I/O threads of cores that are removed move to the others, and the removed cores sleep. See [`crate::budget`].

use crate::budget::{CapKind, Mechanism};

/// The mechanism. On PASS's machine seven of eight cores draw 94 W (464 to 370 W, `polling-interval-cores.csv`), a quarter of a budget of 400 W.
pub const CPU_JAILING: Mechanism = Mechanism {
    name: "cpu-jailing",
    cap: CapKind::Cores,
    missing: ["I/O threads that can be moved and cores that can sleep", "choose policy cpu-bandwidth or rapl-only"],
    span_ppm: 250_000,
};
