//! The claim of a refused request: overlapping requests must wait for it.
//!
//! # The problem
//! A request takes all its pages at once or none. A request of many pages could starve while smaller ones hold some of
//! them, and a write could starve while readers, whose holds last until the data is sent, hold its page.
//!
//! # The algorithm
//! A table has one claim: the pages of a refused request, a write or a read of several pages. While it is valid, requests
//! that overlap it are refused, except one for exactly these pages (a write if the claim is a write's). So holds are
//! released, no new ones are granted, and the request finds its pages free when it is retried. It then clears the claim.
//! Each failed retry renews the claim; without renewal it expires after [`LIFETIME_NS`].
//!
//! # The properties
//! - While a claim is renewed, no other hold that overlaps its pages is granted.
//! - A request that is not retried delays others for at most [`LIFETIME_NS`].
//! - Without a claim a request costs one load of a shared cache line.
//! - Claims only decide the order; the words of the pages decide who holds what.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::wait::BUSY_RETRY_NS;

/// Lifetime of a claim without renewal: a waiting thread retries every [`BUSY_RETRY_NS`], and may be late.
pub(super) const LIFETIME_NS: u64 = 40 * BUSY_RETRY_NS;

/// No claim; not the encoding of any range.
const NO_CLAIM: u64 = 0;
const LEN_BITS: u32 = 15;
const EXCLUSIVE: u64 = 1 << LEN_BITS;
/// Bits below the first page.
const START_AT: u32 = LEN_BITS + 1;

/// The claim of a table.
#[derive(Debug, Default)]
#[repr(align(128))] // a pair of cache lines: written only on contention, read by all requests
pub(super) struct Claim {
    /// First page, whether for writing, and number of pages.
    pages: AtomicU64,
    renewed_ns: AtomicU64,
}

impl Claim {
    /// Whether the claim of another request excludes a request for `pages`.
    #[inline]
    pub(super) fn excludes(&self, pages: &Range<u64>, exclusive: bool, now_ns: impl Fn() -> u64) -> bool {
        let claim = self.pages.load(Ordering::Relaxed);
        claim != NO_CLAIM && self.conflicts(claim, pages, exclusive, now_ns())
    }

    #[cold]
    fn conflicts(&self, claim: u64, pages: &Range<u64>, exclusive: bool, now_ns: u64) -> bool {
        let (claimed, for_writing) = unpack(claim);
        let own = claimed == *pages && (exclusive || !for_writing);
        if own || claimed.end <= pages.start || pages.end <= claimed.start {
            return false;
        }
        if !self.has_expired(now_ns) {
            return true;
        }
        let _ = self.pages.compare_exchange(claim, NO_CLAIM, Ordering::Relaxed, Ordering::Relaxed);
        false
    }

    fn has_expired(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.renewed_ns.load(Ordering::Relaxed)) > LIFETIME_NS
    }

    /// Sets or renews the claim of a refused request for `pages`, unless another claim is valid.
    #[cold]
    pub(super) fn set(&self, pages: &Range<u64>, exclusive: bool, now_ns: u64) {
        let (claim, own) = (self.pages.load(Ordering::Relaxed), pack(pages, exclusive));
        if own == NO_CLAIM || claim != own && claim != NO_CLAIM && !self.has_expired(now_ns) {
            return;
        }
        self.renewed_ns.store(now_ns, Ordering::Relaxed);
        let _ = self.pages.compare_exchange(claim, own, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Clears the claim of a request for `pages`, which has been granted.
    #[inline]
    pub(super) fn clear(&self, pages: &Range<u64>, exclusive: bool) {
        let claim = self.pages.load(Ordering::Relaxed);
        if claim != NO_CLAIM && claim == pack(pages, exclusive) {
            let _ = self.pages.compare_exchange(claim, NO_CLAIM, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// A range in one word; [`NO_CLAIM`] for a read of a single page, which is not claimed, and for a range that does not fit.
fn pack(pages: &Range<u64>, exclusive: bool) -> u64 {
    let len = pages.end - pages.start;
    let least = if exclusive { 1 } else { 2 };
    if len < least || len >> LEN_BITS != 0 || pages.start >> (u64::BITS - START_AT) != 0 {
        return NO_CLAIM;
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
    fn ranges_are_packed_or_not_claimed() {
        for pages in [0..2, 5..37, (1 << 47)..(1 << 47) + 32_767] {
            for exclusive in [false, true] {
                assert_eq!(unpack(pack(&pages, exclusive)), (pages.clone(), exclusive));
            }
        }
        assert_eq!(unpack(pack(&(7..8), true)), (7..8, true));
        for pages in [0..1, 7..8, 0..1 << 15, 1 << 48..(1 << 48) + 2] {
            assert_eq!(pack(&pages, false), NO_CLAIM);
        }
    }

    #[test]
    fn a_write_of_one_page_excludes_reads_of_it() {
        let claim = Claim::default();
        claim.set(&(7..8), true, 5);
        assert!(claim.excludes(&(7..8), false, || 6) && claim.excludes(&(0..20), false, || 6));
        assert!(!claim.excludes(&(7..8), true, || 6), "its own");
        claim.clear(&(7..8), true);
        claim.set(&(7..9), false, 7);
        assert!(!claim.excludes(&(7..9), false, || 8) && !claim.excludes(&(7..9), true, || 8), "both match the claim");
    }

    #[test]
    fn a_claim_excludes_overlapping_requests_until_it_is_cleared() {
        let claim = Claim::default();
        claim.set(&(10..20), false, 5);
        for (pages, excluded) in [(9..11, true), (19..20, true), (0..30, true), (0..10, false), (20..21, false)] {
            assert_eq!(claim.excludes(&pages, false, || 6), excluded, "{pages:?}");
        }
        assert!(!claim.excludes(&(10..20), false, || 6), "its own");
        claim.clear(&(10..21), false);
        assert!(claim.excludes(&(9..11), false, || 6), "only its own request clears a claim");
        claim.clear(&(10..20), false);
        assert!(!claim.excludes(&(9..11), false, || 6));
    }

    #[test]
    fn a_claim_is_valid_while_it_is_renewed() {
        let claim = Claim::default();
        claim.set(&(10..20), false, 0);
        claim.set(&(15..25), false, LIFETIME_NS);
        assert!(!claim.excludes(&(20..25), false, || LIFETIME_NS), "the first claim is valid");
        claim.set(&(10..20), false, LIFETIME_NS);
        assert!(claim.excludes(&(12..13), false, || 2 * LIFETIME_NS));
        assert!(!claim.excludes(&(12..13), false, || 2 * LIFETIME_NS + 1));
        claim.set(&(15..25), false, 2 * LIFETIME_NS + 1);
        assert!(claim.excludes(&(20..21), false, || 2 * LIFETIME_NS + 1), "an expired claim is replaced");
        claim.set(&(10..20), false, 4 * LIFETIME_NS);
        assert!(claim.excludes(&(12..13), false, || 4 * LIFETIME_NS), "an expired claim is replaced");
    }
}
