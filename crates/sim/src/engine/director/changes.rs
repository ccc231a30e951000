//! Changes during a run: knobs, goals, and the policy.
//!
//! Changes of the machine are applied first, then goals, then a new policy; each at the first boundary of the main core after its time,
//! before ticks and intervals. Knobs are restored before the next policy starts, at the main core's cost.

use pilotlight_plant::{CoreId, CoreSample, CoreState, Goals, NEVER, Policy, Start, Values};

use super::{Counters, Director};
use crate::engine::core::Core;
use crate::engine::meter::Metering;
use crate::engine::shared::Shared;
use crate::scenario::{Change, Scenario};

/// Pending changes with their times, the next one last.
pub(super) struct PendingChanges {
    changes: Vec<(u64, Change)>,
    goals: Vec<(u64, Goals)>,
    policies: Vec<(u64, Box<dyn Policy>)>,
    /// Values of removed knobs.
    gone: Vec<Option<Values>>,
}

impl PendingChanges {
    pub(super) fn new(scenario: &Scenario, mut policies: Vec<(u64, Box<dyn Policy>)>, knobs: usize) -> Self {
        policies.reverse();
        Self {
            changes: scenario.changes.iter().rev().copied().collect(),
            goals: scenario.goals.iter().rev().cloned().collect(),
            policies,
            gone: vec![None; knobs],
        }
    }

    /// The goals at the start.
    pub(super) fn first_goals(&mut self) -> Goals {
        self.goals.pop_if(|(at_ns, _)| *at_ns == 0).map(|(_, goals)| goals).unwrap_or_default()
    }

    /// Time of the next change.
    pub(super) fn due_ns(&self) -> u64 {
        let change_ns = self.changes.last().map_or(NEVER, |&(at_ns, _)| at_ns);
        let goals_ns = self.goals.last().map_or(NEVER, |&(at_ns, _)| at_ns);
        let policy_ns = self.policies.last().map_or(NEVER, |&(at_ns, _)| at_ns);
        change_ns.min(goals_ns).min(policy_ns)
    }
}

impl Director {
    /// Applies the changes that are due.
    pub(super) fn apply_changes(&mut self, cores: &mut [Core], meter: &mut dyn Metering, shared: &mut Shared<'_>) {
        let now_ns = cores[self.topology.main().index()].now_ns;
        if self.pending.due_ns() > now_ns {
            return;
        }
        let mut changed = false;
        while let Some((_, change)) = self.pending.changes.pop_if(|(at_ns, _)| *at_ns <= now_ns) {
            self.change_plant(change, cores, meter, shared);
            changed = true;
        }
        if changed {
            self.decide(cores, shared);
            self.decisions.policy_calls += 1;
            self.policy.on_plant(now_ns, &self.capabilities, &mut self.commands);
            self.next.needed_ns = now_ns;
            self.refresh_wants(now_ns, cores, meter, shared);
            self.carry_out(cores, meter, shared);
        }
        while let Some((_, goals)) = self.pending.goals.pop_if(|(at_ns, _)| *at_ns <= now_ns) {
            self.decide(cores, shared);
            self.decisions.policy_calls += 1;
            self.policy.on_goals(now_ns, &goals, &mut self.commands);
            self.goals = goals;
            self.classify();
            self.next.needed_ns = now_ns;
            self.refresh_wants(now_ns, cores, meter, shared);
            self.carry_out(cores, meter, shared);
        }
        while let Some((_, policy)) = self.pending.policies.pop_if(|(at_ns, _)| *at_ns <= now_ns) {
            self.exchange(policy, cores, meter, shared);
        }
    }

    /// Updates the classes of I/O threads.
    pub(super) fn classify(&mut self) {
        let goals = &self.goals;
        let class = |served: &Vec<_>| served.iter().map(|&(host, namespace)| goals.class(host, namespace)).max();
        self.classes = self.served.iter().map(class).collect();
    }

    /// Updates the policy's wants. New samples start now.
    fn refresh_wants(&mut self, now_ns: u64, cores: &mut [Core], meter: &mut dyn Metering, shared: &mut Shared<'_>) {
        let before = std::mem::replace(&mut self.wants, self.policy.wants());
        if before == self.wants {
            return;
        }
        self.select_readings();
        for (thread, before) in shared.threads.iter_mut().zip(&mut self.on_interval) {
            let (answered, in_progress_ns) = (thread.answered, thread.in_progress_ns(now_ns));
            let is_known = self.wants.service;
            (before.answered, before.in_progress_ns) = if is_known { (answered, in_progress_ns) } else { (0, 0) };
        }
        let after = |every_ns: Option<u64>| every_ns.map_or(NEVER, |every_ns| now_ns.saturating_add(every_ns));
        if before.tick_ns != self.wants.tick_ns {
            self.tick_due_ns = after(self.wants.tick_ns);
        }
        if before.tick_ns.is_none() {
            self.begin_ticks(now_ns, shared);
        }
        if before.interval_ns != self.wants.interval_ns {
            self.interval_due_ns = after(self.wants.interval_ns);
        }
        if before.interval_ns.is_none() {
            self.begin_intervals(now_ns, cores, shared);
        }
        let every_ns = self.wants.tick_ns.or(self.wants.interval_ns);
        meter.fill(every_ns.map_or(0, |_| shared.machine.director.fill_ns), every_ns.unwrap_or(1), cores);
    }

