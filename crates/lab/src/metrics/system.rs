//! Metrics of the machine: CPU time, frequency, load, context switches, interrupts, and the cost of sampling.

use super::Metric;
use crate::record::Sensed;

/// Metrics of the sensors that were read, also per operation if the rate is known.
pub(super) fn metrics(sensed: &Sensed, operations_per_s: Option<f64>) -> Vec<Metric> {
    let mut metrics = Vec::new();
    let mut add = |key: &str, title: &str, value: Option<f64>| {
        metrics.extend(value.map(|value| Metric::new(key, title, Ok(value))));
    };
    let spent = |columns: &[&str]| cpu_cores(sensed, columns);
    add("cpu_busy_cores", "busy CPUs", spent(&BUSY_KINDS));
    add("cpu_user_cores", "CPUs busy in user space", spent(&["user", "nice"]));
    add("cpu_system_cores", "CPUs busy in the kernel", spent(&["system", "irq", "softirq"]));
    add("cpu_stolen_cores", "CPU time given to other guests (steal)", spent(&["steal"]));
    add("cpu_frequency_ghz", "mean frequency of all CPUs", mean_of(sensed, "frequency/", "_khz").map(|khz| khz / 1e6));
    add("load_1min", "load average", observed(sensed, "kernel/load-1min_milli").map(|milli| milli / 1e3));
    for (key, title, column) in [
        ("context_switches", "context switches", "kernel/context-switches_count_per_s"),
        ("interrupts", "interrupts", "kernel/interrupts_count_per_s"),
    ] {
        let rate = observed(sensed, column);
        add(&format!("{key}_per_s"), &format!("{title} per second"), rate);
        let each = rate.zip(operations_per_s.filter(|rate| *rate > 0.0)).map(|(rate, operations)| rate / operations);
        add(&format!("{key}_per_operation"), &format!("{title} per operation"), each);
    }
    target(sensed, &mut add);
    let percent = sensed.sampling_cost_ppm as f64 / 1e4;
    add("sampling_cost_percent", "CPU time of sampling, of one CPU", Some(percent));
    metrics
}

/// Bytes per second of CPU time of the whole machine, and CPU time per operation.
pub(super) fn per_cpu_time(sensed: &Sensed, bytes_per_s: f64, operations_per_s: Option<f64>) -> Vec<Metric> {
    let Some(busy) = cpu_cores(sensed, &BUSY_KINDS).filter(|busy| *busy > 0.0) else { return Vec::new() };
    let bytes = Metric::new("bytes_per_cpu_s", "bytes per second of CPU time", Ok(bytes_per_s / busy));
    let each = operations_per_s.filter(|rate| *rate > 0.0).map(|rate| busy * 1e6 / rate);
    let each = each.map(|us| Metric::new("cpu_us_per_operation", "CPU time per operation", Ok(us)));
    [bytes].into_iter().chain(each).collect()
}

/// Kinds of CPU time that are not idle.
const BUSY_KINDS: [&str; 5] = ["user", "nice", "system", "irq", "softirq"];

/// Metrics of a server (sensor `target`): time of its reactors as a number of cores, and commands of its policy.
fn target(sensed: &Sensed, add: &mut impl FnMut(&str, &str, Option<f64>)) {
    let rate = |name: &str| observed(sensed, &format!("target/{name}_per_s"));
    let cores = |name: &str| rate(&format!("{name}_ns")).map(|ns| ns / 1e9);
    let active = cores("busy").zip(cores("polling-idle")).map(|(busy, idle)| busy + idle);
    add("target_requests_per_s", "requests that the target served", rate("requests_count"));
    add("target_scheduled_cores", "target's cores, CPU time (accounting of the kernel)", cores("scheduled"));
    add("target_active_cores", "target's cores, processing requests or polling without result", active);
    add("target_busy_cores", "target's cores, processing requests", cores("busy"));
    add("target_asleep_cores", "target's cores, asleep", cores("asleep"));
    add("cores_awake", "target's awake cores", observed(sensed, "target/reactors-awake_count"));
    for (key, command) in [("moves", "moves"), ("sleeps", "sleeps"), ("wakes", "wakes"), ("refused", "refusals")] {
        let title = format!("{command} by the target's policy");
        add(&format!("{key}_per_s"), &title, rate(&format!("{command}_count")));
    }
}

fn observed(sensed: &Sensed, column: &str) -> Option<f64> {
    sensed.observed.get(column).copied()
}

/// CPU time of some kinds, summed over all CPUs, as a number of CPUs.
fn cpu_cores(sensed: &Sensed, kinds: &[&str]) -> Option<f64> {
    let of_kind = |column: &str| {
        let rest = column.strip_prefix("cputime/")?.strip_suffix("_ns_per_s")?;
        rest.split_once('/').map(|(_, kind)| kinds.contains(&kind))
    };
    let found: Vec<f64> = sensed
        .observed
        .iter()
        .filter(|(column, _)| of_kind(column) == Some(true))
        .map(|(_, rate)| rate / 1e9)
        .collect();
    (!found.is_empty()).then(|| found.iter().sum())
}

/// Busy CPUs without the cores of a measured server, and the number of CPUs.
pub(super) fn busy_cpus(sensed: &Sensed) -> Option<(f64, usize)> {
    let of_server = observed(sensed, "target/scheduled_ns_per_s").map_or(0.0, |ns| ns / 1e9);
    let cpus =
        sensed.observed.keys().filter(|column| column.starts_with("cputime/") && column.ends_with("/user_ns_per_s"));
    Some((cpu_cores(sensed, &BUSY_KINDS)? - of_server, cpus.count()))
}

fn mean_of(sensed: &Sensed, prefix: &str, suffix: &str) -> Option<f64> {
    let fits = |column: &&String| column.starts_with(prefix) && column.ends_with(suffix);
    let found: Vec<f64> = sensed.observed.keys().filter(fits).filter_map(|column| observed(sensed, column)).collect();
    pilotlight_stats::mean::average(&found)
}
