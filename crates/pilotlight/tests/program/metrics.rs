//! Metrics over HTTP: they increase with I/O, match the status, and are accepted by Prometheus's own tools.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::process::{Server, run, text};

/// A server with metrics, and their address.
fn serve(args: &[&str]) -> (Server, SocketAddr) {
    let server = Server::start(&[&["--listen", "127.0.0.1:0", "--metrics", "0", "--nqn", NQN], args].concat());
    let line = server.expect_log("metrics: http://");
    let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap().parse().unwrap();
    (server, address)
}

const NQN: &str = "nqn.2024-05.com.example:metrics";
/// The namespace that a server exports by default, as labels.
const NAMESPACE: &str = "subsystem=\"nqn.2024-05.com.example:metrics\",namespace=\"1\"";

fn scrape(address: SocketAddr, accept: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: {accept}\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    body.to_owned()
}

fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().unwrap()
}

#[test]
fn counters_match_the_load_and_the_status() {
    let (server, address) = serve(&["--sensor", "modelled"]);
    let reads = |text: &str| value(text, &format!("pilotlight_io_requests_total{{{NAMESPACE},operation=\"read\"}}"));
    assert_eq!(reads(&scrape(address, "*/*")), 0.0);
    let target = server.address().to_string();
    let loaded = run(&["load", "--yield", "--target", &target, "--rw", "randread", "--number_ios", "500"]);
    assert_eq!(loaded.status.code(), Some(0), "{}", text(&loaded.stderr));
    let after = scrape(address, "*/*");
    assert_eq!(reads(&after), 500.0);
    assert_eq!(value(&after, &format!("pilotlight_io_bytes_total{{{NAMESPACE},operation=\"read\"}}")), 500.0 * 4096.0);
    assert_eq!(value(&after, "pilotlight_host_io_requests_total{host=\"other\",operation=\"read\"}"), 500.0);
    let duration = |suffix: &str| {
        let series = "subsystem=\"nqn.2024-05.com.example:metrics\",operation=\"read\"";
        value(&after, &format!("pilotlight_io_duration_seconds_{}", suffix.replace("{", &format!("{{{series}"))))
    };
    assert_eq!(duration("count{}"), 500.0);
    assert_eq!(duration("bucket{,le=\"+Inf\"}"), 500.0);
    let status = server.request(&["status"]);
    let metrics = status["metrics"].as_array().unwrap();
    let printed = text(&server.admin(&["status", "--metrics", "io_requests"]).stdout);
    assert!(printed.lines().any(|line| line.starts_with("pilotlight_io_requests_total  500 ")), "{printed}");
    let read = metrics
        .iter()
        .find(|one| one["name"] == "pilotlight_io_requests_total" && one["labels"]["operation"] == "read");
    assert_eq!(read.unwrap()["value"], 500.0);
    let joules =
        "pilotlight_energy_joules_total{zone=\"CPU packages\",sensor=\"modelled\",model=\"sandman-epyc-9454p\"}";
    let mut now = after;
    while value(&now, joules) <= 0.0 {
        now = scrape(address, "*/*"); // the model is read twice per second
    }
}

#[test]
fn configured_hosts_and_refusals_are_counted() {
    let (server, address) = serve(&["--allow-host", "nqn.2014-08.org.example:a"]);
    let target = server.address().to_string();
    let load = |host: &str| {
        let io = ["--rw", "randwrite", "--number_ios", "20"];
        run(&[&["load", "--yield", "--target", &target, "--nqn", NQN, "--hostnqn", host][..], &io].concat())
            .status
            .code()
    };
    assert_eq!(load("nqn.2014-08.org.example:a"), Some(0));
    assert_ne!(load("nqn.2014-08.org.example:b"), Some(0));
    let scraped = scrape(address, "*/*");
    let writes = |host: &str| {
        value(&scraped, &format!("pilotlight_host_io_requests_total{{host=\"{host}\",operation=\"write\"}}"))
    };
    assert_eq!((writes("nqn.2014-08.org.example:a"), writes("other")), (20.0, 0.0));
    assert!(value(&scraped, "pilotlight_refused_connections_total{reason=\"host-not-allowed\"}") >= 1.0);
}

