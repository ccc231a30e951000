//! The charts of an experiment's file.
//!
//! Each value of a parameter that is neither x nor y has its own chart.

use pilotlight_report::Chart;
use pilotlight_report::chart::{Axis, Bar, Bars, Heat, Line, Lines, Place as Dot, Scale};

use pilotlight_input::parameter::ParameterScale;

use super::Configuration;
use crate::results::summary::Spread;
use crate::simulated::experiment::schema::{self, ChartKind};
use crate::simulated::experiment::{Bench, Coordinate};

/// All charts, without those whose metric has no value.
pub(super) fn charts(bench: &Bench, cells: &[Configuration<'_>]) -> Vec<Chart> {
    bench.experiment.output.charts.iter().flat_map(|chart| charts_of(bench, chart, cells)).collect()
}

fn charts_of(bench: &Bench, chart: &schema::Chart, cells: &[Configuration<'_>]) -> Vec<Chart> {
    let sketch = Sketch { bench, chart };
    facets(cells, chart).into_iter().flat_map(|(facet, cells)| sketch.draw(&facet, &cells)).collect()
}

/// Cells by the values of parameters that the chart does not show.
fn facets<'a>(cells: &'a [Configuration<'a>], chart: &schema::Chart) -> Vec<(String, Vec<&'a Configuration<'a>>)> {
    let mut facets: Vec<(String, Vec<&Configuration<'_>>)> = Vec::new();
    for cell in cells {
        let hidden = cell.point.coordinates.iter().filter(|at| at.parameter != chart.x && at.parameter != chart.y);
        let name = hidden.map(|at| format!("{} {}", at.parameter, at.label)).collect::<Vec<_>>().join(", ");
        match facets.iter_mut().find(|(known, _)| *known == name) {
            Some((_, members)) => members.push(cell),
            None => facets.push((name, vec![cell])),
        }
    }
    facets
}

/// Unique labels in order of appearance.
fn distinct<'a>(labels: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for label in labels {
        if !distinct.iter().any(|known| known == label) {
            distinct.push(label.to_owned());
        }
    }
    distinct
}

fn on<'a>(cell: &Configuration<'a>, axis: &str) -> Option<&'a Coordinate> {
    cell.point.coordinates.iter().find(|at| at.parameter == axis)
}

/// The interval in charts: over the family if there is one, otherwise over repeats.
fn band(spread: &Spread) -> Option<(f64, f64)> {
    spread.family.or(spread.low.zip(spread.high))
}

struct Sketch<'a> {
    bench: &'a Bench,
    chart: &'a schema::Chart,
}

