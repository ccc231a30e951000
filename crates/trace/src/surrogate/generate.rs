//! Merges the requests of all volumes by time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::request::Request;
use crate::surrogate::Member;
use crate::surrogate::bursts::{Burst, Schedule, WINDOW_NS};
use crate::surrogate::volume::{Common, SEGMENT_NS, Volume};

/// Windows of bursts in the cache.
const CACHED_WINDOWS: usize = 4;

/// Iterator over a member's requests; times start at 0.
#[derive(Clone, Debug)]
pub struct Generator {
    common: Common,
    span_ns: u64,
    volumes: Vec<Volume>,
    /// Time and volume of the next request of each volume. Ties go to the lower number.
    next: BinaryHeap<Reverse<(u64, u32)>>,
    bursts: Windows,
}

impl Generator {
    /// The requests of `member` for `span_ns` nanoseconds. The same member, seed and span give the same requests.
    #[must_use]
    pub fn new(member: &Member, seed: u64, span_ns: u64) -> Self {
        let parts = parts(member.volumes, member.volume_skew);
        let volume = |(number, part): (u32, &f64)| Volume::new(number, part * member.mean_iops, member, seed);
        let mut this = Self {
            common: Common::new(member),
            span_ns,
            volumes: (0..).zip(&parts).map(volume).collect(),
            next: BinaryHeap::with_capacity(parts.len()),
            bursts: Windows { schedule: Schedule::new(member, seed, span_ns, parts), kept: BTreeMap::new() },
        };
        (0..member.volumes).for_each(|number| this.schedule(number));
        this
    }

    /// Continues from a time that is not before the last `seek`, with the same requests as without seeking. The cost is proportional to the
    /// changes of the load in between, not to the requests.
    pub fn seek(&mut self, from_ns: u64) {
        self.next.clear();
        let segment = from_ns / SEGMENT_NS;
        for number in 0..self.volumes.len() as u32 {
            self.volumes[number as usize].seek(segment);
            self.schedule(number);
        }
        while self.next.peek().is_some_and(|&Reverse((at_ns, _))| at_ns < from_ns) {
            Iterator::next(self);
        }
    }

    /// Expected number of requests of each window of the span: the integral of the arrival rate. The cost is proportional to the changes of
    /// the load.
    #[must_use]
    pub fn expected_loads(member: &Member, seed: u64, span_ns: u64, window_ns: u64) -> Vec<f64> {
        let mut this = Self::new(member, seed, span_ns);
        let Self { common, volumes, bursts, .. } = &mut this;
        let window_ns = window_ns.max(1);
        let windows = (0..span_ns.div_ceil(window_ns)).map(|window| window * window_ns);
        let mut loads = Vec::new();
        for from_ns in windows {
            let to_ns = (from_ns + window_ns).min(span_ns);
            let of = |volume: &mut Volume| volume.expected(common, (from_ns, to_ns), |at_ns| bursts.after(at_ns));
            loads.push(volumes.iter_mut().map(of).sum());
        }
        loads
    }

    fn schedule(&mut self, number: u32) {
        let bursts = &mut self.bursts;
        let volume = &mut self.volumes[number as usize];
        let at_ns = volume.arrive(&self.common, self.span_ns, |at_ns| bursts.after(at_ns));
        self.next.extend(at_ns.map(|at_ns| Reverse((at_ns, number))));
    }
}

impl Iterator for Generator {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let Reverse((_, number)) = self.next.pop()?;
        let request = self.volumes[number as usize].request(&self.common);
        self.schedule(number);
        Some(request)
    }
}

/// Fraction of the load of each volume: proportional to `rank^-skew`, with ranks by number.
fn parts(volumes: u32, skew: f64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=volumes).map(|rank| f64::from(rank).powf(-skew)).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

/// Cache of the bursts of windows. Volumes are at about the same time; evicted windows are drawn again.
#[derive(Clone, Debug)]
struct Windows {
    schedule: Schedule,
    kept: BTreeMap<u64, Vec<Burst>>,
}

impl Windows {
    /// The first burst that ends after a time, if it is in the time's window or the next.
    fn after(&mut self, at_ns: u64) -> Option<Burst> {
        let window = at_ns / WINDOW_NS;
        (window..window + 2).find_map(|window| {
            let bursts = self.window(window);
            let at = bursts.partition_point(|burst| burst.end_ns <= at_ns);
            bursts.get(at).copied()
        })
    }

    fn window(&mut self, window: u64) -> &[Burst] {
        if !self.kept.contains_key(&window) {
            if self.kept.len() >= CACHED_WINDOWS {
                self.kept.pop_first();
            }
            self.kept.insert(window, self.schedule.window(window));
        }
        &self.kept[&window]
    }
}
