//! Client of the bare peer.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::TcpStream;

use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

use super::message::{Kind, Parser, Part};
use super::{BareReport, BareSpec, Requests};
use pilotlight_host::load::new_histogram;
use pilotlight_host::load::report::Latency;
use pilotlight_host::rng::Rng;
use pilotlight_host::{SCRATCH_LEN, clock};

/// Buffers of one `sendmsg`, as the host has.
const MAX_SLICES: usize = 128;

/// Keeps `spec.depth` requests in flight on `stream` for `runtime_ns`, counted from the first response.
///
/// # Errors
/// The system's error, or `UnexpectedEof` if the server closes the connection.
pub fn drive(stream: &TcpStream, spec: &BareSpec, runtime_ns: u64) -> io::Result<BareReport> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let mut client = Client::new(spec);
    let mut scratch = vec![0u8; SCRATCH_LEN];
    client.request(clock::now_ns());
    client.send(stream)?;
    rustix::event::poll(&mut [PollFd::new(stream, PollFlags::IN)], None)?;
    let start_ns = clock::now_ns();
    let (mut now_ns, mut last_ns, mut spins) = (start_ns, start_ns, 0u32);
    while now_ns < start_ns + runtime_ns {
        client.request(now_ns);
        client.send(stream)?;
        match rustix::net::recv(stream, &mut scratch[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((n, _)) => {
                now_ns = clock::now_ns();
                last_ns = now_ns;
                client.received(&scratch[..n], now_ns);
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
    let rate_iops = client.responses as f64 * 1e9 / elapsed_ns.max(1) as f64;
    Ok(BareReport {
        responses: client.responses,
        elapsed_ns,
        rate_iops,
        latency: Latency::from_histogram(&client.latency),
    })
}

/// Consecutive messages of one kind.
struct Run {
    kind: Kind,
    messages: usize,
}

struct Client<'a> {
    spec: &'a BareSpec,
    rng: Rng,
    /// `depth` read requests or large write requests.
    short_requests: Vec<u8>,
    /// `depth` write requests.
    write_requests: Vec<u8>,
    /// One data message.
    data: Vec<u8>,
    outgoing: VecDeque<Run>,
    /// Bytes already sent of the first outgoing message.
    sent: usize,
    parser: Parser,
    /// Ring of the start times of requests, oldest at `first`.
    started_ns: Vec<u64>,
    first: usize,
    free: usize,
    responses: u64,
    latency: Histogram<u64>,
}

impl<'a> Client<'a> {
    fn new(spec: &'a BareSpec) -> Self {
        let of = |kind: Kind, times: usize| {
            let mut message = vec![3; kind.len(spec.block)];
            message[0] = kind as u8;
            message.repeat(times)
        };
        let large = spec.requests == Requests::LargeWrites;
        Self {
            spec,
            rng: Rng::new(2),
            short_requests: of(if large { Kind::LargeWrite } else { Kind::Read }, spec.depth),
            write_requests: if large { Vec::new() } else { of(Kind::Write, spec.depth) },
            data: of(Kind::Data, 1),
            outgoing: VecDeque::with_capacity(2 * spec.depth),
            sent: 0,
            parser: Parser::new(spec.block),
            started_ns: vec![0; spec.depth],
            first: 0,
            free: spec.depth,
            responses: 0,
            latency: new_histogram(),
        }
    }

    fn pick(&mut self) -> Kind {
        match self.spec.requests {
            Requests::LargeWrites => Kind::LargeWrite,
            Requests::Mixed { read_percent: 100 } => Kind::Read,
            Requests::Mixed { read_percent: 0 } => Kind::Write,
            Requests::Mixed { read_percent } if self.rng.below(100) < u64::from(read_percent) => Kind::Read,
            Requests::Mixed { .. } => Kind::Write,
        }
    }

    /// Starts a request for each free slot.
    fn request(&mut self, now_ns: u64) {
        let depth = self.spec.depth;
        let mut slot = (self.first + depth - self.free) % depth;
        for _ in 0..self.free {
            self.started_ns[slot] = now_ns;
            slot = if slot + 1 == depth { 0 } else { slot + 1 };
            let kind = self.pick();
            self.push(kind);
        }
        self.free = 0;
    }

    fn push(&mut self, kind: Kind) {
        match self.outgoing.back_mut() {
            Some(run) if run.kind == kind && kind != Kind::Data => run.messages += 1,
            _ => self.outgoing.push_back(Run { kind, messages: 1 }),
        }
    }

    /// Sends outgoing messages until the socket's buffer is full.
    fn send(&mut self, stream: &TcpStream) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let mut used = 0;
            for (slice, run) in slices.iter_mut().zip(&self.outgoing) {
                let messages = match run.kind {
                    Kind::Data => &self.data,
                    Kind::Write => &self.write_requests,
                    _ => &self.short_requests,
                };
                *slice = IoSlice::new(&messages[..run.messages * run.kind.len(self.spec.block)]);
                used += 1;
            }
            let mut rest = &mut slices[..used];
            IoSlice::advance_slices(&mut rest, self.sent);
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::sendmsg(stream, rest, &mut SendAncillaryBuffer::default(), flags) {
                Ok(bytes) => self.consume(bytes),
                Err(Errno::AGAIN) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn consume(&mut self, bytes: usize) {
        self.sent += bytes;
        while let Some(run) = self.outgoing.front_mut() {
            let len = run.kind.len(self.spec.block);
            let whole = (self.sent / len).min(run.messages);
            self.sent -= whole * len;
            run.messages -= whole;
            if run.messages > 0 {
                return;
            }
            self.outgoing.pop_front();
        }
    }

    fn received(&mut self, mut bytes: &[u8], now_ns: u64) {
        while let Some(part) = self.parser.next(&mut bytes) {
            match part {
                Part::Data(_) => {}
                Part::End(Kind::DataRequest) => self.push(Kind::Data),
                Part::End(_) => self.complete_oldest(now_ns),
            }
        }
    }

    /// Completes the oldest request.
    fn complete_oldest(&mut self, now_ns: u64) {
        // the first batch was sent before the server had accepted the connection
        if self.responses >= self.spec.depth as u64 {
            self.latency.saturating_record(now_ns - self.started_ns[self.first]);
        }
        self.first = if self.first + 1 == self.spec.depth { 0 } else { self.first + 1 };
        self.free += 1;
        self.responses += 1;
    }
}
