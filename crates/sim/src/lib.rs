//! A discrete-event simulator of a storage server: cores, queues, drives, network and power.
//!
//! Deterministic: one scenario and one seed yield one trace, byte for byte.

pub mod audit;
pub mod engine;
pub mod histogram;
pub mod jobs;
mod limiter;
pub mod machine;
pub mod oracle;
pub mod outcome;
pub mod power;
pub mod rng;
pub mod scenario;
mod schedutil;
pub mod sensor;
pub mod ssd;
pub mod trace;

pub use engine::{RunError, ScenarioError, Source, run, run_polls, run_replay, run_replay_traced, run_traced};
