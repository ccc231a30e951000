//! `pass`: a power budget for the whole server, divided between CPU and drives (PASS, section 3).
//!
//! **Models.** [`cpu_model`] gives the best CPU configuration within a power, [`ssd_model`] the power of drives by bandwidth; both come from a
//! [`profile`].
//! **Zones** (section 3.3), by the rules of [`crate::budget`]. Above +2 % CPU and bandwidth are cut at once by the whole excess, each in proportion
//! to its possible saving. Between the budget and +2 % the CPU is cut as a trial (Algorithm 1, `trial`, `allocate`).
//! Below, bandwidth caps that limit something are raised by the distance, and the CPU by the part that they do not use. Down to -1 % PASS changes
//! nothing; here the CPU may be cut on trial for drives that caps limit ([`rebalance`]; `rebalance = false` is as printed).
//! **Gain.** One watt of a model is assumed to change the server's power by one watt until a change has shown the gain (chosen: about the geometric
//! mean of 0.4 and 2.35, the extremes between neighbouring rows of the artifact's `polling-interval-rapl.csv`).
//! **Start.** Without a reading the models divide the budget less the maximum of other components and the power of idle drives: the CPU gets what
//! drives cannot use, so that drives are capped only if the CPU is at its lowest. `start = full` begins without limits.
//! **Faults.** By a refused or stale reading nothing is raised: a trial then ends at the next good one within two intervals, else it is dropped.
//! Once the last good reading is older than `stale_after`, the configuration of the start is a ceiling. Refused knobs: `crate::budget::caps`.
//! **I/O threads** of the highest class share no core with others while several cores have I/O threads (section 5.4; `crate::limit`).
//!
//! **Properties** (`tests/pass.rs`). The highest priority is throttled last; no cap remains after the budget is removed; while the sensor fails no
//! command raises a cap; steps of the budget are followed in time; at constant load commands end.

mod allocate;
pub(crate) mod bandwidth;
mod class;
pub(crate) mod cpu;
pub mod cpu_model;
mod floor;
mod level;
pub mod parameters;
pub mod profile;
mod rebalance;
pub mod ssd_model;
mod trial;

use pilotlight_plant::{
    Capabilities, Command, Component, Goal, Goals, Kind, KnobId, NEVER, ReadingId, Refusal, Sample, Start, Unreachable,
    Unsupported, View,
};

use self::bandwidth::Bandwidth;
use self::cpu::Cpu;
use self::parameters::{Begin, NAME, Parameters};
use self::rebalance::Rebalance;
use self::trial::Trial;
use crate::budget::control::Control;
use crate::budget::meter::Meter;
use crate::budget::{Domain, SETTLES_NS, no_period};
use crate::limit::Limiter;

/// The controller.
#[derive(Debug)]
pub(crate) struct Pass {
    parameters: Parameters,
    capabilities: Capabilities,
    goals: Goals,
    meter: Meter,
    /// Power of the CPU packages, if it is measured beside the server's.
    packages: Meter,
    cpu: Cpu,
    bandwidth: Bandwidth,
    control: Control,
    /// Sum of cuts and raises, in microwatts, from [`ORIGIN_UW`] on.
    moved_uw: u64,
    trial: Option<Trial>,
    rebalance: Rebalance,
    /// Power of the drives and of all else before the last change, in microwatts.
    before_change: (f64, f64),
    /// Bottleneck found by the last trial under this budget.
    found: Option<Component>,
    /// Start of the budget.
    since_ns: u64,
    is_stale: bool,
    /// Power with everything at its lowest, if that is over the budget.
    unreachable_uw: Option<u64>,
    /// When the last new reading of power arrived.
    read_ns: u64,
    changes: u64,
    refused: u64,
}

/// Far from both limits of the type.
const ORIGIN_UW: u64 = 1 << 50;
impl Pass {
    pub(crate) fn new(parameters: Parameters) -> Self {
        Self {
            cpu: Cpu::new(parameters.own.profile.cpu.clone(), parameters.common.inner != "static"),
            bandwidth: Bandwidth::new(parameters.own.profile.ssd),
            parameters,
            capabilities: Capabilities::default(),
            goals: Goals::default(),
            meter: Meter::default(),
            packages: Meter::default(),
            control: Control::default(),
            moved_uw: ORIGIN_UW,
            trial: None,
            rebalance: Rebalance::default(),
            before_change: (0.0, 0.0),
            found: None,
            since_ns: 0,
            is_stale: false,
            unreachable_uw: None,
            read_ns: 0,
            changes: 0,
            refused: 0,
        }
    }

