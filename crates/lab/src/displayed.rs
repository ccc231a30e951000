//! The metrics that are displayed by default, and their order.

use crate::stored::metric;

use crate::results::Results;
use crate::results::summary::MetricInfo;

/// Families of work, by prefix of their metrics: I/Os, transactions, operations of an application.
pub const FAMILIES: [&str; 3] = ["io", "transaction", "operation"];
/// Scopes of energy, the widest first.
pub const SCOPES: [&str; 4] = ["system", "ssd_cpu", "ssd", "cpu"];

/// The keys compared by default, without models: rates, latencies, power, efficiency, CPU time.
#[must_use]
pub fn main_keys() -> Vec<String> {
    let of_family = |family: &str| {
        let work = [metric::rate(family), metric::latency(family, "mean"), metric::latency(family, "p99")];
        let per_joule = SCOPES.map(|scope| format!("{family}_per_j_{scope}"));
        work.into_iter().chain(per_joule).collect::<Vec<_>>()
    };
    let power = SCOPES.map(|scope| format!("{scope}_power_w"));
    FAMILIES
        .into_iter()
        .flat_map(of_family)
        .chain(power)
        .chain(["cpu_busy_cores", "cores_awake"].map(str::to_owned))
        .collect()
}

/// Rates and efficiencies in place of those of [`main_keys`] for a workload that counts only bytes.
#[must_use]
pub fn byte_keys() -> Vec<String> {
    let of_family = |family: &str| {
        let stem = byte_stem(family);
        let per_joule = SCOPES.map(|scope| format!("{stem}_per_j_{scope}"));
        [format!("{stem}_per_s")].into_iter().chain(per_joule).collect::<Vec<_>>()
    };
    FAMILIES.into_iter().flat_map(of_family).collect()
}

/// Prefix of the metrics of a family's bytes.
#[must_use]
pub fn byte_stem(family: &str) -> String {
    if family == "io" { "bytes".to_owned() } else { format!("{family}_bytes") }
}

/// Metrics displayed of any result, in this order, before power and efficiency.
const USUAL_METRICS: [&str; 15] = [
    "iops",
    "bytes_per_s",
    "transaction_per_s",
    "transaction_bytes_per_s",
    "operation_per_s",
    "operation_bytes_per_s",
    "latency_mean_us",
    "latency_p99_us",
    "transaction_latency_mean_us",
    "transaction_latency_p99_us",
    "operation_latency_mean_us",
    "cpu_busy_cores",
    "cores_awake",
    "job_context_switches_per_io",
    "drive_interrupts_per_io",
];
/// Maximum number of displayed metrics of a result without usual ones.
const MAX_OTHERS: usize = 12;

/// The metrics in tables and charts that have a value: those named by the experiment, the usual ones, power, efficiency.
#[must_use]
pub fn displayed(results: &Results) -> Vec<&MetricInfo> {
    let is_power =
        |info: &&MetricInfo| info.unit == "W" && !info.key.starts_with("domain_") && !info.key.contains("above_idle");
    let is_efficiency = |info: &&MetricInfo| {
        let key = &info.key;
        !key.contains("above_idle") && (key.contains("_per_j_") || key.contains("_edp_"))
    };
    let named = results.metrics_first.iter().filter_map(|key| results.find(key));
    let usual = USUAL_METRICS.iter().filter_map(|key| results.metric(key));
    let power = results.metrics.iter().filter(is_power);
    let efficiency = results.metrics.iter().filter(is_efficiency);
    let mut displayed: Vec<&MetricInfo> = Vec::new();
    for info in named.chain(usual).chain(power).chain(efficiency) {
        if results.has(&info.key) && !displayed.iter().any(|other| other.key == info.key) {
            displayed.push(info);
        }
    }
    if displayed.is_empty() {
        displayed.extend(results.metrics.iter().filter(|info| results.has(&info.key)).take(MAX_OTHERS));
    }
    displayed
}

/// [`displayed`] for a terminal: without energy-delay products and bytes per joule.
#[must_use]
pub fn for_terminal(results: &Results) -> Vec<&MetricInfo> {
    let named = |info: &MetricInfo| {
        results.metrics_first.contains(&info.key) || results.metrics_first.contains(&info.without_model())
    };
    let narrow = |info: &&MetricInfo| {
        let wide = info.key.contains("_edp_") || info.key.starts_with("bytes_per_j_");
        !wide || named(info)
    };
    displayed(results).into_iter().filter(narrow).collect()
}

/// The family of the work: the first with counted operations, otherwise the first with counted bytes.
#[must_use]
pub fn family(results: &Results) -> Option<&'static str> {
    let counted = FAMILIES.into_iter().find(|family| is_counted(results, family));
    counted.or_else(|| FAMILIES.into_iter().find(|family| results.has(&format!("{}_per_s", byte_stem(family)))))
}

/// Whether the operations of a family were counted.
#[must_use]
pub fn is_counted(results: &Results, family: &str) -> bool {
    results.has(&metric::rate(family))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_named_by_the_experiment_are_first_and_unique() {
        use crate::fixtures::{knob, results};
        let metrics = [("iops", "1/s"), ("other_ns", "ns"), ("bytes_per_j_cpu", "B/J"), ("cpu_power_w", "W")];
        let mut given = results(&[knob("a", &["x", "y"])], 2, &metrics, |_| vec![1.0, 2.0, 3.0, 4.0]).results;
        let keys = |metrics: Vec<&MetricInfo>| metrics.iter().map(|info| info.key.clone()).collect::<Vec<_>>();
        assert_eq!(keys(displayed(&given)), ["iops", "cpu_power_w", "bytes_per_j_cpu"]);
        assert_eq!(keys(for_terminal(&given)), ["iops", "cpu_power_w"], "a terminal is narrow");
        given.metrics_first =
            ["cpu_power_w", "no_such_metric", "other_ns", "bytes_per_j_cpu"].map(str::to_owned).to_vec();
        let all = ["cpu_power_w", "other_ns", "bytes_per_j_cpu", "iops"];
        assert_eq!(
            (keys(displayed(&given)), keys(for_terminal(&given))),
            (all.map(str::to_owned).to_vec(), all.map(str::to_owned).to_vec())
        );
        let alone = results(&[knob("a", &["x"])], 1, &[("written_count", "count")], |_| vec![1.0]).results;
        assert_eq!(keys(displayed(&alone)), ["written_count"], "any metric, if there is no usual one");
    }
}
