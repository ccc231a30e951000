//! `pilotlab check results --restamp`: results get the fingerprints of the current cells; values do not change.
//!
//! For changes that change fingerprints and no number, such as another encoding of values or a field that is added with its neutral
//! value. *Guard.* Of each file the runs whose fingerprint would change are considered. The share of them is computed again, and at least
//! one run of each cell; of a file without any fingerprints, and with `--at-most` (of each file the runs that fit into the time), the share
//! alone, at least one run. If a number differs, or no run can be
//! computed again, no file is written. A file whose rows would not stay the same bytes is not written either (their order may change: it
//! becomes that of the runs' keys). Further replications are not checked: where numbers may have changed, run the experiment again instead.

use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use pilotlight_lab::simulated::cells::Cells;
use pilotlight_lab::simulated::recheck;
use pilotlight_lab::simulated::sweep::{self, Sweep};
use pilotlight_lab::simulated::{parallel, stale as lab_stale};
use pilotlight_lab::stored::values::{self, Results};

use super::{Committed, ResultsArgs, results_files};
use crate::console;
use crate::exit::Exit;
use crate::run::home;
use crate::stale;

/// A file that is to be written, and its runs whose fingerprint changes.
struct Doubtful {
    file: Committed,
    stamped: Results,
}

/// Restamps the folder of results and those in it.
pub(super) fn run(args: &ResultsArgs, workers: NonZeroUsize) -> anyhow::Result<ExitCode> {
    let home = &home()?;
    let mut doubtful = Vec::new();
    for path in results_files(args.folder.as_deref(), home)? {
        let results = Results::read(&path)?;
        if results.about.is_measured() || stale::is_of_host(&results.about, home) {
            continue;
        }
        doubtful.extend(changed(&path, &results, home).with_context(|| path.display().to_string())?);
    }
    let mut differing = 0;
    for Doubtful { file, .. } in &doubtful {
        differing += differs(args, workers, file)?;
    }
    if differing > 0 {
        console::println("no file is written: run the experiments again")?;
        return Ok(Exit::Failed.into());
    }
    for Doubtful { file, stamped } in &doubtful {
        let path = file.path.display().to_string();
        let place = path.strip_suffix(values::PACKED).unwrap_or(&path);
        values::write(Path::new(place), stamped)?;
        console::println(format_args!(
            "{path}: {} results restamped; {} cells in all",
            file.results.runs.len(),
            stamped.cells.len()
        ))?;
    }
    Ok(Exit::Clean.into())
}

/// Changes of a file; `None` if nothing changes.
fn changed(path: &Path, results: &Results, home: &Path) -> anyhow::Result<Option<Doubtful>> {
    let bench = lab_stale::current_experiment(&results.about, home)?.context("its comment lines name no experiment")?;
    let variants = lab_stale::variants_of(&bench, results.runs.keys().map(|key| key.variant.as_str()));
    let mut stamped =
        Cells::new(&bench, &variants).stamp(results).context("it has cells that are gone: run it again")?;
    stamped.about = bench.provenance();
    if stamped == *results {
        return Ok(None);
    }
    anyhow::ensure!(
        rows(&values::text(path)?) == rows(&stamped.text()),
        "its rows would not stay the same: run it again"
    );
    let mut doubt = results.clone();
    doubt.runs.retain(|key, _| results.cells.get(&key.cell()) != stamped.cells.get(&key.cell()));
    let most = results.runs.keys().map(|key| key.replication + 1).max().unwrap_or(0);
    let file = Committed { path: path.to_owned(), results: doubt, bench: bench.with_replications(most), variants };
    Ok(Some(Doubtful { file, stamped }))
}

/// The rows of a text, in order.
fn rows(text: &str) -> Vec<&str> {
    let mut rows: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    rows.sort_unstable();
    rows
}

/// Computes a share again; prints and returns the number of runs that differ.
fn differs(args: &ResultsArgs, workers: NonZeroUsize, file: &Committed) -> anyhow::Result<usize> {
    let sweep = Sweep::new(&file.bench, &file.variants);
    let all = recheck::candidates(0, &sweep, &file.results, args.seed);
    let budget_s = args.at_most.map(|limit| limit.as_secs_f64() * workers.get() as f64);
    let sample = if file.results.cells.is_empty() || budget_s.is_some() {
        recheck::sample(all, args.share, budget_s)
    } else {
        recheck::sample_each_cell(all, args.share)
    };
    anyhow::ensure!(
        !sample.chosen.is_empty() || file.results.runs.is_empty(),
        "{}: none of its runs can be computed again: run the experiment again",
        file.path.display()
    );
    let compare = |at: usize| recheck::compare(&sweep, sample.chosen[at].job, &file.results, &sweep::simulator);
    let mut differing = 0;
    for compared in parallel::each(workers, sample.chosen.len(), None, compare).into_iter().flatten() {
        if let Err(difference) = compared? {
            console::println(format_args!("{}: DIFFERS: {difference}", file.path.display()))?;
            differing += 1;
        }
    }
    let (path, drawn, of) = (file.path.display(), sample.chosen.len(), file.results.runs.len());
    console::println(format_args!(
        "{path}: {of} results get another fingerprint; {drawn} runs computed again, {differing} differ"
    ))?;
    Ok(differing)
}
