//! The thread that requests the status at each interval, and sends requests of keys in between. It reconnects when the connection breaks.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::admin::client::{Client, ClientError, SocketArgs};
use crate::admin::request::Request;
use crate::set;
use crate::status::report::{GoalsResponse, PolicyReport, Report};

/// The window of the first report of a connection, and the delay before reconnecting.
const FIRST: Duration = Duration::from_millis(500);

/// An update.
pub(super) enum Update {
    /// A status.
    Report(Box<Report>),
    /// There is no connection; the reason.
    Lost(String),
    /// The response to a request, as text.
    Answer(anyhow::Result<String>),
}

/// Both ends of the thread.
pub(super) struct Feed {
    pub(super) updates: Receiver<Update>,
    requests: SyncSender<Request>,
}

impl Feed {
    /// Starts the thread, with this connection.
    pub(super) fn start(socket: SocketArgs, client: Client, interval: Duration) -> io::Result<Self> {
        let (update, updates) = channel();
        let (requests, wanted) = sync_channel(1);
        let status = StatusThread { socket, interval, update };
        // Not joined, as the server may not respond.
        thread::Builder::new().name("feed".to_owned()).spawn(move || status.run(client, &wanted))?;
        Ok(Self { updates, requests })
    }

    /// Sends a request. One that is sent before the previous response is dropped.
    pub(super) fn request(&self, request: Request) {
        match self.requests.try_send(request) {
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }
}

struct StatusThread {
    socket: SocketArgs,
    interval: Duration,
    update: Sender<Update>,
}

/// The terminal has ended.
struct Ended;

impl StatusThread {
    fn run(self, first: Client, wanted: &Receiver<Request>) {
        let mut client = Some(first);
        loop {
            let why = match client.take().map_or_else(|| Client::connect(&self.socket), Ok) {
                Ok(mut client) => self.poll(&mut client, wanted),
                Err(error) => Ok(error),
            };
            let Ok(why) = why else { return };
            if self.update.send(Update::Lost(why.to_string())).is_err() {
                return;
            }
            match wanted.recv_timeout(FIRST) {
                Ok(_) => {
                    drop(self.update.send(Update::Answer(Err(anyhow::anyhow!("not sent: the server does not answer")))))
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Requests reports until the connection breaks; returns its error.
    fn poll(&self, client: &mut Client, wanted: &Receiver<Request>) -> Result<ClientError, Ended> {
        if let Err(error) = client.request::<Report>(&Request::Status {}) {
            return Ok(error); // its window would be the server's whole run time
        }
        let mut due = Instant::now() + FIRST.min(self.interval);
        loop {
            match wanted.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(request) => match carry_out(client, &request) {
                    Err(error) if !matches!(error, ClientError::Refused(_)) => return Ok(error),
                    answer => self.send(Update::Answer(answer.map_err(Into::into)))?,
                },
                Err(RecvTimeoutError::Timeout) => match client.request(&Request::Status {}) {
                    Ok(report) => {
                        due = Instant::now() + self.interval;
                        self.send(Update::Report(Box::new(report)))?;
                    }
                    Err(error) => return Ok(error),
                },
                Err(RecvTimeoutError::Disconnected) => return Err(Ended),
            }
        }
    }

    fn send(&self, update: Update) -> Result<(), Ended> {
        self.update.send(update).map_err(|_| Ended)
    }
}

/// Sends a request; returns the text of `pilotlight set`.
fn carry_out(client: &mut Client, request: &Request) -> Result<String, ClientError> {
    match request {
        Request::SetPolicy(_) => Ok(set::policy_set(&client.request::<PolicyReport>(request)?)),
        Request::SetGoals(goals) => {
            let answer = client.request::<GoalsResponse>(request)?;
            Ok(if goals.budget.is_some() { set::budget_set(&answer) } else { set::tolerance_set(&answer, None) })
        }
        _ => client.request::<serde_json::Value>(request).map(|_| "done".to_owned()),
    }
}
