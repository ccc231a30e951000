//! Metrics over HTTP, as `GET /metrics`. On a loopback address the `Host` header has to name this
//! machine, which prevents DNS rebinding by a page in a browser.

use std::future::pending;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::Facts;
use super::text::{Format, text};
use crate::http::{Http, IDLE_TIMEOUT, Listener, Peer, Service, is_this_machine};

/// Connections at once.
const CONNECTIONS: usize = 32;

/// Returns the input of the metrics at the time of a request.
pub(crate) type Source = Arc<dyn Fn() -> Facts + Send + Sync>;

#[derive(Clone)]
struct Page {
    source: Source,
    is_loopback: bool,
}

/// Serves metrics to clients of `listener`, if possible not on these CPUs.
///
/// # Errors
/// If the system has no thread or no way to wait left.
pub(crate) fn start(listener: TcpListener, source: Source, reactors: &[Option<u32>]) -> io::Result<Http> {
    let router = move |peer: Peer| {
        let page = Page { source: Arc::clone(&source), is_loopback: peer.is_local };
        Router::new().route("/metrics", get(metrics)).with_state(page)
    };
    let service =
        Service { name: "metrics", connections: CONNECTIONS, idle_timeout: IDLE_TIMEOUT, router, beside: pending() };
    Http::start(Listener::Tcp(listener), service, reactors)
}

async fn metrics(State(page): State<Page>, headers: HeaderMap) -> Response {
    let value = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if page.is_loopback && !is_this_machine(value(header::HOST)) {
        return (StatusCode::MISDIRECTED_REQUEST, "use an address or localhost as the host name\n").into_response();
    }
    let format = Format::accepted(value(header::ACCEPT));
    ([(header::CONTENT_TYPE, format.content_type())], text(&(page.source)(), format)).into_response()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::SocketAddr;
    use std::time::{Duration, Instant};

    use super::*;

    fn request(address: SocketAddr, request: &str) -> String {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn only_metrics_are_answered_in_the_format_that_is_taken() {
        // An address that no other test of this process listens on: its ports are not given to them once this one is closed.
        let listener = TcpListener::bind("127.0.98.8:0").unwrap();
        let address = listener.local_addr().unwrap();
        let http = start(listener, Arc::new(Facts::default), &[]).unwrap();
        let get = |path: &str, headers: &str| {
            request(address, &format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n"))
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
        assert!(request(address, post).starts_with("HTTP/1.1 405"));
        drop(http);
        // A child that another test is starting may hold the socket until its exec.
        let until = Instant::now() + Duration::from_secs(60);
        while let Err(error) = TcpListener::bind(address) {
            assert!(Instant::now() < until, "the address is still taken: {error}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
