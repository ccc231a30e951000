//! Power and throughput over time, of the first measurement of each point, with its phases.

use pilotlight_report::chart::{Axis, Line, Place, Trace};
use pilotlight_report::{Block, Chart, Section};
use pilotlight_sensors::{Kind, Origin};

use super::Read;
use crate::results::folder::name_of;
use crate::results::samples::{self, Samples};
use crate::results::summary::words;

/// Points that are drawn.
const POINTS: usize = 12;
/// Places of a line: what came between two of them is averaged.
const PLACES: usize = 240;

pub(super) fn section(read: &Read) -> Option<Section> {
    let first = read.finished.runs.values().filter(|run| run.key.repeat == 0);
    let mut blocks = Vec::new();
    for run in first.take(POINTS) {
        let folder = read.folder.samples(&name_of(run.key));
        let phases: Vec<f64> = [run.span.from_ns, run.window.from_ns, run.window.to_ns]
            .map(|at_ns| at_ns.saturating_sub(run.span.from_ns) as f64 / 1e9)
            .to_vec();
        let (mut power, mut bytes) = (Vec::new(), Vec::new());
        for track in samples::read_all(&folder) {
            power.extend(powers(read, &track));
            bytes.extend(throughput(&track));
        }
        // As results call it: by the mechanism that ran, not by the one that was asked for.
        let point = read.results.points.iter().find(|point| point.point == run.key.point);
        let place = words(point.map_or(&run.knobs, |point| &point.knobs));
        for (title, y, lines) in [("power", "power (W)", power), ("throughput of drives", "bytes (MB/s)", bytes)] {
            if !lines.is_empty() {
                blocks.push(Block::Chart(chart(format!("{title}, {place}"), y, lines, &phases[1..])));
            }
        }
    }
    let left_out = read.results.points.len().saturating_sub(POINTS);
    if left_out > 0 && !blocks.is_empty() {
        blocks.insert(0, Block::Text(format!("The first {POINTS} points; samples/ has all.")));
    }
    (!blocks.is_empty()).then(|| Section { title: "Over time".into(), blocks })
}

/// A line for each domain that has power.
fn powers(read: &Read, track: &Samples) -> Vec<Line> {
    let domains = read.senses.domains.iter().filter(|(sensor, _)| *sensor == track.sensor);
    let line = |(sensor, domain): &(String, pilotlight_sensors::Domain)| {
        let values = track.column(&samples::column_of(domain))?;
        let watts = match domain.kind {
            Kind::Power => values.iter().map(|(at, uw)| (*at, uw / 1e6)).collect(),
            Kind::EnergyCounter(_) => slopes(&values, 1e-6),
            Kind::Gauge | Kind::Counter => return None,
        };
        let model = if domain.origin == Origin::Measured { "" } else { " (modelled)" };
        Some(Line { name: format!("{sensor}/{}{model}", domain.name), places: thinned(&watts) })
    };
    domains.filter_map(line).collect()
}

/// What each drive read and wrote.
fn throughput(track: &Samples) -> Vec<Line> {
    if track.sensor != "diskstats" {
        return Vec::new();
    }
    let ends = [("_per_read_bytes", "read"), ("_per_written_bytes", "written")];
    let line = |name: &String| {
        let (device, what) = ends.iter().find_map(|(end, what)| Some((name.strip_suffix(end)?, what)))?;
        let rate = slopes(&track.column(name)?, 1e-6);
        let moved = rate.iter().any(|(_, rate)| *rate > 0.0);
        moved.then(|| Line { name: format!("{device} {what}"), places: thinned(&rate) })
    };
    track.columns.iter().filter_map(line).collect()
}

/// Growth per second between neighbours, at the later one; a counter that starts anew leaves that step out.
fn slopes(values: &[(f64, f64)], factor: f64) -> Vec<(f64, f64)> {
    let slope = |pair: &[(f64, f64)]| {
        let (grown, passed) = (pair[1].1 - pair[0].1, pair[1].0 - pair[0].0);
        (grown >= 0.0 && passed > 0.0).then(|| (pair[1].0, grown / passed * factor))
    };
    values.windows(2).filter_map(slope).collect()
}

/// Means of neighbours, so many that a line has at most [`PLACES`].
fn thinned(values: &[(f64, f64)]) -> Vec<Place> {
    let together = values.len().div_ceil(PLACES).max(1);
    let mean = |chunk: &[(f64, f64)]| {
        let n = chunk.len() as f64;
        let (x, y) = chunk.iter().fold((0.0, 0.0), |(x, y), value| (x + value.0, y + value.1));
        Place { x: x / n, y: Some(y / n), band: None }
    };
    values.chunks(together).map(mean).collect()
}

/// The lines, with a mark where the measured window begins and one where it ends.
fn chart(title: String, y: &str, lines: Vec<Line>, phases: &[f64]) -> Chart {
    let names = ["measured from here", "to here"];
    let marks = phases.iter().zip(names).map(|(at_s, name)| (*at_s, name.to_owned())).collect();
    let axis = |label: &str| Axis { label: label.into(), from_zero: true, ..Axis::default() };
    Chart::Trace(Trace { title, x: axis("time since the command was started (s)"), y: axis(y), lines, marks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_by_hand() {
        // 5 J in 2 s, a counter that starts anew, 1 J in 1 s
        let values = [(0.0, 1e6), (2.0, 6e6), (3.0, 0.0), (4.0, 1e6)];
        assert_eq!(slopes(&values, 1e-6), [(2.0, 2.5), (4.0, 1.0)]);
    }

    #[test]
    fn thinning_keeps_the_mean() {
        let values: Vec<(f64, f64)> = (0..1_000).map(|at| (f64::from(at), f64::from(at % 10))).collect();
        let places = thinned(&values);
        assert_eq!(places.len(), 200);
        let mean = places.iter().filter_map(|place| place.y).sum::<f64>() / places.len() as f64;
        assert!((mean - 4.5).abs() < 1e-9);
    }
}
