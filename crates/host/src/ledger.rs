//! The ledger: generations that each block may hold.
//!
//! A read that overlaps a write of the same block may return the old or the new content, and a failed write may have happened or
//! not. Everything else is a fault.
//!
//! A block's *generation* is the number of changes (writes or zeroings) made to it; 0 is the content before the run. `issued` is
//! the last generation sent, `settled` the last one acknowledged.
//!
//! A read notes the *minimum generation*, `settled` at the time it is sent. Its data may have any generation from there to
//! `issued` at the time it completes. Changes of one block do not overlap ([`Ledger::begin`] refuses a second one), so
//! generations become visible in order.
//!
//! Properties (tested with a reference store): a correct store has no mismatch; a block of another address, a generation
//! below the minimum, a mixture of two generations, a generation that was never written, and unexpected zeroes are each
//! reported as such.

mod journal;

pub use journal::{Damage, Journal, LedgerError, LedgerFile};

use crate::pattern::{Content, Stamp, fill, inspect};

/// Most blocks of a ledger: three words each, 3 GiB.
pub const MAX_BLOCKS: u64 = 1 << 28;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    issued: u32,
    settled: u32,
    /// The last generation that zeroed the block; 0 for none.
    zeroed: u32,
    busy: bool,
}

/// A block with wrong content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Content of another block.
    #[error("block {lba} holds block {found} (generation {generation}): swapped or misdirected")]
    Swapped {
        /// Address.
        lba: u64,
        /// Address in the content.
        found: u64,
        /// Generation of the content.
        generation: u32,
    },
    /// Older than the generation acknowledged when the read was sent; after a crash: than the durable one.
    #[error("block {lba} is stale: it holds generation {generation}, expected {min_generation} or newer")]
    Stale {
        /// Address.
        lba: u64,
        /// Generation of the content.
        generation: u32,
        /// The minimum.
        min_generation: u32,
    },
    /// A generation that was never written, or was a zeroing.
    #[error("block {lba} holds generation {generation}, but the last one sent is {issued}")]
    Unwritten {
        /// Address.
        lba: u64,
        /// Generation of the content.
        generation: u32,
        /// The last generation sent.
        issued: u32,
    },
    /// Parts of different generations.
    #[error("block {lba} is torn: generation {generation} up to byte {differs_at}, different content from there")]
    Torn {
        /// Address.
        lba: u64,
        /// Generation of the header.
        generation: u32,
        /// Byte offset of the first difference.
        differs_at: usize,
    },
    /// Zeroes, but the block was not zeroed since.
    #[error("block {lba} is lost: it holds zeroes, expected generation {min_generation} or newer")]
    Lost {
        /// Address.
        lba: u64,
        /// The minimum.
        min_generation: u32,
    },
    /// Content of another run, or unknown.
    #[error("block {lba} holds content that the run never wrote")]
    Foreign {
        /// Address.
        lba: u64,
    },
}

/// Generations of a range of blocks.
#[derive(Debug)]
pub struct Ledger {
    first: u64,
    run: u64,
    block_size: usize,
    entries: Vec<Entry>,
}

impl Ledger {
    /// A ledger of `blocks` blocks from `first`; `run` identifies this run's blocks.
    ///
    /// # Panics
    /// If there are more than [`MAX_BLOCKS`].
    #[must_use]
    pub fn new(first: u64, blocks: u64, block_size: u32, run: u64) -> Self {
        assert!(blocks <= MAX_BLOCKS, "a ledger of {blocks} blocks");
        let entries = vec![Entry::default(); blocks as usize];
        Self { first, run, block_size: block_size as usize, entries }
    }

    fn range(&self, lba: u64, blocks: u32) -> std::ops::Range<usize> {
        let start = (lba - self.first) as usize;
        start..start + blocks as usize
    }

