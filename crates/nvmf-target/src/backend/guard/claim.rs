//! The claim of a request that was turned away: who overlaps it comes after it.
//!
//! # The problem
//! A request takes all its pages at once or none. One of many pages may never find all of them free while others, of a page
//! or two each, come and go among them; and a write may never find its page free while others read it all the time, whose
//! holds last as long as sending takes.
//!
//! # The algorithm
//! A table has room for one claim: the pages of a request that was turned away, a write or a read of several pages. While it
//! stands, requests that overlap it are turned away, except one for exactly these pages, which has to be a write if the claim is
//! a write's. So what is held is given back, nothing new is
//! held, and the claim's request finds its pages free the next time that it comes. It then gives the claim up. Each time
//! that it comes in vain it renews the claim; one that is not renewed for [`LIFE_NS`] binds nobody.
//!
//! # The properties
//! - While a claim is renewed, no hold that overlaps its pages is granted but its own.
//! - A request that never comes again holds up others for at most [`LIFE_NS`].
//! - Without a claim a request pays one load, of a cache line that nobody writes to.
//! - Claims decide about who comes first and nothing else: the words of the pages alone say who holds what.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::wait::BUSY_RETRY_NS;

/// How long a claim lasts that is not renewed: a thread that waits comes again every [`BUSY_RETRY_NS`], and may be late.
pub(super) const LIFE_NS: u64 = 40 * BUSY_RETRY_NS;

/// No claim; no range is packed so.
const NOBODY: u64 = 0;
const LEN_BITS: u32 = 15;
const EXCLUSIVE: u64 = 1 << LEN_BITS;
/// Bits below the first page.
const START_AT: u32 = LEN_BITS + 1;

/// The one claim of a table.
#[derive(Debug, Default)]
#[repr(align(128))] // a pair of cache lines: written only where requests meet, and read by all
pub(super) struct Claim {
    /// First page, whether for writing, and number of pages.
    pages: AtomicU64,
    renewed_ns: AtomicU64,
}

impl Claim {
    /// Whether a request for `pages` has to let another one go first.
    #[inline]
    pub(super) fn goes_first(&self, pages: &Range<u64>, exclusive: bool, now_ns: impl Fn() -> u64) -> bool {
        let claim = self.pages.load(Ordering::Relaxed);
        claim != NOBODY && self.keeps_out(claim, pages, exclusive, now_ns())
    }

    #[cold]
    fn keeps_out(&self, claim: u64, pages: &Range<u64>, exclusive: bool, now_ns: u64) -> bool {
        let (claimed, for_writing) = unpack(claim);
        let own = claimed == *pages && (exclusive || !for_writing);
        if own || claimed.end <= pages.start || pages.end <= claimed.start {
            return false;
        }
        if !self.is_over(now_ns) {
            return true;
        }
        let _ = self.pages.compare_exchange(claim, NOBODY, Ordering::Relaxed, Ordering::Relaxed);
        false
    }

    fn is_over(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.renewed_ns.load(Ordering::Relaxed)) > LIFE_NS
    }

    /// A request for `pages` was turned away: makes its claim, or renews it, unless another one stands.
    #[cold]
    pub(super) fn make(&self, pages: &Range<u64>, exclusive: bool, now_ns: u64) {
        let (claim, own) = (self.pages.load(Ordering::Relaxed), pack(pages, exclusive));
        if own == NOBODY || claim != own && claim != NOBODY && !self.is_over(now_ns) {
            return;
        }
        self.renewed_ns.store(now_ns, Ordering::Relaxed);
        let _ = self.pages.compare_exchange(claim, own, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// A request for `pages` has them: it claims them no more.
    #[inline]
    pub(super) fn give_up(&self, pages: &Range<u64>, exclusive: bool) {
        let claim = self.pages.load(Ordering::Relaxed);
        if claim != NOBODY && claim == pack(pages, exclusive) {
            let _ = self.pages.compare_exchange(claim, NOBODY, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// A range in one word; [`NOBODY`] for a read of a single page, which is not claimed, and for what does not fit.
fn pack(pages: &Range<u64>, exclusive: bool) -> u64 {
    let len = pages.end - pages.start;
    let least = if exclusive { 1 } else { 2 };
    if len < least || len >> LEN_BITS != 0 || pages.start >> (u64::BITS - START_AT) != 0 {
        return NOBODY;
    }
    let kind = if exclusive { EXCLUSIVE } else { 0 };
    pages.start << START_AT | kind | len
}

/// The range, and whether it is claimed for writing.
fn unpack(claim: u64) -> (Range<u64>, bool) {
    let start = claim >> START_AT;
    (start..start + (claim & (EXCLUSIVE - 1)), claim & EXCLUSIVE != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_survives_being_packed_and_what_cannot_is_not_claimed() {
        for pages in [0..2, 5..37, (1 << 47)..(1 << 47) + 32_767] {
            for exclusive in [false, true] {
                assert_eq!(unpack(pack(&pages, exclusive)), (pages.clone(), exclusive));
            }
        }
        assert_eq!(unpack(pack(&(7..8), true)), (7..8, true));
        for pages in [0..1, 7..8, 0..1 << 15, 1 << 48..(1 << 48) + 2] {
            assert_eq!(pack(&pages, false), NOBODY);
        }
    }

    #[test]
    fn a_write_of_one_page_keeps_out_reads_of_it() {
        let claim = Claim::default();
        claim.make(&(7..8), true, 5);
        assert!(claim.goes_first(&(7..8), false, || 6) && claim.goes_first(&(0..20), false, || 6));
        assert!(!claim.goes_first(&(7..8), true, || 6), "its own");
        claim.give_up(&(7..8), true);
        claim.make(&(7..9), false, 7);
        assert!(
            !claim.goes_first(&(7..9), false, || 8) && !claim.goes_first(&(7..9), true, || 8),
            "both may be its own"
        );
    }

    #[test]
    fn a_claim_keeps_out_who_overlaps_it_until_it_is_given_up() {
        let claim = Claim::default();
        claim.make(&(10..20), false, 5);
        for (pages, kept_out) in [(9..11, true), (19..20, true), (0..30, true), (0..10, false), (20..21, false)] {
            assert_eq!(claim.goes_first(&pages, false, || 6), kept_out, "{pages:?}");
        }
        assert!(!claim.goes_first(&(10..20), false, || 6), "its own");
        claim.give_up(&(10..21), false);
        assert!(claim.goes_first(&(9..11), false, || 6), "another's to give up");
        claim.give_up(&(10..20), false);
        assert!(!claim.goes_first(&(9..11), false, || 6));
    }

    #[test]
    fn a_claim_stands_while_it_is_renewed_and_no_longer() {
        let claim = Claim::default();
        claim.make(&(10..20), false, 0);
        claim.make(&(15..25), false, LIFE_NS);
        assert!(!claim.goes_first(&(20..25), false, || LIFE_NS), "the first claim stands");
        claim.make(&(10..20), false, LIFE_NS);
        assert!(claim.goes_first(&(12..13), false, || 2 * LIFE_NS));
        assert!(!claim.goes_first(&(12..13), false, || 2 * LIFE_NS + 1));
        claim.make(&(15..25), false, 2 * LIFE_NS + 1);
        assert!(claim.goes_first(&(20..21), false, || 2 * LIFE_NS + 1), "there is room for another");
        claim.make(&(10..20), false, 4 * LIFE_NS);
        assert!(claim.goes_first(&(12..13), false, || 4 * LIFE_NS), "and one that is over gives way");
    }
}
