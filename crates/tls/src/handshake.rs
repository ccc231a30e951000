//! A handshake on a nonblocking socket, one step at a time.

use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Poll, Waker};

use s2n_tls::enums::{Blinding, Mode};
use s2n_tls::error::Error;

use crate::config::{ClientConfig, Hash, Psk, ServerConfig};
use crate::error::Failure;
use crate::session::Session;
use crate::wire::{Direction, Wire};

/// Bytes that one step receives at most: a ClientHello has up to 64 KiB in s2n-tls.
const STEP_BYTES: usize = 128 * 1024;

/// The state of a handshake after a step.
#[derive(Debug)]
pub enum Step {
    /// Call again when the socket is readable.
    WantRead,
    /// Call again when the socket is writable.
    WantWrite,
    /// Finished. Bytes after the handshake may have arrived with it: [`Session::has_buffered`].
    Done(Session),
    /// Failed; close the socket. A server has sent the alert, if there is one for this failure.
    Failed(Failure),
}

/// One side of a handshake. It has no deadline: the caller drops it and closes the socket when its own has passed.
#[derive(Debug)]
pub struct Handshake {
    wire: Option<Wire>,
    mode: Mode,
}

impl Handshake {
    /// The server's side.
    ///
    /// # Errors
    /// If s2n-tls fails, for instance for want of memory.
    pub fn server(config: &ServerConfig) -> Result<Self, Failure> {
        Self::new(Mode::Server, config.config(), &[])
    }

    /// The client's side.
    ///
    /// # Errors
    /// If s2n-tls fails, or two keys have the same identity.
    pub fn client(config: &ClientConfig) -> Result<Self, Failure> {
        Self::new(Mode::Client, config.config(), config.psks())
    }

    fn new(mode: Mode, config: s2n_tls::config::Config, psks: &[Psk]) -> Result<Self, Failure> {
        let build = || -> Result<Wire, Error> {
            let mut wire = Wire::new(mode)?;
            let conn = wire.conn();
            conn.set_config(config)?;
            conn.set_waker(Some(Waker::noop()))?; // the selection of the key returns its failure as a future
            conn.set_receive_buffering(true)?;
            // Else s2n-tls sleeps for 10 to 30 s after an error. The delay is against timing attacks on CBC, which is not offered.
            conn.set_blinding(Blinding::SelfService)?;
            psks.iter().try_for_each(|psk| psk.append_to(conn))?;
            Ok(wire)
        };
        let wire = build().map_err(|error| Failure::Protocol { name: error.name(), message: error.message() })?;
        Ok(Self { wire: Some(wire), mode })
    }

    /// Continues until the socket would block, without blocking. Takes some 100 us of arithmetic in one of its calls, so not for a
    /// reactor.
    ///
    /// # Panics
    /// If it is called after `Done` or `Failed`.
    pub fn step(&mut self, socket: impl AsFd) -> Step {
        let socket = socket.as_fd();
        let wire = self.wire.as_mut().expect("a handshake that ended is not continued");
        match wire.with(socket, STEP_BYTES, |conn| conn.poll_negotiate().map_ok(drop)) {
            Poll::Pending => match wire.blocked() {
                Direction::Read => Step::WantRead,
                Direction::Write => Step::WantWrite,
            },
            Poll::Ready(Ok(())) => self.finish(),
            Poll::Ready(Err(error)) => self.fail(error, socket),
        }
    }

    fn finish(&mut self) -> Step {
        let wire = self.wire.take().expect("step has just used it");
        match negotiated(&wire) {
            Ok(identity) => Step::Done(Session::new(wire, identity)),
            Err(failure) => Step::Failed(failure),
        }
    }

    #[cold]
    fn fail(&mut self, error: Error, socket: BorrowedFd<'_>) -> Step {
        let wire = self.wire.take().expect("step has just used it");
        let failure = Failure::new(error, &wire);
        if let Some(alert) = failure.alert().filter(|_| self.mode == Mode::Server) {
            wire.send_plain(socket, &alert.record());
        }
        Step::Failed(failure)
    }
}

/// The identity of the key in use. Without a key, or with a cipher suite that was not to be negotiated, there is no session.
fn negotiated(wire: &Wire) -> Result<Box<[u8]>, Failure> {
    let conn = wire.conn_ref();
    let suites = [Hash::Sha256, Hash::Sha384].map(|hash| hash.cipher_suite().1);
    if !conn.cipher_suite().is_ok_and(|suite| suites.contains(&suite)) {
        return Err(Failure::NoCommonCipher { needed: suites[0] });
    }
    let read = || -> Result<Box<[u8]>, Error> {
        let mut identity = vec![0; conn.negotiated_psk_identity_length()?];
        conn.negotiated_psk_identity(&mut identity)?;
        Ok(identity.into())
    };
    read().ok().filter(|identity| !identity.is_empty()).ok_or(Failure::NoPsk)
}
