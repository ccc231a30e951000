//! Every metric over every knob: lines over ordered values, bars over others; and heat maps over two knobs.

use pilotlight_report::chart::{Axis, Bar, Bars, Heat, Ordered, Scale};
use pilotlight_report::{Block, Chart, Section};

use super::{charted_metrics, units};
use crate::results::summary::{MetricInfo, PointResult, Results, Spread};
use pilotlight_workloads::{Point, Value};

/// Maximum number of lines in a chart.
const SERIES: usize = 8;
/// Maximum number of heat maps of a metric, one for each combination of the other knobs.
const MAPS: usize = 4;

/// A section for each varied knob, and one with heat maps.
pub(super) fn sections(results: &Results) -> Vec<Section> {
    let varied = varied(results);
    let over = |(knob, values): &(String, Vec<Value>)| {
        let charts: Vec<Series<'_>> =
            charted_metrics(results).into_iter().map(|about| Series::new(results, about, knob)).collect();
        let note = charts.iter().any(|series| series.left_out > 0).then(|| {
            Block::Text(format!(
                "Charts show {SERIES} combinations of the other knobs, evenly selected; results.csv has all."
            ))
        });
        let charts = charts.iter().map(|series| Block::Chart(series.chart(knob, values)));
        Section { title: format!("Over {knob}"), blocks: note.into_iter().chain(charts).collect() }
    };
    varied.iter().map(over).chain(maps(results, &varied)).collect()
}

/// Knobs with more than one value, each with its values in order.
pub(super) fn varied(results: &Results) -> Vec<(String, Vec<Value>)> {
    let values = |knob: &String| {
        let mut values: Vec<Value> = Vec::new();
        for value in results.points.iter().filter_map(|point| point.knobs.get(knob)) {
            if !values.contains(value) {
                values.push(value.clone());
            }
        }
        (knob.clone(), values)
    };
    results.knobs.iter().map(values).filter(|(_, values)| values.len() > 1).collect()
}

/// A metric over a knob: a series for each combination of the other varied knobs.
struct Series<'a> {
    about: &'a MetricInfo,
    series: Vec<(String, Vec<&'a PointResult>)>,
    left_out: usize,
}

impl<'a> Series<'a> {
    fn new(results: &'a Results, about: &'a MetricInfo, knob: &str) -> Self {
        let others: Vec<String> =
            varied(results).into_iter().map(|(name, _)| name).filter(|name| name != knob).collect();
        let mut series: Vec<(String, Vec<&PointResult>)> = Vec::new();
        for point in &results.points {
            let name = knob_values(&point.knobs, &others);
            match series.iter_mut().find(|(other, _)| *other == name) {
                Some((_, points)) => points.push(point),
                None => series.push((name, vec![point])),
            }
        }
        let left_out = series.len().saturating_sub(SERIES);
        let series = spread(series, SERIES);
        Self { about, series, left_out }
    }

    fn chart(&self, knob: &str, values: &[Value]) -> Chart {
        let numbers: Option<Vec<f64>> = values.iter().map(number).collect();
        let mut values = values.to_vec();
        let Some(_) = numbers.filter(|_| values.len() > 1) else {
            return Chart::Bars(self.bars(knob, &values));
        };
        values.sort_by(|a, b| number(a).unwrap_or(0.0).total_cmp(&number(b).unwrap_or(0.0)));
        Chart::Ordered(self.ordered(knob, &values))
    }

    fn title(&self, knob: &str) -> String {
        format!("{} over {knob}", self.about.title)
    }

    fn y(&self) -> Axis {
        Axis { label: self.unit().0, from_zero: true, ..Axis::default() }
    }

    /// Logarithmic if the values span more than a factor of 50.
    fn scale(&self) -> Scale {
        let points = self.series.iter().flat_map(|(_, points)| points);
        let means = points.filter_map(|point| point.values.get(&self.about.key)).map(|spread| spread.mean);
        let (low, high) = means.fold((f64::INFINITY, 0.0_f64), |(low, high), mean| (low.min(mean), high.max(mean)));
        if low > 0.0 && high > 50.0 * low { Scale::Log10 } else { Scale::Linear }
    }

    fn unit(&self) -> (String, f64) {
        units::of_points(self.about, self.series.iter().flat_map(|(_, points)| points.iter().copied()))
    }

    fn bar(&self, points: &[&PointResult], knob: &str, value: &Value) -> Option<Bar> {
        let point = points.iter().find(|point| point.knobs.get(knob) == Some(value))?;
        let spread = point.values.get(&self.about.key)?;
        let (_, scale) = self.unit();
        let band = band(spread).map(|(low, high)| (low / scale, high / scale));
        Some(Bar { value: spread.mean / scale, band })
    }

