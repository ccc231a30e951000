//! Actuator of a policy with one mechanism: knobs of a kind, or the number of cores.

use pilotlight_plant::{Capabilities, Command, Kind, KnobId, Refusal, Start};

use super::caps::{Caps, Selection};
use super::control::Range;

/// The kind of cap of a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapKind {
    /// The knobs of a kind.
    Knobs(Kind),
    /// The number of polling cores.
    Cores,
    /// Bandwidth of each namespace, in bytes a second.
    Bandwidth {
        /// The lowest cap.
        least: u64,
        /// The bandwidth of a drive; a higher cap limits nothing.
        most: u64,
    },
}

/// The actuator on a plant.
#[derive(Clone, Debug)]
pub(crate) enum Actuator {
    Knobs(Caps),
    Cores(Cores),
}

/// The number of cores.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cores {
    /// All cores, 0 if their number cannot be limited; and cores that may be used.
    all: u64,
    used: u64,
    /// When the last limit takes effect.
    holds_ns: u64,
    /// Raises are not allowed.
    holds_down: bool,
}

/// Time until I/O threads have moved and cores sleep, in nanoseconds: it begins with the next interval.
const MOVES_NS: u64 = 100_000_000;

impl CapKind {
    /// The kinds of knobs that it sets.
    pub(crate) fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Knobs(Kind::LimitUw) => &[Kind::LimitUw],
            Self::Knobs(Kind::QuotaPpm) => &[Kind::QuotaPpm, Kind::QuotaPeriodNs],
            Self::Bandwidth { .. } => &[Kind::BytesPerS],
            Self::Knobs(_) | Self::Cores => &[],
        }
    }

    /// Finds it on a plant; a CPU quota with this period.
    pub(crate) fn find(self, start: &Start<'_>, period_ns: Option<u64>) -> Actuator {
        let find = |selection| Actuator::Knobs(Caps::find(selection, start.capabilities));
        match self {
            Self::Knobs(Kind::QuotaPpm) => find(Selection::quota(period_ns)),
            Self::Knobs(kind) => find(Selection::of(kind)),
            Self::Bandwidth { least, most } => {
                find(Selection { hosts: false, least, most, ..Selection::of(Kind::BytesPerS) })
            }
            Self::Cores => Actuator::Cores(Cores::find(start)),
        }
    }
}

impl Cores {
    /// The number can be limited if I/O threads can be moved and cores can sleep.
    pub(crate) fn find(start: &Start<'_>) -> Self {
        let can = start.capabilities.moves.is_some() && !start.capabilities.sleeps.is_empty();
        let all = if can { start.topology.len() as u64 } else { 0 };
        Self { all, used: all, ..Self::default() }
    }

    /// Whether their number can be limited.
    pub(crate) fn is_limitable(&self) -> bool {
        self.all > 1
    }

    pub(crate) fn set(&mut self, now_ns: u64, cores: u64) -> bool {
        let cores = cores.clamp(1, self.all.max(1));
        let is_other = self.is_limitable() && cores != self.used && (cores < self.used || !self.holds_down);
        if is_other {
            (self.used, self.holds_ns) = (cores, now_ns.saturating_add(MOVES_NS));
        }
        is_other
    }

    /// Whether the limit may be raised from now on.
    pub(crate) fn allow_raises(&mut self, may_raise: bool) {
        self.holds_down = !may_raise;
    }

    /// Most cores that may be used.
    pub(crate) fn used(&self) -> usize {
        if self.is_limitable() { self.used as usize } else { usize::MAX }
    }

    pub(crate) fn all(&self) -> u64 {
        self.all
    }

    pub(crate) fn holds_ns(&self) -> u64 {
        self.holds_ns
    }
}

impl Actuator {
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Knobs(caps) => caps.is_empty(),
            Self::Cores(cores) => cores.all == 0,
        }
    }

    /// As [`Caps::lacks_period`].
    pub(crate) fn lacks_period(&self) -> bool {
        matches!(self, Self::Knobs(caps) if caps.lacks_period())
    }

    pub(crate) fn level(&self) -> u64 {
        match self {
            Self::Knobs(caps) => caps.level(),
            Self::Cores(cores) => cores.used,
        }
    }

    pub(crate) fn range(&self) -> Range {
        match self {
            Self::Knobs(caps) => caps.range(),
            Self::Cores(cores) => Range { lowest: 1, highest: cores.all.max(1), step: 1 },
        }
    }

    pub(crate) fn set(&mut self, now_ns: u64, level: u64, out: &mut Vec<Command>) -> bool {
        match self {
            Self::Knobs(caps) => caps.set(now_ns, level, out),
            Self::Cores(cores) => cores.set(now_ns, level),
        }
    }

    /// Sets whether limits may be raised.
    pub(crate) fn allow_raises(&mut self, may_raise: bool) {
        match self {
            Self::Knobs(caps) => caps.allow_raises(may_raise),
            Self::Cores(cores) => cores.allow_raises(may_raise),
        }
    }

    pub(crate) fn lift(&mut self, now_ns: u64, out: &mut Vec<Command>) -> bool {
        self.set(now_ns, self.range().highest, out)
    }

    pub(crate) fn holds_ns(&self) -> u64 {
        match self {
            Self::Knobs(caps) => caps.holds_ns(),
            Self::Cores(cores) => cores.holds_ns,
        }
    }

    pub(crate) fn lifts_ns(&self) -> Option<u64> {
        match self {
            Self::Knobs(caps) => caps.lifts_ns(),
            Self::Cores(_) => None,
        }
    }

    pub(crate) fn replace(&mut self, now_ns: u64, capabilities: &Capabilities, out: &mut Vec<Command>) {
        if let Self::Knobs(caps) = self {
            caps.replace(now_ns, capabilities, out);
        }
    }

    pub(crate) fn on_refused(&mut self, now_ns: u64, set: (KnobId, u64), refusal: Refusal) -> bool {
        match self {
            Self::Knobs(caps) => caps.on_refused(now_ns, set, refusal),
            Self::Cores(_) => false,
        }
    }

    /// Most cores that may be used.
    pub(crate) fn cores(&self) -> usize {
        match self {
            Self::Knobs(_) => usize::MAX,
            Self::Cores(cores) => cores.used(),
        }
    }
}

impl Default for Actuator {
    fn default() -> Self {
        Self::Knobs(Caps::default())
    }
}
