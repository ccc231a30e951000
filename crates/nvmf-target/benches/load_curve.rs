//! CPU time, CPU per I/O and latency of each policy from no load to full load, with one target core.
//!
//! `cargo bench -p pilotlight-nvmf-target --bench load_curve -- [--seconds S] [--rounds N] [--only RATE,...] [--save FILE] [--svg FILE]`
//!
//! A memory namespace, one connection, 4 KiB random reads: no load, an open loop (Poisson) from 100 to 100,000 reads per second, evenly
//! spaced bursts of 16, and a closed loop at depth 32. The target uses CPU 0; the load polls on CPU 1. Policies alternate within a round;
//! results are medians over rounds. Mean latency is the median of the means of the parts of a measurement, because stalls of a shared
//! machine distort a mean. CPU is the scheduled time of the reactor's thread. `pacer` first gets time to measure its baseline and to settle;
//! its windows are shorter and its stability limits wider than the defaults. Policies that the machine does not support are skipped. A
//! measurement with more than 10 % of a CPU used by other programs is repeated, at most five times. `--only` selects loads (`none`, a rate,
//! `full`, `bursts` with a rate). `--save` stores each point in a file, and points in the file are not measured again.
//!
//! The last two columns (`curve/frontier.rs`) are the CPU of the time-weighted mix of `static` and `interrupt` with the same mean latency,
//! and the policies that are better than `pacer` in CPU and mean latency, or in CPU and p99.

#[path = "curve/frontier.rs"]
mod frontier;
#[path = "curve/picture.rs"]
mod picture;
#[path = "../tests/support/servers.rs"]
mod servers;

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use frontier::Measured;
use pilotlight_host::load::{LoadSpec, OpenLoop, Report, run};
use pilotlight_host::schedule::{Phase, Process, Schedule};
use pilotlight_host::{ConnectOptions, Controller};
use pilotlight_nvmf_target::Server;
use pilotlight_plant::{Goals, Tolerance};
use pilotlight_reactor::{Idle, IdleTimeout, RuntimeOptions};
use pilotlight_storage::BackendSpec;

const NQN: &str = "nqn.2026-01.bench:curve";
const LOADS: [Load; 10] = [
    Load::steady(0.0),
    Load::steady(100.0),
    Load::steady(300.0),
    Load::steady(1e3),
    Load::steady(1e4),
    Load::steady(1e5),
    Load { rate: 300.0, bursts: true },
    Load { rate: 1e3, bursts: true },
    Load { rate: 3e3, bursts: true },
    Load::steady(f64::INFINITY),
];
/// Average requests of a burst, and their rate.
const BURST: f64 = 16.0;
const BURST_RATE: f64 = 20e3;
/// Minimum number of measured requests of an open loop.
const MIN_REQUESTS: f64 = 300.0;
/// Parts of a measurement.
const PARTS: usize = 15;

/// Maximum CPU share of other programs, and number of attempts.
const MAX_OTHER_CPU: f64 = 0.1;
const MAX_ATTEMPTS: u32 = 5;
/// Unit of `/proc/stat`.
const TICKS_PER_S: f64 = 100.0;

/// A load.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Load {
    /// Average requests per second; 0 for no load, infinite for a closed loop.
    rate: f64,
    bursts: bool,
}

impl Load {
    const fn steady(rate: f64) -> Self {
        Self { rate, bursts: false }
    }

    /// A cycle of `seconds`, whose phases with requests are the parts of a measurement.
    fn schedule(self, seconds: f64) -> Schedule {
        let phase = |rate_iops, s: f64| Phase { rate_iops, duration_ns: (s * 1e9) as u64 };
        let burst_s = BURST / BURST_RATE;
        let (part, parts) = match self.bursts {
            true => {
                let period_s = BURST / self.rate;
                (vec![phase(BURST_RATE, burst_s), phase(0.0, period_s - burst_s)], (seconds / period_s) as usize)
            }
            false => (vec![phase(self.rate, seconds / PARTS as f64)], PARTS),
        };
        Schedule::new(part.repeat(parts.clamp(1, 120))).expect("a rate")
    }

    /// Name on the command line and in the table.
    fn label(self) -> String {
        match self.rate {
            0.0 => "none".into(),
            rate if self.bursts => format!("bursts {rate:.0}"),
            rate if rate.is_finite() => format!("{rate:.0}"),
            _ => "full".into(),
        }
    }
}

struct PolicyCase {
    label: &'static str,
    policy: &'static str,
    settings: &'static [(&'static str, &'static str)],
    tolerance_ppm: Option<u32>,
}

