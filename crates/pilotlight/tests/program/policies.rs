//! Policies of a running server: changed under load, and on more reactors than the machine has cores.

use std::process::Child;

use serde_json::Value;

use crate::process::{Server, spawn, text};

/// Eight reactors on any machine.
const MANY: [&str; 6] = ["--listen", "127.0.0.1:0", "--namespace", "mem:64MiB", "--reactors", "8"];

fn load(server: &Server, args: &str) -> Child {
    let target = server.address().to_string();
    let all: Vec<&str> = ["load", "--yield", "--target", &target].into_iter().chain(args.split_whitespace()).collect();
    spawn(&all)
}

/// Ends the load as Ctrl-C does; returns its report, without errors.
fn end(load: Child) -> Value {
    rustix::process::kill_process(rustix::process::Pid::from_child(&load), rustix::process::Signal::INT).unwrap();
    let output = load.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn stop(mut load: Child) {
    load.kill().unwrap();
    load.wait().unwrap();
}

fn is_asleep(reactor: &Value) -> bool {
    reactor["state"] != "awake"
}

fn asleep(status: &Value) -> usize {
    status["reactors"].as_array().unwrap().iter().filter(|reactor| is_asleep(reactor)).count()
}

/// Pairs of siblings that both sleep.
fn sleeping_pairs(status: &Value) -> usize {
    let reactors = status["reactors"].as_array().unwrap();
    reactors.chunks(2).filter(|pair| pair.iter().all(is_asleep)).count()
}

#[test]
fn policies_change_under_load_without_lost_requests() {
    let server = Server::start(&MANY);
    let load = load(&server, "--rw randrw --verify --iodepth 8 --numjobs 4 --runtime 600 --size 16m --json");
    let serves = |status: &Value| status["io"]["iops"].as_f64().unwrap() > 0.0;
    server.status_until("the load has begun", serves);
    for policy in ["static", "interrupt", "sandman", "interrupt", "static", "sandman"] {
        let set = server.request(&["set", "policy", policy]);
        assert_eq!(set["name"], policy);
        let status = server.status_until("requests continue", serves);
        assert_eq!(status["policy"]["name"], policy);
    }
    let refused = server.admin(&["set", "policy", "sandman", "windw=3"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("windw") && text(&refused.stderr).contains("did you mean window?"));
    server.request(&["set", "policy", "sandman", "window=64", "spread=deviation"]);
    server.status_until("requests continue", serves);
    let report = end(load);
    assert!(report["total"]["ios"].as_u64().unwrap() > 0);
    assert_eq!((&report["verify"]["mismatches"], &report["total"]["errors"]), (&0.into(), &0.into()), "{report}");
}

#[test]
fn static_wakes_the_cores_that_sandman_left_asleep() {
    let server = Server::start(&MANY);
    server.status_until("a quiet server sleeps", |status| asleep(status) >= 7);
    server.request(&["set", "policy", "static"]);
    server.status_until("static wakes every core", |status| {
        let reactors = status["reactors"].as_array().unwrap();
        asleep(status) == 0 && reactors.iter().all(|reactor| reactor["io_threads"].as_array().unwrap().len() == 1)
    });
    server.request(&["set", "policy", "sandman"]);
    server.status_until("sandman lets them sleep", |status| asleep(status) >= 7);
}

#[test]
fn eight_reactors_consolidate_and_spread() {
    // on a busy machine several requests may arrive together, which is not a burst here
    let calm = [
        "--policy-set",
        "min_requests=16",
        "--policy-set",
        "spread=deviation",
        "--policy-set",
        "coarse_interval=200ms",
    ];
    let server = Server::start(&[&MANY[..], &calm].concat());
    let quiet = server.status_until("workers of a quiet server sleep", |status| {
        let reactors = status["reactors"].as_array().unwrap();
        reactors[1..].iter().all(is_asleep)
    });
    assert_eq!(quiet["server"]["test_mode"], true);
    assert!(sleeping_pairs(&quiet) >= 3, "{quiet:#}");
    let siblings: Vec<u64> =
        quiet["reactors"].as_array().unwrap().iter().map(|reactor| reactor["sibling"].as_u64().unwrap()).collect();
    assert_eq!(siblings, [1, 0, 3, 2, 5, 4, 7, 6]);
    assert_eq!(quiet["reactors"][0]["io_threads"], serde_json::json!([0, 1, 2, 3, 4, 5, 6, 7]));

    let light = load(&server, "--rate_iops 100 --runtime 600");
    let lightly = server.status_until("a light load leaves most cores asleep, siblings together", |status| {
        status["io"]["iops"].as_f64().unwrap() > 10.0 && asleep(status) >= 4 && sleeping_pairs(status) >= 2
    });
    assert!(lightly["io"]["latency"]["p99_ns"].as_u64().unwrap() > 0);
    stop(light);

    server.request(&["set", "policy", "sandman", "coarse_interval=200ms"]);
    let heavy = load(&server, "--iodepth 32 --numjobs 8 --threads 2 --runtime 600");
    let spread = server.status_until("parallel load wakes several cores", |status| asleep(status) <= 4);
    assert!(spread["commands"]["wakes"]["since_start"].as_u64().unwrap() > 0, "{spread:#}");
    stop(heavy);
    let again = server.status_until("and when it is over they sleep again", |status| asleep(status) >= 7);
    assert!(again["commands"]["moves"]["since_start"].as_u64().unwrap() > 0);
}

/// An entry of the policy's view.
fn seen<'a>(status: &'a Value, name: &str) -> &'a str {
    let view = status["policy"]["view"].as_array().unwrap();
    view.iter().find(|seen| seen["name"] == name).and_then(|seen| seen["value"].as_str()).unwrap_or_default()
}

