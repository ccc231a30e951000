//! Divides a change of power between CPU and drives (PASS, section 3.3 and Algorithm 1).

use pilotlight_plant::{Command, Component};

use super::ssd_model::Rate;
use super::trial::{Change, Trial};
use super::{Pass, rebalance};
use crate::budget::Domain;
use crate::budget::control::Thresholds;
use crate::budget::meter::Estimate;

/// Smallest difference of levels, in microwatts: an eighth of a watt, as RAPL's steps.
const STEP_UW: u64 = 125_000;
/// Gain expected of a raise, and bound of any gain (`polling-interval-rapl.csv`, and models that are wrong by 20 %).
const MAX_GAIN: f64 = 2.35 * 1.2;
const BOUNDS: f64 = 3.0;
/// A CPU that draws less than its configuration in the model by this factor is not limited by it; the model may be wrong by 20 %.
const UNLIMITED: f64 = 1.3;
/// Limit of such a CPU over the power that it draws.
const MARGIN: f64 = 1.1;

/// A change in which the power of drives changed by more than this times that of the rest shows no gain: their model may be wrong by 20 %, 40 % of
/// the rest then. (Chosen on the machines of `tests/pass.rs`; on two other sets of 336 it reduces late ones from 18 and 12 to 8 each.)
const UNCLEAR: f64 = 2.0;

/// Where the first cut of [`super::rebalance`] leads, in ranges of no action below the budget.
const BEYOND: f64 = 1.5;

impl Pass {
    /// Cuts or raises by an estimate.
    pub(super) fn follow(
        &mut self,
        now_ns: u64,
        (budget_uw, estimate): (u64, Estimate),
        is_new: bool,
        out: &mut Vec<Command>,
    ) {
        let limits = self.thresholds();
        let Some(power_uw) = limits.power_uw(budget_uw, estimate) else { return };
        let rates = self.bandwidth.rates();
        let drives_uw = if self.has_drives() { self.bandwidth.power_uw(&rates) } else { 0.0 };
        let settles_ns = self.since_ns.saturating_add(rebalance::SETTLES * self.parameters.common.interval_ns);
        if now_ns > settles_ns && self.trial.is_none() {
            self.rebalance.note(drives_uw, self.bandwidth.is_binding(), budget_uw as f64 * limits.no_action);
        }
        // Changes of the drives' power are no effect of the CPU's limits.
        let (drives_before_uw, other_before_uw) = self.before_change;
        let other_uw = power_uw - drives_uw - other_before_uw;
        if (drives_uw - drives_before_uw).abs() > UNCLEAR * other_uw.abs() {
            self.control.forget_change();
        }
        self.control.learn(&limits, budget_uw, self.cpu.level_uw(), power_uw - drives_uw);
        let change_uw = limits.change_uw(budget_uw, power_uw);
        self.unreachable_uw = self.unreachable_uw.filter(|_| change_uw < 0.0);
        let (cpu_uw, moved_uw) = (self.cpu.level_uw(), self.moved_uw);
        let change = if change_uw < 0.0 {
            self.control.note_over(&limits, now_ns, moved_uw);
            self.lower_idle_cpu();
            let is_high = limits.is_high(budget_uw, power_uw);
            self.cut(now_ns, (-change_uw, cpu_uw), is_high, rates, out)
        } else if change_uw > 0.0 && is_new {
            let next_uw = moved_uw.saturating_add(change_uw as u64);
            let next_uw = self.control.below_too_high(now_ns, moved_uw, next_uw, STEP_UW);
            self.raise(now_ns, (next_uw - moved_uw) as f64, rates, out)
        } else if change_uw == 0.0 && is_new && self.trial.is_none() {
            self.rebalance(now_ns, (budget_uw, power_uw), (rates, drives_uw), out)
        } else {
            return;
        };
        self.unreachable_uw = (change_uw < 0.0 && change.is_none()).then_some(power_uw as u64);
        let Some(change) = change else { return };
        self.moved_uw = self.moved_uw.saturating_add_signed(change_uw as i64);
        if self.cpu.level_uw() != cpu_uw {
            self.control.note_change(cpu_uw, self.cpu.level_uw(), power_uw - drives_uw);
        }
        self.before_change = (drives_uw, power_uw - drives_uw);
        self.bandwidth.apply(now_ns, out);
        self.note_change(now_ns);
        let samples_ns = self.holds_ns().saturating_add(self.bandwidth.shows_ns());
        self.trial = change.map(|(change, rates)| Trial::new(change, samples_ns, rates, power_uw - drives_uw));
    }

    /// Cuts power; `None` if nothing can be cut. Returns a trial, if one starts; `cpu_before_uw` is the CPU level that it may restore.
    fn cut(
        &mut self,
        now_ns: u64,
        (wanted_uw, cpu_before_uw): (f64, u64),
        is_high: bool,
        rates: Vec<Rate>,
        out: &mut Vec<Command>,
    ) -> Option<Option<(Change, Vec<Rate>)>> {
        let gain = self.control.gain(&self.thresholds());
        let cpu_uw = (self.cpu.level_uw() - self.cpu.lowest_uw()) as f64 * gain;
        let drives_uw = if self.has_drives() { self.bandwidth.available_uw(&rates) } else { 0.0 };
        if cpu_uw + drives_uw <= 0.0 {
            return None;
        }
        if is_high || cpu_uw == 0.0 || drives_uw == 0.0 {
            let of_cpu = cpu_uw / (cpu_uw + drives_uw);
            self.bandwidth.cut(wanted_uw * (1.0 - of_cpu), &rates);
            self.set_cpu_by(now_ns, -wanted_uw * of_cpu / gain, out);
            return Some(None);
        }
        self.set_cpu_by(now_ns, -wanted_uw / gain, out);
        Some(Some((Change::Cut { expected_uw: wanted_uw, cpu_before_uw }, rates)))
    }

