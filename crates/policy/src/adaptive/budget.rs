//! The budget as a wall: limits that the budget carries even if everything that they allow is drawn.
//!
//! *Problem.* A controller that follows the power drawn raises its limits in a valley; the next burst then draws more than the budget until that
//! is measured, decided and set, which takes seconds (PASS, section 3.3).
//!
//! *Terms.* The *draw* of CPU or drives is what they take, their *allowance* the most that they can take within their limits. The *rest* is the
//! server's power without both: `rest = power - slope x CPU - drives`, where the *slope* is what a watt of the CPU costs the server (fans, voltage
//! regulators, memory). All of one window of the server's sensor, as it is late.
//!
//! *Rule.* At each reading, `slope x CPU allowance + drives' allowance <= budget - rest`, with the highest rest of a minute. Each gets its *demand*,
//! its highest draw, which fades within minutes, and more if its limit binds; both get half of what is left, and if demands exceed the budget both
//! give way alike. So power that one does not use goes to the other, and whatever both draw then is within the budget.
//!
//! *Mechanisms.* CPU configurations and drives of a profile (PASS, section 3.2), if one is given. Else the power limits of the packages, whose
//! values are watts, or without them the number of cores and the CPU quota; and drives as PASS's.
//!
//! *Faults.* Without a new reading nothing is raised; once the last one that can be used is older than `stale_after`, the CPU gets its lowest configuration.
//!
//! *Properties* (tests). After the first bursts of a size a burst stays within the budget, after a valley of any length too; a load within it is not
//! limited; at a constant load commands end; a budget that is removed lifts every limit; without readings nothing is raised.

mod division;
mod draws;
mod model;
mod one_more;
#[cfg(test)]
mod tests;
mod view;

use std::collections::VecDeque;

use pilotlight_plant::{
    Capabilities, Command, Component, Goal, Goals, KnobId, ReadingId, Refusal, Sample, Start, Unreachable,
};

use self::division::{Response, User, divide};
use self::draws::Draws;
use self::model::{built_in, namespaces, of_cores, of_limits};
use self::one_more::OneMore;
use super::parameters::Parameters;
use crate::budget::Domain;
use crate::budget::meter::Meter;
use crate::pass::bandwidth::Bandwidth;
use crate::pass::cpu::Cpu;
use crate::pass::profile::Profile;
use crate::pass::ssd_model::SsdModel;
use crate::schedule::Schedule;

/// The allowances aim at the middle of PASS's range of no action, from 1 % below the budget on (section 3.3).
const NO_ACTION: f64 = 0.01;
/// Part of the budget by which an allowance must differ from the divided one, to be changed although their sum is right; chosen.
const SHIFT: f64 = 0.03;
/// By which an allowance that binds must grow to be changed although the sum is right.
const WANTED: f64 = 1.02;
/// By which the CPU's allowance exceeds its draw at least.
const KEPT: f64 = 1.01;
/// By which the drives' demand and allowance exceed their draw, a mean of 100 ms: a share of it, and one of their most.
const BURSTY: (f64, f64) = (1.1, 0.05);
/// Change of the power of a byte from which on caps are set again.
const PRICE: f64 = 0.05;
/// By which demands of CPU and drives exceed allowances that bind: most of a CPU's power is drawn without requests too.
const MORE: (f64, f64) = (1.1, 2.0);
/// Load from which on the busiest of all allowed cores is limited, or all workers together of what the CPU quota leaves them beside the main core.
const FULL: f64 = 0.9;
/// Part of the power limit from which on the CPU is slowed down by it: what more cores draw the others do not; chosen.
const HOLDS: f64 = 0.97;
/// Draw by the allowance above which a core was one too many; chosen: what a sample of 100 ms may be wrong by.
const EXACT: f64 = 1.02;
/// CPU time of the workers that always counts as some.
const LEAST: f64 = 0.01;
/// Time in which a demand that is no more fades to a third.
const FADES_NS: f64 = 60e9;
/// Time over which the highest rest counts: what a burst adds besides CPU and the model of drives is kept for the next.
const RESTS_NS: u64 = 60_000_000_000;
/// Part of an excess that was fed back and is forgotten at a reading.
const FORGETS: f64 = 0.02;
/// Draw of a CPU at its limit by that of the configuration in the model (which may be wrong by 20 %; it is of another program).
const EXCESS: (f64, f64) = (0.5, 3.0);

