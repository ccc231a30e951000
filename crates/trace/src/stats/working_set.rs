//! Number of distinct 4 KiB blocks of a trace.
//!
//! Up to 2^20 blocks are kept in a set; beyond, the set is converted to a HyperLogLog of 2^16 registers (Flajolet, Fusy, Gandouet and
//! Meunier, AofA 2007) with a relative standard error of 1.04 / 2^8 = 0.41 %. The work is proportional to the blocks of each request.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use serde::Serialize;

use crate::random::mix;
use crate::request::Request;

/// Bytes of a block.
const BLOCK: u64 = 4096;
/// Most blocks in the set.
const EXACT: usize = 1 << 20;
/// Registers, as a power of two.
const BITS: u32 = 16;

/// The working set of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WorkingSet {
    /// Distinct blocks of 4 KiB.
    pub blocks: u64,
    /// Size of the blocks in bytes.
    pub bytes: u64,
    /// Whether this is exact, or an estimate with a standard error of 0.41 %.
    pub exact: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Blocks {
    Exact(HashSet<(u32, u64), BuildHasherDefault<Mixed>>),
    Estimated(Vec<u8>),
}

impl Default for Blocks {
    fn default() -> Self {
        Self::Exact(HashSet::default())
    }
}

impl Blocks {
    pub(super) fn add(&mut self, request: &Request) {
        let last = request.offset.saturating_add(u64::from(request.bytes).max(1) - 1) / BLOCK;
        for block in request.offset / BLOCK..=last {
            self.add_block(request.volume, block);
        }
    }

    fn add_block(&mut self, volume: u32, block: u64) {
        match self {
            Self::Estimated(registers) => note(registers, volume, block),
            Self::Exact(set) => {
                set.insert((volume, block));
                if set.len() > EXACT {
                    let mut registers = vec![0; 1 << BITS];
                    set.iter().for_each(|&(volume, block)| note(&mut registers, volume, block));
                    *self = Self::Estimated(registers);
                }
            }
        }
    }

    pub(super) fn working_set(&self) -> WorkingSet {
        let (blocks, exact) = match self {
            Self::Exact(set) => (set.len() as u64, true),
            Self::Estimated(registers) => (estimate(registers), false),
        };
        WorkingSet { blocks, bytes: blocks.saturating_mul(BLOCK), exact }
    }
}

/// Updates the register selected by the block's hash with the number of leading zeroes of the rest of the hash, plus one.
fn note(registers: &mut [u8], volume: u32, block: u64) {
    let hash = mix(mix(u64::from(volume).wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ block);
    let register = &mut registers[(hash >> (64 - BITS)) as usize];
    let zeroes = (hash << BITS | 1 << (BITS - 1)).leading_zeros() as u8 + 1;
    *register = (*register).max(zeroes);
}

/// Estimate from the harmonic mean of the registers, without the correction for small sets, which are exact.
fn estimate(registers: &[u8]) -> u64 {
    let m = registers.len() as f64;
    let sum: f64 = registers.iter().map(|&zeroes| (-f64::from(zeroes)).exp2()).sum();
    let alpha = 0.7213 / (1.0 + 1.079 / m);
    (alpha * m * m / sum).round() as u64
}

/// A fast hash of integers that is the same on every machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0 ^ number.wrapping_add(0x9e37_79b9_7f4a_7c15));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Op;

    fn request(volume: u32, offset: u64, bytes: u32) -> Request {
        Request { at_ns: 0, volume, op: Op::Read, offset, bytes }
    }

    #[test]
    fn a_block_counts_once_per_volume() {
        let mut blocks = Blocks::default();
        for one in [request(0, 0, 4096), request(0, 4095, 2), request(0, 100, 1), request(1, 0, 8192)] {
            blocks.add(&one);
        }
        assert_eq!(blocks.working_set(), WorkingSet { blocks: 4, bytes: 16384, exact: true });
        blocks.add(&request(0, u64::MAX, 1));
        assert_eq!(blocks.working_set().blocks, 5);
    }

    #[test]
    fn a_large_set_is_estimated_within_its_error() {
        let mut blocks = Blocks::default();
        let mut touched = 0;
        for wanted in [1 << 20, 3_000_000, 6_000_000_u64] {
            while touched < wanted {
                blocks.add(&request((touched >> 16) as u32 % 3, touched * BLOCK, 4096 * 16));
                touched += 16;
            }
            let found = blocks.working_set();
            let error = found.blocks as f64 / touched as f64 - 1.0;
            assert_eq!(found.exact, wanted == 1 << 20);
            assert!(error.abs() < 4.0 * 0.0041, "{wanted}: {error}"); // four standard errors
        }
    }
}
