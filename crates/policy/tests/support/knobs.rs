//! The knobs of a test plant, and power readings that grow with their values.

use pilotlight_plant::{Capabilities, Kind, KnobId, Quantity, Reading, ReadingId, Scope, Source, Window};

use super::Random;

/// Values of knobs, by number.
pub(crate) struct Knobs {
    capabilities: Capabilities,
    values: Vec<u64>,
}

impl Knobs {
    /// The initial values.
    pub(crate) fn new(capabilities: Capabilities) -> Self {
        let values = capabilities.knobs.iter().map(|knob| knob.initial).collect();
        Self { capabilities, values }
    }

    /// Sets a knob, to a value of its range.
    pub(crate) fn set(&mut self, id: KnobId, value: u64) {
        let knob = &self.capabilities.knobs[id.index()];
        let range = knob.values.lowest().zip(knob.values.highest()).map(|(lowest, highest)| lowest..=highest);
        assert!(range.is_some_and(|range| range.contains(&value)), "{value} is no value of {knob:?}");
        self.values[id.index()] = value;
    }

    /// Restores the initial values, as the plant does when a policy ends.
    pub(crate) fn restore(&mut self) {
        let found = self.capabilities.knobs.iter().map(|knob| knob.initial);
        self.values = found.collect();
    }

    /// Power with these settings: 100 W, up to 300 W by the values, and up to 30 W that vary with the window.
    fn power_uw(&self, scope: Scope, window: u64) -> u64 {
        let share = |kind| {
            let of_kind = self.capabilities.knobs.iter().zip(&self.values).filter(move |(knob, _)| knob.kind == kind);
            let (set, all) = of_kind.fold((0, 0), |sum, (knob, &value)| (sum.0 + value, sum.1 + knob.initial));
            (100_000_000 * u128::from(set) / u128::from(all)) as u64
        };
        let varies = Random::new(window).below(30_000_000);
        let capped = [Kind::LimitUw, Kind::QuotaPpm, Kind::BytesPerS].map(share).into_iter().sum::<u64>();
        let server_uw = 100_000_000 + capped + varies;
        if scope == Scope::Server { server_uw } else { server_uw / 4 }
    }

    /// Bytes a second in one direction with the present settings.
    fn bytes_per_s(&self, scope: Scope, window: u64) -> u64 {
        let cap = self.capabilities.find_knob(scope, Kind::BytesPerS).map(|(id, _)| self.values[id.index()]);
        Random::new(window).below(4_000_000_000).min(cap.unwrap_or(u64::MAX) / 2)
    }

    /// Readings of these sources; one window in eight is missing.
    pub(crate) fn readings(&self, wanted: &[ReadingId], now_ns: u64) -> Vec<Reading> {
        let source = |id: &ReadingId| (*id, &self.capabilities.sources[id.index()]);
        wanted.iter().map(source).map(|(id, source)| self.reading(id, source, now_ns)).collect()
    }

    fn reading(&self, id: ReadingId, source: &Source, now_ns: u64) -> Reading {
        let known = now_ns.saturating_sub(source.lag.ns()) / source.window_ns;
        let last = (1..=known).rev().find(|window| Random::new(*window).below(8) != 0).map(|window| {
            let value = Some(match source.quantity {
                Quantity::PowerUw => self.power_uw(source.scope, window),
                Quantity::LatencyNs(_) => 20_000 + Random::new(window).below(3_000) * (1 + window / 64 % 3),
                Quantity::BacklogBytes => Random::new(window / 100).below(2),
                _ => self.bytes_per_s(source.scope, window),
            });
            Window { ended_ns: window * source.window_ns, value }
        });
        source.reading(id, last, now_ns)
    }
}
