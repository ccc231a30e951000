//! Counters of a Pilotlight target, read over its control socket (docs/operate/watch.md): requests, time busy, polling without work and
//! asleep, cores awake, and the policy's commands.
//!
//! The target reports activity since the connection's previous request, the first time since its start. The first response is ignored and
//! the others are added: counters start at 0 and continue over a lost connection, whose time is missing. The target rounds fractions
//! of time to 0.01 %.
//!
//! Each request wakes the target's main core, so frequent readings reduce its sleep.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pilotlight_drive::Roots;
use serde::Deserialize;

pub use status::{Shares, Status, StatusError};

use crate::sensor::{Domain, Missing, Open, ReadError, Reading, Sensor, SensorInfo, Unit, Why};

mod status;

const NAME: &str = "target";
pub(crate) const INTERVAL_NS: u64 = 100_000_000;
const REQUEST: &[u8] = b"{\"version\":1,\"command\":\"status\"}\n";
/// Supported version of the protocol.
const VERSION: u64 = 1;
const TIMEOUT_MS: u64 = 2_000;
/// Longest response: about 1,000 reactors.
const MAX_RESPONSE: u64 = 4 << 20;

/// Counters, in the order of their domains.
const COUNTERS: [(&str, Unit); 11] = [
    ("requests", Unit::Count),
    ("read", Unit::Byte),
    ("written", Unit::Byte),
    ("busy", Unit::NanoSecond),
    ("polling-idle", Unit::NanoSecond),
    ("asleep", Unit::NanoSecond),
    ("scheduled", Unit::NanoSecond),
    ("moves", Unit::Count),
    ("sleeps", Unit::Count),
    ("wakes", Unit::Count),
    ("refusals", Unit::Count),
];
const SCHEDULED: usize = 6;
/// Gauges, after the counters.
const GAUGES: [&str; 3] = ["reactors", "reactors-awake", "connections"];

/// Options of the sensor.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Its control socket, such as `/run/pilotlight/pilotlight.sock`.
    pub socket: PathBuf,
    /// Whether the workload starts and ends the target, so that it is read only meanwhile.
    pub with_workload: bool,
    /// Timeout of a response, in milliseconds; default: 2,000.
    pub timeout_ms: Option<u64>,
}

/// The counters of a target.
#[derive(Debug)]
pub struct Target {
    options: Options,
    info: SensorInfo,
    stream: Option<BufReader<UnixStream>>,
    /// Whether no request was sent over this connection yet.
    is_new: bool,
    totals: [i64; COUNTERS.len()],
}

#[derive(Deserialize)]
struct Response {
    version: u64,
    ok: Option<Status>,
    error: Option<Refusal>,
}

#[derive(Deserialize)]
struct Refusal {
    message: String,
}

/// Increments in the window, in the order of [`COUNTERS`]; times are sums over the reactors.
fn increments(status: &Status) -> [i64; COUNTERS.len()] {
    let window_ns = status.window_ns as f64;
    let rate = |per_s: f64| (per_s * window_ns / 1e9).round() as i64;
    let time = |percent: f64| (percent * window_ns / 100.0).round() as i64;
    let Shares { busy, polling_idle, asleep, scheduled } = status.shares();
    let [moves, sleeps, wakes, refusals] = status.commands().map(|(_, count)| count);
    [
        rate(status.io.iops),
        rate(status.io.read_bytes_per_s),
        rate(status.io.written_bytes_per_s),
        time(busy),
        time(polling_idle),
        time(asleep),
        time(scheduled.unwrap_or_default()),
        moves,
        sleeps,
        wakes,
        refusals,
    ]
}

/// The gauges, in the order of [`GAUGES`].
fn gauges(status: &Status) -> [i64; GAUGES.len()] {
    [status.reactors.len() as i64, status.awake() as i64, status.io.connections]
}

impl Open for Target {
    type Options = Options;

