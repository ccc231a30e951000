//! What came out, as a table with a row for each point and policy, and as a report with the paper's axes.

mod charts;

use pilotlight_report::{Block, Cell, Column, Report, Section, Table};

use crate::simulated::experiment::Bench;
use crate::simulated::experiment::schema::WarmUp;
use crate::simulated::summary::{self, Measured};

/// The report of an experiment: its charts, what could not keep up, the clairvoyant limit where it was looked for (with what has
/// none, a line each), and the summary.
#[must_use]
pub fn report(bench: &Bench, cells: &[summary::Cell], unbounded: &[String]) -> Report {
    let experiment = &bench.experiment;
    let mut blocks: Vec<Block> = Vec::new();
    if !experiment.about.is_empty() {
        blocks.push(Block::Text(experiment.about.clone()));
    }
    blocks.extend(charts::charts(bench, cells).into_iter().map(Block::Chart));
    let charts = Section { title: String::new(), blocks };
    let summary = Section { title: "Summary".into(), blocks: summary_blocks(bench, cells) };
    Report {
        title: format!("{}: {}", experiment.figure, experiment.title),
        notes: vec![
            format!("{}, profile={} hash={}", experiment.name, bench.machine.name, bench.hash),
            format!(
                "Simulated. Watts are modelled from that profile. Values are means of {} replications with 95 % intervals.",
                experiment.repeats
            ),
        ],
        sections: [charts].into_iter().chain(limit(bench, cells, unbounded)).chain([summary]).collect(),
    }
}

fn limit(bench: &Bench, cells: &[summary::Cell], unbounded: &[String]) -> Option<Section> {
    let table = limits(bench, cells).map(Block::Table);
    let mut blocks: Vec<Block> = table.into_iter().chain(unbounded.iter().cloned().map(Block::Text)).collect();
    if blocks.is_empty() {
        return None;
    }
    blocks.insert(0, Block::Text(LIMIT.into()));
    Some(Section { title: "The clairvoyant limit".into(), blocks })
}

const LIMIT: &str = "Of the first replication. No schedule of sleeping cores burns less than the lower bound, and one burns the upper \
    (docs/oracle.md). The C-1 columns are for the sleep states that the policy has, the deep ones for all states.";

/// Joules above both floors beside the clairvoyant limit, for each cell that has a bracket; nothing where none has.
#[must_use]
pub fn limits(bench: &Bench, cells: &[summary::Cell]) -> Option<Table> {
    let bounded: Vec<&summary::Cell> = cells.iter().filter(|cell| cell.get("oracle_lower_j").is_some()).collect();
    if bounded.is_empty() {
        return None;
    }
    let mut columns: Vec<Column> =
        bench.experiment.parameters.iter().map(|axis| axis_column(&axis.name, &axis.unit, cells)).collect();
    columns.push(Column::text("policy"));
    columns.extend(
        ["above C-1", "limit from", "to", "above deep idle", "limit from", "to"].map(|n| Column::number(n, "J")),
    );
    let row = |cell: &&summary::Cell| {
        let mut row: Vec<Cell> = cell.coordinates.iter().zip(&columns).map(|(at, column)| place(at, column)).collect();
        row.push(Cell::text(&cell.policy));
        let joules = |metric: &str| cell.get(metric).and_then(|measured| Some(measured.estimate?.value));
        let above = |metric: &str, floor: &str| Some(joules(metric)? - joules(floor)?);
        let numbers = [
            joules("joules_above_c1_floor"),
            above("oracle_lower_j", "c1_floor_j"),
            above("oracle_upper_j", "c1_floor_j"),
            joules("joules_above_deep_floor"),
            above("oracle_all_states_lower_j", "deep_floor_j"),
            above("oracle_all_states_upper_j", "deep_floor_j"),
        ];
        row.extend(numbers.map(|number| number.map_or(Cell::Nothing, Cell::number)));
        row
    };
    let rows = bounded.iter().map(row).collect();
    Some(Table { title: "Joules above each floor, and the clairvoyant limit".into(), rows, columns })
}

fn summary_blocks(bench: &Bench, cells: &[summary::Cell]) -> Vec<Block> {
    let full: Vec<&summary::Cell> = cells.iter().filter(|cell| cell.saturated > 0).collect();
    let mut blocks = Vec::new();
    if !full.is_empty() {
        let names =
            full.iter().map(|cell| format!("{} at {} ({}/{})", cell.policy, cell.point, cell.saturated, cell.runs));
        let names: Vec<String> = names.collect();
        blocks.push(Block::Text(format!("Could not keep up, and is not averaged: {}.", names.join(", "))));
    }
    blocks.extend(unsettled(bench, cells).map(Block::Text));
    blocks.push(Block::Table(table(bench, cells)));
    blocks
}

