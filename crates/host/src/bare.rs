//! The bare peer: client and server with the same system calls as host and target, but no NVMe.
//!
//! The problem: a figure in I/Os a second says as much about the machine, its kernel and its neighbours as about the
//! code. The ratio to a peer that does nothing but the system calls, measured in the same minute on the same cores, says
//! how much of what is possible the code reaches.
//!
//! The server: `epoll_wait(0)`, one `recv`, one answer (header and payload) for each whole request in it, sent with
//! `sendmsg` in batches of at most [`BareSpec::batch`]. The client: the loop of the load generator, one `recv` into the
//! scratch buffer, freed slots filled again, one `send`; latency from the clock read of the batch that a request was
//! sent in to that of the batch that its answer came in.

use std::io::{self, IoSlice};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

use crate::clock;
use crate::connection::SCRATCH_LEN;
use crate::load::report::Latency;
use crate::rng::Rng;

/// Most answers in one `sendmsg`: two slices each.
const MAX_BATCH: usize = 64;

/// What requests and answers look like.
#[derive(Clone, Copy, Debug)]
pub struct BareSpec {
    /// Bytes per request; 72 is a read's command capsule.
    pub request: usize,
    /// Bytes per answer in front of the payload; 24 is a C2HData header.
    pub header: usize,
    /// Bytes of payload per answer; may be 0.
    pub payload: usize,
    /// Requests in flight.
    pub depth: usize,
    /// Most answers per `sendmsg`, up to 64.
    pub batch: usize,
    /// Memory that payloads are taken from at random, in bytes; at least `payload`. Small: answers come from the cache.
    /// As large as a namespace: they come from memory, as a target's must.
    pub pool: usize,
}

impl BareSpec {
    /// What reads of `block_bytes` look like: a capsule there, a header and the data back.
    #[must_use]
    pub fn reads(block_bytes: usize, depth: usize) -> Self {
        Self { payload: block_bytes, depth, pool: block_bytes, ..Self::default() }
    }

    /// What writes of `block_bytes` in the capsule look like: a capsule and the data there, a response back.
    #[must_use]
    pub fn writes(block_bytes: usize, depth: usize) -> Self {
        Self { request: 72 + block_bytes, payload: 0, depth, pool: 0, ..Self::default() }
    }
}

impl Default for BareSpec {
    /// 4 KiB reads at depth 1, all from the same payload.
    fn default() -> Self {
        Self { request: 72, header: 24, payload: 4096, depth: 1, batch: 32, pool: 4096 }
    }
}

/// What a bare client measured.
#[derive(Clone, Copy, Debug)]
pub struct BareReport {
    /// Answers received.
    pub answers: u64,
    /// From the start to the last answer.
    pub elapsed_ns: u64,
    /// Answers a second.
    pub rate_iops: f64,
    /// How long answers took.
    pub latency: Latency,
}

/// Serves one connection after the other until `stop` is set.
///
/// # Errors
/// The system's error other than a lost connection.
pub fn serve(listener: &TcpListener, spec: &BareSpec, stop: &AtomicBool) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut server = Server::new(spec);
    while !stop.load(Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => serve_one(&stream, &mut server, stop)?,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn serve_one(stream: &TcpStream, server: &mut Server<'_>, stop: &AtomicBool) -> io::Result<()> {
    (server.pending, server.sent) = (0, 0);
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, stream, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    let mut events: Vec<epoll::Event> = Vec::with_capacity(8);
    while !stop.load(Relaxed) {
        events.clear();
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        if !events.is_empty() && !server.receive(stream)? {
            return Ok(());
        }
        server.answer(stream)?;
    }
    Ok(())
}

struct Server<'a> {
    spec: &'a BareSpec,
    scratch: Vec<u8>,
    header: Vec<u8>,
    pool: Vec<u8>,
    rng: Rng,
    /// Bytes of requests that are not answered.
    pending: usize,
    /// Bytes of the first answer that are sent already.
    sent: usize,
}

impl<'a> Server<'a> {
    fn new(spec: &'a BareSpec) -> Self {
        Self {
            spec,
            scratch: vec![0; 64 * 1024],
            header: vec![7; spec.header],
            pool: vec![1; spec.pool.max(spec.payload)],
            rng: Rng::new(1),
            pending: 0,
            sent: 0,
        }
    }

    /// Takes in requests; false at the end of the connection.
    fn receive(&mut self, stream: &TcpStream) -> io::Result<bool> {
        match rustix::net::recv(stream, &mut self.scratch[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET) => Ok(false),
            Ok((n, _)) => {
                self.pending += n;
                Ok(true)
            }
            Err(Errno::AGAIN) => Ok(true),
            Err(e) => Err(e.into()),
        }
    }

