//! An experiment's charts: what its file asks for, from the summary.
//!
//! An axis that a chart has neither along x nor along y is a facet: one chart for each of its places.

use pilotlight_report::Chart;
use pilotlight_report::chart::{Axis, Bar, Bars, Heat, Line, Lines, Place, Scale};

use pilotlight_input::parameter::ParameterScale;

use crate::simulated::experiment::schema::{self, ChartKind};
use crate::simulated::experiment::{Bench, Coordinate};
use crate::simulated::summary::{Cell, Measured};

/// All of them; one whose metric nobody has is left out.
pub(super) fn charts(bench: &Bench, cells: &[Cell]) -> Vec<Chart> {
    bench.experiment.output.charts.iter().flat_map(|wanted| charts_of(bench, wanted, cells)).collect()
}

fn charts_of(bench: &Bench, wanted: &schema::Chart, cells: &[Cell]) -> Vec<Chart> {
    let sketch = Sketch { bench, wanted };
    facets(cells, wanted).into_iter().flat_map(|(facet, cells)| sketch.draw(&facet, &cells)).collect()
}

/// Cells by their places on axes that the chart does not show.
fn facets<'a>(cells: &'a [Cell], wanted: &schema::Chart) -> Vec<(String, Vec<&'a Cell>)> {
    let mut facets: Vec<(String, Vec<&Cell>)> = Vec::new();
    for cell in cells {
        let hidden = cell.coordinates.iter().filter(|at| at.parameter != wanted.x && at.parameter != wanted.y);
        let name = hidden.map(|at| format!("{} {}", at.parameter, at.label)).collect::<Vec<_>>().join(", ");
        match facets.iter_mut().find(|(known, _)| *known == name) {
            Some((_, members)) => members.push(cell),
            None => facets.push((name, vec![cell])),
        }
    }
    facets
}

/// Labels in the order in which they first appear.
fn distinct<'a>(labels: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for label in labels {
        if !distinct.iter().any(|known| known == label) {
            distinct.push(label.to_owned());
        }
    }
    distinct
}

fn on<'a>(cell: &'a Cell, axis: &str) -> Option<&'a Coordinate> {
    cell.coordinates.iter().find(|at| at.parameter == axis)
}

/// The interval that is drawn: over the family where there is one, else over replications.
fn band(measured: &Measured) -> Option<(f64, f64)> {
    measured.family.or_else(|| measured.estimate.map(|estimate| (estimate.low, estimate.high)))
}

fn value(cell: &Cell, metric: &str) -> Option<f64> {
    Some(cell.get(metric)?.estimate?.value)
}

struct Sketch<'a> {
    bench: &'a Bench,
    wanted: &'a schema::Chart,
}

