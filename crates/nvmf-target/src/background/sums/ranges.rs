//! One word for each range: clean or dirty, who writes to it, which of its blocks were written.
//!
//! # The algorithm
//! A write *enters* each of its ranges before it is submitted and *leaves* it when it is over. It may enter a dirty range only: a
//! clean one becomes *marking* first, and dirty once its mark is durable. Summing notes which blocks were written, reads the range and turns
//! it to *committing* if nobody has entered meanwhile; a write that enters a committing range makes it dirty again and does not wait.
//!
//! # The properties
//! - From the moment a range is committing until it is clean nobody has entered it: its data is what was summed.
//! - While a range is punched nobody is in it.
//! - A range is freed by one who was alone in it for the whole time: no write that has ended since is punched away.
//! - Nothing here waits; what cannot be done now says so.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use super::BLOCKS;
use crate::mapping::Mapping;

const MARK: u32 = 0b11;
const TOUCHED: u32 = 1 << 2;
const FREED: u32 = 1 << 3;
/// Nobody may enter: it is punched, or held.
const PUNCHING: u32 = 1 << 4;
const WRITER: u32 = 1 << 5;
const WRITERS: u32 = ((1 << 10) - 1) << 5;
/// Two or more have been in the range at once since nobody was.
const SHARED: u32 = 1 << 15;
const WRITTEN_AT: u32 = 16;
const ALL_WRITTEN: u32 = 0xffff << WRITTEN_AT;

/// Whether the checksums of a range hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// They do.
    Clean,
    /// Its mark is not durable yet.
    Marking,
    /// They may not.
    Dirty,
    /// They are being written.
    Committing,
}

impl Mark {
    const fn of(word: u32) -> Self {
        match word & MARK {
            0 => Self::Clean,
            1 => Self::Marking,
            2 => Self::Dirty,
            _ => Self::Committing,
        }
    }
}

/// Whether a write may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// It is in the range.
    Yes,
    /// The range was clean: its mark is to be made durable.
    Mark,
    /// Not now.
    NotYet,
}

/// The words of a namespace.
#[derive(Debug)]
pub struct Ranges {
    /// Untouched parts take no memory.
    words: Mapping,
    count: u64,
    /// Whether ranges are marked: not where only freed ranges are kept.
    marks: bool,
}

