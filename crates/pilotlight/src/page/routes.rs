//! Routes of the page.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::json;
use tracing::{info, warn};

use super::feed::{Feed, READERS};
use super::session::{LoginRefusal, Sessions};
use super::{StatusSource, guard, token};
use crate::admin::refusal::Refusal;
use crate::admin::request::Request as AdminRequest;
use crate::admin::response::to_line;
use crate::http::Peer;

/// Longest body of a request, in bytes.
const MAX_BODY: usize = 16 * 1024;

const HTML: &str = "text/html; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const JSON: &str = "application/json";

/// State shared by all connections.
pub(super) struct App {
    pub(super) source: Arc<dyn StatusSource>,
    pub(super) feed: Arc<Feed>,
    pub(super) sessions: Mutex<Sessions>,
    /// The name of the session's cookie.
    pub(super) cookie: String,
    /// Accepted host names.
    pub(super) hosts: Vec<String>,
}

/// Of one connection.
#[derive(Clone)]
struct Connection {
    app: Arc<App>,
    peer: Peer,
}

impl App {
    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session that a request names, if there is one.
    fn session<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let id = guard::session(headers, &self.cookie)?;
        self.sessions().is_open(id, Instant::now()).then_some(id)
    }
}

pub(super) fn router(app: Arc<App>, peer: Peer) -> Router {
    let connection = Connection { app, peer };
    let asset = |kind: &'static str, text: &'static str| get(move || async move { typed(kind, text) });
    Router::new()
        .route("/", get(page))
        .route("/style.css", asset("text/css; charset=utf-8", include_str!("assets/style.css")))
        .route("/page.js", asset(JAVASCRIPT, include_str!("assets/page.js")))
        .route("/login.js", asset(JAVASCRIPT, include_str!("assets/login.js")))
        .route("/session", get(session))
        .route("/events", get(events))
        .route("/login", post(login))
        .route("/logout", post(logout))
        .route("/change", post(change))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(connection.clone(), guarded))
        .with_state(connection)
}

async fn guarded(State(connection): State<Connection>, request: Request, next: Next) -> Response {
    let checked = guard::check(request.method(), request.uri().path(), request.headers(), &connection.app.hosts);
    let mut response = match checked {
        Ok(()) => next.run(request).await,
        Err((status, why)) => refused(status, why),
    };
    guard::add_headers(response.headers_mut());
    response
}

