//! The server's control socket, as its agent uses it: a thread sends the limit and reads counters, so that nobody else waits for the server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use pilotlight_input::quantity::{self, POWERS};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::warn;

/// Interval of looks at the counters: half a window of a power sensor.
const INTERVAL: Duration = Duration::from_millis(250);

/// Difference of the clocks of agent and server from which they are two, in nanoseconds: chosen, far above the time of a request.
const CLOCKS_DIFFER_NS: u64 = 500_000_000;

/// What the server says of a limit that it has taken.
#[derive(Deserialize)]
struct Taken {
    valid_for_ns: Option<u64>,
}

/// What the server counts; docs/operate/watch.md. Times are of its `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Counters {
    pub(super) now_ns: u64,
    pub(super) power: Option<Window>,
    pub(super) source: String,
    pub(super) bottleneck: Option<String>,
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
    pub(super) busy_ns: u64,
    pub(super) in_progress_ns: u64,
    pub(super) io_threads: usize,
    pub(super) limit: Option<InForce>,
}

/// Power over a time.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(super) struct Window {
    pub(super) began_ns: u64,
    pub(super) power_uw: u64,
}

/// The limit in force.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(super) struct InForce {
    pub(super) power_uw: u64,
    /// Since when.
    pub(super) since_ns: u64,
    /// Of the server's configuration.
    pub(super) floor_uw: u64,
    /// The limit after the deadline.
    pub(super) then_uw: u64,
}

/// A limit for the server: powers in microwatts, the deadline of `CLOCK_BOOTTIME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) power_uw: u64,
    pub(super) until_ns: u64,
    pub(super) then_uw: u64,
}

/// A connection.
pub(super) struct Connection(BufReader<UnixStream>);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("the server refuses: {0}")]
    Refused(String),
    #[error(transparent)]
    Lost(#[from] anyhow::Error),
}

impl Connection {
    pub(super) fn open(path: &Path, patience: Duration) -> anyhow::Result<Self> {
        let connect = || {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(patience))?;
            stream.set_write_timeout(Some(patience))?;
            Ok::<_, std::io::Error>(stream)
        };
        let stream = connect().with_context(|| {
            format!("no server at {}: start one, or name its control socket with --socket", path.display())
        })?;
        Ok(Self(BufReader::new(stream)))
    }

    fn request<T: DeserializeOwned>(&mut self, mut request: Value) -> Result<T, RequestError> {
        request["version"] = 1.into();
        let mut line = String::new();
        let sent = self.0.get_mut().write_all(format!("{request}\n").as_bytes());
        let read = sent.and_then(|()| self.0.read_line(&mut line)).context("the server does not answer")?;
        if read == 0 {
            return Err(anyhow!("the server has ended").into());
        }
        let mut response: Value = serde_json::from_str(&line).context("the answer of the server is not JSON")?;
        if let Some(refusal) = response.get("error") {
            let help = refusal["help"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let message = refusal["message"].as_str().unwrap_or_default().to_owned();
            return Err(RequestError::Refused(help.fold(message, |text, help| text + "; " + help)));
        }
        let ok = response.get_mut("ok").map(Value::take).context("the server is of another version")?;
        Ok(serde_json::from_value(ok).context("the server is of another version")?)
    }

    /// Its counters; looks for the bottleneck if `bottleneck`, which wakes a core.
    pub(super) fn counters(&mut self, bottleneck: bool) -> anyhow::Result<Counters> {
        Ok(self.request(json!({ "command": "counters", "bottleneck": bottleneck }))?)
    }

    fn set(&mut self, setting: Setting) -> Result<(), RequestError> {
        let [power, then] = [setting.power_uw, setting.then_uw].map(|uw| quantity::format(uw, POWERS));
        let deadline = setting.until_ns;
        let request = json!({ "command": "set-limit", "power": power, "until_boottime_ns": deadline, "then": then });
        let ahead_ns = deadline.saturating_sub(pilotlight_fleet::now_ns());
        let taken: Taken = self.request(request)?;
        if taken.valid_for_ns.unwrap_or(0) <= ahead_ns.saturating_add(CLOCKS_DIFFER_NS) {
            return Ok(());
        }
        // the share would outlive its deadline
        let after = json!({ "command": "set-limit", "power": then, "until_boottime_ns": deadline, "then": then });
        self.request::<Value>(after)?;
        Err(anyhow!("the server's CLOCK_BOOTTIME is another one: run the agent in its time namespace").into())
    }
}

