//! A handshake on a nonblocking socket, one step at a time.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Poll, Waker};

use s2n_tls::enums::{Blinding, Mode};
use s2n_tls::error::Error;

use crate::config::{ClientConfig, Psk, ServerConfig};
use crate::error::Failure;
use crate::hash::Hash;
use crate::kernel;
use crate::secrets::Secrets;
use crate::session::Session;
use crate::user::UserSession;
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
pub struct Handshake {
    wire: Option<Wire>,
    mode: Mode,
    /// For a session in the kernel.
    secrets: Option<Secrets>,
}

impl Handshake {
    /// The server's side.
    ///
    /// # Errors
    /// If s2n-tls fails, for instance for want of memory.
    pub fn server(config: &ServerConfig) -> Result<Self, Failure> {
        Self::new(Mode::Server, config.config(), &[], config.prefers_kernel())
    }

    /// The client's side.
    ///
    /// # Errors
    /// If s2n-tls fails, or two keys have the same identity.
    pub fn client(config: &ClientConfig) -> Result<Self, Failure> {
        Self::new(Mode::Client, config.config(), config.psks(), config.prefers_kernel())
    }

    fn new(mode: Mode, config: s2n_tls::config::Config, psks: &[Psk], prefers_kernel: bool) -> Result<Self, Failure> {
        let build = || -> Result<Wire, Error> {
            let mut wire = Wire::new(mode)?;
            let conn = wire.conn();
            conn.set_config(config)?;
            conn.set_waker(Some(Waker::noop()))?; // the selection of the key returns its failure as a future
            // For the kernel, bytes after the handshake must stay in the socket.
            conn.prefer_throughput()?; // records of 16 KiB, not 8
            conn.set_receive_buffering(!prefers_kernel)?;
            // Else s2n-tls sleeps for 10 to 30 s after an error. The delay is against timing attacks on CBC, which is not offered.
            conn.set_blinding(Blinding::SelfService)?;
            psks.iter().try_for_each(|psk| psk.append_to(conn))?;
            Ok(wire)
        };
        let wire = build().map_err(|error| Failure::library(&error))?;
        Ok(Self { wire: Some(wire), mode, secrets: prefers_kernel.then(Secrets::default) })
    }

    /// Continues until the socket would block, without blocking. Takes some 100 us of arithmetic in one of its calls, so not for a
    /// reactor.
    ///
    /// # Panics
    /// If it is called after `Done` or `Failed`.
    pub fn step(&mut self, socket: impl AsFd) -> Step {
        let socket = socket.as_fd();
        let wire = self.wire.as_mut().expect("a handshake that ended is not continued");
        let mut negotiate = || wire.with(socket, STEP_BYTES, |conn| conn.poll_negotiate().map_ok(drop));
        let polled = match &mut self.secrets {
            Some(secrets) => secrets.capture(negotiate),
            None => negotiate(),
        };
        match polled {
            Poll::Pending => match (Failure::not_tls(wire), wire.blocked()) {
                (Some(failure), _) => {
                    self.wire = None;
                    Step::Failed(failure)
                }
                (None, Direction::Read) => Step::WantRead,
                (None, Direction::Write) => Step::WantWrite,
            },
            Poll::Ready(Ok(())) => self.finish(socket),
            Poll::Ready(Err(error)) => self.fail(error, socket),
        }
    }

    fn finish(&mut self, socket: BorrowedFd<'_>) -> Step {
        let wire = self.wire.take().expect("step has just used it");
        let session = negotiated(&wire).and_then(|(identity, hash)| self.session(wire, socket, identity, hash));
        match session {
            Ok(session) => Step::Done(session),
            Err(failure) => Step::Failed(failure),
        }
    }

    /// The session, in the kernel if that is preferred and possible.
    fn session(
        &mut self,
        mut wire: Wire,
        socket: BorrowedFd<'_>,
        identity: Box<[u8]>,
        hash: Hash,
    ) -> Result<Session, Failure> {
        let mut refusal = None;
        if let Some(secrets) = self.secrets.take() {
            match kernel::enable(socket, &secrets, hash, self.mode == Mode::Server) {
                Ok(Ok(session)) => return Ok(Session::in_kernel(session, identity, hash)),
                Ok(Err(reason)) => refusal = Some(reason),
                Err(error) => return Err(Failure::Io(error.kind())),
            }
            wire.conn().set_receive_buffering(true).map_err(|error| Failure::library(&error))?;
        }
        Ok(Session::in_user_space(UserSession::new(wire), identity, hash, refusal))
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

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake").field("wire", &self.wire).field("mode", &self.mode).finish_non_exhaustive()
    }
}

/// The identity of the key in use, and its hash. Without a key, or with a cipher suite that was not to be negotiated, there is no session.
fn negotiated(wire: &Wire) -> Result<(Box<[u8]>, Hash), Failure> {
    let conn = wire.conn_ref();
    let suite = conn.cipher_suite().unwrap_or_default();
    let hash = [Hash::Sha256, Hash::Sha384].into_iter().find(|hash| hash.cipher_suite().1 == suite);
    let hash = hash.ok_or(Failure::NoCommonCipher { needed: Hash::Sha256.cipher_suite().1 })?;
    let read = || -> Result<Box<[u8]>, Error> {
        let mut identity = vec![0; conn.negotiated_psk_identity_length()?];
        conn.negotiated_psk_identity(&mut identity)?;
        Ok(identity.into())
    };
    let identity = read().ok().filter(|identity| !identity.is_empty()).ok_or(Failure::NoPsk)?;
    Ok((identity, hash))
}
