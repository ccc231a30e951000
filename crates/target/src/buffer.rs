//! Data buffers: a bounded pool for each I/O thread.
//!
//! The problem: 128 queues of 1,024 commands of 128 KiB each would be 16 GiB, so memory for data cannot be set aside per
//! command. Each I/O thread owns one arena of fixed size; a command that finds it exhausted waits, and its R2T with it.
//!
//! The algorithm: a binary buddy allocator over one anonymous mapping, from [`MIN_BUFFER`] to [`MAX_BUFFER`] bytes, so
//! that each buffer is contiguous, aligned to 4 KiB (O_DIRECT), and most recently used memory is handed out first (it is
//! still in the cache).
//!
//! Properties: no two live buffers overlap; a freed buffer merges with its free buddy; when all are freed the arena is
//! whole again; allocation and release touch no system allocator.

/// Smallest buffer in bytes; the alignment of all.
pub const MIN_BUFFER: usize = 4096;
/// Largest buffer in bytes: one command's data (MDTS).
pub const MAX_BUFFER: usize = 128 * 1024;

/// Memory for one command's data, owned; given back with [`BufferPool::free`].
#[derive(Debug)]
pub struct Buffer {}

/// One I/O thread's buffers.
#[derive(Debug)]
pub struct BufferPool {}
