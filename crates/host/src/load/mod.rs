//! Load: what to send, when, and what came of it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`spec`] | the description of a run, checked against the namespace |
//! | `picker` | which command comes next |
//! | `worker` | one thread's polling loop over its connections |
//! | `stats` | counts and histograms of one thread; they are merged, percentiles never averaged |
//! | [`report`] | the result, as a table and as JSON |
//! | `run` | connects, starts the threads, keeps the association alive, gathers |
//!
//! **What a latency is.** From the moment a command was *due* (open loop) or the batch that it belongs to was begun
//! (closed loop) to the moment the batch with its completion was received. The clock is read once a batch, right after
//! the first completion in it was found, so the time the host spends on building and parsing batches counts as latency:
//! the figures err on the large side.

mod picker;
pub mod report;
mod run;
pub mod spec;
mod stats;
mod worker;

pub use report::Report;
pub use run::{Progress, run};
pub use spec::{LoadSpec, OpenLoop, SpecError};
pub(crate) use stats::new_histogram;
