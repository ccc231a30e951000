//! A queue pair on a socket: handshake, polling, and synchronous commands.
//!
//! Non-blocking and single-threaded. [`Connection::poll`] is the hot path: one `recv` into a scratch buffer of the caller (one
//! for all connections of a thread), events parsed in place; [`Connection::flush`] then sends all pending PDUs in one
//! `sendmsg`. [`Connection::execute`] and [`Connection::wait`] poll until one command has completed.

#[cfg(feature = "testing")]
mod testing;

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use pilotlight_nvme::Sqe;
use pilotlight_nvme::pdu::{CommonHeader, Digests, Flags, IcReq, IcResp, MAX_PDA, PduType, TermReq};
use pilotlight_tls::ClientConfig;
use rustix::event::PollFlags;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

use crate::clock;
use crate::error::{HostError, Violation};
use crate::link::{Deadline, Link, wait_for};
use crate::queue::{Buffers, Completed, Queue, Terms, Transfer};
#[cfg(feature = "testing")]
use crate::socket_limits::Pieces;
use crate::transmit::MAX_SLICES;

/// Recommended bytes of the scratch buffer of [`Connection::poll`]: holds a batch of a deep queue and fits a core's
/// second-level cache.
pub const SCRATCH_LEN: usize = 512 * 1024;

/// Parameters of ICReq.
#[derive(Clone, Copy, Debug)]
pub struct Handshake {
    /// Requested digests.
    pub digests: Digests,
    /// HPDA: alignment of data from the target, in dwords less one; at most 31.
    pub hpda: u8,
    /// Most R2Ts outstanding per command; at least 1 (MAXR2T is this less one).
    pub max_r2t: u32,
}

impl Default for Handshake {
    fn default() -> Self {
        Self { digests: Digests::default(), hpda: 0, max_r2t: 1 }
    }
}

impl Handshake {
    /// The ICReq PDU.
    #[must_use]
    pub fn request(&self) -> IcReq {
        IcReq {
            ch: CommonHeader::new(PduType::ICReq, Flags::empty(), 0, 128),
            pfv: U16::ZERO,
            hpda: self.hpda,
            dgst: self.digests.to_u8(),
            maxr2t: U32::new(self.max_r2t.max(1) - 1),
            reserved: [0; 112],
        }
    }

    /// The terms of the connection, from the target's ICResp.
    ///
    /// # Errors
    /// A [`Violation`] if the response is not a valid ICResp.
    pub fn accept(&self, response: &[u8; 128]) -> Result<Terms, Violation> {
        let r = IcResp::read_from_bytes(response).map_err(|_| Violation::sequence("short ICResp"))?;
        if r.ch.pdu_type != PduType::ICResp as u8 {
            return Err(Violation::sequence("the first PDU is not an ICResp"));
        }
        if r.ch.hlen != 128 || r.ch.plen.get() != 128 {
            return Err(Violation::field(2, "ICResp is not 128 bytes long"));
        }
        if r.pfv.get() != 0 {
            return Err(Violation::field(8, "unknown PDU format version in ICResp"));
        }
        if r.cpda > MAX_PDA {
            return Err(Violation::field(10, "CPDA is above 31"));
        }
        let granted = Digests::from_u8(r.dgst).ok_or(Violation::field(11, "reserved bits of DGST are set"))?;
        if granted.header && !self.digests.header || granted.data && !self.digests.data {
            return Err(Violation::field(11, "a digest was enabled that was not requested"));
        }
        if r.maxh2cdata.get() < 4096 || r.maxh2cdata.get() % 4 != 0 {
            return Err(Violation::field(12, "MAXH2CDATA is below 4096 or not a multiple of 4"));
        }
        Ok(Terms {
            digests: granted,
            hpda: self.hpda,
            cpda: r.cpda,
            max_r2t: self.max_r2t.max(1),
            max_h2c_data: r.maxh2cdata.get(),
            in_capsule: 8192, // enough for Connect; I/O queues use IOCCSZ
            success_flag: false,
        })
    }
}

/// Sizes and timeout of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Most commands at once.
    pub depth: u16,
    /// Most bytes of data per command.
    pub max_io: u32,
    /// Whether each command has a buffer of its own.
    pub buffers: Buffers,
    /// Timeout of [`Connection::wait`], the TCP connection and the handshake, in milliseconds.
    pub timeout_ms: u64,
}

