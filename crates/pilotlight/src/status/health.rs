//! `pilotlight status --ready` and `--healthy`: yes or no for a probe, with a reason on one line.
//!
//! *Ready*: the server listens and every reactor has looped. *Healthy*: every reactor that is awake loops, by the rule of
//! the watchdog (`serve/notify.rs`); one that sleeps counts as healthy and is not woken. Both need an answer over the control socket within a time.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use serde::{Deserialize, Serialize};

use crate::admin::client::{Client, SocketArgs};
use crate::admin::request::Request;
use crate::config::format_duration;

/// Interval of health requests.
const INTERVAL: Duration = Duration::from_millis(50);

/// The health of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HealthReport {
    /// Reactors in all.
    pub(crate) reactors: usize,
    /// Reactors that have looped since the start.
    pub(crate) reactors_started: usize,
    /// Addresses that it listens on.
    pub(crate) addresses: usize,
    /// A reactor that is awake and has not looped since the first request of this connection.
    pub(crate) stuck_reactor: Option<usize>,
}

/// A condition to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    Ready,
    Healthy,
}

/// The result of a probe; the error has the reason. Returns after `within` at the latest.
pub(super) fn check(probe: Probe, socket: &SocketArgs, within: Duration) -> anyhow::Result<String> {
    let (answer, answered) = channel();
    let socket = socket.clone();
    // Connecting can wait as well as reading, so that a thread does both.
    let thread = move || drop(answer.send(wait_for(probe, &socket, within)));
    thread::Builder::new().name("probe".to_owned()).spawn(thread).context("cannot start a thread")?;
    let not = match probe {
        Probe::Ready => "not ready",
        Probe::Healthy => "not healthy",
    };
    let late = || anyhow!("no answer over the control socket within {}", format_duration(within));
    answered.recv_timeout(within).map_err(|_| late()).flatten().context(not)
}

fn wait_for(probe: Probe, socket: &SocketArgs, within: Duration) -> anyhow::Result<String> {
    let begin = Instant::now();
    let mut client = Client::connect(socket)?;
    let mut report: HealthReport = client.request(&Request::Health {})?;
    if probe == Probe::Ready {
        return ready(&report);
    }
    let last = within.saturating_sub(INTERVAL * 4); // so that the reason arrives in time
    loop {
        thread::sleep(INTERVAL);
        report = client.request(&Request::Health {})?;
        match report.stuck_reactor {
            None => return Ok(format!("healthy: {} reactors work or sleep", report.reactors)),
            Some(reactor) if begin.elapsed() >= last => {
                bail!("reactor {reactor} is awake and has not looped for {}", format_duration(last))
            }
            Some(_) => {}
        }
    }
}

fn ready(report: &HealthReport) -> anyhow::Result<String> {
    let HealthReport { reactors, reactors_started, addresses, .. } = report;
    if reactors_started < reactors {
        bail!("{reactors_started} of {reactors} reactors have started");
    }
    if *addresses == 0 {
        bail!("the server listens on no address");
    }
    let plural = if *addresses == 1 { "" } else { "es" };
    Ok(format!("ready: {reactors} reactors, listening on {addresses} address{plural}"))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A server that always responds with `report`; `None`: never.
    fn check_against(probe: Probe, report: Option<HealthReport>, within: Duration) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let listener = UnixListener::bind(&path).unwrap();
        thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream);
            while lines.read_line(&mut String::new()).is_ok_and(|length| length > 0) {
                if let Some(report) = &report {
                    let line = crate::admin::response::to_line(Ok(report));
                    let _ = writeln!(lines.get_mut(), "{line}");
                }
            }
        });
        check(probe, &SocketArgs { socket: Some(path) }, within).map_err(|error| format!("{error:#}"))
    }

    const WELL: HealthReport = HealthReport { reactors: 2, reactors_started: 2, addresses: 1, stuck_reactor: None };
    const LONG: Duration = Duration::from_secs(120);

    #[test]
    fn each_answer_has_its_reason() {
        for (probe, report, expected) in [
            (Probe::Ready, WELL, Ok("ready: 2 reactors")),
            (Probe::Ready, HealthReport { stuck_reactor: Some(1), ..WELL }, Ok("ready")),
            (
                Probe::Ready,
                HealthReport { reactors_started: 1, ..WELL },
                Err("not ready: 1 of 2 reactors have started"),
            ),
            (Probe::Ready, HealthReport { addresses: 0, ..WELL }, Err("not ready: the server listens on no address")),
            (Probe::Healthy, WELL, Ok("healthy: 2 reactors")),
        ] {
            let answer = check_against(probe, Some(report), LONG);
            match (&answer, expected) {
                (Ok(answer), Ok(expected)) | (Err(answer), Err(expected)) => {
                    assert!(answer.starts_with(expected), "{answer}")
                }
                _ => panic!("{answer:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn a_reactor_is_stuck_only_if_it_is_for_the_whole_time() {
        let stuck = HealthReport { stuck_reactor: Some(1), ..WELL };
        let why = check_against(Probe::Healthy, Some(stuck), Duration::from_secs(2)).unwrap_err();
        assert!(why.starts_with("not healthy: reactor 1 is awake and has not looped"), "{why}");
    }

    #[test]
    fn a_server_without_response_is_neither_ready_nor_healthy() {
        for probe in [Probe::Ready, Probe::Healthy] {
            let why = check_against(probe, None, Duration::from_millis(200)).unwrap_err();
            assert!(why.contains("no answer over the control socket within 200ms"), "{why}");
        }
        let nobody = SocketArgs { socket: Some("/nonexistent/a.sock".into()) };
        let why = format!("{:#}", check(Probe::Ready, &nobody, LONG).unwrap_err());
        assert!(why.starts_with("not ready: no server has a control socket"), "{why}");
    }
}
