//! What changes while a policy is in charge: goals, knobs that come and go, and the policy itself.
//!
//! Changes of the machine come first, then goals, then another policy; each is told at the first boundary of the main core after its time,
//! before ticks and intervals. What a policy has set is put back before the next one starts, at the main core's cost.

use pilotlight_plant::{CoreId, CoreSample, CoreState, Goals, NEVER, Policy, Start, Values};

use super::{Before, Director};
use crate::engine::core::Core;
use crate::engine::floor::Floor;
use crate::engine::meter::Metering;
use crate::scenario::{Change, Scenario};

/// What is still to come, each with its time; the next one last.
pub(super) struct Coming {
    changes: Vec<(u64, Change)>,
    goals: Vec<(u64, Goals)>,
    policies: Vec<(u64, Box<dyn Policy>)>,
    /// Values of knobs whose place has gone.
    gone: Vec<Option<Values>>,
}

impl Coming {
    pub(super) fn new(scenario: &Scenario, mut policies: Vec<(u64, Box<dyn Policy>)>, knobs: usize) -> Self {
        policies.reverse();
        Self {
            changes: scenario.changes.iter().rev().copied().collect(),
            goals: scenario.goals.iter().rev().cloned().collect(),
            policies,
            gone: vec![None; knobs],
        }
    }

    /// The goals that hold from the start on.
    pub(super) fn first_goals(&mut self) -> Goals {
        self.goals.pop_if(|(at_ns, _)| *at_ns == 0).map(|(_, goals)| goals).unwrap_or_default()
    }

    /// When the next of all comes.
    pub(super) fn due_ns(&self) -> u64 {
        let change_ns = self.changes.last().map_or(NEVER, |&(at_ns, _)| at_ns);
        let goals_ns = self.goals.last().map_or(NEVER, |&(at_ns, _)| at_ns);
        let policy_ns = self.policies.last().map_or(NEVER, |&(at_ns, _)| at_ns);
        change_ns.min(goals_ns).min(policy_ns)
    }
}

impl Director {
    /// Tells the policy what has changed until now.
    pub(super) fn tell_changes(&mut self, cores: &mut [Core], meter: &mut dyn Metering, floor: &mut Floor<'_>) {
        let now_ns = cores[self.topology.main().index()].now_ns;
        if self.coming.due_ns() > now_ns {
            return;
        }
        let mut changed = false;
        while let Some((_, change)) = self.coming.changes.pop_if(|(at_ns, _)| *at_ns <= now_ns) {
            self.change_plant(change, cores, meter, floor);
            changed = true;
        }
        if changed {
            self.decide(cores, floor);
            self.decisions.asked += 1;
            self.policy.on_plant(now_ns, &self.capabilities, &mut self.commands);
            self.next_needed_ns = now_ns;
            self.want_again(now_ns, cores, meter, floor);
            self.carry_out(cores, meter, floor);
        }
        while let Some((_, goals)) = self.coming.goals.pop_if(|(at_ns, _)| *at_ns <= now_ns) {
            self.decide(cores, floor);
            self.decisions.asked += 1;
            self.policy.on_goals(now_ns, &goals, &mut self.commands);
            self.goals = goals;
            self.classify();
            self.next_needed_ns = now_ns;
            self.want_again(now_ns, cores, meter, floor);
            self.carry_out(cores, meter, floor);
        }
        while let Some((_, policy)) = self.coming.policies.pop_if(|(at_ns, _)| *at_ns <= now_ns) {
            self.exchange(policy, cores, meter, floor);
        }
    }

    /// I/O threads may carry other classes.
    pub(super) fn classify(&mut self) {
        let goals = &self.goals;
        let class = |served: &Vec<_>| served.iter().map(|&(host, namespace)| goals.class(host, namespace)).max();
        self.classes = self.served.iter().map(class).collect();
    }

    /// The policy may want something else now. What it did not want before begins now.
    fn want_again(&mut self, now_ns: u64, cores: &mut [Core], meter: &mut dyn Metering, floor: &mut Floor<'_>) {
        let before = std::mem::replace(&mut self.wants, self.policy.wants());
        if before == self.wants {
            return;
        }
        self.read_wanted();
        for (thread, before) in floor.threads.iter_mut().zip(&mut self.on_interval) {
            let (answered, in_progress_ns) = (thread.answered, thread.in_progress_ns(now_ns));
            let is_known = self.wants.service;
            (before.answered, before.in_progress_ns) = if is_known { (answered, in_progress_ns) } else { (0, 0) };
        }
        let after = |every_ns: Option<u64>| every_ns.map_or(NEVER, |every_ns| now_ns.saturating_add(every_ns));
        if before.tick_ns != self.wants.tick_ns {
            self.tick_due_ns = after(self.wants.tick_ns);
        }
        if before.tick_ns.is_none() {
            self.begin_ticks(now_ns, floor);
        }
        if before.interval_ns != self.wants.interval_ns {
            self.interval_due_ns = after(self.wants.interval_ns);
        }
        if before.interval_ns.is_none() {
            self.begin_intervals(now_ns, cores, floor);
        }
        let every_ns = self.wants.tick_ns.or(self.wants.interval_ns);
        meter.fill(every_ns.map_or(0, |_| floor.machine.director.fill_ns), every_ns.unwrap_or(1), cores);
    }