/// A queue pair on a TCP connection.
#[derive(Debug)]
pub struct Connection {
    link: Link,
    queue: Queue,
    timeout_ms: u64,
    /// Completions received while waiting for another command, with their data.
    stash: VecDeque<(Completed, Vec<u8>)>,
    scratch: Vec<u8>,
    /// Lengths of pieces, if PDUs are sent in pieces.
    #[cfg(feature = "testing")]
    pieces: Option<Pieces>,
}

impl Connection {
    /// Connects to `addr` and exchanges ICReq and ICResp.
    ///
    /// # Errors
    /// The target is unreachable, refuses, or violates the protocol.
    pub fn open(
        addr: SocketAddr,
        tls: Option<&ClientConfig>,
        handshake: &Handshake,
        sizes: &Sizes,
    ) -> Result<Self, HostError> {
        let timeout = Duration::from_millis(sizes.timeout_ms);
        let stream = TcpStream::connect_timeout(&addr, timeout).map_err(|e| unreachable_target(addr, e))?;
        Self::over(stream, tls, handshake, sizes)
    }

    /// Exchanges ICReq and ICResp on an open TCP connection, after a TLS handshake if there is a configuration for one.
    ///
    /// # Errors
    /// As [`Connection::open`].
    pub fn over(
        stream: TcpStream,
        tls: Option<&ClientConfig>,
        handshake: &Handshake,
        sizes: &Sizes,
    ) -> Result<Self, HostError> {
        let mut link = Link::new(stream, tls, sizes.timeout_ms)?;
        let deadline = Deadline::new("ICReq", sizes.timeout_ms);
        link.send_all(handshake.request().as_bytes(), deadline)?;
        let response = receive_icresp(&mut link, deadline)?;
        let terms = handshake.accept(&response)?;
        Ok(Self {
            link,
            queue: Queue::new(terms, sizes.depth, sizes.max_io, sizes.buffers),
            timeout_ms: sizes.timeout_ms,
            stash: VecDeque::new(),
            scratch: Vec::new(),
            #[cfg(feature = "testing")]
            pieces: None,
        })
    }

    /// The queue pair.
    #[inline]
    pub fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    /// One `recv` into `scratch`; `done` is called for each completed command, with the data it read. Returns the number of
    /// bytes received.
    ///
    /// # Errors
    /// The connection is closed. After a violation an H2CTermReq is sent.
    #[inline]
    pub fn poll(&mut self, scratch: &mut [u8], done: impl FnMut(Completed, &[u8])) -> Result<usize, HostError> {
        let received = self.link.receive(scratch)?;
        if received > 0
            && let Err(e) = self.queue.receive(&scratch[..received], done)
        {
            self.send_term_req(&e);
            return Err(e);
        }
        #[cfg(feature = "testing")]
        self.queue.pump(received == 0);
        Ok(received)
    }

