//! The frame of the commands that list and change what a running server has, such as `pilotlight listener`: options, help and exit codes.

use std::fmt::Debug;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::client::{self, SocketArgs};
use super::request::Request;
use crate::exit::Exit;

const EXIT_CODES: &str = "

Exit codes:
  0  done
  1  no server answers
  2  the server refused; nothing has been changed";

/// The subcommands of such a command; its own help is the documentation of the type.
pub(crate) trait ServerCommand: Subcommand + Clone {
    /// Of the command and of each subcommand.
    const EXAMPLES: &'static str;
    /// Options in addition to those of every such command.
    type Options: Args + Clone + Debug;
    type Report: Serialize + DeserializeOwned;

    fn request(self, options: Self::Options) -> anyhow::Result<Request>;

    /// The response for people.
    fn text(request: &Request, report: &Self::Report) -> String;
}

/// Options of such a command.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Run with --help for examples and exit codes.", arg_required_else_help = true)]
#[command(after_long_help = examples::<C>(), mut_subcommands = |command| command.after_long_help(examples::<C>()))]
pub(crate) struct ServerArgs<C: ServerCommand> {
    #[command(subcommand)]
    command: C,

    #[command(flatten)]
    options: C::Options,

    #[command(flatten)]
    socket: SocketArgs,

    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

/// The option of commands about subsystems.
#[derive(Args, Clone, Debug)]
pub(crate) struct SubsystemOption {
    /// The subsystem; may be omitted if there is only one
    #[arg(long, value_name = "NQN", global = true)]
    pub(crate) nqn: Option<String>,
}

fn examples<C: ServerCommand>() -> String {
    format!("{}{EXIT_CODES}", C::EXAMPLES)
}

/// Sends the request and prints the response.
pub(crate) fn run<C: ServerCommand>(args: &ServerArgs<C>) -> anyhow::Result<Exit> {
    let request = args.command.clone().request(args.options.clone())?;
    client::run(&args.socket, &request, args.json, |report| C::text(&request, report))
}
