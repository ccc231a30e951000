//! A session whose records the kernel encrypts.

use std::io::{Error, IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;

use crate::error::{Alert, KernelRefusal, SessionError};
use crate::hash::Hash;
use crate::secrets::{Keys, Secrets};
use crate::socket::{self, Side};

/// Types of records (RFC 8446, section 5.1).
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
/// Type of the handshake message that changes keys (RFC 8446, section 4.6.3).
const KEY_UPDATE: u8 = 24;
/// Alert levels (RFC 8446, section 6); only its description has a meaning.
const WARNING: u8 = 1;

/// Moves a connection whose handshake has just ended into the kernel.
///
/// # Errors
/// The kernel has no TLS, or not this cipher: the connection is as before. The outer error: it took the keys of one direction only, and
/// the connection is unusable.
pub(crate) fn enable(
    socket: BorrowedFd<'_>,
    secrets: &Secrets,
    hash: Hash,
    is_server: bool,
) -> Result<Result<KernelSession, KernelRefusal>, Error> {
    let Some((client, server)) = secrets.both() else { return Ok(Err(KernelRefusal::secrets())) };
    let (ours, theirs) = if is_server { (server, client) } else { (client, server) };
    let begin = || {
        socket::attach(socket).map_err(|error| KernelRefusal::new("TCP_ULP", &error))?;
        socket::set_keys(socket, Side::Send, hash, &Keys::derive(hash, ours))
            .map_err(|error| KernelRefusal::new("TLS_TX", &error))
    };
    if let Err(refusal) = begin() {
        return Ok(Err(refusal));
    }
    socket::set_keys(socket, Side::Receive, hash, &Keys::derive(hash, theirs))?;
    Ok(Ok(KernelSession::default()))
}

/// The state of [`Session`](crate::Session) in the kernel, with the same methods. It holds no bytes.
#[derive(Debug, Default)]
pub(crate) struct KernelSession {
    /// How reading ended: `Ok` by close_notify.
    end: Option<Result<(), SessionError>>,
    /// Nothing more can be written.
    is_closed: bool,
}

impl KernelSession {
    pub(crate) fn read_vectored(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Result<usize, SessionError> {
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            return Ok(0);
        }
        if let Some(end) = &self.end {
            return end.clone().map(|()| 0);
        }
        match socket::receive(socket, buffers) {
            Ok((0, Some(APPLICATION_DATA))) => Err(SessionError::WouldBlock), // an empty record
            Ok((bytes, Some(APPLICATION_DATA))) => Ok(bytes),
            // Kernels name no type for the end of the connection, and older ones none for data.
            Ok((bytes @ 1.., None)) => Ok(bytes),
            Ok((0, None)) => self.finish(Err(SessionError::Truncated)),
            Ok((bytes, Some(kind))) => {
                let mut content = Content::gather(buffers, bytes);
                content.complete(socket);
                self.finish(content.meaning(kind))
            }
            Err(error) => match failure(&error) {
                SessionError::WouldBlock => Err(SessionError::WouldBlock),
                error => self.finish(Err(error)),
            },
        }
    }

    /// Reading ends.
    #[cold]
    fn finish(&mut self, end: Result<(), SessionError>) -> Result<usize, SessionError> {
        self.is_closed |= end.is_err();
        self.end = Some(end.clone());
        end.map(|()| 0)
    }

    pub(crate) fn write_vectored(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Result<usize, SessionError> {
        self.flush()?;
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            return Ok(0);
        }
        let sent = socket::send(socket, buffers);
        self.check(sent)
    }

    /// Every byte that was accepted is the kernel's.
    pub(crate) fn flush(&self) -> Result<(), SessionError> {
        if self.is_closed { Err(SessionError::Closed) } else { Ok(()) }
    }

    pub(crate) fn close(&mut self, socket: BorrowedFd<'_>) -> Result<(), SessionError> {
        self.flush()?;
        let sent = socket::send_record(socket, ALERT, &[WARNING, Alert::CLOSE_NOTIFY.0]);
        self.check(sent)?;
        self.is_closed = true;
        Ok(())
    }

    fn check(&mut self, sent: Result<usize, Error>) -> Result<usize, SessionError> {
        sent.map_err(|error| {
            let error = failure(&error);
            self.is_closed |= error != SessionError::WouldBlock;
            error
        })
    }
}

/// What a failed call means (Documentation/networking/tls.rst of Linux).
#[cold]
fn failure(error: &Error) -> SessionError {
    let protocol = |name, message| SessionError::Protocol { name, message };
    match error.raw_os_error() {
        Some(libc::EAGAIN) => SessionError::WouldBlock,
        Some(libc::EKEYEXPIRED) => SessionError::KeyUpdate,
        Some(libc::EBADMSG) => protocol("EBADMSG", "a record could not be decrypted"),
        Some(libc::EMSGSIZE) => protocol("EMSGSIZE", "a record is too long"),
        Some(libc::EINVAL) => protocol("EINVAL", "a record has a wrong header"),
        _ => SessionError::Io(error.kind()),
    }
}

/// The beginning of a record that is not application data.
struct Content {
    bytes: [u8; 2],
    len: usize,
}

impl Content {
    /// From the buffers into which `len` bytes were received.
    fn gather(buffers: &[IoSliceMut<'_>], len: usize) -> Self {
        let mut content = Self { bytes: [0; 2], len: len.min(2) };
        let received = buffers.iter().flat_map(|buffer| buffer.iter());
        for (to, from) in content.bytes.iter_mut().zip(received.take(len)) {
            *to = *from;
        }
        content
    }

    /// Receives the second byte if the buffers had room for one.
    fn complete(&mut self, socket: BorrowedFd<'_>) {
        if self.len == 1
            && let Ok((1, _)) = socket::receive(socket, &mut [IoSliceMut::new(&mut self.bytes[1..])])
        {
            self.len = 2;
        }
    }

    /// How a record of this type ends reading.
    fn meaning(&self, kind: u8) -> Result<(), SessionError> {
        let [first, second] = self.bytes;
        match kind {
            ALERT if self.len == 2 && second == Alert::CLOSE_NOTIFY.0 => Ok(()),
            ALERT if self.len == 2 => Err(SessionError::Alert(Alert(second))),
            HANDSHAKE if self.len > 0 && first == KEY_UPDATE => Err(SessionError::KeyUpdate),
            HANDSHAKE => {
                Err(SessionError::Protocol { name: "handshake", message: "a handshake message other than KeyUpdate" })
            }
            _ => Err(SessionError::Protocol { name: "content type", message: "a record of an unexpected type" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(kind: u8, content: &[&[u8]]) -> Result<(), SessionError> {
        let mut buffers: Vec<Vec<u8>> = content.iter().map(|part| part.to_vec()).collect();
        let slices: Vec<_> = buffers.iter_mut().map(|part| IoSliceMut::new(part)).collect();
        Content::gather(&slices, content.iter().map(|part| part.len()).sum()).meaning(kind)
    }

    #[test]
    fn records_that_are_not_data_end_the_session() {
        assert_eq!(meaning(ALERT, &[&[1, 0]]), Ok(()));
        assert_eq!(meaning(ALERT, &[&[1], &[], &[0]]), Ok(()));
        assert_eq!(meaning(ALERT, &[&[2, 20]]), Err(SessionError::Alert(Alert(20))));
        assert_eq!(meaning(HANDSHAKE, &[&[KEY_UPDATE, 0, 0, 1, 0]]), Err(SessionError::KeyUpdate));
        for (kind, content) in [(ALERT, &[2][..]), (HANDSHAKE, &[4, 0]), (HANDSHAKE, &[]), (20, &[1])] {
            assert!(matches!(meaning(kind, &[content]), Err(SessionError::Protocol { .. })), "{kind} {content:?}");
        }
    }
}
