//! The language between policies and plants.
//!
//! A *policy* decides: samples in, commands out. It owns no clock, no thread, no file and no random source. A *plant* is
//! what is being controlled: the reactors of a server, or a simulated machine. The same policy object drives both, so what
//! is shown in one holds in the other. This crate is all that they share; it knows nobody.
//!
//! [`policy`] is the contract and fits on one screen. [`topology`] says what a machine's cores are, [`sample`] what a plant
//! tells, [`command`] what a policy may ask for and what that costs, [`knob`] what it can set, [`reading`] what it can be
//! told of watts, bytes and latencies, [`arrivals`] when requests came, [`goal`] what an operator asks for, [`profile`] what a machine's states burn.
//!
//! Units stand in names: `_ns` nanoseconds, `_uw` microwatts, `_khz` kilohertz, `_permille` thousandths.

pub mod arrivals;
pub mod command;
pub mod goal;
pub mod knob;
pub mod policy;
pub mod profile;
pub mod reading;
pub mod sample;
pub mod topology;

pub use arrivals::Arrivals;
pub use command::{Capabilities, Command, CompletionMode, Refusal, RestCost, SleepCost, SleepGoal};
pub use goal::{Bound, Component, Goal, Goals, Tolerance, Unreachable};
pub use knob::{Cost, Kind, Knob, KnobId, Scope, Values};
pub use policy::{NEVER, Next, Policy, Start, Unsupported, View, Wants};
pub use profile::{PowerProfile, ProfileError};
pub use reading::{Quantity, Reading, ReadingId, Source, Stat, Window};
pub use sample::{CoreSample, CoreState, Sample, ThreadCount, ThreadSample, Tick};
pub use topology::{CoreId, Depth, ThreadId, Topology, TopologyError};
