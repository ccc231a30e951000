//! One word per range: its mark, its writers, its written blocks.
//!
//! # The algorithm
//! A write *enters* each of its ranges before it is submitted and *leaves* it when it completes. It may enter only a dirty
//! range: a clean one becomes *marking* first, and dirty when its mark is durable. Summing reads the range and makes it
//! *committing* if no write has entered meanwhile; a write to a committing range makes it dirty again without waiting.
//!
//! # The properties
//! - No write enters a range between committing and clean: its data matches the summed data.
//! - No write is in a range while it is punched.
//! - Only a request that was alone in a range frees it: no completed write is lost by punching.
//! - Nothing blocks.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use super::BLOCKS;
use crate::mapping::Mapping;

const MARK: u32 = 0b11;
const TOUCHED: u32 = 1 << 2;
const FREED: u32 = 1 << 3;
/// No write may enter: the range is punched, or held.
const PUNCHING: u32 = 1 << 4;
const WRITER: u32 = 1 << 5;
const WRITERS: u32 = ((1 << 10) - 1) << 5;
/// Two or more writes were in the range at once since it was last empty.
const SHARED: u32 = 1 << 15;
const WRITTEN_AT: u32 = 16;
const ALL_WRITTEN: u32 = 0xffff << WRITTEN_AT;

/// State of a range's checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Valid.
    Clean,
    /// Valid; the mark is being written.
    Marking,
    /// Possibly invalid.
    Dirty,
    /// New ones are being written.
    Committing,
}

impl Mark {
    const fn from_word(word: u32) -> Self {
        match word & MARK {
            0 => Self::Clean,
            1 => Self::Marking,
            2 => Self::Dirty,
            _ => Self::Committing,
        }
    }
}

/// Result of entering a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The write is in the range.
    Entered,
    /// The range was clean: its mark must be written first.
    NeedsMark,
    /// Retry later.
    Busy,
}

/// The words of a namespace.
#[derive(Debug)]
pub struct Ranges {
    /// Unused parts take no memory.
    words: Mapping,
    count: u64,
    /// Whether writes mark ranges. `false` if only freed ranges are tracked.
    marks: bool,
}

impl Ranges {
    /// `count` clean ranges; with `marks` a write must mark its ranges dirty.
    ///
    /// # Errors
    /// If there is no address space left.
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

    /// Updates a word by `change` unless that returns `None`; returns the previous word.
    fn change(&self, range: u64, change: impl Fn(u32) -> Option<u32>) -> Option<u32> {
        self.word(range).fetch_update(Ordering::SeqCst, Ordering::SeqCst, change).ok()
    }

    /// Number of ranges.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mark of a range.
    #[must_use]
    pub fn mark(&self, range: u64) -> Mark {
        Mark::from_word(self.word(range).load(Ordering::SeqCst))
    }

    /// Enters a range for a write to `blocks` (a bit each).
    #[must_use]
    pub fn enter(&self, range: u64, blocks: u16) -> Entry {
        let marks = self.marks;
        let entered = self.change(range, |word| {
            let is_full = word & WRITERS == WRITERS;
            if word & PUNCHING != 0 || is_full || marks && Mark::from_word(word) == Mark::Marking {
                return None;
            }
            if marks && Mark::from_word(word) == Mark::Clean {
                return Some(word & !MARK | 1);
            }
            let dirty = if marks { word & !MARK | 2 } else { word };
            let shared = if word & WRITERS == 0 { 0 } else { SHARED };
            Some((dirty & !FREED | TOUCHED | shared | u32::from(blocks) << WRITTEN_AT) + WRITER)
        });
        match entered {
            None => Entry::Busy,
            Some(word) if marks && Mark::from_word(word) == Mark::Clean => Entry::NeedsMark,
            Some(_) => Entry::Entered,
        }
    }

    /// Leaves a range after a write.
    pub fn leave(&self, range: u64) {
        let before = self.change(range, |word| Some(left(word)));
        debug_assert!(before.is_some_and(|word| word & WRITERS != 0), "no write is in range {range}");
    }