const fn plain(policy: &'static str) -> PolicyCase {
    PolicyCase { label: policy, policy, settings: &[], tolerance_ppm: None }
}

const fn pacer(label: &'static str, ppm: u32) -> PolicyCase {
    PolicyCase { label, policy: "pacer", settings: PACER, tolerance_ppm: Some(ppm) }
}

const PACER: &[(&str, &str)] = &[
    ("window", "500ms"),
    ("windows", "2"),
    ("min_requests", "50"),
    ("max_window", "6s"),
    ("stable_threshold", "40%"),
    ("unstable_threshold", "80%"),
    ("burst_threshold", "100%"),
    ("idle_after", "2s"),
];
const POLICIES: [PolicyCase; 11] = [
    plain("static"),
    plain("interrupt"),
    plain("governor"),
    plain("dynamic"),
    plain("hybrid-poll"),
    PolicyCase { label: "sandman", policy: "sandman", settings: &[("guards", "recommended")], tolerance_ppm: None },
    pacer("pacer, tolerance 0", 0),
    pacer("pacer, tolerance 0.2", 200_000),
    pacer("pacer, tolerance 1", 1_000_000),
    pacer("pacer, tolerance 3", 3_000_000),
    pacer("pacer, tolerance 1000", 1_000_000_000),
];

/// One policy under one load.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    iops: f64,
    mean_us: f64,
    p50_us: f64,
    p99_us: f64,
    cpu_percent: f64,
}

impl Point {
    fn cpu_us_per_io(&self) -> f64 {
        self.cpu_percent * 1e4 / self.iops
    }
}

fn serve(case: &PolicyCase) -> Result<Server, String> {
    let namespace = servers::namespace(1, BackendSpec::Memory(256 << 20));
    let subsystem = servers::subsystem(NQN, vec![namespace]);
    let config = servers::config(vec![subsystem]);
    let mut options = RuntimeOptions::new(vec![Some(0)], Idle::Spin);
    options.idle_timeout = IdleTimeout::FromPolicy;
    let server = servers::start_on(config, options);
    let tolerances = case.tolerance_ppm.map(Tolerance::mean_loss).into_iter().collect();
    server.set_goals(Goals { tolerances, ..Goals::default() });
    let policy = pilotlight_policy::build(case.policy, case.settings).expect("settings");
    server.set_policy(policy).map_err(|error| error.to_string())?;
    Ok(server)
}

/// Settling time in seconds. Windows are long in bursts.
fn settling_s(case: &PolicyCase, load: Load) -> f64 {
    match (case.tolerance_ppm, load) {
        (None, _) => 0.3,
        (_, Load { rate: 0.0, .. }) => 4.0,
        // Ends between two bursts, as the load is 1 ms late at the end of its ramp.
        (_, Load { bursts: true, rate }) => 20.0 + BURST / rate / 2.0,
        (_, Load { rate, .. }) => (1_000.0 / rate).clamp(7.0, 12.0),
    }
}

fn measure(case: &PolicyCase, load: Load, seconds: f64) -> Result<Point, String> {
    let (server, rate) = (serve(case)?, load.rate);
    let options = ConnectOptions::new(server.local_addrs()[0], NQN);
    let cpu_ns = || server.stats().runtime.reactors[0].cpu_ns;
    let settling = Duration::from_secs_f64(settling_s(case, load));
    if rate == 0.0 {
        let _host = Controller::connect(options).expect("a host");
        std::thread::sleep(settling);
        let (before_ns, began) = (cpu_ns(), Instant::now());
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let elapsed_ns = began.elapsed().as_nanos() as f64;
        return Ok(Point { cpu_percent: 100.0 * (cpu_ns() - before_ns) as f64 / elapsed_ns, ..Point::default() });
    }
    let open_loop = || OpenLoop { schedule: load.schedule(seconds), process: Process::Poisson };
    let seconds = if rate.is_finite() { seconds.max(MIN_REQUESTS / rate) } else { seconds };
    let spec = LoadSpec {
        depth: 32,
        cpus: vec![1],
        open: rate.is_finite().then(open_loop),
        ramp_ns: settling.as_nanos() as u64,
        runtime_ns: Some((seconds * 1e9) as u64),
        ..LoadSpec::default()
    };
    let (report, before_ns, elapsed_ns, after_ns) = std::thread::scope(|scope| {
        let before = scope.spawn(|| {
            std::thread::sleep(settling);
            (cpu_ns(), Instant::now())
        });
        let report = run(&options, &spec, &AtomicBool::new(false), &mut |_| {}).expect("the load runs");
        let (before_ns, began) = before.join().expect("no panic");
        (report, before_ns, began.elapsed().as_nanos() as f64, cpu_ns())
    });
    if std::env::var_os("CURVE_VIEW").is_some() {
        eprintln!("{} {}: {:?}", load.label(), case.label, server.policy());
    }
    let (iops, latency) = (report.total.rate_iops, report.total.latency);
    let us = |ns: u64| ns as f64 / 1e3;
    Ok(Point {
        iops,
        mean_us: mean_ns(&report) / 1e3,
        p50_us: us(latency.p50_ns),
        p99_us: us(latency.p99_ns),
        cpu_percent: 100.0 * (after_ns - before_ns) as f64 / elapsed_ns,
    })
}