    /// Decides by the last estimate; `is_new` is whether it was not used before.
    fn decide(&mut self, now_ns: u64, is_new: bool, out: &mut Vec<Command>) {
        let Some(budget_uw) = self.goals.budget_uw else { return self.lift(now_ns, out) };
        let known_ns = self.meter.last(now_ns).map_or(self.since_ns, |(_, age_ns)| now_ns - age_ns);
        let stale_after_ns = self.parameters.common.stale_after_ns;
        self.is_stale = now_ns.saturating_sub(known_ns.max(self.since_ns)) > stale_after_ns;
        if self.is_stale {
            self.trial = None;
            return self.begin_within(now_ns, budget_uw, out);
        }
        let waits_ns = 2 * self.parameters.common.interval_ns;
        if self.has_drives() && !self.bandwidth.is_known() && now_ns < self.since_ns.saturating_add(waits_ns) {
            return; // a cut of the CPU alone would be reverted at once
        }
        if let Some(estimate) = self.meter.estimate() {
            self.follow(now_ns, (budget_uw, estimate), is_new, out);
        }
    }

    /// Whether the budget includes drives.
    fn has_drives(&self) -> bool {
        self.parameters.common.domain == Domain::Server && !self.bandwidth.is_empty()
    }

    /// Retries refused settings.
    fn retry(&mut self, now_ns: u64, out: &mut Vec<Command>) {
        let is_cpu = self.cpu.set(now_ns, self.cpu.level_uw(), out);
        if self.bandwidth.apply(now_ns, out) || is_cpu {
            self.note_change(now_ns);
        }
    }

    /// Records a change.
    fn note_change(&mut self, now_ns: u64) {
        self.changes += 1;
        let holds_ns = self.holds_ns().max(now_ns);
        self.meter.note_setting(holds_ns);
        self.packages.note_setting(holds_ns);
    }

    fn holds_ns(&self) -> u64 {
        self.cpu.holds_ns().max(self.bandwidth.holds_ns())
    }

    /// Sets the models' configuration for a budget without readings; lower settings stay.
    fn begin_within(&mut self, now_ns: u64, budget_uw: u64, out: &mut Vec<Command>) {
        let target_uw = budget_uw as f64 * (1.0 - f64::from(self.parameters.common.no_action_ppm) / 2e6);
        let (others_uw, drives_uw) = match self.parameters.common.domain {
            Domain::Server => (self.parameters.own.profile.others_uw as f64, self.bandwidth.idle_uw()),
            Domain::Cpu => (0.0, 0.0),
        };
        let left_uw = (target_uw - others_uw - drives_uw).max(0.0);
        let is_capped = self.parameters.common.domain == Domain::Server && !self.bandwidth.is_empty();
        let most_uw = if self.parameters.common.domain == Domain::Server { self.bandwidth.most_uw() } else { 0.0 };
        let cpu_uw = (left_uw - most_uw).max(self.cpu.lowest_uw() as f64);
        let is_cpu = (cpu_uw as u64) < self.cpu.level_uw() && self.cpu.set(now_ns, cpu_uw as u64, out);
        if is_capped {
            self.bandwidth.limit((left_uw - cpu_uw).max(0.0));
        }
        if self.bandwidth.apply(now_ns, out) || is_cpu {
            self.note_change(now_ns);
            self.control.forget_change();
        }
    }

    /// Sets whether limits may be raised: with a new reading, at the end of a trial unless the reading was refused or is stale, or without a
    /// budget.
    fn allow_raises(&mut self, may_raise: bool) {
        self.cpu.allow_raises(may_raise);
        self.bandwidth.allow_raises(may_raise);
    }

    fn lift(&mut self, now_ns: u64, out: &mut Vec<Command>) {
        self.trial = None;
        self.allow_raises(true);
        self.bandwidth.lift();
        let is_cpu = self.cpu.set(now_ns, u64::MAX, out);
        if self.bandwidth.apply(now_ns, out) || is_cpu {
            self.changes += 1;
        }
    }

