//! Block traces: streaming readers, statistics, transformations, surrogates and sampling plans.
//!
//! A trace never fits in memory: everything here goes through it once, in memory that does not grow with its length.
//!
//! | module | what it holds |
//! |---|---|
//! | [`request`] | a request, and why a line is none |
//! | [`read`] | files of seven formats, plain or compressed, as an iterator of requests |
//! | [`stats`] | rates, bursts, sizes, dispersion, working set, volumes |
//!
//! [docs/traces.md](../../../docs/traces.md) says what every format's columns and every statistic mean.
#![forbid(unsafe_code)]

mod random;
pub mod read;
pub mod request;
pub mod stats;

pub use read::{Format, Options, Reader};
pub use request::{Malformed, Op, Reason, Request};
pub use stats::{Stats, Summary};
