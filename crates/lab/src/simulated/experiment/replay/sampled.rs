//! Sampled replay: simulates windows of a trace and estimates the whole.
//!
//! **Problem.** A day of a trace is too long to simulate. Energy of the whole is estimated from a sample of windows, with an interval.
//!
//! **Terms.** A *window* is `sample.window` wide; a *unit* is a window or consecutive windows with weight 1. Before a unit the `run_in` is
//! replayed without measurement, so that policy, cores, drives and network reach their state. Before the start of the trace there is no load.
//!
//! **Algorithm.** The loads of all windows are known: counted in one pass of a file, expected by the rate of a surrogate.
//! [`pilotlight_trace::sampling`] selects windows and estimates; the selection depends on trace and seed only, so it is equal for all policies.
//! Short replays (`exact_requests`, `exact_time`) are one unit. Other values are summed with the same weights ([`super::total`]).
//!
//! **Properties** (tested): a sample of all windows equals the exact replay; for a comparison over an hour see docs/traces.md.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use pilotlight_plant::Policy;
use pilotlight_sim::Source;
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::scenario::{Arrival, Scenario};
use pilotlight_stats::mean::t_quantile;
use pilotlight_trace::Generator;
use pilotlight_trace::sampling::{Estimate, Plan, Rule};
use pilotlight_trace::transform::{Cut, Scaled};

use super::origin::Origin;
use super::total::Total;
use super::{TraceError, assign_connections};
use crate::simulated::experiment::schema::{Sample, Trace};
use crate::simulated::metrics::Metric;
use crate::simulated::sweep::{Engine, SimulationError};

/// Days of a month in projections.
const DAYS_OF_MONTH: f64 = 30.0;
const S_PER_DAY: f64 = 86_400.0;
const JOULES_PER_KWH: f64 = 3.6e6;
/// Maximum number of requests in memory (40 bytes each).
const MAX_HELD: usize = 20_000_000;
/// A replay is saturated if saturated windows represent this fraction of its time.
const SATURATED: f64 = 0.1;

/// Results of a sampled replay beside its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct SampledReplay {
    /// Time of the outcome, in nanoseconds.
    pub span_ns: u64,
    /// Numbers of simulated and of all windows.
    pub windows: (usize, usize),
    /// Requests of the whole: counted in a file, expected of a surrogate.
    pub requests: u64,
    /// Ratio of the peak to the mean number of requests in a window.
    pub peak_over_mean: f64,
    /// Estimated energy of the whole.
    pub joules: Estimate,
    /// Mean rate of a surrogate outside bursts.
    pub mean_iops: Option<f64>,
    /// Skipped lines of a file.
    pub malformed: u64,
}

impl SampledReplay {
    /// Whether all windows were simulated.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.windows.0 == self.windows.1
    }

    /// The metrics of a replay; `joules` is the estimate for the machine.
    #[must_use]
    pub fn metrics(&self, joules: f64) -> Vec<Metric> {
        let per_day = S_PER_DAY / (self.span_ns as f64 / 1e9);
        let own = joules / self.joules.total.max(f64::MIN_POSITIVE);
        let (low, high) = (self.joules.low * own, self.joules.high * own);
        let kwh = |joules: f64| joules * per_day * DAYS_OF_MONTH / JOULES_PER_KWH;
        vec![
            Metric::new("joules_per_day", joules * per_day),
            Metric::new("joules_per_day_low", low * per_day),
            Metric::new("joules_per_day_high", high * per_day),
            Metric::new("kwh_per_month", kwh(joules)),
            Metric::new("replayed_windows", self.windows.0 as f64),
            Metric::new("replayed_share", self.windows.0 as f64 / self.windows.1 as f64),
            Metric::new("trace_requests", self.requests as f64),
            Metric::new("trace_iops", self.requests as f64 / (self.span_ns as f64 / 1e9)),
            Metric::new("peak_over_mean", self.peak_over_mean),
            Metric::new("wasted_over_required_at_peak", self.peak_over_mean - 1.0),
        ]
    }
}

/// The plan of a replay.
#[derive(Debug)]
struct Prepared {
    origin: Origin,
    loads: Vec<u64>,
    plan: Plan,
    units: Vec<Unit>,
    /// For a file: the requests of each unit.
    held: Vec<Vec<Arrival>>,
}

/// Windows that are simulated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unit {
    first: usize,
    windows: usize,
}

