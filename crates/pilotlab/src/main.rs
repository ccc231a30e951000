//! `pilotlab` runs experiments on this machine and on simulated ones, and evaluates their results.

// These macros panic on a closed pipe or a full disk; use `console`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod advise;
mod check;
mod claims;
mod cli;
mod compare;
mod files;
mod fleet;
mod measure;
mod merge;
mod profile;
mod read;
mod reader;
mod report;
mod run;
mod sensors;
mod stale;
mod submit;
mod trace;

use std::process::ExitCode;

use clap::CommandFactory as _;
use pilotlight_cli::{console, exit, pages, program, restore, table};

use cli::{Cli, Command};

fn main() -> ExitCode {
    program::main(cli::HINTS, |cli: &Cli| cli.verbose, |cli| start(&cli.command))
}

fn start(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Submit(args) => submit::run(args),
        Command::Merge(args) => merge::run(args),
        Command::Check(args) => check::run(args),
        Command::Measure(args) => measure::run(args),
        Command::Profile(args) => profile::run(args),
        Command::Sensors(args) => sensors::run(args),
        Command::Fleet(args) => fleet::run(args),
        Command::Read(args) => read::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Advise(args) => advise::run(args),
        Command::Report(args) => report::run(args),
        Command::Claims(args) => claims::run(args).map(ExitCode::from),
        Command::Trace(args) => trace::run(args),
        Command::Restore(args) => restore::run(args, "pilotlab").map(ExitCode::from),
        Command::Completions(args) => pages::completions(args, Cli::command()),
        Command::Man(args) => pages::man(args, Cli::command()),
    }
}
