//! Errors about reactors, the policy and the control socket, with their exact text, and valid
//! configurations. `UPDATE_EXPECT=1 cargo test` updates the text.

use expect_test::{Expect, expect};
use pilotlight_nvmf_target::config::QueuePlacement;
use pilotlight_plant::{CoreId, Topology};

use super::{AdminSocket, ConfigDir, Loaded, Operation, flags};
use crate::config::SleepAfter;
use crate::policies::PolicyChoice;

/// A subsystem, so that nothing else is wrong.
const SUBSYSTEM: &str = "[[subsystem]]\nnqn = \"nqn.2024-05.com.example:a\"\n";

fn file(text: &str) -> Loaded {
    ConfigDir::new().load(&format!("{text}\n{SUBSYSTEM}")).unwrap_or_else(|refused| panic!("{}", refused.render(false)))
}

#[expect(clippy::needless_pass_by_value, reason = "an `expect!` stands in the call")]
fn refused(text: &str, words: Expect) {
    let (config_dir, text) = (ConfigDir::new(), format!("{text}\n{SUBSYSTEM}"));
    assert!(config_dir.load(&text).is_err(), "not refused: {text}");
    words.assert_eq(&without_lists(&config_dir.output(&text)));
}

#[expect(clippy::needless_pass_by_value, reason = "an `expect!` stands in the call")]
fn refused_flags(line: &[&str], words: Expect) {
    words.assert_eq(&without_lists(&flags(line).unwrap_err().render(false)));
}

/// Cuts the list of a policy's parameters, which grows with the policy.
fn without_lists(output: &str) -> String {
    let cut = |line: &str| match line.split_once("There are: variant, ") {
        Some((before, _)) => format!("{before}There are: variant, [...]\n"),
        None => format!("{line}\n"),
    };
    output.lines().map(cut).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[test]
fn the_default_policy_is_sandman() {
    let operation = flags(&[]).unwrap().operation;
    assert_eq!(operation.policy, PolicyChoice { name: "sandman".to_owned(), parameters: Vec::new() });
    assert_eq!(operation.sleep_after, SleepAfter::Policy);
    let socket = AdminSocket { path: "/run/pilotlight/pilotlight.sock".into(), is_explicit: false, read_group: None };
    assert_eq!(operation.admin_socket, Some(socket));
    assert_eq!(operation.reactors.cores, [Some(0)]);
}

#[test]
fn flags_and_file_say_the_same() {
    let line = [
        "--policy=sandman",
        "--policy-set=window=64",
        "--policy-set=z = 2.5",
        "--policy-set=exempt_alone=true",
        "--sleep-after=never",
        "--admin-socket=/tmp/a.sock",
        "--cores=0-3",
        "--main-core=1",
    ];
    let loaded = file(
        r#"
        server = { sleep_after = "never", cores = "0-3", main_core = 1 }
        policy = { name = "sandman", window = 0x40, z = 2.5, exempt_alone = true }
        admin = { socket = "/tmp/a.sock" }
        "#,
    );
    assert_eq!(flags(&line).unwrap().operation, loaded.operation);
    let siblings = [2, 3, 0, 1].map(|core| Some(CoreId(core))).to_vec();
    let Operation { reactors, sleep_after, policy, .. } = loaded.operation;
    assert_eq!(reactors.topology, Topology::new(CoreId(1), siblings).unwrap());
    assert_eq!(policy.parameters, pairs(&[("window", "64"), ("z", "2.5"), ("exempt_alone", "true")]));
    assert_eq!(sleep_after, SleepAfter::Never);
}

#[test]
fn parameters_are_set_in_the_order_of_the_file() {
    let loaded = file("[policy]\nwindow = 64\nguards = \"recommended\"\nmin_requests = 3\n");
    let keys: Vec<String> = loaded.operation.policy.parameters.into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["window", "guards", "min_requests"]);
}

#[test]
fn a_socket_path_is_relative_to_its_file_or_none() {
    let config_dir = ConfigDir::new();
    let loaded = config_dir.load(&format!("[admin]\nsocket = \"a.sock\"\n{SUBSYSTEM}")).unwrap();
    assert_eq!(
        loaded.operation.admin_socket,
        Some(AdminSocket { path: config_dir.path().join("a.sock"), is_explicit: true, read_group: None })
    );
    assert_eq!(flags(&["--admin-socket=none"]).unwrap().operation.admin_socket, None);
}

