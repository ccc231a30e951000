//! Commands of a policy, capabilities of a plant, and their costs.
//!
//! A sleep command states a goal ("wake within 50 us"); the plant chooses the state. Frequencies, quotas, power limits and bandwidth caps
//! are knobs ([`crate::knob`]), all set by one command.

use crate::knob::{Cost, Kind, Knob, KnobId, Scope};
use crate::reading::{Quantity, ReadingId, Source};
use crate::topology::{CoreId, Depth, ThreadId};

/// A command of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Move `thread` to core `to`. If `to` sleeps and must be woken by software, the old core serves the thread until `to` is awake; if
    /// `to` waits in the kernel for I/O threads of its own, the thread is sent at once.
    Move {
        /// The I/O thread.
        thread: ThreadId,
        /// Its new core.
        to: CoreId,
    },
    /// Put `core` to sleep as soon as it owns no I/O thread. Not the main core.
    Sleep {
        /// The core.
        core: CoreId,
        /// The required wake-up time.
        goal: SleepGoal,
    },
    /// Wake `core`. A moved I/O thread wakes its new core too; a policy sends the wake-up first all the same.
    Wake {
        /// The core.
        core: CoreId,
    },
    /// Set how `thread` waits for requests and completions.
    Completions {
        /// The I/O thread.
        thread: ThreadId,
        /// The mode.
        mode: CompletionMode,
    },
    /// Set `knob` to `value`, or to the nearest supported value. A refusal may come later than for other commands, as another thread
    /// accesses the machine.
    Set {
        /// The knob.
        knob: KnobId,
        /// The value, in the unit of the knob's kind.
        value: u64,
    },
}

/// Required wake-up time of a sleeping core: the plant chooses the deepest state that meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SleepGoal {
    /// Longest time from the wake-up to the first poll, in nanoseconds. If no state meets it, the shallowest is used.
    pub wake_within_ns: u64,
}

impl SleepGoal {
    /// The shallowest state.
    pub const SHALLOWEST: Self = Self { wake_within_ns: 0 };
    /// The deepest state.
    pub const DEEPEST: Self = Self { wake_within_ns: u64::MAX };
}

/// How an I/O thread waits for work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompletionMode {
    /// Its reactor polls it continuously.
    #[default]
    Poll,
    /// Its reactor waits in the kernel for a socket, a device or a message.
    Interrupt,
    /// Its reactor rests after an empty round (hybrid polling). With several I/O threads on a core the shortest rest applies; a thread in
    /// [`Self::Poll`] prevents any.
    Hybrid {
        /// Length of each rest while the I/O thread has no request in progress, in nanoseconds.
        idle_ns: u32,
        /// Rest after a request was polled, in nanoseconds; then the I/O thread is polled until the request completes
        /// ([`crate::Arrivals`]).
        rest_ns: u32,
    },
}

impl CompletionMode {
    /// Longest rest that an I/O thread in this mode allows; `oldest_ns` is the arrival of its oldest request in progress. `None` if the mode
    /// sets no limit.
    #[must_use]
    pub fn rest_ns(self, oldest_ns: Option<u64>, now_ns: u64) -> Option<u64> {
        match (self, oldest_ns) {
            (Self::Poll, _) => Some(0),
            (Self::Interrupt, _) => None,
            (Self::Hybrid { idle_ns, .. }, None) => Some(u64::from(idle_ns)),
            (Self::Hybrid { rest_ns, .. }, Some(oldest_ns)) => {
                Some((oldest_ns + u64::from(rest_ns)).saturating_sub(now_ns))
            }
        }
    }
}

/// Why a plant refused a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// An I/O thread is on its way to the core. (A core that still owns I/O threads sleeps once they have left.)
    #[error("an I/O thread is on its way to the core")]
    NotEmpty,
    /// A policy cannot put the main core to sleep.
    #[error("a policy cannot put the main core to sleep")]
    MainCore,
    /// The core, I/O thread or knob does not exist.
    #[error("the core, I/O thread or knob does not exist")]
    Unknown,
    /// The plant does not support the command.
    #[error("this machine does not support the command")]
    Unsupported,
    /// The command failed; a retry may succeed.
    #[error("the command failed; a retry may succeed")]
    Failed,
}

/// A sleep state and its costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SleepCost {
    /// The depth.
    pub depth: Depth,
    /// CPU time of the core that sends the wake-up.
    pub waker: Cost,
    /// Time from then until the woken core polls.
    pub wake: Cost,
}

/// Cost of a rest between two rounds ([`CompletionMode::Hybrid`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestCost {
    /// CPU time of a rest of any length.
    pub cpu: Cost,
    /// Overrun of a rest.
    pub late: Cost,
}

