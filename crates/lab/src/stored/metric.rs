//! Names of metrics, measured and simulated.
//!
//! A name ends in its unit: `latency_p99_9_us`. The label of a phase is a prefix (`burst.latency_p99_us`), a time in the run a suffix
//! (`iops@12ms`). Names of modelled power contain `modelled` and the model: `cpu_modelled_generic_power_w`. [`TABLE`] lists all names of this
//! project, with placeholders; tools may add columns.

/// Set where the plant was saturated. The last metric of every run of a simulated server.
pub const SATURATED: &str = "saturated";

/// Which direction of a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Higher is better.
    Higher,
    /// Lower is better.
    Lower,
}

/// A metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name. `SCOPE` stands for one of [`SCOPES`], `CLASS` for one of [`CLASSES`], `NAME` for any text.
    pub name: &'static str,
    /// Its unit; `1`: dimensionless.
    pub unit: &'static str,
    /// The better direction; `None` where it depends on the question.
    pub better: Option<Better>,
    /// Its definition.
    pub meaning: &'static str,
}

/// Scopes of power and energy, the widest first. `others`: everything but CPU and SSDs (simulator only).
pub const SCOPES: [&str; 5] = ["system", "ssd_cpu", "ssd", "cpu", "others"];
/// Classes of I/O operations.
pub const CLASSES: [&str; 3] = ["read", "write", "trim"];

const fn metric(name: &'static str, unit: &'static str, better: Option<Better>, meaning: &'static str) -> Metric {
    Metric { name, unit, better, meaning }
}

const HIGHER: Option<Better> = Some(Better::Higher);
const LOWER: Option<Better> = Some(Better::Lower);

