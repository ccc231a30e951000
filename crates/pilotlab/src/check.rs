//! `pilotlab check`: recomputes committed results, and compares values of short runs.

mod restamp;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use pilotlight_input::Time;
use pilotlight_lab::simulated::experiment::Bench;
use pilotlight_lab::simulated::parallel;
use pilotlight_lab::simulated::recheck::{self, Candidate, Sample};
use pilotlight_lab::simulated::sentinel::{self, Finding};
use pilotlight_lab::simulated::stale as lab_stale;
use pilotlight_lab::simulated::sweep::{self, Sweep};
use pilotlight_lab::simulated::variant::Variant;
use pilotlight_lab::stored::folders;
use pilotlight_lab::stored::values::{self, Results};

use crate::console;
use crate::exit::Exit;
use crate::run::{found, home, workers};
use crate::stale;

const EXAMPLES: &str = "\
Examples:
  pilotlab check results                1 % of the runs of all results again, compared exactly
  pilotlab check results --share 5% --seed 7 --at-most 10min
  pilotlab check sentinels              short runs, pinned in papers/sentinels.toml
  pilotlab check sentinels --bless      record the current values after an intended change

Exit codes:
  0  every number is as committed
  1  results are stale, a number differs, or a file cannot be read
  2  the command line was refused";

/// Options of `pilotlab check`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct CheckArgs {
    #[command(subcommand)]
    what: Check,

    /// Parallel runs [default: one per core]
    #[arg(long, value_name = "COUNT", global = true)]
    workers: Option<NonZeroUsize>,
}

/// The kind of check.
#[derive(Clone, Debug, Subcommand)]
enum Check {
    /// Recompute a random share of simulated results and compare each value exactly
    #[command(after_long_help = EXAMPLES)]
    Results(ResultsArgs),
    /// Compare values of short runs with those in papers/sentinels.toml
    #[command(after_long_help = EXAMPLES)]
    Sentinels {
        /// Update the values after an intended change
        #[arg(long)]
        bless: bool,
    },
}

#[derive(Args, Clone, Debug)]
struct ResultsArgs {
    /// Folder of results [default: results/, and those beside experiments in experiments/ and papers/]
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,

    /// Share of the runs, such as 1% or 0.01
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "1%")]
    share: f64,

    /// Seed of the selection of runs
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Total time; runs that do not fit by estimate are left out, such as 60s
    #[arg(long, value_name = "TIME", value_parser = time)]
    at_most: Option<Duration>,

    /// Update fingerprints of results if all values of the share are equal; values are unchanged (docs/simulator.md)
    #[arg(long, hide = true)]
    restamp: bool,
}

/// Parses a share, such as `1%` or 0.01.
fn share(text: &str) -> anyhow::Result<f64> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let share = text.strip_suffix('%').map_or_else(|| number(text), |percent| Some(number(percent)? / 100.0));
    let within = |share: &f64| *share > 0.0 && *share <= 1.0;
    share.filter(within).context("expected a share of at most 1, such as 1% or 0.01")
}

fn time(text: &str) -> anyhow::Result<Duration> {
    let time = Time::parse(text).map(|time| Duration::from_nanos(time.0));
    time.context("expected a time, such as 60s or 5min")
}

/// Runs the command.
pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let workers = workers(args.workers);
    match &args.what {
        Check::Results(args) if args.restamp => restamp::run(args, workers),
        Check::Results(args) => recheck(args, workers),
        Check::Sentinels { bless } => sentinels(*bless, workers),
    }
}

/// The file with sentinels.
const SENTINELS: &str = "papers/sentinels.toml";

/// Checks every sentinel; with `bless` updates them.
fn sentinels(bless: bool, workers: NonZeroUsize) -> anyhow::Result<ExitCode> {
    let path = found(SENTINELS)?;
    let watched = sentinel::watched(&path, &sentinel::read(&path)?)?;
    let looked = parallel::each(workers, watched.len(), None, |at| watched[at].run(&sweep::simulator));
    let looked: Vec<Vec<Finding>> = looked.into_iter().flatten().collect::<Result<_, _>>()?;
    let findings: Vec<Finding> = looked.into_iter().flatten().collect();
    let changed: Vec<&Finding> = findings.iter().filter(|finding| !finding.holds()).collect();
    for Finding { sentinel, now } in &changed {
        let (name, value) = (&sentinel.experiment, sentinel.value);
        console::println(format_args!(
            "{name} at {}, {}: {} was {value}, is {now}",
            sentinel.point, sentinel.policy, sentinel.metric
        ))?;
    }
    console::println(format_args!(
        "{} sentinels in {}: {} as pinned",
        findings.len(),
        path.display(),
        findings.len() - changed.len()
    ))?;
    if bless {
        sentinel::bless(&path, &findings)?;
        console::println(format_args!("{} rewritten: check the difference before committing", changed.len()))?;
    } else if !changed.is_empty() {
        console::println(
            "after an intended change of the simulator, a policy or an experiment: pilotlab check sentinels --bless",
        )?;
        return Ok(Exit::Failed.into());
    }
    Ok(Exit::Clean.into())
}

/// A results file with its experiment.
pub(super) struct Committed {
    pub(super) path: PathBuf,
    pub(super) results: Results,
    pub(super) bench: Bench,
    pub(super) variants: Vec<Variant>,
}

