//! The bracket: a lower bound on the energy of all schedules of sleeping cores, and the energy of one schedule as upper bound.
//!
//! Static polling is run once, and arrival and response times are read from its trace. They determine the minimum energy ([`super::lower_bound`]) and
//! a schedule of counts. The schedule is replayed ([`super::Replay`]) with enough cores that none exceeds a given utilisation. A binary search over
//! [`UTILISATIONS_PERMILLE`] finds the largest utilisation at which requests are in time; it assumes that fewer cores delay more requests, so a
//! larger utilisation may also be feasible. If none is feasible, static polling itself is the schedule.

use std::fmt;

use pilotlight_plant::SleepGoal;

use super::bound::{Level, lower_bound};
use super::demand::{SlotLimits, WorkBounds};
use super::ledger::{Lateness, Ledger, lateness};
use super::limits::{Limits, States};
use super::replay::{Fill, Replay, Schedule};
use super::{Bound, OracleError};
use crate::histogram::Histogram;
use crate::machine::Machine;
use crate::outcome::Outcome;
use crate::scenario::{Connection, Kind, Rate, Scenario};

/// Maximum utilisations of a schedule's cores, from the fewest cores to the most.
pub const UTILISATIONS_PERMILLE: [u64; 11] = [950, 900, 850, 800, 700, 600, 500, 400, 300, 200, 100];
/// Femtojoules per microjoule.
const FJ: i128 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// Parameters of the oracle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BracketOptions {
    /// The sleep states.
    pub states: States,
    /// Allowed delay of a response relative to static polling, in nanoseconds.
    pub epsilon_ns: u64,
    /// Whether each request must be in time in the upper bound's schedule, or the n-th response relative to static polling's n-th, as in the lower
    /// bound (a saturated drive reorders requests regardless of cores).
    pub each_request: bool,
    /// Allowed share of late responses in the upper bound's schedule, in millionths. The lower bound allows none.
    pub late_ppm: u64,
    /// Maximum slot of the lower bound, in nanoseconds.
    pub slot_ns: u64,
}

impl BracketOptions {
    /// Responses at most 200 us later, except 1 % of the upper bound's; slots of at most 10 ms.
    #[must_use]
    pub fn new(states: States) -> Self {
        Self { states, epsilon_ns: 200_000, each_request: false, late_ppm: 10_000, slot_ns: 10 * MS }
    }
}

/// Bounds on the energy of schedules of sleeping cores over the measured time of a scenario; energy of the whole machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Bracket {
    /// Parameters.
    pub options: BracketOptions,
    /// Measured time in nanoseconds.
    pub measured_ns: u64,
    /// Lower bound, in microjoules.
    pub lower_uj: u64,
    /// Upper bound: energy of a schedule, in microjoules.
    pub upper_uj: u64,
    /// Energy of static polling, in microjoules.
    pub static_uj: u64,
    /// Energy with every core in the shallow state and unchanged drives, in microjoules.
    pub floor_shallow_uj: u64,
    /// Energy with every core in the deep state and unchanged drives, in microjoules.
    pub floor_deep_uj: u64,
    /// Delays of the upper bound's responses relative to static polling.
    pub lateness: Lateness,
    /// 99th percentile of latency under static polling, in nanoseconds.
    pub static_p99_ns: u64,
    /// The same under the upper bound's schedule, in nanoseconds.
    pub upper_p99_ns: u64,
    /// Maximum utilisation of the schedule's cores, in thousandths; `None` if only static polling was in time.
    pub utilisation_permille: Option<u64>,
    /// Slots of the lower bound: length in nanoseconds, and level on its cheapest path.
    pub slots: Vec<(u64, Level)>,
}

impl Bracket {
    /// Energy of a run above that with every core in the shallow state, in microjoules.
    #[must_use]
    pub fn above_shallow_uj(&self, energy_uj: u64) -> i64 {
        energy_uj.cast_signed() - self.floor_shallow_uj.cast_signed()
    }
}

