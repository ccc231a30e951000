//! All options, as flags and in a file, with the same result.

use expect_test::expect;
use pilotlight_auth::{Group, HashFunction, Policy};
use pilotlight_nvme::ana::AnaState;
use pilotlight_nvmf_target::Capped;
use pilotlight_nvmf_target::config::{Limits, NamespaceConfig, PathRule, QueuePlacement, SubsystemConfig};
use pilotlight_nvmf_target::hosts::authentication::{AuthenticationConfig, HostSecrets};
use pilotlight_plant::Tolerance;
use pilotlight_storage::BackendSpec;
use pilotlight_storage::background::control::{BackgroundConfig, Scrubbed};

use super::*;
use crate::config::tolerance::parse_tolerance;

#[test]
fn without_arguments_one_subsystem_with_a_gibibyte_of_memory() {
    let loaded = flags(&[]).unwrap();
    assert_eq!(loaded.warnings(false), "");
    let config = loaded.config;
    assert_eq!(config.listeners, ["127.0.0.1:4420".parse().unwrap()]);
    assert_eq!((config.cores.as_slice(), config.main_core, config.io_threads), (&[0][..], 0, 1));
    let [subsystem] = config.subsystems.as_slice() else { panic!("{:?}", config.subsystems) };
    nqn::check(&subsystem.nqn).unwrap();
    assert_eq!(subsystem.allowed_hosts, [""; 0]);
    let memory = NamespaceConfig::new(1, "mem:1GiB".parse().unwrap(), 4096);
    assert_eq!(subsystem.namespaces, [memory]);
}

#[test]
fn flags_say_everything_that_they_can() {
    let config = flags(&[
        "--listen=0.0.0.0:4420",
        "--listen=[::1]:4421",
        "--tls-listen=[::1]:4422",
        "--advertise=nvme.example.com:4420",
        "--namespace=mem:1GiB",
        "--namespace=null:2GiB",
        "--block-size=512",
        "--nqn=nqn.2024-05.com.example:disks",
        "--allow-host=nqn.2024-05.com.example:host",
        "--cores=0-1,6",
        "--main-core=6",
        "--io-threads=4",
        "--max-memory=2GiB",
        "--drain-timeout=500ms",
        "--power-states",
    ])
    .unwrap()
    .config;
    let namespace = |nsid, backend: &str| NamespaceConfig::new(nsid, backend.parse().unwrap(), 512);
    let expected = ServerConfig {
        named_hosts: Vec::new(),
        authentication: AuthenticationConfig::default(),
        listeners: vec!["0.0.0.0:4420".parse().unwrap(), "[::1]:4421".parse().unwrap()],
        tls_listeners: vec!["[::1]:4422".parse().unwrap()],
        concatenation_listeners: Vec::new(),
        advertise: Some(("nvme.example.com".to_owned(), 4420)),
        tls_advertise: None,
        kernel_tls: false,
        discovery_port: None,
        referrals: Vec::new(),
        paths: Vec::new(),
        subsystems: vec![SubsystemConfig {
            allowed_hosts: vec!["nqn.2024-05.com.example:host".to_owned()],
            ..SubsystemConfig::new(
                "nqn.2024-05.com.example:disks",
                vec![namespace(1, "mem:1GiB"), namespace(2, "null:2GiB")],
            )
        }],
        cores: vec![0, 1, 6],
        main_core: 6,
        io_threads: 4,
        placement: QueuePlacement::Queue,
        limits: Limits {
            max_memory: 2 << 30,
            buffer_memory: 256 << 20,
            max_host_memory: 192 << 20,
            drain_timeout: std::time::Duration::from_millis(500),
            ..Limits::default()
        },
        background: BackgroundConfig::default(),
        power_states: true,
    };
    assert_eq!(config, expected);
}

