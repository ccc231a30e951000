//! Blocks whose data is not what their checksum says: reads of them fail until they are written again.
//!
//! A list of fixed length, looked through by every read while it is not empty. Blocks beyond [`PLACES`] are counted and logged by who
//! finds them, and not kept here. The sums file keeps the list, place by place.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::format::PLACES;

/// The list.
#[derive(Debug)]
pub struct BadBlocks {
    /// 1 + LBA; 0 where there is room.
    places: Box<[AtomicU64]>,
    /// Places that were ever used: the others need not be looked at.
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
    /// Those of a sums file, place by place.
    #[must_use]
    pub fn of(places: &[Option<u64>]) -> Self {
        let this = Self::default();
        for (place, lba) in this.places.iter().zip(places).filter_map(|(place, lba)| Some((place, (*lba)?))) {
            place.store(lba + 1, Ordering::SeqCst);
            this.count.fetch_add(1, Ordering::SeqCst);
        }
        this.used.store(places.len().min(PLACES), Ordering::SeqCst);
        this
    }

    /// The bad blocks, place by place; the places that were never used are left out.
    #[must_use]
    pub fn places(&self) -> Vec<Option<u64>> {
        let used = self.used.load(Ordering::SeqCst).min(PLACES);
        self.places[..used].iter().map(|place| place.load(Ordering::SeqCst).checked_sub(1)).collect()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn within(&self, lba: u64, blocks: u64) -> impl Iterator<Item = &AtomicU64> {
        let used = self.used.load(Ordering::SeqCst).min(PLACES);
        let meets = move |place: &&AtomicU64| {
            place.load(Ordering::SeqCst).checked_sub(1).is_some_and(|bad| (lba..lba + blocks).contains(&bad))
        };
        self.places[..used].iter().filter(meets)
    }

    /// Whether any of `blocks` blocks at `lba` is bad.
    #[must_use]
    pub fn meets(&self, lba: u64, blocks: u64) -> bool {
        !self.is_empty() && self.within(lba, blocks).next().is_some()
    }

    /// Adds a block; whether it is new and there was room. One thread at a time.
    pub fn add(&self, lba: u64) -> bool {
        if self.meets(lba, 1) {
            return false;
        }
        let Some(at) = self.places.iter().position(|place| place.load(Ordering::SeqCst) == 0) else { return false };
        self.places[at].store(lba + 1, Ordering::SeqCst);
        self.used.fetch_max(at + 1, Ordering::SeqCst);
        self.count.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// Blocks have been written: they are bad no longer.
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
        assert!(bad.meets(0, 1) && bad.meets(5, 3) && !bad.meets(1, 6) && !bad.meets(8, 100));
        bad.clear(1, 7);
        assert_eq!((bad.len(), bad.meets(7, 1), bad.meets(0, 8)), (1, false, true));
        let again = BadBlocks::of(&bad.places());
        assert_eq!((again.len(), again.places()), (1, vec![Some(0), None]));
        assert!((1..PLACES as u64).all(|lba| bad.add(lba)));
        assert!(!bad.add(PLACES as u64), "there is no room left");
        bad.clear(0, u64::MAX - 1);
        assert!(bad.is_empty());
    }
}
