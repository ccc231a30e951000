//! Samples sensors, each at its own rate.
//!
//! Fast sensors share one thread; each slow one (another program, a network) has its own thread and does not delay the others. Readings
//! are due at multiples of the interval from the start. If several are overdue, one is made and the others are counted as missed.
//!
//! A reading that fails is a gap with a reason, until the next that does not. A sensor that fails lastingly ends the run, unless it is
//! optional: for at least three readings in a row, ten intervals and one second. That is not less than the time over which power is
//! interpolated, so a BMC that misses a few requests ends nothing, and short enough that no run goes on for long without what it requires. A part
//! of a sensor that fails is a gap of that part, and ends no run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::checked;
use crate::clock::{self, ClockReading, now_ns, thread_cpu_ns};
use crate::energy::Point;
use crate::recording::{Marker, Recording, SensorGap, Track};
use crate::sensor::{Reading, Sensor};

/// Interval of clock comparisons, in nanoseconds.
const CLOCK_INTERVAL_NS: u64 = 1_000_000_000;

/// A failure is lasting after this many readings in a row, intervals, and nanoseconds.
const LASTING_READS: u32 = 3;
const LASTING_INTERVALS: u64 = 10;
const LASTING_NS: u64 = 1_000_000_000;
/// Tries of a sensor's first reading.
const FIRST_TRIES: u32 = 3;

/// A sensor to sample.
pub struct Planned {
    /// The sensor.
    pub sensor: Box<dyn Sensor>,
    /// Interval in nanoseconds; default: the native interval.
    pub interval_ns: Option<u64>,
    /// Whether a lasting failure is a gap too instead of the end of the run.
    pub optional: bool,
}

impl Planned {
    /// A required sensor at its native interval.
    pub fn new(sensor: Box<dyn Sensor>) -> Self {
        Self { sensor, interval_ns: None, optional: false }
    }
}

/// A required sensor fails lastingly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sensor {sensor} failed at {at_ns} ns: {why}; set optional to continue without it")]
pub struct Failure {
    /// Name of the sensor.
    pub sensor: String,
    /// Its first reading that failed: monotonic clock, in nanoseconds.
    pub at_ns: u64,
    /// Its error.
    pub why: String,
}

/// Sampling cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A thread cannot be started.
    #[error("cannot start a sampling thread: {0}")]
    Thread(std::io::Error),
    /// A required sensor has no first reading.
    #[error(transparent)]
    Sensor(#[from] Failure),
}

impl From<std::io::Error> for StartError {
    fn from(error: std::io::Error) -> Self {
        Self::Thread(error)
    }
}

/// Times of readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Schedule {
    due_ns: u64,
    interval_ns: u64,
}

impl Schedule {
    fn new(start_ns: u64, interval_ns: u64) -> Self {
        Self { due_ns: start_ns, interval_ns: interval_ns.max(1) }
    }

    /// Advances to the first due time after `now_ns`; returns the number of skipped readings.
    fn advance(&mut self, now_ns: u64) -> u64 {
        let passed = now_ns.saturating_sub(self.due_ns) / self.interval_ns;
        self.due_ns += (passed + 1) * self.interval_ns;
        passed
    }
}

