//! Block traces: streaming readers, statistics, transformations, surrogates and sampling plans.
//!
//! A trace never fits in memory: everything here goes through it once, in memory that does not grow with its length.
//!
//! | module | what it holds |
//! |---|---|
//! | [`request`] | a request, and why a line is none |
//! | [`read`] | files of seven formats, plain or compressed, as an iterator of requests |
//! | [`stats`] | rates, bursts, sizes, dispersion, working set, volumes |
//! | [`transform`] | time scaled, spread or cut; volumes mapped; gaps for dependent replay |
//! | [`placement`] | which volumes are replayed, by whom and where to (SANDMAN 5.6) |
//! | [`surrogate`] | seeded traces with the published marginals |
//! | [`sampling`] | which windows of a dense day to measure, and what they say of the day |
//! | [`write`] | traces as plain CSV |
//!
//! [docs/traces.md](../../../docs/traces.md) says what every format's columns and every statistic mean.
#![forbid(unsafe_code)]

pub mod placement;
mod random;
pub mod read;
pub mod request;
pub mod sampling;
pub mod stats;
pub mod surrogate;
pub mod transform;
pub mod write;

pub use placement::{Candidate, Place, Placement, Plan, assign};
pub use read::{Format, Options, Reader};
pub use request::{Malformed, Op, Reason, Request};
pub use stats::{Stats, Summary};
pub use surrogate::{Family, Generator, Member};
pub use write::Writer;
