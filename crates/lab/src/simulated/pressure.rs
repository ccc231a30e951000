//! The pressure of a trace (PACER, section III-A3): the rate of each segment relative to the maximum rate of a machine.
//!
//! A micro-benchmark has the segment's fraction of reads, fraction of random requests, and mean size. It runs on the machine under the first
//! policy of an experiment, at the segment's rate and unlimited; connections, depth and drives are those of the experiment's first group. Sigma is
//! the achieved rate: as a run time, as printed, a lower rate would give a higher pressure (errata 18).

use pilotlight_sim::run;
use pilotlight_trace::stats::segments::{Segment, pressure};

use crate::simulated::experiment::schema::{Experiment, Group, Request, WarmUp};
use crate::simulated::experiment::{Bench, scenario};
use crate::simulated::quantity::{Rate, Size};
use crate::simulated::sweep::SimulationError;

/// A segment with its measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct Pressed {
    /// The segment.
    pub segment: Segment,
    /// Requests per second at its rate.
    pub achieved_iops: f64,
    /// Requests per second without a limit.
    pub max_iops: f64,
}

impl Pressed {
    /// Pressure in per cent.
    #[must_use]
    pub fn percent(&self) -> f64 {
        pressure(&[self.achieved_iops], &[self.max_iops]).unwrap_or(0.0)
    }
}

/// The pressure of all segments in per cent; `None` without segments.
#[must_use]
pub fn of_all(segments: &[Pressed]) -> Option<f64> {
    let achieved: Vec<f64> = segments.iter().map(|one| one.achieved_iops).collect();
    let most: Vec<f64> = segments.iter().map(|one| one.max_iops).collect();
    pressure(&achieved, &most)
}

/// Measures every segment.
///
/// # Errors
/// If the experiment has no group of connections or cannot be run.
pub fn measure(bench: &Bench, segments: &[Segment]) -> Result<Vec<Pressed>, SimulationError> {
    let measured = |segment: &Segment| {
        let achieved_iops = rate(bench, segment, Some(segment.mean_rate_iops))?;
        Ok(Pressed { segment: segment.clone(), achieved_iops, max_iops: rate(bench, segment, None)? })
    };
    segments.iter().map(measured).collect()
}

/// Achieved requests per second at a rate, or without a limit.
fn rate(bench: &Bench, segment: &Segment, iops: Option<f64>) -> Result<f64, SimulationError> {
    let point = bench.points.first().ok_or(SimulationError::Lacks("point"))?;
    let policy = point.experiment.policies.first().ok_or(SimulationError::Lacks("policy"))?;
    let experiment = benchmark(&point.experiment, segment, iops)?;
    let machine = bench.machine.machine(&point.changes)?;
    let mut scenario = scenario::build(&experiment, policy, machine, &bench.drives, experiment.seed)?;
    let WarmUp::Fixed { time } = experiment.warm_up else {
        return Err(SimulationError::NoTime);
    };
    scenario.warm_up_ns = time.0;
    let settings = scenario::settings(policy);
    let settings: Vec<(&str, &str)> = settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let policy = pilotlight_policy::build(&policy.name, &settings)?;
    let outcome = run(&scenario, policy)?;
    let answered: u64 = outcome.latency.iter().map(|(_, histogram)| histogram.count()).sum();
    Ok(answered as f64 * 1e9 / outcome.measured_ns as f64)
}

/// The experiment with a segment's requests, in groups of random and sequential ones.
fn benchmark(experiment: &Experiment, segment: &Segment, iops: Option<f64>) -> Result<Experiment, SimulationError> {
    let group = experiment.workload.first().ok_or(SimulationError::Lacks("[[workload]]"))?;
    let of_sequential = (f64::from(group.connections) * segment.sequential_share).round() as u32;
    let part = |sequential: bool, connections: u32| {
        let share = f64::from(connections) / f64::from(group.connections);
        let size = Size((segment.mean_bytes / 512.0).ceil().max(1.0) as u32 * 512);
        Group {
            name: if sequential { "sequential" } else { "random" }.to_owned(),
            connections,
            request: Request::Plain { size, writes: 1.0 - segment.read_share, sequential },
            rate: Some(iops.map_or(Rate::Unlimited, |iops| Rate::PerSecond(iops * share))),
            phases: Vec::new(),
            ..group.clone()
        }
    };
    let parts = [part(false, group.connections - of_sequential), part(true, of_sequential)];
    let workload = parts.into_iter().filter(|part| part.connections > 0).collect();
    Ok(Experiment { workload, trace: None, ..experiment.clone() })
}
