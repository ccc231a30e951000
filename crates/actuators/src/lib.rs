//! Orders out: what changes the machine below the server. Each puts back what it has changed.
//!
//! - [`knobs`]: what a policy sets while a server runs.
//! - [`changes`]: settings of the machine for an experiment, with a journal that brings them back even after `kill -9`.
//! - [`machine`]: what an experiment file asks to change.

pub mod changes;
pub mod knobs;
pub mod machine;

pub use changes::{Attempt, Change, Changes, restore};
pub use knobs::Knobs;
pub use machine::Machine;
pub use pilotlight_drive::Roots;
