//! Readings: measured power, bandwidth and latency, each with its age.
//!
//! A plant lists its sources ([`crate::Capabilities::sources`]); a policy selects some ([`crate::Wants::readings`]), and the plant reads
//! no others. A source measures consecutive windows; the value of a window is available some time after its end. Readings do not trigger
//! intervals: a policy requests those with its deadlines. Source ids are stable while the plant runs: new sources are appended, and a
//! removed one goes stale.

use crate::knob::{Cost, Scope};

/// The quantity a source measures; the name contains the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Quantity {
    /// Mean power in microwatts.
    PowerUw,
    /// Bytes read and written per second.
    BytesPerS,
    /// Bytes read per second.
    ReadBytesPerS,
    /// Bytes written per second.
    WrittenBytesPerS,
    /// Time from the arrival of a request at the socket until its response is there, in nanoseconds.
    LatencyNs(Stat),
    /// The actual frequency of a core in kHz.
    DeliveredKhz,
    /// Pending background work in bytes.
    BacklogBytes,
}

/// A statistic of latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stat {
    /// The mean.
    Mean,
    /// The median.
    P50,
    /// The 99th percentile.
    P99,
}

/// The number of a source: its index in [`crate::Capabilities::sources`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReadingId(pub u16);

/// A source of readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The measured component.
    pub scope: Scope,
    /// The measured quantity.
    pub quantity: Quantity,
    /// Length of a window in nanoseconds.
    pub window_ns: u64,
    /// Time from the end of a window until its value is available.
    pub lag: Cost,
}

/// The value of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its end in nanoseconds.
    pub ended_ns: u64,
    /// The value; `None` if there was nothing to measure, such as latency without requests.
    pub value: Option<u64>,
}

/// A reading as a policy receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The source.
    pub id: ReadingId,
    /// The value of the last window; `None` if there was nothing to measure, or the reading is stale.
    pub value: Option<u64>,
    /// Time since that window ended, in nanoseconds; `u64::MAX` if there was none.
    pub age_ns: u64,
}

impl Stat {
    /// All statistics, in declaration order.
    pub const ALL: [Self; 3] = [Self::Mean, Self::P50, Self::P99];

    /// The name: `mean`, `p50` or `p99`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::P50 => "p50",
            Self::P99 => "p99",
        }
    }
}

impl ReadingId {
    /// As an index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl Source {
    /// Whether a reading of this age is stale: a later window is overdue by at least one window length.
    #[must_use]
    pub fn is_stale(&self, age_ns: u64) -> bool {
        age_ns > self.lag.ns().saturating_add(self.window_ns.saturating_mul(2))
    }

    /// The reading at `now_ns`, given the last available window.
    #[must_use]
    pub fn reading(&self, id: ReadingId, last: Option<Window>, now_ns: u64) -> Reading {
        let age_ns = last.map_or(u64::MAX, |window| now_ns.saturating_sub(window.ended_ns));
        let value = last.and_then(|window| window.value).filter(|_| !self.is_stale(age_ns));
        Reading { id, value, age_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_goes_stale_when_a_window_is_missed() {
        let source =
            Source { scope: Scope::Server, quantity: Quantity::PowerUw, window_ns: 100, lag: Cost::Measured(30) };
        let last = Some(Window { ended_ns: 1_000, value: Some(7) });
        let at = |now_ns| source.reading(ReadingId(3), last, now_ns);
        assert_eq!(at(1_130), Reading { id: ReadingId(3), value: Some(7), age_ns: 130 }, "the next is not known yet");
        assert_eq!(at(1_230).value, Some(7));
        assert_eq!(at(1_231), Reading { id: ReadingId(3), value: None, age_ns: 231 });
        let none = source.reading(ReadingId(3), None, 5);
        assert_eq!((none.value, none.age_ns, source.is_stale(none.age_ns)), (None, u64::MAX, true));
    }
}
