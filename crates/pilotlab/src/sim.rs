//! `pilotlab sim`: runs an experiment's file, or a list of them, on the simulator, and writes what came out.

mod all;
mod check;
mod output;
mod progress;
mod replay;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use pilotlight_lab::audit::{Audited, Auditor};
use pilotlight_lab::calibration::Calibration;
use pilotlight_lab::claims::{claim, leave_out};
use pilotlight_lab::experiment::{self, Bench, Request};
use pilotlight_lab::journal;
use pilotlight_lab::matrix::{Fitted, Matrix};
use pilotlight_lab::oracle;
use pilotlight_lab::quantity::Time;
use pilotlight_lab::results::Results;
use pilotlight_lab::sweep::{self, Sweep};
use pilotlight_lab::variant::{self, Choice, Variant};

use crate::console;
use crate::exit::Exit;
use progress::Progress;

const ABOUT: &str = "\
Run an experiment on the simulator: every point, policy and seed of a file (experiments/*.toml), on all cores.

A file may also be a list of experiments (experiments/all.toml). Each finished run is added to one file of results at once; what \
is there is not run again, so that a sweep can be interrupted. \
Results of another machine (profile, calibration, drives) or of another question are set aside, never mixed. Watts are \
modelled, from the profile that is named with its hash.";

const EXAMPLES: &str = "\
Examples:
  pilotlab sim experiments/sandman/fig3.toml
  pilotlab sim experiments/sandman/fig3.toml --smoke                     short runs, two of each
  pilotlab sim experiments/sandman/fig4.toml --set policy.sandman.settings.z=3 --out /tmp/z3
  pilotlab sim experiments/sandman/fig3.toml --set machine.poll.loop_ns=150
  pilotlab sim experiments/sandman/fig4.toml --family                    every machine that the printed figures allow
  pilotlab sim experiments/sandman/fig4.toml --perturb 20 --lhs 50       how much the free constants matter
  pilotlab sim --replay io_traces.csv.gz --sizes device_size.csv         your own trace: joules a day, kWh a month
  pilotlab sim --replay web.csv --policy spdk-static --policy sandman --json
  pilotlab sim experiments/sandman/fig3.toml --oracle                    what a schedule that knows the future would burn
  pilotlab sim --all                                                     the whole matrix (experiments/all.toml)
  pilotlab sim --all --smoke --audit --out /tmp/smoke                    everything, short, held to the laws
  pilotlab sim --recheck 1% --at-most 60s                                are the results in results/ still what comes out?

Exit codes:
  0  every run is in the file of results
  1  a run or a file failed, or broke a law; what was finished is kept. A check found a number that differs
  2  the command line or a file was refused; nothing was run";

