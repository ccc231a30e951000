//! Every metric by its one name, whether it was measured or simulated.
//!
//! *Names.* A name ends in its unit: `latency_p99_9_us`. Before it may stand the label of the phases that it is of (`burst.latency_p99_us`),
//! behind it the moment (`iops@12ms`). What rests on a model says so: `cpu_modelled_generic_power_w`. *Table.* [`TABLE`] has every name that
//! this project gives, with placeholders; a tool may have columns of its own beside.

/// What says that the plant could not keep up. It is the last metric of every run of a simulated server.
pub const SATURATED: &str = "saturated";

/// Whether more of something is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name. `SCOPE` stands for one of [`SCOPES`], `CLASS` for one of [`CLASSES`], `NAME` for anything.
    pub name: &'static str,
    /// Its unit; `1` if it has none.
    pub unit: &'static str,
    /// Whether more is better; `None` where that depends on the question.
    pub better: Option<Better>,
    /// In words.
    pub what: &'static str,
}

/// Whose power is added up, the widest first. `others` is what the simulator has beside CPU and SSDs.
pub const SCOPES: [&str; 5] = ["system", "ssd_cpu", "ssd", "cpu", "others"];
/// Classes of I/O operations.
pub const CLASSES: [&str; 3] = ["read", "write", "trim"];

const fn metric(name: &'static str, unit: &'static str, better: Option<Better>, what: &'static str) -> Metric {
    Metric { name, unit, better, what }
}

const HIGHER: Option<Better> = Some(Better::Higher);
const LOWER: Option<Better> = Some(Better::Lower);

