//! `pilotlight sim`: runs an experiment's file on the simulator, and writes what came out.

mod output;

use std::io::IsTerminal as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use pilotlight_lab::experiment::{self, Bench, Request};
use pilotlight_lab::results::{Results, RunKey};
use pilotlight_lab::sweep::{self, Sweep};
use pilotlight_lab::variant::{self, Choice, Variant};

use crate::exit::Exit;

const ABOUT: &str = "\
Run an experiment on the simulator: every point, policy and seed of a file (experiments/*.toml), on all cores.

Each finished run is added to one file of results at once; what is there is not run again, so that a sweep can be interrupted. \
Results of another machine (profile, calibration, drives) or of another question are set aside, never mixed. Watts are \
modelled, from the profile that is named with its hash.";

const EXAMPLES: &str = "\
Examples:
  pilotlight sim experiments/sandman/fig3.toml
  pilotlight sim experiments/sandman/fig3.toml --smoke                     short runs, two of each
  pilotlight sim experiments/sandman/fig4.toml --set policy.sandman.settings.z=3 --out /tmp/z3
  pilotlight sim experiments/sandman/fig3.toml --set machine.poll.loop_ns=150
  pilotlight sim experiments/sandman/fig4.toml --family                    every machine that the printed figures allow
  pilotlight sim experiments/sandman/fig4.toml --perturb 20 --lhs 50       how much the free constants matter

Exit codes:
  0  every run is in the file of results
  1  a run or a file failed; what was finished is kept
  2  the command line or a file was refused; nothing was run";

/// Options of `pilotlight sim`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES)]
#[command(after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct SimArgs {
    /// The experiment (docs/experiments.md)
    #[arg(value_name = "FILE")]
    file: PathBuf,

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

    /// Runs at a time [default: one a core]
    #[arg(long, value_name = "COUNT", help_heading = "How")]
    workers: Option<NonZeroUsize>,

    /// Forget results that are there
    #[arg(long, help_heading = "How")]
    fresh: bool,

    /// Folder for results, NAME.csv, and what is made of them
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

/// Runs an experiment.
pub(crate) fn run(args: &SimArgs) -> anyhow::Result<ExitCode> {
    let prepared = request(args).and_then(|request| prepare(args, &request));
    let (bench, variants) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            crate::exit::failed(&error);
            return Ok(Exit::Refused.into());
        }
    };
    let results = run_all(args, &bench, &variants)?;
    output::write(args, &bench, &variants, &results)?;
    Ok(Exit::Clean.into())
}

fn request(args: &SimArgs) -> anyhow::Result<Request> {
    let pair = |text: &String| {
        let (key, value) = text.split_once('=').with_context(|| format!("--set {text}: write KEY=VALUE"))?;
        Ok((key.trim().to_owned(), value.trim().to_owned()))
    };
    let set = args.set.iter().map(pair).collect::<anyhow::Result<_>>()?;
    Ok(Request { set, smoke: args.smoke, replications: args.replications })
}

fn prepare(args: &SimArgs, request: &Request) -> anyhow::Result<(Bench, Vec<Variant>)> {
    let bench = experiment::load(&args.file, request)?;
    let choice = Choice { family: args.family, perturb: args.perturb, draws: args.lhs };
    let variants = variant::variants(&bench.machine.calibration, &choice)?;
    Ok((bench, variants))
}

/// The file `NAME.ENDING` in the folder for results.
fn place(args: &SimArgs, bench: &Bench, ending: &str) -> PathBuf {
    args.out.join(format!("{}.{ending}", bench.experiment.name))
}

fn run_all(args: &SimArgs, bench: &Bench, variants: &[Variant]) -> anyhow::Result<Results> {
    let path = place(args, bench, "csv");
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("folder {}", folder.display()))?;
    }
    if args.fresh {
        forget(&path)?;
    }
    let workers = args.workers.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let sweep = Sweep::new(bench, variants);
    let bar = bar(sweep.len(), args.json);
    let watcher = |done: usize, _: usize, key: &RunKey| {
        bar.set_position(done as u64);
        bar.set_message(format!("{} {}", key.policy, key.point));
    };
    let results = sweep.run(&path, workers, &sweep::simulator, &watcher);
    bar.finish_and_clear();
    results.with_context(|| format!("what was finished is kept in {}", path.display()))
}

fn forget(path: &Path) -> anyhow::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}

fn bar(runs: usize, quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {elapsed} gone, {eta} left  {msg}");
    ProgressBar::new(runs as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