/// What the thread and its users share.
#[derive(Default)]
struct State {
    /// The wanted limit, and its number: another one for another power.
    wanted: Option<(u64, Setting)>,
    /// Number of the last limit that the server has taken.
    taken: u64,
    counters: Option<Counters>,
    asks: bool,
    is_stopped: bool,
    is_lost: bool,
}

/// The thread of a connection. Dropped, it ends.
pub(super) struct Control {
    shared: Shared,
    thread: Option<JoinHandle<()>>,
}

/// Access to the thread.
#[derive(Clone, Default)]
pub(super) struct Shared(Arc<(Mutex<State>, Condvar)>);

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.0.1.notify_all();
    }

    /// Has this limit sent.
    pub(super) fn set(&self, number: u64, setting: Setting) {
        self.change(|state| state.wanted = Some((number, setting)));
    }

    /// The last counters, and the number of the limit that the server had taken before; `None` without a connection. Has the bottleneck looked for
    /// if `asks`.
    pub(super) fn latest(&self, asks: bool) -> Option<(u64, Counters)> {
        let mut state = self.state();
        state.asks |= asks;
        let taken = state.taken;
        state.counters.clone().filter(|_| !state.is_lost).map(|counters| (taken, counters))
    }
}

impl Control {
    /// Starts it; `lost` is called once the connection is lost.
    pub(super) fn start(connection: Connection, lost: impl FnOnce(String) + Send + 'static) -> std::io::Result<Self> {
        let shared = Shared::default();
        let theirs = shared.clone();
        let body = move || {
            let followed = catch_unwind(AssertUnwindSafe(|| follow(connection, &theirs)));
            if let Err(error) = followed.unwrap_or_else(|_| Err(anyhow!("a fault of the agent (see above)"))) {
                theirs.change(|state| state.is_lost = true);
                lost(format!("{error:#}"));
            }
        };
        let thread = Some(std::thread::Builder::new().name("control".to_owned()).spawn(body)?);
        Ok(Self { shared, thread })
    }

