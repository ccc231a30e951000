//! HTTP for metrics, on a thread of its own that stays off the CPUs of reactors.
//!
//! Bounded: connections at once, the time of a request's head, the time of a connection. Only `GET /metrics` is answered. On a loopback address
//! the name under which the server is asked has to be this machine's, so that a page in a browser cannot read it under another
//! name (DNS rebinding).

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use pilotlight_reactor::keep_off;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use tracing::debug;

use super::Facts;
use super::text::{Format, text};

/// Connections at once; one more is closed.
const CONNECTIONS: usize = 32;
/// How long the head of a request may take.
const HEAD: Duration = Duration::from_secs(10);
/// How long a connection is kept.
const LONGEST: Duration = Duration::from_secs(30);
/// How long to wait where the system has no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// What metrics are computed from, at the time of a request.
pub(crate) type Source = Arc<dyn Fn() -> Facts + Send + Sync>;

/// A thread that serves metrics until the end of this.
pub(crate) struct Http {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone)]
struct Page {
    source: Source,
    is_loopback: bool,
}

impl Http {
    /// Serves metrics to who connects to `listener`, on other CPUs than these where it may use any.
    ///
    /// # Errors
    /// If the system has no thread or no way to wait left.
    pub(crate) fn start(listener: TcpListener, source: Source, reactors: &[Option<u32>]) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let cpus: Vec<u32> = reactors.iter().flatten().copied().collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            keep_off(&cpus);
            runtime.block_on(async move {
                let accepting = tokio::spawn(accept(listener, source));
                let _ = stopped.await;
                accepting.abort();
            });
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn router(page: Page) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state(page)
}

async fn accept(listener: TcpListener, source: Source) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::warn!("metrics are not served: {error}"),
    };
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => match Arc::clone(&places).try_acquire_owned() {
                Ok(place) => {
                    let is_loopback = stream.local_addr().is_ok_and(|address| address.ip().is_loopback());
                    let page = Page { source: Arc::clone(&source), is_loopback };
                    tokio::spawn(async move {
                        serve(stream, peer, router(page)).await;
                        drop(place);
                    });
                }
                Err(_) => tracing::warn!(%peer, reason = "too many connections", "metrics connection refused"),
            },
            Err(error) => {
                debug!("metrics: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, peer: SocketAddr, router: Router) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Ok(Err(error)) = tokio::time::timeout(LONGEST, connection).await {
        debug!(%peer, "metrics: {error}");
    }
}

async fn metrics(State(page): State<Page>, headers: HeaderMap) -> Response {
    let value = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if page.is_loopback && !is_this_machine(value(header::HOST)) {
        return (StatusCode::MISDIRECTED_REQUEST, "ask by address or as localhost\n").into_response();
    }
    let format = Format::accepted(value(header::ACCEPT));
    ([(header::CONTENT_TYPE, format.content_type())], text(&(page.source)(), format)).into_response()
}

/// Whether a `Host` is an address or `localhost`, with or without a port.
fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    };
    name.eq_ignore_ascii_case("localhost") || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn names_of_other_machines_are_not_this_one() {
        for host in ["localhost", "LOCALHOST:9808", "127.0.0.1:9808", "[::1]:9808", "::1", "192.0.2.1"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in ["", "example.com", "example.com:9808", "localhost.example.com", "127.0.0.1.example.com:80"] {
            assert!(!is_this_machine(host), "{host}");
        }
    }

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn only_metrics_are_answered_in_the_format_that_is_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let http = Http::start(listener, Arc::new(Facts::default), &[]).unwrap();
        let get = |path: &str, headers: &str| {
            ask(address, &format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n"))
        };
        let plain = get("/metrics", "Host: localhost\r\n");
        assert!(plain.starts_with("HTTP/1.1 200") && plain.contains("text/plain; version=0.0.4"), "{plain}");
        assert!(plain.contains("# TYPE pilotlight_thread_moves_total counter") && !plain.contains("# EOF"));
        let open =
            get("/metrics", "Host: 127.0.0.1\r\nAccept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n");
        assert!(open.contains("# TYPE pilotlight_thread_moves counter") && open.ends_with("# EOF\n"), "{open}");
        assert!(get("/metrics", "Host: example.com\r\n").starts_with("HTTP/1.1 421"));
        assert!(get("/", "Host: localhost\r\n").starts_with("HTTP/1.1 404"));
        let post = "POST /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        assert!(ask(address, post).starts_with("HTTP/1.1 405"));
        drop(http);
        assert!(std::net::TcpStream::connect(address).is_err(), "nobody listens any more");
    }
}
