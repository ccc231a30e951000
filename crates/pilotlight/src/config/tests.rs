//! Every kind of mistake, with the exact words that the user reads. `UPDATE_EXPECT=1 cargo test` writes them anew.

use std::fs;
use std::path::Path;

use clap::Parser as _;
use expect_test::{Expect, expect};
use pilotlight_target::backend::BackendSpec;
use pilotlight_target::config::{Limits, NamespaceConfig, SubsystemConfig};

use super::*;
use crate::cli::{Cli, Command};

/// A small machine, the same for every test.
fn machine() -> Machine {
    Machine {
        cores: vec![0, 1, 2, 3, 6],
        siblings: vec![vec![0, 2], vec![1, 3], vec![6, 7]],
        memory: 8 << 30,
        id: "0123456789abcdef0123456789abcdef".to_owned(),
        socket: Some("/run/pilotlight/pilotlight.sock".into()),
    }
}

/// A directory with a file for the configuration and one for data.
pub(super) struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::File::create(dir.path().join("disk.img")).unwrap().set_len(1 << 20).unwrap();
        Self { dir }
    }

    pub(super) fn load(&self, text: &str) -> Result<Loaded, Refused> {
        let path = self.dir.path().join("server.toml");
        fs::write(&path, text).unwrap();
        load(&ServeArgs { config: Some(path), ..ServeArgs::default() }, &machine())
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// What the user reads, with the directory's name, which differs from run to run, cut.
    pub(super) fn told(&self, text: &str) -> String {
        self.cut(&match self.load(text) {
            Ok(loaded) => loaded.warnings(false),
            Err(refused) => refused.render(false),
        })
    }

    fn cut(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.dir.path().display()), "")
    }
}

fn args(line: &[&str]) -> ServeArgs {
    let cli = Cli::try_parse_from(["pilotlight", "serve"].iter().chain(line)).unwrap();
    let Command::Serve(args) = cli.command else { panic!("not serve") };
    args
}

pub(super) fn flags(line: &[&str]) -> Result<Loaded, Refused> {
    load(&args(line), &machine())
}

#[expect(clippy::needless_pass_by_value, reason = "an `expect!` stands in the call")]
fn refused(text: &str, words: Expect) {
    let bench = Bench::new();
    assert!(bench.load(text).is_err(), "not refused: {text}");
    words.assert_eq(&bench.told(text));
}

#[expect(clippy::needless_pass_by_value, reason = "an `expect!` stands in the call")]
fn refused_flags(line: &[&str], words: Expect) {
    words.assert_eq(&flags(line).unwrap_err().render(false));
}

#[test]
fn without_arguments_one_subsystem_with_a_gibibyte_of_memory() {
    let loaded = flags(&[]).unwrap();
    assert_eq!(loaded.warnings(false), "");
    let config = loaded.config;
    assert_eq!(config.listeners, ["127.0.0.1:4420".parse().unwrap()]);
    assert_eq!((config.cores.as_slice(), config.main_core, config.io_threads), (&[0][..], 0, 1));
    let [subsystem] = config.subsystems.as_slice() else { panic!("{:?}", config.subsystems) };
    assert_eq!(nqn::check(&subsystem.nqn), Ok(()));
    assert_eq!(subsystem.allowed_hosts, [""; 0]);
    let memory = NamespaceConfig { nsid: 1, backend: "mem:1GiB".parse().unwrap(), block_size: 4096, uuid: None };
    assert_eq!(subsystem.namespaces, [memory]);
}

