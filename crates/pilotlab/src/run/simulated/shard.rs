//! Shares of a simulated experiment: runs one, and joins their folders.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use pilotlight_lab::shard::Shard;
use pilotlight_lab::simulated::experiment::Bench;
use pilotlight_lab::simulated::merge::{self, Manifest, Part};
use pilotlight_lab::simulated::oracle;
use pilotlight_lab::simulated::sweep::Sweep;
use pilotlight_lab::simulated::sweep::windows::{self, Stored};
use pilotlight_lab::simulated::variant::{ORACLE, Variant};
use pilotlight_lab::stored::values::{self, Results, Schema};

use super::progress::Progress;
use super::{Done, Prepared, SimulatedArgs, folder, make_room, output, place, prepare, swept, workers};
use crate::console;
use crate::exit::Exit;
use crate::files;
use crate::run::{RunArgs, command};

/// Maximum number of missing runs in a message.
const MAX_LISTED: usize = 20;

/// The manifest of a share of a sweep.
fn manifest(args: &RunArgs, whole: &Sweep<'_>, shard: Shard) -> anyhow::Result<Manifest> {
    Ok(Manifest {
        program: merge::PROGRAM.to_owned(),
        schema: Schema::default(),
        scenario: whole.identity(),
        shard: shard.to_string(),
        command: command::of_results(args)?,
    })
}

/// Runs what is missing of a share: of sampled replays their units, of others their runs.
pub(super) fn run(
    args: &RunArgs,
    bench: &Bench,
    variants: &[Variant],
    points: &BTreeSet<usize>,
    shard: Shard,
) -> anyhow::Result<ExitCode> {
    let sweep = || Sweep::new(bench, variants).only(points);
    let folder = folder(&args.out(bench), bench);
    let manifest = manifest(args, &sweep(), shard)?;
    if let Err(error) = accept(args, &folder, &manifest) {
        crate::exit::report_error(&error);
        return Ok(Exit::Refused.into());
    }
    make_room(args, &place(&args.out(bench), bench))?;
    if args.simulated.fresh {
        discard(&folder.join(windows::FILE))?;
    }
    manifest.write(&folder)?;
    let units = sweep().windows(shard, &folder, workers(args.simulated.workers))?;
    let runs = sweep().without_replays();
    let (all, runs) = (runs.len(), runs.share(shard));
    // Bounds need the first replication of each cell, so the merge computes them.
    let args = &RunArgs { simulated: SimulatedArgs { oracle: None, ..args.simulated.clone() }, ..args.clone() };
    let (_, audited) = swept(args, &runs, bench)?;
    super::tell_audited(args, audited)?;
    let units = if units > 0 { format!(" and {units} units of replays") } else { String::new() };
    console::println(format_args!(
        "share {shard}: {} of {all} runs{units} are in {}; `pilotlab merge` joins the shares",
        runs.len(),
        args.out(bench).display()
    ))?;
    Ok(Exit::Clean.into())
}

fn discard(path: &Path) -> anyhow::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(files::failed(path, error)),
        _ => Ok(()),
    }
}

/// Refuses a folder with results of another origin.
fn accept(args: &RunArgs, folder: &Path, manifest: &Manifest) -> anyhow::Result<()> {
    if args.simulated.fresh {
        return Ok(());
    }
    let name = folder.display().to_string();
    match Manifest::read(folder)? {
        Some(stored) => merge::belong_together((&name, &stored), ("this run", manifest))
            .with_context(|| format!("specify another folder with --out, or discard {name} with --fresh")),
        None => {
            let stored = values::read(&folder.join(values::FILE))?;
            anyhow::ensure!(
                stored.is_none(),
                "{name} has results of a run without --shard: specify another folder with --out"
            );
            Ok(())
        }
    }
}