#[test]
fn the_page_is_on_loopback_with_its_token_beside_the_control_socket() {
    use crate::config::{Page, PageAddress, TokenFile};
    let page = |line: &[&str]| flags(line).unwrap().operation.page;
    assert_eq!(page(&[]), None);
    assert_eq!(page(&["--page=none"]), None);
    let expected = Page {
        listen: PageAddress::Tcp("127.0.0.1:9809".parse().unwrap()),
        hosts: Vec::new(),
        token: TokenFile::Generated("/run/pilotlight/pilotlight.page-token".into()),
        tick: std::time::Duration::from_secs(1),
    };
    assert_eq!(page(&["--page=9809"]), Some(expected.clone()));
    let unix = Page { listen: PageAddress::Unix("/run/a.sock".into()), ..expected };
    assert_eq!(page(&["--page=unix:/run/a.sock"]), Some(unix));
    let configured = page(&["--page=9809", "--admin-socket=none", "--page-token-file=/etc/token"]).unwrap();
    assert_eq!(configured.token, TokenFile::Configured("/etc/token".into()));
    let hosts = file("[page]\nlisten = \"9809\"\nhosts = [\"Storage1.example.com\"]\n").operation.page.unwrap().hosts;
    assert_eq!(hosts, ["storage1.example.com"]);
}

#[test]
fn page_options_are_checked() {
    let output =
        |line: &[&str]| flags(line).map_or_else(|refused| refused.render(false), |loaded| loaded.warnings(false));
    for (line, expected) in [
        (&["--page=192.0.2.7:9809"][..], "is not encrypted"),
        (&["--page=example.com:9809"], "is not an address for the page"),
        (&["--page=unix:"], "names no socket"),
        (&["--page=9809", "--admin-socket=none"], "--page-token-file"),
        (&["--page-token-file=a"], "no page is served"),
    ] {
        assert!(output(line).contains(expected), "{line:?}: {}", output(line));
    }
    let config_dir = ConfigDir::new();
    let host = config_dir.output(&format!("[page]\nlisten = \"9809\"\nhosts = [\"a:80\"]\n{SUBSYSTEM}"));
    assert!(host.contains("not a name of a machine"), "{host}");
}

