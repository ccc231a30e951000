//! The metrics of a simulated run.

use crate::stored::metric;
use pilotlight_sim::histogram::Histogram;
use pilotlight_sim::outcome::{Outcome, Stretch};
use pilotlight_stats::{CONFIDENCE, Estimate, binomial};

use crate::simulated::experiment::replay::SampledReplay;
use crate::simulated::experiment::schema::{Cores, Detect, Experiment};
use crate::simulated::variant::{self, Variant};

/// A value of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name with the unit as suffix; for a label `LABEL.NAME`; for a time `NAME@MILLISECONDSms`.
    pub name: String,
    /// Its unit.
    pub unit: &'static str,
    /// Its value.
    pub value: f64,
}

impl Metric {
    /// A value with the unit of its name.
    pub(crate) fn new(name: &str, value: f64) -> Self {
        Self { name: name.to_owned(), unit: metric::unit(name), value }
    }
}

pub use crate::stored::metric::SATURATED;

mod budget;

/// Computed only if named, because every polling loop must be simulated.
pub const POLLING_INTERVAL: &str = "polling_interval_p99_us";

/// 1: a budget was violated (PASS 5). Such a run keeps only metrics of power and of the budget.
pub const VIOLATED: &str = "budget_violated";

/// The context of a run's metrics.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The experiment at its point.
    pub experiment: &'a Experiment,
    /// Labels by number.
    pub labels: &'a [String],
    /// Logical cores and I/O threads.
    pub cores: Cores,
    /// Warm-up, in nanoseconds.
    pub warm_up_ns: u64,
    /// CPU time of a request on the polled path at full speed, in nanoseconds.
    pub request_ns: u32,
}

/// A percentage of counted events, and the metrics of its hits and events.
pub const COUNTED: [&str; 3] = ["accuracy_percent", "phases_detected", "phases"];

/// Percentage of hits over all replications with the exact binomial interval, which is not empty even at 100 %. `None` without events.
#[must_use]
pub fn of_events(hits: f64, events: f64) -> Option<Estimate> {
    binomial::proportion(hits as u64, events as u64, CONFIDENCE).map(|share| share.affine(0.0, 100.0))
}

const QUANTILES: [(&str, f64); 4] =
    [("latency_p50_us", 0.5), ("latency_p99_us", 0.99), ("latency_p99_9_us", 0.999), ("latency_p99_99_us", 0.9999)];

/// The values of a run, with those of a sampled replay, in a fixed order, [`SATURATED`] last.
#[must_use]
pub fn metrics(outcome: &Outcome, sampled: Option<&SampledReplay>, context: &Context<'_>) -> Vec<Metric> {
    let mut all = Vec::new();
    traffic(outcome, context, &mut all);
    power(outcome, &mut all);
    decisions(outcome, context, &mut all);
    detection(outcome, context, &mut all);
    all.extend(sampled.into_iter().flat_map(|sampled| sampled.metrics(outcome.energy.system_uj() as f64 / 1e6)));
    let of_load = all.len();
    let violated = budget::metrics(&outcome.series, context, &mut all);
    let has_budget = all.len() > of_load;
    all.retain(|metric| kept(&metric.name, &context.experiment.metrics));
    if violated {
        all.retain(|metric| is_of_power(metric::bare(&metric.name)));
    }
    series(outcome, context, &mut all);
    if has_budget {
        all.push(Metric::new(VIOLATED, f64::from(u8::from(violated))));
    }
    all.push(Metric::new("warm_up_ms", context.warm_up_ns as f64 / 1e6));
    all.push(Metric::new(SATURATED, f64::from(u8::from(outcome.saturated))));
    all
}

/// Whether a metric is named, with or without a label.
fn kept(name: &str, wanted: &[String]) -> bool {
    let bare = metric::bare(name);
    wanted.is_empty() || wanted.iter().any(|want| want == name || want == bare)
}

/// Whether a value of a run that violated its budget is kept.
fn is_of_power(name: &str) -> bool {
    let of_budget = ["above_budget_s", "above_limit_s", "settle_s", "within_limit_share"].contains(&name);
    of_budget || name.ends_with("_percent") || name.ends_with("_w") || name.ends_with("_j")
}

