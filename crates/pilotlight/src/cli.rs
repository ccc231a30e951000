//! The command line.

use clap::{Parser, Subcommand};
use pilotlight_cli::hint::Hints;
use pilotlight_cli::{pages, program, restore};

use crate::admin::command::ServerArgs;
use crate::config::ServeArgs;
use crate::load::LoadArgs;

const EXAMPLES: &str = "\
Examples:
  pilotlight demo                                   serve, verify, compare policies in a minute
  pilotlight serve                                  1 GiB of memory on 127.0.0.1:4420
  pilotlight serve --namespace file:/dev/nvme1n1 --listen 192.0.2.7:4420
  pilotlight serve --config /etc/pilotlight.toml --check
  pilotlight status --watch                         the state of the server, every second
  pilotlight top                                    the same live in a terminal, with keys
  pilotlight set policy static                      another policy, under load too
  pilotlight namespace add mem:4GiB                 one more namespace; hosts are notified
  pilotlight load --runtime 10 --iodepth 32         4 KiB random reads from 127.0.0.1:4420
  pilotlight doctor                                 check this machine's sleep features
  pilotlight restore                                restore settings that a killed run has changed

Run `pilotlight COMMAND --help` for a command's options and exit codes. Exit codes of every command:
141 (SIGPIPE) if standard output was closed by its reader, 1 if standard output cannot be written.";

pub(crate) const HINTS: Hints = Hints {
    moved: &[
        ("sim", "pilotlab run FILE"),
        ("bench", "pilotlab run FILE"),
        ("run", "pilotlab run FILE"),
        ("with", "pilotlab measure --settings FILE -- COMMAND"),
        ("measure", "pilotlab measure -- COMMAND"),
        ("sensors", "pilotlab sensors"),
        ("check", "pilotlab check"),
        ("read", "pilotlab read"),
        ("trace", "pilotlab trace"),
        ("compare", "pilotlab compare"),
        ("advise", "pilotlab advise"),
        ("report", "pilotlab report"),
        ("claims", "pilotlab claims"),
    ],
    examples: &[],
};

/// A storage server with low power at low load: exports memory, files and drives over NVMe/TCP
#[derive(Debug, Parser)]
#[command(name = "pilotlight", version, styles = program::STYLES, after_help = EXAMPLES, max_term_width = 100)]
#[command(arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Log more: -v for debugging, -vv for everything (PILOTLIGHT_LOG sets it by module)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// The command
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// A command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve namespaces over NVMe/TCP
    Serve(Box<ServeArgs>),
    /// Show the state of a running server
    Status(crate::status::StatusArgs),
    /// Show the state of a running server live in a terminal, with keys for policy, budget and tolerance
    Top(crate::top::TopArgs),
    /// Print the address and the token of the live page of a running server
    Page(crate::page::command::PageArgs),
    /// Set the policy, budget, tolerance, caps or priorities of a running server
    Set(crate::set::SetArgs),
    /// Add, remove, resize, show, hide and list namespaces of a running server
    Namespace(ServerArgs<crate::namespace::NamespaceCommand>),
    /// Add, remove and list subsystems of a running server, and the addresses on which it offers them
    Subsystem(ServerArgs<crate::subsystem::SubsystemCommand>),
    /// Add, remove and list the addresses that a running server listens on
    Listener(ServerArgs<crate::listener::ListenerCommand>),
    /// Close and open paths by an address of a running server (ANA)
    Path(ServerArgs<crate::path::PathCommand>),
    /// Set and list which hosts may connect to a running server
    Host(ServerArgs<crate::host::HostCommand>),
    /// Write the changes of a running server to its configuration file
    Config(crate::save::ConfigArgs),
    /// List the hosts that are connected to a running server
    Connections(crate::connections::ConnectionsArgs),
    /// Close the connections of a host, which may reconnect
    Disconnect(crate::connections::DisconnectArgs),

    /// Serve memory, verify data and compare policies under bursts, in about a minute
    Demo(crate::demo::DemoArgs),
    /// Send a load to an NVMe/TCP target: measure latency, or verify every block
    Load(Box<LoadArgs>),
    /// Check this machine's sleep features, and show how to enable missing ones
    Doctor(crate::doctor::DoctorArgs),
    /// Restore settings that a killed run has changed
    #[command(after_long_help = restore::examples("pilotlight"))]
    Restore(restore::RestoreArgs),
    /// Print the completions for a shell
    #[command(after_help = pages::completions_examples("pilotlight"))]
    Completions(pages::CompletionsArgs),
    /// Print the man page, or write those of all commands
    #[command(after_help = pages::man_examples("pilotlight"))]
    Man(pages::ManArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn serve(args: &[&str]) -> Result<ServeArgs, clap::Error> {
        let cli = Cli::try_parse_from(["pilotlight", "serve"].iter().chain(args))?;
        let Command::Serve(serve) = cli.command else { panic!("not serve") };
        Ok(*serve)
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_a_man_page_and_every_shell_completes_it() {
        pages::check(&Cli::command(), &["serve", "status", "drain-timeout"]);
    }

    #[test]
    fn every_command_has_examples_that_fit_the_help() {
        pilotlight_cli::hint::check(&Cli::command(), HINTS);
    }

    #[test]
    fn repeatable_options_keep_their_order() {
        let args = serve(&["--namespace", "mem:1GiB", "--listen", "a", "--namespace", "null:1GiB", "--listen", "b"]);
        let args = args.unwrap();
        assert_eq!(args.namespace, ["mem:1GiB", "null:1GiB"]);
        assert_eq!(args.listen, ["a", "b"]);
    }

    #[test]
    fn unknown_options_are_refused() {
        let error = serve(&["--listn", "127.0.0.1:4420"]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("--listen"), "{error}");
    }
}