    /// Sends one batch, if something is to be answered.
    fn answer(&mut self, stream: &TcpStream) -> io::Result<()> {
        let (spec, answer_len) = (self.spec, self.spec.header + self.spec.payload);
        let n = (self.pending / spec.request).min(spec.batch.clamp(1, MAX_BATCH));
        if n == 0 {
            return Ok(());
        }
        let mut slices = [IoSlice::new(&[]); 2 * MAX_BATCH];
        for pair in slices.chunks_exact_mut(2).take(n) {
            let at = self.rng.below((self.pool.len() / spec.payload.max(1)) as u64) as usize * spec.payload;
            pair[0] = IoSlice::new(&self.header);
            pair[1] = IoSlice::new(&self.pool[at..at + spec.payload]);
        }
        let mut rest = &mut slices[..2 * n];
        IoSlice::advance_slices(&mut rest, self.sent);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::sendmsg(stream, rest, &mut SendAncillaryBuffer::default(), flags) {
            Ok(sent) => {
                let whole = (self.sent + sent) / answer_len;
                self.sent = (self.sent + sent) % answer_len;
                self.pending -= whole * spec.request;
                Ok(())
            }
            Err(Errno::AGAIN | Errno::PIPE | Errno::CONNRESET) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

/// Keeps `spec.depth` requests in flight on `stream` for `runtime_ns`, counted from the first answer.
///
/// # Errors
/// The system's error, or that the server went away.
pub fn drive(stream: &TcpStream, spec: &BareSpec, runtime_ns: u64) -> io::Result<BareReport> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let mut client = Client {
        spec,
        requests: vec![3; spec.request * spec.depth],
        started_ns: vec![0; spec.depth],
        first: 0,
        free: spec.depth,
        unsent: 0,
        partial: 0,
        answers: 0,
        latency: crate::load::new_histogram(),
    };
    let mut scratch = vec![0u8; SCRATCH_LEN];
    client.request(stream, clock::now_ns())?;
    rustix::event::poll(&mut [PollFd::new(stream, PollFlags::IN)], None)?;
    let start_ns = clock::now_ns();
    let (mut now_ns, mut last_ns, mut spins) = (start_ns, start_ns, 0u32);
    while now_ns < start_ns + runtime_ns {
        client.request(stream, now_ns)?;
        match rustix::net::recv(stream, &mut scratch[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((n, _)) => {
                now_ns = clock::now_ns();
                last_ns = now_ns;
                client.received(n, now_ns);
            }
            Err(Errno::AGAIN) => {
                spins += 1;
                if spins % 32 == 0 {
                    now_ns = clock::now_ns();
                }
            }
            Err(e) => return Err(e.into()),
        }
    }
    let elapsed_ns = last_ns - start_ns;
    let rate_iops = client.answers as f64 * 1e9 / elapsed_ns.max(1) as f64;
    Ok(BareReport { answers: client.answers, elapsed_ns, rate_iops, latency: Latency::of(&client.latency) })
}

struct Client<'a> {
    spec: &'a BareSpec,
    requests: Vec<u8>,
    /// Ring of the times at which requests were started, oldest at `first`.
    started_ns: Vec<u64>,
    first: usize,
    free: usize,
    /// Bytes of requests that the socket has not taken.
    unsent: usize,
    /// Bytes of an answer whose rest has not come.
    partial: usize,
    answers: u64,
    latency: Histogram<u64>,
}

impl Client<'_> {
    fn request(&mut self, stream: &TcpStream, now_ns: u64) -> io::Result<()> {
        let depth = self.spec.depth;
        let mut slot = (self.first + depth - self.free) % depth;
        for _ in 0..self.free {
            self.started_ns[slot] = now_ns;
            slot = if slot + 1 == depth { 0 } else { slot + 1 };
        }
        self.unsent += self.free * self.spec.request;
        self.free = 0;
        if self.unsent == 0 {
            return Ok(());
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(stream.as_fd(), &self.requests[..self.unsent], flags) {
            Ok(sent) => self.unsent -= sent,
            Err(Errno::AGAIN) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    fn received(&mut self, bytes: usize, now_ns: u64) {
        let answer_len = self.spec.header + self.spec.payload;
        let n = (self.partial + bytes) / answer_len;
        self.partial = (self.partial + bytes) % answer_len;
        for i in 0..n as u64 {
            // the first batch was sent before the server had accepted the connection
            if self.answers + i >= self.spec.depth as u64 {
                self.latency.saturating_record(now_ns - self.started_ns[self.first]);
            }
            self.first = if self.first + 1 == self.spec.depth { 0 } else { self.first + 1 };
        }
        self.free += n;
        self.answers += n as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_answered_once() {
        for spec in [BareSpec { pool: 1 << 20, ..BareSpec::reads(4096, 8) }, BareSpec::writes(4096, 8)] {
            exchange(&spec);
        }
    }

    fn exchange(spec: &BareSpec) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let server = scope.spawn(|| serve(&listener, spec, &stop));
            let stream = TcpStream::connect(addr).unwrap();
            let report = drive(&stream, spec, 50_000_000).unwrap();
            stop.store(true, Relaxed);
            server.join().unwrap().unwrap();
            assert!(report.answers > 0);
            // the histogram rounds up by less than a thousandth
            assert!(report.latency.min_ns > 0 && report.latency.max_ns <= report.elapsed_ns + report.elapsed_ns / 1000);
        });
    }
}
