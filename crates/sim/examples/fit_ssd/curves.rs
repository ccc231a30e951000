//! Measured load-latency curves: one file for each drive and write share.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Quantiles in the files, in per cent; the last (99.99th) is omitted: 2.5 s have too few samples.
pub(crate) const QUANTILES: [f64; 4] = [50.0, 90.0, 99.0, 99.9];

/// One measured load of one curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    /// Requests per second.
    pub(crate) rate: f64,
    /// Latency at `QUANTILES`, in us.
    pub(crate) latency_us: [f64; 4],
}

/// A curve: the sustained loads, and the maximum rate.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Curve {
    /// In order of rate.
    pub(crate) points: Vec<Point>,
    /// The highest rate reached, in requests per second.
    pub(crate) max_rate: f64,
}

/// Curves of a drive, by write share in permille.
pub(crate) type Drive = BTreeMap<u32, Curve>;

impl Curve {
    /// The points between two shares of the highest rate.
    pub(crate) fn between(&self, low: f64, high: f64) -> impl Iterator<Item = &Point> {
        let range = low * self.max_rate..=high * self.max_rate;
        self.points.iter().filter(move |point| range.contains(&point.rate))
    }

    /// About `count` points, evenly over the curve.
    pub(crate) fn sample(&self, low: f64, high: f64, count: usize) -> Vec<Point> {
        let all: Vec<Point> = self.between(low, high).copied().collect();
        let count = count.min(all.len());
        (0..count).map(|index| all[(2 * index + 1) * all.len() / (2 * count)]).collect()
    }
}

/// Reads all curves of a folder, by serial number.
pub(crate) fn read_folder(folder: &Path) -> Result<BTreeMap<String, Drive>, String> {
    let mut drives: BTreeMap<String, Drive> = BTreeMap::new();
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let Some((serial, mix)) = stem.split_once('_') else { continue };
        let share = write_share(mix).ok_or_else(|| format!("{stem}: no write share at the end of the name"))?;
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let curve = parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        drives.entry(serial.to_owned()).or_default().insert(share, curve);
    }
    Ok(drives)
}

/// `100r` is 100 % reads; `250w` is 250 permille writes.
fn write_share(mix: &str) -> Option<u32> {
    if mix == "100r" { Some(0) } else { mix.strip_suffix('w')?.parse().ok() }
}

fn parse(text: &str) -> Result<Curve, String> {
    let mut curve = Curve::default();
    for (index, line) in text.lines().enumerate().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| {
            let field: &&str = fields.get(at).ok_or_else(|| format!("line {}: {} fields", index + 1, fields.len()))?;
            field.parse::<f64>().map_err(|error| format!("line {}: {field}: {error}", index + 1))
        };
        let (rate, dropped) = (number(3)?, number(4)?);
        curve.max_rate = curve.max_rate.max(rate);
        let latency_us = [number(6)?, number(7)?, number(8)?, number(9)?];
        if dropped == 0.0 && rate > 0.995 * number(2)? && latency_us.iter().all(|one| one.is_finite()) {
            curve.points.push(Point { rate, latency_us });
        }
    }
    curve.points.sort_by(|one, other| one.rate.total_cmp(&other.rate));
    Ok(curve)
}
