//! Errors and warnings about subsystems, namespaces and their files.

use expect_test::expect;

use super::*;

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
}

#[test]
fn subsystem_names() {
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
            error: subsystem[0].allowed_hosts[2]: nqn.2024-05.com.example:h is a duplicate
             --> server.toml:5:55
              |
            5 | allowed_hosts = ["host", "nqn.2024-05.com.example:h", "nqn.2024-05.com.example:h"]
              |                                                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^
              = first used in subsystem[0].allowed_hosts[1]
            error: subsystem[1].nqn: this NQN belongs to the discovery service, which Pilotlight provides by itself
             --> server.toml:8:7
              |
            8 | nqn = "nqn.2014-08.org.nvmexpress.discovery"
              |       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
              = an NQN is `nqn.2014-08.org.nvmexpress:uuid:` and a UUID, or `nqn.`, a year and month in which you owned a domain, the domain reversed, `:` and a name: nqn.2024-05.com.example:disks
            error: subsystem[3].nqn: nqn.2024-05.com.example:a is a duplicate
              --> server.toml:14:7
               |
            14 | nqn = "nqn.2024-05.com.example:a"
               |       ^^^^^^^^^^^^^^^^^^^^^^^^^^^
              = first used in subsystem[2].nqn
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
          = set its storage, such as `backend = "mem:1GiB"` or `backend = "file:/path"`
    "#]],
    );
}

#[test]
fn namespace_values() {
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
            error: subsystem[0].namespace[0].backend: 'disk.img' is not a backend: use mem:SIZE, file:PATH or null:SIZE, as in mem:1GiB
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
            error: subsystem[0].namespace[2].nsid: 2 is a duplicate
              --> server.toml:16:8
               |
            16 | nsid = 2
               |        ^
              = first used in subsystem[0].namespace[1].nsid
            error: subsystem[0].namespace[2].uuid: 2f7c9c1e-6a55-4d6e-9a0f-3f0a2f1b7f10 is a duplicate
              --> server.toml:18:8
               |
            18 | uuid = "2f7c9c1e-6a55-4d6e-9a0f-3f0a2f1b7f10"
               |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
              = first used in subsystem[0].namespace[1].uuid
        "#]],
    );
}

/// Namespaces on missing, unsuitable and shared files.
const FILES: &str = r#"
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

[[subsystem.namespace]]
nsid = 10
backend = "file:/dev/nvme77n1?size=1GiB"
"#;

#[test]
fn files() {
    refused(
        &in_subsystem(FILES),
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
            error: subsystem[0].namespace[7].backend: disk.img: it has 1MiB, and ?size= is 2MiB
              --> server.toml:34:11
               |
            34 | backend = "file:disk.img?size=2MiB"
               |           ^^^^^^^^^^^^^^^^^^^^^^^^^
              = omit ?size=, or set its size with: truncate -s 2097152 disk.img
            error: subsystem[0].namespace[8].backend: 5000 bytes are not a whole number of blocks of 4096 bytes
              --> server.toml:38:11
               |
            38 | backend = "file:other.img?size=5000"
               |           ^^^^^^^^^^^^^^^^^^^^^^^^^^
              = use a size such as 512MiB or 1GiB
            error: subsystem[0].namespace[9].backend: /dev/nvme77n1: no such device
              --> server.toml:42:11
               |
            42 | backend = "file:/dev/nvme77n1?size=1GiB"
               |           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
              = `lsblk` lists devices; names in /dev/disk/by-id stay the same after a restart
        "#]],
    );
}