    /// As [`Ranges::leave`], after freeing the range as a whole. Returns whether it is free: no other write was in it.
    pub fn leave_freed(&self, range: u64) -> bool {
        let alone = |word: u32| word & (WRITERS | SHARED) == WRITER;
        let before = self.change(range, |word| Some(if alone(word) { left(word) | FREED } else { left(word) }));
        before.is_some_and(alone)
    }

    /// Starts marking a clean range without a write; `written` if its checksums are invalid. Returns whether it was clean.
    pub fn start_marking(&self, range: u64, written: bool) -> bool {
        let all = if written { ALL_WRITTEN } else { 0 };
        self.change(range, |word| (Mark::from_word(word) == Mark::Clean).then_some(word & !MARK | 1 | all)).is_some()
    }

    /// Ends marking: the mark is `durable`, or it failed and the range is clean.
    pub fn marked(&self, range: u64, durable: bool) {
        let to = if durable { 2 } else { 0 };
        self.change(range, |word| (Mark::from_word(word) == Mark::Marking).then_some(word & !MARK | to));
    }

    /// Marks a range dirty, with all blocks written, as found in the file.
    pub fn found_dirty(&self, range: u64) {
        self.word(range).store(2 | ALL_WRITTEN, Ordering::SeqCst);
    }

    /// Begins summing a dirty range without writers. Returns the blocks written since the last sum. With `only_if_quiet`,
    /// `None` for a range written since the last call.
    #[must_use]
    pub fn begin_summing(&self, range: u64, only_if_quiet: bool) -> Option<u16> {
        let was = self.change(range, |word| {
            let may = Mark::from_word(word) == Mark::Dirty && word & (WRITERS | PUNCHING) == 0;
            may.then_some(word & !TOUCHED)
        })?;
        (was & TOUCHED == 0 || !only_if_quiet).then_some((was >> WRITTEN_AT) as u16)
    }

    /// Begins the commit of new checksums. Returns `false` if a write has entered since [`Ranges::begin_summing`].
    #[must_use]
    pub fn begin_commit(&self, range: u64) -> bool {
        let quiet = |word: u32| Mark::from_word(word) == Mark::Dirty && word & (TOUCHED | WRITERS | PUNCHING) == 0;
        self.change(range, |word| quiet(word).then_some(word | MARK)).is_some()
    }

    /// Ends the commit. Returns whether the range is clean: the checksums are `durable` and no write has entered.
    #[must_use]
    pub fn end_commit(&self, range: u64, durable: bool) -> bool {
        let to = if durable { 0 } else { 2 };
        let committing = |word: u32| Mark::from_word(word) == Mark::Committing;
        let change = |word: u32| {
            let rest = if durable { word & !ALL_WRITTEN } else { word };
            committing(word).then_some(rest & !MARK | to)
        };
        self.change(range, change).is_some() && durable
    }

    /// Excludes writes from a range until [`Ranges::release`]. Returns `false` if a write is in it.
    #[must_use]
    pub fn hold(&self, range: u64) -> bool {
        self.change(range, |word| (word & (WRITERS | PUNCHING) == 0).then_some(word | PUNCHING)).is_some()
    }

    /// Admits writes to a range again.
    pub fn release(&self, range: u64) {
        self.word(range).fetch_and(!PUNCHING, Ordering::SeqCst);
    }

    /// Begins punching a range if it is still free.
    #[must_use]
    pub fn begin_punch(&self, range: u64) -> bool {
        let free = |word: u32| word & FREED != 0 && word & (WRITERS | PUNCHING) == 0;
        self.change(range, |word| free(word).then_some(word & !FREED | PUNCHING)).is_some()
    }

    /// Ends punching.
    pub fn end_punch(&self, range: u64) {
        self.release(range);
    }

    /// Cancels punching; the range stays free.
    pub fn cancel_punch(&self, range: u64) {
        self.change(range, |word| Some(word & !PUNCHING | FREED));
    }
}

