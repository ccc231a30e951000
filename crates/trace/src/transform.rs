//! Transformations between a trace and a replay: scaling, spreading and cutting time; selecting and mapping volumes; think times.
//!
//! Each is an iterator adaptor over requests, in bounded memory and in the order of time. The consumer decides between *open-loop* replay
//! (each request at its time) and *dependent* replay (each request of a volume a think time after the completion of the one before),
//! for which [`Gaps`] computes the think times.

use std::collections::{BTreeMap, VecDeque};

use crate::placement::{Place, Placement};
use crate::random::Stream;
use crate::request::Request;

/// Requests at a multiple of the trace's speed: 2 halves the times.
#[derive(Clone, Debug)]
pub struct Scaled<I> {
    inner: I,
    speed: f64,
}

impl<I> Scaled<I> {
    /// Requests at `speed`.
    ///
    /// # Panics
    /// If `speed` is not a finite number above 0.
    pub fn new(inner: I, speed: f64) -> Self {
        assert!(speed.is_finite() && speed > 0.0, "the speed of a replay must be above 0, not {speed}");
        Self { inner, speed }
    }
}

impl<I: Iterator<Item = Request>> Iterator for Scaled<I> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let request = self.inner.next()?;
        let at_ns = if self.speed == 1.0 { request.at_ns } else { (request.at_ns as f64 / self.speed) as u64 };
        Some(Request { at_ns, ..request })
    }
}

/// Requests of a trace with a coarse clock, spread at random over each tick.
///
/// Tencent's clock has a resolution of a second: without this a replay sends all requests of a second at once. The times are uniform,
/// independent and sorted; requests keep their order. At most [`Spread::MAX_HELD`] requests are held; the remaining ones of a tick get
/// times in the rest of the tick.
#[derive(Clone, Debug)]
pub struct Spread<I> {
    inner: I,
    tick_ns: u64,
    seed: u64,
    max_held: usize,
    ready: VecDeque<Request>,
    /// The first request of the next tick.
    ahead: Option<Request>,
    /// The last time that was returned.
    last_ns: u64,
}

impl<I: Iterator<Item = Request>> Spread<I> {
    /// Most requests that are held.
    pub const MAX_HELD: usize = 1 << 20;

    /// Spreads over ticks of `tick_ns`, which must not be 0.
    pub fn new(inner: I, tick_ns: u64, seed: u64) -> Self {
        let tick_ns = tick_ns.max(1);
        Self { inner, tick_ns, seed, max_held: Self::MAX_HELD, ready: VecDeque::new(), ahead: None, last_ns: 0 }
    }

    /// Reads a tick, up to `max_held` requests, and draws their times.
    fn fill(&mut self) {
        let Some(first) = self.ahead.take().or_else(|| self.inner.next()) else { return };
        let tick = first.at_ns / self.tick_ns;
        self.ready.push_back(first);
        while self.ahead.is_none() && self.ready.len() < self.max_held {
            let Some(request) = self.inner.next() else { break };
            if request.at_ns / self.tick_ns == tick {
                self.ready.push_back(request);
            } else {
                self.ahead = Some(request);
            }
        }
        let begin_ns = tick * self.tick_ns;
        let from_ns = self.last_ns.max(begin_ns);
        let left_ns = begin_ns.saturating_add(self.tick_ns).saturating_sub(from_ns).max(1);
        let mut stream = Stream::new(self.seed, SPREAD, from_ns);
        let mut times: Vec<u64> = self.ready.iter().map(|_| stream.below(left_ns)).collect();
        times.sort_unstable();
        for (request, within) in self.ready.iter_mut().zip(times) {
            request.at_ns = from_ns.saturating_add(within);
            self.last_ns = request.at_ns;
        }
    }
}

/// Purpose of the random times.
const SPREAD: u64 = 101;

impl<I: Iterator<Item = Request>> Iterator for Spread<I> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.ready.is_empty() {
            self.fill();
        }
        self.ready.pop_front()
    }
}

/// The requests of an interval, with times from its start.
#[derive(Clone, Debug)]
pub struct Cut<I> {
    inner: I,
    from_ns: u64,
    to_ns: u64,
}

impl<I> Cut<I> {
    /// Requests from `from_ns` up to but not including `to_ns`.
    pub fn new(inner: I, from_ns: u64, to_ns: u64) -> Self {
        Self { inner, from_ns, to_ns }
    }
}

impl<I: Iterator<Item = Request>> Iterator for Cut<I> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let request = self.inner.by_ref().find(|request| request.at_ns >= self.from_ns)?;
        (request.at_ns < self.to_ns).then(|| Request { at_ns: request.at_ns - self.from_ns, ..request })
    }
}

/// A request with the assignment of its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The request, its offset within its partition.
    pub request: Request,
    /// The assignment of its volume.
    pub place: Place,
}

/// The requests of the selected volumes.
#[derive(Clone, Debug)]
pub struct Placing<'a, I> {
    inner: I,
    placement: &'a Placement,
}

impl<'a, I> Placing<'a, I> {
    /// Requests with the assignments of `placement`.
    pub fn new(inner: I, placement: &'a Placement) -> Self {
        Self { inner, placement }
    }
}