/// All metrics of this project. Of several matches the first applies.
pub const TABLE: [Metric; 104] = [
    metric("iops", "IOPS", HIGHER, "I/O operations (reads, writes, deallocations) per second"),
    metric("latency_mean_us", "us", LOWER, "mean latency of all I/O operations"),
    metric("latency_p50_us", "us", LOWER, "median latency of all I/O operations"),
    metric("latency_p99_us", "us", LOWER, "99th percentile of the latency of all I/O operations"),
    metric("latency_p99_9_us", "us", LOWER, "99.9th percentile of the latency of all I/O operations"),
    metric("latency_p99_99_us", "us", LOWER, "99.99th percentile of the latency of all I/O operations"),
    metric("latency_max_us", "us", LOWER, "maximum latency of all I/O operations"),
    metric("bytes_per_s", "B/s", HIGHER, "bytes of all I/O operations per second"),
    metric("bytes_per_cpu_s", "B/s", HIGHER, "bytes transferred per second of CPU time of the whole machine"),
    metric("bytes_per_j_SCOPE", "B/J", HIGHER, "bytes per joule"),
    metric("io_per_j_SCOPE", "1/J", HIGHER, "I/O operations per joule: `iops` over mean power"),
    metric("SCOPE_power_w", "W", LOWER, "mean power in the measured window"),
    metric("SCOPE_energy_j", "J", LOWER, "energy in the measured window"),
    metric("energy_per_operation_uj", "uJ", LOWER, "energy of the system per I/O operation"),
    metric(
        "above_budget_s",
        "s",
        LOWER,
        "longest time above the power budget since the first second not above it by more than 2 %; since its start if there is none (power: mean of the last second, here and below)",
    ),
    metric("above_budget_percent", "%", LOWER, "largest excess over the budget during `above_budget_s`"),
    metric("above_limit_s", "s", LOWER, "longest time more than 2 % above the budget"),
    metric("above_limit_percent", "%", LOWER, "largest excess over the budget during `above_limit_s`"),
    metric("within_limit_share", "1", HIGHER, "fraction of the measured time with power at most 2 % above the budget"),
    metric(
        "deviation_percent",
        "%",
        LOWER,
        "largest deviation from the budget later than 10 s after the start and each change",
    ),
    metric("budget_spread_w", "W", LOWER, "standard deviation of power minus budget"),
    metric(
        "settle_s",
        "s",
        LOWER,
        "longest time from a change of the budget until power stays within 2 % for one second",
    ),
    metric("budget_violated", "1", None, "1: power was more than 2 % above the budget for longer than 10 s"),
    metric("read_power_w", "W", None, "power as read by the machine's sensor, over time"),
    metric("background_bytes_per_s", "B/s", None, "bytes of background work completed per second"),
    metric("backlog_bytes", "B", LOWER, "background work left at the end"),
    metric("cap_waits_per_s", "1/s", LOWER, "commands delayed by a bandwidth cap per second"),
    metric("cap_wait_mean_us", "us", LOWER, "mean delay of commands by a bandwidth cap (part of their latency)"),
    metric("cap_wait_p99_us", "us", LOWER, "99th percentile of the delay by a bandwidth cap"),
    metric("changes_per_minute", "1/min", LOWER, "changes of settings per minute by a policy with a budget"),
    metric("polling_interval_p99_us", "us", LOWER, "99th percentile of the time between two polls of an I/O thread"),
    metric("SCOPE_share_percent", "%", None, "share of the system's power"),
    metric("domain_NAME_power_w", "W", LOWER, "mean power of one domain of a sensor"),
    metric("domain_NAME_energy_j", "J", LOWER, "energy of one domain of a sensor"),
    metric("cpu_busy_cores", "cores", LOWER, "busy CPUs, mean (accounting of the kernel)"),
    metric("cpu_user_cores", "cores", LOWER, "CPUs busy in user space, mean"),
    metric("cpu_system_cores", "cores", LOWER, "CPUs busy in the kernel, mean"),
    metric("cpu_stolen_cores", "cores", LOWER, "CPU time that the hypervisor gave to other guests (steal), mean"),
    metric("cpu_frequency_ghz", "GHz", None, "mean frequency of all CPUs"),
    metric("cpu_us_per_operation", "us", LOWER, "CPU time of the whole machine per operation"),
    metric("load_1min", "1", LOWER, "load average over 1 minute"),
    metric("sampling_cost_percent", "%", LOWER, "CPU time of reading sensors, in per cent of one CPU"),
    metric("context_switches_per_s", "1/s", LOWER, "context switches per second"),
    metric("context_switches_per_operation", "1", LOWER, "context switches per operation"),
    metric("interrupts_per_s", "1/s", LOWER, "interrupts per second"),
    metric("interrupts_per_operation", "1", LOWER, "interrupts per operation"),
    metric("job_context_switches_per_io", "1", LOWER, "context switches of the workload's threads per I/O"),
    metric("drive_interrupts_per_io", "1", LOWER, "interrupts of the drive per I/O"),
    metric("target_requests_per_s", "1/s", HIGHER, "requests served per second, as counted by the target"),
    metric("target_scheduled_cores", "cores", LOWER, "CPU time of the target's cores (accounting of the kernel)"),
    metric("target_active_cores", "cores", LOWER, "cores of the target that process requests or poll without result"),
    metric("target_busy_cores", "cores", LOWER, "cores of the target that process requests"),
    metric("target_asleep_cores", "cores", HIGHER, "cores of the target that sleep"),
    metric("cores_awake", "cores", LOWER, "awake cores of the server, mean over time"),
    metric("capacity_share", "1", LOWER, "awake cores times relative frequency, as a fraction of all cores"),
    metric("wasted_over_required", "1", LOWER, "scheduled minus required capacity, relative to required capacity"),
    metric("wasted_over_required_at_peak", "1", LOWER, "`wasted_over_required` of a static allocation for the peak"),
    metric("moves_per_s", "1/s", LOWER, "moves of I/O threads by the policy per second"),
    metric("sleeps_per_s", "1/s", None, "cores put to sleep by the policy per second"),
    metric("wakes_per_s", "1/s", None, "cores woken by the policy per second"),
    metric("frequencies_per_s", "1/s", None, "frequency changes by the policy per second"),
    metric("refused_per_s", "1/s", LOWER, "refused commands of the policy per second"),
    metric("asked_per_s", "1/s", None, "policy invocations per second"),
    metric("surges_per_s", "1/s", LOWER, "bursts detected by the policy per second under stable load"),
    metric("deciding_share", "1", LOWER, "fraction of the main core's time for measurement, decisions and commands"),
    metric("algorithm_us", "us", LOWER, "main core's time per policy invocation"),
    metric("lateness_us", "us", LOWER, "mean delay of policy invocations"),
    metric(
        "accuracy_percent",
        "%",
        HIGHER,
        "bursts detected in time; without `output.detect`: ticks without a false detection",
    ),
    metric("phases", "phases", None, "phases in which a burst was to be detected"),
    metric("phases_detected", "phases", HIGHER, "phases in which the burst was detected in time"),
    metric("moves", "moves", LOWER, "moves of I/O threads, over time"),
    metric("latency_sum_of_jobs_us", "us", LOWER, "sum of the mean latencies of the workload's jobs"),
    metric("written_bytes", "B", None, "bytes written by the host"),
    metric("drive_busy_after_s", "s", LOWER, "duration of garbage collection after the last write"),
    metric("joules_per_day", "J", LOWER, "energy of a day, estimated from the replayed windows"),
    metric("joules_per_day_low", "J", LOWER, "lower end of the 95 % interval of `joules_per_day`"),
    metric("joules_per_day_high", "J", LOWER, "upper end of the 95 % interval of `joules_per_day`"),
    metric("kwh_per_month", "kWh", LOWER, "energy of a month at that rate"),
    metric("replayed_windows", "windows", None, "simulated windows of the trace"),
    metric("replayed_share", "1", None, "simulated fraction of the trace"),
    metric("trace_requests", "requests", None, "requests in the trace"),
    metric("trace_iops", "IOPS", None, "mean rate of the trace"),
    metric("peak_over_mean", "1", None, "ratio of the trace's peak rate to its mean rate"),
    metric("oracle_lower_j", "J", None, "lower bound on the energy of any schedule of sleeping cores (open loops)"),
    metric(
        "oracle_upper_j",
        "J",
        None,
        "energy of a known schedule of sleeping cores: upper bound on the optimum (open loops)",
    ),
    metric("oracle_all_states_lower_j", "J", None, "`oracle_lower_j` with all sleep states"),
    metric("oracle_all_states_upper_j", "J", None, "`oracle_upper_j` with all sleep states"),
    metric("c1_floor_j", "J", None, "energy if every idle core slept in C-1 without transition costs"),
    metric("deep_floor_j", "J", None, "energy if every idle core slept in the deepest state without transition costs"),
    metric("joules_above_c1_floor", "J", LOWER, "energy minus `c1_floor_j`"),
    metric("joules_above_deep_floor", "J", LOWER, "energy minus `deep_floor_j`"),
    metric("warm_up_ms", "ms", None, "unmeasured start of the run"),
    metric("saturated", "1", None, "1: offered load exceeded capacity; such runs are excluded from means"),
    metric(
        "io_edp_NAME_js_SCOPE",
        "J s",
        LOWER,
        "energy-delay product: energy of one I/O times its latency (`mean`, `p99`)",
    ),
    metric(
        "io_power_delay_NAME_ws_SCOPE",
        "W s",
        LOWER,
        "mean power times latency (`mean`, `p99`), the EDP of the thesis's tool",
    ),
    metric("NAME_edp_NAME_js_SCOPE", "J s", LOWER, "energy-delay product of a family or kind of operation"),
    metric("NAME_power_delay_NAME_ws_SCOPE", "W s", LOWER, "mean power times latency of a family or kind of operation"),
    metric("NAME_bytes_per_j_SCOPE", "B/J", HIGHER, "bytes of transactions or operations per joule"),
    metric("NAME_per_j_SCOPE", "1/J", HIGHER, "transactions or operations per joule"),
    metric("CLASS_iops", "IOPS", HIGHER, "I/O operations of a class per second"),
    metric("NAME_bytes_per_s", "B/s", HIGHER, "bytes of a class, family or kind of operation per second"),
    metric("NAME_latency_mean_us", "us", LOWER, "mean latency of a class, family or kind of operation"),
    metric("NAME_latency_NAME_us", "us", LOWER, "latency percentile of a class, family or kind of operation"),
    metric("NAME_per_s", "1/s", None, "transactions, operations or one kind of operation per second"),
];