/// Joins the folders of shares into `out`.
pub(crate) fn merge(folders: &[PathBuf], out: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let joined = read(folders, out, json);
    let Joined { args, bench, variants, points, mut results, stored } = match joined {
        Ok(joined) => joined,
        Err(error) => {
            crate::exit::report_error(&error);
            return Ok(Exit::Refused.into());
        }
    };
    let sweep = Sweep::new(&bench, &variants).only(&points);
    let place = place(out, &bench);
    let units = sweep.add_replays(&mut results, &stored)?;
    let plain = Sweep::new(&bench, &variants).only(&points).without_replays();
    let missing = plain.missing_runs(&results).iter().map(ToString::to_string).chain(units).collect::<Vec<_>>();
    complete(&missing, (sweep.missing_runs(&results).len(), sweep.len()))?;
    make_room(&args, &place)?;
    write_joined(&place, &results)?;
    let done = bounded(&args, &sweep, &place, results)?;
    output::write(&args, out, &bench, &variants, done)?;
    Ok(Exit::Clean.into())
}

/// The input of a merge.
struct Joined {
    args: RunArgs,
    bench: Box<Bench>,
    variants: Vec<Variant>,
    points: BTreeSet<usize>,
    results: Results,
    /// Outcomes of units of sampled replays.
    stored: Stored,
}

fn read(folders: &[PathBuf], out: &Path, json: bool) -> anyhow::Result<Joined> {
    let parts = folders.iter().map(|folder| merge::part(folder)).collect::<Result<Vec<Part>, _>>()?;
    let first = parts.first().context("name the folders of shares")?;
    let mut words = first.manifest.command.clone();
    words.extend(["--out".to_owned(), command::utf8(out)?]);
    words.extend(json.then(|| "--json".to_owned()));
    let args = command::parse(&words)?;
    let name = first.folder.display().to_string();
    let own = |scenario: String| Manifest { program: merge::PROGRAM.to_owned(), scenario, ..first.manifest.clone() };
    merge::belong_together((&name, &first.manifest), ("this program", &own(first.manifest.scenario.clone())))?;
    let results = merge::join(&parts)?;
    let mut stored = Stored::new();
    for part in &parts {
        stored.extend(windows::read(&part.folder)?);
    }
    let Prepared::One(bench, variants, points) = prepare(&args)? else {
        anyhow::bail!("{name}: its experiment is a list now");
    };
    let sweep = Sweep::new(&bench, &variants).only(&points);
    let now = own(sweep.identity());
    merge::belong_together((&name, &first.manifest), ("the experiment as it is now", &now))?;
    let mut sorted = sweep.cells(&results).sort(results);
    anyhow::ensure!(
        sorted.stale.runs.is_empty(),
        "{} runs are of earlier versions of the experiment: run the shares again",
        sorted.stale.runs.len()
    );
    sorted.current.about = sweep.provenance();
    let results = sorted.current;
    Ok(Joined { args, bench, variants, points, results, stored })
}

/// Names what is missing: runs, and units of replays. `runs` are the numbers of missing and of all runs.
fn complete(missing: &[String], runs: (usize, usize)) -> anyhow::Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let listed: Vec<String> = missing.iter().take(MAX_LISTED).map(|name| format!("\n  {name}")).collect();
    let more = missing.len().saturating_sub(MAX_LISTED);
    let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
    anyhow::bail!(
        "{} of {} runs are missing; add the folders of their shares, or run these again:{}{more}",
        runs.0,
        runs.1,
        listed.concat()
    )
}

/// Writes the joined results; other results in the folder are not replaced. Bounds of an earlier merge are computed again.
fn write_joined(place: &Path, results: &Results) -> anyhow::Result<()> {
    let stored = values::read(place)?.unwrap_or_default();
    let differs = stored.runs.iter().any(|(key, run)| key.variant != ORACLE && results.runs.get(key) != Some(run));
    anyhow::ensure!(!differs, "{} has other results: specify another folder with --out", place.display());
    values::remove_all(place)?;
    Ok(values::write(place, results)?)
}

/// Adds the bounds of `--oracle`.
fn bounded(args: &RunArgs, sweep: &Sweep<'_>, place: &Path, results: Results) -> anyhow::Result<Done> {
    let Some(most) = args.simulated.oracle else { return Ok(Done { results, unbounded: Vec::new() }) };
    let workers = workers(args.simulated.workers);
    let progress = Progress::new(0.0, workers, args.output.json);
    let (results, unbounded) = oracle::add(sweep, place, most, workers, &|at, of| progress.bracket(at, of))?;
    progress.finish();
    Ok(Done { results, unbounded: oracle::unbounded_lines(&unbounded) })
}
