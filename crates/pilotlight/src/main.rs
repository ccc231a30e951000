//! The program `pilotlight`: command line, configuration, administration and commands.

// These macros panic when the reader has closed the pipe or the disk is full; `console` returns an error.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod address;
mod admin;
mod cli;
mod config;
mod connections;
mod demo;
mod doctor;
mod host;
mod http;
mod listener;
mod load;
mod metrics;
mod namespace;
mod page;
mod path;
mod policies;
mod privileges;
mod replace;
mod save;
mod seccomp;
mod serve;
mod set;
mod status;
mod subsystem;
mod top;

use std::process::ExitCode;

use clap::CommandFactory as _;
use pilotlight_cli::{console, exit, log, pages, program, restore, table};

use admin::command;
use cli::{Cli, Command};

fn main() -> ExitCode {
    // before the log's thread, which inherits it; fails only where the kernel has none (before Linux 3.5)
    let _ = rustix::thread::set_no_new_privs(true);
    program::main(cli::HINTS, |cli: &Cli| cli.verbose, |cli| run(&cli.command))
}

fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(args) => serve::run(args).map(ExitCode::from),
        Command::Status(args) => status::run(args).map(ExitCode::from),
        Command::Top(args) => top::run(args).map(ExitCode::from),
        Command::Page(args) => page::command::run(args).map(ExitCode::from),
        Command::Set(args) => set::run(args).map(ExitCode::from),
        Command::Subsystem(args) => command::run(args).map(ExitCode::from),
        Command::Listener(args) => command::run(args).map(ExitCode::from),
        Command::Path(args) => command::run(args).map(ExitCode::from),
        Command::Host(args) => command::run(args).map(ExitCode::from),
        Command::Connections(args) => connections::list(args).map(ExitCode::from),
        Command::Disconnect(args) => connections::disconnect(args).map(ExitCode::from),
        Command::Config(args) => save::run(args).map(ExitCode::from),
        Command::Namespace(args) => command::run(args).map(ExitCode::from),
        Command::Load(args) => load::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Restore(args) => restore::run(args, "pilotlight").map(ExitCode::from),
        Command::Completions(args) => pages::completions(args, Cli::command()),
        Command::Man(args) => pages::man(args, Cli::command()),
    }
}
