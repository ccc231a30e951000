//! Load: what to send, when, and what came of it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`spec`] | the description of a run, checked against the namespace |
//! | `picker` | which command comes next |
//! | `files` | the order of reads of whole files |
//! | [`replay`] | a trace's commands on their way to the threads |
//! | `due` | what is due when: arrivals or a trace |
//! | `worker` | one thread's polling loop over its connections |
//! | `stats` | counts and histograms of one thread; they are merged, percentiles never averaged |
//! | [`report`] | the result, as a table and as JSON |
//! | `run` | connects, starts the threads, keeps the association alive, gathers |
//!
//! **What a latency is.** From the moment a command was *due* (open loop) or the batch that it belongs to was begun
//! (closed loop) to the moment the batch with its completion was received. The clock is read once a batch, right after
//! the first completion in it was found, so the time the host spends on building and parsing batches counts as latency:
//! the figures err on the large side.

mod due;
mod files;
mod picker;
pub mod replay;
pub mod report;
mod run;
pub mod spec;
mod stats;
mod worker;

pub use replay::{Commands, Space, TraceCommand};
pub use report::Report;
pub use run::{Progress, replay, run};
pub use spec::{LoadSpec, OpenLoop, SpecError};
pub(crate) use stats::new_histogram;