fn typed(kind: &'static str, text: impl IntoResponse) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// A refusal, in the form of the control socket.
fn refused(status: StatusCode, why: impl Display) -> Response {
    (status, typed(JSON, to_line::<()>(Err(Refusal::new(why))))).into_response()
}

fn no_session() -> Response {
    refused(StatusCode::UNAUTHORIZED, "log in first")
}

/// The page with a session, else the login.
async fn page(State(Connection { app, .. }): State<Connection>, headers: HeaderMap) -> Response {
    let is_open = app.session(&headers).is_some();
    typed(HTML, if is_open { include_str!("assets/page.html") } else { include_str!("assets/login.html") })
}

/// Whether there is a session, and a place for one more reader.
async fn session(State(Connection { app, .. }): State<Connection>, headers: HeaderMap) -> Response {
    let is_open = app.session(&headers).is_some();
    typed(JSON, json!({ "open": is_open, "places": app.feed.places(), "readers": READERS }).to_string())
}

async fn events(State(Connection { app, peer }): State<Connection>, headers: HeaderMap) -> Response {
    let Some(id) = app.session(&headers).map(str::to_owned) else { return no_session() };
    let of_session = Arc::clone(&app);
    let may_read = move || of_session.sessions().is_open(&id, Instant::now());
    match app.feed.read(peer.progress, may_read) {
        Some(body) => typed("text/event-stream", body),
        None => refused(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("{READERS} pages of this server are open: close one of the others"),
        ),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: String,
}

async fn login(State(Connection { app, peer }): State<Connection>, body: Bytes) -> Response {
    let Ok(Login { token }) = serde_json::from_slice(&body) else {
        return refused(StatusCode::BAD_REQUEST, "send {\"token\": \"...\"}");
    };
    let outcome = app.sessions().login(token.trim(), &peer.source, Instant::now(), token::random);
    match outcome {
        Ok(id) => {
            info!(peer = %peer.name, "page: a session was opened");
            let cookie = guard::set_cookie(&app.cookie, Some(&id));
            ([(header::SET_COOKIE, cookie)], typed(JSON, to_line(Ok(true)))).into_response()
        }
        Err(LoginRefusal::Wrong) => {
            warn!(peer = %peer.name, "page: a wrong token was refused");
            refused(StatusCode::FORBIDDEN, "this is not the token: `pilotlight page` on the server prints it")
        }
        Err(LoginRefusal::TooMany(time)) => {
            let seconds = time.as_secs() + 1;
            let why = format!("too many wrong tokens: try again in {seconds} s");
            ([(header::RETRY_AFTER, seconds.to_string())], refused(StatusCode::TOO_MANY_REQUESTS, why)).into_response()
        }
        Err(LoginRefusal::NoRandom) => {
            refused(StatusCode::INTERNAL_SERVER_ERROR, "the system gives no random numbers for a session")
        }
    }
}

async fn logout(State(Connection { app, .. }): State<Connection>, headers: HeaderMap) -> Response {
    if let Some(id) = guard::session(&headers, &app.cookie) {
        app.sessions().end(id);
    }
    ([(header::SET_COOKIE, guard::set_cookie(&app.cookie, None))], typed(JSON, to_line(Ok(true)))).into_response()
}

/// Carries out a request of the control socket. Its refusal is an answer like any other, as there.
async fn change(State(Connection { app, peer }): State<Connection>, headers: HeaderMap, body: Bytes) -> Response {
    if app.session(&headers).is_none() {
        return no_session();
    }
    match AdminRequest::parse(&body) {
        Ok(request) if is_for_pages(&request) => {}
        Ok(_) => {
            let what = "the page sets policy, goals, caps, priorities, minimums and background work: \
                        use the control socket for other commands";
            return typed(JSON, to_line::<()>(Err(Refusal::for_field("command", what))));
        }
        Err(refusal) => return typed(JSON, to_line::<()>(Err(refusal))),
    }
    // the server's state can be locked for as long as a device takes to open
    let answer = tokio::task::spawn_blocking(move || app.source.handle(&body, &peer.name)).await;
    match answer {
        Ok(answer) => typed(JSON, answer),
        Err(_) => refused(StatusCode::INTERNAL_SERVER_ERROR, "the request failed; see the server's log"),
    }
}

/// Whether the page may send a request: only changes of how the server works, not of namespaces, access or files. A stolen session
/// must not get further. Without `_`, so that a new command is decided here too.
const fn is_for_pages(request: &AdminRequest) -> bool {
    match request {
        AdminRequest::SetPolicy(_)
        | AdminRequest::SetGoals(_)
        | AdminRequest::SetCap(_)
        | AdminRequest::SetPriority(_)
        | AdminRequest::SetMinimum(_)
        | AdminRequest::SetBackground { .. } => true,
        AdminRequest::Status {}
        | AdminRequest::Health {}
        | AdminRequest::Counters { .. }
        | AdminRequest::SetLimit(_) // by the program that sets it
        | AdminRequest::HostList { .. }
        | AdminRequest::HostAdd(_)
        | AdminRequest::HostRemove(_)
        | AdminRequest::ConfigSave(_)
        | AdminRequest::Connections {}
        | AdminRequest::Disconnect(_)
        | AdminRequest::NamespaceList { .. }
        | AdminRequest::NamespaceAdd(_)
        | AdminRequest::NamespaceRemove { .. }
        | AdminRequest::NamespaceResize(_)
        | AdminRequest::NamespaceShow(_)
        | AdminRequest::NamespaceHide(_)
        | AdminRequest::ListenerList {}
        | AdminRequest::ListenerAdd { .. }
        | AdminRequest::ListenerRemove { .. }
        | AdminRequest::SubsystemList {}
        | AdminRequest::PathList {}
        | AdminRequest::PathSet { .. }
        | AdminRequest::SubsystemAdd(_)
        | AdminRequest::SubsystemRemove { .. }
        | AdminRequest::SubsystemListen { .. } => false,
    }
}