    fn ordered(&self, knob: &str, values: &[Value]) -> Ordered {
        let line = |(name, points): &(String, Vec<&PointResult>)| {
            (name.clone(), values.iter().map(|value| self.bar(points, knob, value)).collect())
        };
        Ordered {
            title: self.title(knob),
            x: knob.to_owned(),
            y: Axis { scale: self.scale(), ..self.y() },
            names: values.iter().map(ToString::to_string).collect(),
            lines: self.series.iter().map(line).collect(),
        }
    }

    fn bars(&self, knob: &str, values: &[Value]) -> Bars {
        let group = |value: &Value| {
            let bars = self.series.iter().map(|(_, points)| self.bar(points, knob, value));
            (value.to_string(), bars.collect())
        };
        let series = self.series.iter().map(|(name, _)| name.clone()).collect();
        Bars { title: self.title(knob), y: self.y(), series, groups: values.iter().map(group).collect() }
    }
}

/// An even selection of at most `most` items.
fn spread<T>(items: Vec<T>, most: usize) -> Vec<T> {
    let count = items.len();
    let is_taken = |at: usize| count <= most || (0..most).any(|taken| taken * count / most == at);
    items.into_iter().enumerate().filter(|(at, _)| is_taken(*at)).map(|(_, item)| item).collect()
}

/// The interval; not below zero if no value is.
fn band(spread: &Spread) -> Option<(f64, f64)> {
    let limit = if spread.values.iter().all(|value| *value >= 0.0) { 0.0 } else { f64::NEG_INFINITY };
    spread.low.zip(spread.high).map(|(low, high)| (low.max(limit), high))
}

/// The values of some knobs at a point, as text.
fn knob_values(point: &Point, knobs: &[String]) -> String {
    let pairs: Vec<String> =
        knobs.iter().filter_map(|knob| point.get(knob).map(|value| format!("{knob} {value}"))).collect();
    pairs.join(", ")
}

/// A value as a number, also sizes in fio's notation.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(value) => Some(*value as f64),
        Value::Number(value) => Some(*value),
        Value::Switch(_) => None,
        Value::Word(word) => {
            let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let factor = match word[digits.len()..].to_ascii_lowercase().as_str() {
                "" | "b" => 1.0,
                "k" | "kib" | "kb" => 1024.0,
                "m" | "mib" | "mb" => 1_048_576.0,
                "g" | "gib" | "gb" => 1_073_741_824.0,
                _ => return None,
            };
            digits.parse::<f64>().ok().map(|value| value * factor)
        }
    }
}

/// Heat maps of efficiency over two knobs; without power, of throughput.
fn maps(results: &Results, varied: &[(String, Vec<Value>)]) -> Option<Section> {
    let mut by_size: Vec<&(String, Vec<Value>)> = varied.iter().collect();
    by_size.sort_by_key(|(_, values)| std::cmp::Reverse(values.len()));
    let [rows, columns, others @ ..] = by_size.as_slice() else { return None };
    let others: Vec<String> = others.iter().map(|(name, _)| name.clone()).collect();
    let all = charted_metrics(results);
    let mut metrics: Vec<&MetricInfo> = all.iter().copied().filter(|about| about.key.contains("_per_j_")).collect();
    if metrics.is_empty() {
        metrics
            .extend(all.iter().copied().filter(|about| about.key == "iops" || about.key.ends_with("_per_s")).take(1));
    }
    let mut combinations: Vec<String> = results.points.iter().map(|point| knob_values(&point.knobs, &others)).collect();
    combinations.dedup();
    combinations.sort();
    combinations.dedup();
    let mut blocks = Vec::new();
    for about in metrics {
        for combination in combinations.iter().take(MAPS) {
            let points: Vec<&PointResult> =
                results.points.iter().filter(|point| knob_values(&point.knobs, &others) == *combination).collect();
            let (unit, _) = units::of_points(about, points.iter().copied());
            let words = format!("{} ({unit})", about.title);
            let title = if others.is_empty() { words } else { format!("{words}, {combination}") };
            blocks.push(Block::Chart(Chart::Heat(map(&points, about, title, rows, columns))));
        }
    }
    (!blocks.is_empty()).then(|| Section { title: "Maps".into(), blocks })
}

fn map(
    points: &[&PointResult],
    about: &MetricInfo,
    title: String,
    (down, rows): &(String, Vec<Value>),
    (across, columns): &(String, Vec<Value>),
) -> Heat {
    let (_, scale) = units::of_points(about, points.iter().copied());
    let at = |row: &Value, column: &Value| {
        let here =
            |point: &&&PointResult| point.knobs.get(down) == Some(row) && point.knobs.get(across) == Some(column);
        points.iter().find(here).and_then(|point| point.values.get(&about.key)).map(|spread| spread.mean / scale)
    };
    let row = |row: &Value| (row.to_string(), columns.iter().map(|column| at(row, column)).collect());
    Heat {
        title,
        x: across.clone(),
        y: down.clone(),
        columns: columns.iter().map(ToString::to_string).collect(),
        rows: rows.iter().map(row).collect(),
    }
}