/// Capabilities of a plant and their costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Sleep states that a command can select, from shallow to deep; empty if there are none.
    pub sleeps: Vec<SleepCost>,
    /// Time to move an I/O thread between polling cores; `None` if it cannot be moved.
    pub moves: Option<Cost>,
    /// Whether I/O threads can wait in the kernel.
    pub interrupts: bool,
    /// Cost of a rest between rounds ([`CompletionMode::Hybrid`]); `None` if unsupported.
    pub rests: Option<RestCost>,
    /// CPU time to put the whole server to sleep and wake it again ([`crate::Next::idle_timeout_ns`]); `None` if unsupported.
    pub server_sleep: Option<Cost>,
    /// Knobs, by [`KnobId`].
    pub knobs: Vec<Knob>,
    /// Sources of readings, by [`ReadingId`].
    pub sources: Vec<Source>,
    /// The drive of each namespace: the numbers of [`Scope::Namespace`] and [`Scope::Device`]. Namespaces without a known drive are
    /// omitted.
    pub drives: Vec<(u32, u16)>,
    /// The core group of each I/O thread, by [`ThreadId`]; threads of a group do the same kind of work. Empty for a single group.
    pub groups: Vec<u16>,
}

impl Capabilities {
    /// The sleep state for a goal: the deepest that meets it, else the shallowest.
    #[must_use]
    pub fn sleep_for(&self, goal: SleepGoal) -> Option<SleepCost> {
        let in_time = self.sleeps.iter().rev().find(|sleep| sleep.wake.ns() <= goal.wake_within_ns);
        in_time.or(self.sleeps.first()).copied()
    }

    /// The drive of a namespace, if known.
    #[must_use]
    pub fn drive_of(&self, namespace: u32) -> Option<u16> {
        self.drives.iter().find(|(known, _)| *known == namespace).map(|&(_, drive)| drive)
    }

    /// The knob with this id.
    #[must_use]
    pub fn knob(&self, id: KnobId) -> Option<&Knob> {
        self.knobs.get(id.index())
    }

    /// The knobs of a kind.
    pub fn knobs_of(&self, kind: Kind) -> impl Iterator<Item = (KnobId, &Knob)> {
        (0..).map(KnobId).zip(&self.knobs).filter(move |(_, knob)| knob.kind == kind)
    }

    /// The knob of a kind and scope.
    #[must_use]
    pub fn find_knob(&self, scope: Scope, kind: Kind) -> Option<(KnobId, &Knob)> {
        self.knobs_of(kind).find(|(_, knob)| knob.scope == scope)
    }

    /// The sources of a quantity.
    pub fn sources_of(&self, quantity: Quantity) -> impl Iterator<Item = (ReadingId, &Source)> {
        (0..).map(ReadingId).zip(&self.sources).filter(move |(_, source)| source.quantity == quantity)
    }

    /// The source of a quantity and scope.
    #[must_use]
    pub fn find_source(&self, scope: Scope, quantity: Quantity) -> Option<(ReadingId, &Source)> {
        self.sources_of(quantity).find(|(_, source)| source.scope == scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::Values;

    #[test]
    fn hybrid_rests_end_when_the_oldest_request_is_due() {
        let how = CompletionMode::Hybrid { idle_ns: 10, rest_ns: 40 };
        assert_eq!(how.rest_ns(None, 1_000), Some(10));
        let rests = [1_000, 1_015, 1_040, 5_000].map(|now_ns| how.rest_ns(Some(1_000), now_ns));
        assert_eq!(rests, [Some(40), Some(25), Some(0), Some(0)], "then it is polled until that request completes");
        assert_eq!(CompletionMode::Poll.rest_ns(None, 1_000), Some(0));
        assert_eq!(CompletionMode::Interrupt.rest_ns(Some(1_000), 1_000), None, "polled with the others");
    }

    #[test]
    fn a_goal_selects_the_deepest_state_that_meets_it() {
        let cost = |depth, ns| SleepCost { depth, waker: Cost::Measured(0), wake: Cost::Measured(ns) };
        let sleeps = vec![cost(Depth::MonitorWait, 3_000), cost(Depth::SoftwareWait, 40_000)];
        let plant = Capabilities { sleeps, ..Capabilities::default() };
        let depth = |within| plant.sleep_for(SleepGoal { wake_within_ns: within }).map(|sleep| sleep.depth);
        assert_eq!(depth(50_000), Some(Depth::SoftwareWait));
        assert_eq!(depth(10_000), Some(Depth::MonitorWait));
        assert_eq!(depth(0), Some(Depth::MonitorWait));
        assert_eq!(Capabilities::default().sleep_for(SleepGoal::DEEPEST), None);
    }

    #[test]
    fn knobs_are_found_by_scope_and_kind() {
        let values = Values::List(vec![0, 1]);
        let knob = |scope, kind| Knob {
            scope,
            kind,
            values: values.clone(),
            initial: 0,
            caller: Cost::Assumed(0),
            effect: Cost::Assumed(0),
        };
        let (one, two) = (Scope::Core(CoreId(1)), Scope::Core(CoreId(2)));
        let knobs = vec![knob(one, Kind::Online), knob(one, Kind::FrequencyKhz), knob(two, Kind::FrequencyKhz)];
        let plant = Capabilities { knobs, ..Capabilities::default() };
        let found = |of, kind| plant.find_knob(of, kind).map(|(id, _)| id);
        assert_eq!(found(two, Kind::FrequencyKhz), Some(KnobId(2)));
        assert_eq!(found(one, Kind::Online), Some(KnobId(0)));
        assert_eq!((found(two, Kind::Online), plant.knob(KnobId(3))), (None, None));
    }
}