impl fmt::Display for Bracket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watts = |uj: u64| uj as f64 * 1e3 / self.measured_ns.max(1) as f64;
        let joules = |uj: i64| uj as f64 / 1e6;
        let us = |ns: u64| ns as f64 / 1e3;
        let states = if self.options.states.deep { "shallow and deep" } else { "shallow" };
        writeln!(
            f,
            "oracle ({states} sleep, at most {:.0} us after static polling): {:.2} to {:.2} W (static polling {:.2} W)",
            us(self.options.epsilon_ns),
            watts(self.lower_uj),
            watts(self.upper_uj),
            watts(self.static_uj),
        )?;
        for (name, floor) in [("C-1", self.floor_shallow_uj), ("deep-idle", self.floor_deep_uj)] {
            let above = |uj: u64| joules(uj.cast_signed() - floor.cast_signed());
            writeln!(
                f,
                "  above the {name} floor of {:.2} W: {:.3} to {:.3} J (static polling {:.3} J)",
                watts(floor),
                above(self.lower_uj),
                above(self.upper_uj),
                above(self.static_uj),
            )?;
        }
        let delays = self.lateness.by_request.unwrap_or(self.lateness.by_rank);
        write!(
            f,
            "  upper bound: {} of {} answers later ({:.1} us at most, {}); p99 {:.1} us (static polling {:.1} us)",
            delays.late,
            self.lateness.answers,
            us(delays.most_ns),
            if self.lateness.by_request.is_some() { "by request" } else { "by rank" },
            us(self.upper_p99_ns),
            us(self.static_p99_ns),
        )
    }
}

/// The bracket of a scenario with the parameters of [`BracketOptions::new`].
///
/// # Errors
/// As [`bracket_of`].
pub fn bracket(scenario: &Scenario, states: States) -> Result<Bracket, OracleError> {
    bracket_of(scenario, BracketOptions::new(states))
}

/// The bracket of a scenario.
///
/// # Errors
/// If the scenario is a closed loop or cannot be run, the machine's parameters are inconsistent, the cores cannot do the work, or a drive reaches its
/// power ceiling under static polling.
pub fn bracket_of(scenario: &Scenario, options: BracketOptions) -> Result<Bracket, OracleError> {
    let search = BracketSearch::new(scenario, options)?;
    if search.base.outcome.capped_uj > 0 {
        return Err(OracleError::Ceiling);
    }
    let bound = lower_bound(&search.limits, &search.plan)?;
    let (found, utilisation_permille) = search.search(&bound)?;
    let base = &search.base;
    let floor = |deep| search.with_drives_uj(floor_uw(&scenario.machine, search.limits[0].units(), deep));
    let lengths = search.plan.spans.iter().map(|span| span.length_ns);
    Ok(Bracket {
        options,
        measured_ns: base.outcome.measured_ns,
        lower_uj: search.lower_uj(bound.least_fj),
        upper_uj: found.outcome.energy.system_uj(),
        static_uj: base.outcome.energy.system_uj(),
        floor_shallow_uj: floor(false),
        floor_deep_uj: floor(true),
        lateness: found.lateness,
        static_p99_ns: p99_ns(&base.outcome),
        upper_p99_ns: p99_ns(&found.outcome),
        utilisation_permille,
        slots: lengths.zip(bound.levels).collect(),
    })
}

/// A run and its ledger.
struct RecordedRun {
    outcome: Outcome,
    ledger: Ledger,
}

/// The run of a schedule.
struct ReplayedRun {
    outcome: Outcome,
    lateness: Lateness,
}

/// Inputs of the bounds.
struct BracketSearch<'a> {
    scenario: &'a Scenario,
    options: BracketOptions,
    bin_ns: u64,
    limits: Vec<Limits>,
    /// Static polling.
    base: RecordedRun,
    plan: WorkBounds,
    /// The warm-up.
    before: WorkBounds,
}

