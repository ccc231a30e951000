//! Table of prediction errors by drive and mix.

use crate::curves::{Curve, Drive};
use crate::fit::{self, FITTED};
use crate::load::latency_us;
use crate::predict::{Scale, interpolate};
use pilotlight_sim::ssd::SsdModel;
use std::collections::BTreeMap;

const REQUESTS: usize = 300_000;
/// Indices of the table's quantiles: the median, p99 and p99.9.
const SHOWN: [usize; 3] = [0, 2, 3];

/// Median errors in per cent of one prediction, at `SHOWN`.
type Errors = [f64; 3];

/// A group of rows whose medians are printed together: group, prediction, errors of each row.
type Groups = BTreeMap<(&'static str, &'static str), Vec<Errors>>;

/// Prints the table for drives and the models fitted to one drive each, by serial number.
pub(crate) fn print(drives: &BTreeMap<String, Drive>, models: &BTreeMap<String, SsdModel>) {
    println!("| drive | writes | loads | | p50 | p99 | p99.9 |\n|---|---|---|---|---|---|---|");
    let mut groups = Groups::new();
    for (serial, drive) in drives {
        let Some((fitted, model)) = models.iter().find(|(fitted, _)| fitted[..4] == serial[..4]) else { continue };
        for (share, curve) in drive {
            let rows = rows(drive, &drives[fitted], model, fitted == serial, *share, curve);
            print_rows(serial, *share, curve, group(fitted == serial, *share), &rows, &mut groups);
        }
    }
    println!("\n| rows | prediction | curves | p50 | p99 | p99.9 |\n|---|---|---|---|---|---|");
    for ((group, prediction), errors) in &groups {
        println!("| {group} | {prediction} | {} | {} |", errors.len(), cells(&medians(errors)));
    }
}

fn group(own: bool, share: u32) -> &'static str {
    match (own, FITTED.contains(&share)) {
        (true, true) if share == 0 => "1 fitted: reads",
        (true, true) => "2 fitted: 50 % and 100 % writes",
        (true, false) => "3 other mixes of the drive",
        (false, true) if share == 0 => "4 other drives: reads",
        (false, true) => "5 other drives: 50 % and 100 % writes",
        (false, false) => "6 other drives, other mixes",
    }
}

fn rows(
    drive: &Drive,
    fitted: &Drive,
    model: &SsdModel,
    own: bool,
    share: u32,
    curve: &Curve,
) -> Vec<(&'static str, Errors)> {
    let mut rows = Vec::new();
    let mut add = |name, predict: &dyn Fn(f64) -> Option<[f64; 4]>| {
        rows.extend(errors(curve, predict).map(|errors| (name, errors)));
    };
    add("model", &|rate| Some(latency_us(model, share, rate, REQUESTS)));
    if share == 0 {
        let dies = fit::baseline(drive);
        add("M/D/1 dies, fitted to this curve", &|rate| Some(latency_us(&dies, 0, rate, REQUESTS)));
    }
    let mut curves = |name, of: &Drive, usable: &dyn Fn(u32) -> bool, scale| {
        add(name, &|rate| interpolate(of, usable, scale, share, rate));
    };
    if !own || !FITTED.contains(&share) {
        curves("same curves, linear", fitted, &|one| FITTED.contains(&one), Scale::Linear);
        curves("same curves, logarithm", fitted, &|one| FITTED.contains(&one), Scale::Logarithm);
    }
    if (1..1000).contains(&share) {
        curves("all other mixes, linear", drive, &|one| one != share, Scale::Linear);
        curves("all other mixes, logarithm", drive, &|one| one != share, Scale::Logarithm);
    }
    rows
}

/// Median over the loads from 25 to 95 % of the highest; `None` without a prediction.
fn errors(curve: &Curve, predict: impl Fn(f64) -> Option<[f64; 4]>) -> Option<Errors> {
    let mut each: Vec<Errors> = Vec::new();
    for point in curve.between(0.25, 0.95) {
        let predicted = predict(point.rate)?;
        each.push(SHOWN.map(|index| 100.0 * (predicted[index] / point.latency_us[index] - 1.0).abs()));
    }
    (!each.is_empty()).then(|| medians(&each))
}

fn medians(rows: &[Errors]) -> Errors {
    std::array::from_fn(|column| {
        let mut values: Vec<f64> = rows.iter().map(|row| row[column]).collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
    })
}

fn print_rows(
    serial: &str,
    share: u32,
    curve: &Curve,
    group: &'static str,
    rows: &[(&'static str, Errors)],
    groups: &mut Groups,
) {
    for (name, errors) in rows {
        let loads = curve.between(0.25, 0.95).count();
        println!("| {serial} | {} % | {loads} | {name} | {} |", f64::from(share) / 10.0, cells(errors));
        groups.entry((group, name)).or_default().push(*errors);
    }
}

fn cells(errors: &Errors) -> String {
    errors.map(|error| format!("{error:.1}")).join(" | ")
}
