//! A [`Summary`] as text: one line for each value, with its interval and range.

use std::fmt::Write as _;

use super::{EnergyLine, Line, Summary};
use crate::results::summary::Spread;

/// Units by size: their value and name.
type Units = [(f64, &'static str)];
const SECONDS: &Units = &[(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")];
const JOULES: &Units = &[(1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"), (1e-6, "uJ")];
const WATTS: &Units = &[(1e3, "kW"), (1.0, "W"), (1e-3, "mW"), (1e-6, "uW")];

/// The message where no power sensor can be read.
pub const NO_POWER: &str =
    "No power is measured: no power sensor of this machine can be read (`pilotlab sensors` lists remedies)";

/// A summary as text. With `colour` headings have escape sequences of a terminal.
#[must_use]
pub fn render(summary: &Summary, colour: bool) -> String {
    let bold = |text: &str| if colour { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() };
    let runs = if summary.runs == 1 { "1 run".to_owned() } else { format!("{} runs", summary.runs) };
    let failed = if summary.failed > 0 { format!(", {} failed", summary.failed) } else { String::new() };
    let mut text = format!("\n{}  {runs}{failed}\n\n", bold(&summary.command));
    let rows = |of_machine| summary.lines.iter().filter(move |line| line.of_machine == of_machine);
    text += &aligned(&rows(false).map(figure).collect::<Vec<_>>(), 2);
    if rows(true).next().is_some() {
        let _ = writeln!(text, "\n  {}", bold("whole machine"));
        text += &aligned(&rows(true).map(figure).collect::<Vec<_>>(), 2);
    }
    if !summary.energy.is_empty() {
        let heading = ["", "energy", "power", if summary.idle_baseline { "above idle" } else { "" }, ""];
        let mut rows: Vec<Vec<String>> = vec![heading.iter().map(|cell| (*cell).to_owned()).collect()];
        rows.extend(summary.energy.iter().map(energy));
        text += "\n";
        text += &aligned(&rows, 2);
    }
    text += "\n";
    text += &notes(summary);
    text
}

fn notes(summary: &Summary) -> String {
    let mut text = String::new();
    for line in &summary.energy {
        if let Some(why) = &line.missing {
            let _ = writeln!(text, "{}: {why}", line.name);
        }
    }
    for note in &summary.notes {
        let _ = writeln!(text, "{note}");
    }
    if summary.runs > 1 {
        let _ =
            writeln!(text, "mean ± half-width of the 95 % interval of {} runs (Student's t), and range", summary.runs);
    } else {
        text += "a single run has no interval: set --repeats 3 or more\n";
    }
    if summary.idle_baseline && !summary.energy.is_empty() {
        text += "above idle: each run minus its idle baseline\n";
    }
    if let Some(why) = &summary.not_idle {
        let _ = writeln!(text, "warning: {why}");
    }
    if !summary.unused.is_empty() {
        let _ = writeln!(text, "\nNo power is measured: add --sensor {}", summary.unused.join(" --sensor "));
    } else if !summary.has_measured_power {
        text += NO_POWER;
        text += if summary.energy.iter().any(|line| line.modelled) {
            "\n"
        } else {
            "; --sensor modelled adds power from a model\n"
        };
    }
    text
}

/// Name, value and range in the unit of the mean.
fn figure(line: &Line) -> Vec<String> {
    let values = &line.spread.values;
    let scale = scale(size(&line.spread), if line.unit == "s" { SECONDS } else { &[] }, &line.unit);
    let digits = digits(&line.spread, scale.0);
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let number = |value: f64| format!("{:.digits$}", value / scale.0);
    let range = format!("({} … {})", number(min), number(max));
    vec![line.title.clone(), spread(&line.spread, scale), if values.len() > 1 { range } else { String::new() }]
}

/// Name, joules, watts, watts above idle, and part of the machine.
fn energy(line: &EnergyLine) -> Vec<String> {
    let cell = |of: &Option<Spread>, units: &Units| {
        of.as_ref().map_or_else(|| "-".to_owned(), |of| spread(of, scale(size(of), units, "")))
    };
    let above = if line.above_idle_w.is_none() && line.missing.is_none() {
        String::new()
    } else {
        cell(&line.above_idle_w, WATTS)
    };
    let of = if line.modelled { format!("{} (modelled)", line.of) } else { line.of.clone() };
    vec![line.name.clone(), cell(&line.energy_j, JOULES), cell(&line.power_w, WATTS), above, of]
}

/// `2.0021 s ± 0.0004 s`: the interval with two significant digits, the mean with the same decimals.
fn spread(of: &Spread, scale: (f64, &str)) -> String {
    let digits = digits(of, scale.0);
    let unit = if scale.1.is_empty() { String::new() } else { format!(" {}", scale.1) };
    let mean = format!("{:.digits$}{unit}", of.mean / scale.0);
    match half(of) {
        Some(half) => format!("{mean} ± {:.digits$}{unit}", half / scale.0),
        None => mean,
    }
}

/// The value that determines the unit: the maximum of the mean and the half-width.
fn size(of: &Spread) -> f64 {
    of.mean.abs().max(half(of).unwrap_or(0.0))
}

fn half(of: &Spread) -> Option<f64> {
    Some((of.high? - of.low?) / 2.0)
}

/// The largest unit that is not greater than the value.
fn scale<'a>(value: f64, units: &[(f64, &'a str)], unit: &'a str) -> (f64, &'a str) {
    let fits = units.iter().find(|(size, _)| value.abs() >= *size);
    let zero = units.iter().find(|(size, _)| *size == 1.0);
    let smallest = if value == 0.0 { zero } else { units.last() };
    fits.or(smallest).copied().unwrap_or((1.0, unit))
}

/// Decimals for two significant digits of the interval, or four of a value without an interval.
fn digits(of: &Spread, scale: f64) -> usize {
    let mean = of.mean / scale;
    let (size, significant) = match half(of) {
        Some(half) if half > 0.0 => (half / scale, 2),
        _ if mean.fract() == 0.0 => return 0,
        _ => (mean.abs(), 4),
    };
    let exponent = size.log10().floor() as i32;
    usize::try_from(significant - 1 - exponent).unwrap_or(0).min(6)
}

/// A time in a suitable unit, such as `1.2 s`.
#[must_use]
pub fn seconds(ns: u64) -> String {
    let value = ns as f64 / 1e9;
    let (size, unit) = scale(value, SECONDS, "s");
    let text = format!("{:.3}", value / size);
    format!("{} {unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Rows in aligned columns: the first and last to the left, the others to the right.
fn aligned(rows: &[Vec<String>], indent: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            if column == 0 || column + 1 == columns { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        let line = cells.collect::<Vec<_>>().join("   ");
        let _ = writeln!(text, "{}{}", " ".repeat(indent), line.trim_end());
    }
    text
}
