//! Collects the results of a run.

use super::background::come_bytes;
use super::director::Director;
use super::drives::OwnDrives;
use super::host::Sent;
use super::member::{DrivesTook, Member};
use super::meter::{Total, members};
use super::request::Job;
use super::shared::Shared;
use crate::histogram::Histogram;
use crate::outcome::{Background, Decisions, Jobs, Outcome, Requests, Stretch};
use crate::scenario::{Background as BackgroundClass, Phase, Scenario};
use crate::ssd::Span;

/// A plant is saturated if the queue grows by more than this fraction of the sent requests over the second half.
const GROWTH: f64 = 0.02;

#[derive(Debug)]
pub(crate) struct Collector {
    warm_up_ns: u64,
    duration_ns: u64,
    stretch_ns: u64,
    /// The machine's power model and further members of its family.
    members: Vec<Member>,
    latency: Vec<(u8, Histogram)>,
    cap_waits: Histogram,
    metered_uw: Vec<Option<u64>>,
    label_ns: Vec<(u8, u64)>,
    series: Vec<Stretch>,
    /// Bytes read and written by each drive in each stretch, stretch by stretch.
    moved: Vec<(u64, u64)>,
    /// Power ceiling of each drive above idle, in microwatts.
    ceilings_uw: Vec<Option<u64>>,
    /// Energy above these ceilings, which is not spent, in microjoules.
    capped_uj: u64,
    /// Completed background bytes by class, in the measured time and in total.
    background: Vec<(u64, u64)>,
    /// Energy of drives with their own figures.
    drives: Option<OwnDrives>,
    current: CurrentStretch,
    ended: usize,
    before: Decisions,
    switches_before: u64,
    moves_before: u64,
    requests: Requests,
    /// Requests sent and answered in the first half.
    first_half: (u64, u64),
    /// Energy of the current stretch so far.
    spent: Total,
}

/// The current stretch.
#[derive(Clone, Copy, Debug, Default)]
struct CurrentStretch {
    stretch: usize,
    /// Where in [`Collector::moved`] its drives begin.
    first_drive: usize,
    from_ns: u64,
    until_ns: u64,
}

