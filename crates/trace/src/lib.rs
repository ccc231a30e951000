//! Block traces: streaming readers, statistics, transformations, surrogates and sampling plans. Everything works in one pass and in
//! bounded memory.
//!
//! | module | contents |
//! |---|---|
//! | [`request`] | requests, and errors of malformed lines |
//! | [`read`] | readers of ten formats, plain or compressed, as iterators of requests |
//! | [`stats`] | rates, bursts, sizes, dispersion, working set, volumes |
//! | [`transform`] | scaling, spreading and cutting time; mapping volumes; gaps for dependent replay |
//! | [`placement`] | selection of volumes and their assignment to clients and drives (SANDMAN 5.6) |
//! | [`surrogate`] | random traces with published marginals |
//! | [`sampling`] | selection of windows to measure and estimates for the whole trace |
//! | [`write`] | writer of plain CSV |
//!
//! [docs/traces.md](../../../docs/traces.md) documents the columns of each format and the statistics.
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
pub use read::{Format, OpenError, Options, Reader};
pub use request::{Malformed, Op, Reason, Request};
pub use stats::{Stats, Summary};
pub use surrogate::{Family, Generator, Member};
pub use write::Writer;