    /// Removes a knob with its setting, or adds it again.
    fn change_plant(&mut self, change: Change, cores: &mut [Core], meter: &mut dyn Metering, shared: &mut Shared<'_>) {
        let (Change::KnobGoes(id) | Change::KnobComes(id)) = change;
        let (Some(knob), Some(gone)) =
            (self.capabilities.knobs.get_mut(id.index()), self.pending.gone.get_mut(id.index()))
        else {
            return;
        };
        match change {
            Change::KnobGoes(_) if gone.is_none() => {
                *gone = Some(std::mem::replace(&mut knob.values, Values::List(Vec::new())));
                self.set.retain(|set| *set != id);
                let at_ns = cores[self.topology.main().index()].now_ns;
                self.restore_knob(id, at_ns, cores, meter, shared);
            }
            Change::KnobGoes(_) => {}
            Change::KnobComes(_) => knob.values = gone.take().unwrap_or_else(|| knob.values.clone()),
        }
    }

    /// Starts another policy on the present state, with all knobs restored.
    fn exchange(
        &mut self,
        mut policy: Box<dyn Policy>,
        cores: &mut [Core],
        meter: &mut dyn Metering,
        shared: &mut Shared<'_>,
    ) {
        let main = self.topology.main().index();
        for id in std::mem::take(&mut self.set) {
            let at_ns = cores[main].spend(shared.machine.director.frequency_ns);
            self.restore_knob(id, at_ns, cores, meter, shared);
        }
        self.decide(cores, shared);
        let now_ns = cores[main].now_ns;
        let state = |depth: &Option<_>| CoreSample::new(depth.map_or(CoreState::Awake, CoreState::Asleep));
        let states: Vec<_> = self.asleep.iter().map(state).collect();
        let homes: Vec<_> = shared.threads.iter().map(|thread| CoreId(thread.destination)).collect();
        let start = Start {
            now_ns,
            topology: &self.topology,
            capabilities: &self.capabilities,
            cores: &states,
            homes: &homes,
            goals: &self.goals,
        };
        self.decisions.policy_calls += 1;
        match policy.start(&start, &mut self.commands) {
            Ok(next) => self.set_next(next),
            Err(error) => {
                self.refused_policy.get_or_insert(error);
                self.commands.clear();
                return; // the run has failed
            }
        }
        self.policy = policy;
        self.wants = self.policy.wants();
        let after = |every_ns: Option<u64>| every_ns.map_or(NEVER, |every_ns| now_ns.saturating_add(every_ns));
        self.tick_due_ns = after(self.wants.tick_ns);
        self.interval_due_ns = after(self.wants.interval_ns);
        let every_ns = self.wants.tick_ns.or(self.wants.interval_ns);
        meter.fill(every_ns.map_or(0, |_| shared.machine.director.fill_ns), every_ns.unwrap_or(1), cores);
        self.select_readings();
        self.begin_samples(now_ns, cores, shared);
        self.carry_out(cores, meter, shared);
    }

    /// Restarts all samples.
    fn begin_samples(&mut self, now_ns: u64, cores: &[Core], shared: &mut Shared<'_>) {
        for before in &mut self.on_interval {
            (before.answered, before.in_progress_ns) = (0, 0); // the previous policy may have used them
        }
        self.begin_ticks(now_ns, shared);
        self.begin_intervals(now_ns, cores, shared);
    }

    fn begin_ticks(&mut self, now_ns: u64, shared: &Shared<'_>) {
        for (thread, before) in shared.threads.iter().zip(&mut self.on_tick) {
            *before = Counters { polled: thread.polled, busy_ns: thread.busy_ns, ..*before };
        }
        self.ticked_ns = now_ns;
    }

    fn begin_intervals(&mut self, now_ns: u64, cores: &[Core], shared: &mut Shared<'_>) {
        self.fill_threads(now_ns, shared);
        self.fill_cores(cores, now_ns, 0);
        self.sampled_ns = now_ns;
    }
}