    /// Allows more power; `None` if nothing is limited. Returns a trial, if one starts.
    fn raise(
        &mut self,
        now_ns: u64,
        wanted_uw: f64,
        rates: Vec<Rate>,
        out: &mut Vec<Command>,
    ) -> Option<Option<(Change, Vec<Rate>)>> {
        if wanted_uw <= 0.0 || self.is_full() {
            return None;
        }
        let used_uw = self.bandwidth.raise(wanted_uw, &rates);
        if used_uw <= 0.0 {
            self.set_cpu_by(now_ns, wanted_uw / self.control.gain_or(MAX_GAIN), out);
        }
        Some((used_uw > 0.0).then_some((Change::Raise { expected_uw: wanted_uw }, rates)))
    }

    /// Cuts the CPU for drives that caps limit; `None` if it does not. Returns a trial.
    fn rebalance(
        &mut self,
        now_ns: u64,
        (budget_uw, power_uw): (u64, f64),
        (rates, drives_uw): (Vec<Rate>, f64),
        out: &mut Vec<Command>,
    ) -> Option<Option<(Change, Vec<Rate>)>> {
        let may_begin = self.parameters.own.rebalances && self.rebalance.has_trials();
        if !may_begin || !self.has_drives() || !self.bandwidth.is_binding() {
            return None;
        }
        let (limits, cpu_before_uw) = (self.thresholds(), self.cpu.level_uw());
        self.lower_idle_cpu();
        let gain = self.control.gain(&limits);
        let cpu_uw = (self.cpu.level_uw() - self.cpu.lowest_uw()) as f64 * gain;
        let first_uw = power_uw - budget_uw as f64 * (1.0 - limits.no_action * BEYOND);
        let Some(cut_uw) = self.rebalance.next_uw(cpu_uw, drives_uw, first_uw) else {
            self.rebalance.end();
            self.cpu.set(now_ns, cpu_before_uw, out);
            return None;
        };
        self.moved_uw = self.moved_uw.saturating_sub(cut_uw as u64);
        self.set_cpu_by(now_ns, -cut_uw / gain, out);
        Some(Some((Change::Rebalance { expected_uw: cut_uw, cpu_before_uw }, rates)))
    }

    /// Lowers the level of a CPU that draws less than its configuration to the measured power.
    fn lower_idle_cpu(&mut self) {
        let packages = if self.parameters.common.domain == Domain::Cpu { &self.meter } else { &self.packages };
        let Some(Estimate { power_uw: draws_uw, .. }) = packages.estimate() else { return };
        let level_uw = self.cpu.level_uw();
        let is_lifted = level_uw == self.cpu.highest_uw();
        let (least, margin) = if is_lifted { (1.0, 1.0) } else { (UNLIMITED, MARGIN) };
        if draws_uw * least < level_uw as f64 {
            self.cpu.lower_level((draws_uw * margin) as u64);
            self.control.forget_change();
        }
    }

    fn set_cpu_by(&mut self, now_ns: u64, change_uw: f64, out: &mut Vec<Command>) {
        let level_uw = self.cpu.level_uw() as f64 + change_uw;
        self.cpu.set(now_ns, level_uw.max(0.0) as u64, out);
    }

    /// Ends a trial with all samples (Algorithm 1, lines 7 to 12).
    pub(super) fn end_trial(&mut self, now_ns: u64, out: &mut Vec<Command>) {
        let Some(trial) = self.trial.take() else { return };
        let rates = self.bandwidth.rates();
        let lost_uw = self.bandwidth.power_uw(trial.rates()) - self.bandwidth.power_uw(&rates);
        let before = out.len();
        match trial.change() {
            Change::Cut { expected_uw, cpu_before_uw } if expected_uw < lost_uw => {
                self.found = Some(Component::Cpu);
                // The CPU is the bottleneck: `k` of section 3.3 restores the lost bandwidth except for the power to be saved.
                self.bandwidth.cut(expected_uw, trial.rates());
                self.cpu.set(now_ns, cpu_before_uw, out);
                self.control.forget_change();
            }
            Change::Rebalance { expected_uw, cpu_before_uw } if expected_uw < lost_uw => {
                self.found = Some(Component::Cpu);
                self.rebalance.end();
                self.moved_uw = self.moved_uw.saturating_add(expected_uw as u64);
                self.cpu.set(now_ns, cpu_before_uw, out);
                self.control.forget_change();
            }
            Change::Cut { .. } | Change::Rebalance { .. } => self.found = Some(Component::Drives),
            Change::Raise { expected_uw } => {
                let unused_uw = expected_uw + lost_uw.min(0.0);
                if unused_uw > expected_uw / 4.0 {
                    self.found = Some(Component::Cpu);
                    let cpu_uw = self.cpu.level_uw();
                    self.set_cpu_by(now_ns, unused_uw / self.control.gain_or(MAX_GAIN), out);
                    self.control.note_change(cpu_uw, self.cpu.level_uw(), trial.other_uw());
                }
            }
        }
        self.bandwidth.apply(now_ns, out);
        if out.len() > before {
            self.note_change(now_ns);
        }
    }

    fn thresholds(&self) -> Thresholds {
        Thresholds { raise_gain: Some(MAX_GAIN), bounds: BOUNDS, ..self.parameters.common.thresholds(1.0) }
    }
}
