//! Pilotlight, the program: command line, configuration, and the commands.

// A macro that panics where the reader has gone, or the disk is full: `console` prints.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod admin;
mod advise;
mod bench;
mod claims;
mod cli;
mod compare;
mod config;
mod console;
mod demo;
mod doctor;
mod exit;
mod files;
mod load;
mod log;
mod namespace;
mod policies;
mod read;
mod report;
mod restore;
mod serve;
mod set;
mod sim;
mod status;
mod table;
mod trace;
mod with;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => return exit::parsed(&answer),
    };
    if let Err(error) = log::start(cli.verbose) {
        return exit::failed(&anyhow::Error::new(error).context("cannot start the log")).into();
    }
    let outcome = match &cli.command {
        Command::Serve(args) => serve::run(args).map(ExitCode::from),
        Command::Status(args) => status::run(args).map(ExitCode::from),
        Command::Set(args) => set::run(args).map(ExitCode::from),
        Command::Namespace(args) => namespace::run(args).map(ExitCode::from),
        Command::Load(args) => load::run(args),
        Command::Read(args) => read::run(args),
        Command::Trace(args) => trace::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::With(args) => with::run(args),
        Command::Restore(args) => restore::run(args).map(ExitCode::from),
        Command::Sim(args) => sim::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Report(args) => report::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Advise(args) => advise::run(args),
        Command::Claims(args) => claims::run(args).map(ExitCode::from),
    };
    let code = outcome.unwrap_or_else(|error| exit::ended(&error));
    log::flush();
    code
}
