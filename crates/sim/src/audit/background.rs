//! Checks background work: I/O in progress per drive, its end after a request is polled, and completed bytes.
//!
//! An I/O in progress when a request is polled ends within [`MAX_OVERLAP_NS`] of that poll, or within the longest service time of a single
//! I/O on a slower drive ([`alone_ns`]). There is no bound if the drive had commands of hosts when the I/O began, or if the service time is
//! unbounded.

use super::requests::Moved;
use super::{Findings, Law};
use crate::outcome::Outcome;
use crate::scenario::{Background, Scenario};
use crate::ssd::{Placement, Service, SsdModel};
use crate::trace::{Record, RecordKind};

/// Longest time from the poll of a request to the end of background I/O, in nanoseconds.
const MAX_OVERLAP_NS: u64 = 1_000_000;

/// An I/O thread.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    /// Requests polled and not answered, and since when there are any.
    in_progress: u64,
    since_ns: u64,
}

/// An I/O in progress.
#[derive(Clone, Copy, Debug)]
struct Io {
    class: u64,
    bytes: u64,
    /// Time of the first poll of a request since.
    polled_ns: Option<u64>,
    /// Longest time from there to its end, if bounded.
    most_ns: Option<u64>,
}

pub(super) struct BackgroundCheck<'a> {
    scenario: &'a Scenario,
    threads: Vec<Thread>,
    /// The I/O in progress, by drive.
    busy: Vec<Option<Io>>,
    /// Number of these that began after the last poll of a request.
    unpolled: usize,
    /// Commands of hosts in progress, by drive.
    commands: Vec<u64>,
    /// Started bytes, by class.
    begun: Vec<u128>,
    /// Completed bytes in the measured time and in total, by class.
    done: Vec<(u64, u64)>,
}

impl<'a> BackgroundCheck<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        Self {
            scenario,
            threads: vec![Thread::default(); usize::from(scenario.threads)],
            busy: vec![None; scenario.drives.len()],
            unpolled: 0,
            commands: vec![0; scenario.drives.len()],
            begun: vec![0; scenario.workload.background.len()],
            done: vec![(0, 0); scenario.workload.background.len()],
        }
    }

    /// Processes a record; returns the transfer if it starts background I/O.
    pub(super) fn enter(&mut self, record: &Record, findings: &mut Findings) -> Option<Moved> {
        if self.done.is_empty() {
            return None;
        }
        match record.kind {
            RecordKind::Polled => {
                self.note_poll(record.at_ns);
                self.count(record);
            }
            RecordKind::Answered => self.count(record),
            RecordKind::Submitted => self.commands.get_mut(record.b as usize).into_iter().for_each(|count| *count += 1),
            RecordKind::Completed => {
                let count = self.commands.get_mut(record.b as usize);
                count.into_iter().for_each(|count| *count = count.saturating_sub(1)); // of none: found elsewhere
            }
            RecordKind::Background => return self.begin(record, findings),
            RecordKind::BackgroundDone => self.end(record, findings),
            _ => {}
        }
        None
    }

    /// A request is polled.
    fn note_poll(&mut self, at_ns: u64) {
        if self.unpolled == 0 {
            return;
        }
        self.unpolled = 0;
        self.busy.iter_mut().flatten().for_each(|io| _ = io.polled_ns.get_or_insert(at_ns));
    }

    fn count(&mut self, record: &Record) {
        let connections = &self.scenario.workload.connections;
        let Some(connection) = connections.get((record.a >> 40) as usize) else { return };
        let Some(thread) = self.threads.get_mut(usize::from(connection.thread)) else { return };
        if record.kind == RecordKind::Answered {
            thread.in_progress = thread.in_progress.saturating_sub(1);
            return;
        }
        if thread.in_progress == 0 {
            thread.since_ns = record.at_ns;
        }
        thread.in_progress += 1;
    }

    fn begin(&mut self, record: &Record, findings: &mut Findings) -> Option<Moved> {
        let (class, drive) = (record.a >> 32, (record.a & u64::from(u32::MAX)) as usize);
        let (bytes, write) = ((record.b & u64::from(u32::MAX)) as u32, record.b >> 32 == 1);
        if bytes == 0 || bytes > Background::MAX_BYTES {
            findings.add(Law::Background, format!("background I/O of {bytes} bytes"));
        }
        let thread = self.threads[drive % self.threads.len()];
        if thread.in_progress > 0 && thread.since_ns < record.at_ns {
            let text = format!(
                "background I/O starts on drive {drive} while its I/O thread has {} requests",
                thread.in_progress
            );
            findings.add(Law::Background, text);
        }
        let is_alone = self.commands.get(drive) == Some(&0);
        let model = self.scenario.drives.get(drive).filter(|_| is_alone);
        let most_ns = model.and_then(|model| alone_ns(model, bytes, write)).map(|ns| ns.max(MAX_OVERLAP_NS));
        match self.busy.get_mut(drive) {
            None => findings.add(Law::Background, format!("drive {drive} does not exist")),
            Some(Some(Io { class: other, .. })) => {
                let text = format!("drive {drive} gets background I/O of class {class} during one of class {other}");
                findings.add(Law::Background, text);
            }
            Some(free) => {
                *free = Some(Io { class, bytes: bytes.into(), polled_ns: None, most_ns });
                self.unpolled += 1;
            }
        }
        self.count_begun(record.at_ns, class, bytes, findings);
        Some(Moved { drive, bytes, write })
    }

    /// Started bytes must not exceed those that have arrived.
    fn count_begun(&mut self, at_ns: u64, class: u64, bytes: u32, findings: &mut Findings) {
        let classes = &self.scenario.workload.background;
        let Some((begun, of)) = self.begun.get_mut(class as usize).zip(classes.get(class as usize)) else {
            return findings.add(Law::Background, format!("background class {class} does not exist"));
        };
        *begun += u128::from(bytes);
        let come = come_bytes(of, at_ns);
        if *begun > come {
            findings
                .add(Law::Background, format!("{begun} bytes of class {class} are started, and {come} have arrived"));
        }
    }

    fn end(&mut self, record: &Record, findings: &mut Findings) {
        let (class, drive) = (record.a >> 32, (record.a & u64::from(u32::MAX)) as usize);
        let io = self.busy.get_mut(drive).and_then(Option::take);
        self.unpolled -= usize::from(io.is_some_and(|io| io.polled_ns.is_none()));
        if io.is_none_or(|io| (io.class, io.bytes) != (class, record.b)) {
            findings.add(Law::Background, format!("drive {drive} completes background I/O that was not in progress"));
        }
        if let Some((polled_ns, most_ns)) = io.and_then(|io| io.polled_ns.zip(io.most_ns))
            && record.at_ns.saturating_sub(polled_ns) > most_ns
        {
            let took_ns = record.at_ns - polled_ns;
            let text = format!("background I/O of drive {drive} ends {took_ns} ns after a request was polled");
            findings.add(Law::Background, text);
        }
        if record.at_ns >= self.scenario.duration_ns {
            return;
        }
        let Some((measured, whole)) = self.done.get_mut(class as usize) else { return };
        *whole += record.b;
        *measured += if record.at_ns >= self.scenario.warm_up_ns { record.b } else { 0 };
    }

    pub(super) fn finish(&self, outcome: &Outcome, findings: &mut Findings) {
        let end_ns = self.scenario.duration_ns;
        let classes = &self.scenario.workload.background;
        for ((&(measured, whole), class), claimed) in self.done.iter().zip(classes).zip(&outcome.background) {
            let left = come_bytes(class, end_ns).saturating_sub(whole.into()); // more is a violation when it begins
            findings.check_equal(
                Law::Background,
                end_ns,
                "background bytes",
                measured.into(),
                claimed.done_bytes.into(),
            );
            findings.check_equal(Law::Background, end_ns, "backlog in bytes", left, claimed.backlog_bytes.into());
        }
    }
}

