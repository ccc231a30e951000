//! What a policy may ask for, what a plant says it can do, and what that costs.
//!
//! A policy asks for goals where it can ("asleep, but back within 50 us"); the plant chooses the means. Frequencies, quotas, power
//! limits and bandwidth are knobs ([`crate::knob`]), all set by one command.

use crate::knob::{Cost, Kind, Knob, KnobId, Scope};
use crate::reading::{Quantity, ReadingId, Source};
use crate::topology::{CoreId, Depth, ThreadId};

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Let `thread` live on `to`. Where `to` sleeps and has to be woken by software, its old home serves it until `to` is
    /// awake; where `to` waits in the kernel for I/O threads of its own, it is sent at once.
    Move {
        /// The I/O thread.
        thread: ThreadId,
        /// Its new home.
        to: CoreId,
    },
    /// Let `core` rest as soon as it owns no I/O thread. Never the main core.
    Sleep {
        /// The core.
        core: CoreId,
        /// How deep.
        goal: SleepGoal,
    },
    /// Let `core` poll. A moved I/O thread wakes its new home too; a policy says so all the same, and first.
    Wake {
        /// The core.
        core: CoreId,
    },
    /// How `thread` learns of completions and of requests from now on.
    Completions {
        /// The I/O thread.
        thread: ThreadId,
        /// The mode.
        mode: CompletionMode,
    },
    /// Set `knob` to `value`, or to the nearest that it takes. It may be refused later than other commands: the machine is asked
    /// by another thread.
    Set {
        /// The knob.
        knob: KnobId,
        /// The value, in the unit of the knob's kind.
        value: u64,
    },
}

/// How deep a core is to sleep: the deepest state from which it is back in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SleepGoal {
    /// Most time from the wake-up to the first poll, in nanoseconds. Where no state keeps it, the shallowest is taken.
    pub wake_within_ns: u64,
}

impl SleepGoal {
    /// The shallowest state there is: awake again as quickly as can be.
    pub const SHALLOWEST: Self = Self { wake_within_ns: 0 };
    /// The deepest state there is, however long the way back.
    pub const DEEPEST: Self = Self { wake_within_ns: u64::MAX };
}

/// How an I/O thread waits for work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompletionMode {
    /// Its reactor polls it all the time.
    #[default]
    Poll,
    /// Its reactor waits in the kernel until a socket, a device or a message has something.
    Interrupt,
    /// Its reactor rests after a round that found nothing (hybrid polling). With several I/O threads on a core the shortest rest
    /// counts; one that is to be polled leaves none.
    Hybrid {
        /// Length of each rest while the I/O thread has nothing in progress, in nanoseconds.
        idle_ns: u32,
        /// How long each request may be left alone after it was polled, in nanoseconds; from then on the I/O thread is polled until it
        /// completes ([`crate::Arrivals`]).
        rest_ns: u32,
    },
}

impl CompletionMode {
    /// How long an I/O thread that waits in this way may be left alone: `oldest_ns` is when its oldest request in progress came, if it has
    /// any. `None` if it does not say, and is polled with the others.
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

/// Why a plant did not do what it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// An I/O thread is on its way to the core. (One that still owns I/O threads sleeps when they have left.)
    #[error("an I/O thread is on its way to the core")]
    NotEmpty,
    /// The main core does not sleep by a policy's command.
    #[error("the main core does not sleep")]
    MainCore,
    /// There is no such core, I/O thread or knob any more.
    #[error("there is no such core, I/O thread or knob")]
    Unknown,
    /// The plant cannot do this at all.
    #[error("this machine cannot do that")]
    Unsupported,
    /// It was tried and did not succeed; another time it may.
    #[error("it was tried and failed")]
    Failed,
}

/// One way of sleeping, and its costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SleepCost {
    /// The depth.
    pub depth: Depth,
    /// Time of the core that wakes another.
    pub waker: Cost,
    /// Time from then until the sleeper polls.
    pub wake: Cost,
}

