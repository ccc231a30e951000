//! Encoding of an experiment at a point under a policy: cores, drives, workload, trace, times, seed, parameters of the policy, and kept metrics.

use pilotlight_policy::{Setting, registry};
use pilotlight_sim::scenario::{Connection, Kind, Phase, Rate, Spacing, Step};
use pilotlight_sim::ssd::SsdModel;

use super::contents::Contents;
use super::{Encode, Fingerprint, Values, values};
use crate::simulated::experiment::scenario::{self, ScenarioError};
use crate::simulated::experiment::schema::{
    Background, Cores, Detect, Experiment, MeanRate, Meter, PolicySpec, Sample, Trace, WarmUp,
};
use crate::simulated::experiment::schema::{BudgetStep, Minimum, Numbering, Siblings};
use crate::simulated::hold;
use crate::simulated::quantity::{Size, Time};

/// Parameters of policies added later: number, policy, key, and the value that gives the earlier behaviour.
pub const ADDED_PARAMETERS: &[(u8, &str, &str, &str)] = &[
    (1, "pacer", "forecast", "2"),
    (2, "pg", "forecast", "2"),
    (3, "dvfs", "forecast", "2"),
    (4, "sandman", "main_gives_active", "false"),
    (5, "sandman", "sleep_at_once", "false"),
    (6, "sandman", "give_back_interval", "never"),
    (7, "sandman", "worker_rest", "2ms"),
    (8, "adaptive", "longest_pause", "50us"), // no effect on machines whose server does not sleep, which all earlier results are of
    (9, "pass", "average", "true"),
    (10, "rapl-only", "average", "true"),
    (11, "cpu-bandwidth", "average", "true"),
    (12, "cpu-jailing", "average", "true"),
    (13, "ssd-bandwidth", "average", "true"),
    (14, "pacer", "refine", "false"),
    (15, "pg", "refine", "false"),
    (16, "dvfs", "refine", "false"),
    (17, "pacer", "stable_drives", "false"),
    (18, "pg", "stable_drives", "false"),
    (19, "dvfs", "stable_drives", "false"),
    (20, "ondemand", "loop_busy", "0%"),
];

/// Parameters that are presets of others, which are encoded instead.
const DERIVED: &[(&str, &str)] =
    &[("sandman", "guards"), ("sandman", "variant"), ("pacer", "variant"), ("pg", "variant"), ("dvfs", "variant")];

/// Values of parameters that are encoded under an earlier name: policy, key, value, encoded value.
const RENAMED: &[(&str, &str, &str, &str)] =
    &[("sandman", "after_sleep", "empty", "anew"), ("sandman", "after_sleep", "zeros", "quiet")];

/// The fingerprint of a point under a policy, without the machine.
///
/// # Errors
/// If the point cannot be run.
pub fn of_point(
    experiment: &Experiment,
    policy: &PolicySpec,
    models: &[(String, SsdModel)],
    contents: &Contents,
) -> Result<Fingerprint, ScenarioError> {
    let cores = policy.topology.unwrap_or(experiment.topology);
    let drives = scenario::drives(experiment, models)?;
    let workload = scenario::workload(experiment, cores, drives.len())?;
    let trace = experiment.trace.as_ref().map(|trace| contents.with_hashes(trace));
    Ok(super::digest(&Inputs { experiment, policy, cores, drives, connections: workload.connections, trace }))
}

struct Inputs<'a> {
    experiment: &'a Experiment,
    policy: &'a PolicySpec,
    cores: Cores,
    drives: Vec<SsdModel>,
    connections: Vec<Connection>,
    trace: Option<Trace>,
}

impl Encode for Inputs<'_> {
    fn encode(&self, out: &mut Values) {
        let Self { experiment, policy, cores, drives, connections, trace } = self;
        cores.encode(out);
        drives.encode(out);
        connections.encode(out);
        trace
            .as_ref()
            .map(|trace| (trace, trace.sample.map(|sample| sample.with_policies(&experiment.policies))))
            .encode(out);
        policy.duration(experiment).encode(out);
        policy.warm_up(experiment).encode(out);
        experiment.series.encode(out);
        experiment.seed.encode(out);
        scenario::labels(experiment).encode(out);
        encode_kept_metrics(&experiment.metrics, out);
        encode_kept_metrics(&experiment.output.series, out);
        experiment.output.detect.encode(out);
        of_policy(policy, out);
        if let Some(budget_w) = experiment.budget_w {
            out.added(1, &budget_w);
        }
        if let Some(times) = experiment.sensors {
            out.added(2, &(times.window, times.lag));
            times.server.iter().for_each(|meter| out.added(6, meter));
        }
        if !experiment.budget_steps.is_empty() {
            out.added(3, &experiment.budget_steps);
        }
        if !experiment.minimums.is_empty() {
            out.added(4, &experiment.minimums);
        }
        if let Some(tolerance) = experiment.tolerance {
            out.added(8, &tolerance);
        }
        if !experiment.background.is_empty() {
            out.added(7, &experiment.background);
        }
        let of_drives: Vec<_> = experiment.drives.iter().map(|drives| drives.priority).collect();
        let of_groups: Vec<_> = experiment.workload.iter().map(|group| group.priority).collect();
        if of_drives.iter().chain(&of_groups).any(Option::is_some) {
            out.added(5, &(of_drives, of_groups));
        }
    }
}