impl Ranges {
    /// So many ranges, clean; with `marks` a write has to mark its ranges dirty.
    ///
    /// # Errors
    /// If the system has no address space left.
    pub fn new(count: u64, marks: bool) -> io::Result<Self> {
        let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(size_of::<AtomicU32>()));
        let bytes = bytes.and_then(|bytes| bytes.max(1).checked_next_multiple_of(4096));
        Ok(Self { words: Mapping::anonymous(bytes.ok_or(io::ErrorKind::InvalidInput)?)?, count, marks })
    }

    fn word(&self, range: u64) -> &AtomicU32 {
        assert!(range < self.count, "range {range} of {}", self.count);
        // SAFETY: the mapping has `count` aligned words, valid (as zeroes) from the start, and they are only ever accessed as atomics.
        unsafe { self.words.base().cast::<AtomicU32>().add(range as usize).as_ref() }
    }

    /// Changes a word as long as `change` says to what; returns what it was.
    fn change(&self, range: u64, change: impl Fn(u32) -> Option<u32>) -> Option<u32> {
        self.word(range).fetch_update(Ordering::SeqCst, Ordering::SeqCst, change).ok()
    }

    /// Their number.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether a range is clean.
    #[must_use]
    pub fn mark(&self, range: u64) -> Mark {
        Mark::of(self.word(range).load(Ordering::SeqCst))
    }

    /// A write to `blocks` (a bit each) of a range wants to begin.
    #[must_use]
    pub fn enter(&self, range: u64, blocks: u16) -> Entered {
        let marks = self.marks;
        let entered = self.change(range, |word| {
            let is_full = word & WRITERS == WRITERS;
            if word & PUNCHING != 0 || is_full || marks && Mark::of(word) == Mark::Marking {
                return None;
            }
            if marks && Mark::of(word) == Mark::Clean {
                return Some(word & !MARK | 1);
            }
            let dirty = if marks { word & !MARK | 2 } else { word };
            let shared = if word & WRITERS == 0 { 0 } else { SHARED };
            Some((dirty & !FREED | TOUCHED | shared | u32::from(blocks) << WRITTEN_AT) + WRITER)
        });
        match entered {
            None => Entered::NotYet,
            Some(word) if marks && Mark::of(word) == Mark::Clean => Entered::Mark,
            Some(_) => Entered::Yes,
        }
    }

    /// A write that has entered is over.
    pub fn leave(&self, range: u64) {
        let before = self.change(range, |word| Some(left(word)));
        debug_assert!(before.is_some_and(|word| word & WRITERS != 0), "nobody was in range {range}");
    }

    /// As [`Ranges::leave`], of one who has freed the range as a whole; whether it is free: nobody else was in it meanwhile.
    pub fn leave_freed(&self, range: u64) -> bool {
        let alone = |word: u32| word & (WRITERS | SHARED) == WRITER;
        let before = self.change(range, |word| Some(if alone(word) { left(word) | FREED } else { left(word) }));
        before.is_some_and(alone)
    }

    /// A clean range is to be marked although nobody writes to it; `written`: its checksums do not hold. Whether it was clean.
    pub fn start_marking(&self, range: u64, written: bool) -> bool {
        let all = if written { ALL_WRITTEN } else { 0 };
        self.change(range, |word| (Mark::of(word) == Mark::Clean).then_some(word & !MARK | 1 | all)).is_some()
    }

    /// The mark of a range is durable; or not to be had, and the range is as it was.
    pub fn marked(&self, range: u64, durable: bool) {
        let to = if durable { 2 } else { 0 };
        self.change(range, |word| (Mark::of(word) == Mark::Marking).then_some(word & !MARK | to));
    }

    /// A range whose mark was found in the file: nobody knows what was written.
    pub fn found_dirty(&self, range: u64) {
        self.word(range).store(2 | ALL_WRITTEN, Ordering::SeqCst);
    }

    /// Begins to sum a dirty range that nobody writes to: which blocks were written since it was summed. With `only_if_quiet`
    /// not one that was written since the last call.
    #[must_use]
    pub fn begin_summing(&self, range: u64, only_if_quiet: bool) -> Option<u16> {
        let was = self.change(range, |word| {
            let may = Mark::of(word) == Mark::Dirty && word & (WRITERS | PUNCHING) == 0;
            may.then_some(word & !TOUCHED)
        })?;
        (was & TOUCHED == 0 || !only_if_quiet).then_some((was >> WRITTEN_AT) as u16)
    }

    /// Nobody has entered the range since [`Ranges::begin_summing`]: its checksums may be written. Whether that is so.
    #[must_use]
    pub fn begin_commit(&self, range: u64) -> bool {
        let quiet = |word: u32| Mark::of(word) == Mark::Dirty && word & (TOUCHED | WRITERS | PUNCHING) == 0;
        self.change(range, |word| quiet(word).then_some(word | MARK)).is_some()
    }

    /// The checksums are durable (or not to be had): the range is clean if nobody has entered it since. Whether it is.
    #[must_use]
    pub fn end_commit(&self, range: u64, durable: bool) -> bool {
        let to = if durable { 0 } else { 2 };
        let committing = |word: u32| Mark::of(word) == Mark::Committing;
        let change = |word: u32| {
            let rest = if durable { word & !ALL_WRITTEN } else { word };
            committing(word).then_some(rest & !MARK | to)
        };
        self.change(range, change).is_some() && durable
    }

    /// Keeps writes out of a range until [`Ranges::release`], if nobody is in it; whether that is so.
    #[must_use]
    pub fn hold(&self, range: u64) -> bool {
        self.change(range, |word| (word & (WRITERS | PUNCHING) == 0).then_some(word | PUNCHING)).is_some()
    }

    /// Lets writes into a range again.
    pub fn release(&self, range: u64) {
        self.word(range).fetch_and(!PUNCHING, Ordering::SeqCst);
    }

    /// Begins to punch a range if it is still free.
    #[must_use]
    pub fn begin_punch(&self, range: u64) -> bool {
        let free = |word: u32| word & FREED != 0 && word & (WRITERS | PUNCHING) == 0;
        self.change(range, |word| free(word).then_some(word & !FREED | PUNCHING)).is_some()
    }

    /// The range has been punched.
    pub fn end_punch(&self, range: u64) {
        self.release(range);
    }

    /// The range could not be punched: it is free as before.
    pub fn put_punch_off(&self, range: u64) {
        self.change(range, |word| Some(word & !PUNCHING | FREED));
    }
}

