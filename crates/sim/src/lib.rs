//! A plant made of events: cores, queues, drives, network and power of the papers' machines, in simulated time.
//!
//! Deterministic: one scenario and one seed give one trace, byte for byte.

pub mod histogram;
pub mod machine;
pub mod oracle;
pub mod outcome;
pub mod rng;
pub mod scenario;
pub mod ssd;