impl<I: Iterator<Item = Request>> Iterator for Placing<'_, I> {
    type Item = Placed;

    fn next(&mut self) -> Option<Placed> {
        loop {
            let request = self.inner.next()?;
            if let Some(&place) = self.placement.find(request.volume) {
                let size = self.placement.partition_bytes;
                let (offset, bytes) = wrapped(request.offset, request.bytes, size, 1);
                return Some(Placed { request: Request { offset, bytes, ..request }, place });
            }
        }
    }
}

/// Maps a request into a space of `size` bytes and blocks of `block` bytes: the offset modulo the size, moved down if the end does not
/// fit, both rounded to blocks, and the request truncated to the space.
///
/// `block` must be a power of two, and `size` at least one block.
#[must_use]
pub fn wrapped(offset: u64, bytes: u32, size: u64, block: u32) -> (u64, u32) {
    let block = u64::from(block);
    let size = size / block * block;
    if size == 0 {
        return (0, 0);
    }
    let first = offset % size / block * block;
    let whole = u64::from(bytes).max(1).next_multiple_of(block).min(size).min(u64::from(u32::MAX) / block * block);
    (first.min(size - whole), whole as u32)
}

/// A request with its think time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The request.
    pub request: Request,
    /// Nanoseconds since the previous request of the volume, less the assumed service time; `None` for the first.
    pub think_ns: Option<u64>,
}

/// Think times for dependent replay.
///
/// Most traces have no completion times, so `service_ns` is the assumed service time; with 0 the think time is the whole gap, an upper
/// bound. The last time of each volume is kept in memory.
#[derive(Clone, Debug)]
pub struct Gaps<I> {
    inner: I,
    service_ns: u64,
    last_ns: BTreeMap<u32, u64>,
}

impl<I> Gaps<I> {
    /// Gaps with an assumed service time in nanoseconds.
    pub fn new(inner: I, service_ns: u64) -> Self {
        Self { inner, service_ns, last_ns: BTreeMap::new() }
    }
}

impl<I: Iterator<Item = Request>> Iterator for Gaps<I> {
    type Item = Gap;

    fn next(&mut self) -> Option<Gap> {
        let request = self.inner.next()?;
        let before = self.last_ns.insert(request.volume, request.at_ns);
        let think_ns = before.map(|ns| (request.at_ns - ns).saturating_sub(self.service_ns));
        Some(Gap { request, think_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Op;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    fn requests(times: &[u64]) -> Vec<Request> {
        let request = |(number, &at_ns): (usize, &u64)| Request {
            at_ns,
            volume: number as u32 % 3,
            op: Op::Read,
            offset: number as u64,
            bytes: 512,
        };
        times.iter().enumerate().map(request).collect()
    }

    fn times(requests: impl Iterator<Item = Request>) -> Vec<u64> {
        requests.map(|request| request.at_ns).collect()
    }

    #[test]
    fn twice_the_speed_halves_the_times() {
        let all = requests(&[0, 10, u64::MAX]);
        assert_eq!(times(Scaled::new(all.clone().into_iter(), 2.0)), [0, 5, 1 << 63]);
        assert_eq!(times(Scaled::new(all.into_iter(), 1.0)), [0, 10, u64::MAX]);
    }

    #[test]
    fn a_cut_begins_at_zero() {
        assert_eq!(times(Cut::new(requests(&[0, 10, 20, 30, 40]).into_iter(), 10, 40)), [0, 10, 20]);
    }

    #[test]
    fn gaps_are_by_volume() {
        let gaps: Vec<_> =
            Gaps::new(requests(&[0, 1, 5, 100, 103, 5000]).into_iter(), 10).map(|gap| gap.think_ns).collect();
        assert_eq!(gaps, [None, None, None, Some(90), Some(92), Some(4985)]);
    }

    #[test]
    fn requests_wrap_into_the_space() {
        assert_eq!(wrapped(10_000, 512, 8192, 512), (1536, 512)); // 10,000 - 8,192 = 1,808, in the fourth block
        assert_eq!(wrapped(8191, 4096, 8192, 512), (4096, 4096));
        assert_eq!(wrapped(0, 100_000, 8192, 4096), (0, 8192));
        assert_eq!(wrapped(5, 5, 100, 4096), (0, 0));
    }

    proptest! {
        #[test]
        fn wrapped_requests_fit(offset: u64, bytes in 1_u32.., size in 4096_u64..1 << 40, shift in 0_u32..13) {
            let block = 1 << shift;
            let (first, whole) = wrapped(offset, bytes, size, block);
            prop_assert!(first + u64::from(whole) <= size && whole > 0);
            prop_assert!(first % u64::from(block) == 0 && whole % block == 0);
        }

        #[test]
        fn spreading_keeps_ticks_and_order(
            ticks in proptest::collection::vec(0_u64..20, 0..200), seed: u64, max_held in 1_usize..50,
        ) {
            let mut ticks = ticks;
            ticks.sort_unstable();
            let slow = requests(&ticks.iter().map(|tick| tick * 1000).collect::<Vec<_>>());
            let spread: Vec<Request> = Spread { max_held, ..Spread::new(slow.clone().into_iter(), 1000, seed) }.collect();
            prop_assert!(spread.is_sorted_by_key(|request| request.at_ns));
            let back: Vec<Request> =
                spread.iter().map(|request| Request { at_ns: request.at_ns / 1000 * 1000, ..*request }).collect();
            prop_assert_eq!(back, slow);
        }
    }
}