/// Whether a value of a run of this variant is kept.
#[must_use]
pub fn kept_of(variant: &Variant, name: &str) -> bool {
    let energy = ["system_energy_j", "joules_per_day", "kwh_per_month", SATURATED].contains(&name);
    let power = energy || name.ends_with("_power_w");
    let default_only = name.contains('@');
    (power || !variant.rides()) && (!default_only || variant.name == variant::DEFAULT)
}

fn push(all: &mut Vec<Metric>, name: &str, value: f64) {
    if value.is_finite() {
        all.push(Metric::new(name, value));
    }
}

fn traffic(outcome: &Outcome, context: &Context<'_>, all: &mut Vec<Metric>) {
    let mut whole = Histogram::default();
    outcome.latency.iter().for_each(|(_, histogram)| whole.merge(histogram));
    of_histogram("", &whole, outcome.measured_ns, all);
    bytes(outcome, context, all);
    cap_waits(outcome, all);
    background(outcome, all);
    if context.labels.len() < 2 {
        return;
    }
    for (label, histogram) in &outcome.latency {
        let Some(name) = context.labels.get(usize::from(*label)) else { continue };
        let time = outcome.label_ns.iter().find(|(other, _)| other == label).map_or(0, |&(_, ns)| ns);
        of_histogram(&format!("{name}."), histogram, time, all);
    }
}

/// Delays by bandwidth caps, if there were any.
fn cap_waits(outcome: &Outcome, all: &mut Vec<Metric>) {
    let waits = &outcome.cap_waits;
    if waits.count() > 0 {
        push(all, "cap_waits_per_s", waits.count() as f64 / (outcome.measured_ns as f64 / 1e9));
        push(all, "cap_wait_mean_us", waits.mean() / 1e3);
        push(all, "cap_wait_p99_us", waits.quantile(0.99) as f64 / 1e3);
    }
}

/// Background work, if any.
fn background(outcome: &Outcome, all: &mut Vec<Metric>) {
    let Some(done) = outcome.background.iter().map(|class| class.done_bytes).reduce(|a, b| a + b) else { return };
    push(all, "background_bytes_per_s", done as f64 / (outcome.measured_ns as f64 / 1e9));
    let backlog: u64 = outcome.background.iter().map(|class| class.backlog_bytes).sum();
    push(all, "backlog_bytes", backlog as f64);
}

/// Bytes read and written by hosts, if all requests of each label have one size.
fn bytes(outcome: &Outcome, context: &Context<'_>, all: &mut Vec<Metric>) {
    let bytes = |(label, histogram): &(u8, Histogram)| {
        let name = context.labels.get(usize::from(*label))?;
        let groups = context.experiment.workload.iter().filter(|group| group.has_label(name));
        let mut sizes: Vec<u64> = groups.map(|group| group.request.bytes()).collect();
        sizes.dedup();
        match sizes[..] {
            [size] => Some(size * histogram.count()),
            _ => None,
        }
    };
    let is_traced = context.experiment.trace.is_some();
    let moved: Option<u64> = outcome.latency.iter().filter(|(_, histogram)| histogram.count() > 0).map(bytes).sum();
    if let Some(moved) = moved.filter(|_| !is_traced) {
        push(all, "bytes_per_s", moved as f64 / (outcome.measured_ns as f64 / 1e9));
    }
}

fn of_histogram(prefix: &str, histogram: &Histogram, time_ns: u64, all: &mut Vec<Metric>) {
    push(all, &format!("{prefix}iops"), histogram.count() as f64 / (time_ns as f64 / 1e9));
    if histogram.count() == 0 {
        return;
    }
    push(all, &format!("{prefix}latency_mean_us"), histogram.mean() / 1e3);
    for (name, share) in QUANTILES {
        push(all, &format!("{prefix}{name}"), histogram.quantile(share) as f64 / 1e3);
    }
    push(all, &format!("{prefix}latency_max_us"), histogram.max() as f64 / 1e3);
}

