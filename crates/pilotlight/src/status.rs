//! `pilotlight status`: the state of a running server, once or periodically.

pub(crate) mod background;
pub(crate) mod caps;
pub(crate) mod energy;
pub(crate) mod format;
pub(crate) mod goals;
pub(crate) mod health;
pub(crate) mod measure;
pub(crate) mod priorities;
pub(crate) mod render;
pub(crate) mod report;

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::admin::client::{self, Client, SocketArgs};
use crate::admin::request::Request;
use crate::config::parse_duration;
use crate::console;
use crate::exit::Exit;
use health::Probe;
use report::{JsonSample, Report};

/// Default time over which rates are taken.
const WINDOW: Duration = Duration::from_millis(500);
/// Clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

const ABOUT: &str = "\
Show the state of a running server: reactors and their time, I/O threads and their reactors, I/O of hosts, and the view and the commands \
of the policy.

Rates and percentages are over a window: half a second, or with --watch the time since the last output.";

const EXAMPLES: &str = "\
Examples:
  pilotlight status
  pilotlight status --watch                         every second, until Ctrl-C
  pilotlight status --watch 10 --json               a line of JSON every ten seconds
  pilotlight status --socket /run/pilotlight/disks.sock
  pilotlight status --metrics io_errors             metrics by name
  pilotlight status --ready                         for a probe: hosts can connect
  pilotlight status --healthy --timeout 3s          for a probe: no reactor is stuck

docs/operate/watch.md describes the columns.

Exit codes:
  0  printed; with --watch also ended by Ctrl-C; with --ready or --healthy: yes
  1  no server answers, or it has ended; with --ready or --healthy: no
  2  the server refused";

/// Options of `pilotlight status`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct StatusArgs {
    /// Repeat, at this interval
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = seconds)]
    watch: Option<Duration>,

    /// Print JSON: one object, with --watch one on each line
    #[arg(long)]
    json: bool,

    /// Print metrics instead, all or those whose name contains NAME (docs/metrics-server.md describes them)
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "", conflicts_with = "json")]
    metrics: Option<String>,

    /// Only check whether hosts can connect: the server listens, and every reactor has started
    #[arg(long, conflicts_with_all = ["watch", "json", "healthy"])]
    ready: bool,

    /// Only check whether it works: every reactor that is awake loops
    #[arg(long, conflicts_with_all = ["watch", "json"])]
    healthy: bool,

    /// How long --ready and --healthy wait for the answer at most
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = timeout)]
    timeout: Duration,

    #[command(flatten)]
    socket: SocketArgs,
}

fn timeout(text: &str) -> anyhow::Result<Duration> {
    let range = Duration::from_millis(100)..=Duration::from_secs(3600);
    let within = parse_duration(text).ok().filter(|within| range.contains(within));
    within.context("write a time from 100ms to 1h, such as 5s")
}

/// An interval in seconds.
pub(crate) fn seconds(text: &str) -> anyhow::Result<Duration> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).context("write seconds, from 0.1 to 86400")
}

/// Prints the status.
pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<Exit> {
    let probe = match (args.ready, args.healthy) {
        (true, _) => Some(Probe::Ready),
        (_, true) => Some(Probe::Healthy),
        _ => None,
    };
    if let Some(probe) = probe {
        console::println(health::check(probe, &args.socket, args.timeout)?)?;
        return Ok(Exit::Clean);
    }
    let mut client = Client::connect(&args.socket)?;
    if let Err(error) = client.request::<Report>(&Request::Status {}) {
        return client::failed(error);
    }
    let metrics = args.metrics.clone();
    let out =
        Out { json: args.json, metrics, screen: args.watch.is_some() && !args.json && io::stdout().is_terminal() };
    if args.watch.is_some() {
        ctrl_c_is_the_end().context("cannot handle signals")?;
    }
    loop {
        thread::sleep(args.watch.unwrap_or(WINDOW));
        let report = client.request::<Report>(&Request::Status {})?;
        out.print(&report)?;
        if args.watch.is_none() {
            return Ok(Exit::Clean);
        }
    }
}

/// From now on INT and TERM end the program with code 0: within the signal's handler, so that it works while the server does not
/// answer. Before, they end it as they end any program.
fn ctrl_c_is_the_end() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 0, Arc::new(AtomicBool::new(true)))?;
    }
    Ok(())
}

/// How reports are printed.
struct Out {
    json: bool,
    /// Metrics whose name has this in it, in place of the report.
    metrics: Option<String>,
    /// Each takes the place of the one before.
    screen: bool,
}

impl Out {
    fn print(&self, report: &Report) -> anyhow::Result<()> {
        let text = match &self.metrics {
            Some(name) => metrics(report, name),
            None if self.json => serde_json::to_string(report)? + "\n",
            None => render::text(report, console::colour()),
        };
        let before = if self.screen { CLEAR } else { "" };
        let after = if self.json || self.screen { "" } else { "\n" };
        console::print(format_args!("{before}{text}{after}"))
    }
}

/// A line for each metric whose name has `part` in it: the name, which ends with the unit, its labels and its value.
fn metrics(report: &Report, part: &str) -> String {
    let named = report.metrics.iter().filter(|sample| sample.name.contains(part));
    let line = |sample: &JsonSample| {
        let labels = sample.labels.iter().filter(|(_, value)| !value.is_empty());
        let labels: Vec<String> = labels.map(|(name, value)| format!("{name}={value:?}")).collect();
        format!("{}  {}  {}\n", sample.name, sample.value, labels.join(" ")).trim_end().to_owned() + "\n"
    };
    named.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_lines_with_their_labels() {
        let sample = |name: &str, host: &str| JsonSample {
            name: name.to_owned(),
            labels: [("host".to_owned(), host.to_owned())].into(),
            value: 1.5,
        };
        let metrics_of = vec![sample("pilotlight_a_joules_total", "x\u{1b}y"), sample("pilotlight_b_total", "")];
        let report = Report { metrics: metrics_of, ..render::tests::report() };
        assert_eq!(metrics(&report, "joules"), "pilotlight_a_joules_total  1.5  host=\"x\\u{1b}y\"\n");
        assert_eq!(metrics(&report, "").lines().nth(1), Some("pilotlight_b_total  1.5"));
    }

    #[test]
    fn a_watch_has_a_sensible_pace() {
        assert_eq!(seconds("0.5").unwrap(), Duration::from_millis(500));
        for text in ["0", "-1", "NaN", "1s", "1e9"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