/// The metric of a name; `None` for columns of a tool.
#[must_use]
pub fn find(name: &str) -> Option<&'static Metric> {
    let name = bare(name).replacen("_above_idle", "", 1);
    TABLE
        .iter()
        .find(|metric| fits(metric.name, &name) || without_model(&name).is_some_and(|name| fits(metric.name, &name)))
}

/// The unit of a metric, from the table or the suffix of the name; otherwise `1`.
#[must_use]
pub fn unit(name: &str) -> &'static str {
    let end = || end(bare(name)).map(|(_, unit)| unit);
    find(name).map(|metric| metric.unit).or_else(end).unwrap_or("1")
}

/// The name without its unit: `pause time` of `pause_time_ms`.
#[must_use]
pub fn title(name: &str) -> String {
    let unit = end(name).filter(|(end, _)| !end.starts_with("_per"));
    unit.and_then(|(end, _)| name.strip_suffix(end)).unwrap_or(name).replace('_', " ")
}

/// The longest suffix of a name that is a unit, and that unit.
fn end(name: &str) -> Option<(&'static str, &'static str)> {
    const ENDS: [(&str, &str); 14] = [
        ("_ns", "ns"),
        ("_us", "us"),
        ("_ms", "ms"),
        ("_s", "s"),
        ("_percent", "%"),
        ("_bytes", "B"),
        ("_count", "count"),
        ("_iops", "IOPS"),
        ("_per_minute", "1/min"),
        ("_uj", "uJ"),
        ("_per_s", "1/s"),
        ("_cores", "cores"),
        ("_w", "W"),
        ("_j", "J"),
    ];
    ENDS.into_iter().filter(|(end, _)| name.ends_with(end)).max_by_key(|(end, _)| end.len())
}

