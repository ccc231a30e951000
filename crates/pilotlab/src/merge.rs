//! `pilotlab merge`: joins the results of shares of an experiment.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

const ABOUT: &str = "\
Join the folders that `pilotlab run FILE --shard K/N --out DIR` wrote, on this machine or others, into one results folder.

The result has the same bytes as that of one run of all shares. Shares of another version of this program, or of an experiment that differs in \
any input, are refused. If runs are missing, they are listed and nothing is written. The experiment's file must be readable at the path that \
the shares used.

Shares of a measured experiment are joined only if they were measured on one host with the same settings and sensors. \
With --by-host the host is a parameter.";

const EXAMPLES: &str = "\
Examples:
  pilotlab merge /shared/fig3/shard-* --out results
  pilotlab merge /shared/fig3/shard-* --out /tmp/fig3 --json
  pilotlab merge /shared/node7 /shared/node8 --by-host --out nodes    measured on two nodes

Exit codes:
  0  complete; tables and the report are written
  1  runs are missing, or a file cannot be written
  2  the folders do not belong together; nothing was written";

/// Options of `pilotlab merge`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct MergeArgs {
    /// Folders of shares
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,

    /// Results folder
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Join measurements of several hosts, with the host as a parameter; each host must have all measurements
    #[arg(long)]
    by_host: bool,

    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// Joins shares.
pub(crate) fn run(args: &MergeArgs) -> anyhow::Result<ExitCode> {
    crate::run::merge(&args.folders, &args.out, args.by_host, args.json)
}
