//! Delays and reorders another backend's requests, to test the code above backends.
//!
//! A request is either executed at once and its completion delayed, or delayed itself and executed later. A seed decides
//! which and for how long; time is the caller's. Some requests are [`Submitted::Busy`] at random. Content and durability
//! do not change.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pilotlight_reactor::CompletionMode;

use super::{Access, Backend, Bell, Channel, Completion, Geometry, Random, Request, Submitted};
use crate::wait::Wait;

/// One request in this many is busy.
const BUSY_ONE_IN: u64 = 8;

/// Range of delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delays {
    /// The shortest delay in nanoseconds.
    pub shortest_ns: u64,
    /// The longest delay in nanoseconds; not below the shortest.
    pub longest_ns: u64,
    /// Seed of the delays.
    pub seed: u64,
}

/// A backend with delayed requests.
pub struct DelayBackend {
    inner: Arc<dyn Backend>,
    delays: Delays,
    channels: AtomicU64,
}

impl DelayBackend {
    /// Delays the requests of `inner`. A longest delay below the shortest counts as the shortest.
    pub fn new(inner: Arc<dyn Backend>, delays: Delays) -> Self {
        Self { inner, delays, channels: AtomicU64::new(0) }
    }
}

impl Backend for DelayBackend {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.inner.allocated_bytes()
    }

    fn access(&self) -> Option<Access> {
        self.inner.access()
    }

    fn open_channel(&self, depth: u32) -> io::Result<Box<dyn Channel>> {
        let number = self.channels.fetch_add(1, Ordering::Relaxed);
        let capacity = depth as usize;
        Ok(Box::new(DelayChannel {
            inner: self.inner.open_channel(depth)?,
            delays: self.delays,
            random: Random::new(self.delays.seed.wrapping_add(number)),
            requests: Vec::with_capacity(capacity),
            completions: Vec::with_capacity(capacity),
            arrived: Vec::with_capacity(capacity),
            depth: capacity,
        }))
    }

    fn resize(&self, blocks: Option<u64>) -> io::Result<Geometry> {
        self.inner.resize(blocks)
    }
}

/// A value held back until its time.
struct Held<T> {
    due_ns: u64,
    value: T,
}

struct DelayChannel {
    inner: Box<dyn Channel>,
    delays: Delays,
    random: Random,
    /// Not yet submitted to the inner channel.
    requests: Vec<Held<Request>>,
    /// Not yet returned.
    completions: Vec<Held<Completion>>,
    /// Scratch space of `poll`.
    arrived: Vec<Completion>,
    depth: usize,
}

impl DelayChannel {
    fn later(&mut self, now_ns: u64) -> u64 {
        let span = self.delays.longest_ns.saturating_sub(self.delays.shortest_ns);
        now_ns + self.delays.shortest_ns + self.random.below(span.saturating_add(1))
    }

    /// Submits due requests to the inner channel.
    fn start_due(&mut self, now_ns: u64) {
        let mut index = 0;
        while index < self.requests.len() {
            if self.requests[index].due_ns > now_ns {
                index += 1;
                continue;
            }
            let held = self.requests.swap_remove(index);
            match self.inner.submit(held.value, now_ns) {
                Submitted::Done(completion) => self.completions.push(Held { due_ns: now_ns, value: completion }),
                Submitted::Pending => {}
                Submitted::Busy(request) => {
                    // `swap_remove` moved the last entry to `index`, which comes next.
                    self.requests.push(Held { due_ns: now_ns + 1, value: request });
                }
            }
        }
    }

    /// Collects completions of the inner channel.
    fn collect(&mut self, now_ns: u64) {
        self.inner.poll(now_ns, &mut self.arrived);
        while let Some(completion) = self.arrived.pop() {
            let due_ns = self.later(now_ns);
            self.completions.push(Held { due_ns, value: completion });
        }
    }

    /// Returns due completions in random order.
    fn return_due(&mut self, now_ns: u64, done: &mut Vec<Completion>) {
        if self.completions.is_empty() {
            return;
        }
        let start = self.random.below(self.completions.len() as u64) as usize;
        self.completions.rotate_left(start);
        let mut index = 0;
        while index < self.completions.len() && done.len() < done.capacity() {
            if self.completions[index].due_ns <= now_ns {
                done.push(self.completions.swap_remove(index).value);
            } else {
                index += 1;
            }
        }
    }
}

