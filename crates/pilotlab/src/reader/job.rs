//! Reading threads and their statistics.
//!
//! The window of a thread is from the end of the last read of its ramp to the end of its last read; all counts are of this window. The
//! total window is from the first start to the last end; threads start together, so the windows differ by about one read.

use std::panic::resume_unwind;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant, SystemTime};

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

use crate::reader::calls::Calls;
use crate::reader::error::of_read;
use crate::reader::part::Part;
use crate::reader::range::Place;
use crate::reader::report::{self, Report};
use crate::reader::usage::Usage;
use crate::reader::{Error, MAX_JOBS, Spec};

/// A read that failed.
struct Failed {
    offset: u64,
    why: String,
}

/// Reads; `seen` gets the offset and data of each read.
pub(crate) fn run<S>(spec: &Spec, stop: &AtomicBool, seen: &S) -> Result<Report, Error>
where
    S: Fn(u64, &[u8]) + Sync,
{
    if spec.jobs == 0 || spec.jobs > MAX_JOBS {
        return Err(Error::Invalid(format!("invalid number of threads {}; use 1 to {MAX_JOBS}", spec.jobs)));
    }
    if spec.runtime_ns == 0 {
        return Err(Error::Invalid("the runtime must be above 0".into()));
    }
    let place = Place::open(spec)?;
    let made = (0..spec.jobs).map(|_| Calls::new(spec.method, spec.bytes as usize)).collect::<Result<Vec<_>, _>>();
    let calls = made.map_err(|error| Error::method(spec.method, &error))?;
    let parts = threads(spec, &place, calls, stop, seen)?;
    let failed = |failed: Failed| Error::Read {
        path: spec.path.clone(),
        method: spec.method,
        bytes: spec.bytes,
        offset: failed.offset,
        why: failed.why,
    };
    let parts = parts.into_iter().collect::<Result<Vec<Part>, Failed>>().map_err(failed)?;
    let all =
        parts.into_iter().reduce(|all, part| all.with(&part)).ok_or_else(|| Error::Invalid("no thread read".into()))?;
    Ok(report::build(spec, place, &all))
}

/// Starts all threads together and waits for them.
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
                job.run(is_over).inspect_err(|_| failed.store(true, Ordering::Relaxed))
            };
            let started = thread::Builder::new().name(format!("read-{number}")).spawn_scoped(scope, work);
            // Threads already started end when the gate opens.
            let refused = |error| {
                failed.store(true, Ordering::Relaxed);
                Error::Method { method: spec.method, why: format!("thread {number} cannot be started: {error}") }
            };
            running.push(started.map_err(refused)?);
        }
        drop(closed);
        let joined = |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        Ok(running.into_iter().map(joined).collect())
    })
}

/// Work of one thread.
struct Job<'a, S> {
    spec: &'a Spec,
    place: &'a Place,
    calls: Calls,
    dice: Dice,
    seen: &'a S,
}

impl<S: Fn(u64, &[u8])> Job<'_, S> {
    fn run(mut self, is_over: &impl Fn() -> bool) -> Result<Part, Failed> {
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

    /// One read; returns its latency in nanoseconds.
    fn read(&mut self) -> Result<u64, Failed> {
        let offset = self.place.offset + self.dice.below(self.place.slots) * self.spec.bytes;
        let began = Instant::now();
        let came = self.calls.read(&self.place.file, offset);
        let took = began.elapsed().as_nanos() as u64;
        match came {
            Ok(bytes) if bytes as u64 == self.spec.bytes => {}
            Ok(bytes) => {
                return Err(Failed {
                    offset,
                    why: format!("short read of {bytes} bytes; the file may have been truncated"),
                });
            }
            Err(error) => return Err(Failed { offset, why: of_read(self.spec.method, &error) }),
        }
        (self.seen)(offset, self.calls.data());
        Ok(took)
    }
}

/// Random numbers: SplitMix64, which costs less than a read and needs no state beyond 64 bits.
struct Dice(SplitMix64);

impl Dice {
    /// The generator of a thread. Seeds and threads that differ by one have independent streams.
    fn new(seed: u64, thread: u64) -> Self {
        let mut seeds = SplitMix64::seed_from_u64(seed);
        let of_thread = (0..thread).fold(seeds.next_u64(), |_, _| seeds.next_u64());
        Self(SplitMix64::seed_from_u64(of_thread))
    }

    /// A number below `end`, which must be above 0.
    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(end)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_uniform_and_differ_between_threads_and_seeds() {
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
