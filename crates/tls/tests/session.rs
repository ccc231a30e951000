//! Sessions: transfers, their end, and what a peer must not do.

mod common;

use std::io::{IoSlice, IoSliceMut, Read};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use common::{handshake, psk, read, send_plain, server_of, sessions, tcp_pair, wait_any, write_all};
use pilotlight_tls::{ClientConfig, Hash, MAX_WRITE, Session, SessionError};

/// The byte at a position of a stream.
fn byte(seed: u64, at: u64) -> u8 {
    ((at ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// One side of a transfer in both directions.
struct Side<S> {
    session: Session,
    socket: S,
    seed: u64,
    peer: u64,
    sent: u64,
    received: u64,
}

impl<S: AsFd> Side<S> {
    /// Writes three buffers of uneven size; bytes accepted.
    fn write(&mut self, bytes: u64) -> bool {
        let left = (bytes - self.sent).min(1 + self.sent % 150_000);
        let data: Vec<u8> = (self.sent..self.sent + left).map(|at| byte(self.seed, at)).collect();
        let (head, rest) = data.split_at(data.len() / 3);
        let (middle, tail) = rest.split_at(rest.len() / 50);
        let slices = [IoSlice::new(head), IoSlice::new(middle), IoSlice::new(tail)];
        match self.session.write_vectored(&self.socket, &slices) {
            Ok(accepted) => {
                self.sent += accepted as u64;
                accepted > 0
            }
            Err(SessionError::WouldBlock) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Reads into two buffers of uneven size, and compares.
    fn read(&mut self) -> bool {
        let (mut first, mut second) = (vec![0; 1 + self.received as usize % 30_000], vec![0; 7000]);
        let mut parts = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        match self.session.read_vectored(&self.socket, &mut parts) {
            Ok(bytes) => {
                for &value in first.iter().chain(&second).take(bytes) {
                    assert_eq!(value, byte(self.peer, self.received), "byte {}", self.received);
                    self.received += 1;
                }
                true
            }
            Err(SessionError::WouldBlock) => {
                assert!(!self.session.has_buffered(), "else the caller would not wait");
                false
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn transfer_both_ways(bytes: u64, hash: Hash) {
    let (a, b) = tcp_pair();
    for socket in [&a, &b] {
        rustix::net::sockopt::set_socket_send_buffer_size(socket, 10_000).expect("SO_SNDBUF"); // short writes
    }
    let key = psk(b"id", 1, hash);
    let (client, server) = handshake(&ClientConfig::new(vec![key.clone()]), &server_of(vec![key]), &a, &b);
    let side = |session: common::End, socket, seed, peer| Side {
        session: session.expect("session"),
        socket,
        seed,
        peer,
        sent: 0,
        received: 0,
    };
    let mut sides = [side(client, a, 1, 2), side(server, b, 2, 1)];
    let mut blocked = 0;
    while sides.iter().any(|side| side.received < bytes || side.session.wants_write()) {
        let mut is_idle = true;
        for side in &mut sides {
            while side.write(bytes) {
                is_idle = false;
            }
            blocked += u64::from(side.session.wants_write());
            is_idle &= !side.read();
        }
        if is_idle {
            wait_any(&sides.each_ref().map(|side| (&side.socket, side.session.wants_write())));
        }
    }
    assert!(blocked > 10, "the socket took everything at once");
}

#[test]
fn large_transfers_in_both_directions_at_once_with_short_writes() {
    transfer_both_ways(20_000_000, Hash::Sha256);
    transfer_both_ways(5_000_000, Hash::Sha384);
}

#[test]
fn small_buffers_are_gathered_into_one_record() {
    let ((a, mut client), (b, _server)) = sessions(Hash::Sha256);
    let small = [7; 100];
    assert_eq!(client.write_vectored(&a, &[IoSlice::new(&small); 50]), Ok(5000));
    let mut plain = vec![0; 10_000];
    let bytes = (&b).read(&mut plain).expect("the record");
    assert_eq!(bytes, 5000 + 22, "header of 5 bytes, content type, tag of 16");
    assert_eq!(client.write(&a, &[]), Ok(0));
}

#[test]
fn bytes_that_a_poll_does_not_show_are_reported() {
    let ((a, mut client), (b, mut server)) = sessions(Hash::Sha256);
    assert!(!server.has_buffered());
    assert_eq!(client.write(&a, &[1; 3000]), Ok(3000));
    assert_eq!(client.write(&a, &[2; 3000]), Ok(3000));
    let mut buffer = [0; 1000];
    for left in (0..6).rev() {
        assert_eq!(server.read(&b, &mut buffer), Ok(1000));
        assert_eq!(server.has_buffered(), left > 0, "{left} reads to go");
    }
    assert_eq!(server.read(&b, &mut buffer), Err(SessionError::WouldBlock));
    client.close(&a).expect("close_notify");
    assert_eq!(client.write(&a, &[1]), Err(SessionError::Closed));
}

#[test]
fn a_part_of_a_record_is_not_reported_as_readable() {
    let ((a, mut client), (b, mut server)) = sessions(Hash::Sha256);
    let (peer, socket) = UnixStream::pair().expect("socket pair"); // carries the records in two parts
    for split in [1, 4, 5, 6, 300, 521] {
        client.write(&a, &[5; 500]).expect("it fits");
        let mut record = [0; 522];
        (&b).read_exact(&mut record).expect("the record");
        send_plain(&peer, &record[..split]);
        let mut buffer = [0; 1000];
        assert_eq!(server.read(&socket, &mut buffer), Err(SessionError::WouldBlock));
        assert!(!server.has_buffered(), "after {split} bytes");
        send_plain(&peer, &record[split..]);
        assert_eq!(server.read(&socket, &mut buffer), Ok(500));
    }
}

#[test]
fn close_notify_ends_each_direction_by_itself() {
    let ((a, mut client), (b, mut server)) = sessions(Hash::Sha384);
    write_all(&mut client, &a, b"last");
    client.close(&a).expect("the socket has room");
    let mut buffer = [0; 100];
    assert_eq!(server.read(&b, &mut buffer), Ok(4));
    assert!(server.has_buffered(), "the end is reported without another poll");
    assert_eq!(server.read(&b, &mut buffer), Ok(0));
    assert!(!server.has_buffered());
    assert_eq!(server.read(&b, &mut buffer), Ok(0));
    write_all(&mut server, &b, &vec![9; 100_000]);
    server.close(&b).expect("the socket has room");
    let mut total = 0;
    loop {
        match read(&mut client, &a, &mut buffer) {
            Ok(0) => break,
            result => total += result.expect("bytes"),
        }
    }
    assert_eq!(total, 100_000);
}

#[test]
fn an_end_without_close_notify_is_an_error_after_the_bytes() {
    let ((a, mut client), (b, mut server)) = sessions(Hash::Sha256);
    write_all(&mut client, &a, b"bytes");
    a.shutdown(Shutdown::Write).expect("shutdown");
    let mut buffer = [0; 100];
    assert_eq!(server.read(&b, &mut buffer), Ok(5));
    assert_eq!(server.read(&b, &mut buffer), Err(SessionError::Truncated));
    assert_eq!(server.read(&b, &mut buffer), Err(SessionError::Truncated));
    assert_eq!(server.write(&b, &[1]), Err(SessionError::Closed));
}

#[test]
fn damaged_shortened_and_repeated_records_end_the_session() {
    for damage in ["bit", "short", "twice", "plain alert", "oversize"] {
        let ((a, mut client), (b, mut server)) = sessions(Hash::Sha256);
        client.write(&a, &[5; 500]).expect("it fits");
        let mut record = vec![0; 1000];
        let bytes = (&b).read(&mut record).expect("the record");
        record.truncate(bytes);
        match damage {
            "bit" => record[100] ^= 1,
            "short" => record[4] -= 1,
            "twice" => record.extend(record.clone()),
            "oversize" => (record[3], record[4]) = (0xff, 0xff),
            _ => record = vec![21, 3, 3, 0, 2, 2, 40],
        }
        let ((c, _), (d, _)) = sessions(Hash::Sha256);
        send_plain(&c, &record);
        c.shutdown(Shutdown::Write).expect("shutdown");
        let mut buffer = [0; 2000];
        let mut result = server.read(&d, &mut buffer);
        if damage == "twice" {
            assert_eq!(result, Ok(500));
            result = server.read(&d, &mut buffer);
        }
        let is_expected = match damage {
            "oversize" => matches!(result, Err(SessionError::Truncated | SessionError::Protocol { .. })),
            _ => matches!(result, Err(SessionError::Protocol { .. })),
        };
        assert!(is_expected, "{damage}: {result:?}");
        assert_eq!(server.read(&d, &mut buffer), result, "{damage}: again");
        assert_eq!(server.write(&d, &[1]), Err(SessionError::Closed));
    }
}

#[test]
fn keys_are_updated_in_both_directions() {
    let ((a, mut client), (b, mut server)) = sessions(Hash::Sha384);
    let mut buffer = [0; 100];
    for round in 0..5 {
        client.update_key().expect("requested");
        server.update_key().expect("requested");
        write_all(&mut client, &a, &[round; 70]);
        write_all(&mut server, &b, &[round; 80]);
        assert_eq!(read(&mut server, &b, &mut buffer), Ok(70));
        assert_eq!(read(&mut client, &a, &mut buffer), Ok(80));
    }
}

#[test]
fn a_session_moves_to_another_thread() {
    let ((a, mut client), (b, mut server)) = sessions(Hash::Sha256);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut buffer = [0; 10];
            assert_eq!(read(&mut server, &b, &mut buffer), Ok(5));
            write_all(&mut server, &b, b"reply");
        });
        write_all(&mut client, &a, b"hello");
        let mut buffer = [0; 10];
        assert_eq!(read(&mut client, &a, &mut buffer), Ok(5));
    });
}

#[test]
fn one_write_is_at_most_its_maximum() {
    let ((a, mut client), (_b, _server)) = sessions(Hash::Sha256);
    assert_eq!(client.write(&a, &vec![1; 1_000_000]), Ok(MAX_WRITE));
    let mut client = {
        let ((a, mut client), _peer) = sessions(Hash::Sha256);
        let small = [1; 1000];
        assert_eq!(client.write_vectored(&a, &vec![IoSlice::new(&small); 200]), Ok(MAX_WRITE));
        client
    };
    assert!(client.update_key().is_ok());
}
