//! Capabilities of the test plants.

use pilotlight_plant::{
    Capabilities, CoreId, Cost, Depth, Kind, Knob, Quantity, RestCost, Scope, SleepCost, Source, Stat, Values,
};

/// All capabilities, for up to 64 cores, with figures of SANDMAN's machine (Table 2, section 3.5) where relevant.
pub(crate) fn capabilities() -> Capabilities {
    let sleep = |depth, ns| SleepCost { depth, waker: Cost::Measured(0), wake: Cost::Measured(ns) };
    let frequency = |core| Knob {
        scope: Scope::Core(CoreId(core)),
        kind: Kind::FrequencyKhz,
        values: Values::Range { min: 400_000, max: 3_650_000, step: 100_000 },
        initial: 3_650_000,
        caller: Cost::Measured(2_000),
        effect: Cost::Measured(450_000),
    };
    let limit = |package| Knob {
        scope: Scope::Package(package),
        kind: Kind::LimitUw,
        values: Values::Range { min: 50_000_000, max: 270_000_000, step: 1_000_000 },
        initial: 200_000_000,
        caller: Cost::Measured(0),
        effect: Cost::Measured(20_000),
    };
    let quota = Knob {
        scope: Scope::Server,
        kind: Kind::QuotaPpm,
        values: Values::Range { min: 16_000, max: 8_000_000, step: 1_000 },
        ..Knob { initial: 8_000_000, ..limit(0) }
    };
    let bandwidth = |scope| Knob {
        scope,
        kind: Kind::BytesPerS,
        values: Values::Range { min: 1_000_000, max: 100_000_000_000, step: 1 },
        ..Knob { initial: 100_000_000_000, ..limit(0) }
    };
    let items = [Scope::Namespace(0), Scope::Namespace(1), Scope::Namespace(2), Scope::Host(0), Scope::Host(1)];
    let rates = |scope| {
        let rate = |quantity| Source { scope, quantity, window_ns: 20_000, lag: Cost::Measured(0) };
        [rate(Quantity::ReadBytesPerS), rate(Quantity::WrittenBytesPerS)]
    };
    let background = Knob {
        scope: Scope::Background(0),
        kind: Kind::RatePpm,
        values: Values::Range { min: 0, max: 1_000_000, step: 1 },
        ..Knob { initial: 500_000, ..limit(0) }
    };
    let drive = Knob {
        scope: Scope::Device(0),
        kind: Kind::WakeLimitNs,
        values: Values::List(vec![0, 1_000, 200_000]),
        ..Knob { initial: 0, ..limit(0) }
    };
    let more = [(Scope::Background(0), Quantity::BacklogBytes), (Scope::Server, Quantity::LatencyNs(Stat::Mean))];
    let power = |scope| Source { scope, quantity: Quantity::PowerUw, window_ns: 200_000, lag: Cost::Measured(50_000) };
    Capabilities {
        moves: Some(Cost::Measured(100)),
        interrupts: true,
        sleeps: vec![sleep(Depth::MonitorWait, 3_000), sleep(Depth::SoftwareWait, 27_000)],
        rests: Some(RestCost { cpu: Cost::Measured(2_000), late: Cost::Measured(1_000) }),
        server_sleep: Some(Cost::Measured(14_000)),
        sources: [Scope::Server, Scope::Package(0), Scope::Package(1)]
            .map(power)
            .into_iter()
            .chain(items.into_iter().flat_map(rates))
            .chain(more.map(|(scope, quantity)| Source { scope, quantity, window_ns: 10_000, lag: Cost::Measured(0) }))
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
