//! The CPU's part of a budget: the configuration of the model for a power, set with the knobs of the plant.
//!
//! **Main core.** A configuration of the model covers all polling cores. The plant's quota covers the workers: the main core, which has none,
//! counts as a whole core in it.

use pilotlight_plant::{Capabilities, Command, Kind, KnobId, Refusal, Start};

use super::cpu_model::{CpuModel, Settable};
use crate::budget::actuator::Cores;
use crate::budget::caps::{Caps, Selection};

/// Millionths of a core in a whole one.
const CORE_PPM: u64 = 1_000_000;

/// The mechanisms and their state.
#[derive(Debug)]
pub(crate) struct Cpu {
    profiled: CpuModel,
    /// Use one more whole core instead of throttled cores.
    whole_cores: bool,
    /// Restricted to the knobs of this plant.
    model: CpuModel,
    limits: Caps,
    quota: Caps,
    cores: Cores,
    polling_cores: u64,
    /// Power of the configuration that is set, by the model.
    level_uw: u64,
}

impl Cpu {
    pub(crate) fn new(model: CpuModel, whole_cores: bool) -> Self {
        let level_uw = model.top().power_uw;
        Self {
            profiled: model.clone(),
            whole_cores,
            model,
            limits: Caps::default(),
            quota: Caps::default(),
            cores: Cores::default(),
            polling_cores: 0,
            level_uw,
        }
    }

    /// Finds the knobs of a plant, with this period of the CPU quota; whether the plant supports the period.
    pub(crate) fn start(&mut self, start: &Start<'_>, period_ns: Option<u64>) -> bool {
        self.limits = Caps::find(Selection::of(Kind::LimitUw), start.capabilities);
        self.quota = Caps::find(Selection::quota(period_ns), start.capabilities);
        self.cores = Cores::find(start);
        self.polling_cores = start.topology.len() as u64;
        self.restrict();
        self.level_uw = self.highest_uw();
        !self.quota.lacks_period()
    }

    fn restrict(&mut self) {
        let range = Some(self.quota.range()).filter(|_| !self.quota.is_empty());
        let least_quota_ppm = range.map(|range| range.lowest + self.without_quota_ppm());
        let limit = !self.limits.is_empty();
        self.model = self.profiled.restrict(Settable { cores: self.cores.is_limitable(), least_quota_ppm, limit });
        self.level_uw = self.level_uw.clamp(self.lowest_uw(), self.highest_uw());
    }

    /// CPU time of the main core, unless it is in the plant's quota.
    fn without_quota_ppm(&self) -> u64 {
        (self.polling_cores * CORE_PPM).saturating_sub(self.quota.range().highest).min(CORE_PPM)
    }

    /// The knobs of the plant have changed.
    pub(crate) fn replace(&mut self, now_ns: u64, capabilities: &Capabilities, out: &mut Vec<Command>) {
        self.limits.replace_knobs(capabilities);
        self.quota.replace_knobs(capabilities);
        self.restrict();
        self.set(now_ns, self.level_uw, out);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lowest_uw() == self.highest_uw()
    }

    pub(crate) fn level_uw(&self) -> u64 {
        self.level_uw
    }

    pub(crate) fn lowest_uw(&self) -> u64 {
        self.model.bottom().power_uw
    }

    /// Power above which nothing is limited: that of the best configuration plus the distance to the initial limits, at most a quarter, as
    /// the model may be wrong by 20 %.
    pub(crate) fn highest_uw(&self) -> u64 {
        let (top, found_uw) = (self.model.top(), self.limits.range().highest);
        top.power_uw + found_uw.saturating_sub(top.limit_uw).min(top.power_uw / 4)
    }

    /// Sets the configuration of a power; the highest limits nothing. Whether anything changes.
    pub(crate) fn set(&mut self, now_ns: u64, level_uw: u64, out: &mut Vec<Command>) -> bool {
        self.level_uw = level_uw.clamp(self.lowest_uw(), self.highest_uw());
        if self.level_uw == self.highest_uw() {
            return self.lift(now_ns, out);
        }
        let row = if self.whole_cores {
            self.model.in_whole_cores(self.level_uw)
        } else {
            self.model.configuration(self.level_uw)
        };
        let beyond_uw = self.level_uw.saturating_sub(self.model.top().power_uw);
        let limits = self.limits.set(now_ns, row.limit_uw + beyond_uw, out);
        let quota = self.quota.set(now_ns, row.quota_ppm.saturating_sub(self.without_quota_ppm()), out);
        self.cores.set(now_ns, row.cores.into()) | limits | quota
    }

    fn lift(&mut self, now_ns: u64, out: &mut Vec<Command>) -> bool {
        let limits = self.limits.lift(now_ns, out);
        let quota = self.quota.lift(now_ns, out);
        self.cores.set(now_ns, self.cores.all()) | limits | quota
    }

    /// Sets whether limits may be raised.
    pub(crate) fn allow_raises(&mut self, may_raise: bool) {
        self.limits.allow_raises(may_raise);
        self.quota.allow_raises(may_raise);
        self.cores.allow_raises(may_raise);
    }

    /// Lowers the level without a command, when the CPU draws less than it.
    pub(super) fn lower_level(&mut self, level_uw: u64) {
        self.level_uw = level_uw.clamp(self.lowest_uw(), self.level_uw);
    }