/// The word after a write has left.
fn left(word: u32) -> u32 {
    let word = word - WRITER;
    if word & WRITERS == 0 { word & !SHARED } else { word }
}

/// The blocks (a bit each) of `range` within a write of `blocks` blocks at `lba`.
#[must_use]
pub fn overlapping_blocks(range: u64, lba: u64, blocks: u64) -> u16 {
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
    fn writes_wait_for_marks_and_interrupt_summing() {
        let ranges = Ranges::new(2, true).expect("memory");
        assert_eq!(ranges.enter(0, 1), Entry::NeedsMark);
        assert_eq!(ranges.enter(0, 1), Entry::Busy);
        ranges.marked(0, true);
        assert_eq!(ranges.enter(0, 0b10), Entry::Entered);
        assert_eq!(ranges.begin_summing(0, false), None, "a write is in progress");
        ranges.leave(0);
        assert_eq!(ranges.begin_summing(0, true), None, "written recently");
        assert_eq!(ranges.begin_summing(0, true), Some(0b10), "no write since");
        assert!(ranges.begin_commit(0));
        assert_eq!(ranges.enter(0, 0b100), Entry::Entered, "a commit does not delay writes");
        assert!(!ranges.end_commit(0, true));
        ranges.leave(0);
        assert_eq!(ranges.begin_summing(0, false), Some(0b110));
        assert_eq!(ranges.enter(0, 1), Entry::Entered);
        ranges.leave(0);
        assert!(!ranges.begin_commit(0), "written meanwhile");
        assert_eq!(ranges.begin_summing(0, false), Some(0b111));
        assert!(ranges.begin_commit(0) && ranges.end_commit(0, true));
        assert_eq!((ranges.mark(0), ranges.mark(1)), (Mark::Clean, Mark::Clean));
    }

    #[test]
    fn failed_marks_leave_ranges_clean_and_writes_unfree_ranges() {
        let ranges = Ranges::new(1, true).expect("memory");
        assert_eq!(ranges.enter(0, 1), Entry::NeedsMark);
        ranges.marked(0, false);
        assert_eq!(ranges.mark(0), Mark::Clean);
        let ranges = Ranges::new(1, false).expect("memory");
        assert_eq!(ranges.enter(0, 1), Entry::Entered);
        assert!(ranges.leave_freed(0) && ranges.begin_punch(0));
        assert_eq!(ranges.enter(0, 1), Entry::Busy);
        ranges.cancel_punch(0);
        assert!(ranges.begin_punch(0), "still free");
        ranges.end_punch(0);
        assert_eq!(ranges.enter(0, 1), Entry::Entered);
        assert!(ranges.leave_freed(0));
        assert_eq!(ranges.enter(0, 1), Entry::Entered);
        ranges.leave(0);
        assert!(!ranges.begin_punch(0));
    }

    #[test]
    fn only_a_request_alone_in_a_range_frees_it() {
        let ranges = Ranges::new(1, false).expect("memory");
        let enter = || assert_eq!(ranges.enter(0, 1), Entry::Entered);
        // A write enters and leaves while a range is freed.
        enter();
        enter();
        ranges.leave(0);
        assert!(!ranges.leave_freed(0) && !ranges.begin_punch(0));
        // A write is in the range before and after.
        enter();
        enter();
        assert!(!ranges.leave_freed(0));
        ranges.leave(0);
        enter();
        assert!(ranges.leave_freed(0) && ranges.begin_punch(0));
    }

    #[test]
    fn overlapping_blocks_of_a_range() {
        assert_eq!(overlapping_blocks(0, 0, 16), 0xffff);
        assert_eq!(overlapping_blocks(1, 15, 3), 0b11);
        assert_eq!(overlapping_blocks(0, 15, 3), 0x8000);
        assert_eq!((overlapping_blocks(0, 16, 4), overlapping_blocks(3, 0, 1)), (0, 0));
    }
}
