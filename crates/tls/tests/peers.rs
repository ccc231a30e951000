//! OpenSSL and GnuTLS (on which the Linux kernel's tlshd is built) as peers. Skipped, with a line that says so, where they are missing.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use common::{advance, long_identity, psk, read, server_of, wait, write_all};
use pilotlight_tls::{Alert, ClientConfig, Failure, Handshake, Hash, Session, SessionError};

/// The key of `psk(_, 1, Hash::Sha256)`.
const KEY: &str = "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20";

/// A program that is stopped at the end of the test.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Peer {
    /// Starts a program, or says that it is missing.
    fn start(program: &str, arguments: &[&str]) -> Option<Self> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        match command.spawn() {
            Ok(child) => Some(Self(child)),
            Err(error) => {
                println!("SKIPPED: {program}: {error}");
                None
            }
        }
    }

    fn send(&mut self, text: &str) {
        self.0.stdin.as_mut().expect("piped").write_all(text.as_bytes()).expect("the program reads");
    }

    /// Waits for an output line with `text`.
    fn expect(&mut self, text: &str) -> String {
        let mut output = BufReader::new(self.0.stdout.as_mut().expect("piped"));
        loop {
            let mut line = String::new();
            assert_ne!(output.read_line(&mut line).expect("text"), 0, "ended before it printed {text:?}");
            if line.contains(text) {
                return line;
            }
        }
    }
}

fn finish(handshake: &mut Handshake, socket: &TcpStream) -> Result<Session, Failure> {
    loop {
        if let Some(end) = advance(handshake, socket) {
            return end;
        }
        wait(socket, false);
    }
}

/// Accepts one connection and finishes its handshake.
fn accept(listener: &TcpListener, identity: &[u8], first: u8) -> (TcpStream, Result<Session, Failure>) {
    let socket = listener.accept().expect("the client connects").0;
    let config = server_of(vec![psk(identity, first, Hash::Sha256)]);
    let end = finish(&mut Handshake::server(&config).expect("server"), &socket);
    (socket, end)
}

fn read_text(session: &mut Session, socket: &TcpStream, text: &str) {
    let mut received = vec![];
    while received.len() < text.len() {
        let mut buffer = [0; 100];
        let bytes = read(session, socket, &mut buffer).expect("text");
        assert_ne!(bytes, 0, "closed after {received:?}");
        received.extend(&buffer[..bytes]);
    }
    assert_eq!(String::from_utf8_lossy(&received), text);
}

fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("bound").to_string();
    (listener, address)
}

fn s_client(address: &str, identity: &str, more: &[&str]) -> Option<Peer> {
    let fixed = ["s_client", "-tls1_3", "-brief", "-connect", address, "-psk", KEY, "-psk_identity", identity];
    Peer::start("openssl", &[&fixed, more].concat())
}

#[test]
fn openssl_connects_updates_keys_and_closes() {
    let (listener, address) = listen();
    let identity = "NVMe0R01 nqn.2014-08.org.example:host nqn.2014-08.org.example:storage"; // OpenSSL 3.0 takes at most 256 bytes
    for more in [&[][..], &["-groups", "X448:P-384"]] {
        // X448 is not offered: a HelloRetryRequest
        let Some(mut peer) = s_client(&address, identity, more) else { return };
        let (socket, end) = accept(&listener, identity.as_bytes(), 1);
        let mut session = end.expect("handshake");
        assert_eq!(session.identity(), identity.as_bytes());
        peer.send("hello\n");
        read_text(&mut session, &socket, "hello\n");
        peer.send("K\n"); // KeyUpdate that asks for ours
        wait(&socket, false);
        assert_eq!(session.read(&socket, &mut [0; 10]), Err(SessionError::WouldBlock), "no text in it");
        peer.send("after\n");
        read_text(&mut session, &socket, "after\n");
        write_all(&mut session, &socket, b"reply\n");
        peer.expect("reply");
        peer.send("Q\n"); // ends s_client, which sends close_notify
        assert_eq!(read(&mut session, &socket, &mut [0; 10]), Ok(0));
    }
}

