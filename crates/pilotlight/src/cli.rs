//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use pilotlight_cli::hint::Hints;
use pilotlight_cli::{program, restore};
use pilotlight_policy::NAMES;

use crate::load::LoadArgs;
use crate::policies;

const EXAMPLES: &str = "\
Examples:
  pilotlight demo                                   serve, verify, measure: under a minute
  pilotlight serve                                  1 GiB of memory on 127.0.0.1:4420
  pilotlight serve --namespace file:/dev/nvme1n1 --listen 192.0.2.7:4420
  pilotlight serve --config /etc/pilotlight.toml --check
  pilotlight status --watch                         the state of the server, every second
  pilotlight top                                    the same live in a terminal, with keys
  pilotlight set policy static                      another policy, under load too
  pilotlight namespace add mem:4GiB                 one more namespace; hosts are notified
  pilotlight load --runtime 10 --iodepth 32         4 KiB random reads from 127.0.0.1:4420
  pilotlight doctor                                 check this machine for sleeping cores
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
    /// Change a running server's policy
    Set(crate::set::SetArgs),
    /// Add, remove, resize, show, hide and list namespaces of a running server
    Namespace(crate::namespace::NamespaceArgs),
    /// Say which hosts may connect to a running server
    Host(crate::host::HostArgs),
    /// Keep what was changed in a running server: write it to its configuration file
    Config(crate::save::ConfigArgs),
    /// List the hosts that are connected to a running server
    Connections(crate::connections::ConnectionsArgs),
    /// End the connections of a host, which may reconnect
    Disconnect(crate::connections::DisconnectArgs),

    /// Serve, connect, write, verify and measure, all in under a minute
    Demo(crate::demo::DemoArgs),
    /// Drive a target over NVMe/TCP: measure it, or verify every block
    Load(Box<LoadArgs>),
    /// Say what this machine offers to cores that sleep, and what would bring the rest
    Doctor(crate::doctor::DoctorArgs),
    /// Restore settings that a killed run has changed
    #[command(after_long_help = restore::examples("pilotlight"))]
    Restore(restore::RestoreArgs),
}

const SERVE_ABOUT: &str = "\
Serve namespaces over NVMe/TCP.

Without options: one subsystem with one namespace of 1 GiB in memory, on 127.0.0.1:4420. At start it prints the \
`nvme connect` line to paste on the host.";

const SERVE_EXAMPLES: &str = "\
Examples:
  pilotlight serve
  pilotlight serve --listen 0.0.0.0:4420 --namespace file:/srv/disk.img --cores 2,3
  pilotlight serve --namespace mem:4GiB --namespace null:1TiB --block-size 512
  pilotlight serve --namespace file:/dev/nvme1n1 --nqn nqn.2024-05.com.example:disks \\
      --allow-host nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6
  pilotlight serve --cores 0-7 --policy sandman --policy-set window=64 --sleep-after 5ms
  pilotlight serve --policy static                  every core polls all the time
  pilotlight serve --listen 192.0.2.7:8009 --mdns   hosts on the local network find it
  pilotlight serve --config pilotlight.toml --check

Signals:
  SIGTERM, Ctrl-C   stop accepting, finish requests in flight, flush (at most --drain-timeout in
                    all), exit; a second signal exits at once
  SIGHUP            read the configuration and the files' sizes again; subsystems and namespaces
                    are added, removed and resized, allowed hosts and the policy change

Exit codes:
  0  stopped by a signal, everything finished and flushed
  1  the server could not start or failed
  2  the command line or the configuration was refused; nothing was started
  3  stopped, but requests or a flush were unfinished after --drain-timeout
  4  stopped, but a flush failed: data that were not flushed before may be lost
  130, 143  ended at once by a second Ctrl-C (130) or SIGTERM (143)";

/// Options of `pilotlight serve`.
#[derive(Args, Clone, Debug, Default)]
#[command(long_about = SERVE_ABOUT, after_long_help = SERVE_EXAMPLES)]
#[command(after_help = "Run with --help for examples, signals and exit codes.")]
pub(crate) struct ServeArgs {
    /// Address to accept hosts on; repeatable [default: 127.0.0.1:4420]
    #[arg(long, value_name = "ADDR:PORT", help_heading = "Network")]
    pub(crate) listen: Vec<String>,

