//! A nonblocking TCP connection, encrypted or not.

use std::io::IoSlice;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pilotlight_auth::tls::{ConfiguredPsk, Derivation, NqnTooLong, PskHash, TlsPsk};
use pilotlight_tls::{ClientConfig, Hash, Psk, Session, SessionError, Step};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

use crate::clock;
use crate::error::HostError;

/// The host's key of TLS.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// The key.
    pub key: ConfiguredPsk,
    /// How keys of sessions are derived from it.
    pub derivation: Derivation,
}

impl TlsOptions {
    /// What a host with this NQN offers to a subsystem.
    pub(crate) fn config(&self, hostnqn: &str, subnqn: &str) -> Result<ClientConfig, HostError> {
        let unusable = |error: &dyn std::fmt::Display| HostError::Unsupported(format!("TLS key: {error}"));
        let offered = self.key.offer(hostnqn, subnqn, self.derivation).map_err(|error: NqnTooLong| unusable(&error))?;
        let psk = |psk: &TlsPsk| {
            let hash = match psk.hash() {
                PskHash::Sha256 => Hash::Sha256,
                PskHash::Sha384 => Hash::Sha384,
            };
            Psk::new(psk.identity().as_bytes(), psk.key(), hash).map_err(|error| unusable(&error))
        };
        Ok(ClientConfig::new(offered.iter().map(psk).collect::<Result<_, _>>()?))
    }
}

/// A deadline of a wait, and what it is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) what: &'static str,
    pub(crate) began_ns: u64,
    pub(crate) timeout_ms: u64,
}

impl Deadline {
    pub(crate) fn new(what: &'static str, timeout_ms: u64) -> Self {
        Self { what, began_ns: clock::now_ns(), timeout_ms }
    }

    /// Waits for the socket.
    fn wait(self, socket: BorrowedFd<'_>, flags: PollFlags) -> Result<(), HostError> {
        let left_ns = (self.began_ns + self.timeout_ms * 1_000_000).saturating_sub(clock::now_ns());
        if left_ns == 0 {
            return Err(HostError::Timeout { what: self.what, after_ms: self.timeout_ms });
        }
        wait_for(socket, flags, left_ns)
    }
}

/// Waits up to `ns` for the socket.
pub(crate) fn wait_for(socket: BorrowedFd<'_>, flags: PollFlags, ns: u64) -> Result<(), HostError> {
    let timeout = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
    match rustix::event::poll(&mut [PollFd::from_borrowed_fd(socket, flags)], Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(HostError::io("waiting for the socket failed", e)),
    }
}

/// The connection.
#[derive(Debug)]
pub(crate) struct Link {
    fd: OwnedFd,
    tls: Option<Box<Session>>,
}

impl Link {
    /// Takes a TCP connection, and performs the TLS handshake on it if there is a configuration for one.
    pub(crate) fn new(stream: TcpStream, tls: Option<&ClientConfig>, timeout_ms: u64) -> Result<Self, HostError> {
        let setup = |e| HostError::io("cannot set up the socket", e);
        stream.set_nodelay(true).map_err(setup)?;
        stream.set_nonblocking(true).map_err(setup)?;
        let fd = OwnedFd::from(stream);
        let tls = tls.map(|config| shake_hands(fd.as_fd(), config, timeout_ms).map(Box::new)).transpose()?;
        Ok(Self { fd, tls })
    }

    /// Receives; 0 if nothing is there.
    #[inline]
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, HostError> {
        if self.tls.is_some() {
            return self.receive_encrypted(buffer);
        }
        match rustix::net::recv(&self.fd, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Err(HostError::Closed("waiting for responses")),
            Ok((n, _)) => Ok(n),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(e) => Err(HostError::io("receiving failed", e)),
        }
    }

