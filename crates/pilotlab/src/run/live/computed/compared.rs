//! The machine with scheduled cores beside the one that the committed results were made with, at every point of the thesis and of the
//! polling paper. It takes long; `ONLY=thesis/depth`, `EVERY=5` (points) and `REQUESTS=1000` make it shorter:
//!
//! `cargo test --release -p pilotlab -- --ignored --nocapture both_machines`

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pilotlight_bench::experiment::{self, Asked};
use pilotlight_bench::plan::Plan;
use pilotlight_bench::run::computed::{self, Ask};
use pilotlight_sim::histogram::Histogram;
use pilotlight_sim::local::{self as sim, Load, Local};
use pilotlight_sim::outcome::{JobStretch, Outcome, Stretch};
use pilotlight_workloads::Point;

use super::tolerance::{POINTS, TOLERANCE};
use super::{Simulated, asked};

/// Requests that a run without writes and rests has at least, so that means are those of the machine: the noise of a mean is then 0.5 %.
const REQUESTS: u64 = 40_000;
/// But no run is longer.
const LONGEST_NS: u64 = 60_000_000_000;

const THESIS: [&str; 12] = [
    "apst",
    "depth",
    "engine",
    "gc-15s",
    "gc-60s",
    "intervals",
    "jobs",
    "mixed",
    "mixed-deep",
    "polling",
    "scheduler",
    "size",
];

/// Figures of a run by metric; one that a run does not have is left out.
type Figures = BTreeMap<&'static str, f64>;

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn latencies(figures: &mut Figures, reads: &Histogram, writes: &Histogram, load: &Load) {
    let count = reads.count() + writes.count();
    figures.insert("io_per_s", count as f64 / seconds(load.duration_ns));
    if count == 0 {
        return;
    }
    let sum_ns = (reads.sum() + writes.sum()) as f64;
    figures.insert("io_latency_mean_us", sum_ns / count as f64 / 1e3);
    let of = if reads.count() >= writes.count() { reads } else { writes };
    figures.insert("io_latency_p99_us", of.quantile(0.99) as f64 / 1e3);
}

fn before(machine: &Local, load: &Load) -> Figures {
    let tally = sim::run(machine, load);
    let mut figures = Figures::new();
    latencies(&mut figures, &tally.reads, &tally.writes, load);
    let (from, to) = (load.ramp_ns, load.ramp_ns + load.duration_ns);
    let length = load.duration_ns as f64;
    let sum = tally.sum(from, to);
    let energy = |slots: (u64, u64)| {
        let all = tally.slots.iter().enumerate().filter(|(at, _)| (slots.0..slots.1).contains(&(*at as u64)));
        all.map(|(_, slot)| slot.energy(machine, load.state, tally.slot_ns as f64))
            .fold([0.0; 3], |sum, one| [sum[0] + one.drive_uj, sum[1] + one.cpu_uj, sum[2] + one.system_uj])
    };
    let slots = (from.div_ceil(tally.slot_ns), to / tally.slot_ns);
    let watts = energy(slots).map(|uj| uj / (((slots.1 - slots.0) * tally.slot_ns) as f64 / 1e3));
    figures.extend([("ssd_power_w", watts[0]), ("cpu_power_w", watts[1]), ("system_power_w", watts[2])]);
    figures.insert("cpu_busy_cores", (sum.run_ns + sum.spin_ns) / length);
    figures.insert("context_switches_per_s", sum.switches / seconds(load.duration_ns));
    if load.after_ns > 0 {
        let slots = (to.div_ceil(tally.slot_ns), (to + load.after_ns) / tally.slot_ns);
        figures.insert("ssd_power_after_w", energy(slots)[0] / (((slots.1 - slots.0) * tally.slot_ns) as f64 / 1e3));
        figures.insert("drive_busy_after_s", seconds(tally.gc_after_ns));
    }
    figures
}

