//! `pilotlab run --replay FILE`: replays a trace under every policy, without an experiment file or the repository.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use pilotlight_host::units;
use pilotlight_lab::report::replay::{extent, policy, saved, value};
use pilotlight_lab::results::summary::PointResult;
use pilotlight_lab::simulated::experiment::{self, Bench, LoadError, Request};
use pilotlight_lab::simulated::sweep::Sweep;
use pilotlight_lab::simulated::variant::{self, Choice, Variant};
use pilotlight_trace::Format;

use super::planner::{self, PlannerArgs};
use super::{SimulatedArgs, VariantArgs};
use crate::console;
use crate::run::RunArgs;
use crate::table::Table;

/// The built-in experiment and machine.
const EXPERIMENT: &str = include_str!("../../../../../experiments/traces/trace-file.toml");
const FILES: [(&str, &str); 3] = [
    (
        "profiles/calibration/sandman-epyc-9454p.toml",
        include_str!("../../../../../profiles/calibration/sandman-epyc-9454p.toml"),
    ),
    ("profiles/sandman-epyc-9454p.toml", include_str!("../../../../../profiles/sandman-epyc-9454p.toml")),
    ("profiles/ssd/pm1743.toml", include_str!("../../../../../profiles/ssd/pm1743.toml")),
];

/// Drives of the built-in experiment.
const DRIVES: u16 = 16;

/// Options of a replay.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "A trace of your own")]
pub(in crate::run) struct ReplayArgs {
    /// Replay a block trace under every policy: energy per day and month, latency (docs/traces.md). Also surrogate:alibaba
    /// and surrogate:tencent
    #[arg(long, value_name = "TRACE", conflicts_with_all = ["file", "all"])]
    pub(super) replay: Option<String>,

    /// Only this policy; repeatable: spdk-static, linux-interrupt, governor, dynamic, hybrid-poll, sandman, adaptive;
    /// pass with --set budget_w=WATTS, pacer with --set tolerance=SHARE
    #[arg(long, value_name = "NAME", requires = "replay")]
    policy: Vec<String>,

    /// Format of the trace, if it cannot be detected: alibaba, tencent, msr, mqsim, vscsi, blkparse, spc, systor, fio or csv
    #[arg(long, value_name = "FORMAT", requires = "replay")]
    format: Option<Format>,

    /// Sizes of volumes: CSV of device_id,capacity in bytes, as Alibaba's device_size.csv [default: end of the last request]
    #[arg(long, value_name = "FILE", requires = "replay")]
    sizes: Option<String>,

    /// Resolution of the timestamps, over which requests are spread, such as 1s for tencent
    #[arg(long, value_name = "TIME", value_parser = units::duration_ns, requires = "replay")]
    spread: Option<u64>,

    /// Dependent replay: send each request of a thread after the completion of the previous one and the interval of the trace less this
    /// assumed service time (0s: unknown) [default: each at its timestamp]
    #[arg(long, value_name = "TIME", value_parser = units::duration_ns, requires = "replay")]
    dependent: Option<u64>,

    /// Speed-up over the trace's own time
    #[arg(long, value_name = "FACTOR", requires = "replay")]
    speed: Option<f64>,

    /// Number of windows of 2 s to simulate of a long trace [default: 48]
    #[arg(long, value_name = "COUNT", requires = "replay")]
    windows: Option<u32>,

    #[command(flatten)]
    planner: PlannerArgs,
}

impl ReplayArgs {
    /// As arguments, with absolute paths of files.
    pub(in crate::run) fn arguments(&self) -> Vec<String> {
        let path = |text: &String| {
            let absolute = std::path::absolute(text).ok().filter(|path| path.is_file());
            absolute.map_or_else(|| text.clone(), |path| path.display().to_string())
        };
        let mut words = Vec::new();
        let mut add = |option: &str, value: Option<String>| {
            words.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
        };
        add("--replay", self.replay.as_ref().map(path));
        self.policy.iter().for_each(|policy| add("--policy", Some(policy.clone())));
        add("--format", self.format.map(|format| format.name().to_owned()));
        add("--sizes", self.sizes.as_ref().map(path));
        let us = |ns: u64| format!("{}us", ns as f64 / 1e3);
        add("--spread", self.spread.map(us));
        add("--dependent", self.dependent.map(us));
        add("--speed", self.speed.map(|speed| format!("{speed:?}")));
        add("--windows", self.windows.map(|windows| windows.to_string()));
        words.extend(self.planner.arguments());
        words
    }
}