/// Longest service time of one I/O on an idle drive, in nanoseconds; `None` if unbounded: exponential service times, a write to a buffer
/// that must be emptied first, or a read that waits for a program without suspension.
fn alone_ns(drive: &SsdModel, bytes: u32, write: bool) -> Option<u64> {
    let (front, flash) = (&drive.front, &drive.flash);
    let is_random = flash.service == Service::Exponential || drive.slow.is_some() || drive.controller.is_some();
    let has_limits = drive.state.iter().any(|state| state.read_bytes_per_s > 0 || state.write_bytes_per_s > 0);
    if is_random || has_limits || drive.cache.is_some() || write && drive.program.is_some() {
        return None;
    }
    let suspend_ns = drive.program.map_or(Some(0), |program| program.suspend_ns)?;
    let per_second = |count: u64, rate: u64| (count * 1_000_000_000).checked_div(rate).map_or(0, |ns| ns + 1);
    let wake_ns = drive.idle.iter().map(|state| state.wake_ns).chain(drive.rest.map(|rest| rest.wake_ns)).max();
    let enter_ns = per_second(bytes.into(), front.max_bytes_per_s).max(per_second(1, front.max_iops));
    let before_ns = wake_ns.unwrap_or(0) + enter_ns;
    if write {
        return Some(before_ns + per_second(1, front.max_write_iops) + front.write_lane_ns + front.write_latency_ns);
    }
    let pages = u64::from(bytes.div_ceil(flash.page_bytes)) + 1; // unaligned
    let in_a_row = if flash.placement == Placement::Scattered { pages } else { pages.div_ceil(flash.dies.into()) };
    let page_kib = u64::from(flash.page_bytes.div_ceil(1024));
    let page_ns = flash.read_ns + flash.read_spread_ns + flash.read_ns_per_kib * page_kib + suspend_ns;
    Some(before_ns + in_a_row * page_ns + front.read_latency_ns)
}

/// Bytes of a class that have arrived until `at_ns`.
fn come_bytes(class: &Background, at_ns: u64) -> u128 {
    u128::from(class.backlog_bytes) + u128::from(class.bytes_per_s) * u128::from(at_ns) / 1_000_000_000
}
