//! Connections: idle timeout, progress, and sources.

use std::future::pending;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc::{Sender, channel};

use axum::body::{Body, Bytes};
use axum::routing::get;
use futures_util::stream;

use super::*;

/// Reports its end when dropped.
struct Ends(Sender<()>);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[test]
fn a_connection_that_stops_reading_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (ends, ended) = channel();
    let router = move |peer: Peer| {
        let ends = ends.clone();
        let endless = move || {
            let body = stream::unfold((peer.progress.clone(), Ends(ends.clone())), |(progress, ends)| async {
                progress.note();
                Some((Ok::<_, io::Error>(Bytes::from_static(&[0; 16_384])), (progress, ends)))
            });
            async move { Body::from_stream(body) }
        };
        Router::new().route("/", get(endless))
    };
    let idle_timeout = Duration::from_millis(50);
    let service = Service { name: "test", connections: 1, idle_timeout, router, beside: pending() };
    let http = Http::start(Listener::Tcp(listener), service, &[]).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    ended.recv_timeout(Duration::from_secs(60)).expect("the body ends with its connection");
    drop((http, stream));
}

#[test]
fn each_request_of_a_kept_connection_resets_its_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = channel();
    let router = move |peer: Peer| {
        tell.send(peer.progress).unwrap();
        Router::new().route("/", get(|| async { "." }))
    };
    let service = Service { name: "test", connections: 1, idle_timeout: IDLE_TIMEOUT, router, beside: pending() };
    let http = Http::start(Listener::Tcp(listener), service, &[]).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let progress = told.recv_timeout(Duration::from_secs(60)).unwrap();
    for path in ["/", "/", "/none"] {
        let before = progress.last();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = [0; 4096];
        assert_ne!(stream.read(&mut answer).unwrap(), 0);
        assert!(progress.last() > before, "{path}");
    }
    drop((http, stream));
}

#[test]
fn idle_connections_deny_a_new_one_nothing() {
    const CONNECTIONS: usize = 4;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let router = |_| Router::new().route("/", get(|| async { "." }));
    let service =
        Service { name: "test", connections: CONNECTIONS, idle_timeout: Duration::MAX, router, beside: pending() };
    let http = Http::start(Listener::Tcp(listener), service, &[]).unwrap();
    let idle: Vec<_> = (0..4 * CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = [0; 4096];
    assert_ne!(stream.read(&mut answer).unwrap(), 0, "an idle one makes room");
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    drop((http, idle));
}

#[test]
fn addresses_of_this_machine_are_one_source() {
    let of = |text: &str| source(text.parse().unwrap());
    assert_eq!(of("127.0.0.1"), of("127.8.0.9"));
    assert_eq!(of("127.0.0.1"), of("::1"));
    assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
    assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:2"), "one host may have all of them");
    assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
}

#[test]
fn names_of_other_machines_are_not_this_one() {
    for host in ["localhost", "LOCALHOST:9808", "127.0.0.1:9808", "[::1]:9808", "::1", "192.0.2.1"] {
        assert!(is_this_machine(host), "{host}");
    }
    for host in ["", "example.com", "example.com:9808", "localhost.example.com", "127.0.0.1.example.com:80"] {
        assert!(!is_this_machine(host), "{host}");
    }
}