    /// Address that the discovery log gives to hosts, if it differs from the listening one (address translation)
    #[arg(long, value_name = "ADDR:PORT", help_heading = "Network")]
    pub(crate) advertise: Option<String>,

    /// Announce the discovery service by multicast DNS (_nvme-disc._tcp), so that hosts such as nvme-stas find it
    #[arg(long, help_heading = "Network")]
    pub(crate) mdns: bool,

    /// Namespace to export: mem:SIZE, mem:SIZE,hugepages (allocated at start), file:PATH (a file or a block device),
    /// file:PATH?size=SIZE (created where missing) or null:SIZE; repeatable, numbered from 1 [default: mem:1GiB]
    #[arg(long, value_name = "BACKEND", help_heading = "Storage")]
    pub(crate) namespace: Vec<String>,

    /// Bytes in a block, of every --namespace: 512 or 4096 [default: for file: those of a sector of its medium, else 4096]
    #[arg(long, value_name = "BYTES", help_heading = "Storage")]
    pub(crate) block_size: Option<u32>,

    /// The subsystem's name [default: one that follows from this machine and --listen]
    #[arg(long, value_name = "NQN", help_heading = "Storage")]
    pub(crate) nqn: Option<String>,

    /// Host that may connect; repeatable [default: any]
    #[arg(long, value_name = "NQN", help_heading = "Storage")]
    pub(crate) allow_host: Vec<String>,

    /// Cores to run on, such as 0,1 or 0-3 [default: the first that is allowed]
    #[arg(long, value_name = "LIST", help_heading = "Resources")]
    pub(crate) cores: Option<String>,

    /// On which of --cores the policy decides; it is the last to sleep [default: the first]
    #[arg(long, value_name = "CORE", help_heading = "Resources")]
    pub(crate) main_core: Option<u32>,

    /// For tests on small machines: this number of unpinned reactors, instead of --cores
    #[arg(long, value_name = "COUNT", help_heading = "Resources")]
    pub(crate) reactors: Option<u32>,

    /// Number of I/O threads [default: one a core]
    #[arg(long, value_name = "COUNT", help_heading = "Resources")]
    pub(crate) io_threads: Option<u32>,

    /// Maximum memory for namespaces, data in flight and queues [default: three quarters of the memory of the machine, or of its container]
    #[arg(long, value_name = "SIZE", help_heading = "Resources")]
    pub(crate) max_memory: Option<String>,

    /// How long the end may take: requests in flight, then the flush [default: 10s]
    #[arg(long, value_name = "TIME", help_heading = "Resources")]
    pub(crate) drain_timeout: Option<String>,

    /// Let a policy take the cores that it does not use out of the system (CPU hotplug)
    #[arg(long, help_heading = "Resources")]
    pub(crate) hotplug: bool,

    /// For tests: the folder below which /sys, /proc, /dev and the record of what is changed are
    #[arg(long, hide = true, value_name = "FOLDER", help_heading = "Resources")]
    pub(crate) roots: Option<PathBuf>,

    /// For tests of hosts and tools: show hosts NVMe power states that they can set; they save nothing
    #[arg(long, hide = true, help_heading = "Resources")]
    pub(crate) power_states: bool,

