//! `pilotlight config save`: what was changed in a running server becomes its configuration.

use std::env;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use crate::admin::client::{self, SocketArgs};
use crate::admin::request::{Request, SaveRequest};
use crate::console;
use crate::exit::Exit;

const EXAMPLES: &str = "\
Examples:
  pilotlight config save
  pilotlight config save --force                    replace a file that was edited meanwhile
  pilotlight config save --to /etc/pilotlight.toml  for a server that was started with flags

The server replaces the file atomically. Comments and order are kept. \
A SIGHUP afterwards changes nothing. Settings with an end or without a key are not written, and reported: a budget with an end, a \
budget over a schedule, a pause of background work.

Exit codes:
  0  done
  1  no server answers
  2  the server refused; nothing has been changed";

/// Options of `pilotlight config`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
#[command(arg_required_else_help = true)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,

    #[command(flatten)]
    socket: SocketArgs,
}

#[derive(Clone, Debug, Subcommand)]
enum ConfigCommand {
    /// Write what was changed over the control socket to the configuration file
    #[command(after_long_help = EXAMPLES)]
    Save {
        /// The file, where the server was started without --config
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,

        /// Replace a file that has changed since the server read it, or that is there already
        #[arg(long)]
        force: bool,

        /// Print what was written as JSON
        #[arg(long)]
        json: bool,
    },
}

/// The result of a save.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SaveReport {
    /// The file.
    pub(crate) file: String,
    /// Keys that have another value now.
    pub(crate) changes: Vec<String>,
    /// Notes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

/// Sends the request and prints the response.
pub(crate) fn run(args: &ConfigArgs) -> anyhow::Result<Exit> {
    let ConfigCommand::Save { to, force, json } = &args.command;
    let here = env::current_dir().context("the current directory is not known")?;
    let to = to.as_ref().map(|to| here.join(to).display().to_string());
    let request = Request::ConfigSave(SaveRequest { to, force: *force });
    client::run::<SaveReport>(&args.socket, &request, *json, |report| {
        report.notes.iter().for_each(|note| console::eprintln(format_args!("note: {note}")));
        if report.changes.is_empty() {
            return format!("{}: nothing to save\n", report.file);
        }
        let changes: String = report.changes.iter().map(|change| format!("  {change}\n")).collect();
        format!("{} is written:\n{changes}", report.file)
    })
}