    fn receive_encrypted(&mut self, buffer: &mut [u8]) -> Result<usize, HostError> {
        let Some(session) = &mut self.tls else { return Ok(0) };
        match session.read(&self.fd, buffer) {
            Ok(0) => Err(HostError::Closed("waiting for responses")),
            Ok(n) => Ok(n),
            Err(SessionError::WouldBlock) => Ok(0),
            Err(error) => Err(lost(error, "waiting for responses")),
        }
    }

    /// Sends; `None` if the socket takes nothing now.
    #[inline]
    pub(crate) fn send(&mut self, slices: &[IoSlice<'_>]) -> Result<Option<usize>, HostError> {
        if self.tls.is_some() {
            return self.send_encrypted(slices);
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::sendmsg(&self.fd, slices, &mut SendAncillaryBuffer::default(), flags) {
            Ok(sent) => Ok(Some(sent)),
            Err(Errno::AGAIN) => Ok(None),
            Err(Errno::INTR) => Ok(Some(0)),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(HostError::Closed("sending commands")),
            Err(e) => Err(HostError::io("sending failed", e)),
        }
    }

    fn send_encrypted(&mut self, slices: &[IoSlice<'_>]) -> Result<Option<usize>, HostError> {
        let Some(session) = &mut self.tls else { return Ok(None) };
        match session.write_vectored(&self.fd, slices) {
            Ok(sent) => Ok(Some(sent)),
            Err(SessionError::WouldBlock) => Ok(None),
            Err(error) => Err(lost(error, "sending commands")),
        }
    }

    /// Sends bytes that were accepted before.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<(), HostError> {
        let Some(session) = self.tls.as_mut().filter(|session| session.wants_write()) else { return Ok(()) };
        match session.flush(&self.fd) {
            Ok(()) | Err(SessionError::WouldBlock) => Ok(()),
            Err(error) => Err(lost(error, "sending commands")),
        }
    }

    /// Whether accepted bytes wait for the socket.
    pub(crate) fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.wants_write())
    }

    /// Whether received bytes wait here, although the socket is not readable.
    pub(crate) fn has_buffered(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.has_buffered())
    }

    /// Sends all of `bytes`.
    pub(crate) fn send_all(&mut self, mut bytes: &[u8], deadline: Deadline) -> Result<(), HostError> {
        while !bytes.is_empty() || self.wants_write() {
            match self.send(&[IoSlice::new(bytes)])? {
                Some(sent) if sent > 0 => bytes = &bytes[sent..],
                _ => deadline.wait(self.fd.as_fd(), PollFlags::OUT)?,
            }
        }
        Ok(())
    }

    /// Fills `buffer`.
    pub(crate) fn receive_all(&mut self, mut buffer: &mut [u8], deadline: Deadline) -> Result<(), HostError> {
        while !buffer.is_empty() {
            match self.receive(buffer)? {
                0 => deadline.wait(self.fd.as_fd(), PollFlags::IN)?,
                received => buffer = &mut buffer[received..],
            }
        }
        Ok(())
    }

    /// Requests that the peer sends with other keys after this side does, for tests.
    pub(crate) fn update_key(&mut self) -> Result<(), HostError> {
        let Some(session) = &mut self.tls else { return Ok(()) };
        session.update_key().map_err(|error| lost(error, "updating the key"))
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn shake_hands(socket: BorrowedFd<'_>, config: &ClientConfig, timeout_ms: u64) -> Result<Session, HostError> {
    let deadline = Deadline::new("the TLS handshake", timeout_ms);
    let mut handshake = pilotlight_tls::Handshake::client(config).map_err(HostError::Tls)?;
    loop {
        match handshake.step(socket) {
            Step::WantRead => deadline.wait(socket, PollFlags::IN)?,
            Step::WantWrite => deadline.wait(socket, PollFlags::OUT)?,
            Step::Done(session) => return Ok(session),
            Step::Failed(failure) => return Err(HostError::Tls(failure)),
        }
    }
}

#[cold]
fn lost(error: SessionError, doing: &'static str) -> HostError {
    match error {
        SessionError::Truncated | SessionError::Closed => HostError::Closed(doing),
        error => HostError::TlsSession(error),
    }
}
