//! Statistics of the director.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pilotlight_plant::{Limit, Standing};

use crate::histogram::{Histogram, HistogramSnapshot};

/// Counters of the director.
#[derive(Debug, Default)]
pub(crate) struct DirectorCell {
    pub(super) ticks: AtomicU64,
    pub(super) intervals: AtomicU64,
    pub(super) lateness: Histogram,
    pub(super) moves: AtomicU64,
    pub(super) sleeps: AtomicU64,
    pub(super) wakes: AtomicU64,
    pub(super) refusals: AtomicU64,
    /// The standing of the policy: number of its limit from 1 on or 0 if it does not say, rise and allowed rise. Readers may see parts of two.
    standing: [AtomicU64; 3],
}

/// Statistics of the director.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectorStats {
    /// Ticks, quiet ones included.
    pub ticks: u64,
    /// Intervals.
    pub intervals: u64,
    /// Lateness of ticks.
    pub lateness: HistogramSnapshot,
    /// Move commands.
    pub moves: u64,
    /// Sleep commands.
    pub sleeps: u64,
    /// Wake commands.
    pub wakes: u64,
    /// Refused commands.
    pub refusals: u64,
    /// What limited the policy at its last interval, if it says so.
    pub standing: Option<Standing>,
}

impl DirectorCell {
    pub(crate) fn stats(&self) -> DirectorStats {
        DirectorStats {
            ticks: self.ticks.load(Relaxed),
            intervals: self.intervals.load(Relaxed),
            lateness: self.lateness.snapshot(),
            moves: self.moves.load(Relaxed),
            sleeps: self.sleeps.load(Relaxed),
            wakes: self.wakes.load(Relaxed),
            refusals: self.refusals.load(Relaxed),
            standing: self.standing(),
        }
    }

    fn standing(&self) -> Option<Standing> {
        let [limit, rise_ns, allowed_ns] = [0, 1, 2].map(|part| self.standing[part].load(Relaxed));
        let limit = *Limit::ALL.get(usize::try_from(limit).ok()?.checked_sub(1)?)?;
        Some(Standing { limit, rise_ns, allowed_ns })
    }

    pub(super) fn set_standing(&self, standing: Option<Standing>) {
        let parts = standing.map_or([0; 3], |Standing { limit, rise_ns, allowed_ns }| {
            let number = Limit::ALL.iter().position(|other| *other == limit).map_or(0, |at| at as u64 + 1);
            [number, rise_ns, allowed_ns]
        });
        self.standing.iter().zip(parts).for_each(|(cell, part)| cell.store(part, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standing_is_read_as_it_was_set() {
        let cell = DirectorCell::default();
        assert_eq!(cell.stats().standing, None);
        for limit in Limit::ALL {
            let standing = Some(Standing { limit, rise_ns: 7, allowed_ns: 9 });
            cell.set_standing(standing);
            assert_eq!(cell.stats().standing, standing);
        }
        cell.set_standing(None);
        assert_eq!(cell.stats().standing, None);
    }
}
