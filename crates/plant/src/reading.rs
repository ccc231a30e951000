//! What a policy can be told beyond cores and I/O threads: watts, bytes a second, latencies, each with its age.
//!
//! A plant lists its sources ([`crate::Capabilities::sources`]), a policy names those that it wants ([`crate::Wants::readings`]), and the
//! plant gathers no others. A source measures one window after the other; what it says of a window is known some time after its end.
//! Readings make no interval necessary: a policy that has to see one says so in its answers. A source keeps its number for as long as
//! the plant runs: new ones are appended, and one whose place has gone goes stale.

use crate::knob::{Cost, Scope};

/// What a source measures; the unit of its values stands in the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Quantity {
    /// Mean power in microwatts.
    PowerUw,
    /// Bytes read and written a second.
    BytesPerS,
    /// Bytes read a second.
    ReadBytesPerS,
    /// Bytes written a second.
    WrittenBytesPerS,
    /// Time from when a request's bytes were at the socket until its answer was, in nanoseconds.
    LatencyNs(Stat),
    /// The frequency that a core ran at, in kHz.
    DeliveredKhz,
    /// Background work that is still to be done, in bytes.
    BacklogBytes,
}

/// What is taken of many values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stat {
    /// Their mean.
    Mean,
    /// The value that half of them do not exceed.
    P50,
    /// The value that 99 % of them do not exceed.
    P99,
}

/// The number of a source: its index in [`crate::Capabilities::sources`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReadingId(pub u16);

/// Something that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// What is measured.
    pub scope: Scope,
    /// Which quantity of it.
    pub quantity: Quantity,
    /// Length of a window in nanoseconds.
    pub window_ns: u64,
    /// Time from the end of a window until its value is known.
    pub lag: Cost,
}

/// What a source has said of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// When it ended, in nanoseconds.
    pub ended_ns: u64,
    /// The value; `None` if there was nothing to measure, such as the latency of no request.
    pub value: Option<u64>,
}

/// What a policy is told of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The source.
    pub id: ReadingId,
    /// Its value of the last window; `None` if there was nothing to measure, or the reading is stale.
    pub value: Option<u64>,
    /// Time since that window ended, in nanoseconds; `u64::MAX` if there was none.
    pub age_ns: u64,
}

impl Stat {
    /// All, in the order in which they are declared.
    pub const ALL: [Self; 3] = [Self::Mean, Self::P50, Self::P99];

    /// As it is written: `mean`, `p50` or `p99`.
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
    /// Whether a reading of this age is stale: another window should have been known for as long as a window is.
    #[must_use]
    pub fn is_stale(&self, age_ns: u64) -> bool {
        age_ns > self.lag.ns().saturating_add(self.window_ns.saturating_mul(2))
    }

    /// What a policy is told at `now_ns` if this is the last window that is known.
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
