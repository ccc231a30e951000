//! Checks of what is committed: numbers of short runs (`--sentinels`), and results computed again (`--recheck`).

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use pilotlight_lab::experiment::Bench;
use pilotlight_lab::parallel;
use pilotlight_lab::recheck::{self, Candidate, Sample};
use pilotlight_lab::results::{self, Results};
use pilotlight_lab::sentinel::{self, Finding};
use pilotlight_lab::stale;
use pilotlight_lab::sweep::{self, Sweep};
use pilotlight_lab::variant::Variant;

use super::{SimArgs, found, workers};
use crate::console;
use crate::exit::Exit;

/// Where sentinels are.
const SENTINELS: &str = "experiments/sentinels.toml";

/// Looks at every sentinel; with `--bless` writes them anew.
pub(super) fn sentinels(args: &SimArgs) -> anyhow::Result<ExitCode> {
    let path = found(SENTINELS)?;
    let watched = sentinel::watched(&path, &sentinel::read(&path)?)?;
    let looked = parallel::each(workers(args), watched.len(), None, |at| watched[at].look(&sweep::simulator));
    let looked: Vec<Vec<Finding>> = looked.into_iter().flatten().collect::<Result<_, _>>()?;
    let findings: Vec<Finding> = looked.into_iter().flatten().collect();
    let changed: Vec<&Finding> = findings.iter().filter(|finding| !finding.holds()).collect();
    for Finding { sentinel, now } in &changed {
        let (name, value) = (&sentinel.experiment, sentinel.value);
        console::line(format_args!(
            "{name} at {}, {}: {} was {value}, is {now}",
            sentinel.point, sentinel.policy, sentinel.metric
        ))?;
    }
    console::line(format_args!(
        "{} sentinels in {}: {} as pinned",
        findings.len(),
        path.display(),
        findings.len() - changed.len()
    ))?;
    if args.bless {
        sentinel::bless(&path, &findings)?;
        console::line(format_args!("{} written anew: look at the difference before you commit it", changed.len()))?;
    } else if !changed.is_empty() {
        console::line(
            "if the simulator, a policy or an experiment was meant to change: pilotlab sim --sentinels --bless",
        )?;
        return Ok(Exit::Failed.into());
    }
    Ok(Exit::Clean.into())
}

/// A file of results with what made it.
struct Committed {
    path: PathBuf,
    results: Results,
    bench: Bench,
    variants: Vec<Variant>,
}

/// Computes a share of what is in the folder of results again.
pub(super) fn recheck(args: &SimArgs, share: f64) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    let committed = committed(&args.out)?;
    if committed.is_empty() {
        console::line(format_args!(
            "{} has no results of today's files: nothing is computed again",
            args.out.display()
        ))?;
        return Ok(Exit::Clean.into());
    }
    let sweeps: Vec<Sweep<'_>> = committed.iter().map(|file| Sweep::new(&file.bench, &file.variants)).collect();
    let runs = committed.iter().zip(&sweeps).enumerate();
    let runs = runs.flat_map(|(at, (file, sweep))| recheck::candidates(at, sweep, &file.results, args.seed));
    let workers = workers(args);
    let budget_s = args.at_most.map(|seconds| seconds.as_secs_f64() * workers.get() as f64);
    let sample = recheck::sample(runs.collect(), share, budget_s);
    let until = args.at_most.map(|seconds| begun + seconds);
    let compare = |at: usize| one(&committed, &sweeps, &sample.chosen[at]);
    let verdicts = parallel::each(workers, sample.chosen.len(), until, compare);
    let equal: Vec<bool> = verdicts.into_iter().flatten().collect::<anyhow::Result<_>>()?;
    tell(&sample, &equal, args.seed, begun.elapsed())?;
    Ok(if equal.iter().all(|&equal| equal) { Exit::Clean } else { Exit::Failed }.into())
}

/// Whether a run comes out as the file says; tells what came of it.
fn one(committed: &[Committed], sweeps: &[Sweep<'_>], run: &Candidate) -> anyhow::Result<bool> {
    let (file, sweep) = (&committed[run.file], &sweeps[run.file]);
    let compared = recheck::compare(sweep, run.job, &file.results, &sweep::simulator)?;
    match &compared {
        Ok(equal) => console::line(format_args!(
            "{} {}: {equal} numbers equal",
            file.results.about.experiment,
            sweep.name(run.job)
        ))?,
        Err(difference) => console::line(format_args!("{}: DIFFERS: {difference}", file.path.display()))?,
    }
    Ok(compared.is_ok())
}

fn tell(sample: &Sample, equal: &[bool], seed: u64, took: Duration) -> anyhow::Result<()> {
    let same = equal.iter().filter(|&&equal| equal).count();
    let late = sample.chosen.len() - equal.len();
    let (all, drawn) = (sample.of, sample.chosen.len() + sample.left_out);
    console::line(format_args!(
        "of {all} runs {drawn} were drawn with seed {seed}; {} computed again in {:.0} s, {same} equal",
        equal.len(),
        took.as_secs_f64()
    ))?;
    if sample.left_out + late > 0 {
        console::line(format_args!(
            "{} of those drawn were left out: they did not fit into --at-most",
            sample.left_out + late
        ))?;
    }
    if same < equal.len() {
        console::line("results are not of this program: run the experiments again with --fresh, or find what changed")?;
    }
    Ok(())
}

/// Every file of results in a folder that is of today's files; says of the others why not.
fn committed(folder: &Path) -> anyhow::Result<Vec<Committed>> {
    let mut files = Vec::new();
    for path in results::files(folder).with_context(|| format!("folder {}", folder.display()))? {
        let results = Results::read(&path)?;
        if results.about.file.is_empty() {
            continue; // of `bench --simulated`, whose tests compare them
        }
        match today(&results) {
            Ok((bench, variants)) => files.push(Committed { path, results, bench, variants }),
            Err(reason) => console::line(format_args!("stale, not compared: {}: {reason:#}", path.display()))?,
        }
    }
    Ok(files)
}

fn today(results: &Results) -> anyhow::Result<(Bench, Vec<Variant>)> {
    let calibration = found("calibration.toml")?;
    let home = calibration.parent().unwrap_or(Path::new("."));
    let bench = stale::asked_again(&results.about, home)?.context("it does not say which experiment it is of")?;
    if let Some(reason) = stale::changed(&results.about, &bench.about()) {
        anyhow::bail!(reason);
    }
    let most = results.runs.keys().map(|key| key.replication + 1).max().unwrap_or(0);
    let variants = recheck::variants_of(&bench, results)?;
    Ok((bench.with_replications(most), variants))
}
