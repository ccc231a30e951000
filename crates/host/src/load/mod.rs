//! The load generator.
//!
//! | module | contents |
//! |---|---|
//! | [`spec`] | description of a run, checked against the namespace |
//! | `picker` | choice of the next command |
//! | `files` | order of reads of whole files |
//! | [`replay`] | commands of a trace, distributed to the threads |
//! | `due` | source of an open loop: arrivals or a trace |
//! | `worker` | polling loop of a thread over its connections |
//! | `executor` | issue and completion of commands |
//! | `stats` | counters and histograms of a thread; they are merged, percentiles never averaged |
//! | [`report`] | result, as a table and as JSON |
//! | `run` | connects, starts the threads, keeps the association alive, collects the results |
//!
//! **Latency** is the time from the *arrival* (open loop) or the start of the batch (closed loop) to the receipt of the batch with
//! the completion. The clock is read once a batch, after its first completion, so the host's time to build and parse batches
//! counts as latency: the values err on the large side.

mod due;
mod executor;
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
pub use stats::new_histogram;