#[test]
fn flags_say_everything_that_they_can() {
    let config = flags(&[
        "--listen=0.0.0.0:4420",
        "--listen=[::1]:4421",
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
    let namespace =
        |nsid, backend: &str| NamespaceConfig { nsid, backend: backend.parse().unwrap(), block_size: 512, uuid: None };
    let expected = ServerConfig {
        listeners: vec!["0.0.0.0:4420".parse().unwrap(), "[::1]:4421".parse().unwrap()],
        advertise: Some(("nvme.example.com".to_owned(), 4420)),
        subsystems: vec![SubsystemConfig {
            nqn: "nqn.2024-05.com.example:disks".to_owned(),
            serial: None,
            allowed_hosts: vec!["nqn.2024-05.com.example:host".to_owned()],
            namespaces: vec![namespace(1, "mem:1GiB"), namespace(2, "null:2GiB")],
        }],
        cores: vec![0, 1, 6],
        main_core: 6,
        io_threads: 4,
        limits: Limits {
            max_memory: 2 << 30,
            buffer_memory: 256 << 20,
            drain_timeout: std::time::Duration::from_millis(500),
            ..Limits::default()
        },
        power_states: true,
    };
    assert_eq!(config, expected);
}

/// A file with every key; the reference in docs/configuration.md shows the same one.
const EVERY_KEY: &str = r#"
[server]
listen = ["192.0.2.7:4420", "[2001:db8::7]:4420"]
advertise = "nvme.example.com:4420"
cores = "0-3"
main_core = 1
io_threads = 8
sleep_after = "5ms"
power_states = true

[policy]
name = "sandman"
window = 64

[admin]
socket = "/run/pilotlight/disks.sock"

[limits]
max_memory = "4GiB"
buffer_memory = "512MiB"
max_connections = 1000
max_io_queues = 64
max_queue_depth = 256
icreq_timeout = "2s"
drain_timeout = "30s"

[[subsystem]]
nqn = "nqn.2024-05.com.example:disks"
serial = "PL0001"
allowed_hosts = ["nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6"]

[[subsystem.namespace]]
nsid = 1
backend = "file:disk.img"
block_size = 512
uuid = "2f7c9c1e-6a55-4d6e-9a0f-3f0a2f1b7f10"

[[subsystem.namespace]]
nsid = 7
backend = "mem:1GiB"
"#;

#[test]
fn a_file_says_everything() {
    let bench = Bench::new();
    let loaded = bench.load(EVERY_KEY).unwrap();
    assert_eq!(loaded.warnings(false), "");
    let uuid = *b"\x2f\x7c\x9c\x1e\x6a\x55\x4d\x6e\x9a\x0f\x3f\x0a\x2f\x1b\x7f\x10";
    let disk = BackendSpec::File { path: bench.dir.path().join("disk.img"), size: None };
    let expected = ServerConfig {
        listeners: vec!["192.0.2.7:4420".parse().unwrap(), "[2001:db8::7]:4420".parse().unwrap()],
        advertise: Some(("nvme.example.com".to_owned(), 4420)),
        subsystems: vec![SubsystemConfig {
            nqn: "nqn.2024-05.com.example:disks".to_owned(),
            serial: Some("PL0001".to_owned()),
            allowed_hosts: vec!["nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6".to_owned()],
            namespaces: vec![
                NamespaceConfig { nsid: 1, backend: disk, block_size: 512, uuid: Some(uuid) },
                NamespaceConfig { nsid: 7, backend: "mem:1GiB".parse().unwrap(), block_size: 4096, uuid: None },
            ],
        }],
        cores: vec![0, 1, 2, 3],
        main_core: 1,
        io_threads: 8,
        limits: Limits {
            max_memory: 4 << 30,
            buffer_memory: 512 << 20,
            max_connections: 1000,
            max_io_queues: 64,
            max_queue_depth: 256,
            icreq_timeout: std::time::Duration::from_secs(2),
            drain_timeout: std::time::Duration::from_secs(30),
        },
        power_states: true,
    };
    assert_eq!(loaded.config, expected);
}

#[test]
fn the_example_uses_and_the_reference_explains_every_key() {
    let reference = include_str!("../../../../docs/configuration.md");
    assert!(reference.contains(EVERY_KEY.trim()), "docs/configuration.md does not show the example of this test");
    for (section, keys) in section::SCHEMA.iter().filter(|(section, _)| !section.is_empty()) {
        for key in keys.iter().filter(|key| **key != "namespace") {
            let excluded = *key == "reactors"; // by `cores`
            assert!(excluded || EVERY_KEY.contains(&format!("\n{key} = ")), "{section}.{key} is not in the example");
            assert!(reference.contains(&format!("| `{key}` |")), "{section}.{key} is not in docs/configuration.md");
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
    assert_eq!(flags(&line).unwrap().config, Bench::new().load(text).unwrap().config);
}

#[test]
fn flags_beside_a_file_are_refused_with_what_to_write_instead() {
    refused_flags(
        &["--config=a.toml", "--listen=127.0.0.1:1", "--namespace=mem:1GiB", "--max-memory=1GiB"],
        expect![[r#"
            error: --listen: cannot be used together with --config
              = write `listen = [...]` in [server], in a.toml
            error: --namespace: cannot be used together with --config
              = write a [[subsystem.namespace]] with `nsid` and `backend`, in a.toml
            error: --max-memory: cannot be used together with --config
              = write `max_memory = "..."` in [limits], in a.toml
        "#]],
    );
}

#[test]
fn every_flag_that_a_file_can_say_conflicts() {
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
        "--sleep-after=1",
        "--admin-socket=1",
    ];
    assert_eq!(flags(&line).unwrap_err().problems.len(), line.len() - 1);
}

#[test]
fn a_missing_file_is_named() {
    refused_flags(
        &["--config=/nonexistent/a.toml"],
        expect![[r#"
        error: --config: /nonexistent/a.toml: no such file or directory
          = without --config the server needs no file at all; docs/configuration.md has one to start from
    "#]],
    );
}

#[test]
fn what_is_not_toml() {
    refused(
        "[server\nlisten = 1\n",
        expect![[r#"
        error: not TOML: unclosed table, expected `]`
         --> server.toml:1:8
          |
        1 | [server
          |        ^
    "#]],
    );
    refused(
        "[server]\nlisten = [\n",
        expect![[r#"
        error: not TOML: unclosed array, expected `]`
         --> server.toml:2:11
          |
        2 | listen = [
          |           ^
    "#]],
    );
    refused(
        "[server]\nio_threads = 1\nio_threads = 2\n",
        expect![[r#"
        error: not TOML: duplicate key
         --> server.toml:3:1
          |
        3 | io_threads = 2
          | ^^^^^^^^^^
    "#]],
    );
}

#[test]
fn unknown_keys() {
    refused(
        "[server]\nlisten_on = [\"127.0.0.1:4420\"]\n",
        expect![[r#"
            error: server.listen_on: unknown key
             --> server.toml:2:1
              |
            2 | listen_on = ["127.0.0.1:4420"]
              | ^^^^^^^^^
              = did you mean `listen`?
              = valid in [server]: listen, advertise, cores, main_core, reactors, io_threads, sleep_after, power_states
        "#]],
    );
    refused(
        "[limit]\nmax_memory = \"1GiB\"\n",
        expect![[r#"
            error: limit: unknown key
             --> server.toml:1:2
              |
            1 | [limit]
              |  ^^^^^
              = did you mean `limits`?
              = valid at the top of the file: server, policy, limits, admin, subsystem
        "#]],
    );
    refused(
        "[[subsystem]]\nnqn = \"nqn.2024-05.com.example:a\"\ncores = [0]\n",
        expect![[r#"
            error: subsystem[0].cores: unknown key
             --> server.toml:3:1
              |
            3 | cores = [0]
              | ^^^^^
              = `cores` belongs in [server]
              = valid in [[subsystem]]: nqn, serial, allowed_hosts, namespace
        "#]],
    );
    refused(
        "[[subsystem]]\nnqn = \"nqn.2024-05.com.example:a\"\n[[subsystem.namespace]]\nnsid = 1\nbackend = \"mem:1GiB\"\nzzz = 1\n",
        expect![[r#"
            error: subsystem[0].namespace[0].zzz: unknown key
             --> server.toml:6:1
              |
            6 | zzz = 1
              | ^^^
              = valid in [[subsystem.namespace]]: nsid, backend, block_size, uuid
        "#]],
    );
    refused(
        "nqn = \"nqn.2024-05.com.example:a\"\n",
        expect![[r#"
            error: nqn: unknown key
             --> server.toml:1:1
              |
            1 | nqn = "nqn.2024-05.com.example:a"
              | ^^^
              = `nqn` belongs in [[subsystem]]
              = valid at the top of the file: server, policy, limits, admin, subsystem
        "#]],
    );
}

#[test]
fn values_of_the_wrong_kind() {
    refused(
        r#"
[server]
listen = [4420]
advertise = true
cores = 1.5
main_core = "0"
io_threads = 99999999999999999999
[limits]
max_memory = [1]
drain_timeout = 2024-05-01
[[subsystem]]
nqn = 7
allowed_hosts = []
namespace = { nsid = 1 }
"#,
        expect![[r#"
            error: server.listen[0]: expected a string, found an integer
             --> server.toml:3:11
              |
            3 | listen = [4420]
              |           ^^^^
            error: server.advertise: expected a string, found a boolean
             --> server.toml:4:13
              |
            4 | advertise = true
              |             ^^^^
            error: server.cores: expected an integer, found a float
             --> server.toml:5:9
              |
            5 | cores = 1.5
              |         ^^^
            error: server.main_core: expected an integer, found a string
             --> server.toml:6:13
              |
            6 | main_core = "0"
              |             ^^^
            error: server.io_threads: 99999999999999999999 is too large a number
             --> server.toml:7:14
              |
            7 | io_threads = 99999999999999999999
              |              ^^^^^^^^^^^^^^^^^^^^
            error: limits.max_memory: expected a string with a number and a unit, found an array
             --> server.toml:9:14
              |
            9 | max_memory = [1]
              |              ^^^
            error: limits.drain_timeout: expected a string with a number and a unit, found a date or time
              --> server.toml:10:17
               |
            10 | drain_timeout = 2024-05-01
               |                 ^^^^^^^^^^
            error: subsystem[0].nqn: expected a string, found an integer
              --> server.toml:12:7
               |
            12 | nqn = 7
               |       ^
            error: subsystem[0].allowed_hosts: the list is empty
              --> server.toml:13:17
               |
            13 | allowed_hosts = []
               |                 ^^
              = give at least one entry, or leave the key out
            error: subsystem[0].namespace: expected tables headed [[subsystem.namespace]], found a table
              --> server.toml:14:13
               |
            14 | namespace = { nsid = 1 }
               |             ^^^^^^^^^^^^
        "#]],
    );
    refused(
        "[subsystem]\nnqn = \"nqn.2024-05.com.example:a\"\n",
        expect![[r#"
            error: subsystem: expected tables headed [[subsystem]], found a table
             --> server.toml:1:1
              |
            1 | [subsystem]
              | ^^^^^^^^^^^
        "#]],
    );
    refused(
        "subsystem = [1]\n",
        expect![[r#"
            error: subsystem[0]: expected tables headed [[subsystem]], found an integer
             --> server.toml:1:14
              |
            1 | subsystem = [1]
              |              ^
        "#]],
    );
    refused(
        "server = 1\n",
        expect![[r#"
            error: server: expected a table headed [server], found an integer
             --> server.toml:1:10
              |
            1 | server = 1
              |          ^
        "#]],
    );
}

/// A file with one good subsystem after `text`.
fn with_subsystem(text: &str) -> String {
    format!("{text}\n[[subsystem]]\nnqn = \"nqn.2024-05.com.example:a\"\n")
}

/// A file with one subsystem of which the rest is `text`.
fn in_subsystem(text: &str) -> String {
    format!("[[subsystem]]\nnqn = \"nqn.2024-05.com.example:a\"\n{text}\n")
}

#[test]
fn addresses() {
    refused(
        &with_subsystem(
            r#"[server]
listen = ["localhost:4420", "192.0.2.7", "0.0.0.0:4420", "127.0.0.1:4420", "[::1]:5", "[::1]:5"]
advertise = "0.0.0.0:4420""#,
        ),
        expect![[r#"
            error: server.listen[0]: `localhost:4420` is not an address to listen on
             --> server.toml:2:11
              |
            2 | listen = ["localhost:4420", "192.0.2.7", "0.0.0.0:4420", "127.0.0.1:4420", "[::1]:5", "[::1]:5"]
              |           ^^^^^^^^^^^^^^^^
              = names are not looked up: write an IP address and a port, such as 127.0.0.1:4420, 0.0.0.0:4420 or [::]:4420
            error: server.listen[1]: `192.0.2.7` has no port
             --> server.toml:2:29
              |
            2 | listen = ["localhost:4420", "192.0.2.7", "0.0.0.0:4420", "127.0.0.1:4420", "[::1]:5", "[::1]:5"]
              |                             ^^^^^^^^^^^
              = write 192.0.2.7:4420
            error: server.listen[3]: 127.0.0.1:4420 is already part of 0.0.0.0:4420
             --> server.toml:2:58
              |
            2 | listen = ["localhost:4420", "192.0.2.7", "0.0.0.0:4420", "127.0.0.1:4420", "[::1]:5", "[::1]:5"]
              |                                                          ^^^^^^^^^^^^^^^^
              = leave out one of the two
            error: server.listen[5]: [::1]:5 is given twice
             --> server.toml:2:87
              |
            2 | listen = ["localhost:4420", "192.0.2.7", "0.0.0.0:4420", "127.0.0.1:4420", "[::1]:5", "[::1]:5"]
              |                                                                                       ^^^^^^^^^
              = it stands already in server.listen[4]
            error: server.advertise: `0.0.0.0:4420` is not an address that hosts can be told
             --> server.toml:3:13
              |
            3 | advertise = "0.0.0.0:4420"
              |             ^^^^^^^^^^^^^^
              = write the address (or name) and port under which hosts reach this server, such as 192.0.2.7:4420
        "#]],
    );
    refused_flags(
        &["--listen=4420"],
        expect![[r#"
        error: --listen: `4420` is not an address to listen on
          = write an IP address and a port, such as 127.0.0.1:4420, 0.0.0.0:4420 or [::]:4420
    "#]],
    );
}

#[test]
fn several_listeners_on_any_free_port_are_no_duplicates() {
    assert!(flags(&["--listen=127.0.0.1:0", "--listen=127.0.0.1:0"]).is_ok());
}

#[test]
fn cores_and_threads() {
    refused(
        &with_subsystem("[server]\ncores = [0, 4, 1, 1]\nmain_core = 2\nio_threads = 0\n"),
        expect![[r#"
        error: server.cores[1]: there is no core 4 for this process
         --> server.toml:2:13
          |
        2 | cores = [0, 4, 1, 1]
          |             ^
          = it may run on 0-3,6 (see `taskset -cp $$`)
        error: server.cores[3]: core 1 is given twice
         --> server.toml:2:19
          |
        2 | cores = [0, 4, 1, 1]
          |                   ^
        error: server.main_core: 2 is not among the cores
         --> server.toml:3:13
          |
        3 | main_core = 2
          |             ^
          = the main core is one of them; cores are 0-1
        error: server.io_threads: 0 I/O threads
         --> server.toml:4:14
          |
        4 | io_threads = 0
          |              ^
          = use 1 to 1024
    "#]],
    );
    refused(
        &with_subsystem("[server]\ncores = \"0-\"\n"),
        expect![[r#"
        error: server.cores: `0-` is not a list of cores: write numbers and ranges, such as 0,1 or 0-3 or 0,4-7
         --> server.toml:2:9
          |
        2 | cores = "0-"
          |         ^^^^
    "#]],
    );
    refused(
        &with_subsystem("[server]\ncores = [-1]\n"),
        expect![[r#"
        error: server.cores[0]: there is no core -1 for this process
         --> server.toml:2:10
          |
        2 | cores = [-1]
          |          ^^
          = it may run on 0-3,6 (see `taskset -cp $$`)
    "#]],
    );
    refused_flags(
        &["--cores=0..3"],
        expect![[r#"
        error: --cores: `0..3` is not a list of cores: write numbers and ranges, such as 0,1 or 0-3 or 0,4-7
    "#]],
    );
    refused_flags(
        &["--cores=7", "--main-core=7"],
        expect![[r#"
        error: --cores: there is no core 7 for this process
          = it may run on 0-3,6 (see `taskset -cp $$`)
    "#]],
    );
}

#[test]
fn limits() {
    refused(
        &with_subsystem(
            r#"[limits]
max_memory = "1G"
buffer_memory = "12GiB"
max_connections = 0
max_io_queues = 129
max_queue_depth = 1
icreq_timeout = 5
drain_timeout = "2h"
"#,
        ),
        expect![[r#"
            error: limits.max_memory: '1G' is ambiguous: write 1GiB for multiples of 1024, or 1GB for multiples of 1000
             --> server.toml:2:14
              |
            2 | max_memory = "1G"
              |              ^^^^
            error: limits.buffer_memory: 12GiB of buffers
             --> server.toml:3:17
              |
            3 | buffer_memory = "12GiB"
              |                 ^^^^^^^
              = use 1MiB to 6GiB (max_memory)
            error: limits.max_connections: 0 connections
             --> server.toml:4:19
              |
            4 | max_connections = 0
              |                   ^
              = use 1 to 1000000
            error: limits.max_io_queues: 129 I/O queues
             --> server.toml:5:17
              |
            5 | max_io_queues = 129
              |                 ^^^
              = use 1 to 128
            error: limits.max_queue_depth: 1 entries in a queue
             --> server.toml:6:19
              |
            6 | max_queue_depth = 1
              |                   ^
              = use 2 to 1024
            error: limits.icreq_timeout: `5` is not a duration: write a whole number and a unit, such as 10s (us, ms, s, min, h)
             --> server.toml:7:17
              |
            7 | icreq_timeout = 5
              |                 ^
            error: limits.drain_timeout: a timeout of 2h
             --> server.toml:8:17
              |
            8 | drain_timeout = "2h"
              |                 ^^^^
              = use 1ms to 1h
        "#]],
    );
    refused(
        &with_subsystem("[limits]\nmax_memory = \"16GiB\"\n"),
        expect![[r#"
            error: limits.max_memory: 16GiB of memory
             --> server.toml:2:14
              |
            2 | max_memory = "16GiB"
              |              ^^^^^^^
              = use 1MiB to 8GiB (what this process may use)
        "#]],
    );
    refused(
        &with_subsystem("[server]\nio_threads = 8\n[limits]\nmax_memory = \"4MiB\"\n"),
        expect![[r#"
        error: 8 I/O threads need at least 8MiB of buffers, and max_memory is 4MiB
         --> server.toml
          = raise max_memory, or use fewer I/O threads
    "#]],
    );
}

#[test]
fn subsystems() {
    refused(
        "",
        expect![[r#"
        error: the file has no [[subsystem]]
         --> server.toml
          = add one, with an `nqn` and a [[subsystem.namespace]]
    "#]],
    );
    refused(
        "[[subsystem]]\n",
        expect![[r#"
        error: subsystem[0]: `nqn` is missing
         --> server.toml:1:1
          |
        1 | [[subsystem]]
          | ^^^^^^^^^^^^^
          = for example `nqn = "nqn.2014-08.org.nvmexpress:uuid:4f473c7f-70b4-51c5-9e01-e71a877f08dc"` (made from this machine's identity)
    "#]],
    );
    refused(
        r#"
[[subsystem]]
nqn = "disks"
serial = "a number that is too long"
allowed_hosts = ["host", "nqn.2024-05.com.example:h", "nqn.2024-05.com.example:h"]

[[subsystem]]
nqn = "nqn.2014-08.org.nvmexpress.discovery"

[[subsystem]]
nqn = "nqn.2024-05.com.example:a"

[[subsystem]]
nqn = "nqn.2024-05.com.example:a"
"#,
        expect![[r#"
            error: subsystem[0].nqn: `disks` is not an NQN
             --> server.toml:3:7
              |
            3 | nqn = "disks"
              |       ^^^^^^^
              = an NQN is `nqn.2014-08.org.nvmexpress:uuid:` and a UUID, or `nqn.`, a year and month in which you owned a domain, the domain reversed, `:` and a name: nqn.2024-05.com.example:disks
            error: subsystem[0].serial: `a number that is too long` is not a serial number
             --> server.toml:4:10
              |
            4 | serial = "a number that is too long"
              |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^
              = use 1 to 20 printable ASCII characters, no space at either end
            error: subsystem[0].allowed_hosts[0]: `host` is not an NQN
             --> server.toml:5:18
              |
            5 | allowed_hosts = ["host", "nqn.2024-05.com.example:h", "nqn.2024-05.com.example:h"]
              |                  ^^^^^^
              = an NQN is `nqn.2014-08.org.nvmexpress:uuid:` and a UUID, or `nqn.`, a year and month in which you owned a domain, the domain reversed, `:` and a name: nqn.2024-05.com.example:disks
            error: subsystem[0].allowed_hosts[2]: nqn.2024-05.com.example:h is given twice
             --> server.toml:5:55
              |
            5 | allowed_hosts = ["host", "nqn.2024-05.com.example:h", "nqn.2024-05.com.example:h"]
              |                                                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^
              = it stands already in subsystem[0].allowed_hosts[1]
            error: subsystem[1].nqn: this NQN belongs to the discovery service, which Pilotlight provides by itself
             --> server.toml:8:7
              |
            8 | nqn = "nqn.2014-08.org.nvmexpress.discovery"
              |       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
              = an NQN is `nqn.2014-08.org.nvmexpress:uuid:` and a UUID, or `nqn.`, a year and month in which you owned a domain, the domain reversed, `:` and a name: nqn.2024-05.com.example:disks
            error: subsystem[3].nqn: nqn.2024-05.com.example:a is given twice
              --> server.toml:14:7
               |
            14 | nqn = "nqn.2024-05.com.example:a"
               |       ^^^^^^^^^^^^^^^^^^^^^^^^^^^
              = it stands already in subsystem[2].nqn
        "#]],
    );
    refused_flags(
        &["--nqn=disks"],
        expect![[r#"
        error: --nqn: `disks` is not an NQN
          = an NQN is `nqn.2014-08.org.nvmexpress:uuid:` and a UUID, or `nqn.`, a year and month in which you owned a domain, the domain reversed, `:` and a name: nqn.2024-05.com.example:disks
    "#]],
    );
}

#[test]
fn namespaces() {
    refused(
        &in_subsystem("[[subsystem.namespace]]\n"),
        expect![[r#"
        error: subsystem[0].namespace[0]: `nsid` is missing
         --> server.toml:3:1
          |
        3 | [[subsystem.namespace]]
          | ^^^^^^^^^^^^^^^^^^^^^^^
          = give the number under which hosts see it, such as `nsid = 1`; it must not change later
        error: subsystem[0].namespace[0]: `backend` is missing
         --> server.toml:3:1
          |
        3 | [[subsystem.namespace]]
          | ^^^^^^^^^^^^^^^^^^^^^^^
          = say what holds its blocks, such as `backend = "mem:1GiB"` or `backend = "file:/path"`
    "#]],
    );
    refused(
        &in_subsystem(
            r#"
[[subsystem.namespace]]
nsid = 0
backend = "disk.img"
block_size = 1024
uuid = "1234"

[[subsystem.namespace]]
nsid = 2
backend = "mem:1000"
uuid = "2f7c9c1e-6a55-4d6e-9a0f-3f0a2f1b7f10"

[[subsystem.namespace]]
nsid = 2
backend = "null:1GiB"
uuid = "2f7c9c1e-6a55-4d6e-9a0f-3f0a2f1b7f10"
"#,
        ),
        expect![[r#"
            error: subsystem[0].namespace[0].nsid: 0 is not a namespace identifier
             --> server.toml:5:8
              |
            5 | nsid = 0
              |        ^
              = use 1 to 1024
            error: subsystem[0].namespace[0].backend: 'disk.img' is no backend: write mem:SIZE, file:PATH or null:SIZE, as in mem:1GiB
             --> server.toml:6:11
              |
            6 | backend = "disk.img"
              |           ^^^^^^^^^^
            error: subsystem[0].namespace[0].block_size: blocks of 1024 bytes
             --> server.toml:7:14
              |
            7 | block_size = 1024
              |              ^^^^
              = use 512 or 4096
            error: subsystem[0].namespace[0].uuid: `1234` is not a UUID
             --> server.toml:8:8
              |
            8 | uuid = "1234"
              |        ^^^^^^
              = write 32 hexadecimal digits, such as f81d4fae-7dec-11d0-a765-00a0c91e6bf6 (`uuidgen` makes one), or leave the key out
            error: subsystem[0].namespace[1].backend: 1000 bytes are not a whole number of blocks of 4096 bytes
              --> server.toml:12:11
               |
            12 | backend = "mem:1000"
               |           ^^^^^^^^^^
              = use a size such as 512MiB or 1GiB
            error: subsystem[0].namespace[2].nsid: 2 is given twice
              --> server.toml:16:8
               |
            16 | nsid = 2
               |        ^
              = it stands already in subsystem[0].namespace[1].nsid
            error: subsystem[0].namespace[2].uuid: 2f7c9c1e-6a55-4d6e-9a0f-3f0a2f1b7f10 is given twice
              --> server.toml:18:8
               |
            18 | uuid = "2f7c9c1e-6a55-4d6e-9a0f-3f0a2f1b7f10"
               |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
              = it stands already in subsystem[0].namespace[1].uuid
        "#]],
    );
}

#[test]
fn files() {
    refused(
        &in_subsystem(
            r#"
[[subsystem.namespace]]
nsid = 1
backend = "file:missing.img"

[[subsystem.namespace]]
nsid = 2
backend = "file:."

[[subsystem.namespace]]
nsid = 3
backend = "file:disk.img"

[[subsystem.namespace]]
nsid = 4
backend = "file:../disk/../disk.img"

[[subsystem.namespace]]
nsid = 5
backend = "file:./disk.img"

[[subsystem.namespace]]
nsid = 6
backend = "file:new.img?size=1MiB"

[[subsystem.namespace]]
nsid = 7
backend = "delay:1ms:file:./new.img?size=1MiB"

[[subsystem.namespace]]
nsid = 8
backend = "file:disk.img?size=2MiB"

[[subsystem.namespace]]
nsid = 9
backend = "file:other.img?size=5000"
"#,
        ),
        expect![[r#"
            error: subsystem[0].namespace[0].backend: missing.img: no such file or directory
             --> server.toml:6:11
              |
            6 | backend = "file:missing.img"
              |           ^^^^^^^^^^^^^^^^^^
              = create it: `truncate -s 1G missing.img`, or let the start do so: file:missing.img?size=1GiB
            error: subsystem[0].namespace[1].backend: .: it is neither a file nor a block device
              --> server.toml:10:11
               |
            10 | backend = "file:."
               |           ^^^^^^^^
            error: subsystem[0].namespace[3].backend: ../disk/../disk.img: no such file or directory
              --> server.toml:18:11
               |
            18 | backend = "file:../disk/../disk.img"
               |           ^^^^^^^^^^^^^^^^^^^^^^^^^^
              = create it: `truncate -s 1G ../disk/../disk.img`, or let the start do so: file:../disk/../disk.img?size=1GiB
            error: subsystem[0].namespace[4].backend: ./disk.img already holds another namespace
              --> server.toml:22:11
               |
            22 | backend = "file:./disk.img"
               |           ^^^^^^^^^^^^^^^^^
              = see subsystem[0].namespace[2].backend; two namespaces cannot share blocks
            error: subsystem[0].namespace[6].backend: ./new.img already holds another namespace
              --> server.toml:30:11
               |
            30 | backend = "delay:1ms:file:./new.img?size=1MiB"
               |           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
              = see subsystem[0].namespace[5].backend; two namespaces cannot share blocks
            error: subsystem[0].namespace[7].backend: disk.img: it has 1MiB, and ?size= says 2MiB
              --> server.toml:34:11
               |
            34 | backend = "file:disk.img?size=2MiB"
               |           ^^^^^^^^^^^^^^^^^^^^^^^^^
              = leave ?size= out, or change the file: `truncate -s 2097152 disk.img`
            error: subsystem[0].namespace[8].backend: 5000 bytes are not a whole number of blocks of 4096 bytes
              --> server.toml:38:11
               |
            38 | backend = "file:other.img?size=5000"
               |           ^^^^^^^^^^^^^^^^^^^^^^^^^^
              = use a size such as 512MiB or 1GiB
        "#]],
    );
}

#[test]
fn what_is_only_worth_saying() {
    let bench = Bench::new();
    fs::write(bench.dir.path().join("odd.img"), vec![0; 5000]).unwrap();
    let text = in_subsystem(
        r#"
[[subsystem.namespace]]
nsid = 1
backend = "file:odd.img"

[[subsystem.namespace]]
nsid = 2
backend = "mem:64GiB"

[server]
cores = [0, 1, 2]
io_threads = 1
"#,
    );
    assert!(bench.load(&text).is_ok());
    expect![[r#"
        warning: namespaces in memory add up to 64GiB, and there is room for 6080MiB (max_memory 6GiB less 64MiB of buffers)
         --> server.toml
          = writes beyond that will fail with Capacity Exceeded; what is never written takes no memory
        warning: subsystem[0].namespace[0].backend: the last 904 bytes of odd.img are no whole block and are left alone
         --> server.toml:6:11
          |
        6 | backend = "file:odd.img"
          |           ^^^^^^^^^^^^^^
        warning: server.io_threads: 2 of 3 cores have no I/O thread to run
          --> server.toml:14:14
           |
        14 | io_threads = 1
           |              ^
    "#]].assert_eq(&bench.told(&text));
}

#[test]
fn relative_paths_start_at_the_file() {
    assert_eq!(directory_of(Path::new("/etc/pilotlight/a.toml")), Path::new("/etc/pilotlight"));
    assert_eq!(directory_of(Path::new("a.toml")).join("disk"), Path::new("disk"));
}