#[test]
fn pacer_reports_loss_and_baseline_under_verified_load() {
    let server = Server::start(&["--listen", "127.0.0.1:0", "--namespace", "mem:64MiB", "--reactors", "3"]);
    // short, and with thresholds that latency on a busy machine stays below
    let settings = [
        "interval=20ms",
        "window=50ms",
        "windows=2",
        "min_requests=1",
        "stable_threshold=99%",
        "unstable_threshold=100%",
        "busy_threshold=100%",
        "use_limit=99%",
        "idle_after=200ms",
    ];
    let set = server.request(&[&["set", "policy", "pacer"], &settings[..]].concat());
    assert_eq!(set["name"], "pacer");
    assert_eq!(server.request(&["set", "tolerance", "0.2"])["tolerances"][0]["loss_ppm"], 200_000);
    server.status_until("a core leaves an idle server", |status| seen(status, "state") == "idle" && asleep(status) > 0);
    let load = load(
        &server,
        "--rw randrw --verify --iodepth 8 --numjobs 2 --rate_iops 500 --runtime 600 --size 16m --timeout 120s --json",
    );
    let kept = server.status_until("a state with a measured loss and a baseline", |status| {
        seen(status, "loss").ends_with(" %") && seen(status, "baseline_age").ends_with(" s")
    });
    assert_eq!(
        (&kept["policy"]["name"], &kept["goals"]["tolerances"][0]["text"], &kept["goals"]["unused"]),
        (&"pacer".into(), &"20%".into(), &serde_json::json!([])),
        "{kept:#}"
    );
    let printed = text(&server.admin(&["status"]).stdout);
    let line = printed.lines().find(|line| line.starts_with("tolerance is")).unwrap_or_default();
    assert!(["loss ", "baseline ", " old"].iter().all(|words| line.contains(words)), "{printed}");
    let report = end(load);
    assert!(report["total"]["ios"].as_u64().unwrap() > 0);
    assert_eq!((&report["verify"]["mismatches"], &report["total"]["errors"]), (&0.into(), &0.into()), "{report}");
    server.status_until("cores leave again", |status| seen(status, "state") == "idle" && asleep(status) > 0);
}
