//! The interface between policies and plants.
//!
//! A *policy* maps samples to commands. It owns no clock, thread, file or random source. A *plant* is the controlled system: the reactors
//! of a server, or a simulated machine. The same policy object drives both. This crate depends on neither.
//!
//! [`policy`] is the trait. [`topology`] describes cores, [`sample`] a plant's counters, [`command`] commands and capabilities, [`knob`]
//! settings, [`reading`] measurements, [`arrivals`] arrival times of requests, [`rounds`] cores that cannot follow, [`goal`] the operator's
//! goals, [`profile`] the power of a machine's states.
//!
//! Names contain units: `_ns` nanoseconds, `_uw` microwatts, `_khz` kilohertz, `_ppm` millionths.

pub mod arrivals;
pub mod command;
pub mod goal;
pub mod knob;
pub mod policy;
pub mod profile;
pub mod reading;
pub mod rounds;
pub mod sample;
pub mod topology;

pub use arrivals::Arrivals;
pub use command::{Capabilities, Command, CompletionMode, Refusal, RestCost, SleepCost, SleepGoal};
pub use goal::{Bound, Component, Goal, Goals, Limit, Standing, Tolerance, Unreachable};
pub use knob::{Cost, Kind, Knob, KnobId, Scope, Values};
pub use policy::{DEFAULT_IDLE_TIMEOUT_NS, LONGEST_PAUSE_NS, NEVER, Next, Policy, Start, Unsupported, View, Wants};
pub use profile::{PowerProfile, ProfileError};
pub use reading::{Quantity, Reading, ReadingId, Source, Stat, Window};
pub use rounds::{LongRound, Rounds};
pub use sample::{CoreSample, CoreState, Sample, ThreadCount, ThreadSample, Tick};
pub use topology::{CoreId, Depth, ThreadId, Topology, TopologyError};
