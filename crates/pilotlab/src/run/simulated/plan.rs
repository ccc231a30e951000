//! The output of `--dry-run`: the number of runs, and their estimated CPU time.

use std::process::ExitCode;

use pilotlight_lab::simulated::sweep::Sweep;
use pilotlight_lab::stored::values::Results;
use serde_json::json;

use super::{Prepared, prepare};
use crate::console;
use crate::exit::{self, Exit};
use crate::run::RunArgs;
use crate::run::live::progress::time;

/// Prints the plan of an experiment; earlier results are ignored.
pub(super) fn show(args: &RunArgs) -> anyhow::Result<ExitCode> {
    match text(args) {
        Ok(text) => {
            console::println(text)?;
            Ok(Exit::Clean.into())
        }
        Err(error) => {
            exit::report_error(&error);
            Ok(Exit::Refused.into())
        }
    }
}

fn text(args: &RunArgs) -> anyhow::Result<String> {
    anyhow::ensure!(args.shard.is_none(), "--dry-run is for the whole experiment: omit --shard");
    let Prepared::One(bench, variants, points) = prepare(args)? else {
        anyhow::bail!("--dry-run is for one experiment; the file is a list: name one of its experiments");
    };
    let name = &bench.experiment.name;
    let sweep = || Sweep::new(&bench, &variants).only(&points);
    let (runs, cpu_s) = (sweep().len(), sweep().missing_s(&Results::default()));
    // Shares divide these by windows, so that there can be more shares than runs.
    let sampled = runs - sweep().without_replays().len();
    if args.output.json {
        let value = json!({ "experiment": name, "runs": runs, "sampled_replays": sampled, "cpu_s": cpu_s });
        return Ok(serde_json::to_string_pretty(&value)?);
    }
    let replays = if sampled > 0 { format!(" ({sampled} sampled replays)") } else { String::new() };
    Ok(format!("{name}: {runs} runs{replays}, about {} of CPU time", time(cpu_s)))
}
