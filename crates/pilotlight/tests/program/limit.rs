//! The limit of all budgets, which ends at a deadline: the floor holds at the start, after a deadline and after a restart.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Server, run, text, wait_for};

const W: u64 = 1_000_000;

/// A folder with the configuration of a server whose floor is 120 W, without one if `goals` says so.
fn configuration(goals: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (socket, state) = (dir.path().join("control.sock"), dir.path().join("state.json"));
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nreactors = 1\nsensor = \"modelled\"\n[goals]\n{goals}\n[admin]\nsocket = {socket:?}\n\
         state = {state:?}\n[[subsystem]]\nnqn = \"nqn.2024-05.com.example:disks\"\n[[subsystem.namespace]]\nnsid = 1\nbackend = \"mem:1MiB\"\n"
    );
    let path = dir.path().join("server.toml");
    fs::write(&path, text).unwrap();
    (dir, path)
}

fn start(path: &Path) -> Server {
    Server::start(&["--config", path.to_str().unwrap()])
}

/// `CLOCK_BOOTTIME` in seconds.
fn boottime_s() -> f64 {
    fs::read_to_string("/proc/uptime").unwrap().split(' ').next().unwrap().parse().unwrap()
}

/// The limit and the budget in force, in watts, and the source of the budget.
fn in_force(server: &Server) -> (u64, u64, String) {
    let status = server.request(&["status"]);
    let watts = |value: &Value| value.as_u64().unwrap_or(0) / W;
    let origin = status["budget"]["origin"].as_str().unwrap_or_default().to_owned();
    (watts(&status["limit"]["power_uw"]), watts(&status["goals"]["budget_uw"]), origin)
}

fn expect(server: &Server, what: &str, limit_w: u64, budget_w: u64, origin: &str) {
    let mut last = (0, 0, String::new());
    wait_for(&format!("{what}: {limit_w} W, {budget_w} W by {origin}"), || {
        last = in_force(server);
        last == (limit_w, budget_w, origin.to_owned())
    });
}

/// Sets a limit for a while; the deadline.
fn set(server: &Server, power: &str, for_s: f64, then: &str) -> f64 {
    let until_s = boottime_s() + for_s;
    let limit = server.request(&["set", "budget", power, "until", &format!("{until_s:.3}"), "then", then]);
    assert!(limit["valid_for_ns"].as_u64().is_some_and(|ns| ns as f64 <= for_s * 1e9), "{limit}");
    until_s
}

#[test]
fn a_limit_ends_at_its_deadline_and_a_restart_leads_to_the_floor() {
    let (_dir, path) = configuration("floor = \"120W\"");
    let mut server = start(&path);
    expect(&server, "the start", 120, 120, "limit");
    set(&server, "300W", 3_600.0, "110W");
    expect(&server, "a limit", 300, 300, "limit");
    assert!(text(&server.admin(&["status"]).stdout).contains("then 110W"));
    assert_eq!(server.admin(&["set", "budget", "200W", "--no-wait"]).status.code(), Some(0));
    expect(&server, "a budget below the limit", 300, 200, "manual");
    assert_eq!(server.admin(&["set", "budget", "400W", "--no-wait"]).status.code(), Some(0));
    expect(&server, "a budget above it", 300, 300, "limit");
    let until_s = set(&server, "310W", 1.0, "100W");
    server.expect_log("the deadline of the budget's limit is past: the limit is 100W");
    assert!(boottime_s() >= until_s, "not before the deadline");
    expect(&server, "after the deadline", 100, 100, "limit");
    let limit = server.request(&["status"])["limit"].clone();
    assert_eq!(
        (&limit["until_boottime_ns"], &limit["settings"], &limit["expiries"]),
        (&Value::Null, &json!(2), &json!(1))
    );
    set(&server, "300W", 3_600.0, "110W");
    server.kill();
    drop(server);
    let mut server = start(&path);
    expect(&server, "a restart", 120, 120, "limit");
    set(&server, "500W", 3_600.0, "110W");
    expect(&server, "the first limit after it", 500, 400, "manual");
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
}

#[test]
fn a_server_that_was_paused_beyond_the_deadline_goes_on_at_the_floor() {
    let (_dir, path) = configuration("floor = \"120W\"");
    let server = start(&path);
    let until_s = set(&server, "300W", 2.0, "110W");
    server.signal("STOP");
    wait_for("the deadline", || boottime_s() > until_s);
    server.signal("CONT");
    server.expect_log("the deadline of the budget's limit is past");
    expect(&server, "continued", 110, 110, "limit");
}

#[test]
fn wrong_deadlines_are_refused() {
    let (_dir, path) = configuration("floor = \"120W\"");
    let server = start(&path);
    let late = format!("{:.3}", boottime_s() - 1.0);
    for (words, code, expected) in [
        (&["until", &late, "then", "100W"][..], 2, "the deadline was 1"),
        (&["until", "1800000000", "then", "100W"], 2, "more than a day"),
        (&["until", "1800000000", "then", "off"], 2, "then: expected a power such as 120W"),
        (&["until", "12:00", "then", "100W"], 1, "write seconds of CLOCK_BOOTTIME, such as $(awk"),
        (&["until", &late], 1, "or `until DEADLINE then POWER`"),
        (&["until", &late, "then", "100W", "--strict"], 1, "omit --domain, --dry-run and --strict"),
    ] {
        let refused = server.admin(&[&["set", "budget", "300W"], words].concat());
        let message = text(&refused.stderr);
        assert!(message.contains(expected) && refused.status.code() == Some(code), "{words:?}: {message}");
    }
    assert_eq!(in_force(&server), (120, 120, "limit".to_owned()));
    let (_dir, path) = configuration("budget = \"400W\"");
    let server = start(&path);
    let soon = format!("{:.3}", boottime_s() + 60.0);
    let refused = server.admin(&["set", "budget", "300W", "until", &soon, "then", "100W"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("add `floor = \"120W\"` to [goals]"), "{}", text(&refused.stderr));
    assert_eq!(server.request(&["status"])["limit"], Value::Null);
}

#[test]
fn counters_have_power_and_the_limit() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let (_dir, path) = configuration("floor = \"120W\"");
    let server = start(&path);
    let mut stream = BufReader::new(std::os::unix::net::UnixStream::connect(server.socket()).unwrap());
    let mut counters = Value::Null;
    wait_for("a window of power", || {
        stream.get_mut().write_all(b"{\"version\":1,\"command\":\"counters\"}\n").unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        counters = serde_json::from_str::<Value>(&line).unwrap()["ok"].clone();
        counters["power"]["power_uw"].is_u64()
    });
    assert!(counters["source"].as_str().is_some_and(|source| source.starts_with("modelled")), "{counters}");
    assert_eq!((&counters["limit"]["power_uw"], &counters["bottleneck"]), (&json!(120 * W), &Value::Null));
    assert!(counters["power"]["began_ns"].as_u64() < counters["now_ns"].as_u64(), "{counters}");
    let metrics = text(&run(&["status", "--metrics", "--socket", server.socket().to_str().unwrap()]).stdout);
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics-server.md");
    let reference = fs::read_to_string(reference).unwrap();
    let names = reference.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let names: Vec<&str> = names.filter(|name| name.starts_with("pilotlight_budget_limit_")).collect();
    assert_eq!(names.len(), 5, "{names:?}");
    for name in names {
        assert!(metrics.lines().any(|line| line.starts_with(&format!("{name} "))), "{name} is missing: {metrics}");
    }
}