impl Sketch<'_> {
    fn draw(&self, facet: &str, cells: &[&Configuration<'_>]) -> Vec<Chart> {
        let has = |cell: &&&Configuration<'_>| {
            self.chart.kind == ChartKind::Series || cell.mean(&self.chart.metric).is_some()
        };
        if !cells.iter().any(|cell| has(&cell)) {
            return Vec::new();
        }
        let title = if facet.is_empty() { self.chart.title.clone() } else { format!("{}; {facet}", self.chart.title) };
        match self.chart.kind {
            ChartKind::Lines => vec![Chart::Lines(self.lines(title, cells))],
            ChartKind::Bars => vec![Chart::Bars(self.bars(title, cells))],
            ChartKind::Heat => self.heats(&title, cells),
            ChartKind::Series => vec![Chart::Lines(self.series(title, cells))],
        }
    }

    fn y(&self, from_zero: bool) -> Axis {
        let label = if self.chart.y_label.is_empty() { self.chart.metric.clone() } else { self.chart.y_label.clone() };
        Axis { label, scale: if self.chart.log_y { Scale::Log10 } else { Scale::Linear }, from_zero }
    }

    fn x(&self) -> Axis {
        let axis = self.bench.experiment.parameters.iter().find(|axis| axis.name == self.chart.x);
        let scale = match axis.map(|axis| axis.scale) {
            Some(ParameterScale::Log2) => Scale::Log2,
            _ => Scale::Linear,
        };
        let unit = axis.map(|axis| axis.unit.as_str()).filter(|unit| !unit.is_empty());
        let label = unit.map_or(self.chart.x.clone(), |unit| format!("{} ({unit})", self.chart.x));
        Axis { label, scale, from_zero: false }
    }

    fn lines(&self, title: String, cells: &[&Configuration<'_>]) -> Lines {
        let place = |cell: &&&Configuration<'_>| {
            let spread = cell.result.values.get(&self.chart.metric);
            let x = on(cell, &self.chart.x)?.value?;
            Some(Dot { x, y: spread.map(|spread| spread.mean), band: spread.and_then(band) })
        };
        let line = |policy: String| Line {
            places: cells.iter().filter(|cell| cell.policy == policy).filter_map(|cell| place(&cell)).collect(),
            name: policy,
        };
        let policies = distinct(cells.iter().map(|cell| cell.policy));
        Lines { title, x: self.x(), y: self.y(true), lines: policies.into_iter().map(line).collect() }
    }

    fn bars(&self, title: String, cells: &[&Configuration<'_>]) -> Bars {
        let series = distinct(cells.iter().map(|cell| cell.policy));
        let group_of =
            |cell: &Configuration<'_>| on(cell, &self.chart.x).map_or_else(String::new, |at| at.label.clone());
        let names: Vec<String> = cells.iter().map(|cell| group_of(cell)).collect();
        let bar = |group: &str, policy: &str| {
            let cell = cells.iter().find(|cell| cell.policy == policy && group_of(cell) == group)?;
            let spread = cell.result.values.get(&self.chart.metric)?;
            Some(Bar { value: spread.mean, band: band(spread) })
        };
        let group = |name: String| {
            let bars = series.iter().map(|policy| bar(&name, policy)).collect();
            (name, bars)
        };
        let groups = distinct(names.iter().map(String::as_str)).into_iter().map(group).collect();
        Bars { title, y: self.y(true), series: series.clone(), groups }
    }

    fn heats(&self, title: &str, cells: &[&Configuration<'_>]) -> Vec<Chart> {
        let policies = distinct(cells.iter().map(|cell| cell.policy));
        let heat = |policy: String| {
            let mine: Vec<&&Configuration<'_>> = cells.iter().filter(|cell| cell.policy == policy).collect();
            let labels = |axis: &str| distinct(mine.iter().filter_map(|cell| Some(on(cell, axis)?.label.as_str())));
            let at = |x: &str, y: &str| {
                let is = |cell: &&&&Configuration<'_>| {
                    let label = |axis: &str| on(cell, axis).map(|at| at.label.as_str());
                    label(&self.chart.x) == Some(x) && label(&self.chart.y) == Some(y)
                };
                mine.iter().find(is)?.mean(&self.chart.metric)
            };
            let columns = labels(&self.chart.x);
            let row = |y: String| (y.clone(), columns.iter().map(|x| at(x, &y)).collect());
            let rows = labels(&self.chart.y).into_iter().map(row).collect();
            let title = format!("{title}; {policy}");
            Chart::Heat(Heat {
                title,
                x: self.chart.x.clone(),
                y: self.chart.y.clone(),
                rows,
                columns: columns.clone(),
            })
        };
        policies.into_iter().map(heat).collect()
    }

    fn series(&self, title: String, cells: &[&Configuration<'_>]) -> Lines {
        let prefix = format!("{}@", self.chart.metric);
        let place = |(metric, spread): (&String, &Spread)| {
            let time = metric.strip_prefix(&prefix)?.strip_suffix("ms")?;
            Some(Dot { x: time.parse::<f64>().ok()? / 1e3, y: Some(spread.mean), band: band(spread) })
        };
        let line = |cell: &&Configuration<'_>| {
            let mut places: Vec<Dot> = cell.result.over_time.iter().filter_map(place).collect();
            places.sort_by(|a, b| a.x.total_cmp(&b.x));
            Line { name: cell.policy.to_owned(), places }
        };
        let x = Axis { label: "time (s)".into(), ..Axis::default() };
        Lines { title, x, y: self.y(true), lines: cells.iter().map(line).collect() }
    }
}