/// Options of `pilotlab sim`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES)]
#[command(after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct SimArgs {
    /// The experiment, or a list of experiments (docs/experiments.md)
    #[arg(value_name = "FILE", required_unless_present_any = ["all", "sentinels", "recheck", "replay"])]
    file: Option<PathBuf>,

    /// The whole matrix: experiments/all.toml here or in a folder above
    #[arg(long, conflicts_with = "file", help_heading = "What is run")]
    all: bool,

    #[command(flatten)]
    replay: replay::ReplayArgs,

    /// A key of the file at another value, or of the machine (machine.poll.loop_ns=150); repeatable
    #[arg(long, value_name = "KEY=VALUE", help_heading = "What is run")]
    set: Vec<String>,

    /// Runs of each point, each with a seed of its own [default: the file's]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..), help_heading = "What is run")]
    replications: Option<u32>,

    /// Short runs, two of each: to see that it works
    #[arg(long, help_heading = "What is run")]
    smoke: bool,

    /// Beside the default machine every member of the family in calibration.toml
    #[arg(long, help_heading = "Variants of the machine")]
    family: bool,

    /// Beside the default machine every free constant moved by PERCENT, up and down
    #[arg(long, value_name = "PERCENT", num_args = 0..=1, default_missing_value = "20", help_heading = "Variants of the machine")]
    perturb: Option<u32>,

    /// Beside the default machine COUNT draws of all free constants over their ranges (Latin hypercube)
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 0,
        hide_default_value = true,
        help_heading = "Variants of the machine"
    )]
    lhs: usize,

    /// Compute a random share of what is in --out again (`1%`), and compare each number exactly
    #[arg(long, value_name = "SHARE", value_parser = share, conflicts_with_all = ["file", "all"], help_heading = "Checks")]
    recheck: Option<f64>,

    /// Which share that is
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "recheck", help_heading = "Checks")]
    seed: u64,

    /// Leave out runs that are estimated not to fit into so much time (`60s`)
    #[arg(long, value_name = "TIME", value_parser = time, requires = "recheck", help_heading = "Checks")]
    at_most: Option<Duration>,

    /// Compare numbers of short runs with those pinned in experiments/sentinels.toml
    #[arg(long, conflicts_with_all = ["file", "all", "recheck"], help_heading = "Checks")]
    sentinels: bool,

    /// Pin what comes out now, after a change that was meant
    #[arg(long, requires = "sentinels", help_heading = "Checks")]
    bless: bool,

    /// Hold the first replication of everything that is run to the laws of docs/simulator-laws.md
    #[arg(long, help_heading = "Checks")]
    audit: bool,

    /// Also bound what could have been saved, for runs of at most so many requests (docs/oracle.md)
    #[arg(long, value_name = "REQUESTS", num_args = 0..=1, default_missing_value = "5e6", help_heading = "What is run")]
    oracle: Option<f64>,

    /// Beside the default machine one for each figure that constants were fitted on, without what was fitted on it
    #[arg(long, help_heading = "Variants of the machine")]
    leave_out: bool,

    /// Runs at a time [default: one a core]
    #[arg(long, value_name = "COUNT", help_heading = "How")]
    workers: Option<NonZeroUsize>,

    /// Forget results that are there
    #[arg(long, help_heading = "How")]
    fresh: bool,

    /// Folder for results, NAME.csv.zst (NAME.csv while it runs), and what is made of them
    #[arg(long, value_name = "DIR", default_value = "results", help_heading = "Output")]
    out: PathBuf,

    /// Print the summary as JSON instead of a table
    #[arg(long, help_heading = "Output")]
    json: bool,

    /// Write the summary as CSV (NAME.table.csv); the default
    #[arg(long, conflicts_with = "parquet", help_heading = "Output")]
    csv: bool,

    /// Write the summary as Parquet (NAME.table.parquet)
    #[arg(long, help_heading = "Output")]
    parquet: bool,
}

/// A share, as `1%` or 0.01.
fn share(text: &str) -> Result<f64, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let share = text.strip_suffix('%').map_or_else(|| number(text), |percent| Some(number(percent)? / 100.0));
    let within = |share: &f64| *share > 0.0 && *share <= 1.0;
    share.filter(within).ok_or_else(|| "write a share of at most everything, as 1% or 0.01".to_owned())
}

fn time(text: &str) -> Result<Duration, String> {
    let time = Time::parse(text).map(|time| Duration::from_nanos(time.0));
    time.ok_or_else(|| "write a time, as 60s or 5min".to_owned())
}

/// Runs an experiment, or all of a list, or checks what is committed.
pub(crate) fn run(args: &SimArgs) -> anyhow::Result<ExitCode> {
    if args.sentinels {
        return check::sentinels(args);
    }
    if let Some(share) = args.recheck {
        return check::recheck(args, share);
    }
    if let Some(source) = &args.replay.replay {
        return replay::run(args, source);
    }
    match prepare(args) {
        Ok(Prepared::One(bench, variants)) => one(args, &bench, &variants),
        Ok(Prepared::List(entries)) => all::run(args, &entries),
        Err(error) => {
            crate::exit::failed(&error);
            Ok(Exit::Refused.into())
        }
    }
}

/// What is to be run, read and checked.
enum Prepared {
    One(Box<Bench>, Vec<Variant>),
    List(Vec<all::Entry>),
}

fn prepare(args: &SimArgs) -> anyhow::Result<Prepared> {
    let request = request(args)?;
    let file = file(args)?;
    let fitted = fitted(&experiment::home(&file)?)?;
    let without = if args.leave_out { fitted.clone() } else { Fitted::new() };
    let choice = Choice { family: args.family, perturb: args.perturb, draws: args.lhs, without };
    if Matrix::is_one(&file)? {
        return Ok(Prepared::List(all::entries(args, &file, &request, &choice, &fitted)?));
    }
    let bench = experiment::load(&file, &request)?;
    let variants = variant::variants(&bench.machine.calibration, &choice)?;
    Ok(Prepared::One(Box::new(bench), variants))
}

fn request(args: &SimArgs) -> anyhow::Result<Request> {
    let pair = |text: &String| {
        let (key, value) = text.split_once('=').with_context(|| format!("--set {text}: write KEY=VALUE"))?;
        Ok((key.trim().to_owned(), value.trim().to_owned()))
    };
    let set = args.set.iter().map(pair).collect::<anyhow::Result<_>>()?;
    Ok(Request { set, smoke: args.smoke, replications: args.replications })
}

