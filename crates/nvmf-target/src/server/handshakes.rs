//! TLS handshakes of accepted connections, on a thread off the reactors' CPUs: one takes some 100 us of arithmetic.
//!
//! The thread waits in the kernel for all connections in a handshake. Each has the time limit of ICReq, counted from when it was accepted. A
//! finished one goes to an I/O thread with its session, whose memory is taken before the handshake begins.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use pilotlight_nvmf_proto::queue_pair::message::ConnectRefusal;
use pilotlight_nvmf_proto::refusal_reason::RefusalReason;
use pilotlight_nvmf_proto::tcp::TLS_HANDSHAKE;
use pilotlight_reactor::clock::now_ns;
use pilotlight_reactor::keep_off;
use pilotlight_tls::{Handshake, ServerConfig, Step};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::config::Security;
use crate::hosts::admission::SessionMemory;
use crate::server::distributor::Distributor;
use crate::thread::stream::{Accepted, Stream};
use crate::tls::server_config;

/// Events taken at once.
const EVENTS: usize = 64;
/// Epoll token of the wake-up; connections have their index.
const WAKE: u64 = u64::MAX;
/// Upper bound of a wait in nanoseconds, so that it can be passed to the kernel.
const LONGEST_WAIT_NS: u64 = 3_600_000_000_000;

/// What the acceptor passes to the thread.
#[derive(Debug)]
pub struct Handshakes {
    new: Mutex<Vec<Accepted>>,
    wake: OwnedFd,
    stop: AtomicBool,
}

impl Handshakes {
    /// Begins the handshake of an accepted connection.
    pub(crate) fn begin(&self, accepted: Accepted) {
        self.new.lock().unwrap_or_else(PoisonError::into_inner).push(accepted);
        self.ring();
    }

    fn ring(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// The running thread. Ends when dropped, and closes the connections in a handshake.
pub struct HandshakeThread {
    handshakes: Arc<Handshakes>,
    join: Option<JoinHandle<()>>,
}

impl HandshakeThread {
    /// Starts it off `cpus` where others exist.
    ///
    /// # Errors
    /// If no thread or descriptor is available.
    pub fn start(distributor: Arc<Distributor>, cpus: Vec<u32>) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let handshakes = Arc::new(Handshakes { new: Mutex::default(), wake, stop: AtomicBool::new(false) });
        let config = server_config(&distributor.shared);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &handshakes.wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        let theirs = Arc::clone(&handshakes);
        let mut work = Work { handshakes: theirs, distributor, config, epoll, pending: Vec::new(), free: Vec::new() };
        let body = move || {
            keep_off(&cpus);
            work.run();
        };
        let join = std::thread::Builder::new().name("tls".into()).spawn(body)?;
        Ok(Self { handshakes, join: Some(join) })
    }

    /// For the acceptor.
    #[must_use]
    pub fn handshakes(&self) -> Arc<Handshakes> {
        Arc::clone(&self.handshakes)
    }
}

impl Drop for HandshakeThread {
    fn drop(&mut self) {
        self.handshakes.stop.store(true, Release);
        self.handshakes.ring();
        if let Some(join) = self.join.take() {
            let _ = join.join();
        }
    }
}

/// A connection in its handshake.
struct Pending {
    /// `None` until the first byte says that it is one.
    handshake: Option<Handshake>,
    accepted: Accepted,
    deadline_ns: u64,
    is_watched_for_writing: bool,
}

/// The state of the thread.
struct Work {
    handshakes: Arc<Handshakes>,
    distributor: Arc<Distributor>,
    config: ServerConfig,
    epoll: OwnedFd,
    pending: Vec<Option<Pending>>,
    free: Vec<usize>,
}

impl Work {
    fn run(&mut self) {
        while !self.handshakes.stop.load(Acquire) {
            let mut room = [const { MaybeUninit::uninit() }; EVENTS];
            let timeout = self.timeout(now_ns());
            let ready: Vec<u64> = match epoll::wait(&self.epoll, &mut room, timeout.as_ref()) {
                Ok((events, _)) => events.iter().map(|event| event.data.u64()).collect(),
                Err(_) => continue, // interrupted by a signal
            };
            for token in ready {
                match token {
                    WAKE => self.take_new(),
                    index => self.step(index as usize),
                }
            }
            self.end_late(now_ns());
        }
    }

    /// Until the first deadline; `None` without one.
    fn timeout(&self, now_ns: u64) -> Option<Timespec> {
        let due_ns = self.pending.iter().flatten().map(|pending| pending.deadline_ns).min()?;
        let left_ns = due_ns.saturating_sub(now_ns).min(LONGEST_WAIT_NS);
        Some(Timespec { tv_sec: (left_ns / 1_000_000_000) as i64, tv_nsec: (left_ns % 1_000_000_000) as i64 })
    }

    fn take_new(&mut self) {
        let _ = rustix::io::read(&self.handshakes.wake, &mut [0; 8]);
        let new = std::mem::take(&mut *self.handshakes.new.lock().unwrap_or_else(PoisonError::into_inner));
        for accepted in new {
            self.begin(accepted);
        }
    }

    /// A handshake, with the memory of its session in `accepted`; `None` if the connection is refused.
    fn handshake(&self, accepted: &mut Accepted) -> Option<Handshake> {
        match SessionMemory::new(&self.distributor.shared.hosts, accepted.peer.ip()) {
            Ok(memory) => accepted.session_memory = Some(memory),
            Err(full) => {
                let ConnectRefusal { reason, counter, .. } = full.into();
                self.refuse(accepted, counter, &reason);
                return None;
            }
        }
        let started = Handshake::server(&self.config);
        started.map_err(|failure| self.refuse(accepted, RefusalReason::TlsHandshake, &failure)).ok()
    }

