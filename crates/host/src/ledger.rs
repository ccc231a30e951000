//! What each block may hold: the verifier's book.
//!
//! The problem: with many commands in flight, a read that overlaps a write of the same block may see the old or the new
//! content, and a write that failed may have happened or not. Neither is a fault; everything else is.
//!
//! Words: a block's *generation* counts the changes made to it, from 1; 0 is what was there before. Generation `issued`
//! is the latest that was sent, `settled` the latest that was acknowledged. A change is a write or a zeroing.
//!
//! The algorithm: a read notes the *floor*, `settled` at the moment it is sent. When its answer comes, the block may be
//! of any generation from the floor to what is `issued` by then. Writes of one block do not overlap each other (the
//! [`Ledger`]'s user sees to it, with [`Ledger::begin`] refusing a second one), so generations become visible in order.
//!
//! Properties (tested against a naive store): no sequence of reads and writes on a correct store is ever blamed; a block
//! of another address, an older generation than the floor, a mixture of two generations, one that was never written and
//! zeroes that nobody asked for are each named as what they are.

mod journal;

pub use journal::{Journal, LedgerError, LedgerFile};

use crate::pattern::{Content, Stamp, fill, inspect};

/// Most blocks that a ledger keeps book of: three words each, 3 GiB.
pub const MAX_BLOCKS: u64 = 1 << 28;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    issued: u32,
    settled: u32,
    /// The latest generation that set the block to zero; 0 for none.
    zeroed: u32,
    busy: bool,
}

/// A block that holds what it must not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Whole, but another block's content.
    #[error("block {lba} holds block {found} (generation {generation}): swapped or misdirected")]
    Swapped {
        /// The block read.
        lba: u64,
        /// The block whose content came.
        found: u64,
        /// The generation of what came.
        generation: u32,
    },
    /// Whole, but older than what had been acknowledged when the read was sent; after a crash: than what was durable.
    #[error("block {lba} is stale: it holds generation {generation}; generation {floor} or a newer one must be there")]
    Stale {
        /// The block read.
        lba: u64,
        /// The generation of what came.
        generation: u32,
        /// The least that it had to be.
        floor: u32,
    },
    /// Whole, but of a generation that was never written, or that was a zeroing.
    #[error("block {lba} says generation {generation}, but the latest ever sent is {issued}")]
    Unwritten {
        /// The block read.
        lba: u64,
        /// The generation of what came.
        generation: u32,
        /// The latest sent.
        issued: u32,
    },
    /// Parts of different content.
    #[error("block {lba} is torn: generation {generation} up to byte {differs_at}, something else from there")]
    Torn {
        /// The block read.
        lba: u64,
        /// The generation that its first bytes state.
        generation: u32,
        /// Where that ends, a byte offset.
        differs_at: usize,
    },
    /// Zeroes although nobody zeroed it since.
    #[error("block {lba} is zeroes: lost; generation {floor} or a newer one must be there")]
    Lost {
        /// The block read.
        lba: u64,
        /// The least that it had to be.
        floor: u32,
    },
    /// Content of another run, or of nobody known.
    #[error("block {lba} holds something that the run never wrote")]
    Foreign {
        /// The block read.
        lba: u64,
    },
}

/// The book of a range of blocks.
#[derive(Debug)]
pub struct Ledger {
    first: u64,
    run: u64,
    block_size: usize,
    entries: Vec<Entry>,
}

impl Ledger {
    /// A book of `blocks` blocks from `first`; `run` marks this run's blocks.
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

    /// Starts a change of `blocks` blocks; false (and nothing done) if one of them is being changed already.
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

    /// Writes the content of a change that has begun into `data`.
    pub fn fill(&self, lba: u64, data: &mut [u8]) {
        let first = (lba - self.first) as usize;
        for (i, block) in data.chunks_exact_mut(self.block_size).enumerate() {
            let generation = self.entries[first + i].issued;
            fill(block, Stamp { lba: lba + i as u64, run: self.run, generation });
        }
    }

