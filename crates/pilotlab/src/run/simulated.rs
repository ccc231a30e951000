//! Simulated experiments: a file or a list.

mod all;
mod output;
mod plan;
mod planner;
mod progress;
mod replay;
mod shard;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use pilotlight_lab::simulated::audit::{Audited, Auditor};
use pilotlight_lab::simulated::experiment::{self, Bench, Request, points};
use pilotlight_lab::simulated::matrix::Matrix;
use pilotlight_lab::simulated::oracle;
use pilotlight_lab::simulated::sweep::{self, Sweep};
use pilotlight_lab::simulated::variant::{self, Choice, Variant};
use pilotlight_lab::stored::values::{self, Results};

use super::RunArgs;
use crate::console;
use crate::exit::Exit;
use progress::Progress;

pub(crate) use shard::merge;

/// Options for simulated experiments.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Simulated experiments")]
pub(super) struct SimulatedArgs {
    /// Run papers/all.toml, here or in a parent folder
    #[arg(long, conflicts_with = "file")]
    all: bool,

    /// Two short runs of each point, as a test
    #[arg(long)]
    pub(super) smoke: bool,

    /// Check the simulator's laws in the first replication of each cell
    #[arg(long)]
    audit: bool,

    /// Also compute bounds of savings by sleep, for open loops of at most this number of requests per run
    #[arg(long, value_name = "REQUESTS", num_args = 0..=1, default_missing_value = "5e6")]
    pub(super) oracle: Option<f64>,

    /// Only points with this value of a parameter; other results are kept. Repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = super::key_value)]
    pub(super) at: Vec<(String, String)>,

    /// Parallel runs [default: one per core]
    #[arg(long, value_name = "COUNT")]
    workers: Option<NonZeroUsize>,

    /// Discard earlier results
    #[arg(long, conflicts_with = "at")]
    fresh: bool,

    #[command(flatten)]
    pub(super) variants: VariantArgs,

    #[command(flatten)]
    pub(super) replay: replay::ReplayArgs,
}

/// Variants of the machine.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Variants of the simulated machine")]
pub(crate) struct VariantArgs {
    /// Every member of the family in the machine's calibration
    #[arg(long)]
    family: bool,

    /// Every free constant changed by PERCENT, up and down
    #[arg(long, value_name = "PERCENT", num_args = 0..=1, default_missing_value = "20")]
    perturb: Option<u32>,

    /// COUNT random sets of all free constants within their ranges (Latin hypercube)
    #[arg(long, value_name = "COUNT", default_value_t = 0, hide_default_value = true)]
    lhs: usize,

    /// One for each figure with fitted constants, without those constants
    #[arg(long)]
    leave_out: bool,
}

impl SimulatedArgs {
    /// The first of these options that is set.
    pub(super) fn first_set(&self) -> Option<&'static str> {
        let VariantArgs { family, perturb, lhs, leave_out } = self.variants;
        super::first_set([
            ("--all", self.all),
            ("--smoke", self.smoke),
            ("--audit", self.audit),
            ("--oracle", self.oracle.is_some()),
            ("--at", !self.at.is_empty()),
            ("--workers", self.workers.is_some()),
            ("--fresh", self.fresh),
            ("--family", family),
            ("--perturb", perturb.is_some()),
            ("--lhs", lhs > 0),
            ("--leave-out", leave_out),
            ("--replay", self.replay.replay.is_some()),
        ])
    }
}

impl VariantArgs {
    /// As arguments.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let flag = |set: bool, name: &str| set.then(|| name.to_owned());
        let words = [
            flag(self.family, "--family"),
            self.perturb.map(|percent| format!("--perturb={percent}")),
            (self.lhs > 0).then(|| format!("--lhs={}", self.lhs)),
            flag(self.leave_out, "--leave-out"),
        ];
        words.into_iter().flatten().collect()
    }
}

/// Runs an experiment, or all of a list, or replays a trace.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    if args.output.dry_run {
        return plan::show(args);
    }
    if let Some(source) = &args.simulated.replay.replay {
        anyhow::ensure!(args.simulated.at.is_empty(), "--at is for an experiment: a replay has one point");
        return replay::run(args, source);
    }
    match prepare(args) {
        Ok(Prepared::One(bench, variants, points)) => run_one(args, &bench, &variants, &points),
        Ok(Prepared::List(entries)) => all::run(args, &entries),
        Err(error) => {
            crate::exit::report_error(&error);
            Ok(Exit::Refused.into())
        }
    }
}

/// Checked input of a sweep.
enum Prepared {
    /// An experiment, variants of its machine, and indices of selected points.
    One(Box<Bench>, Vec<Variant>, BTreeSet<usize>),
    List(Vec<all::Entry>),
}

fn prepare(args: &RunArgs) -> anyhow::Result<Prepared> {
    let request = request(args);
    if let Some(source) = &args.simulated.replay.replay {
        let (bench, variants) = replay::prepare(args, source, request)?;
        let points = (0..bench.points.len()).collect();
        return Ok(Prepared::One(Box::new(bench), variants, points));
    }
    let file = args.file().map_or_else(|| found(ALL), Ok)?;
    let VariantArgs { family, perturb, lhs, leave_out } = args.simulated.variants;
    let mut choice = Choice { family, perturb, draws: lhs, ..Choice::default() };
    if Matrix::is_one(&file)? {
        let only_of_one = [("--at", !args.simulated.at.is_empty()), ("--shard", args.shard.is_some())];
        if let Some(option) = super::first_set(only_of_one) {
            anyhow::bail!("{option} is for one experiment; {} is a list", file.display());
        }
        return Ok(Prepared::List(all::entries(args, &file, &request, &choice)?));
    }
    let bench = experiment::load(&file, &request)?;
    if leave_out {
        choice.without.clone_from(&bench.fitted);
    }
    let variants = variant::variants(&bench.machine.calibration, &choice)?;
    let points = points::select(&bench.points, &args.simulated.at)?;
    Ok(Prepared::One(Box::new(bench), variants, points))
}

