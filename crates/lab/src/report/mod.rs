//! The HTML report of results, measured or simulated: tables, recommendations, charts of metrics over knobs and over time, power by part of
//! the machine, missing values, sensors and machine. The charts are those of the thesis (chapter 5), with intervals.

mod advice;
mod completion;
pub mod figure;
mod head;
mod inert;
mod knobs;
mod machine;
mod missing;
mod parts;
pub mod replay;
mod time;
mod units;

use std::path::Path;

use pilotlight_report::{Block, Cell, Column, Kind, Report, Section, Table};

use crate::displayed::{SCOPES, displayed};
use crate::results::environment::Environment;
use crate::results::journal::Finished;
use crate::results::summary::{MetricInfo, PointResult, Results, point_text};
use crate::results::{Folder, FolderError, simulated};
use crate::sensor_set::SensorSet;
use crate::simulated::experiment::Bench;
use crate::stored::values;

pub use head::time as time_text;
pub use inert::inert;

/// The content of a results folder.
pub struct Read {
    /// The folder.
    pub folder: Folder,
    /// The results.
    pub results: Results,
    /// The machine.
    pub environment: Environment,
    /// The sensors.
    pub sensors: SensorSet,
    /// The measurements.
    pub finished: Finished,
    /// Charts of the experiment's file, in place of recommendations and charts over knobs.
    pub drawn: Vec<Section>,
    /// Additional lines under the title.
    pub lines: Vec<String>,
}

impl Read {
    /// Reads a folder.
    ///
    /// # Errors
    /// If a file is missing or damaged.
    pub fn from(root: &Path) -> Result<Self, FolderError> {
        let folder = Folder::new(root);
        if let Some(values) = crate::result_set::committed(&folder)? {
            return Ok(Self {
                results: simulated::summary(&values),
                environment: simulated::environment(&values.about),
                sensors: SensorSet::default(),
                finished: Finished::default(),
                drawn: Vec::new(),
                lines: Vec::new(),
                folder,
            });
        }
        Ok(Self {
            results: folder.load(&folder.results())?,
            environment: folder.load(&folder.environment())?,
            sensors: folder.load(&folder.sensors())?,
            finished: Finished::read(&folder.journal())?,
            drawn: Vec::new(),
            lines: Vec::new(),
            folder,
        })
    }

    /// The results of a simulated server, with additional `notes`.
    #[must_use]
    pub fn simulated(bench: &Bench, numbers: &values::Results, folder: Folder, notes: Vec<String>) -> Self {
        let mut results = simulated::summary_of(bench, numbers);
        results.notes.extend(figure::unsettled(bench, &results));
        results.notes.extend(notes);
        Self {
            environment: simulated::environment(&numbers.about),
            sensors: SensorSet::default(),
            finished: Finished::default(),
            drawn: figure::sections(bench, &results),
            lines: bench
                .experiment
                .trace
                .iter()
                .flat_map(|trace| replay::lines(&trace.source, &results.points))
                .collect(),
            results,
            folder,
        }
    }
}

/// Writes `report.html` into a results folder.
///
/// # Errors
/// If a file is missing or damaged, or the page cannot be written.
pub fn write(root: &Path) -> Result<(), FolderError> {
    let read = Read::from(root)?;
    read.folder.write(&read.folder.report(), &report(&read).html())
}

/// Maximum number of rows of a table before the charts; a longer one follows them.
const MAX_ROWS_FIRST: usize = 16;

/// The page.
#[must_use]
pub fn report(read: &Read) -> Report {
    let results = &read.results;
    let mut table = Some(Section { title: "Results".into(), blocks: vec![Block::Table(main_table(results))] });
    let first = table.take_if(|_| results.points.len() <= MAX_ROWS_FIRST);
    let mut sections = read.drawn.clone();
    sections.extend(first);
    if read.drawn.is_empty() {
        sections.extend(completion::section(read).into_iter().chain(advice::section(read)));
        sections.extend(knobs::sections(results));
        sections.extend(parts::section(results));
    }
    sections.extend(time::section(read));
    sections.extend(table);
    sections.extend(missing::section(read));
    if !read.finished.runs.is_empty() {
        sections.push(machine::sensors(read));
    }
    sections.push(machine::machine(&read.environment));
    Report { title: results.title.clone(), notes: head::lines(read), sections }
}