/// The experiment with the options.
pub(super) fn prepare(args: &RunArgs, source: &str, mut request: Request) -> anyhow::Result<(Bench, Vec<Variant>)> {
    let wanted = &args.simulated.replay;
    let quoted = |text: &str| format!("{text:?}");
    let mut set = vec![("trace.source".to_owned(), quoted(source))];
    let mut add = |key: &str, value: Option<String>| set.extend(value.map(|value| (format!("trace.{key}"), value)));
    add("format", wanted.format.map(|format| quoted(format.name())));
    add("sizes", wanted.sizes.as_deref().map(quoted));
    add("spread", wanted.spread.map(|ns| quoted(&format!("{ns}ns"))));
    add("dependent", wanted.dependent.map(|ns| quoted(&format!("{ns}ns"))));
    add("speed", wanted.speed.map(|speed| format!("{speed:?}")));
    add("sample.windows", wanted.windows.map(|windows| windows.to_string()));
    set.extend(wanted.planner.keys(FILES[1].1, DRIVES)?);
    request.set.splice(0..0, set);
    let text = planner::with_goals(EXPERIMENT, &request.set);
    let mut bench = experiment::load_text("trace-file.toml", &text, &request, &|name| embedded(name))?;
    keep_policies(&mut bench, &wanted.policy)?;
    let VariantArgs { family, perturb, lhs, .. } = args.simulated.variants;
    let choice = Choice { family, perturb, draws: lhs, ..Choice::default() };
    let variants = variant::variants(&bench.machine.calibration, &choice)?;
    Ok((bench, variants))
}

fn embedded(name: &str) -> Result<String, LoadError> {
    let found = FILES.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
    let missing = || std::io::Error::new(std::io::ErrorKind::NotFound, "it is not built into the program");
    found.ok_or_else(|| LoadError::File { path: name.to_owned(), error: missing() })
}

/// Keeps the selected policies.
fn keep_policies(bench: &mut Bench, wanted: &[String]) -> anyhow::Result<()> {
    let known: Vec<String> = bench.experiment.policies.iter().map(|policy| policy.label.clone()).collect();
    if let Some(unknown) = wanted.iter().find(|name| !known.contains(name)) {
        let needed = planner::needed(unknown).map(|needed| format!("{needed}; ")).unwrap_or_default();
        anyhow::bail!("--policy {unknown}: {needed}there are {}", known.join(", "));
    }
    let keep = |label: &String| wanted.is_empty() || wanted.contains(label);
    bench.experiment.policies.retain(|policy| keep(&policy.label));
    bench.points.iter_mut().for_each(|point| point.experiment.policies.retain(|policy| keep(&policy.label)));
    Ok(())
}

/// Prints the results.
fn print_results(args: &RunArgs, source: &str, bench: &Bench, points: &[PointResult]) -> anyhow::Result<()> {
    let first = points.first().context("nothing was run")?;
    if args.output.json {
        return console::println(format_args!("{:#}", json(source, bench, points, &args.simulated.replay.planner)));
    }
    let planner = &args.simulated.replay.planner;
    let scaled = planner.machine().unwrap_or_default();
    let model = format!("modelled on {} (hash {}){scaled}; a month is 30 days\n", bench.machine.name, bench.hash);
    let (heading, table) = (extent(source, first), table(points, planner));
    let folder = args.out(bench).join("trace-file");
    console::println(format_args!("{heading}\n{model}\n{table}\n{}", folder.display()))
}