/// Every metric that this project names. Of several that fit, the first counts.
pub const TABLE: [Metric; 104] = [
    metric("iops", "IOPS", HIGHER, "I/O operations (reads, writes, deallocations) per second"),
    metric("latency_mean_us", "us", LOWER, "mean latency of all I/O operations"),
    metric("latency_p50_us", "us", LOWER, "median latency of all I/O operations"),
    metric("latency_p99_us", "us", LOWER, "99th percentile of the latency of all I/O operations"),
    metric("latency_p99_9_us", "us", LOWER, "99.9th percentile"),
    metric("latency_p99_99_us", "us", LOWER, "99.99th percentile"),
    metric("latency_max_us", "us", LOWER, "the longest"),
    metric("bytes_per_s", "B/s", HIGHER, "bytes of all I/O operations per second"),
    metric("bytes_per_cpu_s", "B/s", HIGHER, "bytes moved per second of CPU time of the whole machine"),
    metric("bytes_per_j_SCOPE", "B/J", HIGHER, "bytes per joule"),
    metric("io_per_j_SCOPE", "1/J", HIGHER, "I/O operations per joule: `iops` over mean power"),
    metric("SCOPE_power_w", "W", LOWER, "mean power of the measured window"),
    metric("SCOPE_energy_j", "J", LOWER, "energy of the measured window"),
    metric("energy_per_operation_uj", "uJ", LOWER, "energy of the system per I/O operation"),
    metric(
        "above_budget_s",
        "s",
        LOWER,
        "longest time above the power budget; power here and below: mean of the last second",
    ),
    metric("above_budget_percent", "%", LOWER, "largest excess over the budget in that time"),
    metric("above_limit_s", "s", LOWER, "longest time above the budget by more than 2 %"),
    metric("above_limit_percent", "%", LOWER, "largest excess over the budget in that time"),
    metric("within_limit_share", "1", HIGHER, "share of the measured time within 2 % of the budget"),
    metric("deviation_percent", "%", LOWER, "largest distance from the budget, 10 s after the start and each change"),
    metric("budget_spread_w", "W", LOWER, "standard deviation of power less budget"),
    metric("settle_s", "s", LOWER, "longest time from a change of the budget until power is within 2 % for a second"),
    metric("budget_violated", "1", None, "1 where power was above the budget by more than 2 % for longer than 10 s"),
    metric("read_power_w", "W", None, "power as the machine's sensor tells it, over time"),
    metric("background_bytes_per_s", "B/s", None, "bytes of background work that drives completed per second"),
    metric("backlog_bytes", "B", LOWER, "background work that is still to be done at the end"),
    metric("cap_waits_per_s", "1/s", LOWER, "commands that waited for a bandwidth cap"),
    metric("cap_wait_mean_us", "us", LOWER, "how long they waited, mean; a part of their latency"),
    metric("cap_wait_p99_us", "us", LOWER, "how long they waited, 99th percentile"),
    metric("changes_per_minute", "1/min", LOWER, "settings that a policy with a budget has changed"),
    metric("polling_interval_p99_us", "us", LOWER, "99th percentile of the time between two polls of an I/O thread"),
    metric("SCOPE_share_percent", "%", None, "share of the system's power"),
    metric("domain_NAME_power_w", "W", LOWER, "mean power of one domain of a sensor"),
    metric("domain_NAME_energy_j", "J", LOWER, "energy of one domain of a sensor"),
    metric("cpu_busy_cores", "cores", LOWER, "CPU time per time, as accounted by the kernel"),
    metric("cpu_user_cores", "cores", LOWER, "the same, in user space"),
    metric("cpu_system_cores", "cores", LOWER, "the same, in the kernel"),
    metric("cpu_stolen_cores", "cores", LOWER, "CPU time that the hypervisor gave to other guests"),
    metric("cpu_frequency_ghz", "GHz", None, "frequency, mean of all CPUs"),
    metric("cpu_us_per_operation", "us", LOWER, "CPU time of the whole machine per operation"),
    metric("load_1min", "1", LOWER, "load average"),
    metric("sampling_cost_percent", "%", LOWER, "CPU time of sampling, of one CPU"),
    metric("context_switches_per_s", "1/s", LOWER, "context switches per second"),
    metric("context_switches_per_operation", "1", LOWER, "context switches per operation"),
    metric("interrupts_per_s", "1/s", LOWER, "interrupts per second"),
    metric("interrupts_per_operation", "1", LOWER, "interrupts per operation"),
    metric("job_context_switches_per_io", "1", LOWER, "context switches of the workload's threads per I/O"),
    metric("drive_interrupts_per_io", "1", LOWER, "interrupts of the drive per I/O"),
    metric("target_requests_per_s", "1/s", HIGHER, "requests that the target says it served"),
    metric("target_scheduled_cores", "cores", LOWER, "CPU time of the target's cores, as accounted by the kernel"),
    metric("target_active_cores", "cores", LOWER, "the target's cores, busy or in empty polls"),
    metric("target_busy_cores", "cores", LOWER, "the target's cores, busy"),
    metric("target_asleep_cores", "cores", HIGHER, "the target's cores, asleep"),
    metric("cores_awake", "cores", LOWER, "cores of the server that are awake, mean over time"),
    metric("capacity_share", "1", LOWER, "cores awake times frequency over the highest, of all cores"),
    metric("wasted_over_required", "1", LOWER, "capacity that was scheduled and not needed over what was needed"),
    metric("wasted_over_required_at_peak", "1", LOWER, "the same with the capacity of the peak throughout"),
    metric("moves_per_s", "1/s", LOWER, "I/O threads that the policy moved"),
    metric("sleeps_per_s", "1/s", None, "cores that the policy put to sleep"),
    metric("wakes_per_s", "1/s", None, "cores that the policy woke"),
    metric("frequencies_per_s", "1/s", None, "frequencies that the policy set"),
    metric("refused_per_s", "1/s", LOWER, "commands of the policy that were refused"),
    metric("asked_per_s", "1/s", None, "how often the policy was asked"),
    metric("surges_per_s", "1/s", LOWER, "bursts that the policy saw under stable load"),
    metric("deciding_share", "1", LOWER, "of the main core's time: looking, deciding and commanding"),
    metric("algorithm_us", "us", LOWER, "the same for each time that the policy was asked"),
    metric(
        "lateness_us",
        "us",
        LOWER,
        "how late the policy was asked, summed and divided by the times that it was asked",
    ),
    metric(
        "accuracy_percent",
        "%",
        HIGHER,
        "bursts detected in time; without `output.detect` ticks without a false detection",
    ),
    metric("phases", "phases", None, "phases in which a burst was to be detected"),
    metric("phases_detected", "phases", HIGHER, "those in which it was"),
    metric("moves", "moves", LOWER, "I/O threads moved, over time"),
    metric("latency_sum_of_jobs_us", "us", LOWER, "mean latencies of the workload's jobs, added up"),
    metric("written_bytes", "B", None, "bytes written by the host"),
    metric("drive_busy_after_s", "s", LOWER, "garbage collection after the last write"),
    metric("joules_per_day", "J", LOWER, "energy of a day, from the windows that were replayed"),
    metric("joules_per_day_low", "J", LOWER, "lower end of its 95 % interval"),
    metric("joules_per_day_high", "J", LOWER, "upper end of its 95 % interval"),
    metric("kwh_per_month", "kWh", LOWER, "energy of a month"),
    metric("replayed_windows", "windows", None, "windows of the trace that were simulated"),
    metric("replayed_share", "1", None, "their share of the trace"),
    metric("trace_requests", "requests", None, "requests in the trace"),
    metric("trace_iops", "IOPS", None, "mean rate of the trace"),
    metric("peak_over_mean", "1", None, "the trace's peak rate over its mean rate"),
    metric("oracle_lower_j", "J", None, "no schedule of sleeping cores takes less energy (open loops)"),
    metric("oracle_upper_j", "J", None, "a schedule of sleeping cores takes this energy (open loops)"),
    metric("oracle_all_states_lower_j", "J", None, "the same with all sleep states"),
    metric("oracle_all_states_upper_j", "J", None, "the same with all sleep states"),
    metric("c1_floor_j", "J", None, "energy if every core slept in C-1 whenever it had nothing to do"),
    metric("deep_floor_j", "J", None, "the same in the deepest state"),
    metric("joules_above_c1_floor", "J", LOWER, "energy above the first floor"),
    metric("joules_above_deep_floor", "J", LOWER, "energy above the second floor"),
    metric("warm_up_ms", "ms", None, "what was cut off at the beginning"),
    metric("saturated", "1", None, "1 where the machine could not keep up; such a run is never averaged"),
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
        "mean power times latency (`mean`, `p99`): what the thesis's tool calls EDP",
    ),
    metric("NAME_edp_NAME_js_SCOPE", "J s", LOWER, "the same of a family or kind of operation"),
    metric("NAME_power_delay_NAME_ws_SCOPE", "W s", LOWER, "the same of a family or kind of operation"),
    metric("NAME_bytes_per_j_SCOPE", "B/J", HIGHER, "bytes of transactions or operations per joule"),
    metric("NAME_per_j_SCOPE", "1/J", HIGHER, "transactions or operations per joule"),
    metric("CLASS_iops", "IOPS", HIGHER, "I/O operations of a class per second"),
    metric("NAME_bytes_per_s", "B/s", HIGHER, "bytes of a class, family or kind of operation per second"),
    metric("NAME_latency_mean_us", "us", LOWER, "mean latency of a class, family or kind of operation"),
    metric("NAME_latency_NAME_us", "us", LOWER, "percentile of the same"),
    metric("NAME_per_s", "1/s", None, "transactions, operations, or one kind of them per second"),
];

