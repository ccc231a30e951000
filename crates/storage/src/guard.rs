//! Non-blocking reader-writer locks of pages: one word per 4 KiB page.
//!
//! # The problem
//! Several I/O threads read and write one namespace. A logical block must be atomic (a read sees all of a write to it or
//! nothing), concurrent copies of the same memory would be a data race, and a reactor must never wait for another.
//!
//! # Terms
//! A page is *held shared* by any number of readers or *exclusively* by one writer. A hold is only *tried*: a request that
//! fails is [`Submitted::Busy`](super::Submitted::Busy) and is retried. A word also has a bit for its user: whether the
//! page has *content*.
//!
//! # The algorithm
//! One 16-bit word per page: writer, waiting, content, and 13 bits of reader count. A request takes all its pages or none
//! before it accesses the first, so a request of several pages is atomic, and a failed try has no effect. A writer that
//! finds readers sets *waiting*, which excludes new readers until the page is free; so overlapping readers cannot starve a
//! writer. The first request on a free page takes it and clears the bit, so a writer that is not retried blocks nothing.
//! A claim (`guard/claim.rs`) prevents starvation of a request of several pages by smaller ones.
//!
//! A table may have fewer words than pages. Pages that share a word exclude each other, which only costs a retry.
//!
//! # The properties
//! - An exclusive hold of a page excludes every other hold of it, and happens before the next hold.
//! - The code is lock-free: a compare-and-swap fails only if another one has succeeded.
//! - A leaked hold would lock its pages permanently, so dropping one panics.

mod claim;

use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};

use pilotlight_reactor::clock;

use crate::mapping::Mapping;
use claim::Claim;

/// Bytes in a page.
pub(crate) const PAGE: usize = 4096;

const WRITER: u16 = 1 << 15;
const WAITING: u16 = 1 << 14;
const CONTENT: u16 = 1 << 13;
const READERS: u16 = CONTENT - 1;

/// Pages held for one request, until [`PageGuards::release`].
#[derive(Debug)]
#[must_use]
pub(crate) struct Hold {
    pages: Range<u64>,
    exclusive: bool,
}

impl Hold {
    /// The pages held.
    pub(crate) fn pages(&self) -> Range<u64> {
        self.pages.clone()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a hold of pages {:?} was lost: they stay locked", self.pages);
    }
}

/// The state of a page after an exclusive hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageState {
    /// The page has content.
    Content,
    /// The page has no content.
    Empty,
}

/// The words of all pages, initially zero: free and without content.
#[derive(Debug)]
pub(crate) struct PageGuards {
    /// Unused parts take no memory.
    words: Mapping,
    mask: u64,
    claim: Claim,
}

impl PageGuards {
    /// Guards with `words` words, rounded up to a power of two.
    pub(crate) fn new(words: u64) -> io::Result<Self> {
        let words = words.max(PAGE as u64).checked_next_power_of_two().ok_or(io::ErrorKind::InvalidInput)?;
        let bytes = usize::try_from(words).ok().and_then(|words| words.checked_mul(size_of::<AtomicU16>()));
        let mapping = Mapping::anonymous(bytes.ok_or(io::ErrorKind::InvalidInput)?)?;
        Ok(Self { words: mapping, mask: words - 1, claim: Claim::default() })
    }

    fn word(&self, page: u64) -> &AtomicU16 {
        let index = (page & self.mask) as usize;
        // SAFETY: the mapping has `mask + 1` aligned words, valid (as zeroes) from the start, and they are only ever
        // accessed as atomics.
        unsafe { self.words.base().cast::<AtomicU16>().add(index).as_ref() }
    }

    /// Tries to hold all of `pages` for reading. The range must have no more pages than there are words.
    pub(crate) fn try_shared(&self, pages: Range<u64>) -> Option<Hold> {
        self.try_all(pages, false, clock::now_ns)
    }

    /// Tries to hold all of `pages` for writing. The range must have no more pages than there are words.
    pub(crate) fn try_exclusive(&self, pages: Range<u64>) -> Option<Hold> {
        self.try_all(pages, true, clock::now_ns)
    }

    #[inline]
    fn try_all(&self, pages: Range<u64>, exclusive: bool, now_ns: impl Fn() -> u64) -> Option<Hold> {
        debug_assert!(pages.end - pages.start <= self.mask + 1, "the range is larger than the table");
        if self.claim.excludes(&pages, exclusive, &now_ns) {
            return None;
        }
        for page in pages.clone() {
            let word = self.word(page);
            let taken = if exclusive { take_exclusive(word) } else { take_shared(word) };
            if !taken {
                self.release(Hold { pages: pages.start..page, exclusive });
                self.claim.set(&pages, exclusive, now_ns());
                return None;
            }
        }
        self.claim.clear(&pages, exclusive);
        Some(Hold { pages, exclusive })
    }