/// Median of the means of the parts.
fn mean_ns(report: &Report) -> f64 {
    let parts = report.phases.iter().filter(|part| part.ios > 0);
    let mut means: Vec<f64> = parts.map(|part| part.latency.mean_ns).collect();
    means.sort_unstable_by(f64::total_cmp);
    means.get(means.len() / 2).copied().unwrap_or(report.total.latency.mean_ns)
}

fn argument(name: &str) -> Option<String> {
    let mut arguments = std::env::args();
    arguments.find(|argument| argument == name)?;
    arguments.next()
}

/// CPU time of this machine and of this program in seconds.
fn cpu_s() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks: Vec<f64> =
        stat.lines().next().unwrap_or_default().split(' ').filter_map(|tick| tick.parse().ok()).collect();
    let busy: f64 = ticks.iter().take(8).sum::<f64>() - ticks.iter().skip(3).take(2).sum::<f64>(); // idle and iowait
    let own = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = own.rsplit(')').next().unwrap_or_default().split_whitespace();
    let own: f64 = fields.skip(11).take(2).filter_map(|tick| tick.parse::<f64>().ok()).sum();
    (busy / TICKS_PER_S, own / TICKS_PER_S)
}

/// Repeats a measurement that other programs disturbed. The last attempt counts in any case.
fn measure_undisturbed(case: &PolicyCase, load: Load, seconds: f64) -> Result<Point, String> {
    let mut tries = 0;
    loop {
        let (before, began) = (cpu_s(), Instant::now());
        let point = measure(case, load, seconds)?;
        let (after, elapsed_s) = (cpu_s(), began.elapsed().as_secs_f64());
        let others = ((after.0 - before.0) - (after.1 - before.1)) / elapsed_s;
        tries += 1;
        if others < MAX_OTHER_CPU || tries == MAX_ATTEMPTS {
            eprintln!(
                "{} {}: other programs used {:.0} % of a CPU, attempt {tries}",
                load.label(),
                case.label,
                100.0 * others
            );
            return Ok(point);
        }
    }
}

fn main() {
    let number = |name, default: f64| argument(name).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (seconds, rounds) = (number("--seconds", 2.0), number("--rounds", 3.0) as usize);
    let only = argument("--only").map(|text| text.split(',').map(str::to_owned).collect::<Vec<_>>());
    let save = argument("--save");
    let mut all = frontier::read(save.as_deref());
    let mut refused: Vec<(&str, String)> = Vec::new();
    for round in 1..=rounds {
        for measured in &mut all {
            let load = measured.load;
            if only.as_ref().is_some_and(|only| !only.contains(&load.label())) {
                continue;
            }
            for (case, points) in POLICIES.iter().zip(&mut measured.rounds) {
                if points.len() >= round || refused.iter().any(|(label, _)| *label == case.label) {
                    continue;
                }
                match measure_undisturbed(case, load, seconds) {
                    Ok(point) => {
                        frontier::append(save.as_deref(), load, case.label, &point);
                        points.push(point);
                    }
                    Err(reason) => refused.push((case.label, reason)),
                }
            }
        }
    }
    all.retain(|measured| measured.rounds.iter().any(|points| !points.is_empty()));
    println!(
        "| offered IOPS | policy | IOPS | CPU % | CPU us per I/O | mean us | p50 us | p99 us | CPU % of the mix | worse than |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    all.iter().for_each(Measured::print);
    refused.iter().for_each(|(label, reason)| println!("{label} is skipped: {reason}"));
    frontier::summarize(&all);
    if let Some(file) = argument("--svg") {
        let svg = picture::svg(&all).expect("a measured load");
        std::fs::write(&file, svg).expect("the picture is written");
    }
}
