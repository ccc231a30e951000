//! What a policy can set: the knobs of a plant, the values they take, and what setting one costs.
//!
//! A plant lists its knobs ([`crate::Capabilities::knobs`]); [`crate::Command::Set`] sets one. A knob keeps its number for as long
//! as the plant runs: new ones are appended, and one whose place has gone keeps an empty list of values.

use std::fmt;

use crate::topology::CoreId;

/// What a knob sets, a source measures, or a priority is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// A core.
    Core(CoreId),
    /// A CPU package.
    Package(u16),
    /// A drive.
    Device(u16),
    /// A namespace, by a number that no other namespace of the server has.
    Namespace(u32),
    /// A host.
    Host(u32),
    /// A class of background work.
    Background(u16),
    /// The whole server.
    Server,
}

/// What a knob sets; the unit of its values stands in the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Clock frequency of a core in kHz.
    FrequencyKhz,
    /// Power limit in microwatts.
    LimitUw,
    /// CPU time that the worker cores may use together, in millionths of one core. The main core has no quota: it could not raise it again.
    QuotaPpm,
    /// Period in which the CPU time of `QuotaPpm` may be used, in nanoseconds: the longer, the fewer and the longer the stalls.
    QuotaPeriodNs,
    /// Whether a core is part of the system: 0 or 1.
    Online,
    /// NVMe power state; 0 is the fastest.
    PowerState,
    /// Longest wake-up time of the idle states that a drive may enter by itself (NVMe: APST), in nanoseconds; 0: it enters none.
    WakeLimitNs,
    /// Most bytes a second.
    BytesPerS,
    /// Rate of background work, in millionths of its highest.
    RatePpm,
}

/// The values that a knob takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// From the lowest in equal steps, and the highest.
    Range {
        /// The lowest.
        min: u64,
        /// The highest.
        max: u64,
        /// From one to the next; at least 1.
        step: u64,
    },
    /// These, from the lowest up.
    List(Vec<u64>),
}

/// A time in nanoseconds, measured on this machine or assumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// As measured on this machine; in a simulated machine, as it takes.
    Measured(u64),
    /// Measured on another machine, or estimated.
    Assumed(u64),
}

/// The number of a knob: its index in [`crate::Capabilities::knobs`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KnobId(pub u16);

/// Something that can be set. The plant puts it back when the policy that set it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knob {
    /// What it is a knob of.
    pub scope: Scope,
    /// What it sets.
    pub kind: Kind,
    /// What it can be set to.
    pub values: Values,
    /// The value as it was found, to which it is put back.
    pub initial: u64,
    /// Time of the main core for each setting.
    pub caller: Cost,
    /// Time from then until the value holds.
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
    /// So many nanoseconds more, of the same kind.
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

    /// The value nearest to `value`, the higher of two as near; of a range a step from the lowest, or the highest.
    /// `None` if there are no values.
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
    fn the_nearest_value_is_a_step_from_the_lowest_or_the_highest() {
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
    fn a_list_takes_its_own_values_only() {
        let list = Values::List(vec![1, 4, 16]);
        assert_eq!([0, 2, 10, 99].map(|value| list.nearest(value)), [1, 1, 16, 16].map(Some));
        assert_eq!([0, 1, 4, 16].map(|value| list.up(value)), [1, 4, 16, 16]);
        assert_eq!([1, 4, 5, 99].map(|value| list.down(value)), [1, 1, 4, 16]);
        assert_eq!(Values::List(Vec::new()).nearest(7), None, "its place has gone");
    }

    #[test]
    fn steps_end_at_the_ends() {
        assert_eq!([0, 400, 3_600, 3_650].map(|value| RANGE.up(value)), [400, 500, 3_650, 3_650]);
        assert_eq!([0, 400, 450, 3_650].map(|value| RANGE.down(value)), [400, 400, 400, 3_550]);
    }
}