    /// Starts a change of `blocks` blocks; false, without effect, if one of them is already being changed.
    pub fn begin(&mut self, lba: u64, blocks: u32, zeroing: bool) -> bool {
        let range = self.range(lba, blocks);
        let entries = &mut self.entries[range];
        if entries.iter().any(|e| e.busy) {
            return false;
        }
        for e in entries {
            e.busy = true;
            e.issued += 1;
            if zeroing {
                e.zeroed = e.issued;
            }
        }
        true
    }

    /// Writes the content of a started change into `data`.
    pub fn fill(&self, lba: u64, data: &mut [u8]) {
        let first = (lba - self.first) as usize;
        for (i, block) in data.chunks_exact_mut(self.block_size).enumerate() {
            let generation = self.entries[first + i].issued;
            fill(block, Stamp { lba: lba + i as u64, run: self.run, generation });
        }
    }

    /// Ends a change. A failed one may have happened or not.
    pub fn end(&mut self, lba: u64, blocks: u32, succeeded: bool) {
        let range = self.range(lba, blocks);
        for e in &mut self.entries[range] {
            e.busy = false;
            if succeeded {
                e.settled = e.issued;
            }
        }
    }

    /// Minimum generations for a read that is about to be sent.
    pub fn min_generations(&self, lba: u64, into: &mut [u32]) {
        let range = self.range(lba, into.len() as u32);
        for (min_generation, e) in into.iter_mut().zip(&self.entries[range]) {
            *min_generation = e.settled;
        }
    }

    /// Checks the data of a read; returns the number of correct blocks and calls `report` for each other one.
    pub fn check(&self, lba: u64, min_generations: &[u32], data: &[u8], mut report: impl FnMut(Mismatch)) -> u32 {
        let mut good = 0;
        for (i, (block, &min_generation)) in data.chunks_exact(self.block_size).zip(min_generations).enumerate() {
            match self.check_block(lba + i as u64, min_generation, inspect(block)) {
                Ok(()) => good += 1,
                Err(mismatch) => report(mismatch),
            }
        }
        good
    }

    fn check_block(&self, lba: u64, min_generation: u32, content: Content) -> Result<(), Mismatch> {
        let e = self.entries[(lba - self.first) as usize];
        if min_generation == 0 && self.is_foreign(content) {
            return Ok(()); // any content is possible before this run
        }
        match content {
            Content::Zeroes if e.zeroed > 0 && e.zeroed >= min_generation => Ok(()),
            Content::Zeroes => Err(Mismatch::Lost { lba, min_generation }),
            Content::Foreign => Err(Mismatch::Foreign { lba }),
            Content::Torn { stamp, differs_at } => {
                Err(Mismatch::Torn { lba, generation: stamp.generation, differs_at })
            }
            Content::Whole(stamp) => check_stamp(&e, lba, min_generation, stamp, self.run),
        }
    }

    /// Whether this run cannot have written it as a block.
    fn is_foreign(&self, content: Content) -> bool {
        match content {
            Content::Zeroes | Content::Foreign => true,
            Content::Torn { stamp, .. } | Content::Whole(stamp) => stamp.run != self.run,
        }
    }

    /// Changed ranges (first block, number of blocks, at most `max_blocks`), in order.
    pub fn changed_ranges(&self, max_blocks: u32) -> impl Iterator<Item = (u64, u32)> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = at + self.entries[at..].iter().position(|e| e.issued > 0)?;
            let run = self.entries[start..].iter().take(max_blocks as usize).take_while(|e| e.issued > 0).count();
            at = start + run;
            Some((self.first + start as u64, run as u32))
        })
    }
}

