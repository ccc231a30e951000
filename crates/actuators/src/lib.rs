//! Orders out: what changes the machine below the server. Each puts back what it has changed.
//!
//! - [`cpufreq`]: frequencies as the policy `governor` sets them while a server runs.
//! - [`changes`]: settings of the machine for an experiment, with a journal that brings them back even after `kill -9`.
//! - [`machine`]: what an experiment file asks to change.

pub mod changes;
pub mod cpufreq;
pub mod knobs;
pub mod machine;

pub use changes::{Attempt, Change, Changes, restore};
pub use cpufreq::{CpuFreq, OpenError};
pub use knobs::Knobs;
pub use machine::Machine;
pub use pilotlight_drive::Roots;