#[test]
fn warnings_about_namespaces() {
    let config_dir = ConfigDir::new();
    fs::write(config_dir.dir.path().join("odd.img"), vec![0; 5000]).unwrap();
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
    assert!(config_dir.load(&text).is_ok());
    expect![[r#"
        warning: namespaces in memory add up to 64GiB, and there is room for 5312MiB (max_memory 6GiB less 64MiB of buffers and 768MiB for queues)
         --> server.toml
          = writes beyond that will fail with Capacity Exceeded; only written blocks take memory
        warning: subsystem[0].namespace[0].backend: the last 904 bytes of odd.img are not a whole block and are not used
         --> server.toml:6:11
          |
        6 | backend = "file:odd.img"
          |           ^^^^^^^^^^^^^^
        warning: server.io_threads: 2 of 3 cores have no I/O thread to run
          --> server.toml:14:14
           |
        14 | io_threads = 1
           |              ^
    "#]].assert_eq(&config_dir.output(&text));
}

#[test]
fn preallocated_namespaces_have_to_fit() {
    let huge = "--namespace=mem:4GiB,hugepages";
    assert!(flags(&[huge, "--namespace=mem:64GiB"]).is_ok(), "only a warning");
    refused_flags(
        &[huge, "--namespace=mem:2GiB,hugepages"],
        expect![[r#"
            error: namespaces in memory with hugepages add up to 6GiB, and there is room for 5312MiB (max_memory 6GiB less 64MiB of buffers and 768MiB for queues)
              = make them smaller, raise max_memory, or omit ',hugepages': then only written blocks take memory
        "#]],
    );
}

#[test]
fn relative_paths_start_at_the_file() {
    assert_eq!(directory_of(Path::new("/etc/pilotlight/a.toml")), Path::new("/etc/pilotlight"));
    assert_eq!(directory_of(Path::new("a.toml")).join("disk"), Path::new("disk"));
}

/// A namespace's block size with what its medium's sectors have, and the first line of the warning.
fn block_size(sector_size: fn(&Path) -> Option<u32>, backend: &str, written: &str) -> (u32, String) {
    let text = in_subsystem(&format!("[[subsystem.namespace]]\nnsid = 1\nbackend = \"{backend}\"\n{written}"));
    let machine = Machine { sector_size, ..machine() };
    let loaded = ConfigDir::new().load_on(&text, &machine).unwrap();
    let warnings = loaded.warnings(false);
    (loaded.config.subsystems[0].namespaces[0].block_size, warnings.lines().next().unwrap_or_default().to_owned())
}

#[test]
fn a_block_is_a_sector_of_the_medium_unless_it_is_given() {
    let quiet = |size: u32| (size, String::new());
    for backend in ["file:disk.img", "file:new.img?size=1MiB", "delay:1us-2us:file:disk.img"] {
        assert_eq!(block_size(|_| Some(512), backend, ""), quiet(512), "{backend}");
        assert_eq!(block_size(|_| Some(4096), backend, ""), quiet(4096), "{backend}");
        assert_eq!(block_size(|_| None, backend, ""), quiet(4096), "{backend}");
        assert_eq!(block_size(|_| Some(512), backend, "block_size = 512"), quiet(512), "{backend}");
        assert_eq!(block_size(|_| None, backend, "block_size = 512"), quiet(512), "{backend}");
    }
    for backend in ["mem:1GiB", "null:1GiB"] {
        assert_eq!(block_size(|_| Some(512), backend, ""), quiet(4096), "{backend} has no sectors");
    }
}

#[test]
fn a_block_larger_than_a_sector_is_worth_a_warning() {
    let (size, warning) = block_size(|_| Some(512), "file:disk.img", "block_size = 4096");
    assert_eq!(size, 4096);
    let expected = "blocks of 4096 bytes on sectors of 512: a power failure can leave part of a block old and part new";
    assert!(warning.contains(expected), "{warning}");
    let (size, warning) = block_size(|_| Some(1024), "file:disk.img", "");
    assert_eq!(size, 4096);
    assert!(warning.contains("blocks of 4096 bytes on sectors of 1024"), "{warning}");
}

#[test]
fn ranges_of_controller_identifiers() {
    let two = |first: &str, second: &str| {
        format!(
            "[[subsystem]]\nnqn = \"nqn.2024-05.com.example:a\"\ncontroller_ids = \"{first}\"\n\n\
             [[subsystem]]\nnqn = \"nqn.2024-05.com.example:b\"\ncontroller_ids = \"{second}\"\n"
        )
    };
    let config_dir = ConfigDir::new();
    for (first, second, key, expected) in [
        ("0-5", "6-9", "subsystem[0].controller_ids", "`0-5` is not a range"),
        ("5-1", "6-9", "subsystem[0].controller_ids", "`5-1` is not a range"),
        ("7", "8-9", "subsystem[0].controller_ids", "`7` is not a range"),
        ("1-5", "6-65520", "subsystem[1].controller_ids", "both from 1 to 65519"),
        ("1-5", "5-9", "subsystem[1].controller_ids", "overlaps 1-5"),
        ("1-5", "6-65519", "subsystem[1].controller_ids", "left for the discovery service"),
    ] {
        let output = config_dir.output(&two(first, second));
        assert!(output.contains(&format!("error: {key}")) && output.contains(expected), "{first} {second}: {output}");
    }
    let loaded = config_dir.load(&two("1-5", "6-65518")).unwrap();
    let ids = loaded.config.subsystems[1].controller_ids.unwrap();
    assert_eq!((ids.first, ids.last), (6, 65518));
}
