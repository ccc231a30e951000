//! Background work: which drive has an I/O in progress, how soon it is over once a request is polled, and what was done.
//!
//! An I/O that is in progress when a request is polled is over within [`MOST_OVERLAP_NS`] of that poll. A slow drive may take longer for one I/O alone;
//! then that time is the bound. There is no bound where the drive had commands of hosts when the I/O began, which it may serve first, and where the
//! time of an I/O alone has none ([`alone_ns`]).

use super::requests::Moved;
use super::{Findings, Law};
use crate::outcome::Outcome;
use crate::scenario::{Background, Scenario};
use crate::ssd::{Placement, Service, SsdModel};
use crate::trace::{Record, What};

/// Time from the poll of a request until background I/O is over, in nanoseconds.
const MOST_OVERLAP_NS: u64 = 1_000_000;

/// An I/O thread.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    /// Requests that it has polled and not answered, and since when there are any.
    in_progress: u64,
    since_ns: u64,
}

/// An I/O in progress.
#[derive(Clone, Copy, Debug)]
struct Io {
    class: u64,
    bytes: u64,
    /// When the first request was polled meanwhile.
    polled_ns: Option<u64>,
    /// How long after that it is over at the latest, where there is a bound.
    most_ns: Option<u64>,
}

pub(super) struct BackgroundBook<'a> {
    scenario: &'a Scenario,
    threads: Vec<Thread>,
    /// The I/O that a drive has in progress.
    busy: Vec<Option<Io>>,
    /// How many of these began after the last request was polled.
    unpolled: usize,
    /// Commands of hosts that a drive has.
    commands: Vec<u64>,
    /// What was begun of each class, in bytes.
    begun: Vec<u128>,
    /// What was done of each class in the measured time, and in the whole, in bytes.
    done: Vec<(u64, u64)>,
}

impl<'a> BackgroundBook<'a> {
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

    /// What a drive is to move for background work, if the record is of that.
    pub(super) fn enter(&mut self, record: &Record, findings: &mut Findings) -> Option<Moved> {
        if self.done.is_empty() {
            return None;
        }
        match record.what {
            What::Polled => {
                self.note_poll(record.at_ns);
                self.count(record);
            }
            What::Answered => self.count(record),
            What::Submitted => self.commands.get_mut(record.b as usize).into_iter().for_each(|count| *count += 1),
            What::Completed => {
                let count = self.commands.get_mut(record.b as usize);
                count.into_iter().for_each(|count| *count = count.saturating_sub(1)); // of none: found elsewhere
            }
            What::Background => return self.begin(record, findings),
            What::BackgroundDone => self.end(record, findings),
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
        if record.what == What::Answered {
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
        if bytes == 0 || bytes > Background::MOST_BYTES {
            findings.add(Law::Background, format!("background I/O of {bytes} bytes"));
        }
        let thread = self.threads[drive % self.threads.len()];
        if thread.in_progress > 0 && thread.since_ns < record.at_ns {
            let text = format!(
                "background I/O begins on drive {drive} while its I/O thread has {} requests",
                thread.in_progress
            );
            findings.add(Law::Background, text);
        }
        let is_alone = self.commands.get(drive) == Some(&0);
        let model = self.scenario.drives.get(drive).filter(|_| is_alone);
        let most_ns = model.and_then(|model| alone_ns(model, bytes, write)).map(|ns| ns.max(MOST_OVERLAP_NS));
        match self.busy.get_mut(drive) {
            None => findings.add(Law::Background, format!("there is no drive {drive}")),
            Some(Some(Io { class: other, .. })) => {
                let text = format!("drive {drive} gets background I/O of class {class} beside one of class {other}");
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

    /// No more is begun of a class than has come.
    fn count_begun(&mut self, at_ns: u64, class: u64, bytes: u32, findings: &mut Findings) {
        let classes = &self.scenario.workload.background;
        let Some((begun, of)) = self.begun.get_mut(class as usize).zip(classes.get(class as usize)) else {
            return findings.add(Law::Background, format!("there is no background work {class}"));
        };
        *begun += u128::from(bytes);
        let come = come_bytes(of, at_ns);
        if *begun > come {
            findings.add(Law::Background, format!("{begun} bytes of class {class} are begun, and {come} have come"));
        }
    }

    fn end(&mut self, record: &Record, findings: &mut Findings) {
        let (class, drive) = (record.a >> 32, (record.a & u64::from(u32::MAX)) as usize);
        let io = self.busy.get_mut(drive).and_then(Option::take);
        self.unpolled -= usize::from(io.is_some_and(|io| io.polled_ns.is_none()));
        if io.is_none_or(|io| (io.class, io.bytes) != (class, record.b)) {
            findings.add(Law::Background, format!("drive {drive} completes background I/O that it does not have"));
        }
        if let Some((polled_ns, most_ns)) = io.and_then(|io| io.polled_ns.zip(io.most_ns))
            && record.at_ns.saturating_sub(polled_ns) > most_ns
        {
            let took_ns = record.at_ns - polled_ns;
            let text = format!("background I/O of drive {drive} is over {took_ns} ns after a request was polled");
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
            findings.same(Law::Background, end_ns, "background bytes", measured.into(), claimed.done_bytes.into());
            findings.same(Law::Background, end_ns, "backlog in bytes", left, claimed.backlog_bytes.into());
        }
    }
}

/// The longest that a drive without commands takes for one I/O, in nanoseconds; `None` where that has no bound: service times are exponential, or
/// it writes into a buffer that has to be emptied first, or a read waits for a program that is not suspended.
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
    let pages = u64::from(bytes.div_ceil(flash.page_bytes)) + 1; // it need not begin with a page
    let in_a_row = if flash.placement == Placement::Scattered { pages } else { pages.div_ceil(flash.dies.into()) };
    let page_kib = u64::from(flash.page_bytes.div_ceil(1024));
    let page_ns = flash.read_ns + flash.read_spread_ns + flash.read_ns_per_kib * page_kib + suspend_ns;
    Some(before_ns + in_a_row * page_ns + front.read_latency_ns)
}

/// What of a class has come until `at_ns`, in bytes.
fn come_bytes(class: &Background, at_ns: u64) -> u128 {
    u128::from(class.backlog_bytes) + u128::from(class.bytes_per_s) * u128::from(at_ns) / 1_000_000_000
}