impl Collector {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let stretches = (scenario.duration_ns / scenario.series_ns) as usize;
        let mut labels: Vec<u8> = scenario
            .workload
            .connections
            .iter()
            .flat_map(|connection| connection.phases.iter().map(|phase| phase.label))
            .collect();
        labels.sort_unstable();
        labels.dedup();
        Self {
            warm_up_ns: scenario.warm_up_ns,
            duration_ns: scenario.duration_ns,
            stretch_ns: scenario.series_ns,
            members: members(&scenario.machine, &scenario.family).map(|power| Member::new(power, scenario)).collect(),
            latency: labels.iter().map(|&label| (label, Histogram::default())).collect(),
            cap_waits: Histogram::default(),
            metered_uw: Vec::new(),
            label_ns: labels.iter().map(|&label| (label, label_ns(scenario, label))).collect(),
            series: vec![Stretch::default(); stretches],
            moved: vec![(0, 0); scenario.drives.len() * stretches],
            ceilings_uw: scenario.drives.iter().map(|drive| drive.power.map(|power| power.most_load_uw)).collect(),
            capped_uj: 0,
            background: vec![(0, 0); scenario.workload.background.len()],
            drives: OwnDrives::new(scenario, scenario.series_ns),
            current: CurrentStretch::default(),
            ended: 0,
            before: Decisions::default(),
            switches_before: 0,
            moves_before: 0,
            requests: Requests::default(),
            first_half: (0, 0),
            spent: Total::new(scenario.family.len() + 1),
        }
    }

    pub(crate) fn stretch_ns(&self) -> u64 {
        self.stretch_ns
    }

    #[inline]
    pub(crate) fn issued(&mut self, sent: &Sent) {
        self.requests.issued += 1;
        self.first_half.0 += u64::from(sent.at_ns < self.duration_ns / 2);
    }

    /// Records the server's power meter at the end of a stretch.
    pub(crate) fn metered(&mut self, power_uw: Option<u64>) {
        self.metered_uw.push(power_uw);
    }

    /// Records the wait of a command for a cap.
    pub(crate) fn waited(&mut self, at_ns: u64, waited_ns: u64) {
        if at_ns >= self.warm_up_ns {
            self.cap_waits.record(waited_ns);
        }
    }

    #[inline]
    pub(crate) fn received(&mut self, job: &Job, at_ns: u64) {
        if at_ns >= self.duration_ns {
            return; // in flight at the end
        }
        self.requests.answered += 1;
        self.first_half.1 += u64::from(at_ns < self.duration_ns / 2);
        let latency_ns = at_ns - job.sent_ns;
        self.select_stretch(at_ns);
        let stretch = &mut self.series[self.current.stretch];
        stretch.answered += 1;
        stretch.latency_ns += latency_ns;
        if job.sent_ns >= self.warm_up_ns
            && let Some((_, histogram)) = self.latency.iter_mut().find(|(label, _)| *label == job.label)
        {
            histogram.record(latency_ns);
        }
    }

    /// Selects the stretch that contains `at_ns`.
    #[inline(always)]
    fn select_stretch(&mut self, at_ns: u64) {
        if !(self.current.from_ns..self.current.until_ns).contains(&at_ns) {
            self.change(at_ns);
        }
    }

    #[cold]
    #[inline(never)]
    fn change(&mut self, at_ns: u64) {
        let stretch = at_ns / self.stretch_ns;
        self.current = CurrentStretch {
            stretch: stretch as usize,
            first_drive: stretch as usize * self.ceilings_uw.len(),
            from_ns: stretch * self.stretch_ns,
            until_ns: (stretch + 1) * self.stretch_ns,
        };
    }

    /// Adds energy from the meter.
    pub(crate) fn spend(&mut self, total: &Total) {
        self.spent.add(total, 1);
    }

    /// Finishes a stretch.
    pub(crate) fn stretch(&mut self, director: &mut Director, shared: &Shared<'_>) {
        let members = self.members.len();
        let Total { epochs, awake_ns, capacity_ns } = std::mem::replace(&mut self.spent, Total::new(members));
        debug_assert_eq!(epochs.len(), members);
        let Some(stretch) = self.series.get_mut(self.ended) else { return };
        let measured = self.ended as u64 * self.stretch_ns >= self.warm_up_ns;
        let (drives, ceilings_uw) = (self.ceilings_uw.len(), &self.ceilings_uw);
        let moved = &self.moved[self.ended * drives..][..drives];
        let drives = DrivesTook { moved, ceilings_uw, own_uj: self.drives.as_mut().map(|drives| drives.take(moved)) };
        for (index, (member, epoch)) in self.members.iter_mut().zip(&epochs).enumerate() {
            let energy = member.stretch(epoch, self.stretch_ns, &drives);
            if measured {
                member.measured.add(&energy);
            }
            if index == 0 {
                stretch.energy = energy;
                self.capped_uj += if measured { member.capped_uj(moved, ceilings_uw, self.stretch_ns) } else { 0 };
            }
        }
        stretch.awake_ns = awake_ns;
        stretch.capacity_ns = capacity_ns;
        stretch.moves = director.moves - std::mem::replace(&mut self.moves_before, director.moves);
        self.ended += 1;
        if self.ended as u64 * self.stretch_ns == self.warm_up_ns {
            self.before = director.decisions;
            self.switches_before = shared.switches;
        }
    }

    /// Records completed background work.
    pub(crate) fn did_background(&mut self, at_ns: u64, class: u16, bytes: u64) {
        if at_ns < self.duration_ns {
            let (measured, whole) = &mut self.background[usize::from(class)];
            *whole += bytes;
            *measured += if at_ns >= self.warm_up_ns { bytes } else { 0 };
        }
    }

    /// Records a transfer of a drive.
    #[inline]
    pub(crate) fn moved(&mut self, at_ns: u64, drive: usize, bytes: u32, write: bool) {
        self.select_stretch(at_ns);
        let Some((read, written)) = self.moved.get_mut(self.current.first_drive + drive) else { return };
        *(if write { written } else { read }) += u64::from(bytes);
    }

    /// Whether drives must be advanced at the end of a stretch, as their energy depends on autonomous activity.
    pub(crate) fn needs_drive_spans(&self) -> bool {
        self.drives.is_some()
    }

    /// Records autonomous activity of a drive.
    pub(crate) fn span(&mut self, drive: usize, span: &Span, moving_uw: u64) {
        if let Some(drives) = &mut self.drives {
            drives.span(drive, span, moving_uw);
        }
    }

    /// `held_back`: replayed requests that were due and not sent.
    pub(crate) fn finish(
        self,
        director: &Director,
        switches: u64,
        held_back: u64,
        classes: &[BackgroundClass],
    ) -> Outcome {
        let ended_ns = self.duration_ns;
        let background = self.background.iter().zip(classes).map(|(&(done_bytes, whole), class)| Background {
            done_bytes,
            backlog_bytes: come_bytes(class, ended_ns).saturating_sub(whole),
        });
        let background = background.collect();
        let mut energy = self.members.iter().map(|member| member.measured);
        let own = energy.next().unwrap_or_default();
        let family = energy.collect();
        let Requests { issued, answered, .. } = self.requests;
        let (sent_first, answered_first) = self.first_half;
        let growth = ((issued - answered).saturating_sub(sent_first - answered_first) + held_back) as f64;
        let saturated = growth > 100.0 && growth > GROWTH * (issued - sent_first + held_back) as f64;
        let mut decisions = since(&director.decisions, &self.before);
        decisions.switches = switches - self.switches_before;
        Outcome {
            measured_ns: self.duration_ns - self.warm_up_ns,
            requests: Requests { in_progress: issued - answered, ..self.requests },
            latency: self.latency,
            cap_waits: self.cap_waits,
            metered_uw: self.metered_uw,
            label_ns: self.label_ns,
            energy: own,
            family,
            capped_uj: self.capped_uj,
            series: self.series,
            decisions,
            view: director.view(),
            saturated,
            jobs: Jobs::default(),
            background,
        }
    }
}

