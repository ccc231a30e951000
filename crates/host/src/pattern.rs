//! Content of a verified block: address, run, generation and a checksum.
//!
//! | bytes | content |
//! |---|---|
//! | 0..8 | magic number |
//! | 8..16 | logical block address |
//! | 16..24 | run: distinguishes blocks of this run from those of earlier runs |
//! | 24..28 | generation: number of writes of this block, from 1 |
//! | 28..32 | CRC32C of the rest of the block |
//! | 32.. | words computed from address, run and generation |
//!
//! The checksum finds a torn block; the words locate the tear. They are a counter with a SplitMix64 step: two instructions a
//! word, where a generator of `rand_xoshiro` would slow down the loop that fills blocks and change the content of old runs.

use pilotlight_nvme::digest;

use crate::rng::mix;

const MAGIC: u64 = u64::from_le_bytes(*b"PLBLOCK1");
const CRC: std::ops::Range<usize> = 28..32;
const BODY: usize = 32;
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Address, run and generation of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Logical block address.
    pub lba: u64,
    /// Run identifier.
    pub run: u64,
    /// Generation, from 1.
    pub generation: u32,
}

/// Content of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A whole block with this stamp.
    Whole(Stamp),
    /// Zeroes throughout.
    Zeroes,
    /// The header has this stamp but the checksum does not match.
    Torn {
        /// Stamp of the header.
        stamp: Stamp,
        /// Byte offset of the first difference; the block's length if only the checksum is wrong.
        differs_at: usize,
    },
    /// Not written by any run.
    Foreign,
}

/// Fills `block` (at least 512 bytes, a multiple of 8).
pub fn fill(block: &mut [u8], stamp: Stamp) {
    block[0..8].copy_from_slice(&MAGIC.to_le_bytes());
    block[8..16].copy_from_slice(&stamp.lba.to_le_bytes());
    block[16..24].copy_from_slice(&stamp.run.to_le_bytes());
    block[24..28].copy_from_slice(&stamp.generation.to_le_bytes());
    let mut word = seed(stamp);
    for chunk in block[BODY..].as_chunks_mut::<8>().0 {
        *chunk = word.to_le_bytes();
        word = word.wrapping_add(STEP);
    }
    let crc = checksum(block);
    block[CRC].copy_from_slice(&crc.to_le_bytes());
}

/// Content of `block`.
#[must_use]
pub fn inspect(block: &[u8]) -> Content {
    if u64_at(block, 0) != MAGIC {
        return if block.iter().all(|&b| b == 0) { Content::Zeroes } else { Content::Foreign };
    }
    let generation = u64_at(block, 24) as u32;
    let stamp = Stamp { lba: u64_at(block, 8), run: u64_at(block, 16), generation };
    if checksum(block).to_le_bytes() == block[CRC] {
        return Content::Whole(stamp);
    }
    Content::Torn { stamp, differs_at: first_difference(block, stamp) }
}

fn first_difference(block: &[u8], stamp: Stamp) -> usize {
    let mut word = seed(stamp);
    let words = block[BODY..].as_chunks::<8>().0;
    for (i, chunk) in words.iter().enumerate() {
        if *chunk != word.to_le_bytes() {
            return BODY + 8 * i;
        }
        word = word.wrapping_add(STEP);
    }
    block.len()
}

fn seed(stamp: Stamp) -> u64 {
    mix(stamp.lba ^ mix(stamp.run ^ mix(u64::from(stamp.generation))))
}

fn checksum(block: &[u8]) -> u32 {
    digest::append(digest::append(0, &block[..CRC.start]), &block[CRC.end..])
}

fn u64_at(block: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&block[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(len: usize, lba: u64, generation: u32) -> Vec<u8> {
        let mut b = vec![0; len];
        fill(&mut b, Stamp { lba, run: 9, generation });
        b
    }

    proptest! {
        #[test]
        fn a_filled_block_is_whole(lba: u64, run: u64, generation in 1u32.., large: bool) {
            let stamp = Stamp { lba, run, generation };
            let mut b = vec![0xaa; if large { 4096 } else { 512 }];
            fill(&mut b, stamp);
            prop_assert_eq!(inspect(&b), Content::Whole(stamp));
        }

        #[test]
        fn one_flipped_bit_is_detected(at in 0usize..4096, bit in 0u8..8) {
            let mut b = block(4096, 5, 3);
            b[at] ^= 1 << bit;
            prop_assert_ne!(inspect(&b), Content::Whole(Stamp { lba: 5, run: 9, generation: 3 }));
            prop_assert!(!matches!(inspect(&b), Content::Whole(_)));
        }
    }

    #[test]
    fn a_torn_block_reports_the_offset() {
        let (new, old) = (block(4096, 5, 4), block(4096, 5, 3));
        let torn = [&new[..1024], &old[1024..]].concat();
        let stamp = Stamp { lba: 5, run: 9, generation: 4 };
        assert_eq!(inspect(&torn), Content::Torn { stamp, differs_at: 1024 });
    }

    #[test]
    fn zeroes_and_foreign_blocks_are_distinguished() {
        assert_eq!(inspect(&[0; 512]), Content::Zeroes);
        let mut b = [0; 512];
        b[511] = 1;
        assert_eq!(inspect(&b), Content::Foreign);
    }
}
