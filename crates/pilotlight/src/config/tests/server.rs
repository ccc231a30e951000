//! Mistakes about addresses, cores, I/O threads and limits.

use expect_test::expect;

use super::*;

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
              = remove one of them
            error: server.listen[5]: [::1]:5 is a duplicate
             --> server.toml:2:87
              |
            2 | listen = ["localhost:4420", "192.0.2.7", "0.0.0.0:4420", "127.0.0.1:4420", "[::1]:5", "[::1]:5"]
              |                                                                                       ^^^^^^^^^
              = first used in server.listen[4]
            error: server.advertise: `0.0.0.0:4420` is not an address to advertise
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
        error: server.cores[3]: core 1 is a duplicate
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
        &with_subsystem("[server]\ncores = [-1, 8, 9]\n"),
        expect![[r#"
            error: server.cores[0]: there is no core -1, 8, 9 for this process
             --> server.toml:2:10
              |
            2 | cores = [-1, 8, 9]
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
queue_memory = "1KiB"
max_connections = 0
max_host_queues = 1
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
              = use 1MiB to 6143MiB (max_memory less the minimum for queues)
            error: limits.queue_memory: 1KiB for queues
             --> server.toml:4:16
              |
            4 | queue_memory = "1KiB"
              |                ^^^^^^
              = use 1MiB to 6080MiB (max_memory less buffer_memory)
            error: limits.max_connections: 0 connections
             --> server.toml:5:19
              |
            5 | max_connections = 0
              |                   ^
              = use 1 to 1000000
            error: limits.max_host_queues: 1 queues of one host
             --> server.toml:6:19
              |
            6 | max_host_queues = 1
              |                   ^
              = use 2 to 1000000
            error: limits.max_io_queues: 129 I/O queues
             --> server.toml:7:17
              |
            7 | max_io_queues = 129
              |                 ^^^
              = use 1 to 128
            error: limits.max_queue_depth: 1 entries in a queue
             --> server.toml:8:19
              |
            8 | max_queue_depth = 1
              |                   ^
              = use 2 to 1024
            error: limits.icreq_timeout: `5` is not a duration: write a number and a unit, such as 10s (us, ms, s, min, h)
             --> server.toml:9:17
              |
            9 | icreq_timeout = 5
              |                 ^
            error: limits.drain_timeout: a timeout of 2h
              --> server.toml:10:17
               |
            10 | drain_timeout = "2h"
               |                 ^^^^
              = use 1ms to 1h
        "#]],
    );
}

#[test]
fn limits_of_the_machine() {
    refused(
        &with_subsystem("[limits]\nmax_memory = \"16GiB\"\n"),
        expect![[r#"
            error: limits.max_memory: 16GiB of memory
             --> server.toml:2:14
              |
            2 | max_memory = "16GiB"
              |              ^^^^^^^
              = use 2MiB to 8GiB (the memory of this machine or container)
        "#]],
    );
    refused(
        &with_subsystem("[server]\nio_threads = 8\n[limits]\nmax_memory = \"4MiB\"\n"),
        expect![[r#"
            error: 8 I/O threads need at least 8MiB of buffers and 1MiB for queues, and max_memory is 4MiB
             --> server.toml
              = raise max_memory, or use fewer I/O threads
        "#]],
    );
}

#[test]
fn where_the_memory_is_unknown_it_is_configured() {
    let load = |line: &[&str]| {
        let args = Line::parse_from([&["serve"], line].concat()).args;
        load(&args, &Machine { memory: None, ..machine() })
    };
    let refused = load(&[]).unwrap_err().render(false);
    assert!(refused.contains("mount /proc, or set `max_memory`") && refused.matches("error").count() == 1, "{refused}");
    assert_eq!(load(&["--max-memory=1GiB"]).unwrap().config.limits.max_memory, 1 << 30);
}

#[test]
fn the_discovery_port_is_a_port_and_no_referral() {
    let of = |port: &str| {
        format!(
            "[server]\nlisten = \"192.0.2.7:4420\"\n[discovery]\nport = {port}\n[[discovery.referral]]\naddress = \"192.0.2.7\"\n"
        )
    };
    for (port, expected) in [("0", "0 is not a port"), ("65536", "use 1 to 65535"), ("8009", "is this server itself")] {
        let refused = ConfigDir::new().load(&with_subsystem(&of(port))).unwrap_err().render(false);
        assert!(refused.contains(expected), "{port}: {refused}");
    }
    let loaded = ConfigDir::new().load(&with_subsystem(&of("8010"))).unwrap();
    assert_eq!(loaded.config.all_listeners().len(), 2);
}

#[test]
fn all_cpus_of_the_machine_leave_none_to_other_programs() {
    let warnings = |online, line: &[&str]| {
        let machine = Machine { cores: vec![0, 1], online, ..machine() };
        let args = Line::parse_from([&["serve"], line].concat()).args;
        load(&args, &machine).unwrap().warnings(false)
    };
    assert!(warnings(2, &["--cores=0-1"]).contains("takes all 2 CPUs"), "{}", warnings(2, &["--cores=0-1"]));
    assert_eq!(warnings(2, &["--cores=1"]), "");
    assert_eq!(warnings(8, &["--cores=0-1"]), "", "a container's CPUs are its own");
}