#[test]
fn openssl_with_a_wrong_key_or_an_unknown_identity_is_refused() {
    let (listener, address) = listen();
    let Some(_peer) = s_client(&address, "id", &[]) else { return };
    assert_eq!(accept(&listener, b"id", 2).1.expect_err("another key"), Failure::WrongKey);
    let Some(_peer) = s_client(&address, "id", &[]) else { return };
    let failure = accept(&listener, b"other", 1).1.expect_err("unknown");
    assert_eq!(failure, Failure::UnknownIdentity { identity: "id".to_owned(), offered: 1 });
    let Some(_peer) = s_client(&address, "id", &["-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"]) else { return };
    let failure = accept(&listener, b"id", 1).1.expect_err("ChaCha20 only");
    assert!(matches!(failure, Failure::NoCommonCipher { .. } | Failure::NoPsk), "{failure}");
}

#[test]
fn openssl_without_a_key_or_without_tls13_is_refused() {
    let (listener, address) = listen();
    for (version, expected) in [("-tls1_3", Failure::NoPsk), ("-tls1_2", Failure::NoTls13)] {
        let Some(_peer) = Peer::start("openssl", &["s_client", version, "-connect", &address]) else { return };
        assert_eq!(accept(&listener, b"id", 1).1.expect_err("refused"), expected);
    }
}

/// Starts a server of OpenSSL and connects to it.
fn connect_to_openssl(first: u8) -> Option<(Peer, TcpStream, Result<Session, Failure>)> {
    let arguments =
        ["s_server", "-tls1_3", "-nocert", "-rev", "-accept", "127.0.0.1:0", "-psk", KEY, "-psk_identity", "id"];
    let mut peer = Peer::start("openssl", &arguments)?;
    let line = peer.expect("ACCEPT"); // followed by its address
    let socket = TcpStream::connect(line["ACCEPT".len()..].trim()).expect("it listens");
    let config = ClientConfig::new(vec![psk(b"id", first, Hash::Sha256)]);
    let end = finish(&mut Handshake::client(&config).expect("client"), &socket);
    Some((peer, socket, end))
}

#[test]
fn our_client_connects_to_openssl_which_sends_tickets() {
    let Some((_peer, socket, end)) = connect_to_openssl(1) else { return };
    let mut session = end.expect("handshake");
    for text in ["abc\n", "defg\n"] {
        write_all(&mut session, &socket, text.as_bytes());
        let reversed: String = text.trim().chars().rev().chain(['\n']).collect();
        read_text(&mut session, &socket, &reversed);
        session.update_key().expect("requested");
    }
    session.close(&socket).expect("close_notify");

    let Some((_peer, _socket, end)) = connect_to_openssl(2) else { return };
    assert!(matches!(end, Err(Failure::Alert(Alert(_)))), "{end:?}");
}

#[test]
fn gnutls_connects_with_a_long_identity() {
    let (listener, address) = listen();
    let port = address.rsplit(':').next().expect("a port");
    let identity = String::from_utf8(long_identity()).expect("ASCII");
    let priority =
        "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-256-GCM:+AES-128-GCM:-KX-ALL:+ECDHE-PSK:+DHE-PSK:%NO_TICKETS";
    let arguments = ["--priority", priority, "--pskusername", &identity, "--pskkey", KEY, "-p", port, "127.0.0.1"];
    let Some(mut peer) = Peer::start("gnutls-cli", &arguments) else { return };
    let (socket, end) = accept(&listener, identity.as_bytes(), 1);
    let mut session = end.expect("handshake");
    assert_eq!(session.identity(), identity.as_bytes());
    peer.send("hello\n");
    read_text(&mut session, &socket, "hello\n");
    write_all(&mut session, &socket, b"reply\n");
    peer.expect("reply");
    session.close(&socket).expect("close_notify");
    peer.expect("Peer has closed");

    let Some(_peer) = Peer::start("gnutls-cli", &arguments) else { return };
    assert_eq!(accept(&listener, identity.as_bytes(), 2).1.expect_err("another key"), Failure::WrongKey);
}
