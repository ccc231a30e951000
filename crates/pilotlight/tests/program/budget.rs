//! Power budgets of a running server: set, ended, replaced, kept across a restart; and the changes of a killed server.
//!
//! Power is modelled: this machine needs no sensor. Tests that need a CPU quota are skipped with a message if no cgroup is writable.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process::{Server, run, text};

const MEMORY: [&str; 3] = ["--listen=127.0.0.1:0", "--namespace=mem:1MiB", "--sensor=modelled"];

/// A server with these options in addition to [`MEMORY`].
fn start(options: &[&str]) -> Server {
    Server::start(&[&MEMORY[..], options].concat())
}

fn stderr_and_code(output: &Output) -> (String, Option<i32>) {
    (text(&output.stderr), output.status.code())
}

/// A budget as in the response and in the status.
fn budget_of(status: &Value) -> (&Value, &Value, &Value) {
    (&status["goals"]["budget_uw"], &status["budget"]["origin"], &status["budget"]["state"])
}

#[test]
fn goals_are_set_and_unused_ones_are_reported() {
    let server = start(&["--policy=static", "--budget=500W"]);
    let status = server.status_until("a reading", |status| status["power"]["readings"][0]["power_uw"].is_u64());
    assert_eq!(
        (&status["power"]["modelled"], &status["goals"]["unused"]),
        (&json!("sandman-epyc-9454p"), &json!(["budget"]))
    );
    let not_used = json!("not used by the policy");
    let status = server.status_until("a verdict", |status| status["budget"]["state"] == not_used);
    assert_eq!(budget_of(&status), (&json!(500_000_000), &json!("configuration"), &not_used));
    let printed = server.admin(&["set", "budget", "300W"]);
    let message = text(&printed.stdout);
    assert!(message.contains("policy static does not use it") && message.contains("cpu-bandwidth"), "{message}");
    assert_eq!(printed.status.code(), Some(3), "nothing holds it: {message}");
    assert!(
        message.contains(" W (modelled, profile sandman-epyc-9454p)") && message.contains("a restart uses"),
        "{message}"
    );
    let tolerance = |words: &[&str]| server.request(&[&["set", "tolerance"], words].concat())["tolerances"].clone();
    assert_eq!(tolerance(&["20%"])[0]["loss_ppm"], 200_000);
    assert_eq!(tolerance(&["500us", "p99"])[0]["text"], "500us p99");
    assert_eq!(tolerance(&["off"]), json!([]));
    let refused = server.admin(&["set", "budget", "300"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("write a power such as 300W"), "{refused:?}");
    assert_eq!(server.request(&["status"])["goals"]["budget_uw"], 300_000_000);
    assert_eq!(server.request(&["set", "budget", "off"])["budget_uw"], Value::Null);
    assert_eq!(server.request(&["set", "budget", "default", "--no-wait", "--dry-run"])["budget_uw"], 500_000_000);
}

#[test]
fn a_dry_run_changes_nothing_and_strict_refuses_unusable_budgets() {
    let server = start(&["--policy=static"]);
    server.status_until("a reading", |status| status["power"]["readings"][0]["power_uw"].is_u64());
    let dry = text(&server.admin(&["set", "budget", "20W", "for", "2h", "--dry-run"]).stdout);
    for words in
        ["nothing is changed: budget 20W instead of off of the CPU packages", "until 20", "would have to be cut by"]
    {
        assert!(dry.contains(words), "no `{words}` in {dry}");
    }
    assert_eq!(server.request(&["status"])["goals"]["budget_uw"], Value::Null);
    let (why, code) = stderr_and_code(&server.admin(&["set", "budget", "300W", "--strict"]));
    assert!(code == Some(2) && why.contains("policy static does not use a budget"), "{why}");
    for (words, why) in [
        (&["budget", "300W", "until", "2h"][..], "`for 2h`"),
        (&["budget", "300W", "for", "2"], "for: `2` is not a duration"),
        (&["budget", "300W", "for", "1ms"], "for: a budget holds for a second"),
        (&["budget", "default", "for", "2h"], "`default` has no end"),
        (&["budget", "300W", "--domain", "server"], "domain: no sensor measures the domain server"),
        (&["budget", "300W", "--domain", "rack"], "domain: `rack` is not a domain"),
    ] {
        let (message, code) = stderr_and_code(&server.admin(&[&["set"], words].concat()));
        assert!(code != Some(0) && message.contains(why), "{words:?}: {message}");
    }
    assert_eq!(server.request(&["status"])["goals"]["budget_uw"], Value::Null);
}

#[test]
fn the_configured_budget_applies_after_a_manual_one_expires() {
    let server = start(&["--policy=static", "--budget=500W"]);
    let set = server.request(&["set", "budget", "300W", "for", "2s", "--no-wait"]);
    let until_s = set["budget"]["until_unix_s"].as_u64().expect("an end");
    let status = server.status_until("the end", |status| status["goals"]["budget_uw"] == 500_000_000);
    let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(now_s >= until_s, "{now_s} {until_s}");
    assert_eq!(budget_of(&status).1, "configuration");
    server.expect_log("the time of the budget that was set manually is over");
}

#[test]
fn without_a_sensor_a_budget_is_refused_with_a_remedy() {
    let refused = run(&[
        "serve",
        "--listen=127.0.0.1:0",
        "--namespace=mem:1MiB",
        "--sensor=none",
        "--budget=300W",
        "--admin-socket=none",
    ]);
    let (why, code) = stderr_and_code(&refused);
    assert!(code == Some(1) && why.contains("needs a sensor of power") && why.contains("--sensor modelled"), "{why}");
    let checked = run(&[
        "serve",
        "--check",
        "--listen=127.0.0.1:0",
        "--namespace=mem:1MiB",
        "--sensor=none",
        "--budget=300W",
        "--admin-socket=none",
    ]);
    assert_eq!(checked.status.code(), Some(2), "{}", text(&checked.stderr));
    let server = Server::start(&["--listen=127.0.0.1:0", "--namespace=mem:1MiB", "--sensor=none"]);
    let (why, code) = stderr_and_code(&server.admin(&["set", "budget", "300W"]));
    assert!(code == Some(2) && why.contains("--sensor modelled"), "{why}");
}

#[test]
fn overrides_survive_kill_9_until_the_configuration_changes() {
    let folder = tempfile::tempdir().unwrap();
    let state = format!("--state={}", folder.path().join("goals.json").display());
    let options = |budget| ["--policy=static", state.as_str(), budget];
    let mut server = start(&options("--budget=500W"));
    let message = text(&server.admin(&["set", "budget", "300W", "for", "1h"]).stdout);
    assert!(message.contains("kept over a restart in") && message.contains("goals.json"), "{message}");
    server.kill();
    drop(server);
    let mut server = start(&options("--budget=500W"));
    let status = server.request(&["status"]);
    assert_eq!((budget_of(&status).0, budget_of(&status).1), (&json!(300_000_000), &json!("manual")));
    assert!(status["budget"]["until_unix_s"].is_u64());
    server.kill();
    drop(server);
    let server = start(&options("--budget=450W"));
    assert_eq!(server.request(&["status"])["goals"]["budget_uw"], 450_000_000, "the configuration was changed");
}

#[test]
fn a_schedule_applies_and_status_has_its_next_entry() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("budgets.txt");
    fs::write(&file, "2020-01-01T00:00Z 350W\n2099-12-31T23:00Z off\n").unwrap();
    let schedule = format!("--budget-schedule={}", file.display());
    let server = start(&["--policy=static", "--budget=500W", &schedule]);
    let status = server.request(&["status"]);
    assert_eq!((budget_of(&status).0, budget_of(&status).1), (&json!(350_000_000), &json!("schedule")));
    assert_eq!(status["budget"]["next"], json!({ "at_unix_s": 4_102_441_200_u64, "budget": "off" }));
    let printed = text(&server.admin(&["status"]).stdout);
    assert!(printed.contains("schedule; next in the schedule: off from 2099-12-31T23:00Z"), "{printed}");
    fs::write(&file, "2020-01-01T00:00Z 360W\n").unwrap();
    server.signal("HUP");
    server.status_until("the changed file", |status| status["goals"]["budget_uw"] == 360_000_000);
}

