//! Policies, one file or folder each: pure decisions without access to the machine.
//!
//! [`fixed`] and [`interrupt`] are the two extremes, always polling and never polling. [`registry`] finds a policy by name, [`parameter`]
//! parses its parameters. Shared parts: `load` (as SPDK's schedulers define it), [`budget`] (power control with one knob), `request_gap`,
//! `schedule` (interval ends), [`sleep`] (kinds of core sleep), `spread` (threads over all cores), `core_frequency`, `hotplug` and `drives`
//! (knobs), `backoff` (retries of refused knobs).

pub mod adaptive;
mod background;
mod backoff;
pub mod budget;
mod core_frequency;
pub mod cpu_bandwidth;
pub mod cpu_jailing;
mod drives;
pub mod dynamic;
pub mod fixed;
pub mod fleet;
pub mod governor;
mod hotplug;
pub mod hybrid_poll;
pub mod interrupt;
mod limit;
mod load;
pub mod native;
pub mod ondemand;
pub mod pacer;
pub mod parameter;
pub mod pass;
pub mod rapl_only;
pub mod registry;
mod request_gap;
pub mod sandman;
mod schedule;
pub mod sleep;
mod spread;
pub mod ssd_bandwidth;
pub mod thunderbolt;

pub use adaptive::Adaptive;
pub use dynamic::Dynamic;
pub use fixed::Static;
pub use governor::Governor;
pub use hybrid_poll::HybridPoll;
pub use interrupt::Interrupt;
pub use pacer::Pacer;
pub use parameter::{ParameterError, Setting};
pub use registry::{BuildError, Entry, NAMES, Needs, POLICIES, build, by_name, parameters};
pub use sandman::Sandman;