fn power(outcome: &Outcome, all: &mut Vec<Metric>) {
    let energy = &outcome.energy;
    let seconds = outcome.measured_ns as f64 / 1e9;
    let watts = |uj: u64| uj as f64 / 1e6 / seconds;
    push(all, "cpu_power_w", watts(energy.cpu_uj));
    push(all, "ssd_power_w", watts(energy.drives_uj));
    push(all, "others_power_w", watts(energy.others_uj));
    push(all, "system_power_w", watts(energy.system_uj()));
    push(all, "system_energy_j", energy.system_uj() as f64 / 1e6);
    let answered: u64 = outcome.latency.iter().map(|(_, histogram)| histogram.count()).sum();
    push(all, "energy_per_operation_uj", energy.system_uj() as f64 / answered as f64);
}

fn decisions(outcome: &Outcome, context: &Context<'_>, all: &mut Vec<Metric>) {
    let d = &outcome.decisions;
    let seconds = outcome.measured_ns as f64 / 1e9;
    let rates = [
        ("moves_per_s", d.moves),
        ("sleeps_per_s", d.sleeps),
        ("wakes_per_s", d.wakes),
        ("frequencies_per_s", d.frequencies),
        ("asked_per_s", d.policy_calls),
        ("refused_per_s", d.refused),
        ("context_switches_per_s", d.switches),
    ];
    rates.into_iter().for_each(|(name, count)| push(all, name, count as f64 / seconds));
    let answered: u64 = outcome.latency.iter().map(|(_, histogram)| histogram.count()).sum();
    let changes =
        outcome.view.iter().find(|(key, _)| *key == "changes").and_then(|(_, value)| value.parse::<f64>().ok());
    let minutes = (outcome.measured_ns + context.warm_up_ns) as f64 / 60e9;
    changes.into_iter().for_each(|changes| push(all, "changes_per_minute", changes / minutes));
    push(all, "context_switches_per_operation", d.switches as f64 / answered as f64);
    push(all, "deciding_share", d.deciding_ns as f64 / outcome.measured_ns as f64);
    push(all, "algorithm_us", d.deciding_ns as f64 / 1e3 / d.policy_calls as f64);
    push(all, "lateness_us", d.late_ns as f64 / 1e3 / d.policy_calls as f64);
    let measured = measured(outcome, context);
    let time = measured.len() as f64 * context.experiment.series.0 as f64;
    let awake: u64 = measured.iter().map(|stretch| stretch.awake_ns).sum();
    let capacity: u64 = measured.iter().map(|stretch| stretch.capacity_ns).sum();
    push(all, "cores_awake", awake as f64 / time);
    let reserved = capacity as f64 / time;
    push(all, "capacity_share", reserved / f64::from(context.cores.cores));
    let required = answered as f64 * f64::from(context.request_ns) / outcome.measured_ns as f64;
    push(all, "wasted_over_required", (reserved - required) / required);
}

/// The bins of the series after the warm-up.
fn measured<'a>(outcome: &'a Outcome, context: &Context<'_>) -> &'a [Stretch] {
    let first = context.warm_up_ns.div_ceil(context.experiment.series.0) as usize;
    outcome.series.get(first..).unwrap_or_default()
}

/// A value of a bin of the series.
#[must_use]
pub fn of_stretch(name: &str, stretch: &Stretch, length_ns: u64, cores: u16) -> Option<f64> {
    let ns = length_ns as f64;
    Some(match name {
        "iops" => stretch.answered as f64 / ns * 1e9,
        "latency_mean_us" => stretch.latency_ns as f64 / 1e3 / (stretch.answered.max(1)) as f64,
        "system_power_w" => stretch.energy.system_uj() as f64 * 1e3 / ns,
        "cpu_power_w" => stretch.energy.cpu_uj as f64 * 1e3 / ns,
        "cores_awake" => stretch.awake_ns as f64 / ns,
        "capacity_share" => stretch.capacity_ns as f64 / ns / f64::from(cores),
        "moves" => stretch.moves as f64,
        _ => return None,
    })
}

