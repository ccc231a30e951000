//! What a sweep leaves: a table for people, files for programs, a report.

use std::path::Path;

use pilotlight_lab::simulated::experiment::Bench;
use pilotlight_lab::simulated::experiment::schema::ChartKind;
use pilotlight_lab::simulated::figure;
use pilotlight_lab::simulated::summary::{self, Cell, Measured};
use pilotlight_lab::simulated::variant::{self, Variant};
use pilotlight_report::Column;
use pilotlight_report::table::short;

use super::{Done, folder};
use crate::console;
use crate::files;
use crate::run::RunArgs;
use crate::table::Table;

/// Metrics that people see where an experiment draws no chart of its own.
const USUAL: [&str; 4] = ["system_power_w", "iops", "latency_p99_us", "cores_awake"];

/// Prints the summary and writes everything.
pub(super) fn write(
    args: &RunArgs,
    out: &Path,
    bench: &Bench,
    variants: &[Variant],
    done: &Done,
) -> anyhow::Result<()> {
    let (cells, json) = save_all(args, out, bench, variants, done)?;
    if args.output.json {
        return console::line(json);
    }
    console::print(people(out, bench, &cells) + &limits(bench, &cells, &done.unbounded))
}

/// Writes everything, and returns the summary, also as JSON.
pub(super) fn save_all(
    args: &RunArgs,
    out: &Path,
    bench: &Bench,
    variants: &[Variant],
    done: &Done,
) -> anyhow::Result<(Vec<Cell>, serde_json::Value)> {
    let cells = summary::summarise(&bench.points, &done.results);
    let table = figure::table(bench, &cells);
    let json = serde_json::json!({
        "experiment": bench.experiment.name, "figure": bench.experiment.figure, "title": bench.experiment.title,
        "profile": bench.machine.name, "hash": bench.hash, "confidence": 0.95,
        "watts": "modelled", "rows": table.json(), "not_bounded": done.unbounded,
    });
    let folder = folder(out, bench);
    let results = pilotlight_lab::results::simulated::summary(&done.results);
    files::write(&folder.join("results.json"), &serde_json::to_vec_pretty(&results)?)?;
    if let Some(draws) = variant::draws(variants) {
        files::write(&folder.join("draws.csv"), draws.as_bytes())?;
    }
    files::write(&folder.join("report.html"), figure::report(bench, &cells, &done.unbounded).html().as_bytes())?;
    if args.output.parquet {
        let notes = [("profile", &bench.machine.name), ("hash", &bench.hash)];
        let notes = notes.map(|(key, value)| (key.to_owned(), value.clone()));
        files::write(&folder.join("results.parquet"), &table.parquet(Vec::new(), &notes)?)?;
    } else {
        files::write(&folder.join("results.csv"), table.csv(&[stamp(bench)]).as_bytes())?;
    }
    Ok((cells, json))
}

fn stamp(bench: &Bench) -> String {
    format!("profile={} hash={}", bench.machine.name, bench.hash)
}

fn people(out: &Path, bench: &Bench, cells: &[Cell]) -> String {
    let experiment = &bench.experiment;
    let metrics = shown(bench, cells);
    let axes = experiment
        .parameters
        .iter()
        .map(|one| if one.unit.is_empty() { one.name.clone() } else { format!("{} ({})", one.name, one.unit) });
    let headings: Vec<String> = axes.chain(["<policy".to_owned()]).chain(metrics.iter().cloned()).collect();
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut table = Table::new(&headings);
    for cell in cells {
        let place = cell.coordinates.iter().map(|at| at.label.clone());
        let values = metrics.iter().map(|metric| value(cell, metric));
        table.row(place.chain([cell.policy.clone()]).chain(values));
    }
    let unsettled = figure::unsettled(bench, cells).map(|text| text + "\n").unwrap_or_default();
    format!(
        "{}: {}\n{}, {} points, 95 % intervals over replications, watts modelled\n\n{table}\n{unsettled}{}\n",
        experiment.figure,
        experiment.title,
        stamp(bench),
        bench.points.len(),
        folder(out, bench).display(),
    )
}

/// What each policy burnt above the floors beside the clairvoyant limit.
fn limits(bench: &Bench, cells: &[Cell], unbounded: &[String]) -> String {
    let mut text = String::new();
    if let Some(limits) = figure::limits(bench, cells) {
        let headings: Vec<String> = limits.columns.iter().map(Column::heading).collect();
        let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
        limits.rows.iter().for_each(|row| table.row(row.iter().map(pilotlight_report::Cell::show)));
        text = format!("\n{}, of the first replication (docs/oracle.md)\n\n{table}", limits.title);
    }
    unbounded.iter().fold(text, |text, line| text + line + "\n")
}

/// What the experiment draws, and the usual; of what has neither, everything but what is over time.
fn shown(bench: &Bench, cells: &[Cell]) -> Vec<String> {
    let charts = bench.experiment.output.charts.iter().filter(|chart| chart.kind != ChartKind::Series);
    let mut metrics: Vec<String> = charts.map(|chart| chart.metric.clone()).collect();
    metrics.extend(USUAL.map(str::to_owned));
    let mut shown: Vec<String> = Vec::new();
    for metric in metrics {
        if !shown.contains(&metric) && cells.iter().any(|cell| cell.get(&metric).is_some()) {
            shown.push(metric);
        }
    }
    if shown.is_empty() {
        let plain = cells.iter().flat_map(|cell| &cell.values).map(|value| &value.metric);
        let mut plain: Vec<String> = plain.filter(|metric| !metric.contains('@')).cloned().collect();
        plain.sort();
        plain.dedup();
        return plain;
    }
    shown
}

fn value(cell: &Cell, metric: &str) -> String {
    if cell.saturated > 0 {
        return format!("saturated {}/{}", cell.saturated, cell.runs);
    }
    match cell.get(metric) {
        Some(Measured { estimate: Some(estimate), family, .. }) => {
            let half = (estimate.high - estimate.low) / 2.0;
            let spread = if half.is_finite() { format!(" ± {}", short(half)) } else { String::new() };
            let family = family.filter(|(low, high)| low < high);
            let family = family.map_or(String::new(), |(low, high)| format!(" [{} to {}]", short(low), short(high)));
            format!("{}{spread}{family}", short(estimate.value))
        }
        _ => "-".to_owned(),
    }
}
