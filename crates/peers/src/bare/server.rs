//! Server of the bare peer.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags};

use super::message::{HEADER, Kind, Parser, Part};
use super::{BareSpec, Requests};
use pilotlight_host::rng::Rng;

/// Most messages in one `sendmsg`: two slices each.
const MAX_BATCH: usize = 64;

/// A header of each kind, by its number.
static HEADERS: [[u8; HEADER]; 8] = {
    let mut all = [[0; HEADER]; 8];
    let mut kind = 0;
    while kind < all.len() {
        all[kind][0] = kind as u8;
        kind += 1;
    }
    all
};

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
    server.reset();
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
        server.send(stream)?;
    }
    Ok(())
}

/// An outgoing message: its kind, and the offset of a block in the pool.
struct Outgoing {
    kind: Kind,
    offset: usize,
}

struct Server<'a> {
    spec: &'a BareSpec,
    scratch: Vec<u8>,
    pool: Vec<u8>,
    rng: Rng,
    parser: Parser,
    /// Offset in the pool for the next received block.
    offset: usize,
    outgoing: VecDeque<Outgoing>,
    /// Bytes already sent of the first outgoing message.
    sent: usize,
}

impl<'a> Server<'a> {
    fn new(spec: &'a BareSpec) -> Self {
        Self {
            spec,
            scratch: vec![0; 64 * 1024],
            pool: vec![1; spec.pool.max(spec.block)],
            rng: Rng::new(1),
            parser: Parser::new(spec.block),
            offset: 0,
            outgoing: VecDeque::with_capacity(spec.depth),
            sent: 0,
        }
    }

    /// Prepares for a new connection.
    fn reset(&mut self) {
        self.parser = Parser::new(self.spec.block);
        self.outgoing.clear();
        self.sent = 0;
    }

    /// A random offset of a block in the pool.
    fn random_offset(&mut self) -> usize {
        self.rng.below((self.pool.len() / self.spec.block) as u64) as usize * self.spec.block
    }

    /// Receives once: the rest of a large write's block into the pool, everything else into the scratch buffer. False at the
    /// end of the connection.
    fn receive(&mut self, stream: &TcpStream) -> io::Result<bool> {
        let left = if self.spec.requests == Requests::LargeWrites { self.parser.data_left() } else { 0 };
        let received = if left == 0 {
            rustix::net::recv(stream, &mut self.scratch[..], RecvFlags::DONTWAIT).map(|(_, bytes)| bytes)
        } else {
            let at = self.offset + self.spec.block - left;
            let mut parts = [IoSliceMut::new(&mut self.pool[at..at + left]), IoSliceMut::new(&mut self.scratch)];
            rustix::net::recvmsg(stream, &mut parts, &mut RecvAncillaryBuffer::default(), RecvFlags::DONTWAIT)
                .map(|received| received.bytes)
        };
        match received {
            Ok(0) | Err(Errno::CONNRESET) => Ok(false),
            Ok(bytes) => {
                let in_place = bytes.min(left);
                self.parser.skip(in_place);
                self.received(bytes - in_place);
                Ok(true)
            }
            Err(Errno::AGAIN) => Ok(true),
            Err(e) => Err(e.into()),
        }
    }

    /// Handles the first `len` bytes of the scratch buffer.
    fn received(&mut self, len: usize) {
        let scratch = std::mem::take(&mut self.scratch);
        let mut bytes = &scratch[..len];
        while let Some(part) = self.parser.next(&mut bytes) {
            match part {
                Part::Data(data) => self.store(data),
                Part::End(kind) => self.respond(kind),
            }
        }
        self.scratch = scratch;
    }

    /// Stores a part of a block from the scratch buffer.
    fn store(&mut self, data: &[u8]) {
        if self.spec.requests == Requests::LargeWrites || self.pool.len() > self.spec.block {
            let at = self.offset + self.spec.block - self.parser.data_left() - data.len();
            self.pool[at..at + data.len()].copy_from_slice(data);
        }
    }

    fn respond(&mut self, kind: Kind) {
        let outgoing = match kind {
            Kind::Read => Outgoing { kind: Kind::ReadResponse, offset: self.random_offset() },
            Kind::LargeWrite => Outgoing { kind: Kind::DataRequest, offset: 0 },
            _ => {
                self.offset = self.random_offset();
                Outgoing { kind: Kind::WriteResponse, offset: 0 }
            }
        };
        self.outgoing.push_back(outgoing);
    }

    /// Sends one batch of outgoing messages.
    fn send(&mut self, stream: &TcpStream) -> io::Result<()> {
        if self.outgoing.is_empty() {
            return Ok(());
        }
        let block = self.spec.block;
        let mut slices = [IoSlice::new(&[]); 2 * MAX_BATCH];
        let mut used = 0;
        for message in self.outgoing.iter().take(self.spec.batch.clamp(1, MAX_BATCH)) {
            slices[used] = IoSlice::new(&HEADERS[message.kind as usize]);
            used += 1;
            if message.kind == Kind::ReadResponse {
                slices[used] = IoSlice::new(&self.pool[message.offset..message.offset + block]);
                used += 1;
            }
        }
        let mut rest = &mut slices[..used];
        IoSlice::advance_slices(&mut rest, self.sent);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::sendmsg(stream, rest, &mut SendAncillaryBuffer::default(), flags) {
            Ok(bytes) => {
                self.sent += bytes;
                while let Some(first) = self.outgoing.front().filter(|first| first.kind.len(block) <= self.sent) {
                    self.sent -= first.kind.len(block);
                    self.outgoing.pop_front();
                }
                Ok(())
            }
            Err(Errno::AGAIN | Errno::PIPE | Errno::CONNRESET) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}
