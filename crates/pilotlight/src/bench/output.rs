//! What a run prints for people.

use std::fmt::Write as _;
use std::path::Path;

use pilotlight_bench::metrics::power::Group;
use pilotlight_bench::results::Results;
use pilotlight_bench::results::summary::{PointResult, Spread};
use pilotlight_bench::run::Senses;
use pilotlight_report::table::short;

use crate::table::Table;

/// Which metrics are in the table, by how their keys begin or end; the rest is in the files.
const SHOWN: [&str; 16] = [
    "io_per_s",
    "bytes_per_s",
    "transaction_per_s",
    "operation_per_s",
    "io_latency_mean_us",
    "io_latency_p99_us",
    "transaction_latency_mean_us",
    "operation_latency_mean_us",
    "operation_latency_p99_us",
    "cpu_busy_cores",
    "context_switches_per_operation",
    "job_context_switches_per_io",
    "drive_interrupts_per_io",
    "ssd_power_w",
    "cpu_power_w",
    "system_power_w",
];

/// Sensors, and plainly whether there are watts.
pub(super) fn say_sensors(senses: &Senses) {
    let names: Vec<&str> = senses.specs.iter().map(|spec| spec.config.name()).collect();
    println!("sensors    {}", if names.is_empty() { "none".to_owned() } else { names.join(", ") });
    for missing in &senses.missing {
        println!("not read   {missing}");
    }
    if !senses.has_measured_power() {
        println!(
            "\nThere is no power sensor on this machine that can be read: no watts are measured. What would exist:"
        );
        senses.survey.iter().for_each(|missing| println!("  {missing}"));
        let modelled = senses.specs.iter().any(|spec| spec.config.name() == "modelled");
        let words = if modelled {
            "Watts below are modelled from CPU time and labelled so; they measure nothing."
        } else {
            "With --sensor modelled there are watts of a model, labelled so."
        };
        println!("{words}\n");
    }
}

/// Results as a table, what was taken for SSD, CPU and system, notes, and where the rest is.
pub(super) fn people(results: &Results, folder: &Path) -> String {
    let keys = shown(results);
    let knobs = varied(results);
    let headings = knobs.iter().map(|knob| format!("<{knob}")).chain(["n".to_owned()]).chain(keys.iter().cloned());
    let headings: Vec<String> = headings.collect();
    let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    for point in &results.points {
        let place = knobs.iter().map(|knob| point.knobs.get(*knob).map(ToString::to_string).unwrap_or_default());
        let values = keys.iter().map(|key| value(point, key));
        table.row(place.chain([point.repeats.to_string()]).chain(values));
    }
    let mut text = format!("\n{}\n\n{table}\n", results.title);
    let _ = writeln!(text, "mean ± half of the 95 % interval over repeats (Student's t)");
    for group in Group::ALL {
        let names = results.taken.names(group);
        if !names.is_empty() {
            let _ = writeln!(text, "{} power is {}", group.name(), names.join(" + "));
        }
    }
    for point in results.points.iter().filter(|point| !point.failures.is_empty()) {
        let place = pilotlight_bench::results::summary::words(&point.knobs);
        let _ = writeln!(text, "failed: {place}: {}", point.failures.join("; "));
    }
    text += &crate::advise::map::ran(results);
    // Sensors were told of at the start.
    let told =
        |note: &&String| !["no ", "not read", "mechanism of completion"].iter().any(|told| note.starts_with(told));
    for note in results.notes.iter().filter(told) {
        let _ = writeln!(text, "note: {note}");
    }
    let _ = writeln!(text, "\n{}: results.csv, results.json, report.html, samples/", folder.display());
    text
}

/// Knobs that have more than one value.
fn varied(results: &Results) -> Vec<&String> {
    let several = |knob: &&String| {
        let first = results.points.first().and_then(|point| point.knobs.get(*knob));
        results.points.iter().any(|point| point.knobs.get(*knob) != first)
    };
    results.knobs.iter().filter(several).collect()
}

fn shown(results: &Results) -> Vec<String> {
    let there = |key: &str| results.points.iter().any(|point| point.values.contains_key(key));
    let usual = SHOWN.iter().map(|key| (*key).to_owned()).filter(|key| there(key));
    let modelled = |key: &str| key.contains("_modelled_") && key.ends_with("_power_w") && !key.starts_with("domain_");
    let efficient = |key: &str| key.contains("_per_j_") && !key.starts_with("bytes_") && !key.contains("above_idle");
    let others = results.metrics.iter().map(|about| about.key.clone());
    let others = others.filter(|key| there(key) && (modelled(key) || efficient(key)));
    let mut keys: Vec<String> = usual.chain(others).collect();
    if !keys.iter().any(|key| key.ends_with("_per_s")) {
        // No I/O, transactions or operations: whatever the command itself said.
        keys.extend(
            results
                .metrics
                .iter()
                .filter(|about| about.unit.is_empty())
                .map(|about| about.key.clone())
                .filter(|key| there(key) && !SHOWN.contains(&key.as_str()))
                .take(6),
        );
    }
    if keys.is_empty() {
        keys.extend(results.metrics.iter().map(|about| about.key.clone()).filter(|key| there(key)).take(8));
    }
    keys
}

fn value(point: &PointResult, key: &str) -> String {
    let Some(Spread { mean, low, high, .. }) = point.values.get(key) else { return "-".to_owned() };
    match (low, high) {
        (Some(low), Some(high)) => format!("{} ± {}", short(*mean), short((high - low) / 2.0)),
        _ => short(*mean),
    }
}
