//! Background work: which drive has an I/O in progress, and what was done.

use super::requests::Moved;
use super::{Findings, Law};
use crate::outcome::Outcome;
use crate::scenario::{Background, Scenario};
use crate::trace::{Record, What};

/// An I/O thread.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    /// Requests that it has polled and not answered, and since when there are any.
    in_progress: u64,
    since_ns: u64,
}

pub(super) struct BackgroundBook<'a> {
    scenario: &'a Scenario,
    threads: Vec<Thread>,
    /// The class whose I/O a drive has in progress, and its bytes.
    busy: Vec<Option<(u64, u64)>>,
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
            What::Polled | What::Answered => self.count(record),
            What::Background => return self.begin(record, findings),
            What::BackgroundDone => self.end(record, findings),
            _ => {}
        }
        None
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
        match self.busy.get_mut(drive) {
            None => findings.add(Law::Background, format!("there is no drive {drive}")),
            Some(Some((other, _))) => {
                let text = format!("drive {drive} gets background I/O of class {class} beside one of class {other}");
                findings.add(Law::Background, text);
            }
            Some(free) => *free = Some((class, bytes.into())),
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
        if self.busy.get_mut(drive).and_then(Option::take) != Some((class, record.b)) {
            findings.add(Law::Background, format!("drive {drive} completes background I/O that it does not have"));
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

/// What of a class has come until `at_ns`, in bytes.
fn come_bytes(class: &Background, at_ns: u64) -> u128 {
    u128::from(class.backlog_bytes) + u128::from(class.bytes_per_s) * u128::from(at_ns) / 1_000_000_000
}