/// A profile with large savings: a busy core draws 100 W, everything else 1 W.
fn profile(folder: &Path) -> PathBuf {
    let path = folder.join("made-up.toml");
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (poll, base) = (cpus * 100_000_000 + 1_000_000, 1_000_000);
    let text = format!(
        "name = \"made-up\"\nsource = \"this test\"\ncores = {cpus}\n[power.cpu_uw]\npoll = {poll}\nshallow = {base}\ndeep = {base}\n"
    );
    fs::write(&path, text).unwrap();
    path
}

/// A server whose worker can have a CPU quota; `None` if this machine has none.
fn capped(folder: &Path) -> Option<Server> {
    capped_by(folder, "cpu-bandwidth", &[])
}

/// The same with this policy and these options; the machine is checked with `cpu-bandwidth`.
fn capped_by(folder: &Path, policy: &str, more: &[&str]) -> Option<Server> {
    let sensor = format!("--sensor=modelled:{}", profile(folder).display());
    let options = ["--listen=127.0.0.1:0", "--namespace=mem:1MiB", "--cores=0,1"];
    let check = ["serve", "--check", "--admin-socket=none", "--policy=cpu-bandwidth", &sensor];
    let checked = run(&[&check, &options[..]].concat());
    if !checked.status.success() {
        println!("SKIPPED: {}", text(&checked.stderr));
        return None;
    }
    let policy = format!("--policy={policy}");
    Some(Server::start(&[&options[..], &[&sensor, &policy], more].concat()))
}