#[test]
fn energy_shares_add_up_to_the_microjoule() {
    let (server, address) = serve(&["--sensor", "modelled", "--energy-shares", "unassigned"]);
    let target = server.address().to_string();
    let zone = loop {
        let loaded = run(&["load", "--yield", "--target", &target, "--rw", "randread", "--number_ios", "500"]);
        assert_eq!(loaded.status.code(), Some(0), "{}", text(&loaded.stderr));
        let status = server.request(&["status"]);
        let shares = &status["energy_shares"];
        assert_eq!(
            (shares["sensor"].as_str(), shares["modelled"].as_str()),
            (Some("modelled"), Some("sandman-epyc-9454p"))
        );
        let zone = shares["zones"][0].clone();
        if zone["users"].as_array().is_some_and(|users| users.iter().any(|user| user["energy_uj"] != 0)) {
            break zone; // shares are computed once per second
        }
    };
    let uj = |of: &serde_json::Value, key: &str| of[key].as_u64().unwrap();
    let parts: u64 = zone["users"].as_array().unwrap().iter().map(|user| uj(user, "energy_uj")).sum();
    assert_eq!(parts + uj(&zone, "unassigned_uj"), uj(&zone, "energy_uj"));
    let joules = "zone=\"CPU packages\",sensor=\"modelled\",model=\"sandman-epyc-9454p\"";
    let scraped = scrape(address, "*/*");
    assert!(value(&scraped, &format!("pilotlight_host_energy_joules_total{{{joules},host=\"other\"}}")) > 0.0);
    assert!(value(&scraped, &format!("pilotlight_namespace_energy_joules_total{{{joules},{NAMESPACE}}}")) > 0.0);
}

#[test]
fn a_refused_configuration_sets_its_metric_to_0() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.toml");
    let good = "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nsocket = \"a.sock\"\n[metrics]\nlisten = \"0\"\n\
                [[subsystem]]\nnqn = \"nqn.2024-05.com.example:a\"\n[[subsystem.namespace]]\nnsid = 1\nbackend = \"mem:1MiB\"\n";
    std::fs::write(&file, good).unwrap();
    let server = Server::start(&["--config", file.to_str().unwrap()]);
    let line = server.expect_log("metrics: http://");
    let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap().parse().unwrap();
    let is_good = || value(&scrape(address, "*/*"), "pilotlight_config_last_reload_successful");
    assert_eq!(is_good(), 1.0);
    std::fs::write(&file, "[server]\nlisten = 7\n").unwrap();
    server.signal("HUP");
    server.expect_log("the configuration is refused");
    assert_eq!(is_good(), 0.0);
}

#[test]
fn idle_connections_above_the_limit_are_closed_and_logged_and_deny_nobody() {
    const MOST: usize = 32;
    let (server, address) = serve(&[]);
    let open: Vec<_> = (0..=MOST).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert!(scrape(address, "*/*").contains("# TYPE"));
    let line = server.expect_log("metrics connection closed");
    let idlest = open.first().unwrap().local_addr().unwrap();
    for field in [format!("peer=\"{idlest}\""), "reason=\"too many connections\"".to_owned()] {
        assert!(line.contains(&field), "{line}");
    }
}

#[test]
fn a_public_address_is_a_warning_and_one_in_use_an_error() {
    let checked = run(&["serve", "--check", "--metrics", "192.0.2.7:9808"]);
    assert!(
        text(&checked.stderr).contains("the metrics on 192.0.2.7:9808 are not protected"),
        "{}",
        text(&checked.stderr)
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let refused = run(&["serve", "--listen", "127.0.0.1:0", "--admin-socket", "none", "--metrics", &port]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("--metrics"), "{}", text(&refused.stderr));
}

/// Runs a program with `input`; returns its output, or `None` if it is not installed.
fn through(program: &str, args: &[&str], input: &str) -> Option<std::process::Output> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    Some(child.wait_with_output().unwrap())
}

#[test]
fn promtool_accepts_the_metrics() {
    let (_server, address) = serve(&["--sensor", "modelled", "--budget", "300W", "--tolerance", "0.2"]);
    let scraped = scrape(address, "text/plain");
    let Some(output) = through("promtool", &["check", "metrics"], &scraped) else {
        return eprintln!("SKIPPED: promtool_accepts_the_metrics: needs promtool (Debian: prometheus)");
    };
    assert!(output.status.success(), "{}{}\n{scraped}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn the_python_client_reads_both_formats() {
    let (_server, address) = serve(&["--sensor", "modelled"]);
    let has_client = |python: &&str| {
        let there = Command::new(python).args(["-c", "import prometheus_client"]).output();
        there.is_ok_and(|output| output.status.success())
    };
    let Some(python) = ["python3", "/usr/bin/python3"].into_iter().find(has_client) else {
        return eprintln!("SKIPPED: the_python_client_reads_both_formats: needs python3-prometheus-client");
    };
    for (accept, parser) in [("text/plain", "parser"), ("application/openmetrics-text", "openmetrics.parser")] {
        let script = format!(
            "import sys; from prometheus_client.{parser} import text_string_to_metric_families as read; \
             print(len([s for f in read(sys.stdin.read()) for s in f.samples]))"
        );
        let scraped = scrape(address, accept);
        let output = through(python, &["-c", &script], &scraped).unwrap();
        let samples = scraped.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(text(&output.stdout).trim(), samples.to_string(), "{}\n{scraped}", text(&output.stderr));
    }
}
