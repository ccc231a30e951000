//! `pilotlab report`: the page of a folder of results, made anew.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use pilotlight_bench::report;
use pilotlight_bench::results::Folder;

use crate::compare::unreadable;
use crate::console;
use crate::exit::Exit;
use crate::files;

const ABOUT: &str = "\
Write report.html of a folder of results anew: what came out, what it recommends, every metric over every knob, maps, what power \
is made of, power and throughput over time, what is missing and why, sensors and machine.

`pilotlab run` writes it at its end; this is for results of an earlier version, or of a run that was interrupted. The page needs \
neither network nor script.";

const EXAMPLES: &str = "\
Examples:
  pilotlab report bench-results/quick-20261122-053000
  pilotlab report results --out /tmp/report.html

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

/// Writes the page.
pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let read = report::Read::from(&args.results).map_err(|error| unreadable(&args.results, error))?;
    let folder = Folder::new(&args.results);
    let path = args.out.clone().unwrap_or_else(|| folder.report());
    files::write(&path, report::report(&read).html())?;
    console::line(path.display())?;
    report::inert(&read.results).iter().for_each(console::say);
    Ok(Exit::Clean.into())
}