/// Says where MSER-5 cut off as much as the file lets it, so that the rest may not be steady; `None` where nowhere.
#[must_use]
pub fn unsettled(bench: &Bench, cells: &[summary::Cell]) -> Option<String> {
    let most_ms =
        |cell: &summary::Cell| match bench.points.iter().find(|point| point.name == cell.point)?.experiment.warm_up {
            WarmUp::Mser5 { least, most } if most.0 > least.0 => Some(most.0 as f64 / 1e6),
            _ => None,
        };
    let reached = |cell: &&summary::Cell| {
        let cut = cell.get("warm_up_ms").and_then(|cut| cut.estimate.as_ref());
        cut.zip(most_ms(cell)).is_some_and(|(cut, most)| cut.value >= most)
    };
    let names: Vec<String> =
        cells.iter().filter(reached).map(|cell| format!("{} at {}", cell.policy, cell.point)).collect();
    let said = "The warm-up took as long as the file allows (warm_up.most), so the rest may not be steady";
    (!names.is_empty()).then(|| format!("{said}: {}.", names.join(", ")))
}

/// The summary with every metric: value, ends of the 95 % interval, and the ends over the family and over draws where there are.
/// Values over time are left out; they are in the file of results.
#[must_use]
pub fn table(bench: &Bench, cells: &[summary::Cell]) -> Table {
    let metrics = metrics(cells);
    let parts = parts(cells);
    let mut columns: Vec<Column> =
        bench.experiment.parameters.iter().map(|axis| axis_column(&axis.name, &axis.unit, cells)).collect();
    columns.extend([Column::text("policy"), Column::integer("runs", ""), Column::integer("saturated_runs", "")]);
    for (metric, unit) in &metrics {
        columns.extend(parts.iter().map(|part| Column::number(&format!("{metric}{}", part.suffix), unit)));
    }
    let row = |cell: &summary::Cell| {
        let mut row: Vec<Cell> = cell.coordinates.iter().zip(&columns).map(|(at, column)| place(at, column)).collect();
        row.extend([Cell::text(&cell.policy), Cell::Integer(cell.runs as i64), Cell::Integer(cell.saturated as i64)]);
        for (metric, _) in &metrics {
            row.extend(parts.iter().map(|part| cell.get(metric).and_then(part.of).map_or(Cell::Nothing, Cell::number)));
        }
        row
    };
    Table { title: bench.experiment.title.clone(), rows: cells.iter().map(row).collect(), columns }
}

/// A number of a metric.
struct Part {
    suffix: &'static str,
    of: fn(&Measured) -> Option<f64>,
}

fn parts(cells: &[summary::Cell]) -> Vec<Part> {
    let any = |has: fn(&Measured) -> bool| cells.iter().flat_map(|cell| &cell.values).any(has);
    let mut parts = vec![
        Part { suffix: "", of: |measured| Some(measured.estimate?.value) },
        Part { suffix: "_low", of: |measured| Some(measured.estimate?.low) },
        Part { suffix: "_high", of: |measured| Some(measured.estimate?.high) },
    ];
    if any(|measured| measured.family.is_some()) {
        parts.push(Part { suffix: "_family_low", of: |measured| Some(measured.family?.0) });
        parts.push(Part { suffix: "_family_high", of: |measured| Some(measured.family?.1) });
    }
    if any(|measured| measured.drawn.is_some()) {
        parts.push(Part { suffix: "_drawn_low", of: |measured| Some(measured.drawn?.0) });
        parts.push(Part { suffix: "_drawn_high", of: |measured| Some(measured.drawn?.1) });
    }
    parts
}

/// Every metric with its unit, in the order of the file, without those over time.
fn metrics(cells: &[summary::Cell]) -> Vec<(String, String)> {
    let mut metrics: Vec<(String, String)> = Vec::new();
    for value in cells.iter().flat_map(|cell| &cell.values) {
        let known = metrics.iter().any(|(metric, _)| *metric == value.metric);
        if !known && !value.metric.contains('@') && value.metric != crate::simulated::metrics::SATURATED {
            metrics.push((value.metric.clone(), unit(&value.metric, &value.unit)));
        }
    }
    metrics
}

/// The unit of a column: none where the name of the metric says it.
fn unit(metric: &str, unit: &str) -> String {
    if unit == "1" || metric.ends_with("_per_s") || metric == unit { String::new() } else { unit.to_owned() }
}

fn axis_column(name: &str, unit: &str, cells: &[summary::Cell]) -> Column {
    let coordinates = || cells.iter().flat_map(|cell| &cell.coordinates).filter(|at| at.parameter == name);
    let plain = |at: &crate::simulated::experiment::Coordinate| at.label.parse::<f64>().is_ok();
    if coordinates().next().is_some() && coordinates().all(plain) {
        Column::number(name, unit)
    } else {
        Column::text(name)
    }
}

fn place(at: &crate::simulated::experiment::Coordinate, column: &Column) -> Cell {
    match (column.kind, at.value) {
        (pilotlight_report::Kind::Number, Some(value)) => Cell::number(value),
        _ => Cell::text(&at.label),
    }
}
