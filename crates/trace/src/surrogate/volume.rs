//! Requests of one volume.
//!
//! The rate is the product of the volume's mean, the daily variation, the Markov sources and a burst. All are constant between
//! *changes*, so the time to the next batch is exponential up to the next change, and is drawn again from there (the exponential
//! distribution is memoryless). The requests of a batch are sequential and close in time.
//!
//! Every [`SEGMENT_NS`] is also a change, at which the random streams of arrivals and requests restart from the segment's number; a batch
//! ends with its segment. A segment can therefore be generated without the earlier ones: only the sources are advanced, which have
//! separate streams.

use crate::random::{Stream, mix};
use crate::request::{Op, Request};
use crate::surrogate::Member;
use crate::surrogate::bursts::Burst;
use crate::surrogate::sizes::Sizes;

/// Shortest time constant of the Markov sources, and how many there are, a factor of 4 apart: 2 s to 8,192 s.
const FASTEST_NS: f64 = 2e9;
const SOURCES: usize = 7;
/// Step of the daily variation.
const DAY_STEP_NS: u64 = 60_000_000_000;
const DAY_NS: f64 = 86_400e9;
/// Largest mean gap within a batch, and its largest fraction of the mean time per request at high rates.
const BATCH_GAP_NS: f64 = 50_000.0;
const BATCH_GAP_FRACTION: f64 = 0.5;
/// Alignment of offsets in bytes.
const BLOCK: u64 = 4096;
/// Length of an independent segment.
pub(super) const SEGMENT_NS: u64 = 1_000_000_000;
/// Purposes of random streams.
const ARRIVALS: u64 = 10;
const SWINGS: u64 = 11;
const REQUESTS: u64 = 12;

/// A two-state source.
#[derive(Clone, Copy, Debug)]
struct Source {
    up: bool,
    next_ns: u64,
    mean_ns: f64,
    weight: f64,
    swings: Stream,
}

impl Source {
    /// Advances the source to `at_ns`.
    fn advance(&mut self, at_ns: u64) {
        while self.next_ns <= at_ns {
            self.up = !self.up;
            self.next_ns += 1 + self.swings.exponential(self.mean_ns) as u64;
        }
    }
}

/// Parameters of all volumes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common {
    pub(super) member: Member,
    reads: Sizes,
    writes: Sizes,
}

