//! A list of experiments with a common progress display.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pilotlight_lab::simulated::audit::{Audited, Auditor};
use pilotlight_lab::simulated::experiment::{Bench, Request};
use pilotlight_lab::simulated::matrix::Matrix;
use pilotlight_lab::simulated::sweep::Sweep;
use pilotlight_lab::simulated::variant::{self, Choice, Variant};

use super::progress::Progress;
use super::{make_room, output, place, sweep_into, tell_audited, workers};
use crate::console;
use crate::exit::Exit;
use crate::run::RunArgs;

/// An experiment of the list with its results folder.
pub(super) struct Entry {
    pass: String,
    bench: Bench,
    variants: Vec<Variant>,
    oracle: Option<f64>,
    out: PathBuf,
}

/// Loads all experiments of a list, so that errors are found before any run.
pub(super) fn entries(args: &RunArgs, list: &Path, request: &Request, choice: &Choice) -> anyhow::Result<Vec<Entry>> {
    let ready = |entry: pilotlight_lab::simulated::matrix::Entry| {
        let variants = variant::variants(&entry.bench.machine.calibration, &entry.choice)?;
        let (out, oracle) = (args.out(&entry.bench).join(entry.out), args.simulated.oracle.or(entry.oracle));
        Ok(Entry { pass: entry.pass, bench: entry.bench, variants, oracle, out })
    };
    let leave_out = args.simulated.variants.leave_out;
    Matrix::read(list)?.entries(list, request, choice, leave_out)?.into_iter().map(ready).collect()
}

/// Runs all missing runs.
pub(super) fn run(args: &RunArgs, entries: &[Entry]) -> anyhow::Result<ExitCode> {
    let mut missing_s = Vec::new();
    let mut seen: Vec<PathBuf> = Vec::new();
    for entry in entries {
        let place = place(&entry.out, &entry.bench);
        if !seen.contains(&place) {
            make_room(args, &place)?; // a later pass extends the results of an earlier one
            seen.push(place.clone());
        }
        let sweep = Sweep::new(&entry.bench, &entry.variants);
        missing_s.push(sweep.missing_s(&sweep.read_current(&place)?));
    }
    let mut audited = Audited::default();
    let progress = Progress::new(missing_s.iter().sum(), workers(args.simulated.workers), args.output.json);
    for (at, (entry, missing_s)) in entries.iter().zip(missing_s).enumerate() {
        let Entry { pass, bench, variants, oracle, out } = entry;
        let sweep = Sweep::new(bench, variants);
        let name = &bench.experiment.name;
        progress.begin(&format!("{pass} {name} ({} of {})", at + 1, entries.len()), sweep.len(), missing_s);
        let auditor = Auditor::new(bench.experiment.seed);
        let done = sweep_into(args, &sweep, &place(out, bench), &auditor, *oracle, &progress)?;
        audited.add(auditor.audited());
        output::save_all(args, out, bench, variants, done)?;
    }
    progress.finish();
    tell_audited(args, audited)?;
    let folders: BTreeSet<String> = entries.iter().map(|entry| entry.out.display().to_string()).collect();
    let (count, out) = (entries.len(), folders.into_iter().collect::<Vec<_>>().join(", "));
    console::println(format_args!("{count} experiments are in {out}; `pilotlab claims` compares them"))?;
    Ok(Exit::Clean.into())
}
