//! Checksums of a namespace: their file, dirty ranges, bad blocks.

pub mod bad;
pub mod bits;
pub mod file;
pub mod format;
pub mod ranges;
pub mod tracker;

/// Bytes of a block, the unit of checksums.
pub const BLOCK: u64 = 4096;
/// Bytes of a range, the unit of marks and reads.
pub const RANGE: u64 = BLOCK * BLOCKS as u64;
/// Blocks of a range.
pub const BLOCKS: usize = 16;

/// The checksums (CRC-32C) of a range's blocks; those beyond the end of the namespace are 0.
pub type Sums = [u32; BLOCKS];

/// The checksums of a range's data, which may be shorter in the last range.
#[must_use]
pub fn sums_of(data: &[u8]) -> Sums {
    let mut sums = [0; BLOCKS];
    for (sum, block) in sums.iter_mut().zip(data.chunks(BLOCK as usize)) {
        *sum = crc32c::crc32c(block);
    }
    sums
}