impl<'a> BracketSearch<'a> {
    fn new(scenario: &'a Scenario, options: BracketOptions) -> Result<Self, OracleError> {
        let connections = &scenario.workload.connections;
        if connections.iter().any(|connection| matches!(connection.request, Kind::Traced { .. })) {
            return Err(OracleError::Traced);
        }
        if is_closed(scenario) {
            return Err(OracleError::Closed);
        }
        let limits = Limits::of(&scenario.machine, &scenario.topology, options.states)?;
        let bin_ns = gcd(scenario.series_ns.max(1), MS);
        let all = Level { awake: limits[0].cores(), not_deep: limits[0].cores() };
        let base = run_recorded(scenario, options, bin_ns, Schedule::new(&[(0, all)], 0, MS, Vec::new(), Vec::new()))?;
        let demand = base.ledger.demand(options.epsilon_ns);
        let least_ns = (4 * options.epsilon_ns).next_multiple_of(bin_ns).max(bin_ns);
        let grain = SlotLimits { least_ns, most_ns: options.slot_ns.max(least_ns) };
        let plan = demand.plan(scenario.warm_up_ns, grain);
        let mut before = demand;
        before.slots.truncate((scenario.warm_up_ns / bin_ns) as usize);
        let before = before.plan(0, grain);
        Ok(Self { scenario, options, bin_ns, limits, base, plan, before })
    }

    /// The feasible replay with the fewest cores.
    fn search(&self, bound: &Bound) -> Result<(ReplayedRun, Option<u64>), OracleError> {
        let mut best = None;
        let (mut from, mut to) = (0, UTILISATIONS_PERMILLE.len());
        while from < to {
            let middle = usize::midpoint(from, to);
            let found = self.replay(self.schedule(bound, UTILISATIONS_PERMILLE[middle]))?;
            if self.in_time(&found.lateness) {
                best = Some((found, Some(UTILISATIONS_PERMILLE[middle])));
                to = middle;
            } else {
                from = middle + 1;
            }
        }
        let cheaper = best.filter(|(found, _)| found.outcome.energy.system_uj() < self.base.outcome.energy.system_uj());
        match cheaper {
            Some(found) => Ok(found),
            None => {
                let all = Level { awake: self.limits[0].cores(), not_deep: self.limits[0].cores() };
                let still = Schedule::new(&[(0, all)], 0, MS, Vec::new(), Vec::new());
                Ok((self.replay(still)?, None))
            }
        }
    }

    fn replay(&self, schedule: Schedule) -> Result<ReplayedRun, OracleError> {
        let RecordedRun { outcome, ledger } = run_recorded(self.scenario, self.options, self.bin_ns, schedule)?;
        let lateness = lateness(&self.base.ledger, &ledger, self.options.epsilon_ns, self.scenario.duration_ns);
        Ok(ReplayedRun { outcome, lateness })
    }

    fn in_time(&self, late: &Lateness) -> bool {
        let delays = late.by_request.unwrap_or(late.by_rank);
        u128::from(delays.late) * 1_000_000 <= u128::from(late.answers) * u128::from(self.options.late_ppm)
    }

    /// The levels of the cheapest path, raised where the utilisation would exceed `permille`.
    fn schedule(&self, bound: &Bound, permille: u64) -> Schedule {
        let limits = &self.limits[0];
        let cores = limits.cores();
        let mut levels = Vec::new();
        let mut begin_ns = 0;
        let sleeping = vec![Level { awake: 1, not_deep: cores }; self.before.spans.len()];
        for (plan, counts) in [(&self.before, &sleeping), (&self.plan, &bound.levels)] {
            let mut arrived_ns = plan.before.most_ns;
            for (span, least) in plan.spans.iter().zip(counts) {
                let work_ns = (span.most_ns - std::mem::replace(&mut arrived_ns, span.most_ns)) * 1_000 / permille;
                let awake = limits.needed(work_ns, span.length_ns).unwrap_or(cores).max(least.awake).max(1);
                levels.push((begin_ns, Level { awake, not_deep: least.not_deep.max(awake) }));
                begin_ns += span.length_ns;
            }
        }
        let lead_ns = self.lead_ns();
        let power = &limits.power;
        let spread = power.alone_uw * i64::from(limits.both_ppm) < power.both_uw * i64::from(limits.alone_ppm);
        let fill = if spread { Fill::Spread } else { Fill::Pairs };
        Schedule::new(
            &levels,
            lead_ns,
            self.bin_ns,
            fill.order(&self.scenario.topology),
            self.base.ledger.threads.clone(),
        )
    }

    /// Lead time of wake-ups: a tick may be that late, and with a long exit latency, I/O threads follow at the next tick.
    fn lead_ns(&self) -> u64 {
        let capabilities = crate::engine::capabilities(self.scenario);
        let goal = if self.options.states.deep { SleepGoal::DEEPEST } else { SleepGoal::SHALLOWEST };
        let wake_ns = capabilities.sleep_for(goal).map_or(0, |sleep| sleep.wake.ns());
        2 * self.bin_ns + wake_ns
    }

