//! Background work: a backlog in bytes, processed by at most one I/O at a time per drive.
//!
//! **Rule.** Work of a class arrives at a constant rate, spread evenly over its drives. I/O thread `drive % threads` starts an I/O in a poll
//! step if the backlog suffices for one, the drive's previous one is complete, the rate of the class allows it, and the thread has no
//! request in progress. So a host's request waits for at most one background I/O on its drive.
//!
//! **Terms.** A *lane* is a class on a drive.

use crate::rng::{Purpose, Stream};
use crate::scenario::{Background as Class, Scenario};
use crate::ssd::{Op, Request};

/// Background I/O is numbered from here on; requests have lower numbers.
pub(crate) const FIRST: u32 = 1 << 31;

const SECOND: u128 = 1_000_000_000;
const MILLION: u128 = 1_000_000;

#[derive(Debug)]
struct Lane {
    class: u16,
    drive: u16,
    /// Number of started I/Os.
    started: u64,
    begun_ns: Option<u64>,
    /// Earliest time of the next one, by the class's rate.
    next_ns: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Background {
    classes: Vec<Class>,
    lanes: Vec<Lane>,
    /// Lanes of each I/O thread.
    of_threads: Vec<Vec<u32>>,
    /// Whether a drive has an I/O in progress.
    busy: Vec<bool>,
    draws: Option<Stream>,
}

/// A started I/O.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartedIo {
    pub(crate) number: u32,
    pub(crate) write: bool,
    pub(crate) bytes: u32,
}

/// A background I/O at its drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackgroundIo {
    pub(crate) class: u16,
    pub(crate) drive: u16,
    pub(crate) thread: u16,
    pub(crate) request: Request,
}

impl Background {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let classes = scenario.workload.background.clone();
        let mut of_threads = vec![Vec::new(); usize::from(scenario.threads)];
        let mut lanes = Vec::new();
        for (number, class) in (0..).zip(&classes) {
            let (first, count) = class.drives;
            for at in 0..count {
                let drive = first + at;
                of_threads[usize::from(drive % scenario.threads)].push(lanes.len() as u32);
                // Drives are staggered.
                let next_ns =
                    spacing_ns(class, class.rate_ppm.into()).map_or(0, |ns| ns * u64::from(at) / u64::from(count));
                lanes.push(Lane { class: number, drive, started: 0, begun_ns: None, next_ns });
            }
        }
        let draws = Some(Stream::new(scenario.seed, Purpose::Devices, u64::MAX));
        Self { classes, lanes, of_threads, busy: vec![false; scenario.drives.len()], draws }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Time of the next I/O of a thread without requests in progress; never while its drives are busy.
    pub(crate) fn due_ns(&self, thread: u16) -> u64 {
        self.of_threads[usize::from(thread)].iter().map(|&lane| self.lane_due_ns(lane)).min().unwrap_or(u64::MAX)
    }

    fn lane_due_ns(&self, lane: u32) -> u64 {
        let lane = &self.lanes[lane as usize];
        let class = &self.classes[usize::from(lane.class)];
        if class.rate_ppm == 0 || self.busy[usize::from(lane.drive)] {
            return u64::MAX;
        }
        enough_ns(class, lane.started + 1).max(lane.next_ns)
    }

    /// Starts the next I/O of a thread without requests in progress, if one is due at `now_ns`.
    pub(crate) fn begin(&mut self, thread: u16, now_ns: u64) -> Option<StartedIo> {
        let mine = self.of_threads[usize::from(thread)].iter().map(|&lane| (self.lane_due_ns(lane), lane));
        let (_, number) = mine.min().filter(|&(due_ns, _)| due_ns <= now_ns)?;
        let lane = &mut self.lanes[number as usize];
        let class = &self.classes[usize::from(lane.class)];
        self.busy[usize::from(lane.drive)] = true;
        lane.started += 1;
        lane.begun_ns = Some(now_ns);
        lane.next_ns = spacing_ns(class, class.rate_ppm.into()).map_or(u64::MAX, |ns| now_ns + ns);
        Some(StartedIo { number: FIRST + number, write: class.write, bytes: class.io_bytes })
    }

    /// Completes an I/O; returns the CPU time of its data at full speed.
    #[cold]
    #[inline(never)]
    pub(crate) fn end(&mut self, number: u32) -> u32 {
        let lane = &self.lanes[(number - FIRST) as usize];
        self.busy[usize::from(lane.drive)] = false;
        let class = &self.classes[usize::from(lane.class)];
        class.ns_per_kib * (class.io_bytes / 1024)
    }

    /// The request of an I/O that reaches its drive at `at_ns`.
    pub(crate) fn io(&self, number: u32, at_ns: u64) -> BackgroundIo {
        let index = (number - FIRST) as usize;
        let Lane { class, drive, started, .. } = self.lanes[index];
        let Class { write, io_bytes, .. } = self.classes[usize::from(class)];
        let draw = self.draws.map_or(0, |draws| draws.at((index as u64) << 40 | started));
        let op = if write { Op::Write } else { Op::Read };
        let offset = (started * u64::from(io_bytes)) % super::host::SPAN;
        let request = Request { at_ns, op, offset, bytes: io_bytes, draw, sequential: false };
        BackgroundIo { class, drive, thread: drive % self.of_threads.len() as u16, request }
    }

    /// Changes the rate of a class from `at_ns` on.
    pub(crate) fn order(&mut self, at_ns: u64, class: u16, rate_ppm: u64) {
        let Some(of) = self.classes.get_mut(usize::from(class)) else { return };
        of.rate_ppm = rate_ppm as u32;
        let spacing_ns = spacing_ns(of, rate_ppm).unwrap_or(0);
        for lane in self.lanes.iter_mut().filter(|lane| lane.class == class) {
            lane.next_ns = lane.begun_ns.map_or(0, |begun_ns| begun_ns + spacing_ns).max(at_ns);
        }
    }

    pub(crate) fn threads(&self) -> impl Iterator<Item = u16> + use<> {
        0..self.of_threads.len() as u16
    }
}

/// Minimum distance of two I/Os of a class on a drive; none at a rate of 0.
fn spacing_ns(class: &Class, rate_ppm: u64) -> Option<u64> {
    let bytes = u128::from(class.io_bytes) * u128::from(class.drives.1);
    (bytes * SECOND * MILLION).checked_div(u128::from(class.max_bytes_per_s) * u128::from(rate_ppm)).map(|ns| ns as u64)
}

/// Time at which the backlog suffices for `ios` I/Os on a drive of a class.
fn enough_ns(class: &Class, ios: u64) -> u64 {
    let drives = u128::from(class.drives.1);
    let needed = u128::from(ios) * u128::from(class.io_bytes) * drives;
    let missing = needed.saturating_sub(class.backlog_bytes.into());
    if missing == 0 {
        return 0;
    }
    let ns = (missing * SECOND).checked_div(class.bytes_per_s.into());
    ns.map_or(u64::MAX, |ns| u64::try_from(ns).unwrap_or(u64::MAX).saturating_add(1))
}

/// Bytes of a class that have arrived until `now_ns`.
pub(crate) fn come_bytes(class: &Class, now_ns: u64) -> u64 {
    class.backlog_bytes + (u128::from(class.bytes_per_s) * u128::from(now_ns) / SECOND) as u64
}