fn series(outcome: &Outcome, context: &Context<'_>, all: &mut Vec<Metric>) {
    let length = context.experiment.series.0;
    for name in &context.experiment.output.series {
        if name == "read_power_w" {
            read_power(outcome, context, all);
        }
        for (at, stretch) in outcome.series.iter().enumerate() {
            let Some(value) = of_stretch(name, stretch, length, context.cores.cores) else { break };
            let time = at as f64 * length as f64 / 1e6;
            all.push(Metric::new(&format!("{name}@{time}ms"), value));
        }
    }
}

/// The last reading of the machine's power sensor at the end of each bin.
fn read_power(outcome: &Outcome, context: &Context<'_>, all: &mut Vec<Metric>) {
    let Some(times) = context.experiment.sensors else { return };
    let length = context.experiment.series.0;
    for at in 0..outcome.series.len() {
        let metered = outcome.metered_uw.get(at).map(|reported| reported.map(|uw| uw as f64 / 1e6));
        let exact = || budget::reading_w(&outcome.series, at, length, (times.window.0, times.lag.0));
        let reported = metered.unwrap_or_else(exact);
        let time = (at + 1) as f64 * length as f64 / 1e6;
        reported.into_iter().for_each(|watts| all.push(Metric::new(&format!("read_power_w@{time}ms"), watts)));
    }
}

/// Under stable load every detected surge is false: accuracy over all (I/O thread, tick) pairs (errata 1: the paper does not define its
/// accuracy).
fn stable(outcome: &Outcome, context: &Context<'_>, all: &mut Vec<Metric>) {
    let said = |name: &str| outcome.view.iter().find(|(key, _)| *key == name).and_then(|(_, value)| value.parse().ok());
    let (Some(surges), judged) = (said("surges"), outcome.decisions.surge_checks) else { return };
    let (surges, ns): (f64, u64) = (surges, outcome.measured_ns + context.warm_up_ns);
    if judged > 0 {
        push(all, "surges_per_s", surges * 1e9 / ns as f64);
        // surges are counted from the start, decisions after the warm-up
        let measured = surges * outcome.measured_ns as f64 / ns as f64;
        push(all, "accuracy_percent", 100.0 * (1.0 - measured / judged as f64).max(0.0));
    }
}

/// Accuracy of detection: bursts in which an I/O thread moved soon enough (`output.detect`), otherwise see [`stable`].
fn detection(outcome: &Outcome, context: &Context<'_>, all: &mut Vec<Metric>) {
    let Some(Detect { label, within }) = &context.experiment.output.detect else {
        stable(outcome, context, all);
        return;
    };
    let length = context.experiment.series.0;
    let entries = (within.0.div_ceil(length)).max(1) as usize;
    let starts = starts(context.experiment, label).filter(|&start| start >= context.warm_up_ns);
    let (mut phases, mut detected) = (0_u64, 0_u64);
    for start in starts {
        let from = (start / length) as usize;
        let Some(soon) = outcome.series.get(from..from + entries) else { break };
        phases += 1;
        detected += u64::from(soon.iter().any(|stretch| stretch.moves > 0));
    }
    push(all, "phases", phases as f64);
    push(all, "phases_detected", detected as f64);
    push(all, "accuracy_percent", 100.0 * detected as f64 / phases as f64);
}

/// Start times of the phases of a label in the first group that has it, in nanoseconds.
fn starts(experiment: &Experiment, label: &str) -> impl Iterator<Item = u64> {
    let group = experiment.workload.iter().find(|group| group.phases.iter().any(|phase| phase.label == label));
    let phases = group.map(|group| group.phases.as_slice()).unwrap_or_default();
    let period: u64 = phases.iter().map(|phase| phase.length.0).sum();
    let mut offset = 0;
    let mut offsets = Vec::new();
    for phase in phases {
        if phase.label == label {
            offsets.push(offset);
        }
        offset += phase.length.0;
    }
    let end = experiment.duration.0;
    let rounds = end.checked_div(period).map_or(0, |rounds| rounds + 1);
    (0..rounds)
        .flat_map(move |round| offsets.clone().into_iter().map(move |offset| round * period + offset))
        .filter(move |&start| start < end)
}

#[cfg(test)]
mod tests;
