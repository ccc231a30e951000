//! Power, throughput, CPU time, frequency, and cores and requests of a server over time, for the first measurement of each point.

use pilotlight_report::chart::{Axis, Line, Place, Trace};
use pilotlight_report::{Block, Chart, Section};
use pilotlight_sensors::{Kind, Origin};

use super::Read;
use crate::record::Run;
use crate::results::folder::name_of;
use crate::results::samples::{self, Samples};

/// Maximum number of points.
const POINTS: usize = 12;
/// Minimum time between two values of a counter, in seconds.
const INTERVAL_S: f64 = 0.0999;
/// Maximum number of values of a line; values between them are averaged.
const PLACES: usize = 240;

pub(super) fn section(read: &Read) -> Option<Section> {
    // Sorted by point, then repeat; the first repeat may have failed.
    let runs: Vec<&Run> = read.finished.runs.values().collect();
    let first = runs.chunk_by(|a, b| a.key.point == b.key.point).filter_map(<[_]>::first);
    let mut blocks = Vec::new();
    for run in first.take(POINTS) {
        let folder = read.folder.samples(&name_of(run.key));
        let phases: Vec<f64> = [run.span.from_ns, run.window.from_ns, run.window.to_ns]
            .map(|at_ns| at_ns.saturating_sub(run.span.from_ns) as f64 / 1e9)
            .to_vec();
        let tracks = samples::read_all(&folder);
        // With the actual mechanism, as in the results, not the requested one.
        let point = read.results.points.iter().find(|point| point.point == run.key.point);
        let place = super::varied_knobs(point.map_or(&run.knobs, |point| &point.knobs), &read.results);
        for (title, y, of) in VIEWS {
            let lines: Vec<Line> = tracks.iter().flat_map(|track| of(read, track)).collect();
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

/// Title of a chart, label of its axis, and its lines of a sensor.
type View = (&'static str, &'static str, fn(&Read, &Samples) -> Vec<Line>);

const VIEWS: [View; 6] = [
    ("power", "power (W)", powers),
    ("throughput of drives", "bytes (MB/s)", throughput),
    ("the target's cores", "cores", target_cores),
    ("requests served by the target", "requests (1/s)", target_requests),
    ("CPU time", "cores", cpu_time),
    ("frequency", "frequency (GHz)", frequencies),
];

/// A line for each domain of power.
fn powers(read: &Read, track: &Samples) -> Vec<Line> {
    let domains = read.sensors.domains.iter().filter(|(sensor, _)| *sensor == track.sensor);
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

/// Bytes read and written by each drive.
fn throughput(_: &Read, track: &Samples) -> Vec<Line> {
    if track.sensor != "diskstats" {
        return Vec::new();
    }
    let ends = [("_per_read_bytes", "read"), ("_per_written_bytes", "written")];
    let line = |name: &String| {
        let (device, direction) =
            ends.iter().find_map(|(end, direction)| Some((name.strip_suffix(end)?, direction)))?;
        let rate = slopes(&track.column(name)?, 1e-6);
        let moved = rate.iter().any(|(_, rate)| *rate > 0.0);
        moved.then(|| Line { name: format!("{device} {direction}"), places: thinned(&rate) })
    };
    track.columns.iter().filter_map(line).collect()
}

/// Time of a server's reactors by state (sensor `target`).
fn target_cores(read: &Read, track: &Samples) -> Vec<Line> {
    let shares = [("busy", "busy"), ("polling-idle", "polling without result"), ("asleep", "asleep")];
    shares.into_iter().filter_map(|(domain, name)| target_line(read, track, domain, name, 1e-9)).collect()
}

fn target_requests(read: &Read, track: &Samples) -> Vec<Line> {
    target_line(read, track, "requests", "requests", 1.0).into_iter().collect()
}

/// The rate of a counter of the target.
fn target_line(read: &Read, track: &Samples, domain: &str, name: &str, factor: f64) -> Option<Line> {
    let of_target = |(sensor, of): &&(String, pilotlight_sensors::Domain)| {
        sensor.starts_with("target") && *sensor == track.sensor && of.name == domain
    };
    let (_, domain) = read.sensors.domains.iter().find(of_target)?;
    let values = track.column(&samples::column_of(domain))?;
    Some(Line { name: name.into(), places: thinned(&slopes(&values, factor)) })
}

/// The sum of columns over all CPUs: seconds since the start, and the sum.
fn summed(track: &Samples, fits: impl Fn(&str) -> bool) -> Vec<(f64, f64)> {
    let Some(time) = track.columns.iter().position(|column| column == "since_start_ns") else { return Vec::new() };
    let taken: Vec<usize> = (0..track.columns.len()).filter(|at| fits(&track.columns[*at])).collect();
    let sum = |row: &Vec<Option<f64>>| {
        let values: Option<Vec<f64>> = taken.iter().map(|at| row[*at]).collect();
        Some((row[time]? / 1e9, values?.iter().sum()))
    };
    if taken.is_empty() { Vec::new() } else { track.rows.iter().filter_map(sum).collect() }
}

/// CPU time by kind, summed over all CPUs. The resolution is a tick of 10 ms.
fn cpu_time(_: &Read, track: &Samples) -> Vec<Line> {
    if track.sensor != "cputime" {
        return Vec::new();
    }
    let kinds: [(&str, &[&str]); 3] = [
        ("user", &["user_ns", "nice_ns"]),
        ("kernel", &["system_ns", "irq_ns", "softirq_ns"]),
        ("steal", &["steal_ns"]),
    ];
    let line = |(name, ends): (&str, &[&str])| {
        let fits =
            |column: &str| ends.iter().any(|end| column.strip_suffix(end).is_some_and(|cpu| cpu.ends_with("_per_")));
        let cores = slopes(&summed(track, fits), 1e-9);
        let spent = cores.iter().any(|(_, cores)| *cores > 0.0);
        spent.then(|| Line { name: name.into(), places: thinned(&cores) })
    };
    kinds.into_iter().filter_map(line).collect()
}

/// The mean frequency of all CPUs.
fn frequencies(_: &Read, track: &Samples) -> Vec<Line> {
    let is_cpu = |column: &str| column.starts_with("cpu") && column.ends_with("_khz");
    let cpus = track.columns.iter().filter(|column| is_cpu(column)).count();
    if track.sensor != "frequency" || cpus == 0 {
        return Vec::new();
    }
    let ghz: Vec<(f64, f64)> = summed(track, is_cpu).iter().map(|(at, khz)| (*at, khz / cpus as f64 / 1e6)).collect();
    vec![Line { name: "mean of all CPUs".into(), places: thinned(&ghz) }]
}

/// Growth per second over at least 0.1 s, or a twentieth of a shorter recording, because counters are updated in steps (ticks of 10 ms).
/// Intervals with a reset are left out.
fn slopes(values: &[(f64, f64)], factor: f64) -> Vec<(f64, f64)> {
    let (Some(first), Some(last)) = (values.first(), values.last()) else { return Vec::new() };
    let interval = ((last.0 - first.0) / 20.0).min(INTERVAL_S);
    let (mut from, mut before, mut slopes) = (*first, *first, Vec::new());
    for &now in &values[1..] {
        let passed = now.0 - from.0;
        if now.1 < before.1 {
            from = now;
        } else if passed > 0.0 && passed >= interval {
            slopes.push((now.0, (now.1 - from.1) / passed * factor));
            from = now;
        }
        before = now;
    }
    slopes
}

/// Means of adjacent values, at most [`PLACES`].
fn thinned(values: &[(f64, f64)]) -> Vec<Place> {
    let together = values.len().div_ceil(PLACES).max(1);
    let mean = |chunk: &[(f64, f64)]| {
        let n = chunk.len() as f64;
        let (x, y) = chunk.iter().fold((0.0, 0.0), |(x, y), value| (x + value.0, y + value.1));
        Place { x: x / n, y: Some(y / n), band: None }
    };
    values.chunks(together).map(mean).collect()
}

/// The lines with marks at the start and end of the measured window.
fn chart(title: String, y: &str, lines: Vec<Line>, phases: &[f64]) -> Chart {
    let names = ["measured from", "to"];
    let marks = phases.iter().zip(names).map(|(at_s, name)| (*at_s, name.to_owned())).collect();
    let axis = |label: &str| Axis { label: label.into(), from_zero: true, ..Axis::default() };
    Chart::Trace(Trace { title, x: axis("time since the start of the command (s)"), y: axis(y), lines, marks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_match_a_manual_calculation() {
        // 5 J in 2 s, a reset, 1 J in 1 s
        let values = [(0.0, 1e6), (2.0, 6e6), (3.0, 0.0), (4.0, 1e6)];
        assert_eq!(slopes(&values, 1e-6), [(2.0, 2.5), (4.0, 1.0)]);
        // A counter of ticks, read every 5 ms for 4 s: 1 J a second, in steps of 20 ms
        let ticks: Vec<(f64, f64)> = (0..=800).map(|at| (f64::from(at) * 0.005, f64::from(at / 4) * 0.02)).collect();
        let slopes = slopes(&ticks, 1.0);
        assert_eq!(slopes.len(), 40);
        assert!(slopes.iter().all(|(_, watts)| (0.75..=1.25).contains(watts)), "{slopes:?}");
    }

    #[test]
    fn cpu_time_is_summed_by_kind() {
        let columns =
            ["since_start_ns", "cpu0_per_user_ns", "cpu0_per_idle_ns", "cpu1_per_user_ns", "cpu1_per_steal_ns"];
        let row = |at_s: f64, values: [f64; 4]| {
            [at_s * 1e9].into_iter().chain(values.map(|s| s * 1e9)).map(Some).collect::<Vec<_>>()
        };
        let rows = vec![row(0.0, [1.0, 5.0, 2.0, 0.0]), row(2.0, [2.0, 6.0, 4.0, 0.0])];
        let track = Samples { sensor: "cputime".into(), columns: columns.map(str::to_owned).to_vec(), rows };
        let fits = |column: &str| column.ends_with("user_ns");
        assert_eq!(summed(&track, fits), [(0.0, 3e9), (2.0, 6e9)]);
        let lines = cpu_time(&super::super::tests::plain_read(), &track);
        assert_eq!(lines.iter().map(|line| line.name.as_str()).collect::<Vec<_>>(), ["user"], "no steal time");
        assert_eq!(lines[0].places[0].y, Some(1.5));
    }

    #[test]
    fn thinning_preserves_the_mean() {
        let values: Vec<(f64, f64)> = (0..1_000).map(|at| (f64::from(at), f64::from(at % 10))).collect();
        let places = thinned(&values);
        assert_eq!(places.len(), 200);
        let mean = places.iter().filter_map(|place| place.y).sum::<f64>() / places.len() as f64;
        assert!((mean - 4.5).abs() < 1e-9);
    }
}
