//! The completion study: how the end of a request is learnt of, by interrupt or by polling, and which of them wins where ("When
//! Poll is More Energy Efficient than Interrupt", HotStorage '22).
//!
//! - [`mechanism`]: what can be asked for, and what it takes. [`device`]: the settings and interrupts that it is about.
//! - [`count`]: what is counted for each I/O. [`ran`]: which mechanism really ran, by those counts.
//! - [`map`]: which of them is the most efficient, by request size and number of jobs.

pub mod count;
pub mod device;
pub mod map;
pub mod ran;

#[cfg(test)]
mod tests;

pub use ran::{Completion, Verdict};
