//! Traces from files: opened, unpacked, told apart, parsed and put in order, a line at a time.
//!
//! | module | what it does |
//! |---|---|
//! | `source` | opens a file, unpacks gzip (of one or more members) and zstd by their magic bytes, counts what was read |
//! | `format` | the formats, and which one a file's beginning is |
//! | `fields` | fields and numbers of a line |
//! | `lines` | lines of bounded length with their numbers |
//! | `order` | a bounded window that sorts requests by time |
//! | `reader` | the iterator |
//! | `alibaba`, `tencent`, `msr`, `mqsim`, `vscsi`, `blkparse`, `csv` | a format each, with where it is documented |
//!
//! **Memory** is bounded by [`MAX_LINE`], [`MAX_VOLUMES`], the window of the order, and the decompressor's own.
//!
//! **Order.** Most traces are a little out of order, since they were written when requests ended. A window of
//! [`Options::window`] requests sorts them; of requests with one timestamp, the first in the file is the first. A request
//! that comes too late even for the window gets the time of the request before it, and is counted
//! ([`Reader::late`]).
//!
//! **Malformed lines** come out as errors, in between; the reader goes on behind them.

mod alibaba;
mod blkparse;
mod csv;
mod fields;
mod format;
mod lines;
mod mqsim;
mod msr;
mod order;
mod reader;
mod source;
mod tencent;
mod tolerant;
mod vscsi;
mod zstd;

pub use format::{Format, UnknownFormat};
pub use reader::{BlkparseAction, OpenError, Options, Reader};
pub use source::Position;
pub use tolerant::{Faults, Tolerant};

/// Longest line that is taken for a request, in bytes.
pub const MAX_LINE: usize = 4096;
/// Most volumes with names that are told apart.
pub const MAX_VOLUMES: usize = 1 << 20;
