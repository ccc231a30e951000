//! Section 5.3 of SANDMAN, "Accuracy of burst detection", on the policy alone: false moves under steady load, bursts found.
//!
//! ```text
//! cargo run --release -p pilotlight-policy --example detection -- --grid SECONDS [--json] [--seed N] [--iops N ...]
//! cargo run --release -p pilotlight-policy --example detection [-- --json] [--runs N] [--ticks N] [--seed N] [--iops N ...] [--only NAME | --set KEY=VALUE ...]
//! ```
//!
//! The paper: two minutes for each rate, 100 iterations; 93.45 to 95.78 % accuracy under steady load (the unit is not stated), and 97.84 % of
//! bursts found. Here a run has 5,000 ticks (0.05 s) by default, so that the table takes about a minute; 12,000,000 ticks are two minutes.
//! `--grid` prints false moves per second and cores awake instead (`grid.rs`).

mod binomial;
mod experiment;
mod grid;
mod workload;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use binomial::{Share, digits};
use experiment::{Burst, Bursts, Found, LATE_NS, Lateness, SOON_NS, Setting, Stable, Steady, bursts, stable};
use serde::Serialize;
use workload::{Place, Shape};

/// The command line.
struct Options {
    json: bool,
    /// Seconds for each row of the `--grid` table.
    grid: Option<u64>,
    runs: u64,
    ticks: u64,
    seed: u64,
    only: Option<String>,
    /// Steady load at these rates only.
    iops: Vec<u64>,
    /// Guards of `--set`, instead of those of the table.
    own: Vec<(String, String)>,
}

/// False moves at one rate under one setting.
#[derive(Serialize)]
struct StableRow {
    load: &'static str,
    iops: u64,
    setting: String,
    /// Runs without a false move.
    runs: Share,
    /// Thread-ticks without a false move.
    thread_ticks: Share,
    /// Thread-ticks with requests, without a false move.
    busy_thread_ticks: Share,
}

/// Bursts found under one setting.
#[derive(Serialize)]
struct BurstRow {
    load: &'static str,
    threads: usize,
    on: &'static str,
    after: &'static str,
    setting: String,
    /// Bursts in which a thread moved.
    bursts: FoundShares,
    /// Threads of bursts that moved.
    thread_bursts: FoundShares,
}

#[derive(Serialize)]
struct FoundShares {
    /// In the `SOON_NS` before a burst.
    by_chance: Share,
    soon: Share,
    late: Share,
}

#[derive(Serialize)]
struct Report {
    runs: u64,
    ticks: u64,
    tick_ns: u64,
    seed: u64,
    soon_ns: u64,
    late_ns: u64,
    stable: Vec<StableRow>,
    bursts: Vec<BurstRow>,
}

const USAGE: &str = "usage: detection --grid SECONDS [--json] [--seed N] [--iops N ...]\n   or: detection [--json] [--runs N] [--ticks N] [--seed N] [--iops N ...] [--only SETTING | --set KEY=VALUE ...]";

fn main() {
    let (options, settings) = match options().and_then(|options| selected(&options).map(|settings| (options, settings)))
    {
        Ok(both) => both,
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            std::process::exit(2);
        }
    };
    if let Some(seconds) = options.grid {
        return measure_grid(&options, seconds);
    }
    let report = measure(&options, &settings);
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report).expect("a report can be written"));
    } else {
        print(&report, &settings);
    }
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        json: false,
        grid: None,
        runs: 100,
        ticks: 5_000,
        seed: 1,
        only: None,
        iops: Vec::new(),
        own: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("{argument} needs a number, not {text}"));
        match argument.as_str() {
            "--json" => options.json = true,
            "--grid" => options.grid = Some(number(value()?)?),
            "--runs" => options.runs = number(value()?)?,
            "--ticks" => options.ticks = number(value()?)?,
            "--seed" => options.seed = number(value()?)?,
            "--only" => options.only = Some(value()?),
            "--iops" => options.iops.push(number(value()?)?),
            "--set" => options.own.push(guard(&value()?)?),
            _ => return Err(format!("{argument} is not known")),
        }
    }
    if options.runs == 0 || options.ticks == 0 || options.grid == Some(0) {
        return Err("there must be a run and a tick".to_owned());
    }
    Ok(options)
}

