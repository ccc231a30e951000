//! How many requests each I/O thread has polled, side by side for each reactor: what the director reads at every tick.
//!
//! # The problem
//! A tick comes every 10 us. A count in a cache line of its own for each I/O thread comes from another core for each of them:
//! 2.3 us for 48. But I/O threads move, and no request may be lost or counted twice.
//!
//! # The algorithm
//! A reactor has a board, with a place for each I/O thread that lives there. A place is one word: the I/O thread's number and all
//! the requests that it has ever polled. So a word is true wherever it stands and however old it is: the director keeps the largest
//! count that it has seen of each I/O thread, and an old word says nothing new. An I/O thread's count is published in its new
//! home when it arrives, before its old place is all that is known of it for long: the old place may be another's by then.
//!
//! The first line has a count of publications: a reactor on which nothing has come since the last tick costs one load, one with
//! few I/O threads one line.
//!
//! # The properties
//! - Between two readings no more is reported than was polled; and what was polled is reported, at the latest when its I/O thread
//!   has arrived where it was going.
//! - Whoever sees the count of publications sees what was published.

use crate::sync::{AtomicU64, OnceLock, Ordering};

use Ordering::{Acquire, Relaxed, Release};

/// Places in the first line, beside the two counts.
const FIRST: usize = 6;
/// Places in the first block of more; each block has twice as many as the one before.
const BLOCK: usize = 64;
/// Blocks for as many I/O threads as there are numbers.
const BLOCKS: usize = 11;
/// Bits of a word that count requests, modulo 2^48; the I/O thread's number is above them.
const COUNT_BITS: u32 = 48;
pub(crate) const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// How many requests a count from a board is ahead of all that are known, if it is.
pub(crate) fn ahead(count: u64, known: u64) -> u64 {
    let ahead = count.wrapping_sub(known) & COUNT;
    if ahead > COUNT / 2 { 0 } else { ahead }
}

/// Eight places, in a line of their own.
#[derive(Debug)]
#[repr(align(64))]
struct Line([AtomicU64; 8]);

/// The places of one reactor. It is the only writer.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Board {
    publications: AtomicU64,
    /// Places that were ever used.
    used: AtomicU64,
    first: [AtomicU64; FIRST],
    more: [OnceLock<Box<[Line]>>; BLOCKS],
}

impl Default for Board {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        let first = std::array::from_fn(|_| zero());
        Self { publications: zero(), used: zero(), first, more: std::array::from_fn(|_| OnceLock::new()) }
    }
}

/// The block of a place beyond the first line, and its index there.
fn in_block(place: usize) -> (usize, usize) {
    let index = place - FIRST + BLOCK;
    let block = (index / BLOCK).ilog2() as usize;
    (block, index - (BLOCK << block))
}

impl Board {
    /// Makes room for a place. Places are used from 0 on without gaps.
    fn open(&self, place: usize) {
        if place >= FIRST {
            let (block, _) = in_block(place);
            let line = || Line(std::array::from_fn(|_| AtomicU64::new(0)));
            self.more[block].get_or_init(|| (0..(BLOCK << block) / 8).map(|_| line()).collect());
        }
        self.used.store(place as u64 + 1, Relaxed);
    }

    fn place(&self, place: usize) -> Option<&AtomicU64> {
        if place < FIRST {
            return Some(&self.first[place]);
        }
        let (block, index) = in_block(place);
        Some(&self.more[block].get()?[index / 8].0[index % 8])
    }

    /// Publishes all the requests that an I/O thread has ever polled.
    pub(crate) fn publish(&self, place: u32, thread: u32, requests: u64) {
        if let Some(word) = self.place(place as usize) {
            word.store(u64::from(thread) << COUNT_BITS | requests & COUNT, Relaxed);
        }
        self.publications.store(self.publications.load(Relaxed) + 1, Release);
    }

    /// Says what the places have, I/O threads and counts for [`ahead`], if anything was published since `seen`.
    pub(crate) fn read(&self, seen: &mut u64, mut says: impl FnMut(usize, u64)) {
        let publications = self.publications.load(Acquire);
        if publications == *seen {
            return;
        }
        *seen = publications;
        let mut say = |word: &AtomicU64| {
            let word = word.load(Relaxed);
            says((word >> COUNT_BITS) as usize, word & COUNT);
        };
        let used = self.used.load(Relaxed) as usize;
        self.first.iter().take(used).for_each(&mut say);
        let mut left = used.saturating_sub(FIRST);
        for block in self.more.iter().map_while(OnceLock::get) {
            block.iter().flat_map(|line| &line.0).take(left).for_each(&mut say);
            left = left.saturating_sub(block.len() * 8);
        }
    }
}

/// The places of a board that are free: kept by its reactor.
#[derive(Debug, Default)]
pub(crate) struct Places {
    free: Vec<u32>,
    used: u32,
}

impl Places {
    /// A place for an I/O thread that has arrived.
    pub(crate) fn take(&mut self, board: &Board) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            board.open(self.used as usize);
            self.used += 1;
            self.used - 1
        })
    }

    /// The place of an I/O thread that has been handed over: another may have it. That of one that has finished stays its own, as
    /// nobody else would say what it has polled.
    pub(crate) fn give_back(&mut self, place: u32) {
        self.free.push(place);
    }
}