/// A file with every key, as docs/configuration.md shows it.
const EVERY_KEY: &str = r#"
[server]
listen = ["192.0.2.7:4420", "[2001:db8::7]:4420"]
tls_listen = "192.0.2.7:4421"
concat_listen = "192.0.2.7:4423"
advertise = "nvme.example.com:4420"
tls_advertise = "nvme.example.com:4421"
cores = "0-3"
main_core = 1
io_threads = 8
placement = "host"
sleep_after = "5ms"
hotplug = true
sensor = "auto"
energy_shares = "unassigned"
reservations = "/var/lib/pilotlight/reservations"
power_states = true                              # only for tests

[policy]
name = "sandman"
window = 64

[goals]
budget = "300W"
domain = "server"
floor = "120W"
schedule = "budgets.txt"
profile = "machine.toml"
keep_limits = true
tolerance = 0.2

[admin]
socket = "/run/pilotlight/disks.sock"
read_group = "root"
state = "/var/lib/pilotlight/disks.json"

[metrics]
listen = "9808"

[discovery]
mdns = true
port = 8009

[[discovery.referral]]
address = "192.0.2.8:8009"

[log]
format = "json"

[security]
secrets_file = "secrets"
mutual = true
authenticate_discovery = true
hashes = ["sha384", "sha512"]
dh_groups = ["ffdhe3072", "ffdhe4096"]
allow_plain = true
accept_old_libnvme = true
kernel_tls = true
seccomp = "log"
user = "nobody"
group = "nogroup"

[page]
listen = "9809"
hosts = ["storage1.example.com"]
token_file = "page-token"

[limits]
max_memory = "4GiB"
buffer_memory = "512MiB"
queue_memory = "256MiB"
max_connections = 1000
max_host_queues = 300
max_host_memory = "64MiB"
admin_rate = 500
max_pending = 2000
max_address_pending = 200
max_io_queues = 64
max_queue_depth = 256
icreq_timeout = "2s"
drain_timeout = "30s"

[background]
scrub = "all"
scrub_rate = "50MB/s"
scrub_days = 14
trim_rate = "500MB/s"

[[subsystem]]
nqn = "nqn.2024-05.com.example:disks"
serial = "PL0001"
allowed_hosts = ["nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6"]
listen = ["192.0.2.7:4420"]
controller_ids = "1-1000"

[[subsystem.namespace]]
nsid = 1
backend = "file:disk.img"
hosts = ["nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6"]
block_size = 512
uuid = "2f7c9c1e-6a55-4d6e-9a0f-3f0a2f1b7f10"

[[subsystem.namespace]]
nsid = 7
backend = "mem:1GiB"
shrink = false
ana_group = 2
max_bytes_per_s = "100MB/s"
priority = 5
tolerance = "500us p99"

[[subsystem.namespace]]
nsid = 9
backend = "file:archive.img?size=10GiB"
checksums = true
checksums_file = "archive.sums"
trim = "background"

[[path]]
address = "[2001:db8::7]:4420"
state = "non-optimized"
group = 2

[[host]]
nqn = "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
max_bytes_per_s = "500MB/s"
priority = 9

[[class]]
priority = 5
min_bytes_per_s = "50MB/s"
"#;

#[test]
fn a_namespace_may_shrink_where_the_file_says_so() {
    let config_dir = ConfigDir::new();
    let loaded = config_dir.load(&EVERY_KEY.replace("shrink = false", "shrink = true")).unwrap();
    assert_eq!(loaded.may_shrink, [("nqn.2024-05.com.example:disks".to_owned(), 7)]);
}

