//! Files that cannot be read: missing, no TOML, unknown keys, values of the wrong kind.

use expect_test::expect;

use super::*;

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
fn invalid_toml() {
    refused(
        "[server\nlisten = 1\n",
        expect![[r#"
            error: invalid TOML: unclosed table, expected `]`
             --> server.toml:1:8
              |
            1 | [server
              |        ^
        "#]],
    );
    refused(
        "[server]\nlisten = [\n",
        expect![[r#"
            error: invalid TOML: unclosed array, expected `]`
             --> server.toml:2:11
              |
            2 | listen = [
              |           ^
        "#]],
    );
    refused(
        "[server]\nio_threads = 1\nio_threads = 2\n",
        expect![[r#"
            error: invalid TOML: duplicate key
             --> server.toml:3:1
              |
            3 | io_threads = 2
              | ^^^^^^^^^^
        "#]],
    );
}

#[test]
fn an_unknown_key_hides_only_what_may_follow_from_it() {
    refused(
        "[goals]\nbudget = \"5XW\"\n[[subsystem]]\nnqm = \"nqn.2024-05.com.example:a\"\n[[subsystem.namespace]]\nnsid = 0\nbackend = \"mem:1GiB\"\n\
         [[subsystem]]\n",
        expect![[r#"
            error: goals.budget: `5XW` is not a budget: write a power such as 300W, from 1W to 1000kW, or off
             --> server.toml:2:10
              |
            2 | budget = "5XW"
              |          ^^^^^
            error: subsystem[0].nqm: unknown key
             --> server.toml:4:1
              |
            4 | nqm = "nqn.2024-05.com.example:a"
              | ^^^
              = did you mean `nqn`?
              = valid in [[subsystem]]: nqn, serial, allowed_hosts, listen, controller_ids, namespace
            error: subsystem[0].namespace[0].nsid: 0 is not a namespace identifier
             --> server.toml:6:8
              |
            6 | nsid = 0
              |        ^
              = use 1 to 1024
            error: subsystem[1]: `nqn` is missing
             --> server.toml:8:1
              |
            8 | [[subsystem]]
              | ^^^^^^^^^^^^^
              = for example `nqn = "nqn.2014-08.org.nvmexpress:uuid:4f473c7f-70b4-51c5-9e01-e71a877f08dc"` (made from this machine's identity)
        "#]],
    );
    refused_flags(
        &["--cores=0..3", "--main-core=7", "--policy=sandmen"],
        expect![[r#"
        error: --cores: `0..3` is not a list of cores: write numbers and ranges, such as 0,1 or 0-3 or 0,4-7
        error: --policy: there is no policy `sandmen`
          = did you mean `sandman`? policies: static, interrupt, governor, dynamic, hybrid-poll, sandman, adaptive, pass, thunderbolt, rapl-only, cpu-bandwidth, cpu-jailing, ssd-bandwidth, pacer, pg, dvfs, ondemand, native, ssd-apst
    "#]],
    );
}

#[test]
fn what_follows_from_another_section_is_not_said() {
    let said = |text: &str| ConfigDir::new().output(&with_subsystem(text)).matches("error: ").count();
    for text in [
        "[server]\nio_threads = \"4\"\n[limits]\nbuffer_memory = \"1KiB\"",
        "[policy]\nname = 5\n[goals]\ntolerance = \"20%\"",
    ] {
        assert_eq!(said(text), 1, "{}", ConfigDir::new().output(&with_subsystem(text)));
    }
}

/// Whose rights limit which files root opens is not known.
#[test]
fn no_file_is_opened_where_the_user_may_not_have_been_read() {
    for wrong in ["[security]\nusr = \"nobody\"", "[security]\nuser = 65532", "[securty]\nuser = \"nobody\""] {
        let text = format!("[goals]\nschedule = \"budgets.tx\"\n{wrong}\n");
        let output = ConfigDir::new().output(&with_subsystem(&text));
        assert!(!output.contains("budgets.tx") && output.matches("error: ").count() == 1, "{output}");
    }
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
              = valid in [server]: listen, tls_listen, concat_listen, advertise, tls_advertise, cores, main_core, reactors, io_threads, placement, sleep_after, hotplug, reservations, power_states, sensor, energy_shares
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
              = valid at the top of the file: server, policy, goals, limits, admin, metrics, log, security, discovery, page, subsystem, host, class, path, background
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
              = valid in [[subsystem]]: nqn, serial, allowed_hosts, listen, controller_ids, namespace
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
              = valid in [[subsystem.namespace]]: nsid, backend, block_size, uuid, hosts, ana_group, shrink, max_bytes_per_s, priority, tolerance, checksums, checksums_file, trim
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
              = valid at the top of the file: server, policy, goals, limits, admin, metrics, log, security, discovery, page, subsystem, host, class, path, background
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
            error: server.io_threads: 99999999999999999999 is too large
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
              = add an entry, or omit the key
            error: subsystem[0].namespace: expected tables headed [[subsystem.namespace]], found a table
              --> server.toml:14:13
               |
            14 | namespace = { nsid = 1 }
               |             ^^^^^^^^^^^^
        "#]],
    );
}

#[test]
fn tables_of_the_wrong_kind() {
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