/// State shared by the threads.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    markers: Vec<Marker>,
    failure: Option<Failure>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits until `until_ns` or until sampling stops.
    fn wait(&self, until_ns: u64) {
        let mut state = self.state();
        while !self.stopped() {
            let left = until_ns.saturating_sub(now_ns());
            if left == 0 {
                return;
            }
            state =
                self.changed.wait_timeout(state, Duration::from_nanos(left)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn end(&self) {
        let _state = self.state();
        self.stop.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    fn fail(&self, failure: Failure) {
        self.state().failure.get_or_insert(failure);
        self.end();
    }
}

/// A sensor being sampled.
struct Sampled {
    sensor: Box<dyn Sensor>,
    schedule: Schedule,
    optional: bool,
    track: Track,
    /// Its index in the configuration.
    index: usize,
    readings: Vec<Reading>,
    /// Readings in a row that failed.
    failed: u32,
}

impl Sampled {
    fn read(&mut self) -> Result<(), Failure> {
        self.readings.clear();
        let (cpu_ns, from_ns) = (thread_cpu_ns(), now_ns());
        let result = checked::read(&mut *self.sensor, &mut self.readings);
        let to_ns = now_ns();
        let cost = &mut self.track.cost;
        cost.reads += 1;
        cost.wall_ns += to_ns - from_ns;
        cost.cpu_ns += thread_cpu_ns() - cpu_ns;
        match result {
            Ok(failed) => {
                self.keep(from_ns, to_ns);
                failed.into_iter().for_each(|failed| self.note_gap(from_ns, Some(failed.domain), failed.why));
            }
            Err(error) => {
                self.failed += 1;
                self.note_gap(from_ns, None, error.to_string());
            }
        }
        self.track.missed += self.schedule.advance(to_ns);
        let lasting_ns = self.track.interval_ns.saturating_mul(LASTING_INTERVALS).max(LASTING_NS);
        let is_lasting = |failure: &Failure| to_ns - failure.at_ns >= lasting_ns;
        self.failure().filter(|_| self.failed >= LASTING_READS).filter(is_lasting).map_or(Ok(()), Err)
    }

    /// The failure of a required sensor that fails.
    fn failure(&self) -> Option<Failure> {
        let open = |gap: &&SensorGap| gap.to_ns == u64::MAX && gap.domain.is_none();
        let gap = self.track.gaps.iter().find(open).filter(|_| !self.optional)?;
        Some(Failure { sensor: self.track.sensor.clone(), at_ns: gap.from_ns, why: gap.why.clone() })
    }

    /// The first reading, with several tries.
    fn begin(&mut self) -> Result<(), Failure> {
        for _ in 0..FIRST_TRIES {
            self.read()?;
            if self.failure().is_none() {
                return Ok(());
            }
        }
        self.failure().map_or(Ok(()), Err)
    }

    fn keep(&mut self, from_ns: u64, to_ns: u64) {
        self.failed = 0;
        let small = |ns: u64| u32::try_from(ns).unwrap_or(u32::MAX);
        let at_ns = from_ns + (to_ns - from_ns) / 2;
        self.track.late_ns.push(small(from_ns.saturating_sub(self.schedule.due_ns)));
        self.track.took_ns.push(small(to_ns - from_ns));
        for reading in &self.readings {
            if let Some(points) = self.track.points.get_mut(reading.domain) {
                points.push(Point { at_ns, value: reading.value });
            }
        }
        for gap in self.track.gaps.iter_mut().filter(|gap| gap.to_ns == u64::MAX) {
            if gap.domain.is_none_or(|domain| self.readings.iter().any(|reading| reading.domain == domain)) {
                gap.to_ns = at_ns;
            }
        }
    }

    /// A gap stays open (`u64::MAX`) until the next reading.
    fn note_gap(&mut self, from_ns: u64, domain: Option<usize>, why: String) {
        if !self.track.gaps.iter().any(|gap| gap.to_ns == u64::MAX && gap.domain == domain) {
            self.track.gaps.push(SensorGap { from_ns, to_ns: u64::MAX, domain, why });
        }
    }

    fn finish(mut self) -> (usize, Track) {
        self.track.cost.helpers_cpu_ns = self.sensor.helpers_cpu_ns();
        let end_ns = now_ns();
        for gap in self.track.gaps.iter_mut().filter(|gap| gap.to_ns == u64::MAX) {
            gap.to_ns = end_ns;
        }
        (self.index, self.track)
    }
}

/// The sensors of one thread.
struct Group {
    shared: Arc<Shared>,
    sensors: Vec<Sampled>,
    /// Set if this thread compares the clocks.
    clock: Option<Schedule>,
    readings: Vec<ClockReading>,
}

/// Results of a thread.
struct GroupResult {
    tracks: Vec<(usize, Track)>,
    clock: Vec<ClockReading>,
    cpu_ns: u64,
}

impl Group {
    fn run(mut self) -> GroupResult {
        let cpu_ns = thread_cpu_ns();
        while !self.shared.stopped() {
            self.shared.wait(self.next_due_ns());
            if let Err(failure) = self.read_all_due() {
                self.shared.fail(failure);
            }
        }
        self.last_reading();
        let tracks = self.sensors.into_iter().map(Sampled::finish).collect();
        GroupResult { tracks, clock: self.readings, cpu_ns: thread_cpu_ns() - cpu_ns }
    }

    fn next_due_ns(&self) -> u64 {
        let clock = self.clock.iter().map(|schedule| schedule.due_ns);
        self.sensors.iter().map(|sampled| sampled.schedule.due_ns).chain(clock).min().unwrap_or(u64::MAX)
    }

    fn read_all_due(&mut self) -> Result<(), Failure> {
        for sampled in &mut self.sensors {
            if sampled.schedule.due_ns <= now_ns() && !self.shared.stopped() {
                sampled.read()?;
            }
        }
        if let Some(schedule) = &mut self.clock
            && schedule.due_ns <= now_ns()
        {
            let reading = clock::read();
            schedule.advance(reading.at_ns);
            self.readings.push(reading);
        }
        Ok(())
    }

    /// A last reading, so that samples extend beyond the last marker.
    fn last_reading(&mut self) {
        if self.shared.state().failure.is_none() {
            for sampled in &mut self.sensors {
                if let Err(failure) = sampled.read() {
                    self.shared.fail(failure);
                }
            }
        }
        if self.clock.is_some() {
            self.readings.push(clock::read());
        }
    }
}

/// Running sampling.
pub struct Sampler {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<GroupResult>>,
    started_ns: u64,
}

impl Sampler {
    /// Reads every sensor once and starts sampling.
    ///
    /// # Errors
    /// A required sensor has no first reading, or a thread cannot be started.
    pub fn start(planned: Vec<Planned>) -> Result<Self, StartError> {
        let started_ns = now_ns();
        let (mut fast, mut slow) = (Vec::new(), Vec::new());
        for (index, planned) in planned.into_iter().enumerate() {
            let interval_ns = planned.interval_ns.unwrap_or(planned.sensor.info().native_interval_ns).max(1);
            let track = Track::new(planned.sensor.name(), planned.sensor.domains(), interval_ns);
            let schedule = Schedule::new(now_ns(), interval_ns);
            let is_slow = planned.sensor.info().slow;
            let Planned { sensor, optional, .. } = planned;
            let mut sampled = Sampled { sensor, schedule, optional, track, index, readings: Vec::new(), failed: 0 };
            sampled.begin()?;
            if is_slow { slow.push(vec![sampled]) } else { fast.push(sampled) }
        }
        let shared = Arc::new(Shared::default());
        let mut sampler = Self { shared, threads: Vec::new(), started_ns };
        sampler.spawn(fast, true)?;
        for group in slow {
            sampler.spawn(group, false)?;
        }
        Ok(sampler)
    }

    fn spawn(&mut self, sensors: Vec<Sampled>, clock: bool) -> Result<(), StartError> {
        let schedule = Schedule::new(now_ns(), CLOCK_INTERVAL_NS);
        let clock = clock.then_some(schedule);
        let group = Group { shared: self.shared.clone(), sensors, clock, readings: Vec::new() };
        let thread = thread::Builder::new().name("sampler".into()).spawn(move || group.run());
        self.threads.push(thread.inspect_err(|_| self.shared.end())?);
        Ok(())
    }

    /// Adds a marker; returns its time in nanoseconds on the monotonic clock.
    pub fn mark(&self, name: impl Into<String>) -> u64 {
        let mut state = self.shared.state();
        let at_ns = now_ns();
        state.markers.push(Marker { at_ns, name: name.into() });
        at_ns
    }

    /// The failure that stopped sampling, if any.
    pub fn failure(&self) -> Option<Failure> {
        self.shared.state().failure.clone()
    }

    /// Reads once more and returns the recording, with the failure if a required sensor failed.
    pub fn stop(mut self) -> (Recording, Option<Failure>) {
        self.shared.end();
        let mut recording = Recording::default();
        let mut tracks = Vec::new();
        // Propagate panics.
        for thread in self.threads.drain(..) {
            let result = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            tracks.extend(result.tracks);
            recording.clock.extend(result.clock);
            recording.cpu_ns += result.cpu_ns;
        }
        tracks.sort_by_key(|(index, _)| *index);
        recording.tracks = tracks.into_iter().map(|(_, track)| track).collect();
        recording.wall_ns = now_ns() - self.started_ns;
        let mut state = self.shared.state();
        recording.markers = std::mem::take(&mut state.markers);
        let failure = state.failure.clone();
        (recording, failure)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.shared.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_late_reading_counts_skipped_ones() {
        let mut schedule = Schedule::new(1_000, 10);
        assert_eq!((schedule.advance(1_003), schedule.due_ns), (0, 1_010));
        assert_eq!((schedule.advance(1_010), schedule.due_ns), (0, 1_020));
        assert_eq!((schedule.advance(1_045), schedule.due_ns), (2, 1_050));
    }

    proptest! {
        #[test]
        fn every_due_time_is_read_or_missed(delays in prop::collection::vec(0..100_u64, 1..50), interval in 1..30_u64) {
            let mut schedule = Schedule::new(0, interval);
            let (mut now, mut missed) = (0, 0);
            for delay in &delays {
                now = now.max(schedule.due_ns) + delay;
                missed += schedule.advance(now);
                prop_assert!(schedule.due_ns > now && schedule.due_ns - now <= interval);
            }
            prop_assert_eq!(missed + delays.len() as u64, schedule.due_ns / interval);
        }
    }
}
