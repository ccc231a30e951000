//! Threads that read, and what they count.
//!
//! Each thread has a window of its own: from the end of the last read of its ramp to the end of its last read, and all that it counts lies
//! within. Together they were measured from the first one's begin to the last one's end; they start together, so that the windows differ by
//! about a read.

use std::panic::resume_unwind;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant, SystemTime};

use hdrhistogram::Histogram;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

use crate::calls::Calls;
use crate::error::of_read;
use crate::place::Place;
use crate::report::{self, Report};
use crate::usage::Usage;
use crate::{Error, MAX_JOBS, Spec};

/// The longest latency that is told apart, in nanoseconds: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// What one thread counted, or all of them together.
pub(crate) struct Part {
    /// How long reads took, in nanoseconds; three significant digits.
    pub(crate) latencies: Histogram<u64>,
    /// The same added up, exactly.
    pub(crate) total_ns: u128,
    /// When it was measured.
    pub(crate) from: Instant,
    pub(crate) to: Instant,
    /// `from` by the wall clock.
    pub(crate) from_wall: SystemTime,
    /// What the threads used meanwhile.
    pub(crate) usage: Usage,
}

/// A read that failed.
struct Failed {
    offset: u64,
    why: String,
}

/// Reads; `seen` is shown where each read began and what it brought.
pub(crate) fn run<S>(spec: &Spec, stop: &AtomicBool, seen: &S) -> Result<Report, Error>
where
    S: Fn(u64, &[u8]) + Sync,
{
    if spec.jobs == 0 || spec.jobs > MAX_JOBS {
        return Err(Error::Asked(format!("{} threads: it takes 1 to {MAX_JOBS}", spec.jobs)));
    }
    if spec.runtime_ns == 0 {
        return Err(Error::Asked("reading for no time measures nothing".into()));
    }
    let place = Place::open(spec)?;
    let made = (0..spec.jobs).map(|_| Calls::new(spec.way, spec.bytes as usize)).collect::<Result<Vec<_>, _>>();
    let calls = made.map_err(|error| Error::way(spec.way, &error))?;
    let parts = threads(spec, &place, calls, stop, seen)?;
    let failed = |failed: Failed| Error::Read {
        path: spec.path.clone(),
        way: spec.way,
        bytes: spec.bytes,
        offset: failed.offset,
        why: failed.why,
    };
    let parts = parts.into_iter().collect::<Result<Vec<Part>, Failed>>().map_err(failed)?;
    let all =
        parts.into_iter().reduce(|all, part| all.with(&part)).ok_or_else(|| Error::Asked("no thread read".into()))?;
    Ok(report::of(spec, place, &all))
}

/// Starts them all at once, and waits for them.
fn threads<S>(
    spec: &Spec,
    place: &Place,
    calls: Vec<Calls>,
    stop: &AtomicBool,
    seen: &S,
) -> Result<Vec<Result<Part, Failed>>, Error>
where
    S: Fn(u64, &[u8]) + Sync,
{
    let (gate, failed) = (RwLock::new(()), AtomicBool::new(false));
    let is_over = || stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed);
    thread::scope(|scope| {
        let closed = gate.write();
        let mut running: Vec<ScopedJoinHandle<'_, _>> = Vec::with_capacity(calls.len());
        for (number, calls) in calls.into_iter().enumerate() {
            let job = Job { spec, place, calls, dice: Dice::new(spec.seed, number as u64), seen };
            let (gate, failed, is_over) = (&gate, &failed, &is_over);
            let work = move || {
                drop(gate.read());
                job.work(is_over).inspect_err(|_| failed.store(true, Ordering::Relaxed))
            };
            let started = thread::Builder::new().name(format!("read-{number}")).spawn_scoped(scope, work);
            // The threads that are there end when the gate opens.
            let refused = |error| {
                failed.store(true, Ordering::Relaxed);
                Error::Way { way: spec.way, why: format!("thread {number} cannot be started: {error}") }
            };
            running.push(started.map_err(refused)?);
        }
        drop(closed);
        let joined = |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        Ok(running.into_iter().map(joined).collect())
    })
}

