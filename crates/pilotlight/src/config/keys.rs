//! Every section and key of the configuration, defined once: type, flag, default, when a change applies, and meaning.
//!
//! From here follow the structs that the checks use (`Draft`), the reader, the hints about unknown keys, and docs/configuration-keys.md.
//! serde derives no reader for this: it stops at the first error, and all errors of a file are to be reported at once, with their places.

use std::path::PathBuf;

use super::problem::{Number, Origin, Text};
use super::schema::{Applies, Key, Schema};
use super::section::Section;

/// The Rust type of a kind of key; the kind is also the method of [`Section`] that reads it.
macro_rules! type_of {
    (text) => { Option<Text> };
    (plain) => { Option<Text> };
    (quantity) => { Option<Text> };
    (number) => { Option<Number> };
    (switch) => { bool };
    (texts) => { Vec<Text> };
    (cores) => { Vec<Number> };
}

/// A section: `key: kind, flag, default, when a change applies;` after the documentation of the key, then lists of tables.
macro_rules! section {
    ($(#[doc = $about:literal])+ $Name:ident $header:literal {
        $($(#[doc = $meaning:literal])+ $key:ident: $kind:ident, $flag:literal, $default:literal, $applies:ident;)*
        $(list $nested:ident: $Nested:ident;)*
    }) => {
        $(#[doc = $about])+
        #[derive(Debug, Default)]
        pub(crate) struct $Name {
            /// Where the section is.
            #[allow(dead_code, reason = "only errors about missing keys use it")]
            pub(crate) at: Origin,
            $($(#[doc = $meaning])+ pub(crate) $key: type_of!($kind),)*
            $(/// Tables of this list.
            pub(crate) $nested: Vec<$Nested>,)*
        }

        impl $Name {
            const SCHEMA: Schema = Schema {
                header: $header,
                about: concat!($($about),+),
                keys: &[$(Key {
                    name: stringify!($key),
                    kind: stringify!($kind),
                    flag: $flag,
                    default: $default,
                    applies: Applies::$applies,
                    meaning: concat!($($meaning),+),
                }),*],
                lists: &[$(stringify!($nested)),*],
            };

            fn read(section: &Section<'_>) -> Self {
                Self {
                    at: section.at(),
                    $($key: section.$kind(stringify!($key)),)*
                    $($nested: section.sections(stringify!($nested)).iter().map($Nested::read).collect(),)*
                }
            }
        }
    };
}

section! {
    /// Network, cores and power.
    Server "server" {
        /// Addresses to accept hosts on: one or a list.
        listen: texts, "--listen", "`127.0.0.1:4420`; none with one of the two below", Reload;
        /// Addresses to accept hosts with TLS on: one or a list. Hosts need a `tls_key` ([encrypt connections](operate/encrypt.md)).
        tls_listen: texts, "--tls-listen", "none", Reload;
        /// Addresses on which hosts authenticate and then use TLS with the key that this generates: one or a list. The discovery log has the
        /// address that the host has reached.
        concat_listen: texts, "--concat-listen", "none", Reload;
        /// Address or name, and port, that the discovery log gives to hosts.
        advertise: text, "--advertise", "the address that the host has reached", Reload;
        /// Ditto for `tls_listen`.
        tls_advertise: text, "", "the address that the host has reached", Reload;
        /// Cores to run on, one reactor each.
        cores: cores, "--cores", "the first allowed", Restart;
        /// Core on which the policy runs; it is the last to sleep.
        main_core: number, "--main-core", "the first of `cores`", Restart;
        /// For tests: number of reactors without cores of their own, 1 to 256; excludes `cores` and `main_core`.
        reactors: number, "--reactors", "", Restart;
        /// Number of I/O threads, 1 to 1024.
        io_threads: number, "--io-threads", "one per core", Restart;
        /// What is bound to an I/O thread: each I/O queue (`queue`), or each host with all its I/O queues (`host`): fewer cores for few hosts, but
        /// one core's throughput for each host.
        placement: text, "--placement", "`queue`", Restart;
        /// Idle timeout after which the whole server sleeps: `10us` to `1h`, `never`, or `policy`: the policy decides.
        sleep_after: text, "--sleep-after", "`policy`", Restart;
        /// Whether the policy may take cores that it does not use offline ([limit power](operate/limit-power.md#knobs)).
        hotplug: switch, "--hotplug", "`false`", Restart;
        /// Folder that keeps reservations over a restart where hosts ask for that, or `none`.
        reservations: text, "", "`$STATE_DIRECTORY/reservations`, else none", Restart;
        /// For tests of hosts and tools: show five NVMe power states, which save no power.
        power_states: switch, "--power-states", "`false`", Restart;
        /// Power sensor: `rapl`, `hwmon` (the firmware's power meter), `hwmon:CHIP` (a chip that measures the whole system), `none`, or `auto`:
        /// RAPL, else the firmware's power meter. `modelled` computes the power of the CPU packages from CPU time and the power profile of
        /// SANDMAN's machine, or of `modelled:PROFILE.toml`; all output says that nothing is measured.
        sensor: text, "--sensor", "`auto`", Restart;
        /// Divides energy among hosts and namespaces once a second, by the CPU time of their requests ([watch](operate/watch.md#energy-shares)).
        /// The value selects how idle energy is divided: not at all (`unassigned`), equally (`equal`), or in proportion (`proportional`).
        /// Needs a sensor.
        energy_shares: text, "--energy-shares", "`off`", Restart;
    }
}

section! {
    /// The policy. All other keys are parameters of the policy (`--policy-set`): [configuration.md](configuration.md#policy).
    Policy "policy" {
        /// Name of the policy; `pilotlight set policy --help` lists them.
        name: text, "--policy", "`sandman`", Reload;
    }
}

section! {
    /// Goals of the policy ([limit power](operate/limit-power.md)).
    Goals "goals" {
        /// Power budget, `1W` to `1000kW`, or `off`.
        budget: plain, "--budget", "`off`", Reload;
        /// Domain of the budget: `server`, or `cpu` for the CPU packages. Parameter `domain` of the policy has precedence.
        domain: text, "--budget-domain", "`server` if the sensor measures it, else `cpu`", Reload;
        /// Limit of all budgets from the start until the first `set budget POWER until DEADLINE then POWER`
        /// ([limit power](operate/limit-power.md#deadline)): `1W` to `1000kW`.
        floor: text, "", "none: budgets with a deadline are refused", Restart;
        /// File of budgets by time, which replace `budget` ([limit power](operate/limit-power.md#schedule)).
        schedule: text, "--budget-schedule", "", Reload;
        /// Profile of this machine, by which `pass` holds the budget ([limit power](operate/limit-power.md#policy)).
        profile: text, "--budget-profile", "", Restart;
        /// Whether limits of the CPU packages stay when the server is killed, until the next one starts ([limit power](operate/limit-power.md#after-a-crash)).
        keep_limits: switch, "--keep-limits", "`false`", Restart;
        /// Latency bound: relative to no saving (`0.2` or `20%`, at most 10) or absolute (`500us`), of the mean or of a percentile
        /// (`500us p99`, `0.2 p50`); or `off`.
        tolerance: plain, "--tolerance", "`off`", Reload;
    }
}

section! {
    /// Resource limits.
    Limits "limits" {
        /// Memory for buffers, queues and blocks; at least 2 MiB.
        max_memory: quantity, "--max-memory", "three quarters of the memory of the machine, or of its container", Restart;
        /// Part of it for data in flight; at least 1 MiB per I/O thread.
        buffer_memory: quantity, "", "64 MiB per I/O thread", Restart;
        /// Part of it for the state of queues; at least 1 MiB.
        queue_memory: quantity, "", "an eighth of `max_memory`, at most 1 GiB", Restart;
        /// Connections at once, 1 to 1000000. Where any host has a secret or a TLS key, queues of hosts without take three eighths at most.
        max_connections: number, "", "16384", Restart;
        /// Queues of one host in one subsystem at once, admin queues included, 2 to 1000000.
        max_host_queues: number, "", "2048", Restart;
        /// Part of `queue_memory` for the queues of one host NQN.
        max_host_memory: quantity, "", "three quarters of `queue_memory`", Restart;
        /// Admin commands of one host NQN per second, 1 to 1000000; more wait. Keep Alive, Abort and event requests do not count.
        admin_rate: number, "", "1000", Restart;
        /// Connections at once before Connect and authentication have succeeded, 1 to 1000000, and three eighths of `max_connections`.
        max_pending: number, "", "6144", Restart;
        /// Those of one address (IPv6: one /64, and twice as many of a /48), and a quarter of what is free.
        max_address_pending: number, "", "1024", Restart;
        /// I/O queues of one controller, 1 to 128.
        max_io_queues: number, "", "128", Restart;
        /// Entries of one queue, 2 to 1024.
        max_queue_depth: number, "", "1024", Restart;
        /// Time until a new connection has to send its first PDU, `1ms` to `1h`.
        icreq_timeout: quantity, "", "`5s`", Restart;
        /// Time for requests in flight and the flush at the end, `1ms` to `1h`.
        drain_timeout: quantity, "--drain-timeout", "`10s`", Restart;
    }
}

section! {
    /// The control socket ([watch](operate/watch.md)).
    Admin "admin" {
        /// Path of the control socket, or `none`; a relative path starts at the file's directory. `PILOTLIGHT_SOCKET` in the environment
        /// changes the default. If the default path cannot be used, the server starts without a control socket.
        socket: text, "--admin-socket", "`$XDG_RUNTIME_DIR/pilotlight.sock`; for root `/run/pilotlight/pilotlight.sock`", Restart;
        /// Group whose members may read over the control socket ([watch](operate/watch.md#control-socket)).
        read_group: text, "--admin-read-group", "none", Restart;
        /// State file, which keeps goals set with `pilotlight set` over a restart, or `none` ([limit power](operate/limit-power.md#after-a-restart)).
        state: text, "--state", "`$STATE_DIRECTORY/goals.json`, else none", Restart;
    }
}

section! {
    /// Metrics for Prometheus ([metrics-server.md](metrics-server.md)).
    Metrics "metrics" {
        /// Address of the metrics over HTTP: a port of 127.0.0.1 such as `9808`, an address and a port, or `none`. Port 0 selects a free port,
        /// which is logged. There is no encryption and no authentication: an address that is not loopback gets a warning.
        listen: text, "--metrics", "none", Restart;
    }
}

section! {
    /// The log on standard error.
    Log "log" {
        /// `text`, or `json`: one object per line ([log messages](operate/troubleshoot.md#log-messages)).
        format: text, "--log-format", "`text`", Reload;
    }
}

section! {
    /// Authentication of hosts, and protection of the server's process ([security](security.md)).
    Security "security" {
        /// File of the secrets of hosts, or `credential:NAME` for a credential of systemd ([authenticate hosts](operate/authenticate.md)). A host with
        /// a secret is served only after authentication (DH-HMAC-CHAP); connections are kept when secrets change.
        secrets_file: text, "--secrets-file", "none", Reload;
        /// Whether hosts with a secret must also authenticate the controller.
        mutual: switch, "", "`false`", Reload;
        /// Whether hosts with a secret also authenticate themselves to the discovery service.
        authenticate_discovery: switch, "", "`false`", Reload;
        /// Allowed hash functions, the preferred first: `sha256`, `sha384`, `sha512`.
        hashes: texts, "", "all", Reload;
        /// Allowed Diffie-Hellman groups, the preferred first: `null` (none), `ffdhe2048`, `ffdhe3072`, `ffdhe4096`, `ffdhe6144`, `ffdhe8192`.
        dh_groups: texts, "", "`ffdhe2048` to `ffdhe4096`", Reload;
        /// Whether a host with a `tls_key` may also connect without TLS, while hosts are changed over.
        allow_plain: switch, "", "`false`", Reload;
        /// Whether TLS keys are accepted as libnvme before 1.16 derives them, against the specification.
        accept_old_libnvme: switch, "", "`false`", Reload;
        /// Whether the kernel encrypts after the TLS handshake, where it can.
        kernel_tls: switch, "", "`false`", Restart;
        /// Handling of system calls that the server does not need: `kill` ends the server, `log` has the kernel log them (for finding the
        /// reason of a kill), `off` installs no seccomp filter.
        seccomp: text, "--seccomp", "`kill`", Restart;
        /// User, by name or number, as which a server that root starts runs after its start ([privileges](operate/privileges.md)). Ignored
        /// by a server that runs as this user already.
        user: text, "--user", "stays as it is", Restart;
        /// Group in place of the user's own, by name or number. Supplementary groups are removed.
        group: text, "--group", "that of `user`", Restart;
    }
}

section! {
    /// The discovery service.
    Discovery "discovery" {
        /// Whether it is announced by multicast DNS (`_nvme-disc._tcp`).
        mdns: switch, "--mdns", "`false`", Reload;
        /// Port of one more listener beside each address: hosts ask for the discovery service on 8009 by default. It serves subsystems too.
        port: number, "", "none", Reload;
        list referral: Referral;
    }
}

section! {
    /// Another discovery service.
    Referral "discovery.referral" {
        /// Address or name, and port (default 8009).
        address: text, "", "required", Reload;
    }
}

section! {
    /// The live page for browsers.
    Page "page" {
        /// Address: a port of 127.0.0.1 such as `9809`, an address and a port, `unix:PATH` for a socket of the server's user, or `none`. Port 0
        /// selects a free port, which is logged. There is no encryption: an address that is not loopback gets a warning.
        listen: text, "--page", "none", Restart;
        /// Accepted host names, in addition to `localhost` and addresses; behind a proxy the name of the proxy.
        hosts: texts, "", "none", Restart;
        /// File with the token for logging in: 32 to 256 characters, readable by the server's user only. By default the server writes a new
        /// token at each start.
        token_file: text, "--page-token-file", "the path of the control socket, with the extension `.page-token`", Restart;
    }
}

section! {
    /// A subsystem.
    Subsystem "subsystem" {
        /// NQN of the subsystem.
        nqn: text, "--nqn", "required in a file", Reload;
        /// Serial number, at most 20 printable ASCII characters.
        serial: text, "", "derived from the NQN", Restart;
        /// NQNs of the hosts that may connect.
        allowed_hosts: texts, "--allow-host", "any host", Reload;
        /// Addresses of `listen`, `tls_listen` and `concat_listen` of `[server]` on which it is offered: hosts find and reach it on these alone.
        listen: texts, "", "all addresses", Reload;
        /// Lowest and highest identifier of its controllers, from 1 to 65519, such as `1-1000`: two servers that share a subsystem need different ranges.
        /// Connect fails with Controller Busy once all are in use.
        controller_ids: text, "", "identifiers of no other subsystem", Restart;
        list namespace: Namespace;
    }
}

section! {
    /// A namespace of a subsystem.
    Namespace "subsystem.namespace" {
        /// NSID, 1 to 1024.
        nsid: number, "", "required in a file; for `--namespace` the position", Reload;
        /// Storage ([configuration.md](configuration.md#namespaces)). Its size changes at SIGHUP, other storage needs a restart.
        backend: text, "--namespace", "required in a file", Reload;
        /// Bytes per block: 512 or 4096.
        block_size: number, "--block-size", "for `file:` the medium's sector, else 4096", Restart;
        /// UUID of the namespace.
        uuid: text, "", "derived from NQN and NSID", Restart;
        /// NQNs of the hosts that see it.
        hosts: texts, "", "all allowed hosts", Reload;
        /// Its ANA group, 1 to 32: a `[[path]]` can have a state for each group.
        ana_group: number, "", "1", Restart;
        /// Whether SIGHUP may shrink it; data beyond the new end is lost.
        shrink: switch, "", "`false`", Reload;
        /// Bandwidth cap, `1MB/s` to `1TB/s` ([change](operate/change.md#bandwidth-caps)).
        max_bytes_per_s: text, "", "`off`", Reload;
        /// Priority, 0 (the lowest) to 255 ([limit power](operate/limit-power.md#priorities)).
        priority: number, "", "none", Reload;
        /// Latency bound of requests to this namespace, as `tolerance` of `[goals]`.
        tolerance: plain, "", "`off`", Reload;
        /// Whether its blocks have checksums, in a file next to its own ([background.md](background.md)).
        checksums: switch, "", "`false`", Restart;
        /// File of the checksums; required for a block device.
        checksums_file: text, "", "", Restart;
        /// When freed ranges are trimmed: `now` or `background`.
        trim: text, "", "`now`", Restart;
    }
}

section! {
    /// The state of paths by an address (asymmetric namespace access, ANA). Of several that match the last one holds.
    Path "path" {
        /// Address of `listen`, `tls_listen` or `concat_listen` of `[server]`.
        address: text, "", "required", Reload;
        /// `optimized`, `non-optimized` (hosts use it when no path is optimized), `inaccessible`, `persistent-loss` or `change`.
        state: text, "", "required", Reload;
        /// ANA group of namespaces.
        group: number, "", "all groups", Reload;
    }
}

section! {
    /// A host.
    Host "host" {
        /// NQN of the host; `allowed_hosts` controls access.
        nqn: text, "", "required", Reload;
        /// Bandwidth cap over all namespaces, `1MB/s` to `1TB/s`.
        max_bytes_per_s: text, "", "`off`", Reload;
        /// Priority, 0 (the lowest) to 255.
        priority: number, "", "none", Reload;
    }
}

section! {
    /// A class of priority.
    Class "class" {
        /// The priority.
        priority: number, "", "required", Reload;
        /// Bandwidth that each namespace and each host of this priority keeps under a budget, `1MB/s` to `1TB/s`.
        min_bytes_per_s: text, "", "`off`", Reload;
    }
}

section! {
    /// Background work ([background.md](background.md)).
    Background "background" {
        /// Namespaces to scrub: `off`, `checked` (those with checksums), `all`.
        scrub: text, "", "`checked`", Restart;
        /// Maximum rate of scrubbing of a namespace, `1MB/s` to `1TB/s`.
        scrub_rate: text, "", "`100MB/s`", Restart;
        /// Days from the start of a pass to the next; a pass is finished by then.
        scrub_days: number, "", "30", Restart;
        /// Maximum rate of trimming of a namespace.
        trim_rate: text, "", "`1GB/s`", Restart;
    }
}

/// All sections, in the order of the reference.
pub(crate) static SCHEMAS: [Schema; 17] = [
    Server::SCHEMA,
    Policy::SCHEMA,
    Goals::SCHEMA,
    Limits::SCHEMA,
    Admin::SCHEMA,
    Metrics::SCHEMA,
    Log::SCHEMA,
    Security::SCHEMA,
    Discovery::SCHEMA,
    Referral::SCHEMA,
    Page::SCHEMA,
    Subsystem::SCHEMA,
    Namespace::SCHEMA,
    Host::SCHEMA,
    Class::SCHEMA,
    Path::SCHEMA,
    Background::SCHEMA,
];

/// A configuration as it was written, from flags or from a file, before it is checked. `None` and empty values have their defaults.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) server: Server,
    pub(crate) policy: Policy,
    /// Parameters of the policy and their values, in the order in which they were written.
    pub(crate) parameters: Vec<(Text, Text)>,
    pub(crate) goals: Goals,
    pub(crate) limits: Limits,
    pub(crate) admin: Admin,
    pub(crate) metrics: Metrics,
    pub(crate) log: Log,
    pub(crate) security: Security,
    pub(crate) discovery: Discovery,
    pub(crate) page: Page,
    pub(crate) subsystems: Vec<Subsystem>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) classes: Vec<Class>,
    pub(crate) paths: Vec<Path>,
    pub(crate) background: Background,
    /// Only on the command line: root of the kernel's files, and milliseconds between two samples of the page.
    pub(crate) roots: Option<PathBuf>,
    pub(crate) page_tick_ms: Option<u64>,
}

impl Draft {
    /// Reads the root table of a file.
    pub(crate) fn read(root: &Section<'_>) -> Self {
        let policy = root.section("policy");
        Self {
            server: root.section("server").as_ref().map(Server::read).unwrap_or_default(),
            parameters: policy.as_ref().map(Section::others).unwrap_or_default(),
            policy: policy.as_ref().map(Policy::read).unwrap_or_default(),
            goals: root.section("goals").as_ref().map(Goals::read).unwrap_or_default(),
            limits: root.section("limits").as_ref().map(Limits::read).unwrap_or_default(),
            admin: root.section("admin").as_ref().map(Admin::read).unwrap_or_default(),
            metrics: root.section("metrics").as_ref().map(Metrics::read).unwrap_or_default(),
            log: root.section("log").as_ref().map(Log::read).unwrap_or_default(),
            security: root.section("security").as_ref().map(Security::read).unwrap_or_default(),
            discovery: root.section("discovery").as_ref().map(Discovery::read).unwrap_or_default(),
            page: root.section("page").as_ref().map(Page::read).unwrap_or_default(),
            subsystems: root.sections("subsystem").iter().map(Subsystem::read).collect(),
            hosts: root.sections("host").iter().map(Host::read).collect(),
            classes: root.sections("class").iter().map(Class::read).collect(),
            paths: root.sections("path").iter().map(Path::read).collect(),
            background: root.section("background").as_ref().map(Background::read).unwrap_or_default(),
            ..Self::default()
        }
    }
}
