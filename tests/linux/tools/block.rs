//! Contents of the test blocks: shared by the verifier in the guest (`blockcheck.rs`) and by the checker of the write
//! record (`crates/pilotlight/tests/linux/record.rs`).
//!
//! Every 4 KiB block has in each of its eight sectors its address, generation and sector number; the rest of the sector
//! is derived from these three. So a block in the wrong place, a stale one, a torn one and a corrupt one are
//! distinguished.
//!
//! A *mark* is a block that records durable generations: [`MARK_MAGIC`], its number, the number of blocks, and from
//! [`MARK_GENERATIONS`] on the least generation of each of them, four bytes each.

pub const BLOCK: usize = 4096;
pub const SECTOR: usize = 512;
pub const BLOCK_MAGIC: u64 = u64::from_le_bytes(*b"PLBLOCK1");
pub const MARK_MAGIC: u64 = u64::from_le_bytes(*b"PLMARK01");
pub const MARK_GENERATIONS: usize = 24;

/// SplitMix64: small, seeded, sufficient to choose addresses and fill sectors.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

pub fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

pub fn get(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn fill_sector(sector: &mut [u8], address: u64, generation: u64, index: u64) {
    put(sector, 0, BLOCK_MAGIC);
    put(sector, 8, address);
    put(sector, 16, generation);
    put(sector, 24, index);
    let mut filler = Random(address ^ generation.rotate_left(24) ^ index.rotate_left(56));
    for at in (32..SECTOR).step_by(8) {
        put(sector, at, filler.next());
    }
}

pub fn fill(block: &mut [u8], address: u64, generation: u64) {
    for (index, sector) in block.chunks_exact_mut(SECTOR).enumerate() {
        fill_sector(sector, address, generation, index as u64);
    }
}

/// Checks a block; the error is the difference. Generation 0 is a block never written, which must be zero.
pub fn check(block: &[u8], address: u64, generation: u64) -> Result<(), String> {
    if generation == 0 {
        let zero = block.iter().all(|&b| b == 0);
        return if zero { Ok(()) } else { Err(format!("block {address}: not zero, though never written")) };
    }
    let mut expected = [0u8; SECTOR];
    for (index, sector) in block.chunks_exact(SECTOR).enumerate() {
        fill_sector(&mut expected, address, generation, index as u64);
        if sector != expected {
            let found: Vec<u64> = (0..4).map(|word| get(sector, word * 8)).collect();
            return Err(format!(
                "block {address} sector {index}: expected generation {generation}, \
                 found magic {:#x} address {} generation {} sector {}",
                found[0], found[1], found[2], found[3]
            ));
        }
    }
    Ok(())
}
