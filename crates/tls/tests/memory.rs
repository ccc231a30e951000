//! The memory that [`SESSION_BYTES`] promises: that of the largest unfinished handshake, and of a session in use. A separate test binary,
//! because it sets the global allocator, which is also s2n-tls's; that of the cryptographic library is not counted, and is in the memory
//! of the process.

mod common;

use std::io::IoSliceMut;
use std::os::unix::net::UnixStream;

use common::{send_plain, server_of, sessions};
use pilotlight_counting_alloc::{CountingAlloc, thread_bytes};
use pilotlight_tls::{Handshake, Hash, SESSION_BYTES, SessionError, Step};

#[global_allocator]
static ALLOC: CountingAlloc = CountingAlloc;

/// Connections that are held.
const HELD: usize = 200;

/// Resident memory of the process in bytes.
fn resident() -> i64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages: i64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * rustix::param::page_size() as i64
}

/// What each of [`HELD`] values of `make` takes: allocated and resident bytes.
fn each<R>(make: impl Fn() -> R) -> (i64, i64) {
    let first = make(); // what the library allocates once
    let (allocated, before) = (thread_bytes(), resident());
    let held: Vec<R> = (0..HELD).map(|_| make()).collect();
    let taken = (thread_bytes() - allocated, resident() - before);
    drop((first, held));
    (taken.0 / HELD as i64, taken.1 / HELD as i64)
}

/// A ClientHello of the longest message that s2n-tls takes, in records, without its last byte.
fn unfinished_hello() -> Vec<u8> {
    let len: usize = 65_535 - 4;
    let message = [&[1, 0][..], &(len as u16).to_be_bytes(), &[3, 3], &vec![0; len - 3]].concat();
    let record = |part: &[u8]| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
    message.chunks(16_384).flat_map(record).collect()
}

#[test]
fn no_handshake_and_no_session_takes_more_than_its_bytes() {
    let new = each(|| {
        let (client, socket) = UnixStream::pair().expect("socket pair");
        (Handshake::server(&server_of(vec![])).expect("server"), client, socket)
    });
    let hello = unfinished_hello();
    let unfinished = each(|| {
        let (client, socket) = UnixStream::pair().expect("socket pair");
        let mut server = Handshake::server(&server_of(vec![])).expect("server");
        for part in hello.chunks(4096) {
            send_plain(&client, part);
            assert!(matches!(server.step(&socket), Step::WantRead));
        }
        (server, client, socket)
    });
    let data = vec![7; 300_000];
    let in_use = each(|| {
        let ((a, mut client), (b, mut server)) = sessions(Hash::Sha384);
        let mut buffer = vec![0; 300_000];
        while client.write(&a, &data) != Err(SessionError::WouldBlock) {}
        while server.read_vectored(&b, &mut [IoSliceMut::new(&mut buffer)]).is_ok() {}
        client.flush(&a).expect("the socket has room");
        while server.write(&b, &data) != Err(SessionError::WouldBlock) {}
        (client, server, a, b)
    });
    let both = (in_use.0 / 2, in_use.1 / 2);
    println!(
        "allocated and resident: new {new:?}, unfinished {unfinished:?}, a session in use {both:?}, of {SESSION_BYTES}"
    );
    assert!(
        [new, unfinished, both].iter().all(|(allocated, resident)| *allocated.max(resident) <= SESSION_BYTES as i64)
    );
}