fn of_policy(policy: &PolicySpec, out: &mut Values) {
    policy.name.encode(out);
    let settings = scenario::settings(policy);
    let settings: Vec<(&str, &str)> = settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    if policy.name == hold::NAME {
        let value = |key: &&str| settings.iter().find(|(name, _)| name == key).map(|(_, value)| (*value).to_owned());
        let (first, added) = hold::KEYS.split_at(hold::FIRST_KEYS);
        first.iter().map(value).collect::<Vec<_>>().encode(out);
        let added = added.iter().map(value).collect::<Vec<_>>();
        if added.iter().any(Option::is_some) {
            out.added(1, &added);
        }
        return;
    }
    let parameters = registry::by_name(&policy.name).map(|entry| (entry.parameters)(&settings)).unwrap_or_default();
    for parameter in parameters.iter().filter(|parameter| !DERIVED.contains(&(policy.name.as_str(), parameter.key))) {
        let added =
            ADDED_PARAMETERS.iter().find(|(_, name, key, _)| (*name, *key) == (policy.name.as_str(), parameter.key));
        match added {
            None => encoded(&policy.name, parameter).encode(out),
            Some((_, _, _, neutral)) if parameter.value == *neutral => {}
            Some((number, ..)) => out.added(*number, &parameter.value),
        }
    }
}

fn encoded<'a>(policy: &str, parameter: &'a Setting) -> &'a str {
    let is_same =
        |known: &&(&str, &str, &str, &str)| (known.0, known.1, known.2) == (policy, parameter.key, &*parameter.value);
    RENAMED.iter().find(is_same).map_or(&parameter.value, |(.., encoded)| encoded)
}

values!(Cores: cores, siblings, threads; but placement); // in the threads of the connections
values!(Background: backlog_bytes, bytes_per_s, max_bytes_per_s, rate_percent, size, writes, ns_per_kib; but name);
values!(Detect: label, within);
values!(BudgetStep: at, watts);
values!(Minimum: priority, bytes_per_s);
values!(Meter: window, lag, update, step_mw, noise_mw, gain_percent, missing_ppm);
values!(Connection: thread, drives, request, depth, spacing, phases, think_ns);
values!(Phase: label, length_ns, rate);
values!(Step: reads, writes, bytes, parity_kib);
values!(
    Sample: windows, window, run_in, strata, around_bursts, exact_requests, exact_time
);
values!(
    Trace: source, volumes, client_sets, threads_per_client, depth, mean_iops, format, sizes, spread, dependent, begin, speed;
    but sample
);

impl Encode for Siblings {
    fn encode(&self, out: &mut Values) {
        match self {
            Self::Adjacent(siblings) => siblings.encode(out),
            Self::Numbered(Numbering::Split) => "split".encode(out),
        }
    }
}

impl Encode for Time {
    fn encode(&self, out: &mut Values) {
        self.0.encode(out);
    }
}

impl Encode for Size {
    fn encode(&self, out: &mut Values) {
        self.0.encode(out);
    }
}

/// Encodes the kept metrics, independent of their order.
fn encode_kept_metrics(names: &[String], out: &mut Values) {
    let mut names: Vec<&String> = names.iter().collect();
    names.sort();
    names.dedup();
    names.encode(out);
}

impl Encode for WarmUp {
    fn encode(&self, out: &mut Values) {
        match self {
            Self::Fixed { time } => {
                out.choice(0);
                time.encode(out);
            }
            Self::Mser5 { min, max } => {
                out.choice(1);
                (min, max).encode(out);
            }
        }
    }
}

impl Encode for MeanRate {
    fn encode(&self, out: &mut Values) {
        match self {
            Self::Fixed(rate) => {
                out.choice(0);
                rate.encode(out);
            }
            Self::Drawn([low, high]) => {
                out.choice(1);
                (low, high).encode(out);
            }
        }
    }
}

impl Encode for Kind {
    fn encode(&self, out: &mut Values) {
        match self {
            Self::Plain { writes_ppm, bytes, sequential } => {
                out.choice(0);
                (writes_ppm, bytes).encode(out);
                sequential.encode(out);
            }
            Self::Steps { steps, bytes_in, bytes_out } => {
                out.choice(1);
                steps.encode(out);
                (bytes_in, bytes_out).encode(out);
            }
            Self::Traced { service_ns } => {
                out.choice(2);
                service_ns.encode(out);
            }
        }
    }
}

impl Encode for Spacing {
    fn encode(&self, out: &mut Values) {
        match self {
            Self::Paced => out.choice(0),
            Self::Poisson => out.choice(1),
            Self::Mmpp { ratio, high_share, high_ns } => {
                out.choice(2);
                (ratio, high_share).encode(out);
                high_ns.encode(out);
            }
        }
    }
}

impl Encode for Rate {
    fn encode(&self, out: &mut Values) {
        match self {
            Self::Off => out.choice(0),
            Self::PerSecond(rate) => {
                out.choice(1);
                rate.encode(out);
            }
            Self::Unlimited => out.choice(2),
        }
    }
}
