//! The CPU's share of a budget: the configuration of the model for a power, set with what the plant has.

use pilotlight_plant::{Capabilities, Command, Kind, KnobId, Refusal, Start};

use super::cpu_model::{CpuModel, Settable};
use crate::budget::actuator::Cores;
use crate::budget::caps::{Caps, Selection};

/// The mechanisms, and where they stand.
#[derive(Debug)]
pub(super) struct Cpu {
    profiled: CpuModel,
    /// Of what this plant can set.
    model: CpuModel,
    limits: Caps,
    quota: Caps,
    cores: Cores,
    /// Power of the configuration that is set, by the model.
    level_uw: u64,
}

impl Cpu {
    pub(super) fn new(model: CpuModel) -> Self {
        let level_uw = model.top().power_uw;
        Self {
            profiled: model.clone(),
            model,
            limits: Caps::default(),
            quota: Caps::default(),
            cores: Cores::default(),
            level_uw,
        }
    }

    pub(super) fn start(&mut self, start: &Start<'_>) {
        self.limits = Caps::find(Selection::of(Kind::LimitUw), start.capabilities);
        self.quota = Caps::find(Selection::of(Kind::QuotaPpm), start.capabilities);
        self.cores = Cores::find(start);
        self.restrict();
        self.level_uw = self.highest_uw();
    }

    fn restrict(&mut self) {
        let (quota, limit) = (!self.quota.is_empty(), !self.limits.is_empty());
        self.model = self.profiled.restrict(Settable { cores: self.cores.can(), quota, limit });
    }

    /// The knobs of the plant are others now.
    pub(super) fn replace(&mut self, now_ns: u64, capabilities: &Capabilities, out: &mut Vec<Command>) {
        self.limits.replace_knobs(capabilities);
        self.quota.replace_knobs(capabilities);
        self.restrict();
        self.set(now_ns, self.level_uw, out);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lowest_uw() == self.highest_uw()
    }

    pub(super) fn level_uw(&self) -> u64 {
        self.level_uw
    }

    pub(super) fn lowest_uw(&self) -> u64 {
        self.model.bottom().power_uw
    }

    /// Power above which nothing is limited: beyond the best configuration, that of the limits as they were found, but no more than a model
    /// that is wrong by 20 % makes necessary.
    pub(super) fn highest_uw(&self) -> u64 {
        let (top, found_uw) = (self.model.top(), self.limits.range().highest);
        top.power_uw + found_uw.saturating_sub(top.limit_uw).min(top.power_uw / 4)
    }

    /// Sets the configuration of a power; at the highest nothing is limited. Whether anything changes.
    pub(super) fn set(&mut self, now_ns: u64, level_uw: u64, out: &mut Vec<Command>) -> bool {
        self.level_uw = level_uw.clamp(self.lowest_uw(), self.highest_uw());
        if self.level_uw == self.highest_uw() {
            return self.lift(now_ns, out);
        }
        let row = self.model.configuration(self.level_uw);
        let beyond_uw = self.level_uw.saturating_sub(self.model.top().power_uw);
        let limits = self.limits.set(now_ns, row.limit_uw + beyond_uw, out);
        let quota = self.quota.set(now_ns, row.quota_ppm, out);
        self.cores.set(now_ns, row.cores.into()) | limits | quota
    }

    fn lift(&mut self, now_ns: u64, out: &mut Vec<Command>) -> bool {
        let limits = self.limits.lift(now_ns, out);
        let quota = self.quota.lift(now_ns, out);
        self.cores.set(now_ns, self.cores.all()) | limits | quota
    }

    /// Whether limits may be raised from now on.
    pub(super) fn allow_raises(&mut self, may_raise: bool) {
        self.limits.allow_raises(may_raise);
        self.quota.allow_raises(may_raise);
        self.cores.allow_raises(may_raise);
    }

    /// It is known to draw less than what is set: a lower level is as good, without a command.
    pub(super) fn lower_level(&mut self, level_uw: u64) {
        self.level_uw = level_uw.clamp(self.lowest_uw(), self.level_uw);
    }

    /// Most cores that may be used.
    pub(super) fn cores(&self) -> usize {
        self.cores.used()
    }

    pub(super) fn holds_ns(&self) -> u64 {
        self.limits.holds_ns().max(self.quota.holds_ns()).max(self.cores.holds_ns())
    }

    /// When a knob that is not as it was found can be set next.
    pub(super) fn lifts_ns(&self) -> Option<u64> {
        [self.limits.lifts_ns(), self.quota.lifts_ns()].into_iter().flatten().min()
    }

    pub(super) fn on_refused(&mut self, now_ns: u64, set: (KnobId, u64), refusal: Refusal) -> bool {
        let is_own = self.limits.on_refused(now_ns, set, refusal) || self.quota.on_refused(now_ns, set, refusal);
        if is_own && refusal != Refusal::Failed {
            self.restrict();
        }
        is_own
    }
}