fn after(machine: &Local, load: &Load) -> Figures {
    let scenario = machine.scenario(load);
    let policy = pilotlight_policy::registry::build("static", &[]).unwrap();
    let outcome: Outcome = pilotlight_sim::run(&scenario, policy).unwrap();
    let mut figures = Figures::new();
    latencies(&mut figures, &outcome.jobs.reads, &outcome.jobs.writes, load);
    let series = scenario.series_ns;
    let (from, to) = (load.ramp_ns / series, (load.ramp_ns + load.duration_ns) / series);
    let of = |from: u64, to: u64, of: fn(&Stretch) -> u64| -> f64 {
        let part = &outcome.series[from as usize..to as usize];
        part.iter().map(of).sum::<u64>() as f64 / (((to - from) * series) as f64 / 1e3)
    };
    figures.extend([
        ("ssd_power_w", of(from, to, |stretch| stretch.energy.drives_uj)),
        ("cpu_power_w", of(from, to, |stretch| stretch.energy.cpu_uj)),
        ("system_power_w", of(from, to, |stretch| stretch.energy.system_uj())),
    ]);
    let jobs =
        |of: fn(&JobStretch) -> u64| outcome.jobs.series[from as usize..to as usize].iter().map(of).sum::<u64>() as f64;
    let length = ((to - from) * series) as f64;
    figures.insert("cpu_busy_cores", jobs(|stretch| stretch.work_ns + stretch.look_ns) / length);
    figures.insert("context_switches_per_s", jobs(|stretch| stretch.switches) / (length / 1e9));
    if load.after_ns > 0 {
        let end = (load.ramp_ns + load.duration_ns + load.after_ns) / series;
        figures.insert("ssd_power_after_w", of(to, end, |stretch| stretch.energy.drives_uj));
        figures.insert("drive_busy_after_s", seconds(outcome.jobs.to_move_ns));
    }
    figures
}

/// What the environment says, for a short look.
fn number(name: &str, else_: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(else_)
}

/// By metric: points, the largest distance and where, how many are beyond the tolerance.
#[derive(Default)]
struct Distance {
    points: usize,
    beyond: usize,
    sum: f64,
    largest: (f64, String),
}

fn compare(file: &Path, profile: &str, distances: &mut BTreeMap<&'static str, Distance>) {
    let home = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let machine = Simulated::load(&home.join(format!("profiles/{profile}.toml"))).unwrap();
    let loaded = experiment::load(&home.join(file), &Asked::default()).unwrap();
    let plan = Plan::new(&loaded);
    let (every, requests) = (number("EVERY", 1), number("REQUESTS", REQUESTS));
    let mut seen = 0;
    let one = |point: &Point, ask: &Ask<'_>| {
        seen += 1;
        if (seen - 1) % every != 0 {
            return Ok(None);
        }
        let load = asked::load(&machine.files.machine, ask)?;
        // Where a lower power state draws its delays, a fifth of a second holds too few of them.
        let mut load = load;
        if !asked::is_whole(&load) {
            let rate = before(&machine.files.machine, &load)["io_per_s"];
            let needed_ns = (requests as f64 / rate.max(1.0) * 1e9) as u64;
            load.duration_ns = needed_ns.clamp(load.duration_ns, LONGEST_NS).next_multiple_of(load.duration_ns);
        }
        let (before, after) = (before(&machine.files.machine, &load), after(&machine.files.machine, &load));
        Ok(Some((format!("{} {point:?}", file.display()), before, after)))
    };
    for (place, before, after) in computed::asked(&loaded, &plan, one).unwrap().into_iter().flatten() {
        assert!(before.keys().eq(after.keys()), "{place}: {before:?} {after:?}");
        for (metric, old) in before {
            let new = after[metric];
            let distance = (new - old).abs() / old.abs().max(new.abs()).max(1e-9);
            let tolerance =
                TOLERANCE.iter().find(|(name, _)| *name == metric).map_or(0.02, |(_, tolerance)| *tolerance);
            let all = distances.entry(metric).or_default();
            all.points += 1;
            all.beyond += usize::from(distance > tolerance);
            all.sum += distance;
            if distance > tolerance {
                println!("{metric} {old:.4} {new:.4} {:.1} % {place}", 100.0 * distance);
            }
            if distance > all.largest.0 {
                all.largest = (distance, place.clone());
            }
        }
    }
    println!("{} compared", file.display());
}

#[test]
#[ignore = "minutes"]
fn both_machines_are_the_same_within_the_tolerance() {
    let mut distances = BTreeMap::new();
    let only = std::env::var("ONLY").unwrap_or_default();
    let thesis = THESIS.map(|name| (PathBuf::from(format!("experiments/thesis/{name}.toml")), "thesis-980pro"));
    let polling = (PathBuf::from("experiments/completion/paper.toml"), "poll-optane-900p");
    for (file, profile) in thesis.into_iter().chain([polling]) {
        if file.to_string_lossy().contains(&only) {
            compare(&file, profile, &mut distances);
        }
    }
    let mut misses = Vec::new();
    for (metric, distance) in &distances {
        let Distance { points, beyond, sum, largest: (largest, place) } = distance;
        let mean = 100.0 * sum / *points as f64;
        println!(
            "{metric}: {beyond} of {points} points beyond, mean {mean:.2} %, largest {:.1} % at {place}",
            100.0 * largest
        );
        if *beyond as f64 > POINTS * *points as f64 {
            misses.push(metric);
        }
    }
    assert!(misses.is_empty(), "{misses:?}");
}
