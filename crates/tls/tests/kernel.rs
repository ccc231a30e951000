//! Sessions in the kernel, with a session in user space as the peer. Where the kernel has no TLS each test says so and stops;
//! `PILOTLIGHT_REQUIRE_KTLS=1` makes that a failure. `tests/linux/cases/ktls.sh` runs this program in a guest.

mod common;

use std::io::{IoSlice, IoSliceMut, Write};
use std::net::{Shutdown, TcpStream};

use common::{advance, psk, read, tcp_pair, wait, wait_any, write_all};
use pilotlight_counting_alloc::{CountingAlloc, thread_calls};
use pilotlight_tls::{ClientConfig, Handshake, Hash, Psk, ServerConfig, Session, SessionError};

#[global_allocator]
static ALLOC: CountingAlloc = CountingAlloc;

const IDENTITY: &[u8] = b"NVMe0R01 nqn.2014-08.org.example:host nqn.2014-08.org.example:storage";

/// One end of a connection.
struct End {
    socket: TcpStream,
    session: Session,
}

/// Which side prefers the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InKernel {
    Client,
    Server,
}

fn configs(key: Psk, in_kernel: InKernel) -> (ClientConfig, ServerConfig) {
    let keys = vec![key.clone()];
    let lookup = move |identity: &[u8]| Some(key.clone()).filter(|key| key.identity() == identity);
    match in_kernel {
        InKernel::Client => (ClientConfig::with_kernel(keys), ServerConfig::new(lookup)),
        InKernel::Server => (ClientConfig::new(keys), ServerConfig::with_kernel(lookup)),
    }
}

/// Connects; the client sends `early` as soon as it can, before the server has read its Finished. The end that prefers the kernel is
/// first.
fn connect(hash: Hash, in_kernel: InKernel, early: &[u8]) -> (End, End) {
    let (client_config, server_config) = configs(psk(IDENTITY, 1, hash), in_kernel);
    let (a, b) = tcp_pair();
    for socket in [&a, &b] {
        socket.set_nonblocking(true).expect("nonblocking");
    }
    let mut client = Handshake::client(&client_config).expect("client");
    let mut server = Handshake::server(&server_config).expect("server");
    let mut client_session = loop {
        if let Some(end) = advance(&mut client, &a) {
            break end.expect("client");
        }
        assert!(advance(&mut server, &b).is_none(), "the client has not finished");
        wait_any(&[(&a, false), (&b, false)]);
    };
    write_all(&mut client_session, &a, early);
    let server_session = loop {
        if let Some(end) = advance(&mut server, &b) {
            break end.expect("server");
        }
        wait(&b, false);
    };
    let (client, server) = (End { socket: a, session: client_session }, End { socket: b, session: server_session });
    if in_kernel == InKernel::Client { (client, server) } else { (server, client) }
}