    /// The power limit of all packages, if one is set.
    pub(crate) fn limit_uw(&self) -> Option<f64> {
        let limit_uw = self.limits.level();
        (limit_uw < self.limits.range().highest).then_some(limit_uw as f64)
    }

    /// CPU time that the plant's quota allows, in cores, and whether it covers the main core; `None` without one.
    pub(crate) fn quota(&self) -> Option<(f64, bool)> {
        let set = self.quota.level();
        let has_main = self.without_quota_ppm() == 0;
        (set < self.quota.range().highest).then_some((set as f64 / CORE_PPM as f64, has_main))
    }

    /// Most cores that may be used.
    pub(crate) fn cores(&self) -> usize {
        self.cores.used()
    }

    pub(crate) fn holds_ns(&self) -> u64 {
        self.limits.holds_ns().max(self.quota.holds_ns()).max(self.cores.holds_ns())
    }

    /// When a knob without its initial value can be set next.
    pub(crate) fn lifts_ns(&self) -> Option<u64> {
        [self.limits.lifts_ns(), self.quota.lifts_ns()].into_iter().flatten().min()
    }

    pub(crate) fn on_refused(&mut self, now_ns: u64, set: (KnobId, u64), refusal: Refusal) -> bool {
        let is_own = self.limits.on_refused(now_ns, set, refusal) || self.quota.on_refused(now_ns, set, refusal);
        if is_own && refusal != Refusal::Failed {
            self.restrict();
        }
        is_own
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::{
        CoreId, CoreSample, CoreState, Cost, Depth, Goals, Knob, Scope, SleepCost, Topology, Values,
    };

    use super::super::cpu_model::CpuRow;
    use super::*;

    /// Four cores of which one to four poll at full speed, 10 W each; the quota covers `in_quota` of them.
    fn cpu(in_quota: u64) -> Cpu {
        cpu_of(in_quota, true)
    }

    /// The same, where I/O threads can be moved or not.
    fn cpu_of(in_quota: u64, moves: bool) -> Cpu {
        let row = |cores: u16| CpuRow {
            power_uw: u64::from(cores) * 10_000_000,
            cores,
            quota_ppm: u64::from(cores) * CORE_PPM,
            limit_uw: 0,
            p99_interval: 4.0 / f64::from(cores),
        };
        let mut cpu = Cpu::new(CpuModel::new((1..=4).map(row).collect()).unwrap(), false);
        let quota = Knob {
            scope: Scope::Server,
            kind: Kind::QuotaPpm,
            values: Values::Range { min: 10_000, max: in_quota * CORE_PPM, step: 1_000 },
            initial: in_quota * CORE_PPM,
            caller: Cost::Measured(0),
            effect: Cost::Measured(0),
        };
        let sleep = SleepCost { depth: Depth::SoftwareWait, waker: Cost::Measured(0), wake: Cost::Measured(0) };
        let moves = moves.then_some(Cost::Measured(0));
        let capabilities = Capabilities { knobs: vec![quota], moves, sleeps: vec![sleep], ..Capabilities::default() };
        let start = Start {
            now_ns: 0,
            topology: &Topology::flat(4).unwrap(),
            capabilities: &capabilities,
            cores: &[CoreSample::new(CoreState::Awake); 4],
            homes: &[CoreId(0)],
            goals: &Goals::default(),
        };
        assert!(cpu.start(&start, None));
        cpu
    }

    /// Cores, and the quota if one is set.
    fn at(cpu: &mut Cpu, level_w: f64) -> (usize, Option<u64>) {
        let mut out = Vec::new();
        cpu.set(0, (level_w * 1e6) as u64, &mut out);
        let quota = out.iter().find_map(|command| match command {
            Command::Set { value, .. } => Some(*value),
            _ => None,
        });
        (cpu.cores(), quota)
    }

    #[test]
    fn a_quota_of_the_workers_leaves_the_main_core_its_time_and_no_core_is_missing() {
        let mut cpu = cpu(3);
        assert_eq!(at(&mut cpu, 25.0), (3, Some(1_500_000)), "a whole main core and two halves of workers");
        assert_eq!(at(&mut cpu, 20.0), (2, Some(1_000_000)));
        assert_eq!(at(&mut cpu, 0.0), (1, Some(10_000)), "the lowest quota");
        assert_eq!(cpu.lowest_uw(), 10_000_000);
        assert_eq!(at(&mut cpu, 40.0), (4, Some(3_000_000)), "nothing is limited");
    }

    #[test]
    fn an_unsupported_knob_raises_the_lowest_level() {
        let mut cpu = cpu_of(4, false);
        assert_eq!(at(&mut cpu, 15.0), (usize::MAX, Some(1_500_000)));
        assert!(cpu.on_refused(0, (KnobId(0), 1_500_000), Refusal::Unsupported));
        assert_eq!((cpu.lowest_uw(), cpu.level_uw()), (40_000_000, 40_000_000), "only the quota could be set");
        cpu.lower_level(10_000_000);
        assert_eq!(cpu.level_uw(), 40_000_000);
    }

    #[test]
    fn a_quota_of_all_cores_is_that_of_the_model() {
        assert_eq!(at(&mut cpu(4), 25.0), (3, Some(2_500_000)));
    }
}