/// Lists stale results and recomputes a share of the others. Fails if any is stale or differs.
fn recheck(args: &ResultsArgs, workers: NonZeroUsize) -> anyhow::Result<ExitCode> {
    let (committed, stale) = committed(args.folder.as_deref())?;
    let equal = committed.is_empty() || compared(args, workers, &committed)?;
    if committed.is_empty() {
        let folder = args.folder.as_deref().unwrap_or(Path::new("the project")).display();
        console::println(format_args!("{folder} has no current results: nothing is computed again"))?;
    }
    if stale > 0 {
        console::println(format_args!("{stale} files contain stale results: run the commands above"))?;
    }
    Ok(if equal && stale == 0 { Exit::Clean } else { Exit::Failed }.into())
}

/// Recomputes a share of these results; returns whether all values are equal.
fn compared(args: &ResultsArgs, workers: NonZeroUsize, committed: &[Committed]) -> anyhow::Result<bool> {
    let begun = Instant::now();
    let sweeps: Vec<Sweep<'_>> = committed.iter().map(|file| Sweep::new(&file.bench, &file.variants)).collect();
    let runs = committed.iter().zip(&sweeps).enumerate();
    let runs = runs.flat_map(|(at, (file, sweep))| recheck::candidates(at, sweep, &file.results, args.seed));
    let budget_s = args.at_most.map(|seconds| seconds.as_secs_f64() * workers.get() as f64);
    let sample = recheck::sample(runs.collect(), args.share, budget_s);
    let until = args.at_most.map(|seconds| begun + seconds);
    let compare = |at: usize| recompute(committed, &sweeps, &sample.chosen[at]);
    let verdicts = parallel::each(workers, sample.chosen.len(), until, compare);
    let equal: Vec<bool> = verdicts.into_iter().flatten().collect::<anyhow::Result<_>>()?;
    print_summary(&sample, &equal, args.seed, begun.elapsed())?;
    Ok(equal.iter().all(|&equal| equal))
}

/// Recomputes a run; returns whether it is equal and prints differences.
fn recompute(committed: &[Committed], sweeps: &[Sweep<'_>], run: &Candidate) -> anyhow::Result<bool> {
    let (file, sweep) = (&committed[run.file], &sweeps[run.file]);
    let compared = recheck::compare(sweep, run.job, &file.results, &sweep::simulator)?;
    match &compared {
        Ok(equal) => console::println(format_args!(
            "{} {}: {equal} numbers equal",
            file.results.about.experiment,
            sweep.name(run.job)
        ))?,
        Err(difference) => console::println(format_args!("{}: DIFFERS: {difference}", file.path.display()))?,
    }
    Ok(compared.is_ok())
}

fn print_summary(sample: &Sample, equal: &[bool], seed: u64, took: Duration) -> anyhow::Result<()> {
    let same = equal.iter().filter(|&&equal| equal).count();
    let late = sample.chosen.len() - equal.len();
    let (all, drawn) = (sample.of, sample.chosen.len() + sample.left_out);
    console::println(format_args!(
        "of {all} runs {drawn} were selected with seed {seed}; {} recomputed in {:.0} s, {same} equal",
        equal.len(),
        took.as_secs_f64()
    ))?;
    if sample.left_out + late > 0 {
        console::println(format_args!(
            "{} of those drawn were left out: they did not fit into --at-most",
            sample.left_out + late
        ))?;
    }
    if same < equal.len() {
        console::println(
            "results differ from those of this program: run the experiments again with --fresh, or find the cause",
        )?;
    }
    Ok(())
}

/// The current results in a folder and its subfolders. Prints stale ones, and returns the number of their files.
fn committed(folder: Option<&Path>) -> anyhow::Result<(Vec<Committed>, usize)> {
    let home = &home()?;
    let (mut files, mut stale) = (Vec::new(), 0);
    for path in results_files(folder, home)? {
        let results = stale::read(&path, home)?;
        if results.about.is_measured() {
            continue; // measured results cannot be recomputed
        }
        let current = stale::current_cells(&results.about, &results.cells, home);
        if let Some(reason) = lab_stale::reason(&results.cells, &current) {
            let remedy = stale::remedy(&results.about, &results.cells, &path, home);
            console::println(format_args!("stale: {}: {reason}: {remedy}", path.display()))?;
            stale += 1;
        }
        // results of machines with one drive are checked by tests
        let (Ok(current), false) = (current, stale::is_of_host(&results.about, home)) else { continue };
        let results = current.sort(results).current;
        files.extend(of_bench(path, results, home)?);
    }
    Ok((files, stale))
}

/// Results files in a folder and its subfolders, by default in all of the project.
pub(super) fn results_files(folder: Option<&Path>, home: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let folders = folder.map_or_else(|| folders::results(home), |folder| vec![folder.to_owned()]);
    let mut files = Vec::new();
    for folder in folders {
        files.extend(values::files_below(&folder).with_context(|| format!("folder {}", folder.display()))?);
    }
    Ok(files)
}

/// Results with their experiment; `None` if there are none.
fn of_bench(path: PathBuf, results: Results, home: &Path) -> anyhow::Result<Option<Committed>> {
    let Some(most) = results.runs.keys().map(|key| key.replication + 1).max() else { return Ok(None) };
    let Some(bench) = lab_stale::current_experiment(&results.about, home)? else { return Ok(None) };
    let variants = lab_stale::variants_of(&bench, results.cells.keys().map(|cell| cell.variant.as_str()));
    Ok(Some(Committed { path, results, bench: bench.with_replications(most), variants }))
}
