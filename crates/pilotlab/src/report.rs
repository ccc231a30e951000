//! `pilotlab report`: the page of a folder of results, made anew.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use pilotlight_lab::results::Folder;
use pilotlight_lab::simulated::experiment::Bench;
use pilotlight_lab::simulated::{figure, stale as lab_stale, summary};
use pilotlight_lab::{given, report};
use pilotlight_report::Report;
use pilotlight_results::values;

use crate::compare::unreadable;
use crate::console;
use crate::exit::Exit;
use crate::files;
use crate::run::found;
use crate::stale;

const ABOUT: &str = "\
Write report.html of a folder of results again: what came out, what it recommends, every metric over every knob, maps, what power \
is made of, power and throughput over time, what is missing and why, sensors and machine.

`pilotlab run` writes it at its end; this is for committed results, and for a run that was interrupted. For policies on a \
simulated server the page has the charts that their experiment asks for. It needs neither network nor script.";

const EXAMPLES: &str = "\
Examples:
  pilotlab report bench-results/quick-20261122-053000
  pilotlab report results/fig3 --out /tmp/fig3.html

Exit codes:
  0  written; its path is printed
  1  the folder cannot be read, or the page not be written; the message names the file
  2  the command line was refused";

/// Options of `pilotlab report`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct ReportArgs {
    /// Results of `pilotlab run`
    results: PathBuf,

    /// Where to write it [default: report.html in the folder]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The page: with the paper's axes where the numbers are of policies on a simulated server, whose experiment is at hand.
fn page(read: &report::Read) -> Report {
    let experiment = || -> Option<(Bench, values::Results)> {
        let numbers = given::numbers(&read.folder).ok()??;
        let home = found("calibration.toml").ok()?.parent()?.to_owned();
        if numbers.about.is_measured() || stale::is_of_host(&numbers.about, &home) {
            return None;
        }
        Some((lab_stale::asked_again(&numbers.about, &home).ok()??, numbers))
    };
    match experiment() {
        Some((bench, numbers)) => figure::report(&bench, &summary::summarise(&bench.points, &numbers), &[]),
        None => report::report(read),
    }
}

/// Writes the page.
pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let read = report::Read::from(&args.results).map_err(|error| unreadable(&args.results, error))?;
    let folder = Folder::new(&args.results);
    let path = args.out.clone().unwrap_or_else(|| folder.report());
    files::write(&path, page(&read).html())?;
    console::line(path.display())?;
    report::inert(&read.results).iter().for_each(console::say);
    Ok(Exit::Clean.into())
}
