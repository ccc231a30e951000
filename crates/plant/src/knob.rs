//! The knobs of a plant, their values and their costs.
//!
//! A plant lists its knobs ([`crate::Capabilities::knobs`]); [`crate::Command::Set`] sets one. Knob ids are stable while the plant runs:
//! new knobs are appended, and a knob whose device was removed keeps its id with an empty list of values.

use std::fmt;

use crate::topology::CoreId;

/// The component to which a knob, a source of readings, a tolerance or a priority applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// A core.
    Core(CoreId),
    /// A CPU package.
    Package(u16),
    /// A drive.
    Device(u16),
    /// A namespace, by its number, which is unique in the server.
    Namespace(u32),
    /// A host.
    Host(u32),
    /// A class of background work.
    Background(u16),
    /// The whole server.
    Server,
}

/// The setting that a knob controls; the name contains the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Clock frequency of a core in kHz.
    FrequencyKhz,
    /// Power limit in microwatts.
    LimitUw,
    /// CPU time quota of all worker cores together, in millionths of one core. The main core has none, as it must be able to raise the quota.
    QuotaPpm,
    /// Period of the quota in nanoseconds: a longer period causes fewer and longer stalls.
    QuotaPeriodNs,
    /// Whether a core is online: 0 or 1.
    Online,
    /// NVMe power state; 0 is the fastest.
    PowerState,
    /// Longest wake-up time of the idle states that a drive may enter autonomously (NVMe APST), in nanoseconds; 0 disables them.
    WakeLimitNs,
    /// Bandwidth limit in bytes per second.
    BytesPerS,
    /// Rate of background work, in millionths of its highest.
    RatePpm,
}

/// The supported values of a knob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// From `min` in equal steps, and `max`.
    Range {
        /// The lowest.
        min: u64,
        /// The highest.
        max: u64,
        /// Distance of two values; at least 1.
        step: u64,
    },
    /// These values, in ascending order.
    List(Vec<u64>),
}

/// A time in nanoseconds, with its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Measured on this machine, or exact in a simulated one.
    Measured(u64),
    /// Measured on another machine, or estimated.
    Assumed(u64),
}

/// The number of a knob: its index in [`crate::Capabilities::knobs`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KnobId(pub u16);

/// A knob. The plant restores its initial value when the policy that set it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knob {
    /// The component it applies to.
    pub scope: Scope,
    /// The setting it controls.
    pub kind: Kind,
    /// The supported values.
    pub values: Values,
    /// The initial value, which the plant restores.
    pub initial: u64,
    /// CPU time of the main core to set it.
    pub caller: Cost,
    /// Time from then until the value takes effect.
    pub effect: Cost,
}

impl KnobId {
    /// As an index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl Cost {
    /// The time in nanoseconds.
    #[must_use]
    pub fn ns(self) -> u64 {
        let (Self::Measured(ns) | Self::Assumed(ns)) = self;
        ns
    }
}

impl Cost {
    /// Adds `more_ns`, keeping the origin.
    #[must_use]
    pub fn plus(self, more_ns: u64) -> Self {
        match self {
            Self::Measured(ns) => Self::Measured(ns.saturating_add(more_ns)),
            Self::Assumed(ns) => Self::Assumed(ns.saturating_add(more_ns)),
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured(ns) => write!(f, "{ns} ns"),
            Self::Assumed(ns) => write!(f, "{ns} ns (assumed)"),
        }
    }
}

impl Values {
    /// The lowest; `None` if there are no values.
    #[must_use]
    pub fn lowest(&self) -> Option<u64> {
        match self {
            Self::Range { min, .. } => Some(*min),
            Self::List(values) => values.first().copied(),
        }
    }

    /// The highest; `None` if there are no values.
    #[must_use]
    pub fn highest(&self) -> Option<u64> {
        match self {
            Self::Range { max, .. } => Some(*max),
            Self::List(values) => values.last().copied(),
        }
    }

    /// The supported value nearest to `value`, the higher one of two equally near; `None` if there are no values.
    #[must_use]
    pub fn nearest(&self, value: u64) -> Option<u64> {
        match *self {
            Self::Range { min, max, step } => {
                let (step, max) = (step.max(1), max.max(min));
                let value = value.clamp(min, max);
                let below = value - (value - min) % step;
                let above = below.saturating_add(step).min(max);
                Some(if above - value <= value - below { above } else { below })
            }
            Self::List(ref values) => values.iter().copied().min_by_key(|&one| (one.abs_diff(value), u64::MAX - one)),
        }
    }

    /// One step above `value`, at most the highest.
    #[must_use]
    pub fn up(&self, value: u64) -> u64 {
        match *self {
            Self::Range { min, max, step } => value.saturating_add(step).max(min).min(max),
            Self::List(ref values) => {
                values.iter().copied().find(|&one| one > value).or(self.highest()).unwrap_or(value)
            }
        }
    }

    /// One step below `value`, at least the lowest.
    #[must_use]
    pub fn down(&self, value: u64) -> u64 {
        match *self {
            Self::Range { min, max, step } => value.saturating_sub(step).max(min).min(max),
            Self::List(ref values) => {
                values.iter().rev().copied().find(|&one| one < value).or(self.lowest()).unwrap_or(value)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: Values = Values::Range { min: 400, max: 3_650, step: 100 };

    #[test]
    fn the_nearest_value_of_a_range_is_on_a_step_or_the_maximum() {
        let nearest = [0, 449, 450, 3_550, 3_650, u64::MAX].map(|value| RANGE.nearest(value));
        assert_eq!(nearest, [400, 400, 500, 3_600, 3_650, 3_650].map(Some));
        let odd = Values::Range { min: 0, max: 9, step: 3 };
        assert_eq!([1, 2, 4, 5].map(|value| odd.nearest(value)), [0, 3, 3, 6].map(Some));
        let short = Values::Range { min: 400, max: 3_729, step: 100 };
        assert_eq!(
            [3_700, 3_714, 3_715, 3_729].map(|value| short.nearest(value)),
            [3_700, 3_700, 3_729, 3_729].map(Some)
        );
    }

    #[test]
    fn a_list_supports_only_its_values() {
        let list = Values::List(vec![1, 4, 16]);
        assert_eq!([0, 2, 10, 99].map(|value| list.nearest(value)), [1, 1, 16, 16].map(Some));
        assert_eq!([0, 1, 4, 16].map(|value| list.up(value)), [1, 4, 16, 16]);
        assert_eq!([1, 4, 5, 99].map(|value| list.down(value)), [1, 1, 4, 16]);
        assert_eq!(Values::List(Vec::new()).nearest(7), None, "its device was removed");
    }

    #[test]
    fn steps_stop_at_the_limits() {
        assert_eq!([0, 400, 3_600, 3_650].map(|value| RANGE.up(value)), [400, 500, 3_650, 3_650]);
        assert_eq!([0, 400, 450, 3_650].map(|value| RANGE.down(value)), [400, 400, 400, 3_550]);
    }
}