/// One thread's work.
struct Job<'a, S> {
    spec: &'a Spec,
    place: &'a Place,
    calls: Calls,
    dice: Dice,
    seen: &'a S,
}

impl<S: Fn(u64, &[u8])> Job<'_, S> {
    fn work(mut self, is_over: &impl Fn() -> bool) -> Result<Part, Failed> {
        let (ramp, runtime) = (Duration::from_nanos(self.spec.ramp_ns), Duration::from_nanos(self.spec.runtime_ns));
        let began = Instant::now();
        while began.elapsed() < ramp && !is_over() {
            self.read()?;
        }
        let mut part = Part::new();
        let before = Usage::of_this_thread();
        (part.from, part.from_wall) = (Instant::now(), SystemTime::now());
        part.to = part.from;
        while part.to - part.from < runtime && !is_over() {
            part.add(self.read()?);
            part.to = Instant::now();
        }
        part.usage = Usage::of_this_thread() - before;
        Ok(part)
    }

    /// One read; how long it took, in nanoseconds.
    fn read(&mut self) -> Result<u64, Failed> {
        let offset = self.place.offset + self.dice.below(self.place.slots) * self.spec.bytes;
        let began = Instant::now();
        let came = self.calls.read(&self.place.file, offset);
        let took = began.elapsed().as_nanos() as u64;
        match came {
            Ok(bytes) if bytes as u64 == self.spec.bytes => {}
            Ok(bytes) => {
                return Err(Failed { offset, why: format!("only {bytes} bytes came: has it become shorter?") });
            }
            Err(error) => return Err(Failed { offset, why: of_read(self.spec.way, &error) }),
        }
        (self.seen)(offset, self.calls.data());
        Ok(took)
    }
}

impl Part {
    fn new() -> Self {
        let latencies = Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("three digits from 1 ns to an hour");
        let (now, from_wall) = (Instant::now(), SystemTime::now());
        Self { latencies, total_ns: 0, from: now, to: now, from_wall, usage: Usage::default() }
    }

    fn add(&mut self, took_ns: u64) {
        self.latencies.saturating_record(took_ns);
        self.total_ns += u128::from(took_ns);
    }

    /// Both together.
    fn with(mut self, other: &Self) -> Self {
        self.latencies.add(&other.latencies).expect("the same bounds");
        self.total_ns += other.total_ns;
        if other.from < self.from {
            (self.from, self.from_wall) = (other.from, other.from_wall);
        }
        self.to = self.to.max(other.to);
        self.usage = self.usage + other.usage;
        self
    }
}

/// Random numbers: SplitMix64.
struct Dice(SplitMix64);

impl Dice {
    /// Of a thread: seeds and threads that differ by one give streams that have nothing in common.
    fn new(seed: u64, thread: u64) -> Self {
        let mut seeds = SplitMix64::seed_from_u64(seed);
        let of_thread = (0..thread).fold(seeds.next_u64(), |_, _| seeds.next_u64());
        Self(SplitMix64::seed_from_u64(of_thread))
    }

    /// A number below `end`, which is above 0.
    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(end)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_spread_and_differ_between_threads_and_seeds() {
        let drawn = |seed, thread| {
            let mut dice = Dice::new(seed, thread);
            (0..4000).map(|_| dice.below(10)).collect::<Vec<_>>()
        };
        let first = drawn(1, 0);
        for slot in 0..10 {
            let hits = first.iter().filter(|drawn| **drawn == slot).count();
            assert!((300..500).contains(&hits), "{slot}: {hits} of 4000");
        }
        assert_eq!(first, drawn(1, 0));
        for (seed, thread) in [(1, 1), (2, 0), (0, 1), (0, 0)] {
            let same = first.iter().zip(drawn(seed, thread)).filter(|(a, b)| *a == b).count();
            assert!(same < 600, "{seed} {thread}: {same}");
        }
        assert_eq!(Dice::new(3, 3).below(1), 0);
    }
}