    /// Sends pending PDUs until the socket's buffer is full.
    ///
    /// # Errors
    /// The connection is closed.
    #[inline]
    pub fn flush(&mut self) -> Result<(), HostError> {
        #[cfg(feature = "testing")]
        if self.pieces.is_some() && !self.queue.transmit.is_empty() {
            return self.send_piece();
        }
        while !self.queue.transmit.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let (transmit, arena) = (&self.queue.transmit, &self.queue.arena);
            let n = transmit.slices(arena, &mut slices);
            match self.link.send(&slices[..n])? {
                Some(sent) => self.queue.transmit.consume(sent),
                None => return Ok(()),
            }
        }
        self.link.flush()
    }

    /// Starts a command that writes `out` or reads `read_len` bytes.
    ///
    /// # Errors
    /// [`HostError::Unsupported`] if all command identifiers are in use, or the data is too long.
    pub fn submit(&mut self, sqe: Sqe, out: &[u8], read_len: u32) -> Result<u16, HostError> {
        let max_len = self.queue.max_io() as usize;
        if out.len().max(read_len as usize) > max_len {
            return Err(HostError::Unsupported(format!("at most {max_len} bytes a command on this connection")));
        }
        let Some(cid) = self.queue.reserve() else {
            return Err(HostError::Unsupported(format!("all {} commands are in flight", self.queue.depth())));
        };
        let transfer = match (out.len(), read_len) {
            (0, 0) => Transfer::None,
            (0, len) => Transfer::In(len),
            (len, _) => Transfer::Out(len as u32),
        };
        self.queue.buffer_mut(cid)[..out.len()].copy_from_slice(out);
        self.queue.issue(cid, sqe, transfer);
        self.flush()?;
        Ok(cid)
    }

    /// Waits for command `cid` and copies the data it read to `into`. Other completions are kept for
    /// [`Connection::take_completion`].
    ///
    /// # Errors
    /// [`HostError::Timeout`], or the connection is closed. A bad status is no error here.
    pub fn wait(&mut self, cid: u16, what: &'static str, into: &mut [u8]) -> Result<Completed, HostError> {
        let deadline_ns = clock::now_ns() + self.timeout_ms * 1_000_000;
        loop {
            if let Some(at) = self.stash.iter().position(|(c, _)| c.cid == cid)
                && let Some((completed, data)) = self.stash.remove(at)
            {
                let len = data.len().min(into.len());
                into[..len].copy_from_slice(&data[..len]);
                return Ok(completed);
            }
            if clock::now_ns() >= deadline_ns {
                return Err(HostError::Timeout { what, after_ms: self.timeout_ms });
            }
            self.poll_into_stash(10)?;
        }
    }

    /// The next stashed or received completion, with its data. Waits for up to `timeout_ms`.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn take_completion(&mut self, timeout_ms: u64) -> Result<Option<(Completed, Vec<u8>)>, HostError> {
        let deadline_ns = clock::now_ns() + timeout_ms * 1_000_000;
        loop {
            if let Some(first) = self.stash.pop_front() {
                return Ok(Some(first));
            }
            let left_ns = deadline_ns.saturating_sub(clock::now_ns());
            self.poll_into_stash((left_ns / 1_000_000).min(10))?;
            if left_ns == 0 {
                return Ok(self.stash.pop_front());
            }
        }
    }

    /// Sends a command and waits for it; `what` names it in errors. Returns dwords 0 and 1 of the completion.
    ///
    /// # Errors
    /// As [`Connection::wait`], and [`HostError::Status`] for a bad status.
    pub fn execute(&mut self, what: &'static str, sqe: Sqe, out: &[u8], into: &mut [u8]) -> Result<u64, HostError> {
        let cid = self.submit(sqe, out, into.len() as u32)?;
        let completed = self.wait(cid, what, into)?;
        if !completed.status.is_success() {
            return Err(HostError::Status { what, status: completed.status });
        }
        if completed.digest_error {
            return Err(HostError::DataDigest(what));
        }
        Ok(completed.result)
    }

    /// Polls once into the stash; waits in the kernel for up to `ms` if nothing has arrived.
    fn poll_into_stash(&mut self, ms: u64) -> Result<(), HostError> {
        self.flush()?;
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(64 * 1024, 0);
        let mut stash = std::mem::take(&mut self.stash);
        let polled = self.poll(&mut scratch, |c, data| stash.push_back((c, data.to_vec())));
        self.scratch = scratch;
        self.stash = stash;
        let is_waiting = polled? == 0 && self.queue.transmit.is_empty() && !self.link.has_buffered();
        if is_waiting && ms > 0 && !self.link.wants_write() && !self.queue.has_held_r2ts() {
            wait_for(self.link.as_fd(), PollFlags::IN, ms.min(999) * 1_000_000)?;
        }
        self.flush()
    }

    /// Reports a violation to the target (TCP 3.6.2.4); the connection closes either way.
    #[cold]
    fn send_term_req(&mut self, error: &HostError) {
        let HostError::Violation(v) = error else { return };
        let term = TermReq {
            ch: CommonHeader::new(PduType::H2CTermReq, Flags::empty(), 0, TermReq::LEN as u32),
            fes: U16::new(v.fes as u16),
            fei: U32::new(v.fei),
            reserved: [0; 10],
        };
        // best effort: the connection closes anyway
        let _ = self.link.send(&[IoSlice::new(term.as_bytes())]);
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

fn unreachable_target(addr: SocketAddr, error: io::Error) -> HostError {
    HostError::io(format!("cannot connect to {addr}; is a target listening there?"), error)
}

/// The first PDU of a connection: 128 bytes of ICResp, or a termination request.
fn receive_icresp(link: &mut Link, deadline: Deadline) -> Result<[u8; 128], HostError> {
    let mut response = [0u8; 128];
    let failed = |error| match error {
        HostError::Closed(_) => HostError::Closed("waiting for ICResp"),
        HostError::Io { cause, .. } if cause.kind() == io::ErrorKind::ConnectionReset => {
            HostError::Closed("waiting for ICResp")
        }
        error => error,
    };
    link.receive_all(&mut response[..TermReq::LEN], deadline).map_err(failed)?;
    if response[0] == PduType::C2HTermReq as u8
        && let Ok((term, _)) = TermReq::read_from_prefix(&response)
    {
        return Err(HostError::Terminated { fes: term.fes.get(), fei: term.fei.get() });
    }
    link.receive_all(&mut response[TermReq::LEN..], deadline).map_err(failed)?;
    Ok(response)
}