    fn open(_: &Roots, options: &Options) -> Result<Self, Missing> {
        if options.socket.as_os_str().is_empty() {
            let help = "set socket to the target's control socket (`pilotlight serve --admin-socket PATH`)";
            return Err(Missing::new(NAME, Why::NotConfigured, "socket is not set", help));
        }
        let counters = COUNTERS.map(|(name, unit)| Domain::counter(name, unit));
        let gauges = GAUGES.map(|name| Domain::gauge(name, Unit::Count));
        let domains = counters.into_iter().chain(gauges).collect();
        let info = SensorInfo::slow(NAME, INTERVAL_NS, domains);
        let mut target =
            Self { options: options.clone(), info, stream: None, is_new: true, totals: [0; COUNTERS.len()] };
        if !options.with_workload {
            target.connect().map_err(|error| missing(&options.socket, &error))?;
            target.read(&mut Vec::new()).map_err(|error| {
                let help = "check that it is a Pilotlight target of this version: `pilotlight status --socket`";
                Missing::new(NAME, Why::Broken, error.to_string(), help)
            })?;
        }
        Ok(target)
    }
}

fn missing(socket: &Path, error: &std::io::Error) -> Missing {
    let what = format!("no target at {}: {error}", socket.display());
    let start =
        "start one with `pilotlight serve --admin-socket`; if the experiment's workload does, set with_workload = true";
    match error.kind() {
        ErrorKind::PermissionDenied => {
            Missing::new(NAME, Why::Denied, what, "run this as the user that runs the target, or as root")
        }
        ErrorKind::NotFound => Missing::new(NAME, Why::Absent, what, start),
        _ => Missing::new(NAME, Why::Unreachable, what, start),
    }
}

impl Target {
    fn connect(&mut self) -> std::io::Result<()> {
        let stream = UnixStream::connect(&self.options.socket)?;
        let timeout = Duration::from_millis(self.options.timeout_ms.unwrap_or(TIMEOUT_MS).max(1));
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        self.stream = Some(BufReader::new(stream));
        self.is_new = true;
        Ok(())
    }

    /// One response, and whether it is the first of this connection.
    fn request(&mut self) -> std::io::Result<(String, bool)> {
        if self.stream.is_none() {
            self.connect()?;
        }
        let Some(stream) = &mut self.stream else { return Err(ErrorKind::NotConnected.into()) };
        stream.get_mut().write_all(REQUEST)?;
        let mut line = String::new();
        match std::io::Read::take(&mut *stream, MAX_RESPONSE).read_line(&mut line)? {
            0 => Err(std::io::Error::new(ErrorKind::UnexpectedEof, "the target closed the connection")),
            _ => Ok((line, std::mem::take(&mut self.is_new))),
        }
    }

    fn status(&mut self) -> Result<(Status, bool), ReadError> {
        let response = self.request().map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => std::io::Error::new(ErrorKind::TimedOut, "timed out"),
            _ => error,
        });
        let socket = self.options.socket.display();
        let (line, first) = response.map_err(|error| ReadError::io(format!("the target at {socket}"), error))?;
        let invalid = |why: String| ReadError::Content(format!("invalid response of the target at {socket}: {why}"));
        let response: Response = serde_json::from_str(&line).map_err(|error| invalid(error.to_string()))?;
        match response {
            Response { version, .. } if version != VERSION => Err(invalid(format!("version {version}, not {VERSION}"))),
            Response { error: Some(refusal), .. } => Err(invalid(format!("request refused: {}", refusal.message))),
            Response { ok: Some(status), .. } => match status.known() {
                Ok(status) => Ok((status, first)),
                Err(error) => Err(invalid(error.to_string())),
            },
            _ => Err(invalid("neither a status nor an error".into())),
        }
    }
}

impl Sensor for Target {
    fn info(&self) -> &SensorInfo {
        &self.info
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        let (status, first) = self.status().inspect_err(|_| self.stream = None)?;
        if !first {
            self.totals.iter_mut().zip(increments(&status)).for_each(|(total, increment)| *total += increment);
        }
        let knows_scheduled = status.shares().scheduled.is_some();
        let counters = self.totals.into_iter().enumerate();
        let counters = counters.filter(|(domain, _)| *domain != SCHEDULED || knows_scheduled);
        let gauges = gauges(&status).into_iter().enumerate().map(|(at, value)| (COUNTERS.len() + at, value));
        into.extend(counters.chain(gauges).map(|(domain, value)| Reading { domain, value }));
        Ok(())
    }
}