/// The name without the label of a phase and the time in the run.
#[must_use]
pub fn bare(name: &str) -> &str {
    let name = name.split('@').next().unwrap_or(name);
    name.rsplit('.').next().unwrap_or(name)
}

/// The rate of all I/O operations (`io`), of a class, or of another family or kind of operations.
#[must_use]
pub fn rate(of: &str) -> String {
    match of {
        "io" => "iops".to_owned(),
        class if CLASSES.contains(&class) => format!("{class}_iops"),
        other => format!("{other}_per_s"),
    }
}

/// A latency (`mean`, `p99_9`) of a class, family or kind of operations.
#[must_use]
pub fn latency(of: &str, which: &str) -> String {
    if of == "io" { format!("latency_{which}_us") } else { format!("{of}_latency_{which}_us") }
}

/// The scope of the power or energy in a metric, if any.
#[must_use]
pub fn scope(name: &str) -> Option<&'static str> {
    let name = bare(name).replacen("_above_idle", "", 1);
    let of_power = |scope: &str| {
        let rest = name.strip_prefix(scope);
        rest.is_some_and(|rest| ["_power_w", "_energy_j"].contains(&rest))
    };
    let of_energy = |scope: &str| {
        let per = ["_per_j_", "_js_", "_ws_"].iter().any(|unit| name.contains(unit));
        per && name.ends_with(&format!("_{scope}"))
    };
    SCOPES.into_iter().find(|scope| of_power(scope) || of_energy(scope))
}

/// `cpu_power_w` of `cpu_modelled_generic_power_w`: the name of the model ends at a known suffix.
fn without_model(name: &str) -> Option<String> {
    let (before, after) = name.split_once("_modelled_")?;
    let rest = ["_power_w", "_energy_j", "_share_percent"].into_iter().find(|rest| after.ends_with(rest)).unwrap_or("");
    Some(format!("{before}{rest}"))
}

/// Whether a name matches a template.
fn fits(template: &str, name: &str) -> bool {
    let Some((at, word)) =
        ["SCOPE", "CLASS", "NAME"].iter().filter_map(|word| Some((template.find(word)?, *word))).min()
    else {
        return template == name;
    };
    let (before, after) = (&template[..at], &template[at + word.len()..]);
    let Some(rest) = name.strip_prefix(before) else { return false };
    match word {
        "SCOPE" => SCOPES.iter().any(|scope| rest.strip_prefix(scope).is_some_and(|rest| fits(after, rest))),
        "CLASS" => CLASSES.iter().any(|class| rest.strip_prefix(class).is_some_and(|rest| fits(after, rest))),
        _ => (1..=rest.len()).any(|end| rest.is_char_boundary(end) && fits(after, &rest[end..])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_and_suffixes_do_not_prevent_a_match() {
        let found = |name: &str| find(name).map(|metric| metric.name);
        for (name, expected) in [
            ("burst.latency_p99_9_us", "latency_p99_9_us"),
            ("iops@12.5ms", "iops"),
            ("read_iops", "CLASS_iops"),
            ("read_latency_p99_us", "NAME_latency_NAME_us"),
            ("ssd_cpu_power_above_idle_w", "SCOPE_power_w"),
            ("cpu_modelled_generic_power_w", "SCOPE_power_w"),
            ("io_per_j_ssd_cpu_modelled_a_b", "io_per_j_SCOPE"),
            ("domain_rapl_package_0_power_w", "domain_NAME_power_w"),
            ("transaction_new_order_per_s", "NAME_per_s"),
        ] {
            assert_eq!(found(name), Some(expected), "{name}");
        }
        assert_eq!(found("phase0_p99_ns"), None);
    }

    #[test]
    fn every_name_is_unique_and_its_own_first_match() {
        for metric in TABLE {
            let example = metric.name.replace("SCOPE", "ssd_cpu").replace("CLASS", "read").replace("NAME", "x");
            assert_eq!(find(&example), Some(&metric), "{example}");
        }
    }

    #[test]
    fn units_are_of_the_table_or_the_longest_suffix() {
        let units =
            ["latency_p99_us", "iops", "queries_per_s", "pause_s", "orders_per_minute", "wait_ms", "odd"].map(unit);
        assert_eq!(units, ["us", "IOPS", "1/s", "s", "1/min", "ms", "1"]);
    }

    #[test]
    fn metrics_of_power_have_a_scope() {
        let scopes =
            ["ssd_cpu_power_w", "cpu_energy_above_idle_j", "io_edp_p99_js_ssd_cpu_above_idle", "cpu_busy_cores"];
        assert_eq!(scopes.map(scope), [Some("ssd_cpu"), Some("cpu"), Some("ssd_cpu"), None]);
    }
}
