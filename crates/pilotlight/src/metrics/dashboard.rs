//! Test of the Grafana dashboard on Debian's Prometheus: recorded data is loaded, and each panel evaluated as its JSON says.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use std::{fs, io, thread};

use serde_json::Value;

/// The end of the recorded hour, in seconds since 1970.
const NOW: u64 = 1_700_000_000;
const HOUR: u64 = 3600;
/// Longer than any start: a server that never says that it is ready fails the test instead of stopping it.
const LONGEST_START: Duration = Duration::from_secs(120);
/// A change before that end: longer than Prometheus shows a series that has ended.
const CHANGE: u64 = 600;

/// Series with their value before the change and after it; `None`: the series does not exist then.
const RECORDED: [(&str, &str, Option<i64>, Option<i64>); 11] = [
    ("pilotlight_policy_info", r#"instance="a",policy="static""#, Some(1), None),
    ("pilotlight_policy_info", r#"instance="a",policy="pass""#, None, Some(1)),
    ("pilotlight_policy_info", r#"instance="b",policy="sandman""#, Some(1), Some(1)),
    ("pilotlight_budget_watts", r#"instance="a""#, Some(300), Some(250)),
    ("pilotlight_budget_watts", r#"instance="b""#, Some(200), None),
    ("pilotlight_budget_headroom_watts", r#"instance="a""#, Some(-9), Some(12)),
    ("pilotlight_budget_headroom_watts", r#"instance="b""#, Some(5), None),
    ("pilotlight_budget_state", r#"instance="a",state="exceeded""#, Some(1), Some(0)),
    ("pilotlight_budget_state", r#"instance="a",state="held""#, Some(0), Some(1)),
    ("pilotlight_budget_state", r#"instance="b",state="exceeded""#, Some(0), None),
    ("pilotlight_budget_state", r#"instance="b",state="held""#, Some(1), None),
];

/// What the panels of states show at that end.
const SHOWN: [(&str, &[&str]); 4] =
    [("Policy", &["a: pass", "b: sandman"]), ("Budget", &["a"]), ("Headroom", &["a"]), ("Budget is", &["a: held"])];

/// `RECORDED` in the format OpenMetrics, with a sample every 15 s.
fn open_metrics() -> String {
    let mut text = String::new();
    let mut family = "";
    for (name, labels, before, after) in RECORDED {
        if name != family {
            writeln!(text, "# TYPE {name} gauge").unwrap();
            family = name;
        }
        for at in (NOW - HOUR..=NOW).step_by(15) {
            if let Some(value) = if at < NOW - CHANGE { before } else { after } {
                writeln!(text, "{name}{{{labels}}} {value} {at}").unwrap();
            }
        }
    }
    text + "# EOF\n"
}

/// The output of a command that must succeed.
fn output(command: &mut Command) -> io::Result<Vec<u8>> {
    let output = command.output()?;
    assert!(output.status.success(), "{command:?}: {output:?}");
    Ok(output.stdout)
}

/// A running Prometheus, killed at the end.
struct Prometheus {
    child: Child,
    address: String,
}

impl Prometheus {
    /// Loads the recorded data into a folder and starts a server on it, at a free port.
    fn start(dir: &Path) -> io::Result<Self> {
        let (recorded, config, data) = (dir.join("recorded.txt"), dir.join("prometheus.yml"), dir.join("data"));
        fs::write(&recorded, open_metrics())?;
        fs::write(&config, "")?;
        output(
            Command::new("promtool").args(["tsdb", "create-blocks-from", "openmetrics"]).args([recorded, data.clone()]),
        )?;
        let mut child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .args(["--web.listen-address=127.0.0.1:0", "--log.level=info"])
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (said, lines) = mpsc::channel();
        thread::spawn(move || stderr.lines().map_while(Result::ok).for_each(|line| drop(said.send(line)))); // a full pipe would stop it
        let mut server = Self { child, address: String::new() };
        let mut log = Vec::new();
        while let Ok(line) = lines.recv_timeout(LONGEST_START) {
            if let Some((_, address)) = line.split_once("\"Listening on\" address=") {
                address.trim().clone_into(&mut server.address);
            }
            let is_ready = line.contains("Server is ready to receive web requests");
            log.push(line);
            if is_ready {
                assert!(!server.address.is_empty(), "no address in {log:#?}");
                return Ok(server);
            }
        }
        panic!("prometheus ended, or is not ready: {log:#?}");
    }

    /// The legends that a target of a panel shows, sorted: of all series in the hour, or with an instant query of those at its end.
    fn legends(&self, target: &Value) -> Vec<String> {
        let expression = target["expr"].as_str().unwrap().replace("$instance", ".*").replace("$__rate_interval", "1m");
        let is_range = target["range"] == true || target["instant"] != true;
        let times = if is_range {
            vec![format!("--start={}", NOW - HOUR), format!("--end={NOW}"), "--step=15s".to_owned()]
        } else {
            vec![format!("--time={NOW}")]
        };
        let kind = if is_range { "range" } else { "instant" };
        let url = format!("http://{}", self.address);
        let found =
            output(Command::new("promtool").args(["query", kind, "--format=json"]).args(times).args([url, expression]));
        let series: Vec<Value> = serde_json::from_slice(&found.unwrap()).unwrap();
        let mut legends: Vec<_> =
            series.iter().map(|one| legend(target["legendFormat"].as_str().unwrap(), &one["metric"])).collect();
        legends.sort();
        legends
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A legend such as `{{instance}} p99` with the labels of a series.
fn legend(format: &str, labels: &Value) -> String {
    let labels = labels.as_object().unwrap();
    labels.iter().fold(format.to_owned(), |text, (name, value)| {
        text.replace(&format!("{{{{{name}}}}}"), value.as_str().unwrap())
    })
}

#[test]
fn panels_of_states_show_the_present_state_only() {
    let dir = tempfile::tempdir().unwrap();
    let prometheus = match Prometheus::start(dir.path()) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("SKIPPED: panels_of_states_show_the_present_state_only: needs prometheus and promtool");
            return;
        }
        started => started.unwrap(),
    };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/grafana/pilotlight.json");
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let mut shown = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        // a query that Prometheus refuses fails in any panel
        let legends = panel["targets"].as_array().unwrap().iter().flat_map(|target| prometheus.legends(target));
        let legends: Vec<_> = legends.collect();
        if panel["type"] == "stat" {
            shown.push((panel["title"].as_str().unwrap(), legends));
        }
    }
    assert_eq!(shown, SHOWN.map(|(title, legends)| (title, legends.iter().map(ToString::to_string).collect())));
}
