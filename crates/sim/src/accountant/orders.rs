//! Frequencies: each order shows, and nothing else does.
//!
//! The rule: an order begins a transition, or joins the one under way, and then the frequency is the one ordered last; where the machine
//! begins a transition anew, its end moves with each order of another frequency. The frequency that it leads to holds from its end on, and
//! shows at the end of the epoch at the latest. An order of the frequency that holds, or that the transition leads to, changes nothing.

use std::collections::VecDeque;

use super::{Findings, Law};
use crate::machine::Speed;
use crate::scenario::Scenario;
use crate::trace::Record;

const EPOCH_NS: u64 = 10_000;

/// A change that is to come.
#[derive(Clone, Copy, Debug)]
struct Transition {
    khz: u64,
    end_ns: u64,
}

#[derive(Clone, Debug)]
struct Watched {
    khz: u64,
    /// In their order; only the last can be under way.
    coming: VecDeque<Transition>,
}

pub(super) struct OrderBook {
    speed: Speed,
    cores: Vec<Watched>,
    /// When the first of all transitions has to have shown.
    first_ns: u64,
    duration_ns: u64,
}

impl OrderBook {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let speed = scenario.machine.speed;
        let core = Watched { khz: u64::from(speed.max_khz), coming: VecDeque::new() };
        Self {
            speed,
            cores: vec![core; scenario.topology.len()],
            first_ns: u64::MAX,
            duration_ns: scenario.duration_ns,
        }
    }

    /// A frequency is ordered.
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

    /// A core has another frequency.
    pub(super) fn enter(&mut self, record: &Record, findings: &mut Findings) {
        let Some(core) = self.cores.get_mut(record.a as usize) else { return };
        let mut ended = None;
        while let Some(&next) = core.coming.front().filter(|next| next.end_ns <= record.at_ns) {
            core.coming.pop_front();
            ended = Some(next.khz);
        }
        core.khz = record.b;
        if ended != Some(record.b) {
            let due = ended.map_or_else(|| "no order of it is due".to_owned(), |khz| format!("{khz} kHz were ordered"));
            findings.add(Law::Frequencies, format!("core {} runs at {} kHz, and {due}", record.a, record.b));
        }
        self.look_ahead();
    }

    /// Every order that has to have shown before `now_ns` has. After the run's end only what was under way then is in the trace.
    pub(super) fn pass(&mut self, now_ns: u64, findings: &mut Findings) {
        let now_ns = now_ns.min(self.duration_ns);
        if now_ns <= self.first_ns {
            return;
        }
        for (index, core) in self.cores.iter_mut().enumerate() {
            while let Some(&late) = core.coming.front().filter(|next| next.end_ns + EPOCH_NS < now_ns) {
                core.coming.pop_front();
                let Transition { khz, end_ns } = late;
                let text = format!("core {index} was to run at {khz} kHz from {end_ns} ns on, and does not");
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

    /// The frequency that a core has for an order: the nearest step from the lowest up, the higher one of two as near, and no more than
    /// the highest.
    fn nearest(&self, khz: u64) -> u64 {
        let Speed { min_khz, max_khz, step_khz, .. } = self.speed;
        let (min, max, step) = (u64::from(min_khz), u64::from(max_khz), u64::from(step_khz.max(1)));
        let above = khz.min(max).saturating_sub(min);
        let (steps, rest) = (above / step, above % step);
        (min + (steps + u64::from(2 * rest >= step)) * step).min(max)
    }
}