impl Common {
    pub(super) fn new(member: &Member) -> Self {
        let sizes = |quartile| Sizes::new(quartile, member.small, member.tail);
        Self {
            member: *member,
            reads: sizes(member.marginals.read_quartile3_bytes),
            writes: sizes(member.marginals.write_quartile3_bytes),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Volume {
    pub(super) number: u32,
    mean_iops: f64,
    seed: u64,
    arrivals: Stream,
    requests: Stream,
    /// End of the current segment.
    segment_end_ns: u64,
    sources: [Source; SOURCES],
    /// Sources at the last seek: the volume may be ahead of it.
    seek_sources: [Source; SOURCES],
    /// Current time.
    at_ns: u64,
    /// Remaining requests of the batch.
    batch_left: u64,
    batch_gap_ns: f64,
    next_offset: u64,
}

impl Volume {
    pub(super) fn new(number: u32, mean_iops: f64, member: &Member, seed: u64) -> Self {
        let sources = sources(member.hurst, seed, number);
        let mut volume = Self {
            number,
            mean_iops,
            seed,
            arrivals: Stream::new(seed, ARRIVALS, 0),
            sources,
            seek_sources: sources,
            requests: Stream::new(seed, REQUESTS, 0),
            segment_end_ns: 0,
            at_ns: 0,
            batch_left: 0,
            batch_gap_ns: 0.0,
            next_offset: 0,
        };
        volume.begin(0);
        volume
    }

    /// Continues from a segment that is not before the last `seek`.
    pub(super) fn seek(&mut self, segment: u64) {
        self.begin(segment);
        self.seek_sources.iter_mut().for_each(|source| source.advance(segment * SEGMENT_NS));
        self.sources = self.seek_sources;
    }

    /// Starts a segment.
    fn begin(&mut self, segment: u64) {
        let index = mix(segment) ^ u64::from(self.number);
        self.arrivals = Stream::new(self.seed, ARRIVALS, index);
        self.requests = Stream::new(self.seed, REQUESTS, index);
        self.batch_left = 0;
        self.at_ns = segment * SEGMENT_NS;
        self.segment_end_ns = self.at_ns.saturating_add(SEGMENT_NS);
    }

    /// Time of the next request; `None` if it is after `until_ns`.
    ///
    /// `burst_at` returns the first burst that ends after a time.
    pub(super) fn arrive(
        &mut self,
        common: &Common,
        until_ns: u64,
        mut burst_at: impl FnMut(u64) -> Option<Burst>,
    ) -> Option<u64> {
        if self.batch_left > 0 {
            self.batch_left -= 1;
            self.at_ns += self.arrivals.exponential(self.batch_gap_ns) as u64;
            if self.at_ns < self.segment_end_ns {
                return (self.at_ns < until_ns).then_some(self.at_ns);
            }
            self.at_ns = self.segment_end_ns;
        }
        while self.at_ns < until_ns {
            if self.at_ns >= self.segment_end_ns {
                self.begin(self.at_ns / SEGMENT_NS);
            }
            let burst = self.advance(self.at_ns, &mut burst_at);
            let change_ns = self.next_change(burst.as_ref()).min(until_ns).min(self.segment_end_ns);
            let each_ns = 1e9 / self.rate(common, burst.as_ref()).max(1e-12);
            let batch = common.member.batch.max(1.0);
            self.batch_gap_ns = BATCH_GAP_NS.min(BATCH_GAP_FRACTION * each_ns);
            // the next gap starts after the batch
            let gap_ns = self.arrivals.exponential(batch * each_ns - (batch - 1.0) * self.batch_gap_ns);
            if gap_ns < (change_ns - self.at_ns) as f64 {
                self.at_ns += gap_ns as u64;
                self.batch_left = self.batch(common.member.batch) - 1;
                self.next_offset = self.batch_offset(&common.member);
                return Some(self.at_ns);
            }
            self.at_ns = change_ns;
        }
        None
    }

    /// Expected number of requests between two times; times must not decrease.
    pub(super) fn expected(
        &mut self,
        common: &Common,
        (from_ns, to_ns): (u64, u64),
        mut burst_at: impl FnMut(u64) -> Option<Burst>,
    ) -> f64 {
        self.at_ns = from_ns;
        let mut requests = 0.0;
        while self.at_ns < to_ns {
            let burst = self.advance(self.at_ns, &mut burst_at);
            let change_ns = self.next_change(burst.as_ref()).min(to_ns);
            requests += self.rate(common, burst.as_ref()) * (change_ns - self.at_ns) as f64 / 1e9;
            self.at_ns = change_ns;
        }
        requests
    }

    /// Advances the sources; returns the current or next burst of the volume.
    fn advance(&mut self, at_ns: u64, burst_at: &mut impl FnMut(u64) -> Option<Burst>) -> Option<Burst> {
        self.sources.iter_mut().for_each(|source| source.advance(at_ns));
        burst_at(at_ns).filter(|burst| burst.has(self.number))
    }

    /// Size of a batch: geometric, at least 1.
    fn batch(&mut self, mean: f64) -> u64 {
        if mean <= 1.0 {
            return 1;
        }
        let continuation = 1.0 - 1.0 / mean;
        1 + (self.arrivals.unit().ln() / continuation.ln()) as u64
    }

    /// Time of the next change of the rate.
    fn next_change(&self, burst: Option<&Burst>) -> u64 {
        let day_ns = (self.at_ns / DAY_STEP_NS + 1) * DAY_STEP_NS;
        let source_ns = self.sources.iter().map(|source| source.next_ns).min().unwrap_or(u64::MAX);
        let burst_ns = burst.map_or(u64::MAX, |b| if b.start_ns > self.at_ns { b.start_ns } else { b.end_ns });
        day_ns.min(source_ns).min(burst_ns)
    }

    fn rate(&self, common: &Common, burst: Option<&Burst>) -> f64 {
        let member = &common.member;
        let step = (self.at_ns / DAY_STEP_NS * DAY_STEP_NS) as f64;
        let day = 1.0 + member.diurnal * (step / DAY_NS * std::f64::consts::TAU).sin();
        let swing: f64 = self.sources.iter().map(|s| if s.up { s.weight } else { -s.weight }).sum();
        let factor = burst.filter(|b| b.start_ns <= self.at_ns && self.at_ns < b.end_ns).map_or(1.0, |b| b.factor);
        self.mean_iops * day * (1.0 + member.modulation * swing) * factor
    }

    /// Offset of a batch; the hot part is at the start of the volume.
    fn batch_offset(&mut self, member: &Member) -> u64 {
        let blocks = (member.volume_bytes / BLOCK).max(1);
        let hot = ((blocks as f64 * member.hot_space) as u64).clamp(1, blocks);
        let is_hot = hot == blocks || self.requests.unit() <= member.hot_traffic;
        let block = if is_hot { self.requests.below(hot) } else { hot + self.requests.below(blocks - hot) };
        block * BLOCK
    }

    /// The request at the current time.
    pub(super) fn request(&mut self, common: &Common) -> Request {
        let member = &common.member;
        let reads = self.requests.unit() <= member.marginals.read_share;
        let (op, sizes) = if reads { (Op::Read, &common.reads) } else { (Op::Write, &common.writes) };
        let bytes = sizes.draw(&mut self.requests);
        let end = self.next_offset + u64::from(bytes);
        let offset = if end <= member.volume_bytes { self.next_offset } else { 0 };
        self.next_offset = (offset + u64::from(bytes)).next_multiple_of(BLOCK);
        Request { at_ns: self.at_ns, volume: self.number, op, offset, bytes }
    }
}

/// Sources whose weights sum to 1; the square of a weight falls with its time constant as `tau^(2H-2)`.
fn sources(hurst: f64, seed: u64, volume: u32) -> [Source; SOURCES] {
    let weight = |scale: usize| 4_f64.powf(scale as f64 * (hurst - 1.0));
    let total: f64 = (0..SOURCES).map(weight).sum();
    std::array::from_fn(|scale| {
        let mean_ns = FASTEST_NS * 4_f64.powi(scale as i32);
        let mut swings = Stream::new(seed, SWINGS, u64::from(volume) * SOURCES as u64 + scale as u64);
        Source {
            up: swings.draw() & 1 == 0,
            next_ns: swings.exponential(mean_ns) as u64,
            mean_ns,
            weight: weight(scale) / total,
            swings,
        }
    })
}
