//! What each policy costs from no load to full load: CPU time, CPU per I/O, and latency, with one core for the target.
//!
//! `cargo bench -p pilotlight-target --bench load_curve -- [--seconds S] [--rounds N] [--json FILE] [--svg FILE]`
//!
//! A memory namespace, one connection, 4 KiB random reads: an open loop (Poisson) from 10 to 100,000 a second, nothing at
//! all, and a closed loop at depth 32. The target has CPU 0, the load, which polls, CPU 1. Policies take turns within a
//! round; medians over the rounds. CPU is the kernel's books of the reactor's thread (scheduled); active is awake, polling
//! included. With one core there is nobody to consolidate: `sandman` differs from `static` by server-sleep, whose quiet
//! time is given.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use pilotlight_host::load::{LoadSpec, OpenLoop, run};
use pilotlight_host::schedule::{Process, Schedule};
use pilotlight_host::{ConnectOptions, Controller};
use pilotlight_reactor::{Idle, QuietTime, RuntimeOptions};
use pilotlight_target::backend::{BackendSpec, MemoryBudget, open};
use pilotlight_target::{NamespaceConfig, Server, ServerConfig, SubsystemConfig};

const NQN: &str = "nqn.2026-01.bench:curve";
const RATES: [f64; 6] = [0.0, 10.0, 100.0, 1e3, 1e4, 1e5];

struct Contender {
    label: &'static str,
    policy: &'static str,
    settings: &'static [(&'static str, &'static str)],
    quiet: QuietTime,
}

const GUARDED: &[(&str, &str)] = &[("guards", "recommended")];
const CONTENDERS: [Contender; 5] = [
    Contender { label: "static", policy: "static", settings: &[], quiet: QuietTime::Never },
    Contender { label: "interrupt", policy: "interrupt", settings: &[], quiet: QuietTime::Never },
    Contender { label: "sandman", policy: "sandman", settings: GUARDED, quiet: QuietTime::AsPolicySays },
    Contender {
        label: "sandman, sleep after 1 ms",
        policy: "sandman",
        settings: GUARDED,
        quiet: QuietTime::Fixed(1_000_000),
    },
    Contender {
        label: "sandman, sleep after 20 us",
        policy: "sandman",
        settings: GUARDED,
        quiet: QuietTime::Fixed(20_000),
    },
];

/// One policy under one load.
#[derive(Clone, Copy, Default)]
struct Point {
    iops: f64,
    p50_us: f64,
    p99_us: f64,
    cpu_percent: f64,
    active_percent: f64,
}

impl Point {
    fn cpu_us_per_io(&self) -> f64 {
        self.cpu_percent * 1e4 / self.iops
    }
}

fn serve(contender: &Contender) -> Server {
    let namespace = NamespaceConfig { nsid: 1, backend: BackendSpec::Memory(256 << 20), block_size: 4096, uuid: None };
    let subsystem =
        SubsystemConfig { nqn: NQN.into(), serial: None, allowed_hosts: Vec::new(), namespaces: vec![namespace] };
    let config = ServerConfig {
        listeners: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
        subsystems: vec![subsystem],
        ..ServerConfig::default()
    };
    let mut options = RuntimeOptions::new(vec![Some(0)], Idle::Spin);
    options.quiet = contender.quiet;
    let budget = Arc::new(MemoryBudget::unlimited());
    let opener = move |ns: &NamespaceConfig| open(&ns.backend, ns.block_size, &budget);
    let server = Server::start_with(config, options, Box::new(opener)).expect("the server starts");
    let policy = pilotlight_policy::build(contender.policy, contender.settings).expect("settings");
    server.set_policy(policy).expect("a policy");
    server
}

/// `rate`: requests a second; 0 for none, infinite for as many as go.
fn measure(contender: &Contender, rate: f64, seconds: f64) -> Point {
    let server = serve(contender);
    let options = ConnectOptions::new(server.local_addrs()[0], NQN);
    let books = || {
        let stats = server.stats().runtime;
        let core = &stats.reactors[0];
        (core.cpu_ns, core.busy_ns + core.idle_ns)
    };
    let point = |before: (u64, u64), began: Instant| {
        let (after, elapsed) = (books(), began.elapsed().as_nanos() as f64);
        let percent = |ns: u64| 100.0 * ns as f64 / elapsed;
        Point {
            cpu_percent: percent(after.0 - before.0),
            active_percent: percent(after.1 - before.1),
            ..Point::default()
        }
    };
    let runtime = Duration::from_secs_f64(seconds);
    if rate == 0.0 {
        let _host = Controller::connect(options).expect("a host");
        std::thread::sleep(Duration::from_millis(100));
        let (before, began) = (books(), Instant::now());
        std::thread::sleep(runtime);
        return point(before, began);
    }
    let constant = |rate| OpenLoop { schedule: Schedule::constant(rate).expect("a rate"), process: Process::Poisson };
    let spec = LoadSpec {
        depth: 32,
        cpus: vec![1],
        open: rate.is_finite().then(|| constant(rate)),
        runtime_ns: Some(runtime.as_nanos() as u64),
        ..LoadSpec::default()
    };
    let (before, began) = (books(), Instant::now());
    let report = run(&options, &spec, &AtomicBool::new(false), &mut |_| {}).expect("the load runs");
    let (iops, latency) = (report.total.rate_iops, report.total.latency);
    let us = |ns: u64| ns as f64 / 1e3;
    Point { iops, p50_us: us(latency.p50_ns), p99_us: us(latency.p99_ns), ..point(before, began) }
}

