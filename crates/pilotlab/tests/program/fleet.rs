//! `pilotlab fleet` with three real `etcd` processes: what it shows, changes and refuses, and its errors without etcd.

#[path = "../../../fleet/tests/support/etcd.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
pub(crate) mod etcd;

use std::os::unix::fs::PermissionsExt;
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::etcd::{Cluster, Member, Meter, W, certificates, rack, rack_again, wait_for};
use super::process::{command, text};

const FLOOR_UW: u64 = 20 * W;
const FULL_UW: u64 = 150 * W;

/// Runs `pilotlab fleet` for the rack `r`; etcd's addresses are in the environment.
fn fleet(cluster: &Cluster, args: &[&str]) -> Output {
    let mut command = command(&[&["fleet", "r"], args].concat());
    command.env("PILOTLIGHT_ETCD", cluster.etcd.endpoints.join(",")).output().unwrap()
}

/// It succeeds without a message; returns what it prints.
fn succeeds(cluster: &Cluster, args: &[&str]) -> String {
    let output = fleet(cluster, args);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{args:?}");
    text(&output.stdout)
}

/// It ends with this code and prints nothing but one message, which has these parts.
fn fails(cluster: &Cluster, args: &[&str], code: i32, parts: &[&str]) {
    let output = fleet(cluster, args);
    let message = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(code), ""), "{args:?}: {message}");
    assert_eq!(message.lines().count(), 1, "{args:?}: {message}");
    assert!(!message.contains("Error("), "names of the implementation: {message}");
    for part in parts {
        assert!(message.contains(part), "{args:?}: `{part}` is missing: {message}");
    }
}

/// It fails with a message that has these parts; repeated, because on a busy machine the time limit can end first.
fn fails_at_last(cluster: &Cluster, args: &[&str], parts: &[&str]) {
    wait_for(&format!("{args:?} fails with {parts:?}"), || {
        let output = fleet(cluster, args);
        let message = text(&output.stderr);
        let is_met = output.status.code() == Some(1) && parts.iter().all(|part| message.contains(part));
        if !is_met {
            eprintln!("not expected: {message}");
        }
        is_met
    });
}

/// What it shows as JSON, and the exit code.
fn shown(cluster: &Cluster) -> (Value, Option<i32>) {
    let output = fleet(cluster, &["--json"]);
    let value = serde_json::from_slice(&output.stdout);
    (value.unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr))), output.status.code())
}

/// Waits until it prints this with the exit code 0. A server whose lease ends on a busy machine has its floor for a moment.
fn wait_for_text(cluster: &Cluster, args: &[&str], is_expected: impl Fn(&str) -> bool) {
    let mut last = String::new();
    wait_for("the expected text, after other ones", || {
        let output = fleet(cluster, args);
        let printed = text(&output.stdout);
        let is_met = output.status.success() && is_expected(&printed);
        if !is_met && printed != last {
            eprintln!("not expected: {printed}{}", text(&output.stderr));
            last = printed;
        }
        is_met
    });
}

/// A server in that; null if it is not there.
fn server<'a>(value: &'a Value, name: &str) -> &'a Value {
    let servers = value["members"].as_array().unwrap();
    servers.iter().find(|server| server["name"] == name).unwrap_or(&Value::Null)
}

/// A running server of the rack.
fn start_server(cluster: &Cluster) -> Member {
    Member::start(cluster, &Meter::new(), "a", (FLOOR_UW, FULL_UW), 900)
}

