//! CPU time of the socket calls of a client and of a server: `cargo run --release -p pilotlight-lab --example socket_costs`.
//!
//! Constants `sockets.client.*` of `profiles/calibration/live-16cpu.toml` were computed from it. Two threads exchange batches over the loopback
//! interface: requests of 72 bytes, as a read command has, and answers of 24 + 4096. Each call is timed alone, with the data in place. Costs
//! are medians; a line `fixed + each * n` is fitted through those of all batches. Needs two idle CPUs.

use std::io::{ErrorKind, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

const REQUEST: usize = 72;
const ANSWER: usize = 24 + 4096;
const BATCHES: [usize; 5] = [1, 2, 4, 8, 16];
const ROUNDS: usize = 4_000;

/// Times of one call, in nanoseconds, for each batch.
type Times = [Vec<u64>; BATCHES.len()];

/// The other side's progress: rounds whose requests, or answers, are sent.
#[derive(Default)]
struct Progress {
    requested: AtomicU64,
    answered: AtomicU64,
}

fn main() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    for socket in [&client, &server] {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
    }
    let progress = Progress::default();
    let ends = |counter: &AtomicU64| counter.store(u64::MAX, Ordering::Release); // the other side does not wait for one that has failed
    let (client, server) = thread::scope(|scope| {
        let answers = scope.spawn(|| {
            let times = serve(server, &progress);
            ends(&progress.answered);
            times
        });
        let times = request(client, &progress);
        ends(&progress.requested);
        (times, answers.join().expect("no panic"))
    });
    let ([sends, receives, looks], [server_receives, server_sends]) = (client?, server?);
    println!("call                    fixed ns   each ns   batches of {BATCHES:?}: median ns");
    let calls = [
        ("client: send", sends),
        ("client: receive", receives),
        ("client: nothing there", looks),
        ("server: receive", server_receives),
        ("server: send", server_sends),
    ];
    for (name, times) in calls {
        let medians = times.map(median);
        let (fixed, each) = line(&medians);
        println!("{name:22} {fixed:9.0} {each:9.0}   {medians:?}");
    }
    Ok(())
}

/// Sends batches, and times sending, receiving and an empty look.
fn request(mut socket: TcpStream, progress: &Progress) -> Result<[Times; 3]> {
    let mut times: [Times; 3] = Default::default();
    let (requests, mut answers) = (vec![0; REQUEST * 16], vec![0; ANSWER * 16]);
    for round in 0..ROUNDS {
        let batch = round % BATCHES.len();
        let begin = Instant::now();
        socket.write_all(&requests[..BATCHES[batch] * REQUEST])?;
        times[0][batch].push(ns(begin));
        progress.requested.store(round as u64 + 1, Ordering::Release);
        until(&progress.answered, round);
        let begin = Instant::now();
        socket.read_exact(&mut answers[..BATCHES[batch] * ANSWER])?;
        times[1][batch].push(ns(begin));
        let begin = Instant::now();
        let is_empty = socket.read(&mut answers).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        if is_empty {
            times[2][batch].push(ns(begin));
        }
    }
    Ok(times)
}

/// Answers batches, and times receiving and sending.
fn serve(mut socket: TcpStream, progress: &Progress) -> Result<[Times; 2]> {
    let mut times: [Times; 2] = Default::default();
    let (mut requests, answers) = (vec![0; REQUEST * 16], vec![0; ANSWER * 16]);
    for round in 0..ROUNDS {
        let batch = round % BATCHES.len();
        until(&progress.requested, round);
        let begin = Instant::now();
        socket.read_exact(&mut requests[..BATCHES[batch] * REQUEST])?;
        times[0][batch].push(ns(begin));
        let begin = Instant::now();
        socket.write_all(&answers[..BATCHES[batch] * ANSWER])?;
        times[1][batch].push(ns(begin));
        progress.answered.store(round as u64 + 1, Ordering::Release);
    }
    Ok(times)
}

/// Waits until the data of a round are in the socket: over the loopback interface they are when the sender's call returns.
fn until(rounds: &AtomicU64, round: usize) {
    while rounds.load(Ordering::Acquire) <= round as u64 {
        std::hint::spin_loop();
    }
}

fn ns(begin: Instant) -> u64 {
    begin.elapsed().as_nanos() as u64
}

fn median(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}

/// Least squares of `fixed + each * batch`.
fn line(medians: &[u64; BATCHES.len()]) -> (f64, f64) {
    let mean = |values: [f64; BATCHES.len()]| values.iter().sum::<f64>() / BATCHES.len() as f64;
    let (x, y) = (BATCHES.map(|batch| batch as f64), medians.map(|median| median as f64));
    let (x_mean, y_mean) = (mean(x), mean(y));
    let of = |at: usize| ((x[at] - x_mean) * (y[at] - y_mean), (x[at] - x_mean).powi(2));
    let (products, squares) = (0..BATCHES.len()).map(of).fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (y_mean - products / squares * x_mean, products / squares)
}