/// A word after one who was in the range has left.
fn left(word: u32) -> u32 {
    let word = word - WRITER;
    if word & WRITERS == 0 { word & !SHARED } else { word }
}

/// The blocks (a bit each) of `range` that a write of `blocks` blocks at `lba` meets.
#[must_use]
pub fn blocks_met(range: u64, lba: u64, blocks: u64) -> u16 {
    let first = range * BLOCKS as u64;
    let from = lba.max(first) - first;
    let to = (lba + blocks).min(first + BLOCKS as u64).saturating_sub(first);
    let below = |bit: u64| if bit >= BLOCKS as u64 { u32::from(u16::MAX) } else { (1 << bit) - 1 };
    if from >= to { 0 } else { (below(to) & !below(from)) as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_waits_for_its_mark_and_summing_gives_way_to_it() {
        let ranges = Ranges::new(2, true).expect("memory");
        assert_eq!(ranges.enter(0, 1), Entered::Mark);
        assert_eq!(ranges.enter(0, 1), Entered::NotYet);
        ranges.marked(0, true);
        assert_eq!(ranges.enter(0, 0b10), Entered::Yes);
        assert_eq!(ranges.begin_summing(0, false), None, "somebody writes");
        ranges.leave(0);
        assert_eq!(ranges.begin_summing(0, true), None, "it was written a moment ago");
        assert_eq!(ranges.begin_summing(0, true), Some(0b10), "the write that waited has not come");
        assert!(ranges.begin_commit(0));
        assert_eq!(ranges.enter(0, 0b100), Entered::Yes, "no write waits for a commit");
        assert!(!ranges.end_commit(0, true));
        ranges.leave(0);
        assert_eq!(ranges.begin_summing(0, false), Some(0b110));
        assert_eq!(ranges.enter(0, 1), Entered::Yes);
        ranges.leave(0);
        assert!(!ranges.begin_commit(0), "written meanwhile");
        assert_eq!(ranges.begin_summing(0, false), Some(0b111));
        assert!(ranges.begin_commit(0) && ranges.end_commit(0, true));
        assert_eq!((ranges.mark(0), ranges.mark(1)), (Mark::Clean, Mark::Clean));
    }

    #[test]
    fn a_mark_that_failed_leaves_the_range_clean_and_a_write_ends_what_was_freed() {
        let ranges = Ranges::new(1, true).expect("memory");
        assert_eq!(ranges.enter(0, 1), Entered::Mark);
        ranges.marked(0, false);
        assert_eq!(ranges.mark(0), Mark::Clean);
        let ranges = Ranges::new(1, false).expect("memory");
        assert_eq!(ranges.enter(0, 1), Entered::Yes);
        assert!(ranges.leave_freed(0) && ranges.begin_punch(0));
        assert_eq!(ranges.enter(0, 1), Entered::NotYet);
        ranges.put_punch_off(0);
        assert!(ranges.begin_punch(0), "it is free still");
        ranges.end_punch(0);
        assert_eq!(ranges.enter(0, 1), Entered::Yes);
        assert!(ranges.leave_freed(0));
        assert_eq!(ranges.enter(0, 1), Entered::Yes);
        ranges.leave(0);
        assert!(!ranges.begin_punch(0));
    }

    #[test]
    fn who_was_not_alone_frees_nothing_and_who_comes_later_may() {
        let ranges = Ranges::new(1, false).expect("memory");
        let enter = || assert_eq!(ranges.enter(0, 1), Entered::Yes);
        // A write comes and goes while a range is freed.
        enter();
        enter();
        ranges.leave(0);
        assert!(!ranges.leave_freed(0) && !ranges.begin_punch(0));
        // It was there before, and is there still afterwards.
        enter();
        enter();
        assert!(!ranges.leave_freed(0));
        ranges.leave(0);
        enter();
        assert!(ranges.leave_freed(0) && ranges.begin_punch(0));
    }

    #[test]
    fn a_write_meets_the_blocks_that_it_has_in_a_range() {
        assert_eq!(blocks_met(0, 0, 16), 0xffff);
        assert_eq!(blocks_met(1, 15, 3), 0b11);
        assert_eq!(blocks_met(0, 15, 3), 0x8000);
        assert_eq!((blocks_met(0, 16, 4), blocks_met(3, 0, 1)), (0, 0));
    }
}
