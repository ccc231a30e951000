//! The last samples of each curve.

use std::collections::VecDeque;

use crate::status::report::{PowerReading, Report};

/// Samples that are kept; a wide terminal shows fewer.
const KEPT: usize = 300;

/// Samples, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// Reads and writes per second.
    pub(super) iops: VecDeque<u64>,
    /// Power in milliwatts, 0 where it is unknown.
    pub(super) milliwatts: VecDeque<u64>,
    /// Of each reactor, the time awake in thousandths.
    pub(super) awake: Vec<VecDeque<u64>>,
}

impl History {
    /// Adds the values of a report.
    pub(super) fn note(&mut self, report: &Report) {
        push(&mut self.iops, report.io.iops as u64);
        push(&mut self.milliwatts, main_reading(report).and_then(|one| one.power_uw).unwrap_or(0) / 1000);
        self.awake.resize_with(report.reactors.len(), VecDeque::new);
        for (samples, reactor) in self.awake.iter_mut().zip(&report.reactors) {
            push(samples, ((reactor.busy_percent + reactor.idle_percent) * 10.0) as u64);
        }
    }
}

fn push(samples: &mut VecDeque<u64>, sample: u64) {
    if samples.len() == KEPT {
        samples.pop_front();
    }
    samples.push_back(sample);
}

/// The displayed reading: of the system if known, else the first known one.
pub(super) fn main_reading(report: &Report) -> Option<&PowerReading> {
    let readings = &report.power.as_ref()?.readings;
    let mut known = readings.iter().filter(|one| one.power_uw.is_some());
    known.clone().find(|one| one.of == "system").or_else(|| known.next())
}
