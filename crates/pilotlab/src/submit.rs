//! `pilotlab submit`: hands an experiment to a batch system.

mod scripts;
mod slurm;

use std::process::ExitCode;

use clap::{Args, Subcommand};

const ABOUT: &str = "\
Hand an experiment to a batch system, which runs its shares on many machines (docs/many-machines.md).";

const EXAMPLES: &str = "\
Examples:
  pilotlab submit slurm papers/sandman/fig3.toml --tasks 100
  pilotlab submit slurm papers/sandman/fig3.toml --dry-run";

/// Options of `pilotlab submit`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES, after_help = "Run with --help for examples.")]
pub(crate) struct SubmitArgs {
    /// The batch system
    #[command(subcommand)]
    system: System,
}

/// Batch systems.
#[derive(Clone, Debug, Subcommand)]
enum System {
    /// Submit an array job to Slurm, and a job that merges its results
    Slurm(Box<slurm::SlurmArgs>),
}

/// Submits an experiment.
pub(crate) fn run(args: &SubmitArgs) -> anyhow::Result<ExitCode> {
    match &args.system {
        System::Slurm(args) => slurm::run(args),
    }
}
