//! Files, metrics and fingerprints of results, measured or simulated.
//!
//! - [`values`]: a folder for each experiment with all values of all runs. [`fingerprint`]: distinguishes current results from stale ones.
//! - [`folders`]: where results of a project are. [`metric`]: names of metrics, with their units and better directions.

pub mod fingerprint;
pub mod folders;
pub mod metric;
#[cfg(test)]
mod page;
mod place;
pub mod values;