#[test]
fn reactors_for_tests_are_warned_about_and_have_an_io_thread_each() {
    let loaded = flags(&["--reactors=8"]).unwrap();
    expect![[r#"
        warning: --reactors: 8 reactors without cores of their own: this is for tests
          = they share the CPUs, and their siblings are artificial; measurements are not valid
    "#]]
    .assert_eq(&loaded.warnings(false));
    assert_eq!((loaded.config.io_threads, loaded.config.cores.len()), (8, 0));
    assert!(loaded.operation.reactors.is_test_mode());
    assert_eq!(loaded.operation.reactors.topology, Topology::paired(8).unwrap());
    assert_eq!(file("server = { reactors = 8 }").operation.reactors, loaded.operation.reactors);
    assert_eq!(flags(&["--reactors=8", "--io-threads=3"]).unwrap().config.io_threads, 3);
}

#[test]
fn queues_or_hosts_are_bound_to_io_threads() {
    let of = |flag: &str| flags(&[flag]).unwrap().config.placement;
    assert_eq!([of("--placement=queue"), of("--placement=host")], [QueuePlacement::Queue, QueuePlacement::Host]);
    let refused = flags(&["--placement=core"]).unwrap_err().render(false);
    assert!(refused.contains("use queue or host"), "{refused}");
}

#[test]
fn reactors_for_tests_have_no_cores() {
    refused_flags(
        &["--reactors=8", "--cores=0-1"],
        expect![[r#"
            error: --cores: cannot be used together with --reactors
              = in test mode reactors have no cores of their own: omit --reactors, or --cores
            warning: --reactors: 8 reactors without cores of their own: this is for tests
              = they share the CPUs, and their siblings are artificial; measurements are not valid
        "#]],
    );
    refused_flags(
        &["--reactors=0"],
        expect![[r#"
            error: --reactors: 0 reactors
              = use 1 to 256
        "#]],
    );
    refused(
        "[server]\nmain_core = 1\nreactors = 1000\n",
        expect![[r#"
            error: server.main_core: cannot be used together with reactors
             --> server.toml:2:13
              |
            2 | main_core = 1
              |             ^
              = in test mode reactors have no cores of their own: omit reactors, or main_core
            error: server.reactors: 1000 reactors
             --> server.toml:3:12
              |
            3 | reactors = 1000
              |            ^^^^
              = use 1 to 256
        "#]],
    );
}

#[test]
fn policies_that_are_none() {
    refused(
        "[policy]\nname = \"sandmen\"\nwindow = 3\n",
        expect![[r#"
            error: policy.name: there is no policy `sandmen`
             --> server.toml:2:8
              |
            2 | name = "sandmen"
              |        ^^^^^^^^^
              = did you mean `sandman`? policies: static, interrupt, governor, dynamic, hybrid-poll, sandman, adaptive, pass, thunderbolt, rapl-only, cpu-bandwidth, cpu-jailing, ssd-bandwidth, pacer, pg, dvfs, ondemand, native, ssd-apst
        "#]],
    );
    refused_flags(
        &["--policy=conservative"],
        expect![[r#"
            error: --policy: there is no policy `conservative`
              = policies: static, interrupt, governor, dynamic, hybrid-poll, sandman, adaptive, pass, thunderbolt, rapl-only, cpu-bandwidth, cpu-jailing, ssd-bandwidth, pacer, pg, dvfs, ondemand, native, ssd-apst
        "#]],
    );
}

#[test]
fn parameters_that_a_policy_does_not_have() {
    refused(
        "[policy]\nname = \"sandman\"\nwindw = 64\n",
        expect![[r#"
            error: policy.windw: policy sandman has no parameter `windw`
             --> server.toml:3:1
              |
            3 | windw = 64
              | ^^^^^
              = did you mean window? There are: variant, [...]
        "#]],
    );
    refused(
        "[policy]\nname = \"static\"\nwindow = 64\n",
        expect![[r#"
            error: policy.window: policy static has no parameter `window`
             --> server.toml:3:1
              |
            3 | window = 64
              | ^^^^^^
              = it has no parameters
        "#]],
    );
    refused_flags(
        &["--policy-set=frequency=3"],
        expect![[r#"
            error: --policy-set: policy sandman has no parameter `frequency`
              = There are: variant, [...]
        "#]],
    );
    refused_flags(
        &["--policy-set=window"],
        expect![[r#"
            error: --policy-set: `window` is not an assignment: write KEY=VALUE, such as window=64
        "#]],
    );
    refused_flags(
        &["--policy-set=window=64", "--policy-set=window=32"],
        expect![[r#"
        error: --policy-set: window is a duplicate
    "#]],
    );
}

#[test]
fn values_that_a_parameter_cannot_have() {
    refused(
        "[policy]\nwindow = 1\n",
        expect![[r#"
            error: policy.window: `1` is not a value of window
             --> server.toml:2:10
              |
            2 | window = 1
              |          ^
              = write a whole number from 2 to 1024
        "#]],
    );
    refused(
        "[policy]\nwindow = [1]\n",
        expect![[r#"
        error: policy.window: expected a string, a number or a boolean, found an array
         --> server.toml:2:10
          |
        2 | window = [1]
          |          ^^^
    "#]],
    );
    refused(
        "[policy]\nhealthy_threshold = \"20%\"\n",
        expect![[r#"
            error: policy: idle_threshold (40%) must not be above healthy_threshold (20%); the paper keeps it at half of it
             --> server.toml:1:1
              |
            1 | [policy]
              | ^^^^^^^^
              = change one of the two
        "#]],
    );
    refused(
        "policy = \"sandman\"\n",
        expect![[r#"
        error: policy: expected a table headed [policy], found a string
         --> server.toml:1:10
          |
        1 | policy = "sandman"
          |          ^^^^^^^^^
    "#]],
    );
}

#[test]
fn invalid_idle_timeouts() {
    refused(
        "[server]\nsleep_after = \"soon\"\n",
        expect![[r#"
            error: server.sleep_after: `soon` is not a duration: write a number and a unit, such as 10s (us, ms, s, min, h)
             --> server.toml:2:15
              |
            2 | sleep_after = "soon"
              |               ^^^^^^
              = or write never or policy
        "#]],
    );
    refused_flags(
        &["--sleep-after=1us"],
        expect![[r#"
        error: --sleep-after: an idle timeout of 1us
          = use 10us to 1h, never or policy
    "#]],
    );
}

#[test]
fn sockets_that_cannot_be() {
    let long = format!("--admin-socket=/tmp/{}", "x".repeat(110));
    refused_flags(
        &[&long],
        expect![[r#"
        error: --admin-socket: /tmp/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx has 115 bytes, and a socket's path at most 107
          = choose a shorter path, or none
    "#]],
    );
    refused_flags(
        &["--admin-socket=/"],
        expect![[r#"
        error: --admin-socket: `/` names no socket
          = write a path such as /run/pilotlight/a.sock, or none
    "#]],
    );
}
