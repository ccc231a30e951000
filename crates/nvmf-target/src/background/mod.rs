//! Background work: scrubbing of namespaces, and trimming of the ranges that hosts have freed.
//!
//! # The problem
//! Blocks that nobody reads can be damaged without anybody noticing, and finding out takes reads of every block, which must not
//! delay hosts. Whether a block is damaged shows only against a checksum that is kept apart from it, and after an unclean stop
//! neither the block nor its checksum can be trusted to be the newer one.
//!
//! # The words
//! A *range* is 64 KiB of a namespace, a *block* 4 KiB. A range is *clean* while the checksums of its blocks hold, and *dirty* from
//! before its data is written until it has been summed again. A *mark* is the bit in the sums file that says so durably.
//!
//! # The algorithm
//! A write to a clean range waits until the range's mark is durable (`sums/file.rs`); a write to a dirty one does not wait. A dirty
//! range is summed again in the background: its data is flushed, its checksums are written and synced, and then its mark is
//! taken away without a sync.
//!
//! # The properties
//! - After a stop at any moment, a range without a mark has the data that its checksums say.
//! - A dirty range is never reported, except for blocks in it that nobody has written since they were summed.
//! - Nothing on the path of a request locks, allocates or calls the kernel; namespaces without checksums take another path.

mod channel;
pub mod control;
pub mod knobs;
pub mod pace;
mod scrub;
pub mod sums;
pub mod tasks;
pub mod tracked;
pub mod upkeep;