/// The quota groups of a process, of version 1 and 2.
fn groups(pid: u64) -> Vec<PathBuf> {
    let name = format!("pilotlight-workers-{pid}");
    let known = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup"];
    let below = |root: &str| -> Vec<PathBuf> {
        let inner = fs::read_dir(root).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
        [PathBuf::from(root)].into_iter().chain(inner).map(|folder| folder.join(&name)).collect()
    };
    known.into_iter().flat_map(below).filter(|path| path.is_dir()).collect()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not seen");
        std::thread::yield_now();
    }
}

#[test]
fn an_unreachable_budget_is_reported_with_the_lowest_power() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = capped(folder.path()) else { return };
    let printed = server.admin(&["set", "budget", "5W"]);
    let message = text(&printed.stdout);
    assert_eq!(printed.status.code(), Some(3), "{message}");
    assert!(
        message.contains("unreachable: applied as far as possible; the floor is") && message.contains("(modelled)"),
        "{message}"
    );
    server.expect_log("the budget of 5W is unreachable");
    let status = server.request(&["status"]);
    assert_eq!((&status["budget"]["state"], &status["budget"]["domain"]), (&json!("unreachable"), &json!("cpu")));
    assert!(status["budget"]["headroom_uw"].as_i64() < Some(0) && status["budget"]["floor_uw"].is_u64(), "{status}");
    assert_eq!(status["budget"]["throttled"][0]["name"], "CPU quota of the worker cores", "{status}");
    // A known violation is refused at once, and nothing is changed.
    let (why, code) = stderr_and_code(&server.admin(&["set", "budget", "6W", "--strict"]));
    assert!(code == Some(2) && why.contains("unreachable") && why.contains("the floor is"), "{why}");
    assert_eq!(server.request(&["status"])["goals"]["budget_uw"], 5_000_000);
    let printed = server.admin(&["set", "budget", "100000W"]);
    assert_eq!(printed.status.code(), Some(0), "{}", text(&printed.stdout));
    assert!(text(&printed.stdout).contains("held after"), "{printed:?}");
    assert_eq!(server.request(&["set", "budget", "off"])["budget_uw"], Value::Null);
    server.status_until("nothing throttled", |status| status["budget"].is_null());
}