    /// A knob goes, and what it set with it; or it is back.
    fn change_plant(&mut self, change: Change, cores: &mut [Core], meter: &mut dyn Metering, floor: &mut Floor<'_>) {
        let (Change::KnobGoes(id) | Change::KnobComes(id)) = change;
        let (Some(knob), Some(gone)) =
            (self.capabilities.knobs.get_mut(id.index()), self.coming.gone.get_mut(id.index()))
        else {
            return;
        };
        match change {
            Change::KnobGoes(_) if gone.is_none() => {
                *gone = Some(std::mem::replace(&mut knob.values, Values::List(Vec::new())));
                self.set.retain(|set| *set != id);
                let at_ns = cores[self.topology.main().index()].now_ns;
                self.put_back(id, at_ns, cores, meter, floor);
            }
            Change::KnobGoes(_) => {}
            Change::KnobComes(_) => knob.values = gone.take().unwrap_or_else(|| knob.values.clone()),
        }
    }

    /// Another policy takes over the plant as it is, but for the knobs, which are as they were found.
    fn exchange(
        &mut self,
        mut policy: Box<dyn Policy>,
        cores: &mut [Core],
        meter: &mut dyn Metering,
        floor: &mut Floor<'_>,
    ) {
        let main = self.topology.main().index();
        for id in std::mem::take(&mut self.set) {
            let at_ns = cores[main].spend(floor.machine.director.frequency_ns);
            self.put_back(id, at_ns, cores, meter, floor);
        }
        self.decide(cores, floor);
        let now_ns = cores[main].now_ns;
        let state = |depth: &Option<_>| CoreSample::new(depth.map_or(CoreState::Awake, CoreState::Asleep));
        let states: Vec<_> = self.asleep.iter().map(state).collect();
        let homes: Vec<_> = floor.threads.iter().map(|thread| CoreId(thread.destination)).collect();
        let start = Start {
            now_ns,
            topology: &self.topology,
            capabilities: &self.capabilities,
            cores: &states,
            homes: &homes,
            goals: &self.goals,
        };
        self.decisions.asked += 1;
        match policy.start(&start, &mut self.commands) {
            Ok(next) => self.next_needed_ns = next.needed_ns,
            Err(error) => {
                self.refused_policy.get_or_insert(error);
                self.commands.clear();
                return; // the run has failed; the last policy stays
            }
        }
        self.policy = policy;
        self.wants = self.policy.wants();
        let after = |every_ns: Option<u64>| every_ns.map_or(NEVER, |every_ns| now_ns.saturating_add(every_ns));
        self.tick_due_ns = after(self.wants.tick_ns);
        self.interval_due_ns = after(self.wants.interval_ns);
        let every_ns = self.wants.tick_ns.or(self.wants.interval_ns);
        meter.fill(every_ns.map_or(0, |_| floor.machine.director.fill_ns), every_ns.unwrap_or(1), cores);
        self.read_wanted();
        self.begin_samples(now_ns, cores, floor);
        self.carry_out(cores, meter, floor);
    }

    /// Samples begin anew: what was before is not told.
    fn begin_samples(&mut self, now_ns: u64, cores: &[Core], floor: &mut Floor<'_>) {
        for before in &mut self.on_interval {
            (before.answered, before.in_progress_ns) = (0, 0); // the last policy may have wanted them, and this one not
        }
        self.begin_ticks(now_ns, floor);
        self.begin_intervals(now_ns, cores, floor);
    }

    fn begin_ticks(&mut self, now_ns: u64, floor: &Floor<'_>) {
        for (thread, before) in floor.threads.iter().zip(&mut self.on_tick) {
            *before = Before { polled: thread.polled, busy_ns: thread.busy_ns, ..*before };
        }
        self.ticked_ns = now_ns;
    }

    fn begin_intervals(&mut self, now_ns: u64, cores: &[Core], floor: &mut Floor<'_>) {
        self.fill_threads(now_ns, floor);
        self.fill_cores(cores);
        self.sampled_ns = now_ns;
    }
}