fn check_stamp(e: &Entry, lba: u64, min_generation: u32, stamp: Stamp, run: u64) -> Result<(), Mismatch> {
    let generation = stamp.generation;
    if stamp.run != run {
        return Err(Mismatch::Foreign { lba });
    }
    if stamp.lba != lba {
        return Err(Mismatch::Swapped { lba, found: stamp.lba, generation });
    }
    if generation < min_generation {
        return Err(Mismatch::Stale { lba, generation, min_generation });
    }
    if generation > e.issued || generation == e.zeroed {
        return Err(Mismatch::Unwritten { lba, generation, issued: e.issued });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BS: usize = 512;
    const N: u64 = 8;

    #[derive(Clone, Debug)]
    enum Step {
        Write {
            lba: u64,
            blocks: u32,
            zero: bool,
        },
        /// Apply the oldest change to the store.
        Apply,
        /// Acknowledge the oldest applied change.
        Settle,
        Fail,
        SendRead {
            lba: u64,
            blocks: u32,
        },
        /// Complete the oldest read.
        ServeRead,
    }

    fn step() -> impl Strategy<Value = Step> {
        let range = (0..N).prop_flat_map(|lba| (Just(lba), 1..=(N - lba).min(3) as u32));
        prop_oneof![
            3 => (range.clone(), any::<bool>())
                .prop_map(|((lba, blocks), zero)| Step::Write { lba, blocks, zero }),
            3 => Just(Step::Apply),
            3 => Just(Step::Settle),
            1 => Just(Step::Fail),
            3 => range.prop_map(|(lba, blocks)| Step::SendRead { lba, blocks }),
            3 => Just(Step::ServeRead),
        ]
    }

    proptest! {
        /// Overlapping commands on a correct store cause no mismatch.
        #[test]
        fn a_correct_store_has_no_mismatch(steps in proptest::collection::vec(step(), 1..300)) {
            let mut ledger = Ledger::new(100, N, BS as u32, 1);
            let mut store = vec![0u8; N as usize * BS];
            let mut changes: Vec<(u64, u32, Vec<u8>, bool)> = Vec::new();
            let mut reads: Vec<(u64, Vec<u32>)> = Vec::new();
            for step in steps {
                match step {
                    Step::Write { lba, blocks, zero } if ledger.begin(100 + lba, blocks, zero) => {
                        let mut data = vec![0; blocks as usize * BS];
                        if !zero {
                            ledger.fill(100 + lba, &mut data);
                        }
                        changes.push((lba, blocks, data, false));
                    }
                    Step::Apply => {
                        if let Some(c) = changes.iter_mut().find(|c| !c.3) {
                            store[c.0 as usize * BS..][..c.2.len()].copy_from_slice(&c.2);
                            c.3 = true;
                        }
                    }
                    Step::Settle => {
                        if let Some(i) = changes.iter().position(|c| c.3) {
                            let c = changes.remove(i);
                            ledger.end(100 + c.0, c.1, true);
                        }
                    }
                    Step::Fail if !changes.is_empty() => {
                        let c = changes.remove(0); // applied or not: both are allowed
                        ledger.end(100 + c.0, c.1, false);
                    }
                    Step::SendRead { lba, blocks } => {
                        let mut min_generations = vec![0; blocks as usize];
                        ledger.min_generations(100 + lba, &mut min_generations);
                        reads.push((lba, min_generations));
                    }
                    Step::ServeRead if !reads.is_empty() => {
                        let (lba, min_generations) = reads.remove(0);
                        let data = &store[lba as usize * BS..][..min_generations.len() * BS];
                        let mut mismatches = Vec::new();
                        let good = ledger.check(100 + lba, &min_generations, data, |m| mismatches.push(m));
                        prop_assert!(mismatches.is_empty(), "{:?}", mismatches);
                        prop_assert_eq!(good as usize, min_generations.len());
                    }
                    _ => {}
                }
            }
        }
    }

    /// A ledger of 4 blocks, each written `generations` times.
    fn written(generations: u32) -> (Ledger, Vec<Vec<u8>>) {
        let mut ledger = Ledger::new(0, 4, BS as u32, 1);
        let mut images = Vec::new();
        for _ in 0..generations {
            assert!(ledger.begin(0, 4, false));
            let mut data = vec![0; 4 * BS];
            ledger.fill(0, &mut data);
            ledger.end(0, 4, true);
            images.push(data);
        }
        (ledger, images)
    }

    fn mismatches(ledger: &Ledger, data: &[u8]) -> Vec<Mismatch> {
        let mut min_generations = vec![0; data.len() / BS];
        ledger.min_generations(0, &mut min_generations);
        let mut mismatches = Vec::new();
        ledger.check(0, &min_generations, data, |m| mismatches.push(m));
        mismatches
    }

    #[test]
    fn each_fault_has_its_mismatch() {
        let (ledger, images) = written(2);
        let good = &images[1];
        assert_eq!(mismatches(&ledger, good), []);

        let mut swapped = good.clone();
        let (a, b) = swapped.split_at_mut(BS);
        a.swap_with_slice(&mut b[..BS]);
        let expected = [(0, 1), (1, 0)].map(|(lba, found)| Mismatch::Swapped { lba, found, generation: 2 });
        assert_eq!(mismatches(&ledger, &swapped), expected);

        let stale = [&images[0][..BS], &good[BS..]].concat();
        assert_eq!(mismatches(&ledger, &stale), [Mismatch::Stale { lba: 0, generation: 1, min_generation: 2 }]);

        let torn = [&good[..256], &images[0][256..BS], &good[BS..]].concat();
        assert_eq!(mismatches(&ledger, &torn), [Mismatch::Torn { lba: 0, generation: 2, differs_at: 256 }]);

        let lost = [&[0; BS][..], &good[BS..]].concat();
        assert_eq!(mismatches(&ledger, &lost), [Mismatch::Lost { lba: 0, min_generation: 2 }]);

        let foreign = [&[7; BS][..], &good[BS..]].concat();
        assert_eq!(mismatches(&ledger, &foreign), [Mismatch::Foreign { lba: 0 }]);

        let (_, future) = written(3);
        let expected = [0, 1, 2, 3].map(|lba| Mismatch::Unwritten { lba, generation: 3, issued: 2 });
        assert_eq!(mismatches(&ledger, &future[2]), expected);
    }

    #[test]
    fn blocks_of_another_run_are_allowed_until_the_first_write() {
        let (mut ledger, _) = written(0);
        let mut other = vec![0; BS];
        fill(&mut other, Stamp { lba: 77, run: 2, generation: 9 });
        assert_eq!(mismatches(&ledger, &other), []);
        assert!(ledger.begin(0, 1, false));
        ledger.end(0, 1, true);
        assert_eq!(mismatches(&ledger, &other), [Mismatch::Foreign { lba: 0 }]);
    }

    #[test]
    fn zeroes_are_allowed_in_zeroed_blocks_only() {
        let (mut ledger, images) = written(1);
        assert!(ledger.begin(1, 2, true));
        ledger.end(1, 2, true);
        let zeroed = [&images[0][..BS], &[0; 2 * BS], &images[0][3 * BS..]].concat();
        assert_eq!(mismatches(&ledger, &zeroed), []);
        assert_eq!(mismatches(&ledger, &images[0]).len(), 2);
    }

    #[test]
    fn changed_ranges_have_a_maximum_length() {
        let mut ledger = Ledger::new(10, 8, BS as u32, 1);
        for (lba, n) in [(11, 3), (16, 1)] {
            assert!(ledger.begin(lba, n, false));
            ledger.end(lba, n, true);
        }
        assert!(ledger.changed_ranges(2).eq([(11, 2), (13, 1), (16, 1)]));
    }

    #[test]
    fn a_block_has_one_change_at_a_time() {
        let mut ledger = Ledger::new(0, 4, BS as u32, 1);
        assert!(ledger.begin(1, 2, false));
        assert!(!ledger.begin(2, 2, false));
        assert!(ledger.begin(3, 1, true));
        ledger.end(1, 2, true);
        assert!(ledger.begin(2, 1, false));
    }
}
