//! Completion mechanisms, interrupt and polling ("When Poll is More Energy Efficient than Interrupt", HotStorage '22): counts per I/O
//! ([`count`]), verification of the actual mechanism ([`verify`]), settings of the device ([`device`]), and the most efficient mechanism by
//! request size and number of jobs ([`map`]).

pub mod count;
pub mod device;
pub mod map;
pub mod verify;

#[cfg(test)]
mod tests;

pub use verify::{Completion, Verdict};