    /// Ends a change; a failed one may have happened or not.
    pub fn end(&mut self, lba: u64, blocks: u32, succeeded: bool) {
        let range = self.range(lba, blocks);
        for e in &mut self.entries[range] {
            e.busy = false;
            if succeeded {
                e.settled = e.issued;
            }
        }
    }

    /// Notes the floors for a read that is about to be sent.
    pub fn floors(&self, lba: u64, into: &mut [u32]) {
        let range = self.range(lba, into.len() as u32);
        for (floor, e) in into.iter_mut().zip(&self.entries[range]) {
            *floor = e.settled;
        }
    }

    /// Judges what a read returned, block by block; returns the number of blocks in order, and hands each other one to
    /// `blame`.
    pub fn judge(&self, lba: u64, floors: &[u32], data: &[u8], mut blame: impl FnMut(Mismatch)) -> u32 {
        let mut good = 0;
        for (i, (block, &floor)) in data.chunks_exact(self.block_size).zip(floors).enumerate() {
            match self.judge_block(lba + i as u64, floor, inspect(block)) {
                Ok(()) => good += 1,
                Err(mismatch) => blame(mismatch),
            }
        }
        good
    }

    fn judge_block(&self, lba: u64, floor: u32, content: Content) -> Result<(), Mismatch> {
        let e = self.entries[(lba - self.first) as usize];
        if floor == 0 && self.never_ours(content) {
            return Ok(()); // what was there before this run may be anything
        }
        match content {
            Content::Zeroes if e.zeroed > 0 && e.zeroed >= floor => Ok(()),
            Content::Zeroes => Err(Mismatch::Lost { lba, floor }),
            Content::Foreign => Err(Mismatch::Foreign { lba }),
            Content::Torn { stamp, differs_at } => {
                Err(Mismatch::Torn { lba, generation: stamp.generation, differs_at })
            }
            Content::Whole(stamp) => judge_stamp(&e, lba, floor, stamp, self.run),
        }
    }

    /// Whether this run cannot have written it.
    fn never_ours(&self, content: Content) -> bool {
        match content {
            Content::Zeroes | Content::Foreign => true,
            Content::Torn { stamp, .. } | Content::Whole(stamp) => stamp.run != self.run,
        }
    }

    /// Ranges (first block, number of blocks, at most `most`) that were changed at least once, in order.
    pub fn touched(&self, most: u32) -> impl Iterator<Item = (u64, u32)> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = at + self.entries[at..].iter().position(|e| e.issued > 0)?;
            let run = self.entries[start..].iter().take(most as usize).take_while(|e| e.issued > 0).count();
            at = start + run;
            Some((self.first + start as u64, run as u32))
        })
    }
}