    fn begin(&mut self, mut accepted: Accepted) {
        let mut handshake = None;
        if accepted.security != Security::Concatenation {
            handshake = self.handshake(&mut accepted);
            if handshake.is_none() {
                return;
            }
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.pending.push(None);
            self.pending.len() - 1
        });
        let data = epoll::EventData::new_u64(index as u64);
        if let Err(error) = epoll::add(&self.epoll, &accepted.stream.fd, data, epoll::EventFlags::IN) {
            self.free.push(index);
            return self.refuse(&accepted, RefusalReason::TlsHandshake, &io::Error::from(error));
        }
        let deadline_ns = accepted.accepted_ns + self.distributor.shared.limits.icreq_timeout_ns;
        self.pending[index] = Some(Pending { handshake, accepted, deadline_ns, is_watched_for_writing: false });
        self.step(index);
    }

    fn step(&mut self, index: usize) {
        let Some(pending) = self.pending.get_mut(index).and_then(Option::as_mut) else { return };
        let Some(handshake) = &mut pending.handshake else { return self.peek(index) };
        match handshake.step(&pending.accepted.stream.fd) {
            Step::WantRead => self.watch(index, false),
            Step::WantWrite => self.watch(index, true),
            Step::Done(session) => {
                let Some(Pending { accepted, .. }) = self.remove(index) else { return };
                let peer = accepted.peer;
                tracing::debug!(%peer, cipher_suite = session.cipher_suite(), "TLS handshake finished");
                if let Some(reason) = session.kernel_refusal() {
                    tracing::warn!(%peer, %reason, "TLS stays in the server: the kernel does not take it (security.kernel_tls)");
                }
                let stream = Stream { tls: Some(Box::new(session)), ..accepted.stream };
                self.distributor.distribute(Accepted { stream, ..accepted });
            }
            Step::Failed(failure) => self.end(index, &failure),
        }
    }

    /// On an address for secure channel concatenation the first byte decides between TLS and ICReq. A wrong decision gives a peer nothing:
    /// without TLS it can only authenticate.
    fn peek(&mut self, index: usize) {
        let Some(pending) = self.pending[index].as_ref() else { return };
        let mut first = [0];
        match rustix::net::recv(&pending.accepted.stream.fd, &mut first[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => {} // it is watched for reading
            Ok((1, _)) if first[0] == TLS_HANDSHAKE => self.begin_at(index),
            Ok((1, _)) => {
                if let Some(Pending { accepted, .. }) = self.remove(index) {
                    self.distributor.distribute(accepted);
                }
            }
            Ok(_) => self.end(index, &"closed before its first byte"),
            Err(error) => self.end(index, &error),
        }
    }

    /// Begins the handshake of the connection at `index`.
    fn begin_at(&mut self, index: usize) {
        let Some(mut pending) = self.pending[index].take() else { return };
        pending.handshake = self.handshake(&mut pending.accepted);
        let is_refused = pending.handshake.is_none();
        self.pending[index] = Some(pending);
        if is_refused {
            self.remove(index);
        } else {
            self.step(index);
        }
    }

    fn end(&mut self, index: usize, reason: &dyn std::fmt::Display) {
        match self.remove(index) {
            Some(Pending { handshake: Some(_), accepted, .. }) => {
                self.refuse(&accepted, RefusalReason::TlsHandshake, reason);
            }
            Some(Pending { accepted, .. }) => {
                self.distributor.shared.connection_closed(); // as without TLS, it is no refusal
                tracing::warn!(peer = %accepted.peer, %reason, "connection refused");
            }
            None => {}
        }
    }

    /// Waits for the socket to be readable, or writable.
    fn watch(&mut self, index: usize, writing: bool) {
        let Some(pending) = self.pending[index].as_mut().filter(|one| one.is_watched_for_writing != writing) else {
            return;
        };
        let interest = if writing { epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
        let data = epoll::EventData::new_u64(index as u64);
        if epoll::modify(&self.epoll, &pending.accepted.stream.fd, data, interest).is_ok() {
            pending.is_watched_for_writing = writing;
        }
    }

    fn remove(&mut self, index: usize) -> Option<Pending> {
        let pending = self.pending[index].take()?;
        self.free.push(index);
        if let Err(error) = epoll::delete(&self.epoll, &pending.accepted.stream.fd) {
            tracing::debug!(%error, "cannot remove a socket from epoll");
        }
        Some(pending)
    }

    /// Ends the handshakes whose time is over.
    fn end_late(&mut self, now_ns: u64) {
        for index in 0..self.pending.len() {
            let late = self.pending[index].as_ref().filter(|pending| pending.deadline_ns <= now_ns);
            match late.map(|pending| pending.handshake.is_some()) {
                Some(true) => self.end(index, &"no TLS handshake in time (limits.icreq_timeout)"),
                Some(false) => self.end(index, &"no first byte in time (limits.icreq_timeout)"),
                None => {}
            }
        }
    }

    /// Closes the connection, after the alert that the handshake may have sent.
    fn refuse(&self, accepted: &Accepted, counter: RefusalReason, reason: &dyn std::fmt::Display) {
        let shared = &self.distributor.shared;
        shared.hosts.refusals.note(counter);
        shared.connection_closed();
        tracing::warn!(peer = %accepted.peer, %reason, "TLS connection refused");
        let _ = rustix::net::shutdown(&accepted.stream.fd, rustix::net::Shutdown::Write);
    }
}
