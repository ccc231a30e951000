//! Options of `pilotlight serve` as they were written, before any check.

use std::path::PathBuf;

use clap::Args;
use pilotlight_policy::NAMES;

use crate::policies;

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

    /// Address to accept hosts with TLS on, by the tls_key lines of --secrets-file; repeatable [default: none]
    #[arg(long, value_name = "ADDR:PORT", help_heading = "Network")]
    pub(crate) tls_listen: Vec<String>,

    /// Address on which hosts authenticate and then use TLS with the key that this generates (nvme connect --concat); repeatable
    #[arg(long, value_name = "ADDR:PORT", help_heading = "Network")]
    pub(crate) concat_listen: Vec<String>,

    /// Address that the discovery log gives to hosts, if it differs from the listening one (address translation)
    #[arg(long, value_name = "ADDR:PORT", help_heading = "Network")]
    pub(crate) advertise: Option<String>,

    /// Announce the discovery service by multicast DNS (_nvme-disc._tcp), so that hosts such as nvme-stas find it
    #[arg(long, help_heading = "Network")]
    pub(crate) mdns: bool,

    /// Namespace to export: mem:SIZE, mem:SIZE,hugepages (allocated at start), file:PATH (a file or a block device),
    /// file:PATH?size=SIZE (created where missing), file:PATH?read-only or null:SIZE; repeatable, numbered from 1 [default: mem:1GiB]
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

    /// Unit that is bound to an I/O thread: queue (each I/O queue), or host (a host with all its I/O queues) [default: queue]
    #[arg(long, value_name = "WHAT", help_heading = "Resources")]
    pub(crate) placement: Option<String>,

    /// Maximum memory for namespaces, data in flight and queues [default: three quarters of the memory of the machine, or of its container]
    #[arg(long, value_name = "SIZE", help_heading = "Resources")]
    pub(crate) max_memory: Option<String>,

    /// Longest time of a stop: requests in flight, then the flush [default: 10s]
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

    /// Most power that may be drawn, such as 300W; the policy holds it, or one around it (docs/operate/limit-power.md) [default: off]
    #[arg(long, value_name = "POWER", help_heading = "Policy")]
    pub(crate) budget: Option<String>,

    /// Domain of the budget: server, or cpu for the CPU packages [default: server if the sensor measures it, else cpu]
    #[arg(long, value_name = "DOMAIN", help_heading = "Policy")]
    pub(crate) budget_domain: Option<String>,

    /// A file of budgets by time, a line such as `18:00Z 300W` each (docs/operate/limit-power.md)
    #[arg(long, value_name = "FILE", help_heading = "Policy")]
    pub(crate) budget_schedule: Option<String>,

    /// A profile of this machine as `pilotlab profile` makes it, by which `pass` holds budgets (docs/measure.md)
    #[arg(long, value_name = "FILE", help_heading = "Policy")]
    pub(crate) budget_profile: Option<String>,

    /// When the server is killed, leave the limits of the CPU packages as they are until the next one starts [default: `pilotlight restore`
    /// and the helper of --user restore them, as nothing of the server draws power any more]
    #[arg(long, help_heading = "Policy")]
    pub(crate) keep_limits: bool,

    /// Latency tolerance: a share above the latency without saving such as 0.2, or a time; after it p50 or p99 where it is
    /// not for the mean [default: off]
    #[arg(long, value_name = "BOUND", help_heading = "Policy")]
    pub(crate) tolerance: Option<String>,

    /// Power sensor: auto, none, rapl, hwmon, hwmon:CHIP, modelled or modelled:PROFILE.toml [default: auto: RAPL, else
    /// the firmware's power meter]
    #[arg(long, value_name = "SENSOR", help_heading = "Policy")]
    pub(crate) sensor: Option<String>,

    /// Idle timeout after which the whole server sleeps in the kernel; or never; or policy: the policy decides [default: policy]
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

    /// Format of the log on standard error: text, or json with an object a line [default: text]
    #[arg(long, value_name = "FORMAT", help_heading = "Administration")]
    pub(crate) log_format: Option<String>,

    /// File of the secrets of hosts, which are authenticated (DH-HMAC-CHAP), or credential:NAME of systemd
    #[arg(long, value_name = "FILE", help_heading = "Access")]
    pub(crate) secrets_file: Option<String>,

    /// Handling of system calls that the server does not need: kill the server, log them, or off [default: kill]
    #[arg(long, value_name = "ACTION", help_heading = "Administration")]
    pub(crate) seccomp: Option<String>,

    /// User, by name or number, as which the server runs after its start, if root starts it [default: stays as it is]
    #[arg(long, value_name = "USER", help_heading = "Administration")]
    pub(crate) user: Option<String>,

    /// Group in place of the user's own; needs --user
    #[arg(long, value_name = "GROUP", help_heading = "Administration")]
    pub(crate) group: Option<String>,

    /// The helper process of a server that has given its privileges up; the server starts it
    #[arg(long, hide = true)]
    pub(crate) privileged_helper: bool,

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
