//! A target that runs for one point, and its counters in the measured window.
//!
//! `pilotlight status --watch --json` writes a line with the target's counters to a file every 0.25 s. A line has the target's uptime at
//! its end and its duration. The modification time of the file is that of its last line, so every line has a time on the wall clock,
//! accurate to some milliseconds. A line that is partly within the window counts in proportion.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use pilotlight_sensors::target::{Shares, Status};
use serde::{Deserialize, Serialize};

use super::super::knob::{self, Knob, Named};
use super::super::{Point, Problem, RunContext, Step, Target, problem, program};

/// File of the target's counters in the scratch folder.
pub(super) const STATUS: &str = "pilotlight-status.jsonl";
const DEFAULT_SOCKET: &str = "pilotlight.sock";
/// Interval of the counters, in seconds.
const INTERVAL: &str = "0.25";

/// Keys of `[workload.serve]`: the target that is started for each point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// One or more policies, each optionally with parameters, as in `"sandman guards=recommended window=64"`.
    pub policy: Knob,
    /// The namespace, as in `pilotlight serve --namespace`; default: the experiment's file or device, else 1 GiB of memory.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Address to listen on; default: `127.0.0.1:14420`.
    #[serde(default = "default_listen")]
    pub listen: String,
    /// Control socket; default: one in the scratch folder. Set it to read the target's counters with the sensor `target` too.
    #[serde(default)]
    pub socket: Option<String>,
    /// Whether the namespace is written completely before each point, so that reads return data; default: `true`.
    #[serde(default = "yes")]
    pub fill: bool,
    /// Any other option of `pilotlight serve`, such as `options = { cores = "0-3", sleep-after = "5ms" }`.
    #[serde(default)]
    pub options: BTreeMap<String, crate::Value>,
}

fn default_listen() -> String {
    "127.0.0.1:14420".into()
}

fn yes() -> bool {
    true
}

/// Starts and monitors targets.
#[derive(Clone, Debug)]
pub(super) struct Serve {
    options: Options,
    program: std::path::PathBuf,
}

impl Serve {
    pub(super) fn new(options: Options, program: &Path) -> Result<Self, Problem> {
        let policies = options.policy.values().iter();
        policies.into_iter().try_for_each(|value| Named::read(value, "workload.serve.policy").map(drop))?;
        Ok(Self { options, program: program.into() })
    }

    pub(super) fn knobs(&self) -> Vec<(&str, &Knob)> {
        vec![("policy", &self.options.policy)]
    }

    pub(super) fn listen_address(&self) -> &str {
        &self.options.listen
    }

    pub(super) fn fills(&self) -> bool {
        self.options.fill
    }

    fn socket(&self) -> &str {
        self.options.socket.as_deref().unwrap_or(DEFAULT_SOCKET)
    }

    fn namespace(&self, context: &RunContext) -> String {
        let of_target = match &context.target {
            Target::File(path, bytes) => format!("file:{}?size={bytes}", path.display()),
            Target::Device(path) => format!("file:{}", path.display()),
            Target::Folder(_) | Target::None => "mem:1GiB".into(),
        };
        self.options.namespace.clone().unwrap_or(of_target)
    }

    /// Starts a server with the point's policy.
    pub(super) fn start(&self, point: &Point, context: &RunContext) -> Result<Vec<Step>, Problem> {
        let policy = Named::read(knob::at(point, "policy")?, "policy")?;
        let mut words = vec!["serve".to_owned(), format!("--listen={}", self.options.listen)];
        words.push(format!("--namespace={}", self.namespace(context)));
        words.push(format!("--admin-socket={}", self.socket()));
        words.push(format!("--policy={}", policy.name));
        words.extend(policy.options.iter().map(|(key, value)| format!("--policy-set={key}={value}")));
        words.extend(self.options.options.iter().map(|(key, value)| format!("--{key}={value}")));
        let old = ["-f".to_owned(), "--".into(), self.socket().into(), STATUS.into()];
        let remove = program::argv(Path::new("rm"), old);
        let why = format!("pilotlight serve, {}", policy.name);
        Ok(vec![
            Step { argv: remove, why: "removing files of an earlier server".into(), ..Step::default() },
            Step {
                argv: program::argv(&self.program, words),
                background: true,
                ready: Some(super::in_scratch(context, self.socket())),
                why,
                ..Step::default()
            },
            self.wait(),
        ])
    }