/// The figures of the claims that constants were fitted on.
fn fitted(home: &Path) -> anyhow::Result<Fitted> {
    let claims = home.join("experiments/claims.toml");
    if !claims.is_file() {
        return Ok(Fitted::new());
    }
    let read = |path: &Path| std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    let rows = claim::parse(&[(claims.display().to_string(), read(&claims)?)])?;
    let calibration = Calibration::parse(&read(&home.join("calibration.toml"))?)?;
    Ok(leave_out::fitted(&rows, &calibration))
}

/// The list of everything.
const ALL: &str = "experiments/all.toml";

/// The file that is meant; `experiments/all` is `experiments/all.toml`.
fn file(args: &SimArgs) -> anyhow::Result<PathBuf> {
    let Some(file) = &args.file else { return found(ALL) };
    let longer = PathBuf::from(format!("{}.toml", file.display()));
    Ok(if !file.exists() && longer.is_file() { longer } else { file.clone() })
}

/// A file of the repository, here or in a folder above.
fn found(name: &str) -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir().context("cannot tell the present folder")?;
    let found = here.ancestors().map(|folder| folder.join(name)).find(|file| file.is_file());
    found.with_context(|| format!("there is no {name} here or above: run it in the repository"))
}

fn one(args: &SimArgs, bench: &Bench, variants: &[Variant]) -> anyhow::Result<ExitCode> {
    let (done, audited) = swept(args, bench, variants)?;
    output::write(args, &args.out, bench, variants, &done)?;
    tell_audited(args, audited)?;
    Ok(Exit::Clean.into())
}

/// Runs what is missing.
fn swept(args: &SimArgs, bench: &Bench, variants: &[Variant]) -> anyhow::Result<(Done, Audited)> {
    let sweep = Sweep::new(bench, variants);
    let place = place(&args.out, bench, "csv");
    make_room(args, &place)?;
    let there = there(&sweep, bench, &place)?;
    let progress = Progress::new(there, workers(args), args.json);
    let auditor = Auditor::new(bench.experiment.seed);
    let done = sweep_into(args, &sweep, &place, &auditor, args.oracle, &progress);
    progress.finish();
    Ok((done?, auditor.audited()))
}

/// What is missing of a sweep, in seconds of a core, as estimated.
fn there(sweep: &Sweep<'_>, bench: &Bench, place: &Path) -> anyhow::Result<f64> {
    let known = journal::read(place)?.filter(|known| known.about.same(&bench.about()));
    Ok(sweep.missing_s(&known.unwrap_or_default()))
}

/// Makes the folder for results, and forgets what is there if that is asked.
fn make_room(args: &SimArgs, place: &Path) -> anyhow::Result<()> {
    if let Some(folder) = place.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("folder {}", folder.display()))?;
    }
    if args.fresh {
        journal::forget(place)?;
    }
    Ok(())
}

/// A finished sweep.
struct Done {
    results: Results,
    /// What has no bracket, in lines for people; empty where none was asked for.
    unbounded: Vec<String>,
}

fn sweep_into(
    args: &SimArgs,
    sweep: &Sweep<'_>,
    place: &Path,
    auditor: &Auditor,
    oracle: Option<f64>,
    progress: &Progress,
) -> anyhow::Result<Done> {
    let watcher = |done: &sweep::Progress<'_>| progress.done(done);
    let results = if args.audit {
        sweep.run(place, workers(args), &|scenario, policy, source| auditor.run(scenario, policy, source), &watcher)
    } else {
        sweep.run(place, workers(args), &sweep::simulator, &watcher)
    };
    let results = results.with_context(|| format!("what was finished is kept in {}", place.display()))?;
    let Some(most) = oracle else { return Ok(Done { results, unbounded: Vec::new() }) };
    let (results, unbounded) = oracle::add(sweep, place, most, workers(args), &|at, of| progress.bracket(at, of))?;
    Ok(Done { results, unbounded: oracle::words(&unbounded) })
}

fn tell_audited(args: &SimArgs, Audited { runs, records, requests }: Audited) -> anyhow::Result<()> {
    if !args.audit || args.json {
        return Ok(());
    }
    console::line(format_args!("{runs} runs audited, {records} records of {requests} requests: no law broken"))
}

fn workers(args: &SimArgs) -> NonZeroUsize {
    args.workers.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
}

/// The file `NAME.ENDING` in a folder for results.
fn place(out: &Path, bench: &Bench, ending: &str) -> PathBuf {
    out.join(format!("{}.{ending}", bench.experiment.name))
}
