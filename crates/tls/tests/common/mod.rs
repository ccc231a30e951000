//! Both ends of a session in one process, driven without threads.
#![allow(dead_code, unreachable_pub)] // each test file uses a part

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use pilotlight_tls::{ClientConfig, Failure, Handshake, Hash, Psk, ServerConfig, Session, SessionError, Step};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// An identity as NVMe/TCP forms it, for a host with a long NQN.
pub fn long_identity() -> Vec<u8> {
    let nqn = format!("nqn.2014-08.org.nvmexpress:uuid:{}", "f".repeat(191));
    format!("NVMe1R02 {nqn} {nqn} VRSbtnN9+aCqTOL6xSLH2zBVjG1QCyD1pWdVdVXl7h8=").into_bytes()
}

pub fn psk(identity: &[u8], first: u8, hash: Hash) -> Psk {
    let len = if hash == Hash::Sha256 { 32 } else { 48 };
    let secret: Vec<u8> = (0..len).map(|at| first.wrapping_add(at)).collect();
    Psk::new(identity, &secret, hash).expect("the lengths are valid")
}

/// A server that knows these keys.
pub fn server_of(psks: Vec<Psk>) -> ServerConfig {
    ServerConfig::new(move |identity| psks.iter().find(|psk| psk.identity() == identity).cloned())
}

pub fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("loopback");
    (client, listener.accept().expect("connected").0)
}

/// Waits until the socket is ready for reading, or for writing too.
pub fn wait(socket: impl AsFd, writing: bool) {
    wait_any(&[(&socket, writing)]);
}

/// As [`wait`], for any of several sockets.
pub fn wait_any(sockets: &[(impl AsFd, bool)]) {
    let interest = |writing| if writing { PollFlags::OUT | PollFlags::IN } else { PollFlags::IN };
    let seconds = Timespec { tv_sec: 60, tv_nsec: 0 };
    let mut polled: Vec<_> = sockets.iter().map(|(socket, writing)| PollFd::new(socket, interest(*writing))).collect();
    assert_ne!(poll(&mut polled, Some(&seconds)).expect("poll"), 0, "nothing happened for 60 s");
}

/// The end of one side of a handshake.
pub type End = Result<Session, Failure>;

/// Continues one side; waits for nothing.
pub fn advance(handshake: &mut Handshake, socket: impl AsFd) -> Option<End> {
    match handshake.step(socket) {
        Step::WantRead | Step::WantWrite => None,
        Step::Done(session) => Some(Ok(session)),
        Step::Failed(failure) => Some(Err(failure)),
    }
}

/// Both sides, the client's socket first. A side that fails closes its direction, as a server does.
pub fn handshake(client: &ClientConfig, server: &ServerConfig, a: &impl AsFd, b: &impl AsFd) -> (End, End) {
    let (mut client, mut server) =
        (Handshake::client(client).expect("client"), Handshake::server(server).expect("server"));
    let (mut ends, sockets) = ([None, None], [a.as_fd(), b.as_fd()]);
    while ends.iter().any(Option::is_none) {
        for (at, side) in [&mut client, &mut server].into_iter().enumerate() {
            if ends[at].is_none() {
                ends[at] = advance(side, sockets[at]);
                if matches!(ends[at], Some(Err(_))) {
                    let _ = rustix::net::shutdown(sockets[at], rustix::net::Shutdown::Write);
                }
            }
        }
    }
    let [client, server] = ends.map(|end| end.expect("both have ended"));
    (client, server)
}

/// A connected pair with its sessions, the client's first.
pub fn sessions(hash: Hash) -> ((UnixStream, Session), (UnixStream, Session)) {
    let (a, b) = UnixStream::pair().expect("socket pair");
    let key = psk(&long_identity(), 1, hash);
    let (client, server) = handshake(&ClientConfig::new(vec![key.clone()]), &server_of(vec![key]), &a, &b);
    ((a, client.expect("client")), (b, server.expect("server")))
}

/// Reads once, waiting for bytes.
pub fn read(session: &mut Session, socket: impl AsFd, buffer: &mut [u8]) -> Result<usize, SessionError> {
    loop {
        match session.read(&socket, buffer) {
            Err(SessionError::WouldBlock) => wait(&socket, false),
            result => return result,
        }
    }
}

/// Writes everything, waiting for the socket.
pub fn write_all(session: &mut Session, socket: impl AsFd, mut bytes: &[u8]) {
    while !bytes.is_empty() || session.wants_write() {
        match session.write(&socket, bytes) {
            Ok(accepted) => bytes = &bytes[accepted..],
            Err(SessionError::WouldBlock) => wait(&socket, true),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Sends plain bytes.
pub fn send_plain(socket: &UnixStream, bytes: &[u8]) {
    use std::io::Write;
    let mut socket = socket;
    socket.set_write_timeout(Some(Duration::from_secs(60))).expect("timeout");
    socket.write_all(bytes).expect("the socket takes them");
}