/// Machines of which no profile is given, with power limits and without.
const OF_LIMITS: &str = "power limits of the packages";
const OF_CORES: &str = "number of cores and CPU quota";

/// The load of the cores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// That of the busiest, and of all but the main core together.
    pub(super) busiest: f64,
    pub(super) workers: f64,
    /// CPU time that the main core takes: all of it if it polls.
    pub(super) main: f64,
    /// Cores in use, and the most that may be.
    pub(super) used: usize,
    pub(super) most: usize,
}

/// Holds the budget.
#[derive(Debug)]
pub(super) struct Wall {
    domain: Domain,
    profile: Option<Profile>,
    /// What it rests on: the profile given, or the knobs of this machine.
    model: &'static str,
    budget_uw: Option<u64>,
    goals: Goals,
    capabilities: Capabilities,
    /// The power of the domain, and of the packages if that is the server's.
    meter: Meter,
    packages: Meter,
    cpu: Cpu,
    bandwidth: Bandwidth,
    draws: Draws,
    response: Response,
    /// Ends of windows, and the power of the server, of the CPU, and of the drives by their model.
    readings: VecDeque<(u64, [f64; 3])>,
    /// Power over the budget that nothing of this explains.
    unexplained_uw: f64,
    /// Demands of CPU and drives, and when they were last lowered.
    demands_uw: [f64; 2],
    faded_ns: u64,
    /// The present draws with a margin, if they are within the budget.
    kept_uw: [f64; 2],
    /// What the drives may draw beyond idle.
    drives_uw: f64,
    /// Power of a byte a second for which the caps were set.
    price: f64,
    /// By which the CPU's draw at its limit exceeds the model's.
    excess: f64,
    /// Since when the CPU is at its limit.
    busy_since_ns: Option<u64>,
    /// Cores that the CPU's allowance carries.
    carried: usize,
    one_more: OneMore,
    /// Whether what was drawn has met the budget or a limit for it, since it was set.
    is_met: bool,
    schedule: Schedule,
    stale_after_ns: u64,
    due_ns: u64,
    /// Start of the budget, and end of the last reading that could be used.
    since_ns: u64,
    read_ns: u64,
    is_stale: bool,
    unreachable_uw: Option<u64>,
    binding: Option<Component>,
}

impl Wall {
    pub(super) fn new(parameters: &Parameters) -> Self {
        let profile = parameters.profile.clone();
        let of_machine = profile.clone().unwrap_or_else(built_in);
        Self {
            domain: parameters.domain,
            model: "profile",
            cpu: Cpu::new(of_machine.cpu.clone(), true),
            bandwidth: Bandwidth::new(of_machine.ssd),
            profile,
            budget_uw: None,
            goals: Goals::default(),
            capabilities: Capabilities::default(),
            meter: Meter::default(),
            packages: Meter::default(),
            draws: Draws::default(),
            response: Response::default(),
            unexplained_uw: 0.0,
            readings: VecDeque::new(),
            demands_uw: [0.0; 2],
            faded_ns: 0,
            kept_uw: [0.0; 2],
            drives_uw: f64::INFINITY,
            price: 0.0,
            excess: 1.0,
            busy_since_ns: None,
            carried: usize::MAX,
            one_more: OneMore::default(),
            is_met: false,
            schedule: Schedule { start_ns: 0, period_ns: parameters.sample_ns },
            stale_after_ns: parameters.stale_after_ns,
            due_ns: 0,
            since_ns: 0,
            read_ns: 0,
            is_stale: false,
            unreachable_uw: None,
            binding: None,
        }
    }

