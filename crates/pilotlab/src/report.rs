//! `pilotlab report`: writes the report of a results folder again.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use pilotlight_lab::report::Read;
use pilotlight_lab::results::{Folder, FolderError};
use pilotlight_lab::simulated::experiment::Bench;
use pilotlight_lab::simulated::stale as lab_stale;
use pilotlight_lab::stored::values::Provenance;
use pilotlight_lab::{report, result_set};

use crate::compare::unreadable;
use crate::console;
use crate::exit::Exit;
use crate::files;
use crate::run;
use crate::stale;

const ABOUT: &str = "\
Write report.html of a results folder again: results, recommendations, every metric over every knob, maps, components of power, \
power and throughput over time, missing values with reasons, sensors and machine.

`pilotlab run` writes it at its end; this command is for committed results and interrupted runs. For policies on a \
simulated server the page has the charts that their experiment defines. The page uses neither network nor scripts.";

const EXAMPLES: &str = "\
Examples:
  pilotlab report bench-results/quick-20261122-053000
  pilotlab report papers/sandman/results/fig3 --out /tmp/fig3.html

Exit codes:
  0  written; its path is printed
  1  the folder cannot be read, or the page cannot be written; the message names the file
  2  the command line was refused";

/// Options of `pilotlab report`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct ReportArgs {
    /// Results of `pilotlab run`
    results: PathBuf,

    /// Output file [default: report.html in the folder]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Also write the line charts as one SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Reads a folder; with the charts of its experiment if results are of a simulated server and the experiment exists.
fn read(path: &Path) -> Result<Read, FolderError> {
    let folder = Folder::new(path);
    let numbers = result_set::committed(&folder)?;
    let experiment = |about: &Provenance| -> Option<Bench> {
        let home = run::home().ok()?;
        if about.is_measured() || stale::is_of_host(about, &home) {
            return None;
        }
        lab_stale::current_experiment(about, &home).ok()?
    };
    match numbers.and_then(|numbers| Some((experiment(&numbers.about)?, numbers))) {
        Some((bench, numbers)) => Ok(Read::simulated(&bench, &numbers, folder, Vec::new())),
        None => Read::from(path),
    }
}

/// Runs the command.
pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let read = read(&args.results).map_err(|error| unreadable(&args.results, error))?;
    let path = args.out.clone().unwrap_or_else(|| read.folder.report());
    let page = report::report(&read);
    files::write(&path, page.html())?;
    if let Some(path) = &args.svg {
        let charts: Vec<_> = page.charts().cloned().collect();
        let picture =
            pilotlight_report::chart::picture(&charts).context("the report has no line chart over a number")?;
        files::write(path, picture)?;
    }
    console::println(path.display())?;
    report::inert(&read.results).iter().for_each(console::eprintln);
    Ok(Exit::Clean.into())
}
