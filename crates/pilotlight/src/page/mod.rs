//! A live page of a running server, for browsers.
//!
//! *Problem.* An operator watches power while they change a policy or a budget, from another machine. Whatever a
//! browser can reach, every page that is open in that browser can try to reach too. *Words.* The *token* is a secret in a file; a login
//! makes a *session*, which a cookie names. A *sample* is a snapshot of the server; a *point* is a coarser one that is stored.
//!
//! *Rules.* One sampler for all readers (`feed.rs`), which reads cells that reactors write anyway and wakes none. Every request is checked for
//! its `Host` and `Origin` headers (`guard.rs`) before it gets to a session (`session.rs`) and a route (`routes.rs`).
//! Changes are requests of the control socket, answered by the same code. All of this runs on the thread of `http.rs`, off the CPUs of reactors.
//!
//! *Properties* (tests): no data without a session; memory does not grow with time, reconnects, or readers that stop reading.

pub(crate) mod command;
mod feed;
mod guard;
mod routes;
mod sample;
mod session;
pub(crate) mod token;

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, anyhow};

use crate::admin::socket::{BindError, ControlSocket};
use crate::config::{self, PageAddress};
use crate::http::{Http, IDLE_TIMEOUT, Listener, Peer, Service};
use crate::status::measure::Snapshot;
use crate::status::report::{PageReport, Report};
use feed::Feed;
use routes::App;
use session::Sessions;
use token::{OwnedFile, Token};

/// Connections at once.
const CONNECTIONS: usize = 96;

/// The server behind the page.
pub(crate) trait StatusSource: Send + Sync + 'static {
    /// Its counters. Wakes no reactor.
    fn snapshot(&self) -> Snapshot;
    /// The state and the rates between two snapshots; without data that only the main core has.
    fn report(&self, before: &Snapshot, now: &Snapshot) -> Report;
    /// Handles a request of the control socket that came over the page, from `peer`.
    fn handle(&self, request: &[u8], peer: &str) -> String;
}

/// A page that is to be served.
pub(crate) struct Prepared {
    listener: Listener,
    token: Token,
    file: Option<OwnedFile>,
    pub(crate) page: config::Page,
}

/// A page that is served until the end of this.
pub(crate) struct Page {
    _http: Http,
    /// Is removed with it.
    _file: Option<OwnedFile>,
}

impl Prepared {
    /// Takes the address and the token. Connections wait until the page is served.
    ///
    /// # Errors
    /// If the address is taken, or the token's file is not fit.
    pub(crate) fn new(page: &config::Page) -> anyhow::Result<Self> {
        let (listener, listen) = match &page.listen {
            PageAddress::Tcp(address) => tcp(*address)?,
            PageAddress::Unix(path) => {
                let socket = ControlSocket::bind(path, None).map_err(|error| unix_error(&error, path))?;
                (Listener::Unix(socket), page.listen.clone())
            }
        };
        let (token, file) = token::open(&page.token)?;
        Ok(Self { listener, token, file, page: config::Page { listen, ..page.clone() } })
    }

    /// Data about the page.
    pub(crate) fn report(&self) -> PageReport {
        let token_file = std::path::absolute(self.page.token.path()).unwrap_or_else(|_| self.page.token.path().into());
        PageReport { address: self.page.listen.to_string(), token_file: token_file.display().to_string() }
    }

    /// Serves it, on other CPUs than these where it may use any.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub(crate) fn serve(self, source: Arc<dyn StatusSource>, reactors: &[Option<u32>]) -> anyhow::Result<Page> {
        let feed = Arc::new(Feed::default());
        let app = Arc::new(App {
            source: Arc::clone(&source),
            feed: Arc::clone(&feed),
            sessions: Mutex::new(Sessions::new(self.token)),
            cookie: guard::cookie_name().context("no random numbers for the name of the page's cookie")?,
            hosts: self.page.hosts,
        });
        let router = move |peer: Peer| routes::router(Arc::clone(&app), peer);
        let beside = feed::run(feed, source, self.page.tick);
        let service = Service { name: "page", connections: CONNECTIONS, idle_timeout: IDLE_TIMEOUT, router, beside };
        let http = Http::start(self.listener, service, reactors).context("cannot start a thread for the page")?;
        Ok(Page { _http: http, _file: self.file })
    }
}

/// The listener, and its address with the port that port 0 became.
fn tcp(address: SocketAddr) -> anyhow::Result<(Listener, PageAddress)> {
    let listener = TcpListener::bind(address).and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (address, listener) = listener
        .with_context(|| format!("cannot serve the page on {address}: choose another address (--page), or none"))?;
    Ok((Listener::Tcp(listener), PageAddress::Tcp(address)))
}

/// Why there is no page on a Unix socket.
pub(crate) fn unix_error(error: &BindError, path: &std::path::Path) -> anyhow::Error {
    let path = path.display();
    let why = match error {
        BindError::Live { .. } => "a server answers there already".to_owned(),
        BindError::NotASocket(_) => "something else has that name: remove it".to_owned(),
        BindError::OpenDirectory(_) => "its directory lets others replace files".to_owned(),
        BindError::System { source, .. } => source.to_string(),
    };
    anyhow!("cannot serve the page on unix:{path}: {why}; --page chooses another place, or none")
}