    pub(super) fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) {
        self.capabilities = start.capabilities.clone();
        if self.profile.is_none() {
            let cores = start.topology.len();
            let limits = of_limits(start.capabilities, cores);
            self.model = if limits.is_some() { OF_LIMITS } else { OF_CORES };
            self.cpu = Cpu::new(limits.unwrap_or_else(|| of_cores(cores)), true);
            self.bandwidth = Bandwidth::new(SsdModel { drives: namespaces(start.capabilities), ..built_in().ssd });
        }
        self.cpu.start(start, None);
        if self.domain == Domain::Server {
            self.bandwidth.start(start.capabilities, start.goals);
        }
        self.find_meters();
        self.schedule.start_ns = start.now_ns;
        self.on_goals(start.now_ns, start.goals, out);
    }

    fn find_meters(&mut self) {
        self.meter.replace_sources(Meter::find(self.domain, &self.capabilities).unwrap_or_default());
        let packages = Meter::find(Domain::Cpu, &self.capabilities).filter(|_| self.domain == Domain::Server);
        self.packages.replace_sources(packages.unwrap_or_default());
    }

    pub(super) fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    pub(super) fn is_active(&self) -> bool {
        self.budget_uw.is_some()
    }

    /// Whether a limit is set for the budget.
    pub(super) fn is_limiting(&self) -> bool {
        self.is_active() && !self.is_full()
    }

    /// Whether it has met what is drawn, so that cores that poll without work would slow down those that have some.
    pub(super) fn is_met(&self) -> bool {
        self.is_active() && self.is_met
    }

    /// The next time at which it samples.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let lifts_ns = [self.cpu.lifts_ns(), self.bandwidth.lifts_ns()].into_iter().flatten().min();
        if self.is_active() { Some(self.due_ns) } else { lifts_ns }
    }

    /// Most cores that may be in use.
    pub(super) fn cores(&self) -> usize {
        self.cpu.cores().min(self.carried)
    }

    /// Cores that the CPU's allowance carries, if all that are not in use add alike to its draw, up to its highest: more would be slowed down, and
    /// draw more than the allowance until the power limit has slowed them down.
    fn carried(&self, used: usize, all: usize) -> usize {
        let Some(cpu_uw) = self.draws.last_cpu_uw().filter(|_| self.is_limiting()) else {
            return usize::MAX;
        };
        let core_uw = (self.cpu.highest_uw() as f64 * self.excess - cpu_uw) / (all - used).max(1) as f64;
        let more = (self.cpu_allowance_uw() - cpu_uw) / core_uw;
        if core_uw > 0.0 { used + more.max(0.0) as usize } else { usize::MAX }
    }

    pub(super) fn unreachable(&self) -> Option<Unreachable> {
        self.unreachable_uw.map(|reached| Unreachable { goal: Goal::Budget, reached })
    }

    /// What limits throughput, if one of both does.
    pub(super) fn binding(&self) -> Option<Component> {
        self.binding.filter(|_| self.is_limiting())
    }

    pub(super) fn readings(&self) -> Vec<ReadingId> {
        if !self.is_active() {
            return Vec::new();
        }
        let mut ids = self.meter.ids().to_vec();
        ids.extend(self.packages.ids());
        if !self.bandwidth.is_empty() {
            ids.extend(Bandwidth::readings(&self.capabilities));
        }
        ids
    }

    /// Takes other goals; knobs are lowered at once.
    pub(super) fn on_goals(&mut self, now_ns: u64, goals: &Goals, out: &mut Vec<Command>) {
        let before = std::mem::replace(&mut self.goals, goals.clone());
        if before.priorities != goals.priorities || before.minimums != goals.minimums {
            self.replace_caps(now_ns, out);
        }
        let had = std::mem::replace(&mut self.budget_uw, goals.budget_uw);
        if had == self.budget_uw {
            return;
        }
        (self.unreachable_uw, self.is_met) = (None, false);
        match (had, self.budget_uw) {
            (_, None) => self.lift(now_ns, out),
            (None, Some(budget_uw)) => {
                self.forget(now_ns);
                self.allow_raises(false);
                // Without a profile nothing is known before the first reading: a limit that is too low could stop a loaded server.
                if self.domain == Domain::Cpu {
                    self.apply(now_ns, budget_uw, 0.0, out);
                } else if let Some(profile) = &self.profile {
                    self.apply(now_ns, budget_uw, profile.others_uw as f64 + self.bandwidth.idle_uw(), out);
                }
            }
            (Some(_), Some(budget_uw)) => {
                self.one_more.clear();
                self.allow_raises(false);
                if let Some(rest_uw) = self.rest_uw() {
                    self.apply(now_ns, budget_uw, rest_uw, out);
                }
            }
        }
    }

    /// Forgets what was drawn: that of cores that poll says nothing about others.
    pub(super) fn forget(&mut self, now_ns: u64) {
        (self.since_ns, self.read_ns, self.is_stale) = (now_ns, now_ns, false);
        self.due_ns = now_ns;
        (self.carried, self.unexplained_uw, self.busy_since_ns) = (usize::MAX, 0.0, None);
        (self.response, self.excess) = (Response::default(), 1.0);
        self.one_more.clear();
        self.meter.reset();
        self.packages.reset();
        self.bandwidth.forget();
        self.draws.clear();
        self.readings.clear();
        (self.demands_uw, self.kept_uw) = ([0.0; 2], [0.0; 2]);
    }

    fn rest_uw(&self) -> Option<f64> {
        let rests = self.readings.iter().map(|(_, reading)| self.response.rest_uw(*reading).max(0.0));
        let rest_uw = if self.domain == Domain::Cpu { Some(0.0) } else { rests.max_by(f64::total_cmp) };
        rest_uw.map(|uw| uw + self.unexplained_uw)
    }

    fn allow_raises(&mut self, may_raise: bool) {
        self.cpu.allow_raises(may_raise);
        self.bandwidth.allow_raises(may_raise);
    }

    fn lift(&mut self, now_ns: u64, out: &mut Vec<Command>) {
        self.allow_raises(true);
        self.carried = usize::MAX;
        self.bandwidth.lift();
        self.drives_uw = f64::INFINITY;
        self.cpu.set(now_ns, u64::MAX, out);
        self.bandwidth.apply(now_ns, out);
    }

    pub(super) fn on_plant(&mut self, now_ns: u64, capabilities: &Capabilities, out: &mut Vec<Command>) {
        self.capabilities = capabilities.clone();
        self.find_meters();
        self.one_more.clear();
        self.allow_raises(false);
        if self.profile.is_none() {
            self.bandwidth.set_drives(namespaces(capabilities));
        }
        self.replace_caps(now_ns, out);
        self.cpu.replace(now_ns, capabilities, out);
        self.due_ns = now_ns;
    }

    /// Namespaces, hosts or priorities have changed: the same allowance for others.
    fn replace_caps(&mut self, now_ns: u64, out: &mut Vec<Command>) {
        self.bandwidth.replace(&self.capabilities, &self.goals);
        if self.is_active() {
            self.bandwidth.allow(self.drives_uw / self.response.slopes.1);
            self.price = 0.0;
        }
        self.bandwidth.apply(now_ns, out);
    }

    /// Whether the refused knob is one of these.
    pub(super) fn on_refused(&mut self, now_ns: u64, set: (KnobId, u64), refusal: Refusal) -> bool {
        self.cpu.on_refused(now_ns, set, refusal) || self.bandwidth.on_refused(now_ns, set, refusal)
    }

    /// An interval has ended, at or after [`Wall::due_ns`].
    pub(super) fn on_sample(&mut self, sample: &Sample<'_>, load: Load, out: &mut Vec<Command>) {
        let now_ns = sample.now_ns;
        let Some(budget_uw) = self.budget_uw else { return self.lift(now_ns, out) };
        self.due_ns = self.schedule.after(now_ns);
        self.bandwidth.record(sample);
        self.note_draws(sample);
        let known = self.carried(load.used, sample.cores.len());
        let most_uw = EXACT * self.cpu_allowance_uw();
        let draws_too_much = self.draws.last_cpu_uw().is_some_and(|cpu_uw| cpu_uw > most_uw);
        self.carried = self.one_more.carried(now_ns, known, load.used, draws_too_much);
        let before_ns = self.meter.ended_ns();
        self.meter.read(sample);
        let is_new = self.meter.ended_ns() != before_ns;
        if is_new {
            self.allow_raises(true);
            if self.follow(now_ns, budget_uw, load, out) {
                self.read_ns = self.meter.ended_ns().unwrap_or(now_ns).max(self.since_ns);
            }
            self.allow_raises(false);
        }
        self.is_stale = now_ns.saturating_sub(self.read_ns) > self.stale_after_ns;
        if self.is_stale {
            self.cpu.set(now_ns, self.cpu.lowest_uw(), out);
        }
    }

    fn note_draws(&mut self, sample: &Sample<'_>) {
        let meter = if self.domain == Domain::Cpu { &self.meter } else { &self.packages };
        let cpu = meter.sum(sample).map(|(ended_ns, uw)| (ended_ns, uw as f64));
        let drives_uw = self.bandwidth.power_uw(&self.bandwidth.last_rates());
        self.draws.push(sample.now_ns, cpu, drives_uw, self.meter.window_ns());
    }

    /// Mean draws over the last window of the server's sensor; `None` if they were not sampled for all of it.
    fn mean_draws(&self) -> Option<(Option<f64>, f64)> {
        self.draws.mean(self.meter.ended_ns()?, self.meter.window_ns(), self.schedule.period_ns)
    }

    /// The CPU's allowance.
    fn cpu_allowance_uw(&self) -> f64 {
        self.cpu.level_uw() as f64 * self.excess
    }

    /// Follows a new reading; whether it could be used.
    fn follow(&mut self, now_ns: u64, budget_uw: u64, load: Load, out: &mut Vec<Command>) -> bool {
        let Some((power_uw, _)) = self.meter.last(now_ns) else { return false };
        let Some((measured_uw, drives_uw)) = self.mean_draws() else { return false };
        let (power_uw, ended_ns) = (power_uw as f64, self.meter.ended_ns().unwrap_or(now_ns));
        let began_ns = ended_ns.saturating_sub(self.meter.window_ns());
        let is_whole = began_ns >= self.cpu.holds_ns().max(self.bandwidth.holds_ns());
        let is_limited = self.cpu.level_uw() < self.cpu.highest_uw();
        let for_workers = |(cores, has_main)| if has_main { f64::max(cores - load.main, LEAST) } else { cores };
        let is_full =
            load.busiest >= FULL || self.cpu.quota().map(for_workers).is_some_and(|cores| load.workers >= FULL * cores);
        let is_busy = is_limited && load.used >= load.most && is_full;
        let is_over = power_uw > budget_uw as f64;
        self.busy_since_ns = is_busy.then(|| self.busy_since_ns.unwrap_or(now_ns));
        let was_busy = self.busy_since_ns.is_some_and(|since_ns| began_ns >= since_ns);
        let holds = measured_uw.zip(self.cpu.limit_uw()).is_some_and(|(cpu_uw, limit_uw)| cpu_uw >= HOLDS * limit_uw);
        self.is_met |= is_over || is_limited && holds;
        self.one_more.follow((now_ns, began_ns), load.used, was_busy && is_whole && holds && !is_over);
        // Without a reading of the CPU's power it is known only where its limit is.
        let known_uw = measured_uw.or_else(|| (is_whole && (was_busy || is_over)).then(|| self.cpu_allowance_uw()));
        if let Some(cpu_uw) = known_uw {
            if is_whole && measured_uw.is_some() && (was_busy || cpu_uw > self.cpu_allowance_uw()) {
                self.excess = (cpu_uw / self.cpu.level_uw().max(1) as f64).clamp(EXCESS.0, EXCESS.1);
            }
            while self.readings.front().is_some_and(|(before_ns, _)| before_ns + RESTS_NS < ended_ns) {
                self.readings.pop_front();
            }
            self.readings.push_back((ended_ns, [power_uw, cpu_uw, drives_uw]));
            self.response.update([power_uw, cpu_uw, drives_uw]);
        }
        let cpu_uw = known_uw.unwrap_or(0.0);
        // Whatever the models do not know, such as a knob that was refused.
        self.unexplained_uw *= 1.0 - FORGETS;
        if is_whole && is_over && self.is_within(budget_uw) {
            self.unexplained_uw += power_uw - budget_uw as f64 * (1.0 - NO_ACTION / 2.0);
        }
        let (cpu_binds, drives_bind) = (is_busy, self.bandwidth.is_binding());
        self.binding = match (cpu_binds, drives_bind) {
            (_, true) => Some(Component::Drives),
            (true, false) => Some(Component::Cpu),
            (false, false) => None,
        };
        self.is_met |= self.binding.is_some();
        let fades = (-((now_ns - self.faded_ns) as f64) / FADES_NS).exp();
        self.faded_ns = now_ns;
        let bursty_uw = drives_uw * BURSTY.0 + self.drives().most_uw / self.response.slopes.1 * BURSTY.1;
        let drives_allowance_uw = self.drives_uw.min(self.drives().most_uw) / self.response.slopes.1;
        let cpu_allowance_uw = self.cpu_allowance_uw();
        let [cpu, drives] = &mut self.demands_uw;
        *cpu = cpu_uw.max(*cpu * fades);
        *drives = bursty_uw.max(*drives * fades);
        if cpu_binds {
            *cpu = cpu.max(cpu_allowance_uw * MORE.0);
        }
        if drives_bind {
            *drives = drives.max(drives_allowance_uw * MORE.1);
        }
        // What is drawn within the budget is allowed, whatever a burst added.
        let kept_uw = [(cpu_uw * KEPT).min(cpu_allowance_uw), bursty_uw.min(drives_allowance_uw)];
        self.kept_uw = if is_over { [0.0; 2] } else { kept_uw };
        let Some(rest_uw) = self.rest_uw() else { return true };
        let has_effect = self.apply(now_ns, budget_uw, rest_uw, out);
        let drives = self.drives();
        let is_lowest =
            self.cpu.level_uw() == self.cpu.lowest_uw() && self.drives_uw.min(drives.most_uw) <= drives.least_uw;
        self.unreachable_uw = (is_over && is_lowest && !has_effect && is_whole).then_some(power_uw as u64);
        true
    }

    /// Whether the allowances and the rest are within the budget.
    fn is_within(&self, budget_uw: u64) -> bool {
        let allowed_uw = self.cpu_allowance_uw() * self.slope() + self.drives_uw.min(self.drives().most_uw);
        self.rest_uw().is_some_and(|rest_uw| rest_uw + allowed_uw <= budget_uw as f64)
    }

    /// What a watt of the CPU costs the domain.
    fn slope(&self) -> f64 {
        // The most of all else, of a profile, includes what the CPU adds there.
        if self.domain == Domain::Cpu || self.readings.is_empty() { 1.0 } else { self.response.slopes.0 }
    }

    /// The drives' share of a division.
    fn drives(&self) -> User {
        if self.bandwidth.is_empty() {
            return User::default();
        }
        let (least_uw, most_uw) = self.bandwidth.range_uw();
        let scale = self.response.slopes.1;
        User { least_uw: least_uw * scale, most_uw: most_uw * scale, demand_uw: self.demands_uw[1] * scale }
    }

    fn is_full(&self) -> bool {
        self.cpu.level_uw() == self.cpu.highest_uw() && !self.bandwidth.is_capped()
    }

    /// Divides what the rest leaves; whether anything is commanded.
    fn apply(&mut self, now_ns: u64, budget_uw: u64, rest_uw: f64, out: &mut Vec<Command>) -> bool {
        let budget_uw = budget_uw as f64;
        let slope = self.slope();
        let scale = slope * self.excess;
        let of_cpu = [self.cpu.lowest_uw(), self.cpu.highest_uw()].map(|uw| uw as f64 * scale);
        let cpu = User { least_uw: of_cpu[0], most_uw: of_cpu[1], demand_uw: self.demands_uw[0] * slope };
        let kept_uw = [self.kept_uw[0] * slope, self.kept_uw[1] * self.response.slopes.1];
        let cpu = cpu.at_least(kept_uw[0]);
        let drives = self.drives().at_least(kept_uw[1]);
        let left_uw = budget_uw * (1.0 - NO_ACTION / 2.0) - rest_uw;
        let [cpu_uw, drives_uw] = divide(left_uw, [cpu, drives]);
        let now_uw = [self.cpu.level_uw() as f64 * scale, self.drives_uw.min(drives.most_uw)];
        let sum_uw = rest_uw + now_uw[0] + now_uw[1];
        let is_kept = sum_uw <= budget_uw && (sum_uw >= budget_uw * (1.0 - NO_ACTION) || self.is_full());
        let shift_uw = (cpu_uw - now_uw[0]).abs().max((drives_uw - now_uw[1]).abs());
        let is_wanted = match self.binding {
            Some(Component::Drives) => drives_uw > now_uw[1] * WANTED,
            Some(Component::Cpu) => cpu_uw > now_uw[0] * WANTED,
            None => false,
        };
        let before = out.len();
        let mut level_uw = self.cpu.level_uw();
        let price = self.bandwidth.price() * self.response.slopes.1;
        if !is_kept || is_wanted || shift_uw >= budget_uw * SHIFT {
            self.drives_uw = if drives_uw >= drives.most_uw { f64::INFINITY } else { drives_uw };
            level_uw = if cpu_uw >= cpu.most_uw { u64::MAX } else { (cpu_uw / scale) as u64 };
            self.price = 0.0;
        }
        if (price - self.price).abs() > PRICE * price {
            self.price = price;
            self.bandwidth.allow(self.drives_uw / self.response.slopes.1);
        }
        self.cpu.set(now_ns, level_uw, out); // also what was refused or could not be raised before
        self.bandwidth.apply(now_ns, out);
        out.len() > before
    }
}