    fn adopt(&mut self, now_ns: u64, goals: &Goals) {
        let before = std::mem::replace(&mut self.goals, goals.clone());
        if before.priorities != goals.priorities || before.minimums != goals.minimums {
            self.trial = None; // its rates are of other namespaces and hosts
            self.bandwidth.replace(&self.capabilities, goals);
        }
        if before.budget_uw == goals.budget_uw {
            return;
        }
        if before.budget_uw.is_none() || goals.budget_uw.is_none() {
            self.meter.reset(); // readings under an earlier budget
            self.packages.reset();
            self.bandwidth.forget();
            self.since_ns = now_ns;
        }
        (self.trial, self.found) = (None, None);
        (self.is_stale, self.unreachable_uw) = (false, None);
        self.control.on_budget();
        self.rebalance.on_budget();
        if before.budget_uw.is_none() {
            self.rebalance.begin();
        }
    }

    /// Whether nothing is limited.
    fn is_full(&self) -> bool {
        self.cpu.level_uw() == self.cpu.highest_uw() && !self.bandwidth.is_capped()
    }

    fn state(&self) -> &'static str {
        match self.goals.budget_uw {
            None => "no budget",
            Some(_) if self.is_stale => "no reading: at most what the models allow",
            Some(_) if self.unreachable_uw.is_some() => "unreachable: over the budget with everything at its lowest",
            Some(_) if self.is_full() => "nothing is limited",
            Some(_) if self.trial.is_some() => "looking for the bottleneck",
            Some(_) if self.cpu.level_uw() == self.cpu.lowest_uw() => "the CPU is at its lowest",
            Some(_) => "limited",
        }
    }
}

