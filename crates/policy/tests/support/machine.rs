//! What any plant of these tests can do.

use pilotlight_plant::{Capabilities, Depth, FrequencyRange, SleepCost};

/// Everything: figures of SANDMAN's machine (Table 2, section 3.5) where they matter.
pub(crate) fn capabilities() -> Capabilities {
    let sleep = |depth, wake_ns| SleepCost { depth, waker_ns: 0, wake_ns };
    let sleeps = vec![sleep(Depth::MonitorWait, 3_000), sleep(Depth::SoftwareWait, 27_000)];
    let frequency =
        FrequencyRange { min_khz: 400_000, max_khz: 3_650_000, step_khz: 100_000, set_ns: 2_000, latency_ns: 450_000 };
    Capabilities { moves: true, interrupts: true, sleeps, move_ns: 100, rests: true, frequency: Some(frequency) }
}