impl Sketch<'_> {
    fn draw(&self, facet: &str, cells: &[&Cell]) -> Vec<Chart> {
        let has = |cell: &&&Cell| self.wanted.kind == ChartKind::Series || value(cell, &self.wanted.metric).is_some();
        if !cells.iter().any(|cell| has(&cell)) {
            return Vec::new();
        }
        let title =
            if facet.is_empty() { self.wanted.title.clone() } else { format!("{}; {facet}", self.wanted.title) };
        match self.wanted.kind {
            ChartKind::Lines => vec![Chart::Lines(self.lines(title, cells))],
            ChartKind::Bars => vec![Chart::Bars(self.bars(title, cells))],
            ChartKind::Heat => self.heats(&title, cells),
            ChartKind::Series => vec![Chart::Lines(self.series(title, cells))],
        }
    }

    fn y(&self, from_zero: bool) -> Axis {
        let label = if self.wanted.label.is_empty() { self.wanted.metric.clone() } else { self.wanted.label.clone() };
        Axis { label, scale: if self.wanted.log_y { Scale::Log10 } else { Scale::Linear }, from_zero }
    }

    fn x(&self) -> Axis {
        let axis = self.bench.experiment.parameters.iter().find(|axis| axis.name == self.wanted.x);
        let scale = match axis.map(|axis| axis.scale) {
            Some(ParameterScale::Log2) => Scale::Log2,
            _ => Scale::Linear,
        };
        let unit = axis.map(|axis| axis.unit.as_str()).filter(|unit| !unit.is_empty());
        let label = unit.map_or(self.wanted.x.clone(), |unit| format!("{} ({unit})", self.wanted.x));
        Axis { label, scale, from_zero: false }
    }

    fn lines(&self, title: String, cells: &[&Cell]) -> Lines {
        let place = |cell: &&&Cell| {
            let measured = cell.get(&self.wanted.metric);
            Some(Place {
                x: on(cell, &self.wanted.x)?.value?,
                y: value(cell, &self.wanted.metric),
                band: measured.filter(|measured| measured.estimate.is_some()).and_then(band),
            })
        };
        let line = |policy: String| Line {
            places: cells.iter().filter(|cell| cell.policy == policy).filter_map(|cell| place(&cell)).collect(),
            name: policy,
        };
        let policies = distinct(cells.iter().map(|cell| cell.policy.as_str()));
        Lines { title, x: self.x(), y: self.y(true), lines: policies.into_iter().map(line).collect() }
    }

    fn bars(&self, title: String, cells: &[&Cell]) -> Bars {
        let series = distinct(cells.iter().map(|cell| cell.policy.as_str()));
        let group_of = |cell: &Cell| on(cell, &self.wanted.x).map_or_else(String::new, |at| at.label.clone());
        let names: Vec<String> = cells.iter().map(|cell| group_of(cell)).collect();
        let bar = |group: &str, policy: &str| {
            let cell = cells.iter().find(|cell| cell.policy == policy && group_of(cell) == group)?;
            let measured = cell.get(&self.wanted.metric)?;
            Some(Bar { value: measured.estimate?.value, band: band(measured) })
        };
        let group = |name: String| {
            let bars = series.iter().map(|policy| bar(&name, policy)).collect();
            (name, bars)
        };
        let groups = distinct(names.iter().map(String::as_str)).into_iter().map(group).collect();
        Bars { title, y: self.y(true), series: series.clone(), groups }
    }

    fn heats(&self, title: &str, cells: &[&Cell]) -> Vec<Chart> {
        let policies = distinct(cells.iter().map(|cell| cell.policy.as_str()));
        let heat = |policy: String| {
            let mine: Vec<&&Cell> = cells.iter().filter(|cell| cell.policy == policy).collect();
            let labels = |axis: &str| distinct(mine.iter().filter_map(|cell| Some(on(cell, axis)?.label.as_str())));
            let at = |x: &str, y: &str| {
                let is = |cell: &&&&Cell| {
                    let label = |axis: &str| on(cell, axis).map(|at| at.label.as_str());
                    label(&self.wanted.x) == Some(x) && label(&self.wanted.y) == Some(y)
                };
                value(mine.iter().find(is)?, &self.wanted.metric)
            };
            let columns = labels(&self.wanted.x);
            let row = |y: String| (y.clone(), columns.iter().map(|x| at(x, &y)).collect());
            let rows = labels(&self.wanted.y).into_iter().map(row).collect();
            let title = format!("{title}; {policy}");
            Chart::Heat(Heat {
                title,
                x: self.wanted.x.clone(),
                y: self.wanted.y.clone(),
                rows,
                columns: columns.clone(),
            })
        };
        policies.into_iter().map(heat).collect()
    }

    fn series(&self, title: String, cells: &[&Cell]) -> Lines {
        let prefix = format!("{}@", self.wanted.metric);
        let place = |measured: &Measured| {
            let time = measured.metric.strip_prefix(&prefix)?.strip_suffix("ms")?;
            let estimate = measured.estimate;
            Some(Place { x: time.parse::<f64>().ok()? / 1e3, y: estimate.map(|e| e.value), band: band(measured) })
        };
        let line =
            |cell: &&Cell| Line { name: cell.policy.clone(), places: cell.values.iter().filter_map(place).collect() };
        let x = Axis { label: "time (s)".into(), ..Axis::default() };
        Lines { title, x, y: self.y(true), lines: cells.iter().map(line).collect() }
    }
}
