//! Blocks that do not match their checksums: reads of them fail until they are written again.
//!
//! A list of fixed length, searched by every read while it is not empty. Blocks beyond [`PLACES`] are only counted and
//! logged. The sums file stores the list.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::format::PLACES;

/// The list.
#[derive(Debug)]
pub struct BadBlocks {
    /// 1 + LBA; 0 for an empty place.
    places: Box<[AtomicU64]>,
    /// Number of places ever used: the search ends there.
    used: AtomicUsize,
    count: AtomicUsize,
}

impl Default for BadBlocks {
    fn default() -> Self {
        let places = (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Self { places, used: AtomicUsize::new(0), count: AtomicUsize::new(0) }
    }
}

impl BadBlocks {
    /// From the places of a sums file.
    #[must_use]
    pub fn from_places(places: &[Option<u64>]) -> Self {
        let this = Self::default();
        for (place, lba) in this.places.iter().zip(places).filter_map(|(place, lba)| Some((place, (*lba)?))) {
            place.store(lba + 1, Ordering::SeqCst);
            this.count.fetch_add(1, Ordering::SeqCst);
        }
        this.used.store(places.len().min(PLACES), Ordering::SeqCst);
        this
    }

    /// The used places.
    #[must_use]
    pub fn places(&self) -> Vec<Option<u64>> {
        let used = self.used.load(Ordering::SeqCst).min(PLACES);
        self.places[..used].iter().map(|place| place.load(Ordering::SeqCst).checked_sub(1)).collect()
    }

    /// Number of bad blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn within(&self, lba: u64, blocks: u64) -> impl Iterator<Item = &AtomicU64> {
        let used = self.used.load(Ordering::SeqCst).min(PLACES);
        let overlaps = move |place: &&AtomicU64| {
            place.load(Ordering::SeqCst).checked_sub(1).is_some_and(|bad| (lba..lba + blocks).contains(&bad))
        };
        self.places[..used].iter().filter(overlaps)
    }

    /// Whether any of `blocks` blocks at `lba` is bad.
    #[must_use]
    pub fn overlaps(&self, lba: u64, blocks: u64) -> bool {
        !self.is_empty() && self.within(lba, blocks).next().is_some()
    }

    /// Adds a block. Returns whether it is new and there was a free place. One thread at a time.
    pub fn add(&self, lba: u64) -> bool {
        if self.overlaps(lba, 1) {
            return false;
        }
        let Some(at) = self.places.iter().position(|place| place.load(Ordering::SeqCst) == 0) else { return false };
        self.places[at].store(lba + 1, Ordering::SeqCst);
        self.used.fetch_max(at + 1, Ordering::SeqCst);
        self.count.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// Removes blocks that have been written.
    pub fn clear(&self, lba: u64, blocks: u64) {
        if self.is_empty() {
            return;
        }
        for place in self.within(lba, blocks) {
            if place.swap(0, Ordering::SeqCst) != 0 {
                self.count.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_bad_until_it_is_written() {
        let bad = BadBlocks::default();
        assert!(bad.add(0) && bad.add(7) && !bad.add(7));
        assert!(bad.overlaps(0, 1) && bad.overlaps(5, 3) && !bad.overlaps(1, 6) && !bad.overlaps(8, 100));
        bad.clear(1, 7);
        assert_eq!((bad.len(), bad.overlaps(7, 1), bad.overlaps(0, 8)), (1, false, true));
        let again = BadBlocks::from_places(&bad.places());
        assert_eq!((again.len(), again.places()), (1, vec![Some(0), None]));
        assert!((1..PLACES as u64).all(|lba| bad.add(lba)));
        assert!(!bad.add(PLACES as u64), "the list is full");
        bad.clear(0, u64::MAX - 1);
        assert!(bad.is_empty());
    }
}