/// Cached plans, shared by all policies.
#[derive(Debug, Default)]
pub struct Replays {
    all: Mutex<BTreeMap<String, Arc<Prepared>>>,
}

/// A replay under a policy.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// The trace.
    pub trace: &'a Trace,
    /// The sample.
    pub sample: &'a Sample,
    /// The scenario, with the duration of the trace.
    pub scenario: &'a Scenario,
    /// Makes a policy for each unit.
    pub policy: &'a dyn Fn() -> Result<Box<dyn Policy>, SimulationError>,
    /// The simulation engine.
    pub engine: &'a Engine<'a>,
}

impl Replays {
    /// Replays the sample; the outcome estimates that of the whole.
    ///
    /// # Errors
    /// If the trace cannot be read, or a window cannot be run.
    pub fn run(&self, run: &Run<'_>) -> Result<(Outcome, SampledReplay), SimulationError> {
        let prepared = self.prepared(run)?;
        let Prepared { origin, loads, plan, units, .. } = &*prepared;
        let mut total = Total::new(run.scenario, run.sample.window.0, plan);
        let mut generator = origin.generator();
        for (at, unit) in units.iter().enumerate() {
            let (scenario, outcome) = simulate(run, &prepared, &mut generator, at)?;
            total.add(unit.first, unit.windows, &outcome, &scenario);
        }
        let requests: u64 = loads.iter().sum();
        let most = loads.iter().copied().max().unwrap_or(0);
        let sampled = SampledReplay {
            span_ns: loads.len() as u64 * run.sample.window.0,
            windows: (total.windows(), loads.len()),
            requests,
            peak_over_mean: most as f64 * loads.len() as f64 / requests.max(1) as f64,
            joules: plan.estimate(|window| total.joules(window), |degrees| t_quantile(0.95, degrees))?,
            mean_iops: origin.mean_iops(),
            malformed: origin.malformed,
        };
        let outcome = total.outcome(loads, SATURATED);
        Ok((outcome, sampled))
    }

    /// Simulates the `wanted` units of a replay by index, and passes their outcomes to `keep`. Returns the number of units.
    ///
    /// # Errors
    /// As [`Self::run`], or of `keep`.
    pub fn part(
        &self,
        run: &Run<'_>,
        wanted: &dyn Fn(usize) -> bool,
        keep: &mut dyn FnMut(usize, &Outcome) -> Result<(), SimulationError>,
    ) -> Result<usize, SimulationError> {
        let prepared = self.prepared(run)?;
        let mut generator = prepared.origin.generator();
        for at in (0..prepared.units.len()).filter(|&at| wanted(at)) {
            keep(at, &simulate(run, &prepared, &mut generator, at)?.1)?;
        }
        Ok(prepared.units.len())
    }

    /// The plan, independent of the policy.
    fn prepared(&self, run: &Run<'_>) -> Result<Arc<Prepared>, TraceError> {
        let scenario = run.scenario;
        let what = (run.trace, run.sample);
        let key = format!("{what:?} {} {} {}", scenario.drives.len(), scenario.duration_ns, scenario.seed);
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(prepared) = all.get(&key) {
            return Ok(Arc::clone(prepared));
        }
        let prepared = Arc::new(prepare(run)?);
        if all.len() >= 16 {
            all.clear(); // replications run in sequence, so earlier keys are not needed again
        }
        all.insert(key, Arc::clone(&prepared));
        Ok(prepared)
    }
}

/// The scenario and outcome of a unit.
fn simulate(
    run: &Run<'_>,
    prepared: &Prepared,
    generator: &mut Option<Generator>,
    at: usize,
) -> Result<(Scenario, Outcome), SimulationError> {
    let Prepared { origin, units, held, .. } = prepared;
    let scenario = scenario(run, &units[at]);
    let source: Source<'_> = match generator {
        Some(generator) => generated(run, origin, generator, &units[at], scenario.duration_ns),
        None => Box::new(held[at].iter().copied()),
    };
    let outcome = (run.engine)(&scenario, (run.policy)()?, Some(source))?;
    Ok((scenario, outcome))
}