fn since(now: &Decisions, before: &Decisions) -> Decisions {
    Decisions {
        policy_calls: now.policy_calls - before.policy_calls,
        surge_checks: now.surge_checks - before.surge_checks,
        moves: now.moves - before.moves,
        sleeps: now.sleeps - before.sleeps,
        wakes: now.wakes - before.wakes,
        frequencies: now.frequencies - before.frequencies,
        refused: now.refused - before.refused,
        switches: 0,
        late_ns: now.late_ns - before.late_ns,
        deciding_ns: now.deciding_ns - before.deciding_ns,
    }
}

/// Measured time in which some connection is in a phase of this label.
fn label_ns(scenario: &Scenario, label: u8) -> u64 {
    let mut lists: Vec<&[Phase]> = scenario.workload.connections.iter().map(|one| one.phases.as_slice()).collect();
    lists.dedup(); // connections of a group have equal phases
    let mut spans: Vec<_> = lists.iter().flat_map(|phases| spans(phases, label, scenario)).collect();
    spans.sort_unstable();
    let (mut sum, mut seen_ns) = (0, 0);
    for (from_ns, until_ns) in spans {
        sum += until_ns.saturating_sub(from_ns.max(seen_ns));
        seen_ns = seen_ns.max(until_ns);
    }
    sum
}

/// Phases of a label within the measured time, as (begin, end).
fn spans(phases: &[Phase], label: u8, scenario: &Scenario) -> Vec<(u64, u64)> {
    let (mut at_ns, mut spans) = (0, Vec::new());
    for phase in phases.iter().cycle() {
        if at_ns >= scenario.duration_ns {
            break;
        }
        let end_ns = at_ns.saturating_add(phase.length_ns).min(scenario.duration_ns);
        if phase.label == label && end_ns > scenario.warm_up_ns {
            spans.push((at_ns.max(scenario.warm_up_ns), end_ns));
        }
        at_ns = end_ns;
    }
    spans
}
