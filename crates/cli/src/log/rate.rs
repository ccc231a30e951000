//! How many lines of one call site are written: at most [`LINES`] in a window, the rest is counted.
//!
//! A window begins with the first line after the window before has ended. Properties, for any number of threads: no window has more than
//! [`LINES`] lines, and each line is either admitted or counted once. Nothing here locks, allocates, or reads a clock.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Lines of one call site that a window admits.
pub(super) const LINES: u64 = 10;
/// Low bits of [`Rate::window`] that hold a count; the start of the window is above them.
const COUNT_BITS: u32 = 8;
/// Call sites with a rate of their own; beyond them the last rate is shared. The program has about 40 that warn.
const SITES: usize = 256;

/// The lines of one call site.
#[derive(Debug, Default)]
pub(super) struct Rate {
    /// Start of the window in milliseconds, and the lines that it has admitted; 0 before the first.
    window: AtomicU64,
    left_out: AtomicU64,
}

impl Rate {
    /// Whether a line may be written at `now_ms`; if not, it is counted. `length_ms` is the length of a window.
    pub(super) fn admit(&self, now_ms: u64, length_ms: u64) -> bool {
        let next = |window: u64| {
            let (start_ms, lines) = (window >> COUNT_BITS, window & ((1 << COUNT_BITS) - 1));
            // another thread may have begun a window with a later reading of the clock
            if lines == 0 || now_ms.saturating_sub(start_ms) >= length_ms {
                return Some(now_ms << COUNT_BITS | 1);
            }
            (lines < LINES).then_some(window + 1)
        };
        let admitted = self.window.fetch_update(Relaxed, Relaxed, next).is_ok();
        if !admitted {
            self.left_out.fetch_add(1, Relaxed);
        }
        admitted
    }

    /// How many lines were not admitted since the last call.
    pub(super) fn take_left_out(&self) -> u64 {
        self.left_out.swap(0, Relaxed)
    }
}

/// A rate for each call site.
#[derive(Debug)]
pub(super) struct Sites {
    ids: [AtomicUsize; SITES],
    rates: [Rate; SITES],
}

impl Default for Sites {
    fn default() -> Self {
        Self { ids: [const { AtomicUsize::new(0) }; SITES], rates: std::array::from_fn(|_| Rate::default()) }
    }
}

impl Sites {
    /// Index of the rate of the call site with this identity, which is not 0.
    pub(super) fn index(&self, id: usize) -> usize {
        let own = SITES - 1;
        let first = (id >> 4) % own;
        let probes = (first..own).chain(0..first);
        let mine = |at: &usize| match self.ids[*at].compare_exchange(0, id, Relaxed, Relaxed) {
            Ok(_) => true,
            Err(other) => other == id,
        };
        probes.into_iter().find(mine).unwrap_or(own)
    }

    /// The rate at `index`.
    pub(super) fn rate(&self, index: usize) -> &Rate {
        &self.rates[index]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LENGTH_MS: u64 = 100;

    /// The same rule, written down with a list of the lines admitted.
    #[derive(Default)]
    struct Naive {
        window: Vec<u64>,
    }

    impl Naive {
        fn admit(&mut self, now_ms: u64) -> bool {
            if self.window.first().is_some_and(|&start| now_ms >= start + LENGTH_MS) {
                self.window.clear();
            }
            let admitted = (self.window.len() as u64) < LINES;
            if admitted {
                self.window.push(now_ms);
            }
            admitted
        }
    }

    proptest! {
        #[test]
        fn the_rate_matches_a_list_of_its_lines(gaps in prop::collection::vec(0..=LENGTH_MS / 4, 0..300)) {
            let (rate, mut naive, mut now_ms, mut left_out) = (Rate::default(), Naive::default(), 0, 0);
            for gap in gaps {
                now_ms += gap;
                let expected = naive.admit(now_ms);
                prop_assert_eq!(rate.admit(now_ms, LENGTH_MS), expected, "at {}", now_ms);
                left_out += u64::from(!expected);
            }
            prop_assert_eq!(rate.take_left_out(), left_out);
            prop_assert_eq!(rate.take_left_out(), 0);
        }
    }

    #[test]
    fn threads_share_the_limit_and_every_line_is_counted() {
        const EACH: u64 = 10_000;
        let rate = Rate::default();
        let admitted: u64 = std::thread::scope(|scope| {
            let one = || (0..EACH).filter(|_| rate.admit(7, LENGTH_MS)).count() as u64;
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!((admitted, rate.take_left_out()), (LINES, 4 * EACH - LINES));
    }

    #[test]
    fn each_call_site_has_its_own_rate_until_the_table_is_full() {
        let sites = Sites::default();
        let ids = || (1..=300).map(|site| site * 48);
        let first: Vec<usize> = ids().map(|id| sites.index(id)).collect();
        let distinct: std::collections::HashSet<_> = first[..SITES - 1].iter().collect();
        assert_eq!(distinct.len(), SITES - 1);
        assert!(first[SITES - 1..].iter().all(|&index| index == SITES - 1));
        assert_eq!(ids().map(|id| sites.index(id)).collect::<Vec<_>>(), first);
    }
}
