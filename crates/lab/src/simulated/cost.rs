//! Estimates the CPU time of runs, for displayed times and limits of checks. Results do not depend on it.
//!
//! The cost is per request and per simulated second of a core. Closed loops are assumed to be limited by drives, cores and depth.

use crate::simulated::experiment::schema::{Experiment, Group, MeanRate, PolicySpec, WarmUp};
use crate::simulated::quantity::{Depth, Rate};

/// CPU time per request, in seconds (docs/simulator.md: speed).
const REQUEST_S: f64 = 0.45e-6;
/// CPU time per simulated second of one core, in seconds.
const CORE_SECOND_S: f64 = 2e-3;
/// Requests per second of a drive and of a core; seconds from request to completion.
const DRIVE_IOPS: f64 = 2.5e6;
const CORE_IOPS: f64 = 8e5;
const ROUND_S: f64 = 100e-6;

/// CPU time of a run, in seconds, including its share of the pilot run.
#[must_use]
pub fn run_s(experiment: &Experiment, policy: &PolicySpec) -> f64 {
    let pilots = match policy.warm_up(experiment) {
        WarmUp::Fixed { .. } => 0.0,
        WarmUp::Mser5 { .. } => 1.0 / f64::from(experiment.repeats.max(1)),
    };
    once_s(experiment, policy) * (1.0 + pilots)
}

/// CPU time of a run without the pilot run, in seconds.
#[must_use]
pub fn once_s(experiment: &Experiment, policy: &PolicySpec) -> f64 {
    let cores = policy.topology.unwrap_or(experiment.topology).cores;
    let seconds = simulated_s(experiment, policy);
    seconds * (requests_per_s(experiment, cores) * REQUEST_S + f64::from(cores) * CORE_SECOND_S)
}

/// Number of requests of a run.
#[must_use]
pub fn requests(experiment: &Experiment) -> f64 {
    let iops = requests_per_s(experiment, experiment.topology.cores);
    experiment.policies.first().map_or(0.0, |policy| simulated_s(experiment, policy) * iops)
}

/// Simulated time of a run; of a sampled replay that of its windows with run-ins.
fn simulated_s(experiment: &Experiment, policy: &PolicySpec) -> f64 {
    let whole = policy.duration(experiment).seconds();
    let Some(sample) = experiment.trace.as_ref().and_then(|trace| trace.sample) else { return whole };
    let few = whole * requests_per_s(experiment, experiment.topology.cores) <= sample.exact_requests as f64;
    if few && sample.with_policies(&experiment.policies).exact_time >= experiment.duration {
        return whole;
    }
    let windows = (sample.windows + sample.around_bursts) as f64;
    (windows * (sample.window.seconds() + sample.run_in.seconds())).min(whole)
}

fn requests_per_s(experiment: &Experiment, cores: u16) -> f64 {
    let drives: u32 = experiment.drives.iter().map(|drives| u32::from(drives.count)).sum();
    let max_iops = (f64::from(cores) * CORE_IOPS).min(f64::from(drives) * DRIVE_IOPS);
    let groups: f64 = experiment.workload.iter().map(|group| group_per_s(group, max_iops)).sum();
    let traced =
        experiment.trace.as_ref().map_or(0.0, |trace| trace.mean_iops.map_or(1e6, MeanRate::mean) * trace.speed);
    groups.min(2.0 * max_iops) + traced
}

fn group_per_s(group: &Group, max_iops: f64) -> f64 {
    let loops = match group.depth {
        Depth::AtMost(depth) => {
            f64::from(group.connections) * f64::from(depth) / (ROUND_S + group.think_time.seconds())
        }
        Depth::Open => f64::INFINITY,
    };
    let of = |rate: Rate| {
        let rate = match rate {
            Rate::PerSecond(rate) => rate,
            Rate::Share(share) => share * group.max_iops.unwrap_or(max_iops),
            Rate::Unlimited => max_iops,
            Rate::Off => 0.0,
        };
        rate.min(loops)
    };
    if let Some(rate) = group.rate {
        return of(rate);
    }
    let length: f64 = group.phases.iter().map(|phase| phase.length.seconds()).sum();
    let requests: f64 = group.phases.iter().map(|phase| of(phase.rate) * phase.length.seconds()).sum();
    if length > 0.0 { requests / length } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::simulated::experiment::{Request, load};

    #[test]
    fn requests_are_rate_times_time() {
        let bench = |name: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/sandman").join(name);
            load(&path, &Request::default()).unwrap()
        };
        let stable = bench("fig3.toml");
        let last = &stable.points.last().unwrap().experiment;
        assert!((requests(last) - last.duration.seconds() * 10.24e6).abs() < 1.0);
        let bursts = &bench("fig4.toml").points[0].experiment;
        let rounds = bursts.duration.seconds() / 11.0;
        assert!(
            (requests(bursts) / rounds / (10.0 * 125e3 + 2.5e6) - 1.0).abs() < 0.6,
            "{}",
            requests(bursts) / rounds
        );
        let policy = &last.policies[0];
        assert!(run_s(last, policy) > once_s(last, policy));
    }
}
