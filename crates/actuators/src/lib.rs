//! Changes of machine settings, which are restored afterwards.
//!
//! - [`knobs`]: settings that a policy changes while a server runs.
//! - [`changes`]: settings of an experiment, with a journal that restores them even after `kill -9`.
//! - [`machine`]: the section `[machine]` of an experiment.

pub mod changes;
pub mod knobs;
pub mod machine;

pub use changes::{Attempt, Change, Changes, restore};
pub use knobs::Knobs;
pub use machine::Machine;
pub use pilotlight_drive::Roots;