    pub(super) fn shared(&self) -> Shared {
        self.shared.clone()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.shared.change(|state| state.is_stopped = true);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Sends limits and reads counters until it is stopped or the connection is lost.
fn follow(mut connection: Connection, shared: &Shared) -> anyhow::Result<()> {
    let mut sent = None;
    let mut refusal = None;
    loop {
        let (wanted, asks) = {
            let is_settled = |state: &mut State| state.wanted == sent && !state.is_stopped;
            let waited = shared.0.1.wait_timeout_while(shared.state(), INTERVAL, is_settled);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.is_stopped && state.wanted == sent {
                return Ok(());
            }
            (state.wanted, std::mem::take(&mut state.asks))
        };
        let mut taken = None;
        if let Some((number, setting)) = wanted.filter(|_| wanted != sent) {
            match connection.set(setting) {
                Ok(()) => (taken, refusal) = (Some(number), None),
                Err(RequestError::Refused(why)) => {
                    if refusal.as_ref() != Some(&why) {
                        warn!("the limit is not set: {why}");
                    }
                    refusal = Some(why);
                }
                Err(RequestError::Lost(error)) => return Err(error),
            }
            sent = wanted;
        }
        let counters = connection.counters(asks)?;
        shared.change(|state| {
            state.taken = taken.unwrap_or(state.taken);
            state.counters = Some(counters);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc::channel;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    /// Waits for counters that were read after the server has answered a limit.
    fn wait_until(shared: &Shared, is_met: impl Fn(&State) -> bool) -> u64 {
        let waited = shared.0.1.wait_timeout_while(shared.state(), TIMEOUT, |state| !is_met(state));
        let (state, timeout) = waited.unwrap();
        assert!(!timeout.timed_out());
        state.taken
    }

    #[test]
    fn a_server_with_another_clock_gets_no_share() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let (mut line, mut powers) = (String::new(), Vec::new());
            while stream.read_line(&mut line).unwrap() > 0 {
                let request: Value = serde_json::from_str(&line).unwrap();
                line.clear();
                powers.push(request["power"].as_str().unwrap().to_owned());
                let ok = json!({ "version": 1, "ok": { "valid_for_ns": 3_600_000_000_000_u64 } });
                stream.get_mut().write_all(format!("{ok}\n").as_bytes()).unwrap();
            }
            powers
        });
        let mut connection = Connection::open(&path, TIMEOUT).unwrap();
        let setting = |ahead_s: u64| Setting {
            power_uw: 300_000_000,
            until_ns: pilotlight_fleet::now_ns() + ahead_s * 1_000_000_000,
            then_uw: 120_000_000,
        };
        connection.set(setting(3600)).unwrap();
        let error = connection.set(setting(15)).unwrap_err();
        assert!(error.to_string().contains("CLOCK_BOOTTIME"), "{error}");
        drop(connection);
        assert_eq!(server.join().unwrap(), ["300W", "300W", "120W"], "the limit after the deadline at once");
    }

    #[test]
    fn a_limit_counts_once_the_server_has_taken_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let (ended, end) = channel::<()>();
        let server = std::thread::spawn(move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let (mut line, mut counted) = (String::new(), 0_u64);
            while end.try_recv().is_err() && stream.read_line(&mut line).unwrap() > 0 {
                let request: Value = serde_json::from_str(&line).unwrap();
                line.clear();
                counted += 1;
                let counters = json!({ "now_ns": counted, "power": null, "source": "", "bottleneck": null, "read_bytes": 0,
                    "written_bytes": 0, "busy_ns": 0, "in_progress_ns": 0, "io_threads": 1, "limit": null });
                let response = match (request["command"].as_str(), request["until_boottime_ns"].as_u64()) {
                    (Some("counters"), _) => json!({ "version": 1, "ok": counters }),
                    (Some("set-limit"), Some(1)) => {
                        json!({ "version": 1, "error": { "message": "the deadline is past", "help": [] } })
                    }
                    (Some("set-limit"), Some(_)) if request["power"] == "300100mW" => json!({ "version": 1, "ok": {} }),
                    _ => panic!("{request}"),
                };
                stream.get_mut().write_all(format!("{response}\n").as_bytes()).unwrap();
            }
        });
        let (lose, lost) = channel();
        let control =
            Control::start(Connection::open(&path, TIMEOUT).unwrap(), move |why| lose.send(why).unwrap()).unwrap();
        let shared = control.shared();
        wait_until(&shared, |state| state.counters.is_some());
        let before_ns = shared.latest(false).unwrap().1.now_ns;
        shared.set(1, Setting { power_uw: 300_100_000, until_ns: 1, then_uw: 1_000_000 });
        let is_later = |state: &State| state.counters.as_ref().is_some_and(|counters| counters.now_ns > before_ns + 1);
        assert_eq!(wait_until(&shared, is_later), 0, "it was refused");
        shared.set(2, Setting { power_uw: 300_100_000, until_ns: 2, then_uw: 1_000_000 });
        assert_eq!(wait_until(&shared, |state| state.taken != 0), 2);
        ended.send(()).unwrap();
        assert!(lost.recv_timeout(TIMEOUT).unwrap().starts_with("the server "));
        assert_eq!(shared.latest(false), None);
        drop(control);
        server.join().unwrap();
    }
}