    #[arg(long, value_name = "NAME", help_heading = "Policy", help = format!(
        "Policy, which wakes cores and places I/O threads: {} [default: {}]", NAMES.join(", "), policies::DEFAULT
    ))]
    pub(crate) policy: Option<String>,

    /// A parameter of the policy, such as window=64; repeatable, set in this order
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Policy")]
    pub(crate) policy_set: Vec<String>,

    /// Most power that may be drawn, such as 300W; the policy holds it, or one around it (docs/budget.md) [default: off]
    #[arg(long, value_name = "POWER", help_heading = "Policy")]
    pub(crate) budget: Option<String>,

    /// Domain of the budget: server, or cpu for the CPU packages [default: server if the sensor measures it, else cpu]
    #[arg(long, value_name = "DOMAIN", help_heading = "Policy")]
    pub(crate) budget_domain: Option<String>,

    /// A file of budgets by time, a line such as `18:00Z 300W` each (docs/budget.md)
    #[arg(long, value_name = "FILE", help_heading = "Policy")]
    pub(crate) budget_schedule: Option<String>,

    /// A profile of this machine as `pilotlab profile` makes it, by which `pass` holds budgets (docs/measure.md)
    #[arg(long, value_name = "FILE", help_heading = "Policy")]
    pub(crate) budget_profile: Option<String>,

    /// How long requests may take: a share above the latency without saving such as 0.2, or a time; after it p50 or p99 where it is
    /// not for the mean [default: off]
    #[arg(long, value_name = "BOUND", help_heading = "Policy")]
    pub(crate) tolerance: Option<String>,

    /// Power sensor: auto, none, rapl, hwmon, hwmon:CHIP, modelled or modelled:PROFILE.toml [default: auto: RAPL, else
    /// the firmware's power meter]
    #[arg(long, value_name = "SENSOR", help_heading = "Policy")]
    pub(crate) sensor: Option<String>,

    /// Time without requests until the whole server sleeps in the kernel; or never; or policy: the policy decides [default: policy]
    #[arg(long, value_name = "TIME", help_heading = "Policy")]
    pub(crate) sleep_after: Option<String>,

    /// Where `pilotlight status`, `set` and `namespace` reach the server, or none [default: $PILOTLIGHT_SOCKET, or else
    /// $XDG_RUNTIME_DIR/pilotlight.sock, for root /run/pilotlight/pilotlight.sock]
    #[arg(long, value_name = "PATH", help_heading = "Administration")]
    pub(crate) admin_socket: Option<String>,

    /// Group whose members may use --admin-socket to read (status, lists, connections), and not to change anything [default: none]
    #[arg(long, value_name = "GROUP", help_heading = "Administration")]
    pub(crate) admin_read_group: Option<String>,

    /// Where goals that `pilotlight set` sets are kept over a restart, or none [default: $STATE_DIRECTORY/goals.json, which
    /// systemd gives a service that has StateDirectory=, else none]
    #[arg(long, value_name = "PATH", help_heading = "Administration")]
    pub(crate) state: Option<String>,

    /// Divide energy among hosts and namespaces, once a second, by the CPU time of their requests; idle energy stays `unassigned`, or is shared `equal` or
    /// `proportional`; or `off` [default: off]
    #[arg(long, value_name = "IDLE", help_heading = "Power")]
    pub(crate) energy_shares: Option<String>,

    /// Where metrics are served over HTTP for Prometheus: a port of 127.0.0.1 or an address; or none [default: none]
    #[arg(long, value_name = "[ADDR:]PORT", help_heading = "Administration")]
    pub(crate) metrics: Option<String>,

    /// How the log on standard error is written: text or json, an object a line [default: text]
    #[arg(long, value_name = "FORMAT", help_heading = "Administration")]
    pub(crate) log_format: Option<String>,
    /// Address of the live page for browsers: a port of 127.0.0.1, an address, or unix:PATH; or none [default: none]
    #[arg(long, value_name = "[ADDR:]PORT", help_heading = "Administration")]
    pub(crate) page: Option<String>,

    /// A file with the page's token [default: the server writes one next to its control socket]
    #[arg(long, value_name = "FILE", help_heading = "Administration")]
    pub(crate) page_token_file: Option<String>,

    /// For tests: milliseconds between two samples of the page
    #[arg(long, hide = true, value_name = "MS", help_heading = "Administration")]
    pub(crate) page_tick: Option<u64>,

    /// Read the configuration from a regular file (TOML; see docs/configuration.md), which SIGHUP reads again
    #[arg(long, value_name = "FILE", help_heading = "Configuration")]
    pub(crate) config: Option<PathBuf>,

    /// Only check the configuration, and whether this machine meets its requirements
    #[arg(long, help_heading = "Configuration")]
    pub(crate) check: bool,

    /// Print what is served as one line of JSON
    #[arg(long, help_heading = "Configuration")]
    pub(crate) json: bool,
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
    fn lines_of_examples_fit_the_help() {
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

    #[test]
    fn every_command_has_examples() {
        fn check(command: &clap::Command) {
            for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
                let help = command.clone().render_long_help().to_string();
                assert!(help.contains("Examples:"), "{}", command.get_name());
                check(command);
            }
        }
        check(&Cli::command());
    }
}