/// Cost and kilograms of CO2 of a month, if asked for.
fn of_month(point: &PointResult, planner: &PlannerArgs) -> [(&'static str, &'static str, Option<f64>); 2] {
    let kwh = value(point, "kwh_per_month");
    let cost = kwh.zip(planner.price).map(|(kwh, price)| kwh * price);
    let co2_kg = kwh.zip(planner.carbon).map(|(kwh, grams)| kwh * grams / 1e3);
    [("cost/month", "cost_per_month", cost), ("kg CO2/month", "co2_kg_per_month", co2_kg)]
}

fn table(points: &[PointResult], planner: &PlannerArgs) -> Table {
    let asked = points.first().map(|point| of_month(point, planner)).into_iter().flatten();
    let asked = asked.filter_map(|(heading, _, value)| value.map(|_| heading));
    let headings = [
        "<policy",
        "MJ/day",
        "interval",
        "kWh/month",
        "mean W",
        "saved",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "cores awake",
    ];
    let headings: Vec<&str> = headings.into_iter().chain(asked).collect();
    let mut table = Table::new(&headings);
    for (point, saved) in points.iter().zip(saved(points)) {
        let number = |metric: &str, factor: f64, digits: usize| {
            value(point, metric).map_or("-".to_owned(), |value| format!("{:.digits$}", value * factor))
        };
        let low = number("joules_per_day_low", 1e-6, 2);
        let high = number("joules_per_day_high", 1e-6, 2);
        let own = [
            policy(point),
            number("joules_per_day", 1e-6, 2),
            if low == high { "-".to_owned() } else { format!("{low} to {high}") },
            number("kwh_per_month", 1.0, 1),
            number("system_power_w", 1.0, 1),
            saved.map_or("-".to_owned(), |percent| format!("{percent:.2} %")),
            number("latency_p50_us", 1.0, 1),
            number("latency_p99_us", 1.0, 1),
            number("latency_p99_9_us", 1.0, 1),
            number("cores_awake", 1.0, 2),
        ];
        let of_month = of_month(point, planner).into_iter().filter_map(|(.., value)| value);
        table.row(own.into_iter().chain(of_month.map(|value| format!("{value:.2}"))));
    }
    table
}

fn json(source: &str, bench: &Bench, points: &[PointResult], planner: &PlannerArgs) -> serde_json::Value {
    let row = |point: &PointResult| {
        let mut row = serde_json::Map::new();
        row.insert("policy".into(), policy(point).into());
        row.insert("saturated_runs".into(), point.saturated.into());
        row.extend(
            of_month(point, planner).into_iter().filter_map(|(_, key, value)| Some((key.to_owned(), value?.into()))),
        );
        row.extend(point.values.iter().map(|(metric, spread)| (metric.clone(), spread.mean.into())));
        serde_json::Value::Object(row)
    };
    serde_json::json!({
        "version": 1, "trace": source, "extent": points.first().map(|first| extent(source, first)), "profile": bench.machine.name, "hash": bench.hash, "watts": "modelled",
        "days_of_month": 30, "confidence": 0.95, "policies": points.iter().map(row).collect::<Vec<_>>(),
    })
}

/// Runs it.
pub(super) fn run(args: &RunArgs, source: &str) -> anyhow::Result<ExitCode> {
    let prepared = prepare(args, source, super::request(args));
    let (bench, variants) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            crate::exit::report_error(&error);
            return Ok(crate::exit::Exit::Refused.into());
        }
    };
    if let Some(share) = args.shard {
        let points = (0..bench.points.len()).collect();
        return super::shard::run(args, &bench, &variants, &points, share);
    }
    // the content of the trace is not part of the plan, so earlier results are never extended
    let args = &RunArgs { simulated: SimulatedArgs { fresh: true, ..args.simulated.clone() }, ..args.clone() };
    let (done, audited) = super::swept(args, &Sweep::new(&bench, &variants), &bench)?;
    let results = super::output::save_all(args, &args.out(&bench), &bench, &variants, done)?;
    print_results(args, source, &bench, &results.points)?;
    super::tell_audited(args, audited)?;
    Ok(crate::exit::Exit::Clean.into())
}