impl Limiter for Pass {
    fn name(&self) -> &'static str {
        NAME
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::LimitUw, Kind::QuotaPpm, Kind::QuotaPeriodNs, Kind::BytesPerS]
    }

    fn interval_ns(&self) -> u64 {
        self.parameters.own.sample_interval_ns
    }

    fn wanted_interval_ns(&self) -> Option<u64> {
        if self.goals.budget_uw.is_some() {
            return Some(self.parameters.own.sample_interval_ns);
        }
        let is_wanted = self.changes > 0 || !self.goals.priorities.is_empty();
        is_wanted.then_some(self.parameters.common.interval_ns)
    }

    fn separates(&self) -> bool {
        true
    }

    fn unreachable(&self) -> Option<Unreachable> {
        self.unreachable_uw.map(|reached| Unreachable { goal: Goal::Budget, reached })
    }

    /// Drives if caps limit them, else the result of the last trial: in PASS's model it is one of both.
    fn bottleneck(&self) -> Option<Component> {
        if self.goals.budget_uw.is_none() || self.is_full() {
            return None;
        }
        if self.bandwidth.is_binding() { Some(Component::Drives) } else { self.found }
    }

    fn readings(&self) -> Vec<ReadingId> {
        if self.goals.budget_uw.is_none() {
            return Vec::new();
        }
        let mut ids = self.meter.ids().to_vec();
        let more = self.packages.ids().iter().copied().chain(Bandwidth::readings(&self.capabilities));
        ids.extend(more.filter(|id| !self.meter.ids().contains(id)));
        ids
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<(), Unsupported> {
        self.capabilities = start.capabilities.clone();
        if !self.cpu.start(start, self.parameters.own.period_ns) {
            return Err(no_period(NAME));
        }
        self.bandwidth.start(start.capabilities, start.goals);
        if self.cpu.is_empty() && self.bandwidth.is_empty() {
            return Err(Unsupported {
                policy: NAME,
                feature: "a power limit, a quota of CPU time, cores that can sleep or caps on bandwidth",
                remedy: "give the server write access to Linux powercap or to a cgroup",
            });
        }
        let common = &self.parameters.common;
        self.meter = common.domain.meter(NAME, start.capabilities)?.spaced(common.interval_ns / 10 * 9);
        let packages = Meter::find(Domain::Cpu, start.capabilities).filter(|_| common.domain == Domain::Server);
        self.packages = packages.unwrap_or_default();
        self.adopt(start.now_ns, start.goals);
        self.begin(start.now_ns, out);
        Ok(())
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) {
        if self.goals.budget_uw.is_none() {
            return self.lift(sample.now_ns, out);
        }
        self.bandwidth.record(sample);
        self.packages.read(sample);
        let before_ns = self.meter.ended_ns();
        let is_new = self.meter.read(sample);
        if self.meter.ended_ns() != before_ns {
            self.read_ns = sample.now_ns;
        }
        let is_fresh = sample.now_ns - self.read_ns < 2 * self.parameters.common.interval_ns;
        let is_over = self.trial.as_mut().is_some_and(|trial| trial.is_over(sample.now_ns, bandwidth::MANY));
        let is_known = self.meter.is_known(sample);
        self.allow_raises(is_new || (is_over && is_fresh && is_known));
        if is_new {
            self.retry(sample.now_ns, out);
        }
        if is_over && !is_fresh {
            self.trial = None;
        } else if is_over && is_known {
            self.end_trial(sample.now_ns, out);
        }
        if self.trial.is_none() || is_new {
            self.decide(sample.now_ns, is_new, out);
        }
    }

    fn uses(&self, goal: Goal) -> bool {
        matches!(goal, Goal::Budget | Goal::Priorities)
    }

    /// A budget that is removed, lower than the last estimate, or set before the first reading takes effect at once.
    fn on_goals(&mut self, now_ns: u64, goals: &Goals, out: &mut Vec<Command>) {
        let had_budget = self.goals.budget_uw.is_some();
        self.adopt(now_ns, goals);
        self.allow_raises(false);
        if !had_budget {
            self.begin(now_ns, out);
        }
        self.bandwidth.apply(now_ns, out);
        self.decide(now_ns, false, out);
    }

    fn on_plant(&mut self, now_ns: u64, capabilities: &Capabilities, out: &mut Vec<Command>) {
        self.capabilities = capabilities.clone();
        let domain = self.parameters.common.domain;
        self.meter.replace_sources(Meter::find(domain, capabilities).unwrap_or_default());
        if domain == Domain::Server {
            self.packages.replace_sources(Meter::find(Domain::Cpu, capabilities).unwrap_or_default());
        }
        self.trial = None;
        self.allow_raises(false);
        self.control.forget_change();
        self.bandwidth.replace(capabilities, &self.goals);
        self.cpu.replace(now_ns, capabilities, out);
        self.bandwidth.apply(now_ns, out);
        self.decide(now_ns, false, out);
    }

    fn on_refused(&mut self, now_ns: u64, set: (KnobId, u64), refusal: Refusal) -> bool {
        let is_own = self.cpu.on_refused(now_ns, set, refusal) || self.bandwidth.on_refused(now_ns, set, refusal);
        if is_own {
            self.refused += 1;
            self.trial = None;
            self.control.forget_change();
        }
        is_own
    }

    fn acts_ns(&self, now_ns: u64) -> u64 {
        if self.goals.budget_uw.is_some() {
            return 0;
        }
        let is_settled = self.changes == 0 || now_ns >= self.holds_ns().saturating_add(SETTLES_NS);
        let lifts_ns = [self.cpu.lifts_ns(), self.bandwidth.lifts_ns()].into_iter().flatten().min();
        lifts_ns.unwrap_or(if is_settled { NEVER } else { 0 })
    }

    fn cores(&self) -> usize {
        self.cpu.cores()
    }

    fn limited(&self) -> Option<&'static str> {
        let cpu = self.cpu.level_uw() < self.cpu.highest_uw();
        match (cpu, self.bandwidth.is_capped()) {
            _ if self.goals.budget_uw.is_none() => None,
            (true, true) => Some("CPU and drives"),
            (true, false) => Some("CPU"),
            (false, true) => Some("drives"),
            (false, false) => None,
        }
    }

    fn view(&self) -> View {
        let watts = |uw: u64| format!("{:.1}", uw as f64 / 1e6);
        vec![
            ("budget W", self.goals.budget_uw.map_or("none".to_owned(), watts)),
            ("budget_state", self.state().to_owned()),
            ("CPU configuration, W by its profile", watts(self.cpu.level_uw())),
            ("bandwidth caps", self.bandwidth.text()),
            ("bottleneck", self.bottleneck().map_or("unknown", Component::name).to_owned()),
            ("power moved by one watt of the profile, W", format!("{:.2}", self.control.gain_or(1.0))),
            ("profile", self.parameters.own.profile.name.clone()),
            ("changes", self.changes.to_string()),
            ("commands refused", self.refused.to_string()),
        ]
    }
}

impl Pass {
    /// The first configuration under a budget.
    fn begin(&mut self, now_ns: u64, out: &mut Vec<Command>) {
        if let (Some(budget_uw), Begin::Within) = (self.goals.budget_uw, self.parameters.own.begin) {
            self.begin_within(now_ns, budget_uw, out);
        }
    }
}
