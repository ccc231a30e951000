//! Random bytes on a TLS connection: to a server's handshake, after genuine records, or as changes of genuine records.
//!
//! The first byte selects which, and in what pieces the bytes arrive. Properties for all bytes:
//! - no panic; a handshake does not finish without the key, and ends when the connection does;
//! - a session returns a prefix of what its peer wrote, nothing else;
//! - it never reports the regular end (close_notify) that the peer did not send.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use pilotlight_tls::{ClientConfig, Handshake, Hash, Psk, ServerConfig, Session, SessionError, Step};

/// An identity that the server knows; inputs of the corpus offer it with the right key and with another one.
pub const IDENTITY: &[u8] = b"NVMe0R01 nqn.2014-08.org.example:host nqn.2014-08.org.example:storage";
/// Bytes of each genuine record.
const RECORD: usize = 300;
const RECORDS: usize = 3;

/// The server's key.
pub fn psk() -> Psk {
    Psk::new(IDENTITY, &[0x42; 32], Hash::Sha256).expect("the lengths are valid")
}

fn server() -> Handshake {
    let config = ServerConfig::new(|identity| (identity == IDENTITY).then(psk));
    Handshake::server(&config).expect("there is memory")
}

/// Sends `bytes` to a server in pieces, and ends the connection.
fn check_handshake(piece: usize, bytes: &[u8]) {
    let (mut client, socket) = UnixStream::pair().expect("socket pair");
    let mut server = server();
    for piece in bytes.chunks(piece) {
        client.write_all(piece).expect("the socket has room");
        match server.step(&socket) {
            Step::WantRead => {}
            Step::WantWrite => panic!("the socket has room"),
            Step::Done(_) => panic!("a handshake without the key"),
            Step::Failed(failure) => return assert!(failure.to_string().len() < 2000, "{failure}"),
        }
    }
    client.shutdown(Shutdown::Write).expect("it is open");
    assert!(matches!(server.step(&socket), Step::Failed(_)), "a handshake after its connection");
}

/// A session of a server whose peer has written [`RECORDS`]; its socket, and the records, which were taken out of it.
fn session() -> (Session, UnixStream, UnixStream, Vec<u8>) {
    let (mut server, (a, b)) = (server(), UnixStream::pair().expect("socket pair"));
    let mut client = Handshake::client(&ClientConfig::new(vec![psk()])).expect("there is memory");
    let (mut writer, mut reader) = (None, None);
    while reader.is_none() {
        if writer.is_none() {
            writer = done(client.step(&a));
        }
        reader = done(server.step(&b));
    }
    let (mut writer, reader) = (writer.expect("it finishes first"), reader.expect("it has just finished"));
    for record in 0..RECORDS {
        writer.write(&a, &[record as u8; RECORD]).expect("the socket has room");
    }
    let mut records = vec![0; 2 * RECORD * RECORDS];
    let len = (&b).read(&mut records).expect("they were written");
    records.truncate(len);
    (reader, a, b, records)
}

fn done(step: Step) -> Option<Session> {
    match step {
        Step::Done(session) => Some(session),
        Step::Failed(failure) => panic!("{failure}"),
        _ => None,
    }
}

/// Sends `bytes` to a session in pieces: it returns a prefix of the genuine data, and then an error.
fn check_session(mut session: Session, mut peer: &UnixStream, socket: &UnixStream, piece: usize, bytes: &[u8]) {
    let (mut received, mut buffer) = (Vec::<u8>::new(), [0; 2 * RECORD]);
    let mut read = |session: &mut Session| match session.read(socket, &mut buffer) {
        Ok(0) => panic!("the peer did not send close_notify"),
        Ok(bytes) => {
            received.extend(&buffer[..bytes]);
            Ok(())
        }
        Err(error) => Err(error),
    };
    let mut end = SessionError::WouldBlock;
    for piece in bytes.chunks(piece) {
        peer.write_all(piece).expect("the socket has room");
        while end == SessionError::WouldBlock {
            match read(&mut session) {
                Ok(()) => {}
                Err(SessionError::WouldBlock) => break,
                Err(error) => end = error,
            }
        }
    }
    peer.shutdown(Shutdown::Write).expect("it is open");
    let error = read(&mut session).expect_err("everything was read");
    assert_ne!(error, SessionError::WouldBlock, "the connection has ended");
    let is_prefix = received.iter().enumerate().all(|(at, &byte)| usize::from(byte) == at / RECORD);
    assert!(is_prefix && received.len() <= RECORD * RECORDS, "bytes that the peer did not write");
    assert_eq!(session.write(socket, &[1]), Err(SessionError::Closed), "after an error");
}

/// Exclusive ors with genuine bytes, three bytes each: the position, the value.
fn change(records: &mut [u8], edits: &[u8]) {
    for edit in edits.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % records.len();
        records[at] ^= edit[2];
    }
}

/// Selects and runs a check.
pub fn check(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    let piece = match choice >> 2 {
        0 => usize::MAX,
        bytes => usize::from(bytes) * 7,
    };
    if choice & 3 < 2 {
        return check_handshake(piece, rest);
    }
    let (session, peer, socket, mut records) = session();
    if choice & 3 == 2 {
        records.truncate(records.len() / RECORDS);
        records.extend(rest);
    } else {
        change(&mut records, rest);
    }
    check_session(session, &peer, &socket, piece, &records);
}
