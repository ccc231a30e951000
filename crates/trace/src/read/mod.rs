//! Readers of traces: decompression, detection of the format, parsing and sorting, one line at a time.
//!
//! | module | purpose |
//! |---|---|
//! | `source` | opens a file, detects and decompresses gzip (of one or more members) and zstd, counts the bytes read |
//! | `format` | the formats and their detection |
//! | `foreign` | kinds of files that are not read, and their conversion |
//! | `fields` | parsers of fields and numbers |
//! | `lines` | lines of bounded length |
//! | `names` | numbers of volumes that have names |
//! | `order` | sorts requests by time in a bounded window |
//! | `reader` | the iterator |
//! | `alibaba`, `tencent`, `msr`, `mqsim`, `vscsi`, `blkparse`, `spc`, `systor`, `fio`, `csv` | one format each, with its source |
//!
//! **Memory** is bounded by [`MAX_LINE`], [`MAX_VOLUMES`], the sorting window, and the decompressor.
//!
//! **Order.** Many traces are slightly out of order, because they were written at the completion of requests. A window of
//! [`Options::window`] requests sorts them; requests with equal times keep the order of the file. A request that is too late for the
//! window gets the time of its predecessor and is counted ([`Reader::late`]).
//!
//! **Malformed lines** are returned as errors; the reader continues after them.

mod alibaba;
mod blkparse;
mod csv;
mod fields;
mod fio;
mod foreign;
mod format;
mod lines;
mod mqsim;
mod msr;
mod names;
mod order;
mod reader;
mod source;
mod spc;
mod systor;
mod tencent;
mod tolerant;
mod vscsi;
mod zstd;

pub use blkparse::BlkparseAction;
pub use format::{Format, UnknownFormat};
pub use reader::{OpenError, Options, Reader};
pub use source::Position;
pub use tolerant::{Faults, Tolerant};

/// Longest line, in bytes.
pub const MAX_LINE: usize = 4096;
/// Most volumes with names.
pub const MAX_VOLUMES: usize = 1 << 20;
