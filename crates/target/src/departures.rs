//! How long commands stay: from the poll that read them until their answer is with the socket.
//!
//! The clock is read once, at the end of a poll in which answers have left. Most of them belong to commands that came
//! together, in this poll or in an earlier one; so they are counted in groups, and each group is recorded at once.

use pilotlight_reactor::clock;

use pilotlight_reactor::Histogram;

/// Groups of one poll. Should there be more, the clock is read once more.
const GROUPS: usize = 64;

/// Where the time at the end of a poll comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// From the system.
    Monotonic,
    /// A poll takes no time: for tests that hand time in.
    Handed,
}

/// Answers that have left in this poll, by the time when their commands came.
#[derive(Debug)]
pub struct Departures {
    clock: Clock,
    groups: [(u64, u64); GROUPS],
    used: usize,
}

impl Departures {
    /// None yet.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, groups: [(0, 0); GROUPS], used: 0 }
    }

    /// The answers to `count` commands that came at `arrived_ns` have left, in the poll that began at `now_ns`. What came
    /// at 0 does not count.
    pub fn left(&mut self, arrived_ns: u64, count: u64, now_ns: u64, into: &Histogram) {
        if arrived_ns == 0 || count == 0 {
            return;
        }
        match self.groups[..self.used].last_mut() {
            Some((arrived, counted)) if *arrived == arrived_ns => return *counted += count,
            _ if self.used == GROUPS => self.record(now_ns, into),
            _ => {}
        }
        self.groups[self.used] = (arrived_ns, count);
        self.used += 1;
    }

    /// The poll that began at `now_ns` ends.
    pub fn record(&mut self, now_ns: u64, into: &Histogram) {
        if self.used == 0 {
            return;
        }
        let end_ns = match self.clock {
            Clock::Monotonic => clock::now_ns(),
            Clock::Handed => now_ns,
        };
        for &(arrived_ns, count) in &self.groups[..self.used] {
            into.record(end_ns.saturating_sub(arrived_ns), count);
        }
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_is_counted_once_in_whatever_groups() {
        let (mut departures, histogram) = (Departures::new(Clock::Handed), Histogram::default());
        departures.record(5, &histogram);
        (0..5).for_each(|_| departures.left(90, 2, 100, &histogram));
        departures.left(0, 7, 100, &histogram);
        (0..2 * GROUPS as u64).for_each(|n| departures.left(50 + n % 2, 1, 100, &histogram));
        departures.record(100, &histogram);
        let snapshot = histogram.snapshot();
        assert_eq!((snapshot.count(), snapshot.max_ns()), (10 + 2 * GROUPS as u64, 50));
        assert_eq!(snapshot.percentile_ns(0.05), 10);
        departures.record(200, &histogram);
        assert_eq!(histogram.snapshot(), snapshot);
    }
}