/// What a rest between two rounds costs ([`CompletionMode::Hybrid`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestCost {
    /// CPU time of a rest, however long it is.
    pub cpu: Cost,
    /// Time that a rest takes longer than commanded.
    pub late: Cost,
}

/// What a plant can do, and what it costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Ways in which a core can sleep by command, from shallow to deep; empty if it cannot.
    pub sleeps: Vec<SleepCost>,
    /// Time that moving an I/O thread between polling cores takes; `None` if none can be moved.
    pub moves: Option<Cost>,
    /// Whether I/O threads can wait in the kernel.
    pub interrupts: bool,
    /// What it costs reactors to rest between rounds ([`CompletionMode::Hybrid`]); `None` if they cannot.
    pub rests: Option<RestCost>,
    /// CPU time that it costs to put the whole server to sleep and wake it again ([`crate::Next::awake_ns`]); `None` if it cannot sleep.
    pub server_sleep: Option<Cost>,
    /// What can be set, by [`KnobId`].
    pub knobs: Vec<Knob>,
    /// What can be read, by [`ReadingId`].
    pub sources: Vec<Source>,
    /// The drive of each namespace: the numbers of [`Scope::Namespace`] and [`Scope::Device`]. One that is not on a drive, or on an unknown one, is not
    /// listed.
    pub drives: Vec<(u32, u16)>,
    /// The core group of each I/O thread, by [`ThreadId`]: threads of one group do one kind of work. Empty if all do the same.
    pub groups: Vec<u16>,
}

impl Capabilities {
    /// The way of sleeping that serves a goal: the deepest that is back in time, else the shallowest.
    #[must_use]
    pub fn sleep_for(&self, goal: SleepGoal) -> Option<SleepCost> {
        let in_time = self.sleeps.iter().rev().find(|sleep| sleep.wake.ns() <= goal.wake_within_ns);
        in_time.or(self.sleeps.first()).copied()
    }

    /// The drive of a namespace, as far as it is known.
    #[must_use]
    pub fn drive_of(&self, namespace: u32) -> Option<u16> {
        self.drives.iter().find(|(known, _)| *known == namespace).map(|&(_, drive)| drive)
    }

    /// The knob of this number.
    #[must_use]
    pub fn knob(&self, id: KnobId) -> Option<&Knob> {
        self.knobs.get(id.index())
    }

    /// The knobs of a kind.
    pub fn knobs_of(&self, kind: Kind) -> impl Iterator<Item = (KnobId, &Knob)> {
        (0..).map(KnobId).zip(&self.knobs).filter(move |(_, knob)| knob.kind == kind)
    }

    /// The knob of a kind at a place.
    #[must_use]
    pub fn find_knob(&self, scope: Scope, kind: Kind) -> Option<(KnobId, &Knob)> {
        self.knobs_of(kind).find(|(_, knob)| knob.scope == scope)
    }

    /// The sources of a quantity.
    pub fn sources_of(&self, quantity: Quantity) -> impl Iterator<Item = (ReadingId, &Source)> {
        (0..).map(ReadingId).zip(&self.sources).filter(move |(_, source)| source.quantity == quantity)
    }

    /// The source of a quantity at a place.
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
    fn a_thread_rests_when_idle_and_until_its_oldest_request_is_due() {
        let how = CompletionMode::Hybrid { idle_ns: 10, rest_ns: 40 };
        assert_eq!(how.rest_ns(None, 1_000), Some(10));
        let rests = [1_000, 1_015, 1_040, 5_000].map(|now_ns| how.rest_ns(Some(1_000), now_ns));
        assert_eq!(rests, [Some(40), Some(25), Some(0), Some(0)], "then it is polled until that request completes");
        assert_eq!(CompletionMode::Poll.rest_ns(None, 1_000), Some(0));
        assert_eq!(CompletionMode::Interrupt.rest_ns(Some(1_000), 1_000), None, "polled with the others");
    }

    #[test]
    fn a_goal_takes_the_deepest_state_that_is_back_in_time() {
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
    fn a_knob_is_found_by_its_place_and_kind() {
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