#[test]
fn a_file_says_everything() {
    let config_dir = ConfigDir::new();
    let loaded = config_dir.load(EVERY_KEY).unwrap();
    let warnings = loaded.warnings(false);
    assert_eq!(warnings.matches("warning: ").count(), 1, "{warnings}");
    assert!(warnings.contains("policy sandman does not use a tolerance"), "{warnings}");
    assert!(loaded.operation.profile.is_some_and(|text| text.contains("pass-xeon-gold-6430")));
    assert_eq!(
        (loaded.operation.goals.budget_uw, loaded.operation.goals.tolerances.as_slice()),
        (Some(300_000_000), &[Tolerance::mean_loss(200_000)][..])
    );
    let host = "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6".to_owned();
    let namespace = Capped::Namespace { nqn: "nqn.2024-05.com.example:disks".to_owned(), nsid: 7 };
    let host = Capped::Host { nqn: host };
    assert_eq!(loaded.operation.caps, [(namespace.clone(), 100_000_000), (host.clone(), 500_000_000)]);
    let bound = parse_tolerance("500us p99").unwrap().unwrap();
    assert_eq!(loaded.operation.tolerances, [(namespace.clone(), bound)]);
    assert_eq!(loaded.operation.priorities, [(namespace, 5), (host, 9)]);
    assert_eq!(loaded.operation.goals.minimums, [(5, 50_000_000)]);
    assert_eq!(loaded.may_shrink, []);
    assert!(loaded.operation.mdns);
    assert_eq!(loaded.config, server_of_every_key(config_dir.dir.path()));
}

/// The server of [`EVERY_KEY`] in this directory.
fn server_of_every_key(dir: &Path) -> ServerConfig {
    let uuid = *b"\x2f\x7c\x9c\x1e\x6a\x55\x4d\x6e\x9a\x0f\x3f\x0a\x2f\x1b\x7f\x10";
    let disk = BackendSpec::File { path: dir.join("disk.img"), size: None };
    let archive =
        format!("checked={0}/archive.sums,trim:file:{0}/archive.img?size=10GiB", dir.display()).parse().unwrap();
    let secrets = HostSecrets { host: secret(1), controller: Some(secret(2)) };
    let policy = Policy {
        hashes: vec![HashFunction::Sha384, HashFunction::Sha512],
        groups: vec![Group::Ffdhe3072, Group::Ffdhe4096],
        require_bidirectional: true,
        ..Policy::default()
    };
    let hosts = [(AUTHENTICATED.to_owned(), secrets)].into();
    ServerConfig {
        named_hosts: Vec::new(),
        authentication: AuthenticationConfig {
            hosts,
            policy,
            for_discovery: true,
            tls_keys: [(AUTHENTICATED.to_owned(), tls_key())].into(),
            allows_plain: true,
            accepts_old_libnvme: true,
        },
        listeners: vec!["192.0.2.7:4420".parse().unwrap(), "[2001:db8::7]:4420".parse().unwrap()],
        tls_listeners: vec!["192.0.2.7:4421".parse().unwrap()],
        concatenation_listeners: vec!["192.0.2.7:4423".parse().unwrap()],
        advertise: Some(("nvme.example.com".to_owned(), 4420)),
        tls_advertise: Some(("nvme.example.com".to_owned(), 4421)),
        kernel_tls: true,
        discovery_port: Some(8009),
        referrals: vec![("192.0.2.8".to_owned(), 8009)],
        paths: vec![PathRule {
            address: "[2001:db8::7]:4420".parse().unwrap(),
            group: Some(2),
            state: AnaState::NonOptimized,
        }],
        subsystems: vec![SubsystemConfig {
            nqn: "nqn.2024-05.com.example:disks".to_owned(),
            serial: Some("PL0001".to_owned()),
            allowed_hosts: vec!["nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6".to_owned()],
            listen: vec!["192.0.2.7:4420".parse().unwrap()],
            controller_ids: Some(pilotlight_nvmf_target::config::ControllerIds { first: 1, last: 1000 }),
            namespaces: vec![
                NamespaceConfig {
                    nsid: 1,
                    backend: disk,
                    block_size: 512,
                    uuid: Some(uuid),
                    hosts: vec!["nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6".to_owned()],
                    ana_group: 1,
                },
                NamespaceConfig { ana_group: 2, ..NamespaceConfig::new(7, "mem:1GiB".parse().unwrap(), 4096) },
                NamespaceConfig::new(9, archive, 4096),
            ],
        }],
        cores: vec![0, 1, 2, 3],
        main_core: 1,
        io_threads: 8,
        placement: QueuePlacement::Host,
        limits: Limits {
            max_memory: 4 << 30,
            buffer_memory: 512 << 20,
            queue_memory: 256 << 20,
            max_connections: 1000,
            max_host_queues: 300,
            max_host_memory: 64 << 20,
            admin_rate: 500,
            max_pending: 2000,
            max_address_pending: 200,
            max_io_queues: 64,
            max_queue_depth: 256,
            icreq_timeout: std::time::Duration::from_secs(2),
            drain_timeout: std::time::Duration::from_secs(30),
        },
        background: BackgroundConfig {
            scrub: Scrubbed::All,
            scrub_bytes_per_s: 50_000_000,
            scrub_days: 14,
            trim_bytes_per_s: 500_000_000,
        },
        power_states: true,
    }
}