#[test]
fn a_budget_is_set_and_servers_are_shown() {
    let Some(cluster) = Cluster::start() else { return };
    wait_for("etcd answers", || fleet(&cluster, &["--json"]).status.code() != Some(1));
    let (value, code) = shown(&cluster);
    assert_eq!((&value["budget_uw"], &value["leader"], code), (&Value::Null, &Value::Null, Some(3)), "{value}");
    let output = fleet(&cluster, &[]);
    let printed = text(&output.stdout);
    assert!(printed.starts_with("r: budget none, shares 0.0 W, drawn 0.0 W; leader nobody\n"), "{printed}");
    assert!(printed.contains("no budget is set") && printed.contains("`pilotlab fleet RACK budget 10kW`"), "{printed}");
    assert_eq!(output.status.code(), Some(3));

    fails(&cluster, &["budget", "300"], 1, &["`300` is not a power", "300W"]);
    assert_eq!(shown(&cluster).0["budget_uw"], Value::Null);
    assert_eq!(succeeds(&cluster, &["budget", "300W"]), "");
    assert_eq!(rack_again(&cluster).read().unwrap().budget_uw, Some(300 * W));

    let _member = start_server(&cluster);
    let a = json!({
        "name": "a", "running": true, "floor_uw": FLOOR_UW, "full_uw": FULL_UW, "share_uw": FULL_UW,
        "next_share_uw": FULL_UW, "share_by_size_uw": FULL_UW, "measured_uw": FULL_UW, "source": "modelled: a test",
        "priority": 0, "bottleneck": null,
    });
    let expected = json!({
        "format": 1, "rack": "r", "budget_uw": 300 * W, "leader": "a", "members": [a], "problems": [],
    });
    wait_for_text(&cluster, &["--json"], |printed| serde_json::from_str::<Value>(printed).unwrap() == expected);
    let expected = [
        "r: budget 300.0 W, shares 150.0 W, drawn 150.0 W; leader a",
        "",
        "server drawn W share W headroom W next W floor W full W takes W priority limit source",
        "a 150.0 150.0 +0.0 - 20.0 150.0 +0.0 0 - modelled: a test",
        "",
    ];
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    wait_for_text(&cluster, &[], |printed| printed.lines().map(words).eq(expected));
}

#[test]
fn floors_are_reserved_and_forgotten() {
    let Some(cluster) = Cluster::start() else { return };
    drop(rack(&cluster)); // with a budget of 300 W
    let member = start_server(&cluster);
    wait_for_text(&cluster, &[], |printed| printed.starts_with("r: budget 300.0 W, shares 150.0 W"));
    let began = Instant::now();
    fails(&cluster, &["reserve", "b", "400W"], 3, &["reserved", "120.0 W", "raise", "`pilotlab fleet r forget b`"]);
    assert!(began.elapsed() < Duration::from_secs(30), "it does not wait: others have nothing to give");
    let (value, code) = shown(&cluster);
    let b = server(&value, "b");
    assert_eq!((&b["running"], &b["floor_uw"], code), (&json!(false), &json!(400 * W), Some(3)), "{value}");
    let problems = value["problems"].as_array().unwrap();
    assert!(problems.iter().any(|one| one["problem"].as_str().is_some_and(|why| why.contains("120.0 W"))), "{value}");
    fails(&cluster, &["reserve", "b", "10W"], 1, &["b is known already"]);

    assert_eq!(succeeds(&cluster, &["forget", "b"]), "");
    let (value, code) = shown(&cluster);
    assert_eq!((server(&value, "b"), code), (&Value::Null, Some(0)), "{value}");
    fails(&cluster, &["forget", "b"], 1, &["b is not known in this rack"]);
    fails(&cluster, &["reserve", "b/c", "10W"], 1, &["`b/c` is not a name"]);
    wait_for("a server that runs is not forgotten", || {
        let output = fleet(&cluster, &["forget", "a"]);
        text(&output.stderr).contains("a is running: stop it") && output.status.code() == Some(1)
    });

    // it ends once there is room
    assert_eq!(succeeds(&cluster, &["reserve", "b", "200W"]), "");
    assert!(member.share_uw() <= 100 * W, "{}", member.share_uw());
    drop(member);
    assert_eq!(succeeds(&cluster, &["forget", "a"]), "");
    assert_eq!(server(&shown(&cluster).0, "a"), &Value::Null);
}