fn guard(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or(format!("{text} is not of the form KEY=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// The settings to measure: those of `--set`, one of the table, or all.
fn selected(options: &Options) -> Result<Vec<Setting>, String> {
    if !options.own.is_empty() {
        let own: Vec<_> = options.own.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let own = Setting::new("own", &own);
        return own.policy().map(|_| vec![own]).map_err(|error| error.to_string());
    }
    let wanted = |setting: &Setting| options.only.as_ref().is_none_or(|only| *only == setting.name);
    let found: Vec<_> = settings().into_iter().filter(wanted).collect();
    let names: Vec<_> = settings().into_iter().map(|setting| setting.name).collect();
    if found.is_empty() { Err(format!("the settings are: {}", names.join("; "))) } else { Ok(found) }
}

/// The printed words alone, the printed rule as it is read, single guards and combinations.
fn settings() -> Vec<Setting> {
    vec![
        Setting::new("error", &[]),
        Setting::new("forecast", &[("spread", "forecast")]),
        Setting::new("window 16", &[("window", "16")]),
        Setting::new("window 256", &[("window", "256")]),
        Setting::new("exempt_alone", &[("exempt_alone", "true")]),
        Setting::new("min_requests 2", &[("min_requests", "2")]),
        Setting::new("confirm 2/3", &[("confirm", "2/3")]),
        Setting::new("deviation", &[("spread", "deviation")]),
        Setting::new("dev, 2/3", &[("spread", "deviation"), ("confirm", "2/3")]),
        Setting::new("dev, 256, 14/14", &[("spread", "deviation"), ("window", "256"), ("confirm", "14/14")]),
        Setting::new("dev, average 32", &[("spread", "deviation"), ("window", "256"), ("average", "32")]),
        Setting::new("recommended", &[("guards", "recommended")]),
    ]
}

const STEADY: [(Shape, Lateness); 3] =
    [(Shape::Poisson, Lateness::Never), (Shape::Paced, Lateness::Never), (Shape::Poisson, Lateness::Stalls)];

/// Where the threads live, how many there are, and whether the whole server slept before the burst.
const BURSTS: [(Place, usize, bool); 11] = [
    (Place::Main, 1, false),
    (Place::Main, 4, false),
    (Place::Main, 16, false),
    (Place::Main, 48, false),
    (Place::Worker, 2, false),
    (Place::Worker, 4, false),
    (Place::Worker, 16, false),
    (Place::Worker, 48, false),
    (Place::Main, 1, true),
    (Place::Main, 4, true),
    (Place::Main, 48, true),
];

/// A measurement.
enum Job {
    Stable(Shape, u64, Lateness),
    Burst(Burst),
}

enum Rows {
    Stable(Vec<StableRow>),
    Burst(Vec<BurstRow>),
}

/// Default rates of the grid: few requests a tick for all threads, one for some, and many for each.
const GRID_IOPS: [u64; 4] = [10_000, 320_000, 2_560_000, 10_240_000];

fn measure_grid(options: &Options, seconds: u64) {
    let rates = if options.iops.is_empty() { &GRID_IOPS[..] } else { &options.iops };
    let settings = grid::settings();
    let mut jobs = Vec::new();
    for shape in grid::SHAPES {
        for &iops in rates {
            jobs.extend(settings.iter().map(|setting| (shape, iops, setting)));
        }
    }
    let rows = in_parallel(&jobs, |&(shape, iops, setting)| grid::row(shape, iops, setting, seconds, options.seed));
    if options.json {
        println!("{}", serde_json::to_string_pretty(&rows).expect("rows can be written"));
    } else {
        grid::print(&rows, seconds);
    }
}

fn measure(options: &Options, settings: &[Setting]) -> Report {
    let shapes = [Shape::Poisson, Shape::Paced];
    let table: Vec<u64> = (0..11).map(|doubling| 10_000 << doubling).collect();
    let rates = if options.iops.is_empty() { &table } else { &options.iops };
    let mut jobs = Vec::new();
    for (shape, lateness) in STEADY {
        jobs.extend(rates.iter().map(|&iops| Job::Stable(shape, iops, lateness)));
    }
    for (place, active, from_sleep) in BURSTS {
        jobs.extend(shapes.map(|shape| Job::Burst(Burst { shape, active, place, from_sleep })));
    }
    let rows = in_parallel(&jobs, |job| run(job, options, settings));
    let mut report = Report {
        runs: options.runs,
        ticks: options.ticks,
        tick_ns: experiment::TICK_NS,
        seed: options.seed,
        soon_ns: SOON_NS,
        late_ns: LATE_NS,
        stable: Vec::new(),
        bursts: Vec::new(),
    };
    for rows in rows {
        match rows {
            Rows::Stable(rows) => report.stable.extend(rows),
            Rows::Burst(rows) => report.bursts.extend(rows),
        }
    }
    report
}

/// Runs jobs on all CPUs; results in the order of the jobs.
fn in_parallel<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let number = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(job) = jobs.get(number)
                {
                    let result = work(job);
                    results.lock().expect("no thread panics").push((number, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no thread panics");
    results.sort_by_key(|&(number, _)| number);
    results.into_iter().map(|(_, result)| result).collect()
}

fn run(job: &Job, options: &Options, settings: &[Setting]) -> Rows {
    match job {
        &Job::Stable(shape, iops, lateness) => {
            let load = Steady { shape, iops: iops as f64, lateness };
            let results = stable(&load, settings, options.runs, options.ticks, options.seed);
            let row = |(setting, result): (&Setting, Stable)| StableRow {
                load: load.name(),
                iops,
                setting: setting.name.clone(),
                runs: Share::new(result.runs - result.runs_with_moves, result.runs),
                thread_ticks: Share::new(result.thread_ticks - result.moves, result.thread_ticks),
                busy_thread_ticks: Share::new(result.busy_thread_ticks - result.moves, result.busy_thread_ticks),
            };
            Rows::Stable(settings.iter().zip(results).map(row).collect())
        }
        Job::Burst(burst) => {
            let results = bursts(burst, settings, options.runs, options.seed);
            let shares = |result: &Bursts, of: u64, what: fn(Found) -> u64| FoundShares {
                by_chance: Share::new(what(result.by_chance), of),
                soon: Share::new(what(result.soon), of),
                late: Share::new(what(result.late), of),
            };
            let row = |(setting, result): (&Setting, Bursts)| BurstRow {
                load: burst.shape.name(),
                threads: burst.active,
                on: if burst.place == Place::Main { "main" } else { "worker" },
                after: if burst.from_sleep { "server sleep" } else { "5 %" },
                setting: setting.name.clone(),
                bursts: shares(&result, result.bursts, |found| found.bursts),
                thread_bursts: shares(&result, result.threads, |found| found.threads),
            };
            Rows::Burst(settings.iter().zip(results).map(row).collect())
        }
    }
}

fn print(report: &Report, settings: &[Setting]) {
    let seconds = report.ticks as f64 * report.tick_ns as f64 / 1e9;
    println!("Steady load: {} runs of {} ticks ({seconds} s) at each rate, 48 I/O threads.", report.runs, report.ticks);
    println!(
        "Right, in per cent, with exact binomial 95 % intervals: no false move in a run, in a tick of a thread, in a tick"
    );
    println!("of a thread with a request or more. The paper: 93.45 to 95.78 %, unit not stated.\n");
    let title = ["load", "IOPS", "setting", "runs", "thread-ticks", "busy thread-ticks"];
    let [load, iops, setting, runs, all, busy] = title;
    println!("{load:8} {iops:>9} {setting:15} {runs:24} {all:34} {busy}");
    for row in &report.stable {
        let StableRow { load, iops, setting, runs, thread_ticks, busy_thread_ticks } = row;
        println!("{load:8} {iops:9} {setting:15} {runs:24} {thread_ticks:34} {busy_thread_ticks}");
    }
    println!("\nThe range over all rates, in per cent right:\n");
    println!("{setting:15} {:8} {runs:20} {all:26} {busy}", "load");
    for setting in settings {
        for load in ["Poisson", "paced", "stalls"] {
            let rows = || report.stable.iter().filter(|row| row.setting == setting.name && row.load == load);
            let range = |share: fn(&StableRow) -> Share| {
                let least = rows().map(|row| share(row).percent).fold(100.0, f64::min);
                let most = rows().map(|row| share(row).percent).fold(0.0, f64::max);
                format!("{} to {}", digits(least), digits(most))
            };
            let [runs, all] = [range(|row| row.runs), range(|row| row.thread_ticks)];
            println!("{:15} {load:8} {runs:20} {all:26} {}", setting.name, range(|row| row.busy_thread_ticks));
        }
    }
    println!(
        "\nBursts of one SSD (5 % to 100 % of 2.5 M IOPS), the threads on one core, {} bursts each. In per cent: a move",
        report.runs
    );
    println!(
        "within {} us (soon) and {} us (late) of the start; by chance: a move in",
        SOON_NS / 1_000,
        LATE_NS / 1_000
    );
    println!("as long a time right before as is soon. The paper: 97.84 % of bursts.\n");
    let head = |what: &str| format!("{:20} {:20} {:9}", format!("{what} soon"), format!("{what} late"), "by chance");
    println!("{load:8} {:>7} {:6} {:12} {setting:15} {} {}", "threads", "on", "after", head("bursts"), head("threads"));
    for row in &report.bursts {
        let BurstRow { load, threads, on, after, setting, bursts, thread_bursts } = row;
        let shares = |found: &FoundShares| {
            let FoundShares { by_chance, soon, late } = found;
            format!("{soon:20} {late:20} {:9}", digits(by_chance.percent))
        };
        println!("{load:8} {threads:7} {on:6} {after:12} {setting:15} {} {}", shares(bursts), shares(thread_bursts));
    }
}