/// As [`connect`]; `None`, with a line, if the first end is not in the kernel.
fn connect_in_kernel(hash: Hash, in_kernel: InKernel, early: &[u8]) -> Option<(End, End)> {
    let (kernel, user) = connect(hash, in_kernel, early);
    assert!(!user.session.is_in_kernel() && user.session.kernel_refusal().is_none());
    let Some(refusal) = kernel.session.kernel_refusal() else {
        assert!(kernel.session.is_in_kernel());
        return Some((kernel, user));
    };
    assert!(std::env::var_os("PILOTLIGHT_REQUIRE_KTLS").is_none(), "kernel TLS is required, but: {refusal}");
    eprintln!("SKIPPED: {refusal}");
    None
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// Sends `bytes` from one end to the other, which reads into two buffers.
fn transfer(from: &mut End, to: &mut End, bytes: &[u8]) {
    let (mut sent, mut received) = (0, Vec::<u8>::new());
    let (mut first, mut second) = (vec![0; 1000], vec![0; 50_000]);
    while received.len() < bytes.len() {
        let rest = &bytes[sent..];
        let (head, tail) = rest.split_at(rest.len().min(24));
        match from.session.write_vectored(&from.socket, &[IoSlice::new(head), IoSlice::new(tail)]) {
            Ok(accepted) => sent += accepted,
            Err(error) => assert_eq!(error, SessionError::WouldBlock),
        }
        let mut buffers = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        match to.session.read_vectored(&to.socket, &mut buffers) {
            Ok(0) => panic!("closed after {} bytes", received.len()),
            Ok(bytes) => {
                received.extend(&first[..bytes.min(1000)]);
                received.extend(&second[..bytes.saturating_sub(1000)]);
            }
            Err(SessionError::WouldBlock) => {
                let is_sending = sent < bytes.len() || from.session.wants_write();
                wait_any(&[(&to.socket, false), (&from.socket, is_sending)]);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(received == bytes, "other bytes were received");
}

fn both(mut test: impl FnMut(Hash, InKernel)) {
    for hash in [Hash::Sha256, Hash::Sha384] {
        for in_kernel in [InKernel::Server, InKernel::Client] {
            test(hash, in_kernel);
        }
    }
}

#[test]
fn nothing_is_lost_when_the_kernel_takes_over_or_refuses() {
    let early = pattern(50_000);
    both(|hash, in_kernel| {
        let (mut first, mut second) = connect(hash, in_kernel, &early);
        let server = if in_kernel == InKernel::Server { &mut first } else { &mut second };
        let mut received = Vec::<u8>::new();
        while received.len() < early.len() {
            let mut buffer = [0; 7000];
            let bytes = read(&mut server.session, &server.socket, &mut buffer).expect("data");
            assert_ne!(bytes, 0, "closed after {} bytes", received.len());
            received.extend(&buffer[..bytes]);
        }
        assert!(received == early, "other bytes were received");
        transfer(&mut first, &mut second, b"from the kernel");
        transfer(&mut second, &mut first, b"to the kernel");
        assert_eq!(first.session.identity(), IDENTITY);
        assert_eq!(first.session.cipher_suite(), second.session.cipher_suite());
    });
}

#[test]
fn megabytes_pass_in_both_directions_and_both_sides_close() {
    let bytes = pattern(3 << 20);
    both(|hash, in_kernel| {
        let Some((mut kernel, mut user)) = connect_in_kernel(hash, in_kernel, b"") else { return };
        transfer(&mut kernel, &mut user, &bytes);
        transfer(&mut user, &mut kernel, &bytes);
        assert_eq!(kernel.session.read(&kernel.socket, &mut [0; 9]), Err(SessionError::WouldBlock));

        kernel.session.close(&kernel.socket).expect("close_notify");
        assert_eq!(kernel.session.write(&kernel.socket, b"x"), Err(SessionError::Closed));
        assert_eq!(read(&mut user.session, &user.socket, &mut [0; 9]), Ok(0));
        transfer(&mut user, &mut kernel, b"the other direction is open");
        user.session.close(&user.socket).expect("close_notify");
        assert_eq!(read(&mut kernel.session, &kernel.socket, &mut [0; 1]), Ok(0), "with room for half of the alert");
        assert_eq!(kernel.session.read(&kernel.socket, &mut [0; 9]), Ok(0), "again");
    });
}

#[test]
fn a_key_update_ends_the_session_after_the_data_before_it() {
    both(|hash, in_kernel| {
        let Some((mut kernel, mut user)) = connect_in_kernel(hash, in_kernel, b"") else { return };
        write_all(&mut user.session, &user.socket, b"before");
        user.session.update_key().expect("requested");
        write_all(&mut user.session, &user.socket, b"after");
        let mut buffer = [0; 100];
        let mut received = Vec::<u8>::new();
        let end = loop {
            match read(&mut kernel.session, &kernel.socket, &mut buffer) {
                Ok(bytes) => received.extend(&buffer[..bytes]),
                Err(error) => break error,
            }
        };
        assert_eq!((&received[..], &end), (&b"before"[..], &SessionError::KeyUpdate));
        assert_eq!(kernel.session.read(&kernel.socket, &mut buffer), Err(SessionError::KeyUpdate), "again");
        assert_eq!(kernel.session.write(&kernel.socket, b"x"), Err(SessionError::Closed));
        assert_eq!(kernel.session.update_key(), Err(SessionError::KeyUpdate));
    });
}

#[test]
fn forged_records_and_a_missing_close_notify_are_errors() {
    let Some((mut kernel, user)) = connect_in_kernel(Hash::Sha256, InKernel::Server, b"") else { return };
    (&user.socket).write_all(&[&[23, 3, 3, 0, 30][..], &[7; 30]].concat()).expect("the socket takes them");
    let error = read(&mut kernel.session, &kernel.socket, &mut [0; 100]).expect_err("forged");
    assert!(matches!(error, SessionError::Protocol { name: "EBADMSG", .. }), "{error}");

    let (mut kernel, mut user) = connect(Hash::Sha256, InKernel::Server, b"");
    transfer(&mut user, &mut kernel, b"data");
    user.socket.shutdown(Shutdown::Write).expect("shutdown");
    assert_eq!(read(&mut kernel.session, &kernel.socket, &mut [0; 100]), Err(SessionError::Truncated));
}

#[test]
fn a_full_socket_blocks_and_goes_on() {
    let Some((mut kernel, mut user)) = connect_in_kernel(Hash::Sha384, InKernel::Server, b"") else { return };
    let chunk = pattern(100_000);
    let mut sent = Vec::<u8>::new();
    let blocked = loop {
        match kernel.session.write(&kernel.socket, &chunk) {
            Ok(bytes) => sent.extend(&chunk[..bytes]),
            Err(error) => break error,
        }
    };
    assert_eq!(blocked, SessionError::WouldBlock);
    let mut received = Vec::<u8>::new();
    while received.len() < sent.len() {
        let mut buffer = [0; 10_000];
        let bytes = read(&mut user.session, &user.socket, &mut buffer).expect("data");
        received.extend(&buffer[..bytes]);
    }
    assert!(received == sent, "other bytes were received");
    transfer(&mut kernel, &mut user, &chunk);
}

#[test]
fn transfers_allocate_nothing() {
    let Some((mut kernel, mut user)) = connect_in_kernel(Hash::Sha256, InKernel::Server, b"") else { return };
    let data = pattern(10_000);
    let mut buffer = vec![0; 10_000];
    let mut round = |kernel: &mut End| {
        write_all(&mut user.session, &user.socket, &data);
        let (mut received, calls) = (0, thread_calls());
        while received < data.len() {
            match kernel.session.read(&kernel.socket, &mut buffer) {
                Ok(bytes) => received += bytes,
                Err(error) => assert_eq!(error, SessionError::WouldBlock),
            }
        }
        let slices = [IoSlice::new(&data[..24]), IoSlice::new(&data[24..])];
        assert_eq!(kernel.session.write_vectored(&kernel.socket, &slices), Ok(data.len()));
        let calls = thread_calls() - calls;
        let mut sent = 0;
        while sent < data.len() {
            sent += read(&mut user.session, &user.socket, &mut buffer).expect("data");
        }
        calls
    };
    assert_eq!((0..20).map(|_| round(&mut kernel)).sum::<u64>(), 0);
}
