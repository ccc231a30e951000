//! Capabilities of the test plants.

use pilotlight_plant::{
    Capabilities, CoreId, Cost, Depth, Kind, Knob, Of, Quantity, RestCost, SleepCost, Source, Stat, Values,
};

/// All capabilities, for up to 64 cores, with figures of SANDMAN's machine (Table 2, section 3.5) where relevant.
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
    let limit = |package| Knob {
        of: Of::Package(package),
        kind: Kind::LimitUw,
        values: Values::Range { min: 50_000_000, max: 270_000_000, step: 1_000_000 },
        found: 200_000_000,
        caller: Cost::Measured(0),
        effect: Cost::Measured(20_000),
    };
    let quota = Knob {
        of: Of::Server,
        kind: Kind::QuotaPpm,
        values: Values::Range { min: 16_000, max: 8_000_000, step: 1_000 },
        ..Knob { found: 8_000_000, ..limit(0) }
    };
    let bandwidth = |of| Knob {
        of,
        kind: Kind::BytesPerS,
        values: Values::Range { min: 1_000_000, max: 100_000_000_000, step: 1 },
        ..Knob { found: 100_000_000_000, ..limit(0) }
    };
    let items = [Of::Namespace(0), Of::Namespace(1), Of::Namespace(2), Of::Host(0), Of::Host(1)];
    let rates = |of| {
        let rate = |quantity| Source { of, quantity, window_ns: 20_000, lag: Cost::Measured(0) };
        [rate(Quantity::ReadBytesPerS), rate(Quantity::WrittenBytesPerS)]
    };
    let background = Knob {
        of: Of::Background(0),
        kind: Kind::RatePpm,
        values: Values::Range { min: 0, max: 1_000_000, step: 1 },
        ..Knob { found: 500_000, ..limit(0) }
    };
    let drive = Knob {
        of: Of::Device(0),
        kind: Kind::WakeLimitNs,
        values: Values::List(vec![0, 1_000, 200_000]),
        ..Knob { found: 0, ..limit(0) }
    };
    let more = [(Of::Background(0), Quantity::BacklogBytes), (Of::Server, Quantity::LatencyNs(Stat::Mean))];
    let power = |of| Source { of, quantity: Quantity::PowerUw, window_ns: 200_000, lag: Cost::Measured(50_000) };
    Capabilities {
        moves: Some(Cost::Measured(100)),
        interrupts: true,
        sleeps: vec![sleep(Depth::MonitorWait, 3_000), sleep(Depth::SoftwareWait, 27_000)],
        rests: Some(RestCost { cpu: Cost::Measured(2_000), late: Cost::Measured(1_000) }),
        server_sleep: Some(Cost::Measured(14_000)),
        sources: [Of::Server, Of::Package(0), Of::Package(1)]
            .map(power)
            .into_iter()
            .chain(items.into_iter().flat_map(rates))
            .chain(more.map(|(of, quantity)| Source { of, quantity, window_ns: 10_000, lag: Cost::Measured(0) }))
            .collect(),
        knobs: (0..64)
            .map(frequency)
            .chain([limit(0), limit(1), quota])
            .chain(items.map(bandwidth))
            .chain([background, drive])
            .collect(),
        drives: vec![(0, 0), (1, 0), (2, 1)],
        groups: Vec::new(),
    }
}
