//! Comparison of policies at a load, and the CPU time of a mix of polling and interrupts.
//!
//! A difference exceeds the noise if it is more than the sum of both half ranges over the rounds, and more than 1 % of a CPU or 1 us. A
//! policy is worse than another that is at least as good in both metrics, and better beyond the noise in one.

use std::fs::OpenOptions;

use super::{LOADS, Load, POLICIES, Point};

/// Results of all policies at one load.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) load: Load,
    /// By policy.
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
    /// Medians of a policy; `None` if it did not run.
    pub(crate) fn median(&self, policy: usize) -> Option<Point> {
        let points = &self.rounds[policy];
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

    /// Whether `other` is at least as good in both metrics, and better beyond the noise in one.
    fn is_worse(&self, one: usize, other: usize, values: [(Value, f64); 2]) -> bool {
        let (Some(mine), Some(others)) = (self.median(one), self.median(other)) else { return false };
        let gain = |(of, _): (Value, f64)| of(&mine) - of(&others);
        values.iter().all(|value| gain(*value) >= 0.0)
            && values.iter().any(|value| gain(*value) > self.noise(one, other, *value))
    }

    /// Policies other than `pacer` that are better.
    fn betters(&self, one: usize, values: [(Value, f64); 2]) -> Vec<&'static str> {
        let others = (0..POLICIES.len()).filter(|&other| POLICIES[other].tolerance_ppm.is_none());
        others.filter(|&other| self.is_worse(one, other, values)).map(|other| POLICIES[other].label).collect()
    }

    /// CPU percentage of the mix of `static` and `interrupt` with the same mean latency; `None` if it is not between theirs, or theirs do
    /// not differ beyond the noise.
    fn mix(&self, one: usize) -> Option<f64> {
        let (polls, sleeps, mine) = (self.median(0)?, self.median(1)?, self.median(one)?);
        let range_us = sleeps.mean_us - polls.mean_us;
        let share = (mine.mean_us - polls.mean_us) / range_us;
        (range_us > self.noise(0, 1, MEAN) && (0.0..=1.0).contains(&share))
            .then_some(polls.cpu_percent * (1.0 - share) + sleeps.cpu_percent * share)
    }

    pub(crate) fn print(&self) {
        for (at, policy) in POLICIES.iter().enumerate() {
            let Some(p) = self.median(at) else { continue };
            let label = policy.label;
            if p.iops == 0.0 {
                println!("| none | {label} | - | {:.2} | - | - | - | - | - | - |", p.cpu_percent);
                continue;
            }
            let is_pacer = policy.tolerance_ppm.is_some();
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

/// Prints the loads at which `pacer` is better than the mix, or worse than another policy.
pub(crate) fn summarize(all: &[Measured]) {
    let loads = || all.iter().filter(|measured| measured.load.rate > 0.0);
    let pacers = || (0..POLICIES.len()).filter(|&at| POLICIES[at].tolerance_ppm.is_some());
    let is_better = |measured: &Measured, at: usize| {
        let noise = measured.noise(at, at, CPU) + measured.noise(0, 1, CPU) / 2.0;
        measured.median(at).zip(measured.mix(at)).is_some_and(|(mine, mix)| mine.cpu_percent < mix - noise)
    };
    let names = |of: &dyn Fn(&Measured) -> bool| {
        let names: Vec<String> =
            loads().filter(|measured| of(measured)).map(|measured| measured.load.label()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    println!("pacer is better than the mix at: {}", names(&|measured| pacers().any(|at| is_better(measured, at))));
    println!(
        "pacer is worse than another in CPU and mean latency at: {}",
        names(&|measured| pacers().any(|at| !measured.betters(at, [CPU, MEAN]).is_empty()))
    );
    println!(
        "pacer is worse than another in CPU and p99 at: {}",
        names(&|measured| pacers().any(|at| !measured.betters(at, [CPU, P99]).is_empty()))
    );
}

/// A saved point: load, policy, IOPS, mean, p50 and p99 latency (us), CPU (%).
type Row = (String, String, f64, f64, f64, f64, f64);

/// Appends a point to the file.
pub(crate) fn append(file: Option<&str>, load: Load, label: &str, p: &Point) {
    let Some(file) = file else { return };
    let file = OpenOptions::new().create(true).append(true).open(file).expect("the file opens");
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(file);
    let row: Row = (load.label(), label.to_owned(), p.iops, p.mean_us, p.p50_us, p.p99_us, p.cpu_percent);
    writer.serialize(row).and_then(|()| Ok(writer.flush()?)).expect("the point is saved");
}

/// All loads, with the points saved by [`append`].
pub(crate) fn read(file: Option<&str>) -> Vec<Measured> {
    let mut all = LOADS.map(|load| Measured { load, rounds: vec![Vec::new(); POLICIES.len()] }).to_vec();
    let Some(reader) = file.and_then(|file| csv::ReaderBuilder::new().has_headers(false).from_path(file).ok()) else {
        return all;
    };
    for row in reader.into_deserialize() {
        let (load, label, iops, mean_us, p50_us, p99_us, cpu_percent): Row = row.expect("a saved point");
        let load = all.iter_mut().find(|measured| measured.load.label() == load).expect("a known load");
        let policy = POLICIES.iter().position(|policy| policy.label == label).expect("a known policy");
        load.rounds[policy].push(Point { iops, mean_us, p50_us, p99_us, cpu_percent });
    }
    all
}