#[test]
fn only_files_with_blocks_of_4_kib_have_background_work() {
    let config_dir = ConfigDir::new();
    let refused = |from: &str, to: &str| config_dir.load(&EVERY_KEY.replace(from, to)).unwrap_err().render(false);
    let small = refused("nsid = 9\n", "nsid = 9\nblock_size = 512\n");
    assert!(small.contains("need blocks of 4096 bytes"), "{small}");
    let memory = refused("backend = \"mem:1GiB\"\n", "backend = \"mem:1GiB\"\nchecksums = true\n");
    assert!(memory.contains("only a file or block device"), "{memory}");
    for (from, to) in [
        ("scrub = \"all\"", "scrub = \"some\""),
        ("trim = \"background\"", "trim = \"later\""),
        ("scrub_rate = \"50MB/s\"", "scrub_rate = \"off\""),
        ("scrub_days = 14", "scrub_days = 0"),
    ] {
        let output = refused(from, to);
        assert_eq!(output.matches("error: ").count(), 1, "{output}");
    }
}

#[test]
fn the_example_has_every_key() {
    let page = include_str!("../../../../../docs/configuration.md");
    assert!(page.contains(EVERY_KEY.trim()), "docs/configuration.md does not show the example of this test");
    for schema in &keys::SCHEMAS {
        for key in schema.keys.iter().filter(|key| key.name != "reactors") {
            // excluded by `cores`
            assert!(EVERY_KEY.contains(&format!("\n{} = ", key.name)), "{} {} is missing", schema.header, key.name);
        }
    }
}

#[test]
fn flags_and_file_lead_to_the_same_configuration() {
    let line = ["--nqn=nqn.2024-05.com.example:a", "--namespace=mem:1GiB", "--cores=0,1", "--max-memory=2GiB"];
    let text = r#"
        server = { cores = [0, 1] }
        limits = { max_memory = "2GiB" }
        subsystem = [{ nqn = "nqn.2024-05.com.example:a", namespace = [{ nsid = 1, backend = "mem:1GiB" }] }]
    "#;
    assert_eq!(flags(&line).unwrap().config, ConfigDir::new().load(text).unwrap().config);
}

#[test]
fn flags_beside_a_file_are_refused_with_what_to_write_instead() {
    refused_flags(
        &["--config=a.toml", "--listen=127.0.0.1:1", "--namespace=mem:1GiB", "--max-memory=1GiB"],
        expect![[r#"
            error: --listen: cannot be used together with --config
              = write `listen` in [server], in a.toml
            error: --max-memory: cannot be used together with --config
              = write `max_memory` in [limits], in a.toml
            error: --namespace: cannot be used together with --config
              = write `backend` in [[subsystem.namespace]], in a.toml
        "#]],
    );
}

#[test]
fn every_flag_with_a_key_conflicts_with_a_file() {
    let line = [
        "--config=a.toml",
        "--listen=1",
        "--advertise=1",
        "--namespace=1",
        "--block-size=1",
        "--nqn=1",
        "--allow-host=1",
        "--cores=1",
        "--main-core=1",
        "--io-threads=1",
        "--max-memory=1",
        "--drain-timeout=1",
        "--reactors=1",
        "--policy=1",
        "--policy-set=1",
        "--budget-profile=1",
        "--sleep-after=1",
        "--admin-socket=1",
    ];
    assert_eq!(flags(&line).unwrap_err().problems.len(), line.len() - 1);
}