fn prepare(run: &Run<'_>) -> Result<Prepared, TraceError> {
    let Run { trace, sample, scenario, .. } = *run;
    let window_ns = sample.window.0;
    if window_ns == 0 || !scenario.series_ns.is_multiple_of(window_ns) {
        return Err(TraceError::Window { window_ns, series_ns: scenario.series_ns });
    }
    let origin = Origin::new(trace, scenario.drives.len() as u16, scenario.duration_ns, scenario.seed)?;
    let mut loads = origin.loads(window_ns)?;
    // whole bins of the series: without load after the end of a file
    loads.resize(loads.len().max(1).next_multiple_of((scenario.series_ns / window_ns) as usize), 0);
    let requests: u64 = loads.iter().sum();
    let exact = requests <= sample.exact_requests && loads.len() as u64 * window_ns <= sample.exact_time.0;
    let rule =
        Rule { draws: sample.windows, strata: sample.strata, max_exact: sample.around_bursts, ..Rule::default() };
    let plan = if exact || sample.windows >= loads.len() {
        Plan::whole(loads.len())
    } else {
        Plan::new(&loads, &rule, scenario.seed).map_err(TraceError::Sample)?
    };
    let units = units(&plan);
    let held = if origin.mean_iops().is_some() { Vec::new() } else { read_units(run, &origin, &units)? };
    Ok(Prepared { origin, loads, plan, units, held })
}

/// Consecutive exact windows are one unit, every other window is a unit.
fn units(plan: &Plan) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    for window in plan.windows() {
        let exact = |window: usize| plan.stratum_of[window].is_none();
        match units.last_mut() {
            Some(last) if last.first + last.windows == window && exact(window) && exact(window - 1) => {
                last.windows += 1
            }
            _ => units.push(Unit { first: window, windows: 1 }),
        }
    }
    units
}

/// A unit with its run-in. Both are multiples of the step of energy samples.
fn scenario(run: &Run<'_>, unit: &Unit) -> Scenario {
    let Sample { window, run_in, .. } = *run.sample;
    let step_ns = greatest_divisor(window.0, run_in.0);
    Scenario {
        duration_ns: run_in.0 + unit.windows as u64 * window.0,
        warm_up_ns: run_in.0,
        series_ns: step_ns,
        ..run.scenario.clone()
    }
}

fn greatest_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Start of a unit's simulated time in the replay; without load before the start of the trace.
fn start_of_unit(run: &Run<'_>, unit: &Unit) -> (u64, u64) {
    let first_ns = unit.first as u64 * run.sample.window.0;
    let run_in_ns = run.sample.run_in.0;
    (first_ns.saturating_sub(run_in_ns), run_in_ns.saturating_sub(first_ns))
}

fn generated(
    run: &Run<'_>,
    origin: &Origin,
    generator: &mut Generator,
    unit: &Unit,
    duration_ns: u64,
) -> Source<'static> {
    let (from_ns, quiet_ns) = start_of_unit(run, unit);
    let to_ns = from_ns + duration_ns - quiet_ns;
    let (own_from, own_to) = (origin.own_ns(from_ns), origin.own_ns(to_ns));
    generator.seek(own_from);
    let within = Scaled::new(Cut::new(generator.clone(), own_from, own_to), run.trace.speed);
    let placed = assign_connections(within, origin.placement.clone(), run.trace.threads_per_client);
    Box::new(placed.map(move |arrival| Arrival { at_ns: arrival.at_ns + quiet_ns, ..arrival }))
}

/// The requests of all units of a file, read in one pass.
fn read_units(run: &Run<'_>, origin: &Origin, units: &[Unit]) -> Result<Vec<Vec<Arrival>>, TraceError> {
    let mut held: Vec<Vec<Arrival>> = vec![Vec::new(); units.len()];
    let (mut first, mut count) = (0, 0);
    let window_ns = run.sample.window.0;
    let end_ns = |unit: &Unit| (unit.first + unit.windows) as u64 * window_ns;
    for arrival in assign_connections(origin.requests()?, origin.placement.clone(), run.trace.threads_per_client) {
        while units.get(first).is_some_and(|unit| end_ns(unit) <= arrival.at_ns) {
            first += 1;
        }
        for (unit, held) in units.iter().zip(&mut held).skip(first) {
            let (from_ns, quiet_ns) = start_of_unit(run, unit);
            if arrival.at_ns < from_ns {
                break;
            }
            held.push(Arrival { at_ns: arrival.at_ns - from_ns + quiet_ns, ..arrival });
            count += 1;
        }
        if count > MAX_HELD {
            return Err(TraceError::Requests(run.trace.source.clone(), MAX_HELD));
        }
    }
    Ok(held)
}