impl Channel for DelayChannel {
    fn submit(&mut self, request: Request, now_ns: u64) -> Submitted {
        if self.in_flight() >= self.depth || self.random.one_in(BUSY_ONE_IN) {
            return Submitted::Busy(request);
        }
        let due_ns = self.later(now_ns);
        if self.random.one_in(2) {
            self.requests.push(Held { due_ns, value: request });
            return Submitted::Pending;
        }
        match self.inner.submit(request, now_ns) {
            Submitted::Done(completion) => self.completions.push(Held { due_ns, value: completion }),
            Submitted::Pending => {}
            Submitted::Busy(request) => return Submitted::Busy(request),
        }
        Submitted::Pending
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<Completion>) {
        self.start_due(now_ns);
        self.collect(now_ns);
        self.return_due(now_ns, done);
    }

    fn in_flight(&self) -> usize {
        self.requests.len() + self.inner.in_flight() + self.completions.len()
    }

    fn set_completions(&mut self, mode: CompletionMode, bell: &Arc<Bell>) {
        self.inner.set_completions(mode, bell);
    }

    fn wait(&self, now_ns: u64) -> Wait {
        let requests = self.requests.iter().map(|held| held.due_ns);
        let due_ns = requests.chain(self.completions.iter().map(|held| held.due_ns)).min();
        self.inner.wait(now_ns).min(due_ns.map_or(Wait::Event, Wait::Until))
    }
}

impl Drop for DelayChannel {
    fn drop(&mut self) {
        let lost = self.in_flight();
        assert!(lost == 0 || std::thread::panicking(), "{lost} requests in flight were lost: poll until none is");
    }
}

#[cfg(test)]
mod tests {
    use super::super::conformance::{self, Subject};
    use super::super::{MemoryBackend, MemoryBudget, Op};
    use super::*;

    fn memory(block_size: u32, blocks: u64) -> Arc<dyn Backend> {
        Arc::new(MemoryBackend::new(block_size, blocks, Arc::new(MemoryBudget::unlimited())).expect("memory"))
    }

    fn delayed(block_size: u32, blocks: u64, seed: u64) -> Arc<dyn Backend> {
        let delays = Delays { shortest_ns: 2_000, longest_ns: 40_000, seed };
        Arc::new(DelayBackend::new(memory(block_size, blocks), delays))
    }

    #[test]
    fn conforms() {
        let create = |block_size, blocks| delayed(block_size, blocks, 5);
        conformance::check(&Subject {
            create: &create,
            stores: true,
            resizes: true,
            counts_space: true,
            requests: 3_000,
            seed: 1,
        });
    }

    #[test]
    fn conforms_with_two_layers() {
        let create = |block_size, blocks| {
            let delays = Delays { shortest_ns: 0, longest_ns: 9_000, seed: 3 };
            Arc::new(DelayBackend::new(delayed(block_size, blocks, 4), delays)) as Arc<dyn Backend>
        };
        conformance::check(&Subject {
            create: &create,
            stores: true,
            resizes: true,
            counts_space: true,
            requests: 500,
            seed: 2,
        });
    }

    /// Submits flushes at time 0; returns the tags and times of their completions.
    fn order(seed: u64) -> Vec<(u64, u64)> {
        let backend = delayed(4096, 100, seed);
        let mut channel = backend.open_channel(32).expect("a channel");
        for tag in 0..32 {
            let mut request = Request { tag, op: Op::Flush, lba: 0, blocks: 0, buffer: None };
            while let Submitted::Busy(busy) = channel.submit(request, 0) {
                request = busy;
            }
        }
        let (mut order, mut done) = (Vec::new(), Vec::with_capacity(32));
        for now_ns in 0..=40_000 {
            channel.poll(now_ns, &mut done);
            order.extend(done.drain(..).map(|completion| (completion.tag, now_ns)));
        }
        assert_eq!(channel.in_flight(), 0, "nothing is later than the longest delay");
        order
    }

    #[test]
    fn completions_are_delayed_reordered_and_reproducible() {
        let first = order(1);
        assert_eq!(first.len(), 32);
        assert!(first.iter().all(|&(_, at_ns)| at_ns >= 2_000));
        assert!(!first.is_sorted(), "reordered");
        assert_eq!(first, order(1));
        assert_ne!(first, order(2));
    }

    #[test]
    #[should_panic(expected = "in flight were lost")]
    fn dropping_a_channel_with_requests_panics() {
        let backend = delayed(4096, 100, 1);
        let mut channel = backend.open_channel(64).expect("a channel");
        for tag in 0..10 {
            let request = Request { tag, op: Op::Flush, lba: 0, blocks: 0, buffer: None };
            let _ = channel.submit(request, 0);
        }
    }
}
