//! Throughput per core of TLS sessions and of plain TCP over loopback: `cargo run --release -p pilotlight-tls --example throughput`
//!
//! A sender and a receiver on a thread each. Bytes divided by the CPU time of a thread, so that waiting does not count. Rounds of the
//! transports alternate; printed are medians, with the lowest and the highest. Arguments: rounds (9) and MB in each (1000).

use std::io::{IoSlice, IoSliceMut};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use pilotlight_tls::{ClientConfig, Handshake, Hash, Psk, ServerConfig, Session, SessionError, Step};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, sendmsg};
use rustix::time::{ClockId, clock_gettime};

const TRANSPORTS: [(&str, Option<Hash>); 3] =
    [("plain", None), ("AES-128-GCM", Some(Hash::Sha256)), ("AES-256-GCM", Some(Hash::Sha384))];
/// Slices of one send: data of 128 KiB with a header, or 16 responses of 4 KiB with header and completion.
const LOADS: [(&str, &[usize], usize); 2] = [("128 KiB", &[24, 131_072], 1), ("4 KiB", &[24, 4096, 24], 16)];
/// Buffer of the receiver, as an I/O thread has it.
const BUFFER: usize = 256 * 1024;

/// One end: a socket with or without TLS.
struct End {
    socket: TcpStream,
    session: Option<Session>,
}

impl End {
    fn send(&mut self, slices: &[IoSlice<'_>]) -> Option<usize> {
        match &mut self.session {
            Some(session) => match session.write_vectored(&self.socket, slices) {
                Err(SessionError::WouldBlock) => None,
                result => Some(result.expect("write")),
            },
            None => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                match sendmsg(&self.socket, slices, &mut Default::default(), flags) {
                    Err(Errno::AGAIN) => None,
                    result => Some(result.expect("send")),
                }
            }
        }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        match &mut self.session {
            Some(session) => match session.read_vectored(&self.socket, &mut [IoSliceMut::new(buffer)]) {
                Err(SessionError::WouldBlock) => None,
                result => Some(result.expect("read")),
            },
            None => match recv(&self.socket, buffer, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => None,
                result => Some(result.expect("receive").1),
            },
        }
    }

    fn wait(&self, interest: PollFlags) {
        poll(&mut [PollFd::new(&self.socket, interest)], None).expect("poll");
    }
}

fn finish(mut handshake: Handshake, socket: &TcpStream) -> Session {
    loop {
        let interest = match handshake.step(socket) {
            Step::WantRead => PollFlags::IN,
            Step::WantWrite => PollFlags::OUT,
            Step::Done(session) => return session,
            Step::Failed(failure) => panic!("{failure}"),
        };
        poll(&mut [PollFd::new(socket, interest)], None).expect("poll");
    }
}

/// A connected pair.
fn connect(hash: Option<Hash>) -> (End, End) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let a = TcpStream::connect(listener.local_addr().expect("bound")).expect("loopback");
    let b = listener.accept().expect("connected").0;
    a.set_nodelay(true).expect("TCP_NODELAY");
    let Some(hash) = hash else { return (End { socket: a, session: None }, End { socket: b, session: None }) };
    let psk = Psk::new(b"id", &[7; 48], hash).expect("valid");
    let client = Handshake::client(&ClientConfig::new(vec![psk.clone()])).expect("client");
    let server = Handshake::server(&ServerConfig::new(move |_| Some(psk.clone()))).expect("server");
    let (client, server) = std::thread::scope(|scope| {
        let client = scope.spawn(|| finish(client, &a));
        let server = finish(server, &b);
        (client.join(), server)
    });
    (End { socket: a, session: client.ok() }, End { socket: b, session: Some(server) })
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn run_sender(mut end: End, sizes: &[usize], repeats: usize, bytes: usize) -> Duration {
    let data = vec![0x5a; 131_072];
    let slices: Vec<_> =
        sizes.iter().cycle().take(sizes.len() * repeats).map(|&size| IoSlice::new(&data[..size])).collect();
    let before = cpu_time();
    let mut sent = 0;
    while sent < bytes {
        let mut copy = slices.clone();
        let mut left = &mut copy[..];
        while !left.is_empty() {
            match end.send(left) {
                Some(accepted) => {
                    IoSlice::advance_slices(&mut left, accepted);
                    sent += accepted;
                }
                None => end.wait(PollFlags::OUT),
            }
        }
    }
    while let Some(session) = end.session.as_mut().filter(|session| session.wants_write()) {
        if session.flush(&end.socket).is_err() {
            end.wait(PollFlags::OUT);
        }
    }
    cpu_time() - before
}

fn run_receiver(mut end: End, bytes: usize) -> Duration {
    let mut buffer = vec![0; BUFFER];
    let before = cpu_time();
    let mut received = 0;
    while received < bytes {
        match end.receive(&mut buffer) {
            Some(0) => break,
            Some(bytes) => received += bytes,
            None => end.wait(PollFlags::IN),
        }
    }
    cpu_time() - before
}

/// MB per second of CPU time of sender and receiver.
fn measure(hash: Option<Hash>, sizes: &'static [usize], repeats: usize, bytes: usize) -> [f64; 2] {
    let (client, server) = connect(hash);
    let sender = std::thread::spawn(move || run_sender(client, sizes, repeats, bytes));
    let received = run_receiver(server, bytes);
    let sent = sender.join().expect("the sender does not panic");
    [sent, received].map(|time| bytes as f64 / 1e6 / time.as_secs_f64())
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().expect("a number"));
    let (rounds, bytes) = (arguments.next().unwrap_or(9), arguments.next().unwrap_or(1000) * 1_000_000);
    println!(
        "{:8} {:12} {:>28} {:>28}",
        "load", "transport", "sender, MB per CPU second", "receiver, MB per CPU second"
    );
    for (load, sizes, repeats) in LOADS {
        let mut results = [const { [const { vec![] }; 2] }; TRANSPORTS.len()];
        for _ in 0..rounds {
            for (at, (_, hash)) in TRANSPORTS.into_iter().enumerate() {
                for (result, value) in results[at].iter_mut().zip(measure(hash, sizes, repeats, bytes)) {
                    result.push(value);
                }
            }
        }
        for ((transport, _), mut sides) in TRANSPORTS.into_iter().zip(results) {
            let shown = sides.each_mut().map(|values: &mut Vec<f64>| {
                values.sort_by(f64::total_cmp);
                format!("{:.0} ({:.0} to {:.0})", values[rounds / 2], values[0], values[rounds - 1])
            });
            println!("{load:8} {transport:12} {:>28} {:>28}", shown[0], shown[1]);
        }
    }
}