    /// Waits for a response on the control socket: the server creates the socket first and responds once it listens for hosts.
    fn wait(&self) -> Step {
        let script = "until \"$0\" namespace list --socket \"$1\" >&2; do test -S \"$1\" && sleep 0.1 || exit 1; done"
            .to_owned();
        let program = self.program.display().to_string();
        let argv = program::argv(Path::new("sh"), ["-c".to_owned(), script, program, self.socket().into()]);
        Step { argv, limit_s: 120.0, why: "waiting for the server".into(), ..Step::default() }
    }

    /// Records the server's counters.
    pub(super) fn monitor(&self) -> Step {
        let script = format!("exec \"$0\" status --watch {INTERVAL} --json --socket \"$1\" > {STATUS}");
        let program = self.program.display().to_string();
        let words = ["-c".to_owned(), script, program, self.socket().into()];
        let argv = program::argv(Path::new("sh"), words);
        Step { argv, background: true, why: "recording the server's counters".into(), ..Step::default() }
    }
}

/// Columns: times as percent of one CPU, summed over the reactors, and counts.
fn columns(status: &Status) -> Vec<(String, f64, Kind)> {
    let Shares { busy, polling_idle, asleep, scheduled } = status.shares();
    let shares = [("busy", busy), ("polling_idle", polling_idle), ("active", busy + polling_idle), ("asleep", asleep)];
    let shares = shares.into_iter().chain(scheduled.map(|scheduled| ("scheduled", scheduled)));
    let shares = shares.map(|(name, value)| (format!("target_{name}_percent"), value, Kind::Share));
    let counts = status.commands().map(|(name, count)| (format!("target_{name}_count"), count as f64, Kind::Count));
    shares.chain(counts).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Share,
    Count,
}

/// The target's counters in a window, in nanoseconds after `began_wall_ns`.
pub(super) fn counters(file: &Path, began_wall_ns: u64, window: (u64, u64)) -> Result<BTreeMap<String, f64>, Problem> {
    let unread = |error: std::io::Error| problem(file.display().to_string(), error.to_string());
    let changed = || fs::metadata(file).and_then(|meta| meta.modified());
    // Repeated if a line was written between the two: the modification time would not be that of the last line read.
    let (mut before, mut text) = (changed().map_err(unread)?, fs::read_to_string(file).map_err(unread)?);
    while changed().map_err(unread)? != before {
        before = changed().map_err(unread)?;
        text = fs::read_to_string(file).map_err(unread)?;
    }
    let changed_ns = before.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    of_lines(&text, changed_ns, (began_wall_ns + window.0, began_wall_ns + window.1))
}

/// The counters of these lines, the last of which was written at `changed_ns`; all times are on the wall clock.
pub(super) fn of_lines(text: &str, changed_ns: u64, (from, to): (u64, u64)) -> Result<BTreeMap<String, f64>, Problem> {
    let read = |line: &str| Status::read(line).map_err(|why| problem(STATUS, why.to_string()));
    // Text after the last line break is incomplete.
    let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
    let lines: Vec<Status> = complete.lines().map(read).collect::<Result<_, _>>()?;
    let last_ns = lines.last().map_or(0, Status::uptime_ns);
    let (mut shares, mut counts, mut counted_ns) = (BTreeMap::new(), BTreeMap::new(), 0.0);
    for line in &lines {
        let end = changed_ns.saturating_sub(last_ns.saturating_sub(line.uptime_ns()));
        let begin = end.saturating_sub(line.window_ns);
        let inside_ns = end.min(to).saturating_sub(begin.max(from)) as f64;
        if inside_ns <= 0.0 || line.window_ns == 0 {
            continue;
        }
        counted_ns += inside_ns;
        for (name, value, kind) in columns(line) {
            let (into, weight) = match kind {
                Kind::Share => (&mut shares, inside_ns),
                Kind::Count => (&mut counts, inside_ns / line.window_ns as f64),
            };
            *into.entry(name).or_insert(0.0) += value * weight;
        }
    }
    if counted_ns < 0.5 * (to - from) as f64 {
        return Err(problem(STATUS, "has less than half of the measured window"));
    }
    shares.values_mut().for_each(|sum| *sum /= counted_ns);
    shares.extend(counts);
    Ok(shares)
}