fn median(points: &[Point]) -> Point {
    let of = |f: fn(&Point) -> f64| {
        let mut values: Vec<f64> = points.iter().map(f).collect();
        values.sort_unstable_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Point {
        iops: of(|p| p.iops),
        p50_us: of(|p| p.p50_us),
        p99_us: of(|p| p.p99_us),
        cpu_percent: of(|p| p.cpu_percent),
        active_percent: of(|p| p.active_percent),
    }
}

fn argument(name: &str) -> Option<String> {
    let mut arguments = std::env::args();
    arguments.find(|argument| argument == name)?;
    arguments.next()
}

fn offered(rate: f64) -> String {
    match rate {
        0.0 => "none".into(),
        rate if rate.is_finite() => format!("{rate:.0}"),
        _ => "full".into(),
    }
}

fn main() {
    let number = |name, default: f64| argument(name).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (seconds, rounds) = (number("--seconds", 2.0), number("--rounds", 3.0) as usize);
    let rates: Vec<f64> = RATES.into_iter().chain([f64::INFINITY]).collect();
    println!("| offered IOPS | policy | IOPS | CPU % | active % | CPU us per I/O | p50 us | p99 us |");
    println!("|---|---|---|---|---|---|---|---|");
    let mut curves: Vec<Vec<Point>> = vec![Vec::new(); CONTENDERS.len()];
    for &rate in &rates {
        let mut points = vec![Vec::new(); CONTENDERS.len()];
        for _ in 0..rounds {
            for (contender, points) in CONTENDERS.iter().zip(&mut points) {
                points.push(measure(contender, rate, seconds));
            }
        }
        for ((contender, points), curve) in CONTENDERS.iter().zip(&points).zip(&mut curves) {
            let p = median(points);
            println!("{}", row(&offered(rate), contender.label, &p));
            curve.push(p);
        }
    }
    if let Some(file) = argument("--svg") {
        std::fs::write(&file, svg(&curves)).expect("the picture can be written");
    }
}

fn row(offered: &str, label: &str, p: &Point) -> String {
    if p.iops == 0.0 {
        return format!("| {offered} | {label} | - | {:.2} | {:.2} | - | - | - |", p.cpu_percent, p.active_percent);
    }
    format!(
        "| {offered} | {label} | {:.0} | {:.1} | {:.1} | {:.2} | {:.1} | {:.1} |",
        p.iops,
        p.cpu_percent,
        p.active_percent,
        p.cpu_us_per_io(),
        p.p50_us,
        p.p99_us
    )
}

/// CPU per I/O over p99, both logarithmic: one line a policy, one point a load.
fn svg(curves: &[Vec<Point>]) -> String {
    use plotters::prelude::*;
    let colours = [RED, BLUE, RGBColor(0, 130, 60), RGBColor(150, 110, 0), RGBColor(120, 0, 140)];
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (860, 560)).into_drawing_area();
        root.fill(&WHITE).expect("drawn");
        let mut chart = ChartBuilder::on(&root)
            .caption("CPU per I/O over p99 latency, by policy; one point a load", ("sans-serif", 20))
            .margin(14)
            .x_label_area_size(46)
            .y_label_area_size(74)
            .build_cartesian_2d((5.0..2000.0).log_scale(), (0.5..200_000.0).log_scale())
            .expect("drawn");
        chart.configure_mesh().x_desc("p99 latency, us").y_desc("scheduled CPU per I/O, us").draw().expect("drawn");
        for ((contender, curve), colour) in CONTENDERS.iter().zip(curves).zip(colours) {
            let points = || curve.iter().filter(|p| p.iops > 0.0).map(|p| (p.p99_us, p.cpu_us_per_io()));
            let line = chart.draw_series(LineSeries::new(points(), &colour)).expect("drawn");
            line.label(contender.label).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
            chart.draw_series(points().map(|at| Circle::new(at, 3, colour.filled()))).expect("drawn");
            let named = curve.iter().zip(RATES.into_iter().chain([f64::INFINITY])).filter(|(p, _)| p.iops > 0.0);
            let names = named.map(|(p, rate)| {
                let mut name = String::new();
                let _ = write!(name, "{}", offered(rate));
                Text::new(
                    name,
                    (p.p99_us * 1.03, p.cpu_us_per_io() * 1.1),
                    ("sans-serif", 11).into_font().color(&colour),
                )
            });
            chart.draw_series(names).expect("drawn");
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .position(SeriesLabelPosition::UpperRight)
            .draw()
            .expect("drawn");
        root.present().expect("drawn");
    }
    text
}