/// What a metric is; `None` of one that only a tool knows.
#[must_use]
pub fn find(name: &str) -> Option<&'static Metric> {
    let name = bare(name).replacen("_above_idle", "", 1);
    TABLE
        .iter()
        .find(|metric| fits(metric.name, &name) || without_model(&name).is_some_and(|name| fits(metric.name, &name)))
}

/// The unit of a metric: that of the table, or what the name ends in; `1` where neither says one.
#[must_use]
pub fn unit(name: &str) -> &'static str {
    let end = || end(bare(name)).map(|(_, unit)| unit);
    find(name).map(|metric| metric.unit).or_else(end).unwrap_or("1")
}

/// What a name says without its unit: `pause time` of `pause_time_ms`.
#[must_use]
pub fn words(name: &str) -> String {
    let unit = end(name).filter(|(end, _)| !end.starts_with("_per"));
    unit.and_then(|(end, _)| name.strip_suffix(end)).unwrap_or(name).replace('_', " ")
}

/// The unit that a name ends in, and that end: `_per_s` before `_s`, the longest.
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

/// A name without the label of phases before it and the moment behind it.
#[must_use]
pub fn bare(name: &str) -> &str {
    let name = name.split('@').next().unwrap_or(name);
    name.rsplit('.').next().unwrap_or(name)
}

/// The rate of all I/O operations (`io`), of a class of them, or of another family or kind of operations.
#[must_use]
pub fn rate(of: &str) -> String {
    match of {
        "io" => "iops".to_owned(),
        class if CLASSES.contains(&class) => format!("{class}_iops"),
        other => format!("{other}_per_s"),
    }
}

/// A latency (`mean`, `p99_9`) of the same.
#[must_use]
pub fn latency(of: &str, which: &str) -> String {
    if of == "io" { format!("latency_{which}_us") } else { format!("{of}_latency_{which}_us") }
}

/// Whose power or energy a metric rests on; `None` if on nobody's.
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

/// `cpu_power_w` of `cpu_modelled_generic_power_w`: what follows the model begins with one of a few words, or ends the name.
fn without_model(name: &str) -> Option<String> {
    let (before, after) = name.split_once("_modelled_")?;
    let rest = ["_power_w", "_energy_j", "_share_percent"].into_iter().find(|rest| after.ends_with(rest)).unwrap_or("");
    Some(format!("{before}{rest}"))
}

/// Whether a name is one that a template stands for.
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
    fn names_are_found_whatever_stands_around_them() {
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
    fn every_name_is_there_once_and_is_its_own_first_match() {
        for metric in TABLE {
            let example = metric.name.replace("SCOPE", "ssd_cpu").replace("CLASS", "read").replace("NAME", "x");
            assert_eq!(find(&example), Some(&metric), "{example}");
        }
    }

    #[test]
    fn units_are_those_of_the_table_or_the_longest_end() {
        let units =
            ["latency_p99_us", "iops", "queries_per_s", "pause_s", "orders_per_minute", "wait_ms", "odd"].map(unit);
        assert_eq!(units, ["us", "IOPS", "1/s", "s", "1/min", "ms", "1"]);
    }

    #[test]
    fn power_and_what_follows_from_it_have_a_scope() {
        let scopes =
            ["ssd_cpu_power_w", "cpu_energy_above_idle_j", "io_edp_p99_js_ssd_cpu_above_idle", "cpu_busy_cores"];
        assert_eq!(scopes.map(scope), [Some("ssd_cpu"), Some("cpu"), Some("ssd_cpu"), None]);
    }
}
