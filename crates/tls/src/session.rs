//! An encrypted connection after its handshake.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd;

use crate::error::{KernelRefusal, SessionError};
use crate::hash::Hash;
use crate::kernel::KernelSession;
use crate::user::UserSession;

/// A session. Each method takes the connection's socket, which stays the caller's, and must always get the same one.
///
/// Reading and writing allocate nothing in the steady state. In user space the first write allocates the send buffer.
#[derive(Debug)]
pub struct Session {
    records: Records,
    identity: Box<[u8]>,
    hash: Hash,
    refusal: Option<KernelRefusal>,
}

/// Who encrypts records.
#[derive(Debug)]
enum Records {
    User(UserSession),
    Kernel(KernelSession),
}

impl Session {
    /// In user space; `refusal` says why, if the kernel was preferred.
    pub(crate) fn in_user_space(
        user: UserSession,
        identity: Box<[u8]>,
        hash: Hash,
        refusal: Option<KernelRefusal>,
    ) -> Self {
        Self { records: Records::User(user), identity, hash, refusal }
    }

    /// In the kernel.
    pub(crate) fn in_kernel(kernel: KernelSession, identity: Box<[u8]>, hash: Hash) -> Self {
        Self { records: Records::Kernel(kernel), identity, hash, refusal: None }
    }

    /// The identity of the key that was selected.
    #[must_use]
    pub fn identity(&self) -> &[u8] {
        &self.identity
    }

    /// Name of the cipher suite.
    #[must_use]
    pub fn cipher_suite(&self) -> &'static str {
        self.hash.cipher_suite().1
    }

    /// Whether the kernel encrypts and decrypts.
    #[must_use]
    pub fn is_in_kernel(&self) -> bool {
        matches!(self.records, Records::Kernel(_))
    }

    /// Why the kernel does not, although the configuration prefers it.
    #[must_use]
    pub fn kernel_refusal(&self) -> Option<&KernelRefusal> {
        self.refusal.as_ref()
    }

    /// Whether a read may return bytes, or an error, although the socket is not readable: check it before waiting.
    #[must_use]
    pub fn has_buffered(&self) -> bool {
        match &self.records {
            Records::User(user) => user.has_buffered(),
            Records::Kernel(_) => false,
        }
    }

    /// Whether accepted bytes wait for the socket to become writable: then [`flush`](Self::flush).
    #[must_use]
    pub fn wants_write(&self) -> bool {
        match &self.records {
            Records::User(user) => user.wants_write(),
            Records::Kernel(_) => false,
        }
    }

    /// Reads decrypted bytes; 0 after the peer's close_notify. In user space it fills `buffer` unless the socket has no more bytes.
    ///
    /// # Errors
    /// `WouldBlock`, or the reason for the end.
    pub fn read(&mut self, socket: impl AsFd, buffer: &mut [u8]) -> Result<usize, SessionError> {
        self.read_vectored(socket, &mut [IoSliceMut::new(buffer)])
    }

    /// As [`read`](Self::read), into several buffers, the first one first.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn read_vectored(&mut self, socket: impl AsFd, buffers: &mut [IoSliceMut<'_>]) -> Result<usize, SessionError> {
        match &mut self.records {
            Records::User(user) => user.read_vectored(socket.as_fd(), buffers),
            Records::Kernel(kernel) => kernel.read_vectored(socket.as_fd(), buffers),
        }
    }

    /// Writes, and returns how many bytes were accepted, in user space at most [`MAX_WRITE`](crate::MAX_WRITE). Accepted bytes are the
    /// session's: they are sent now or, if [`wants_write`](Self::wants_write), by the next write or flush.
    ///
    /// # Errors
    /// `WouldBlock` if nothing was accepted because earlier bytes wait for the socket, or the reason for the end.
    pub fn write(&mut self, socket: impl AsFd, bytes: &[u8]) -> Result<usize, SessionError> {
        self.write_vectored(socket, &[IoSlice::new(bytes)])
    }

    /// As [`write`](Self::write), from several buffers. Small ones are gathered, so that a record holds many.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn write_vectored(&mut self, socket: impl AsFd, buffers: &[IoSlice<'_>]) -> Result<usize, SessionError> {
        match &mut self.records {
            Records::User(user) => user.write_vectored(socket.as_fd(), buffers),
            Records::Kernel(kernel) => kernel.write_vectored(socket.as_fd(), buffers),
        }
    }

    /// Sends accepted bytes.
    ///
    /// # Errors
    /// `WouldBlock` if some remain, or the reason for the end.
    pub fn flush(&mut self, socket: impl AsFd) -> Result<(), SessionError> {
        match &mut self.records {
            Records::User(user) => user.flush(socket.as_fd()),
            Records::Kernel(kernel) => kernel.flush(),
        }
    }

    /// Sends accepted bytes and then close_notify. Reads continue until the peer has closed its side too.
    ///
    /// # Errors
    /// `WouldBlock`: call it again; or the reason for the end.
    pub fn close(&mut self, socket: impl AsFd) -> Result<(), SessionError> {
        match &mut self.records {
            Records::User(user) => user.close(socket.as_fd()),
            Records::Kernel(kernel) => kernel.close(socket.as_fd()),
        }
    }

    /// Lets the next write begin with new keys for this direction. The peer's KeyUpdates are followed without a call.
    ///
    /// # Errors
    /// If s2n-tls refuses; in the kernel always `KeyUpdate`.
    pub fn update_key(&mut self) -> Result<(), SessionError> {
        match &mut self.records {
            Records::User(user) => user.update_key(),
            Records::Kernel(_) => Err(SessionError::KeyUpdate),
        }
    }
}