/// The number of runs of an experiment.
pub(super) fn count(args: &RunArgs) -> anyhow::Result<usize> {
    match prepare(args)? {
        Prepared::One(bench, variants, points) => Ok(Sweep::new(&bench, &variants).only(&points).len()),
        Prepared::List(_) => anyhow::bail!("the file is a list of experiments: submit each of them"),
    }
}

fn request(args: &RunArgs) -> Request {
    Request { set: args.set.clone(), smoke: args.simulated.smoke, repeats: args.repeats }
}

/// The list of all experiments.
const ALL: &str = "papers/all.toml";

/// The project folder: this one or a parent.
pub(crate) fn home() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir().context("cannot determine the current folder")?;
    let home = here.ancestors().find(|folder| experiment::is_home(folder)).map(Path::to_owned);
    home.context("there is no profiles/calibration here or above: run it in the repository")
}

/// A file of the repository, here or in a parent folder.
pub(crate) fn found(name: &str) -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir().context("cannot determine the current folder")?;
    let found = here.ancestors().map(|folder| folder.join(name)).find(|file| file.is_file());
    found.with_context(|| format!("there is no {name} here or above: run it in the repository"))
}

fn run_one(args: &RunArgs, bench: &Bench, variants: &[Variant], points: &BTreeSet<usize>) -> anyhow::Result<ExitCode> {
    if let Some(share) = args.shard {
        return shard::run(args, bench, variants, points, share);
    }
    let sweep = Sweep::new(bench, variants).only(points);
    let (done, audited) = swept(args, &sweep, bench)?;
    output::write(args, &args.out(bench), bench, variants, done)?;
    tell_audited(args, audited)?;
    Ok(Exit::Clean.into())
}

/// Runs missing runs.
fn swept(args: &RunArgs, sweep: &Sweep<'_>, bench: &Bench) -> anyhow::Result<(Done, Audited)> {
    let place = place(&args.out(bench), bench);
    make_room(args, &place)?;
    let missing_s = sweep.missing_s(&sweep.read_current(&place)?);
    let progress = Progress::new(missing_s, workers(args.simulated.workers), args.output.json);
    let auditor = Auditor::new(bench.experiment.seed);
    let done = sweep_into(args, sweep, &place, &auditor, args.simulated.oracle, &progress);
    progress.finish();
    Ok((done?, auditor.audited()))
}

/// Creates the results folder; with `fresh` discards earlier results.
fn make_room(args: &RunArgs, place: &Path) -> anyhow::Result<()> {
    if let Some(folder) = place.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("folder {}", folder.display()))?;
    }
    if args.simulated.fresh {
        values::remove_all(place)?;
    }
    Ok(())
}

/// A finished sweep.
struct Done {
    results: Results,
    /// Points without bounds, as text; empty if no bounds were requested.
    unbounded: Vec<String>,
}

fn sweep_into(
    args: &RunArgs,
    sweep: &Sweep<'_>,
    place: &Path,
    auditor: &Auditor,
    oracle: Option<f64>,
    progress: &Progress,
) -> anyhow::Result<Done> {
    let watcher = |done: &sweep::Progress<'_>| progress.done(done);
    let results = if args.simulated.audit {
        sweep.run(
            place,
            workers(args.simulated.workers),
            &|scenario, policy, source| auditor.run(scenario, policy, source),
            &watcher,
        )
    } else {
        sweep.run(place, workers(args.simulated.workers), &sweep::simulator, &watcher)
    };
    let results = results.with_context(|| format!("what was finished is kept in {}", place.display()))?;
    let Some(most) = oracle else { return Ok(Done { results, unbounded: Vec::new() }) };
    let (results, unbounded) =
        oracle::add(sweep, place, most, workers(args.simulated.workers), &|at, of| progress.bracket(at, of))?;
    Ok(Done { results, unbounded: oracle::unbounded_lines(&unbounded) })
}

fn tell_audited(args: &RunArgs, Audited { runs, records, requests }: Audited) -> anyhow::Result<()> {
    if !args.simulated.audit || args.output.json {
        return Ok(());
    }
    console::println(format_args!("{runs} runs audited, {records} records of {requests} requests: no law broken"))
}

/// Number of parallel runs: as requested, or one per core.
pub(crate) fn workers(wanted: Option<NonZeroUsize>) -> NonZeroUsize {
    wanted.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
}

impl RunArgs {
    /// The results folder.
    fn out(&self, bench: &Bench) -> PathBuf {
        self.output.out.clone().unwrap_or_else(|| bench.results.clone())
    }
}

/// The folder of an experiment in the results folder.
fn folder(out: &Path, bench: &Bench) -> PathBuf {
    out.join(&bench.experiment.name)
}

/// The file of its values.
fn place(out: &Path, bench: &Bench) -> PathBuf {
    folder(out, bench).join(values::FILE)
}
