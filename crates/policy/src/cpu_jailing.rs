//! `cpu-jailing`: a power budget held with the number of polling cores alone (PASS sections 2.3 and 5).
//!
//! I/O threads of cores that are taken away move to the others, and those cores sleep. See [`crate::budget`].

use crate::budget::{Means, Mechanism};

/// The mechanism. On PASS's machine seven of eight cores take 94 W (464 to 370 W, `polling-interval-cores.csv`), a quarter of a budget of 400 W.
pub const CPU_JAILING: Mechanism = Mechanism {
    name: "cpu-jailing",
    means: Means::Cores,
    missing: ["I/O threads that can be moved and cores that can sleep", "choose policy cpu-bandwidth or rapl-only"],
    span_ppm: 250_000,
};