/// The constant knobs, as `bs=4k, rw=randread`; `None` if all are varied.
fn fixed(results: &Results) -> Option<String> {
    let varied = knobs::varied(results);
    let first = results.points.first()?;
    let fixed = results.knobs.iter().filter(|knob| varied.iter().all(|(name, _)| name != *knob));
    let fixed: Vec<String> = fixed.filter_map(|knob| Some(format!("{knob}={}", first.knobs.get(knob)?))).collect();
    (!fixed.is_empty()).then(|| fixed.join(", "))
}

/// The varied knobs of a point.
fn varied_knobs(point: &pilotlight_workloads::Point, results: &Results) -> String {
    point_text(knobs::varied(results).iter().filter_map(|(name, _)| point.get_key_value(name)))
}

/// The metrics in charts: without those that are zero everywhere, without bytes if all requests have one size, and with energy-delay
/// products of the widest scope only.
fn charted_metrics(results: &Results) -> Vec<&MetricInfo> {
    let displayed = displayed(results);
    let rest = |key: &str| ["io_edp_mean_js_", "io_edp_p99_js_"].iter().any(|stem| key.starts_with(stem));
    let widest = SCOPES.iter().find(|scope| {
        displayed.iter().any(|about| rest(&about.key) && about.without_model().ends_with(&format!("_js_{scope}")))
    });
    let is_drawn = |about: &&MetricInfo| {
        let key = about.without_model();
        let bytes = key.starts_with("bytes_per_") && has_one_size(results);
        let nothing = results.points.iter().filter_map(|point| point.values.get(&about.key)).all(|of| of.mean == 0.0);
        let narrow = key.contains("_edp_") && widest.is_some_and(|scope| !key.ends_with(&format!("_js_{scope}")));
        !bytes && !narrow && !nothing
    };
    displayed.into_iter().filter(is_drawn).collect()
}

/// Whether all points have the same number of bytes per I/O.
fn has_one_size(results: &Results) -> bool {
    let size = |point: &PointResult| {
        let mean = |key: &str| Some(point.values.get(key)?.mean);
        Some(mean("bytes_per_s")? / mean("iops")?)
    };
    let sizes: Vec<f64> = results.points.iter().filter_map(size).collect();
    sizes.windows(2).all(|pair| (pair[0] / pair[1] - 1.0).abs() < 0.01)
}

fn main_table(results: &Results) -> Table {
    // Energy is first, where a page shows it without scrolling.
    let (energy, others): (Vec<&MetricInfo>, Vec<&MetricInfo>) =
        displayed(results).into_iter().partition(|about| is_energy(about));
    let columns_of: Vec<(&MetricInfo, String, f64)> = (energy.into_iter().chain(others))
        .map(|about| {
            let (unit, factor) = units::of_results(about, results);
            (about, unit, factor)
        })
        .collect();
    let varied: Vec<String> = knobs::varied(results).into_iter().map(|(name, _)| name).collect();
    let text = |name: &String| Column { name: name.clone(), unit: String::new(), kind: Kind::Text };
    let number = |(about, unit, _): &(&MetricInfo, String, f64)| Column {
        name: about.title.clone(),
        unit: unit.clone(),
        kind: Kind::Number,
    };
    let columns = varied.iter().map(text).chain([Column::integer("n", "")]);
    let mut spreads = results.points.iter().flat_map(|point| point.values.values());
    let has_family = spreads.any(|spread| spread.family.is_some());
    let family = if has_family { ", and [range over the family of simulated machines]" } else { "" };
    let row = |point: &PointResult| {
        let knobs = varied
            .iter()
            .map(|knob| point.knobs.get(knob).map_or(Cell::Nothing, |value| Cell::text(value.to_string())));
        let values = columns_of.iter().map(|(about, _, factor)| cell(point, about, *factor));
        knobs.chain([Cell::Integer(point.repeats as i64)]).chain(values).collect()
    };
    Table {
        title: format!(
            "Mean, half-width of its 95 % interval over repeats (Student's t){family}. Medians, deviations and others: results.csv"
        ),
        columns: columns.chain(columns_of.iter().map(number)).collect(),
        rows: results.points.iter().map(row).collect(),
    }
}

/// Whether a metric is power, energy or efficiency.
fn is_energy(about: &MetricInfo) -> bool {
    ["W", "J", "kWh"].contains(&about.unit.as_str()) || about.key.contains("_per_j_")
}

fn cell(point: &PointResult, about: &MetricInfo, factor: f64) -> Cell {
    point.values.get(&about.key).map_or(Cell::Nothing, |spread| Cell::text(spread.text(factor)))
}

#[cfg(test)]
mod browser;
#[cfg(test)]
mod tests;