fn judge_stamp(e: &Entry, lba: u64, floor: u32, stamp: Stamp, run: u64) -> Result<(), Mismatch> {
    let generation = stamp.generation;
    if stamp.run != run {
        return Err(Mismatch::Foreign { lba });
    }
    if stamp.lba != lba {
        return Err(Mismatch::Swapped { lba, found: stamp.lba, generation });
    }
    if generation < floor {
        return Err(Mismatch::Stale { lba, generation, floor });
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
        /// The oldest change reaches the store.
        Apply,
        /// The oldest applied change is acknowledged.
        Settle,
        Fail,
        SendRead {
            lba: u64,
            blocks: u32,
        },
        /// The store answers the oldest read.
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
        /// A store that does everything right is never blamed, whatever overlaps.
        #[test]
        fn a_correct_store_is_never_blamed(steps in proptest::collection::vec(step(), 1..300)) {
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
                        let mut floors = vec![0; blocks as usize];
                        ledger.floors(100 + lba, &mut floors);
                        reads.push((lba, floors));
                    }
                    Step::ServeRead if !reads.is_empty() => {
                        let (lba, floors) = reads.remove(0);
                        let data = &store[lba as usize * BS..][..floors.len() * BS];
                        let mut blamed = Vec::new();
                        let good = ledger.judge(100 + lba, &floors, data, |m| blamed.push(m));
                        prop_assert!(blamed.is_empty(), "{:?}", blamed);
                        prop_assert_eq!(good as usize, floors.len());
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

    fn blame(ledger: &Ledger, data: &[u8]) -> Vec<Mismatch> {
        let mut floors = vec![0; data.len() / BS];
        ledger.floors(0, &mut floors);
        let mut blamed = Vec::new();
        ledger.judge(0, &floors, data, |m| blamed.push(m));
        blamed
    }

    #[test]
    fn each_fault_is_named() {
        let (ledger, images) = written(2);
        let good = &images[1];
        assert_eq!(blame(&ledger, good), []);

        let mut swapped = good.clone();
        let (a, b) = swapped.split_at_mut(BS);
        a.swap_with_slice(&mut b[..BS]);
        let expected = [(0, 1), (1, 0)].map(|(lba, found)| Mismatch::Swapped { lba, found, generation: 2 });
        assert_eq!(blame(&ledger, &swapped), expected);

        let stale = [&images[0][..BS], &good[BS..]].concat();
        assert_eq!(blame(&ledger, &stale), [Mismatch::Stale { lba: 0, generation: 1, floor: 2 }]);

        let torn = [&good[..256], &images[0][256..BS], &good[BS..]].concat();
        assert_eq!(blame(&ledger, &torn), [Mismatch::Torn { lba: 0, generation: 2, differs_at: 256 }]);

        let lost = [&[0; BS][..], &good[BS..]].concat();
        assert_eq!(blame(&ledger, &lost), [Mismatch::Lost { lba: 0, floor: 2 }]);

        let foreign = [&[7; BS][..], &good[BS..]].concat();
        assert_eq!(blame(&ledger, &foreign), [Mismatch::Foreign { lba: 0 }]);

        let (_, future) = written(3);
        let expected = [0, 1, 2, 3].map(|lba| Mismatch::Unwritten { lba, generation: 3, issued: 2 });
        assert_eq!(blame(&ledger, &future[2]), expected);
    }

    #[test]
    fn what_another_run_left_is_no_fault_until_we_wrote() {
        let (mut ledger, _) = written(0);
        let mut other = vec![0; BS];
        fill(&mut other, Stamp { lba: 77, run: 2, generation: 9 });
        assert_eq!(blame(&ledger, &other), []);
        assert!(ledger.begin(0, 1, false));
        ledger.end(0, 1, true);
        assert_eq!(blame(&ledger, &other), [Mismatch::Foreign { lba: 0 }]);
    }

    #[test]
    fn zeroes_are_right_only_where_zeroed() {
        let (mut ledger, images) = written(1);
        assert!(ledger.begin(1, 2, true));
        ledger.end(1, 2, true);
        let zeroed = [&images[0][..BS], &[0; 2 * BS], &images[0][3 * BS..]].concat();
        assert_eq!(blame(&ledger, &zeroed), []);
        assert_eq!(blame(&ledger, &images[0]).len(), 2);
    }

    #[test]
    fn touched_ranges_are_cut_to_size() {
        let mut ledger = Ledger::new(10, 8, BS as u32, 1);
        for (lba, n) in [(11, 3), (16, 1)] {
            assert!(ledger.begin(lba, n, false));
            ledger.end(lba, n, true);
        }
        assert!(ledger.touched(2).eq([(11, 2), (13, 1), (16, 1)]));
    }

    #[test]
    fn a_block_under_change_takes_no_second_one() {
        let mut ledger = Ledger::new(0, 4, BS as u32, 1);
        assert!(ledger.begin(1, 2, false));
        assert!(!ledger.begin(2, 2, false));
        assert!(ledger.begin(3, 1, true));
        ledger.end(1, 2, true);
        assert!(ledger.begin(2, 1, false));
    }
}
