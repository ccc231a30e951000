//! Who is better than whom at a load, and what a mix of polling and interrupts would take.
//!
//! Beyond noise is: by more than half of the range of both in their rounds, and by more than a point of CPU or a microsecond. A policy is worse
//! than another if that one is at least as good in both and better beyond noise in one.

use std::fs::OpenOptions;
use std::io::Write as _;

use super::{CONTENDERS, LOADS, Load, Point};

/// All contenders at one load.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) load: Load,
    /// By contender.
    pub(crate) rounds: Vec<Vec<Point>>,
}

type Value = fn(&Point) -> f64;

const CPU: (Value, f64) = (|point| point.cpu_percent, 1.0);
const MEAN: (Value, f64) = (|point| point.mean_us, 1.0);
const P99: (Value, f64) = (|point| point.p99_us, 1.0);

fn sorted(points: &[Point], of: Value) -> Vec<f64> {
    let mut values: Vec<f64> = points.iter().map(of).collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

fn half_range(points: &[Point], of: Value) -> f64 {
    let values = sorted(points, of);
    values.first().zip(values.last()).map_or(0.0, |(first, last)| (last - first) / 2.0)
}

impl Measured {
    /// Medians of a contender; `None` if it could not run.
    pub(crate) fn median(&self, contender: usize) -> Option<Point> {
        let points = &self.rounds[contender];
        let of = |of: Value| {
            let values = sorted(points, of);
            values[values.len() / 2]
        };
        (!points.is_empty()).then(|| Point {
            iops: of(|p| p.iops),
            mean_us: of(|p| p.mean_us),
            p50_us: of(|p| p.p50_us),
            p99_us: of(|p| p.p99_us),
            cpu_percent: of(|p| p.cpu_percent),
        })
    }

    fn noise(&self, one: usize, other: usize, (of, least): (Value, f64)) -> f64 {
        (half_range(&self.rounds[one], of) + half_range(&self.rounds[other], of)).max(least)
    }

    /// Whether `other` is at least as good in both, and better beyond noise in one.
    fn is_worse(&self, one: usize, other: usize, values: [(Value, f64); 2]) -> bool {
        let (Some(mine), Some(others)) = (self.median(one), self.median(other)) else { return false };
        let gain = |(of, _): (Value, f64)| of(&mine) - of(&others);
        values.iter().all(|value| gain(*value) >= 0.0)
            && values.iter().any(|value| gain(*value) > self.noise(one, other, *value))
    }

    /// Others than `pacer` that it is worse than.
    fn betters(&self, one: usize, values: [(Value, f64); 2]) -> Vec<&'static str> {
        let others = (0..CONTENDERS.len()).filter(|&other| CONTENDERS[other].tolerance_ppm.is_none());
        others.filter(|&other| self.is_worse(one, other, values)).map(|other| CONTENDERS[other].label).collect()
    }

    /// CPU in per cent of the mix of `static` and `interrupt` with the mean latency of this one; `None` where it is not between theirs, or these
    /// do not differ beyond noise.
    fn mix(&self, one: usize) -> Option<f64> {
        let (polls, sleeps, mine) = (self.median(0)?, self.median(1)?, self.median(one)?);
        let range_us = sleeps.mean_us - polls.mean_us;
        let share = (mine.mean_us - polls.mean_us) / range_us;
        (range_us > self.noise(0, 1, MEAN) && (0.0..=1.0).contains(&share))
            .then_some(polls.cpu_percent * (1.0 - share) + sleeps.cpu_percent * share)
    }

    pub(crate) fn print(&self) {
        for (at, contender) in CONTENDERS.iter().enumerate() {
            let Some(p) = self.median(at) else { continue };
            let label = contender.label;
            if p.iops == 0.0 {
                println!("| none | {label} | - | {:.2} | - | - | - | - | - | - |", p.cpu_percent);
                continue;
            }
            let is_pacer = contender.tolerance_ppm.is_some();
            let mix = self.mix(at).filter(|_| is_pacer).map_or_else(|| "-".to_owned(), |mix| format!("{mix:.1}"));
            let mut worse: Vec<String> = self.betters(at, [CPU, MEAN]).iter().map(|name| (*name).to_owned()).collect();
            worse.extend(self.betters(at, [CPU, P99]).iter().map(|name| format!("{name} (p99)")));
            let worse = if is_pacer && !worse.is_empty() { worse.join(", ") } else { "-".to_owned() };
            println!(
                "| {} | {label} | {:.0} | {:.1} | {:.2} | {:.1} | {:.1} | {:.1} | {mix} | {worse} |",
                self.load.label(),
                p.iops,
                p.cpu_percent,
                p.cpu_us_per_io(),
                p.mean_us,
                p.p50_us,
                p.p99_us
            );
        }
    }
}

/// At how many loads `pacer` beats the mix, and is worse than another policy.
pub(crate) fn summarize(all: &[Measured]) {
    let loads = || all.iter().filter(|measured| measured.load.rate > 0.0);
    let pacers = || (0..CONTENDERS.len()).filter(|&at| CONTENDERS[at].tolerance_ppm.is_some());
    let beats = |measured: &Measured, at: usize| {
        let noise = measured.noise(at, at, CPU) + measured.noise(0, 1, CPU) / 2.0;
        measured.median(at).zip(measured.mix(at)).is_some_and(|(mine, mix)| mine.cpu_percent < mix - noise)
    };
    let names = |of: &dyn Fn(&Measured) -> bool| {
        let names: Vec<String> =
            loads().filter(|measured| of(measured)).map(|measured| measured.load.label()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    println!("pacer beats the mix at: {}", names(&|measured| pacers().any(|at| beats(measured, at))));
    println!(
        "pacer is worse than another in CPU and mean latency at: {}",
        names(&|measured| pacers().any(|at| !measured.betters(at, [CPU, MEAN]).is_empty()))
    );
    println!(
        "pacer is worse than another in CPU and p99 at: {}",
        names(&|measured| pacers().any(|at| !measured.betters(at, [CPU, P99]).is_empty()))
    );
}

/// Keeps a point.
pub(crate) fn append(file: Option<&str>, load: Load, label: &str, p: &Point) {
    let Some(file) = file else { return };
    let numbers = [p.iops, p.mean_us, p.p50_us, p.p99_us, p.cpu_percent].map(|number| number.to_string());
    let opened = OpenOptions::new().create(true).append(true).open(file);
    let written = opened.and_then(|mut file| writeln!(file, "{};{label};{}", load.label(), numbers.join(";")));
    written.expect("what was measured can be written");
}

/// All loads, with the points that [`append`] has kept.
pub(crate) fn read(file: Option<&str>) -> Vec<Measured> {
    let text = file.and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
    let mut all = LOADS.map(|load| Measured { load, rounds: vec![Vec::new(); CONTENDERS.len()] }).to_vec();
    for (load, at, point) in text.lines().filter_map(line) {
        all[load].rounds[at].push(point);
    }
    all
}

/// The load, the contender and the point of a line.
fn line(line: &str) -> Option<(usize, usize, Point)> {
    let mut fields = line.split(';');
    let (load, label) = (fields.next()?, fields.next()?);
    let load = LOADS.iter().position(|known| known.label() == load)?;
    let at = CONTENDERS.iter().position(|contender| contender.label == label)?;
    let numbers: Vec<f64> = fields.filter_map(|number| number.parse().ok()).collect();
    let &[iops, mean_us, p50_us, p99_us, cpu_percent] = &numbers[..] else { return None };
    Some((load, at, Point { iops, mean_us, p50_us, p99_us, cpu_percent }))
}
