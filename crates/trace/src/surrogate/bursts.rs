//! Times and volumes of bursts.
//!
//! Each window of 30 minutes draws its bursts from its own random stream, independent of earlier windows. One random window of the span
//! has the published maximum; each other one a uniform number from `min_fraction` times the maximum up to the maximum. Bursts of a
//! window have random starts, at least [`MIN_GAP_NS`] apart and from both ends of the window. A window that the span truncates has a
//! proportional number.

use crate::random::{Stream, mix};
use crate::surrogate::Member;

/// Width of a window.
pub(super) const WINDOW_NS: u64 = 1_800_000_000_000;
/// Least gap between bursts: more than two bins of a second, so that it contains a complete bin.
const MIN_GAP_NS: u64 = 2_500_000_000;
/// Purposes of draws.
const BUSIEST: u64 = 2;
const NUMBER: u64 = 3;
const STARTS: u64 = 4;
const VOLUMES: u64 = 5;

/// A burst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Burst {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    /// Factor of the rate of a participating volume.
    pub(super) factor: f64,
    /// Selects the participating volumes.
    key: u64,
    share: f64,
    /// The volume that always participates.
    always: u32,
}

impl Burst {
    /// Whether a volume participates.
    pub(super) fn has(&self, volume: u32) -> bool {
        volume == self.always || self.drawn(volume)
    }

    fn drawn(&self, volume: u32) -> bool {
        let hash = mix(self.key ^ mix(u64::from(volume)));
        (hash >> 11) as f64 / (1_u64 << 53) as f64 <= self.share
    }
}

/// All bursts of a span.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    seed: u64,
    span_ns: u64,
    busiest: u64,
    max_per_window: u32,
    min_fraction: f64,
    length_ns: u64,
    height: f64,
    volumes_share: f64,
    /// Fraction of the load of each volume.
    parts: Vec<f64>,
}

impl Schedule {
    pub(super) fn new(member: &Member, seed: u64, span_ns: u64, parts: Vec<f64>) -> Self {
        let complete = (span_ns / WINDOW_NS).max(1);
        Self {
            seed,
            span_ns,
            busiest: Stream::new(seed, BUSIEST, 0).below(complete),
            max_per_window: member.marginals.max_bursts,
            min_fraction: member.burst_min_fraction,
            length_ns: (member.burst_length_s * 1e9) as u64,
            height: member.burst_height,
            volumes_share: member.burst_volumes,
            parts,
        }
    }

    /// The bursts that start in a window, in order.
    pub(super) fn window(&self, window: u64) -> Vec<Burst> {
        let begin_ns = window.saturating_mul(WINDOW_NS);
        let length_ns = self.span_ns.saturating_sub(begin_ns).min(WINDOW_NS);
        let each_ns = self.length_ns + MIN_GAP_NS;
        let part = length_ns as f64 / WINDOW_NS as f64;
        let room = length_ns.saturating_sub(MIN_GAP_NS) / each_ns;
        let count = ((self.number(window) * part).round() as u64).min(room);
        let free_ns = length_ns.saturating_sub(MIN_GAP_NS + count * each_ns);
        let mut stream = Stream::new(self.seed, STARTS, window);
        let mut starts: Vec<u64> = (0..count).map(|_| stream.below(free_ns.max(1))).collect();
        starts.sort_unstable();
        let burst = |(at, start): (u64, &u64)| self.burst(window, at, begin_ns + MIN_GAP_NS + start + at * each_ns);
        (0..).zip(&starts).map(burst).collect()
    }

    fn number(&self, window: u64) -> f64 {
        let min_fraction = self.min_fraction.clamp(0.0, 1.0);
        let fraction = Stream::new(self.seed, NUMBER, window).between((min_fraction, 1.0));
        let max = f64::from(self.max_per_window);
        if window == self.busiest { max } else { max * fraction }
    }

    /// The participating volumes carry the whole increase of the load in proportion to their load.
    fn burst(&self, window: u64, at: u64, start_ns: u64) -> Burst {
        let mut stream = Stream::new(self.seed, VOLUMES, window << 16 | at);
        let mut burst = Burst {
            start_ns,
            end_ns: start_ns + self.length_ns,
            factor: 1.0,
            key: stream.draw(),
            share: self.volumes_share,
            always: stream.below(self.parts.len().max(1) as u64) as u32,
        };
        let participating: f64 =
            (0..).zip(&self.parts).filter(|&(volume, _)| burst.has(volume)).map(|(_, part)| part).sum();
        burst.factor = 1.0 + (self.height - 1.0).max(0.0) / participating.max(1e-9);
        burst
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surrogate::Family;

    fn schedule(seed: u64, hours: u64) -> Schedule {
        let member = Family::alibaba().member(seed);
        Schedule::new(&member, seed, hours * 2 * WINDOW_NS, vec![0.5, 0.3, 0.2])
    }

    #[test]
    fn bursts_are_apart_and_the_busiest_window_has_the_most() {
        for seed in 0..20 {
            let schedule = schedule(seed, 3);
            let windows: Vec<Vec<Burst>> = (0..6).map(|window| schedule.window(window)).collect();
            assert_eq!(windows.iter().map(Vec::len).max(), Some(82));
            let all: Vec<Burst> = windows.concat();
            assert!(all.windows(2).all(|pair| pair[1].start_ns >= pair[0].end_ns + MIN_GAP_NS));
            assert!(schedule.window(6).is_empty(), "after the span");
        }
    }

    /// The rule of [`crate::stats::bursts`] separates two bursts by a complete bin without a burst.
    #[test]
    fn a_complete_bin_separates_any_two_bursts() {
        let bin_ns = crate::stats::BurstRule::default().bin_ns;
        let bins_between = |earlier: &Burst, later: &Burst| {
            let first_whole = earlier.end_ns.div_ceil(bin_ns);
            (later.start_ns / bin_ns).saturating_sub(first_whole)
        };
        for (seed, length_s) in (0..20).flat_map(|seed| [(seed, 3.0), (seed, 19.4), (seed, 60.0)]) {
            let member = Member { burst_length_s: length_s, ..Family::alibaba().member(seed) };
            let schedule = Schedule::new(&member, seed, 6 * WINDOW_NS, vec![0.5, 0.3, 0.2]);
            let all: Vec<Burst> = (0..6).flat_map(|window| schedule.window(window)).collect();
            assert!(all.len() > 150, "{}", all.len());
            assert!(all.windows(2).all(|pair| pair[1].start_ns >= pair[0].end_ns + 2_500_000_000), "gap of 2.5 s");
            assert!(all.windows(2).all(|pair| bins_between(&pair[0], &pair[1]) >= 1), "complete bin");
        }
    }

    #[test]
    fn the_load_of_a_burst_has_the_configured_height() {
        let schedule = schedule(4, 1);
        for burst in schedule.window(0) {
            let load = |volume: u32| if burst.has(volume) { burst.factor } else { 1.0 };
            let total: f64 = (0..3).map(|volume| load(volume) * schedule.parts[volume as usize]).sum();
            assert!((total - schedule.height).abs() < 1e-9, "{total}");
        }
    }
}