    /// Ends a hold; the pages keep their state.
    pub(crate) fn release(&self, hold: Hold) {
        let hold = ManuallyDrop::new(hold);
        for page in hold.pages.clone() {
            if hold.exclusive {
                self.word(page).fetch_and(CONTENT, Ordering::Release);
            } else {
                self.word(page).fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// Ends an exclusive hold and sets the state of each page.
    pub(crate) fn release_with(&self, hold: Hold, state: impl Fn(u64) -> PageState) {
        let hold = ManuallyDrop::new(hold);
        debug_assert!(hold.exclusive, "a reader changes nothing");
        for page in hold.pages.clone() {
            let content = if state(page) == PageState::Content { CONTENT } else { 0 };
            // A plain store: while the writer's bit is set no other thread changes the word.
            self.word(page).store(content, Ordering::Release);
        }
    }

    /// Whether a page has content: exact while it is held, otherwise a hint.
    pub(crate) fn has_content(&self, page: u64) -> bool {
        self.word(page).load(Ordering::Relaxed) & CONTENT != 0
    }
}

fn take_shared(word: &AtomicU16) -> bool {
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        let readers = seen & READERS;
        let writer_waits = seen & WAITING != 0 && readers > 0;
        if seen & WRITER != 0 || writer_waits || readers == READERS {
            return false;
        }
        let wanted = (seen & CONTENT) | (readers + 1);
        match word.compare_exchange_weak(seen, wanted, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
}

fn take_exclusive(word: &AtomicU16) -> bool {
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        if seen & WRITER != 0 || seen & (READERS | WAITING) > WAITING {
            return false;
        }
        let read = seen & READERS != 0;
        let wanted = if read { seen | WAITING } else { (seen & CONTENT) | WRITER };
        match word.compare_exchange_weak(seen, wanted, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return !read,
            Err(now) => seen = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::UnsafeCell;
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn a_refused_write_precedes_the_next_read() {
        let guards = PageGuards::new(8).expect("memory");
        let now = || 1;
        let reading = guards.try_all(3..4, false, now).expect("free");
        assert!(guards.try_all(3..4, true, now).is_none());
        guards.release(reading);
        assert!(guards.try_all(3..4, false, now).is_none(), "the write is next");
        let writing = guards.try_all(3..4, true, now).expect("no reader");
        guards.release(writing);
        let reading = guards.try_all(3..4, false, now).expect("no claim");
        guards.release(reading);
    }

    #[test]
    fn readers_share_and_writers_exclude() {
        let guards = PageGuards::new(8).expect("memory");
        let first = guards.try_shared(0..3).expect("free");
        let second = guards.try_shared(2..4).expect("shared");
        assert!(guards.try_exclusive(3..5).is_none());
        let later = || 2 * claim::LIFETIME_NS + clock::now_ns();
        let third = guards.try_all(4..6, true, later).expect("a failed try holds nothing");
        assert!(guards.try_shared(5..6).is_none());
        assert!(guards.try_exclusive(5..6).is_none());
        for hold in [first, second, third] {
            guards.release(hold);
        }
        let much_later = || 4 * claim::LIFETIME_NS + clock::now_ns();
        let all = guards.try_all(0..6, true, much_later).expect("all free again");
        guards.release(all);
    }

    #[test]
    fn a_waiting_writer_excludes_new_readers_until_the_page_is_free() {
        let guards = PageGuards::new(1).expect("memory");
        let reader = guards.try_shared(0..1).expect("free");
        assert!(guards.try_exclusive(0..1).is_none());
        assert!(guards.try_shared(0..1).is_none(), "a writer waits");
        guards.release(reader);
        let writer = guards.try_exclusive(0..1).expect("no reader");
        guards.release(writer);
        guards.release(guards.try_shared(0..1).expect("no writer waits"));
    }

    #[test]
    fn a_claim_without_retries_expires() {
        let guards = PageGuards::new(1).expect("memory");
        let reader = guards.try_shared(0..1).expect("free");
        assert!(guards.try_all(0..1, true, || 1).is_none());
        guards.release(reader);
        assert!(guards.try_all(0..1, false, || 1).is_none(), "the claim is valid");
        let later = || claim::LIFETIME_NS + 2;
        let first = guards.try_all(0..1, false, later).expect("the claim has expired");
        let second = guards.try_all(0..1, false, later).expect("no writer waits");
        guards.release(first);
        guards.release(second);
    }

    /// How often a request of eight pages succeeds among requests of one page, each of which is released after the next one
    /// has been granted.
    fn large_requests_among_small_ones(exclusive: bool) -> u32 {
        let guards = PageGuards::new(1).expect("memory");
        let (mut large, mut held) = (0, None);
        for round in 0..1000_u64 {
            let now_ns = || round * crate::wait::BUSY_RETRY_NS;
            let next = guards.try_all(round % 8..round % 8 + 1, true, now_ns);
            if let Some(hold) = guards.try_all(0..8, exclusive, now_ns) {
                guards.release(hold);
                large += 1;
            }
            if let Some(hold) = std::mem::replace(&mut held, next) {
                guards.release(hold);
            }
        }
        held.into_iter().for_each(|hold| guards.release(hold));
        large
    }

    #[test]
    fn small_requests_do_not_starve_a_large_one() {
        for exclusive in [true, false] {
            let large = large_requests_among_small_ones(exclusive);
            assert!(large >= 100, "exclusive: {exclusive}: {large} of 1000 tries succeeded");
        }
    }

    #[test]
    fn content_changes_only_with_an_exclusive_hold() {
        let guards = PageGuards::new(4).expect("memory");
        assert!(!guards.has_content(1));
        guards.release_with(guards.try_exclusive(0..3).expect("free"), |page| {
            if page == 1 { PageState::Content } else { PageState::Empty }
        });
        assert_eq!([0, 1, 2].map(|page| guards.has_content(page)), [false, true, false]);
        guards.release(guards.try_shared(0..3).expect("free"));
        guards.release(guards.try_exclusive(0..3).expect("free"));
        assert!(guards.has_content(1));
        guards.release_with(guards.try_exclusive(1..2).expect("free"), |_| PageState::Empty);
        assert!(!guards.has_content(1));
    }

    #[test]
    fn the_reader_count_is_limited() {
        let word = AtomicU16::new(READERS - 1);
        assert!(take_shared(&word));
        assert!(!take_shared(&word));
        assert_eq!(word.load(Ordering::Relaxed), READERS);
    }

    #[test]
    fn pages_that_share_a_word_exclude_each_other() {
        let guards = PageGuards::new(1).expect("memory");
        let words = guards.mask + 1;
        let hold = guards.try_exclusive(5..6).expect("free");
        assert!(guards.try_shared(words + 5..words + 6).is_none());
        guards.release(hold);
    }

    #[test]
    #[should_panic(expected = "they stay locked")]
    fn dropping_a_hold_panics() {
        let guards = PageGuards::new(1).expect("memory");
        drop(guards.try_shared(0..1));
    }

    /// A cell protected by the guards.
    struct Guarded(UnsafeCell<[u64; 8]>);

    // SAFETY: the test accesses it under a hold only.
    unsafe impl Sync for Guarded {}

    #[test]
    fn a_hold_protects_plain_memory() {
        let guards = PageGuards::new(1).expect("memory");
        let cells: Vec<_> = (0..4).map(|_| Guarded(UnsafeCell::new([0; 8]))).collect();
        let reads = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 1..=4_u64 {
                let (guards, cells, reads) = (&guards, &cells, &reads);
                scope.spawn(move || {
                    for round in 0..20_000 {
                        let pages = round % 3..round % 3 + 2;
                        if round % 2 == 0 {
                            let Some(hold) = guards.try_exclusive(pages.clone()) else { continue };
                            for page in pages {
                                // SAFETY: the page is held exclusively.
                                unsafe { *cells[page as usize].0.get() = [thread << 32 | round; 8] };
                            }
                            guards.release(hold);
                        } else {
                            let Some(hold) = guards.try_shared(pages.clone()) else { continue };
                            for page in pages {
                                // SAFETY: the page is held shared.
                                let seen = unsafe { *cells[page as usize].0.get() };
                                assert!(seen.iter().all(|&word| word == seen[0]), "torn: {seen:x?}");
                            }
                            reads.fetch_add(1, Ordering::Relaxed);
                            guards.release(hold);
                        }
                    }
                });
            }
        });
        assert!(reads.into_inner() > 0);
        let later = || 2 * claim::LIFETIME_NS + clock::now_ns();
        guards.release(guards.try_all(0..4, true, later).expect("nothing is held"));
    }
}
