//! Background work: scrubbing of namespaces, and trimming of freed ranges.
//!
//! # The problem
//! Damage of blocks that are not read stays undetected. Detecting it takes reads of every block, which must not delay
//! hosts, and a checksum stored apart from the block. After an unclean stop either of the two may be the newer one.
//!
//! # Terms
//! A *range* is 64 KiB of a namespace, a *block* 4 KiB. A range is *clean* while its checksums are valid, and *dirty* from
//! before its data is written until it has been summed again. A *mark* is the durable dirty bit in the sums file.
//!
//! # The algorithm
//! A write to a clean range waits until the range's mark is durable (`sums/file.rs`); a write to a dirty one does not wait.
//! A dirty range is summed again in the background: its data is flushed, its checksums are written and synced, and then its
//! mark is cleared without a sync.
//!
//! # The properties
//! - After a stop at any moment, the data of a range without a mark matches its checksums.
//! - In a dirty range only blocks not written since they were summed are reported.
//! - The request path takes no lock, does not allocate and makes no system call; namespaces without checksums bypass it.

mod channel;
mod class;
pub mod control;
mod drive;
pub mod knobs;
pub mod pace;
pub mod scrub;
pub mod sums;
pub mod tracked;
pub mod upkeep;
