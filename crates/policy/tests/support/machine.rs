//! What any plant of these tests can do.

use pilotlight_plant::{Capabilities, CoreId, Cost, Depth, Kind, Knob, Of, SleepCost, Values};

/// Everything, with up to 64 cores: figures of SANDMAN's machine (Table 2, section 3.5) where they matter.
pub(crate) fn capabilities() -> Capabilities {
    let sleep = |depth, ns| SleepCost { depth, waker: Cost::Measured(0), wake: Cost::Measured(ns) };
    let frequency = |core| Knob {
        of: Of::Core(CoreId(core)),
        kind: Kind::FrequencyKhz,
        values: Values::Range { min: 400_000, max: 3_650_000, step: 100_000 },
        found: 3_650_000,
        caller: Cost::Measured(2_000),
        effect: Cost::Measured(450_000),
    };
    Capabilities {
        moves: Some(Cost::Measured(100)),
        interrupts: true,
        sleeps: vec![sleep(Depth::MonitorWait, 3_000), sleep(Depth::SoftwareWait, 27_000)],
        rests: true,
        server_sleep: Some(Cost::Measured(14_000)),
        sources: Vec::new(),
        knobs: (0..64).map(frequency).collect(),
    }
}