/// It waits for half a minute; that others need longer changes nothing here.
#[test]
#[ignore = "slow: .ci/run test runs it"]
fn a_reservation_reports_power_that_others_do_not_give_back() {
    const MOST_UW: u64 = 280 * W;
    let Some(cluster) = Cluster::start() else { return };
    let mut rack = rack(&cluster);
    let silent = json!({
        "format": 1, "session": 99, "floor_uw": FLOOR_UW, "full_uw": MOST_UW, "measured_uw": FLOOR_UW, "source": "",
        "priority": 9, "curve": [[FLOOR_UW, 0], [MOST_UW, 900]], "applied": 0, "in_force_uw": MOST_UW,
    });
    if cluster.etcdctl(&["put", "/pilotlight/r/status/silent", &silent.to_string()]).is_none() {
        return;
    }
    let leader = start_server(&cluster);
    wait_for("the server that confirms nothing has all that floors leave", || {
        let grants = rack.read().unwrap().grants;
        let bounds_uw = ["silent", "a"].map(|name| grants.get(name).map(|grant| grant.bound_uw));
        bounds_uw == [Some(MOST_UW), Some(FLOOR_UW)]
    });
    let message = ["reserved, but 100.0 W are not free yet", "start the server once", "or raise the budget"];
    fails(&cluster, &["reserve", "b", "100W"], 3, &message);
    assert_eq!(leader.share_uw(), FLOOR_UW);
}

#[test]
#[ignore = "slow: .ci/run test runs it"]
fn without_etcd_the_message_says_what_to_check() {
    let Some(cluster) = Cluster::start() else { return };
    drop(rack(&cluster));
    for signal in ["-STOP", "-KILL"] {
        cluster.signal(&[0, 1, 2], signal);
        for args in [&["--json"][..], &["budget", "300W"]] {
            fails(&cluster, args, 1, &["error: etcd", "check its addresses", "`etcdctl endpoint health`"]);
        }
    }
    fails_at_last(&cluster, &[], &["Connection refused"]);
    fails(&cluster, &["--etcd", "http://a b"], 1, &["write addresses such as http://"]);
    let output = command(&["fleet", "r"]).env_remove("PILOTLIGHT_ETCD").output().unwrap();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("--etcd http://ADDRESS:2379, or PILOTLIGHT_ETCD"), "{message}");
}

#[test]
fn certificates_are_options() {
    let Some(folder) = certificates() else { return };
    let Some(cluster) = Cluster::start_with(Some(folder.path())) else { return };
    drop(rack(&cluster));
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (ca, cert, key) = (file("ca.pem"), file("cert.pem"), file("key.pem"));
    let (ca, pair) = (["--ca", ca.as_str()], ["--cert", cert.as_str(), "--key", key.as_str()]);
    assert_eq!(succeeds(&cluster, &[&["budget", "250W"][..], &ca, &pair].concat()), "");
    assert!(succeeds(&cluster, &[&ca[..], &pair].concat()).starts_with("r: budget 250.0 W"));
    fails(&cluster, &pair, 1, &["https://127.", "needs --ca FILE"]);
    fails_at_last(&cluster, &ca, &["error: etcd", "check its addresses", "certificates"]);
    fails_at_last(
        &cluster,
        &[&["--ca", pair[1]][..], &pair].concat(),
        &["error: etcd: invalid peer certificate", "check"],
    );
    std::fs::set_permissions(folder.path().join("cert.pem"), PermissionsExt::from_mode(0o600)).unwrap();
    let damaged = ["--cert", cert.as_str(), "--key", cert.as_str()];
    fails(&cluster, &[&ca[..], &damaged].concat(), 1, &["error: etcd: cannot connect", "certificates"]);
    fails(&cluster, &["--ca", &file("none.pem")], 1, &["cannot read", "none.pem", "No such file"]);
    let output = fleet(&cluster, &[&ca[..], &pair[..2]].concat());
    assert_eq!(output.status.code(), Some(2), "a certificate without its key");
}

#[test]
fn users_are_options() {
    let Some(cluster) = Cluster::start() else { return };
    drop(rack(&cluster));
    if cluster.enable_users().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, password: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, password).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (right, wrong) = (file("right", "hidden\n"), file("wrong", "guessed\n"));
    let with = |file| ["--user", "root", "--password-file", file];
    assert!(succeeds(&cluster, &with(&right)).starts_with("r: budget 300.0 W"));
    for options in [&with(&wrong)[..], &[]] {
        fails(&cluster, options, 1, &["error: etcd", "user", "check the user, its password and its roles"]);
    }
}
