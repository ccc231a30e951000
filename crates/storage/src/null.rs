//! A namespace without storage: writes are discarded, reads return zeroes. For measurements of the rest of the server.
//!
//! Unlike a null device it fills reads with zeroes: a buffer may hold data of another host.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Backend, Channel, Completion, Geometry, IoError, Op, Request, Submitted, check_geometry};

/// A namespace without storage.
#[derive(Debug)]
pub struct NullBackend {
    block_size: u32,
    blocks: Arc<AtomicU64>,
}

impl NullBackend {
    /// A namespace of `blocks` blocks of `block_size` bytes.
    ///
    /// # Errors
    /// A block size that is neither 512 nor 4096, no blocks at all, or more bytes than a 64-bit number holds.
    pub fn new(block_size: u32, blocks: u64) -> io::Result<Self> {
        check_geometry(block_size, blocks)?;
        Ok(Self { block_size, blocks: Arc::new(AtomicU64::new(blocks)) })
    }
}

impl Backend for NullBackend {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_size: self.block_size,
            blocks: self.blocks.load(Ordering::Acquire),
            volatile_write_cache: false,
            deallocated_reads_zero: true,
            is_read_only: false,
        }
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn open_channel(&self, _depth: u32) -> io::Result<Box<dyn Channel>> {
        Ok(Box::new(NullChannel { block_size: self.block_size as usize, blocks: Arc::clone(&self.blocks) }))
    }

    fn resize(&self, blocks: Option<u64>) -> io::Result<Geometry> {
        if let Some(blocks) = blocks {
            check_geometry(self.block_size, blocks)?;
            self.blocks.store(blocks, Ordering::Release);
        }
        Ok(self.geometry())
    }
}

struct NullChannel {
    block_size: usize,
    blocks: Arc<AtomicU64>,
}

impl Channel for NullChannel {
    fn submit(&mut self, mut request: Request, _now_ns: u64) -> Submitted {
        if let Err(error) = request.check_end(self.blocks.load(Ordering::Acquire)) {
            return Submitted::Done(request.complete(Err(error)));
        }
        match request.op {
            Op::Read => request.data(self.block_size).fill(0),
            Op::CompareAndWrite { .. } => {
                let (expected, _) = request.compare_and_write_data(self.block_size);
                if expected.iter().any(|&byte| byte != 0) {
                    return Submitted::Done(request.complete(Err(IoError::Miscompare)));
                }
            }
            _ => {}
        }
        Submitted::Done(request.complete(Ok(())))
    }

    fn poll(&mut self, _now_ns: u64, _done: &mut Vec<Completion>) {}

    fn in_flight(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::super::conformance::{Subject, check};
    use super::*;

    #[test]
    fn conforms() {
        let create =
            |block_size, blocks| Arc::new(NullBackend::new(block_size, blocks).expect("valid")) as Arc<dyn Backend>;
        check(&Subject { create: &create, stores: false, resizes: true, counts_space: true, requests: 2_000, seed: 1 });
    }
}
