//! Checks frequencies: each command takes effect, and nothing else changes a frequency.
//!
//! A command starts a transition, or joins the one in progress, whose target is then the frequency commanded last. If the machine restarts
//! transitions, each command of another frequency postpones the end. The target takes effect at the end of the transition, and is recorded
//! by the end of that epoch. A command of the current frequency or target changes nothing.

use std::collections::VecDeque;

use super::{Findings, Law};
use crate::machine::Speed;
use crate::scenario::Scenario;
use crate::trace::Record;

const EPOCH_NS: u64 = 10_000;

/// A pending change.
#[derive(Clone, Copy, Debug)]
struct Transition {
    khz: u64,
    end_ns: u64,
}

#[derive(Clone, Debug)]
struct TrackedCore {
    khz: u64,
    /// In order; only the last can be in progress.
    coming: VecDeque<Transition>,
}

pub(super) struct FrequencyCheck {
    speed: Speed,
    cores: Vec<TrackedCore>,
    /// Deadline of the first pending transition.
    first_ns: u64,
    duration_ns: u64,
}

impl FrequencyCheck {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let speed = scenario.machine.speed;
        let core = TrackedCore { khz: u64::from(speed.max_khz), coming: VecDeque::new() };
        Self {
            speed,
            cores: vec![core; scenario.topology.len()],
            first_ns: u64::MAX,
            duration_ns: scenario.duration_ns,
        }
    }

    /// A frequency is commanded.
    pub(super) fn order(&mut self, record: &Record, findings: &mut Findings) {
        let target = self.nearest(record.b);
        let Some(core) = self.cores.get_mut(record.a as usize) else {
            findings.add(Law::Frequencies, format!("there is no core {}", record.a));
            return;
        };
        if core.coming.back().map_or(core.khz, |last| last.khz) == target {
            return;
        }
        let end_ns = record.at_ns + self.speed.transition_ns;
        match core.coming.back_mut().filter(|last| last.end_ns > record.at_ns) {
            Some(last) if self.speed.transition_restarts => *last = Transition { khz: target, end_ns },
            Some(last) => last.khz = target,
            None => core.coming.push_back(Transition { khz: target, end_ns }),
        }
        self.look_ahead();
    }

    /// A core changes its frequency.
    pub(super) fn enter(&mut self, record: &Record, findings: &mut Findings) {
        let Some(core) = self.cores.get_mut(record.a as usize) else { return };
        let mut ended = None;
        while let Some(&next) = core.coming.front().filter(|next| next.end_ns <= record.at_ns) {
            core.coming.pop_front();
            ended = Some(next.khz);
        }
        core.khz = record.b;
        if ended != Some(record.b) {
            let due =
                ended.map_or_else(|| "no command of it is due".to_owned(), |khz| format!("{khz} kHz were commanded"));
            findings.add(Law::Frequencies, format!("core {} runs at {} kHz, and {due}", record.a, record.b));
        }
        self.look_ahead();
    }

    /// Reports transitions that should have taken effect before `now_ns`. After the end of a run only those in progress are in the trace.
    pub(super) fn pass(&mut self, now_ns: u64, findings: &mut Findings) {
        let now_ns = now_ns.min(self.duration_ns);
        if now_ns <= self.first_ns {
            return;
        }
        for (index, core) in self.cores.iter_mut().enumerate() {
            while let Some(&late) = core.coming.front().filter(|next| next.end_ns + EPOCH_NS < now_ns) {
                core.coming.pop_front();
                let Transition { khz, end_ns } = late;
                let text = format!("core {index} should run at {khz} kHz from {end_ns} ns on, and does not");
                findings.add(Law::Frequencies, text);
            }
        }
        self.look_ahead();
    }

    pub(super) fn finish(&mut self, findings: &mut Findings) {
        self.pass(self.duration_ns, findings);
    }

    fn look_ahead(&mut self) {
        let ends = self.cores.iter().filter_map(|core| core.coming.front()).map(|next| next.end_ns + EPOCH_NS);
        self.first_ns = ends.min().unwrap_or(u64::MAX);
    }

    /// The frequency for a command: the nearest step, the higher one of two equally near.
    fn nearest(&self, khz: u64) -> u64 {
        let Speed { min_khz, max_khz, step_khz, .. } = self.speed;
        let (min, max, step) = (u64::from(min_khz), u64::from(max_khz), u64::from(step_khz.max(1)));
        let above = khz.min(max).saturating_sub(min);
        let (steps, rest) = (above / step, above % step);
        (min + (steps + u64::from(2 * rest >= step)) * step).min(max)
    }
}