#[test]
fn an_unreachable_strict_budget_is_withdrawn() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = capped(folder.path()) else { return };
    let (_, code) = stderr_and_code(&server.admin(&["set", "budget", "100000W"]));
    assert_eq!(code, Some(0));
    let printed = server.admin(&["set", "budget", "5W", "--strict"]);
    let message = text(&printed.stdout);
    assert!(
        printed.status.code() == Some(2) && message.contains("5W is taken back") && message.contains("the floor is"),
        "{message}"
    );
    let status = server.request(&["status"]);
    assert_eq!(
        (&status["goals"]["budget_uw"], &status["budget"]["withdrawn_uw"]),
        (&json!(100_000_000_000_u64), &json!(5_000_000))
    );
}

#[test]
fn restore_removes_the_quota_of_a_killed_server() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut server) = capped(folder.path()) else { return };
    let pid = server.request(&["status"])["server"]["pid"].as_u64().unwrap();
    server.request(&["set", "budget", "5W", "--no-wait"]);
    until("a quota", || !groups(pid).is_empty());
    server.kill();
    // Servers of other tests share the folder of journals, and one that starts now restores first: only this server's group counts.
    // `machine.rs` uses its own folder.
    let restored = text(&run(&["restore"]).stdout);
    until("the group gone", || groups(pid).is_empty());
    assert!(!text(&run(&["restore", "--dry-run"]).stdout).contains(&format!("workers-{pid}")), "{restored}");
}

#[test]
fn a_policy_that_ignores_budgets_is_wrapped_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let state = format!("--state={}", folder.path().join("goals.json").display());
    let Some(mut server) = capped_by(folder.path(), "static", &[&state]) else { return };
    assert_eq!(server.request(&["status"])["policy"]["name"], "static");
    let set = server.request(&["set", "budget", "500W", "--no-wait"]);
    assert_eq!((&set["policy"], &set["inner_policy"]), (&json!("cpu-bandwidth"), &json!("static")));
    assert!(set["help"].as_str().unwrap().contains("pilotlab profile --out FILE DRIVE"), "{set}");
    assert_eq!(set["unused"], json!([]));
    server.expect_log("policy cpu-bandwidth holds the budget, inner policy static");
    server.kill();
    drop(server);
    let Some(server) = capped_by(folder.path(), "static", &[&state]) else { return };
    let status = server.request(&["status"]);
    assert_eq!(status["policy"]["name"], "cpu-bandwidth", "as before the kill");
    let held = |status: &Value| status["budget"]["state"] == "held";
    let status = server.status_until("the budget held", held);
    assert_eq!(status["budget"]["sensor"], "modelled, profile made-up");
    assert!(status["budget"]["age_ns"].is_u64() && status["budget"]["headroom_uw"].is_i64(), "{status}");
    assert_eq!(server.request(&["set", "policy", "interrupt"])["name"], "cpu-bandwidth", "around another one now");
    server.request(&["set", "budget", "off"]);
    assert_eq!(server.request(&["status"])["policy"]["name"], "interrupt");
}

#[test]
fn with_a_profile_the_policy_is_pass() {
    let folder = tempfile::tempdir().unwrap();
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/pass-xeon-gold-6430.toml");
    let server = start(&["--policy=static", &format!("--budget-profile={profile}"), "--budget=500W"]);
    let status = server.request(&["status"]);
    assert_eq!(status["policy"]["name"], "pass");
    let parameters = status["policy"]["parameters"].as_array().unwrap();
    let value = |key: &str| parameters.iter().find(|one| one["key"] == key).unwrap()["value"].clone();
    assert_eq!((value("inner"), value("profile")), (json!("static"), json!("pass-xeon-gold-6430")));
    assert_eq!(status["priorities"]["unused"], false);
    fs::write(folder.path().join("wrong.toml"), "name = 1").unwrap();
    let wrong = format!("--budget-profile={}", folder.path().join("wrong.toml").display());
    let refused = run(&["serve", "--check", "--namespace=mem:1MiB", &wrong]);
    assert!(text(&refused.stderr).contains("DRIVE` makes one"), "{}", text(&refused.stderr));
}
