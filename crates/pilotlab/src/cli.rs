//! The command line.

use clap::{Parser, Subcommand};
use pilotlight_cli::hint::Hints;
use pilotlight_cli::{pages, program, restore};

const EXAMPLES: &str = "\
Examples:
  pilotlab run experiments/quick.toml                  fio on this machine, with its sensors
  pilotlab run papers/sandman/fig3.toml --smoke        a figure of a paper, on the simulator
  pilotlab measure -- sleep 2                          time and energy of a command, over three runs
  pilotlab sensors                                     sensors of this machine
  pilotlab profile --out own.toml /dev/nvme0n1         a model of this server for policy pass
  pilotlab compare before after                        which metrics differ, with intervals
  pilotlab advise bench-results/NAME                   the best setting of each parameter
  pilotlab trace requests.csv.gz                       rates, bursts, sizes of a block trace
  pilotlab restore                                     restore settings that a killed run changed
  pilotlab claims                                      published results beside ours, row by row

Run `pilotlab COMMAND --help` for a command's options and exit codes. Exit codes of every command:
141 (SIGPIPE) if standard output was closed by its reader, 1 if standard output cannot be written.";

pub(crate) const HINTS: Hints = Hints {
    moved: &[
        ("sim", "pilotlab run FILE"),
        ("bench", "pilotlab run FILE"),
        ("with", "pilotlab measure --settings FILE -- COMMAND"),
        ("serve", "pilotlight serve"),
        ("status", "pilotlight status"),
        ("set", "pilotlight set"),
        ("namespace", "pilotlight namespace"),
        ("load", "pilotlight load"),
        ("doctor", "pilotlight doctor"),
        ("demo", "pilotlight demo"),
    ],
    examples: &[
        ("pilotlab run", "pilotlab run experiments/quick.toml"),
        ("pilotlab measure", "pilotlab measure -- sleep 2"),
    ],
};

/// Experiments on storage and its energy, on this machine with real sensors, or on simulated machines
#[derive(Debug, Parser)]
#[command(name = "pilotlab", version, styles = program::STYLES, after_help = EXAMPLES, max_term_width = 100)]
#[command(arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Log more: -v for debugging, -vv for everything (PILOTLIGHT_LOG sets it by module)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Command
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run an experiment on this machine, with power sensors, or on the simulator
    Run(Box<crate::run::RunArgs>),
    /// Submit an experiment to a batch system (Slurm)
    Submit(crate::submit::SubmitArgs),
    /// Merge the shares of an experiment that several machines ran
    Merge(crate::merge::MergeArgs),
    /// Measure a command: time, CPU time and energy over several runs
    Measure(crate::measure::MeasureArgs),
    /// Build the power-performance models of policy `pass` for this machine
    Profile(Box<crate::profile::ProfileArgs>),
    /// Show the sensors of this machine and their values
    Sensors(crate::sensors::SensorsArgs),
    /// Show servers that share a power budget over etcd; set the budget
    Fleet(Box<crate::fleet::FleetArgs>),

    /// Compare two results folders, or two settings of one
    Compare(crate::compare::CompareArgs),
    /// Recommend settings from results, with their savings
    Advise(crate::advise::AdviseArgs),
    /// Write the report of an experiment from its results
    Report(crate::report::ReportArgs),
    /// Compare values of the papers with results
    Claims(crate::claims::ClaimsArgs),
    /// Check committed results: recompute a share, compare reference values
    Check(crate::check::CheckArgs),

    /// Measure random reads of a drive by interrupt or polling
    #[command(long_about = crate::read::ABOUT)]
    Read(crate::read::ReadArgs),
    /// Describe or generate a block trace
    Trace(crate::trace::TraceArgs),
    /// Restore settings that a killed run changed
    #[command(after_long_help = restore::examples("pilotlab"))]
    Restore(restore::RestoreArgs),
    /// Print the completions for a shell
    #[command(after_help = pages::completions_examples("pilotlab"))]
    Completions(pages::CompletionsArgs),
    /// Print the man page, or write those of all commands
    #[command(after_help = pages::man_examples("pilotlab"))]
    Man(pages::ManArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_a_man_page_and_every_shell_completes_it() {
        pages::check(&Cli::command(), &["run", "advise", "simulated"]);
    }

    #[test]
    fn every_command_has_examples_that_fit_the_help() {
        pilotlight_cli::hint::check(&Cli::command(), HINTS);
    }
}