    /// Energy with CPU and others at this power for the measured time, and the drives as under static polling.
    fn with_drives_uj(&self, uw: u64) -> u64 {
        let Outcome { measured_ns, energy, .. } = &self.base.outcome;
        (u128::from(uw) * u128::from(*measured_ns) / FJ.unsigned_abs()) as u64 + energy.drives_uj
    }

    /// Lower bound of CPU and others plus that of drives: static polling's minus the share that requests in progress at either end may shift out of
    /// the measured time. The simulator rounds each component of each entry of the series down.
    fn lower_uj(&self, least_fj: i128) -> u64 {
        let (begin_ns, end_ns) = (self.scenario.warm_up_ns, self.scenario.duration_ns);
        let open = |at_ns| self.base.ledger.open_requests(at_ns, self.options.epsilon_ns);
        let most_nj = most_drive_nj(self.scenario);
        let edges_uj = (u128::from(open(begin_ns) + open(end_ns)) * u128::from(most_nj) / 1_000) as u64;
        let rounded_uj = 3 * (end_ns - begin_ns) / self.scenario.series_ns;
        let cores_uj = u64::try_from(least_fj / FJ).unwrap_or(0);
        (cores_uj + self.base.outcome.energy.drives_uj).saturating_sub(edges_uj + rounded_uj)
    }
}

/// Runs a schedule.
fn run_recorded(
    scenario: &Scenario,
    options: BracketOptions,
    bin_ns: u64,
    schedule: Schedule,
) -> Result<RecordedRun, OracleError> {
    let mut ledger = Ledger::new(scenario, bin_ns, options.each_request);
    let outcome = crate::run_traced(scenario, Box::new(Replay::new(schedule)), &mut ledger)?;
    Ok(RecordedRun { outcome, ledger })
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Power of CPU and others with every unit in one sleep state, in microwatts.
fn floor_uw(machine: &Machine, units: u16, deep: bool) -> u64 {
    let (cpu, others) = (machine.power.cpu_uw, machine.power.others_uw);
    if deep {
        return cpu.deep + others.deep;
    }
    let measured = u64::from(machine.power.physical_cores.max(1));
    let sleep_uw = cpu.shallow - cpu.deep;
    let package_uw = sleep_uw * u64::from(machine.power.family.package_ppm) / 1_000_000;
    let each = (sleep_uw - package_uw + others.shallow - others.deep) * u64::from(units).min(measured) / measured;
    cpu.deep + others.deep + package_uw + each
}

/// Drive energy of the most expensive request, in nanojoules.
fn most_drive_nj(scenario: &Scenario) -> u64 {
    let power = &scenario.machine.power;
    let each = |bytes: u32, writes: bool| {
        let nj = if writes { power.write_4k_nj.max(power.read_4k_nj) } else { power.read_4k_nj };
        u64::from(bytes) * nj / 4_096
    };
    let of = |connection: &Connection| match &connection.request {
        Kind::Plain { writes_ppm, bytes, .. } => each(*bytes, *writes_ppm > 0),
        Kind::Steps { steps, .. } => {
            steps.iter().map(|step| u64::from(step.reads + step.writes) * each(step.bytes, true)).sum()
        }
        Kind::Traced { .. } => 0, // refused before
    };
    scenario.workload.connections.iter().map(of).max().unwrap_or(0)
}

/// Whether request times depend on responses. A limited depth is ignored: it may never be reached.
fn is_closed(scenario: &Scenario) -> bool {
    let has_jobs = scenario.scheduled.as_ref().is_some_and(|scheduled| !scheduled.jobs.is_empty());
    let mut connections = scenario.workload.connections.iter();
    has_jobs || connections.any(|one| one.think_ns > 0 || one.phases.iter().any(|phase| phase.rate == Rate::Unlimited))
}

fn p99_ns(outcome: &Outcome) -> u64 {
    let mut all = Histogram::default();
    outcome.latency.iter().for_each(|(_, histogram)| all.merge(histogram));
    all.quantile(0.99)
}
