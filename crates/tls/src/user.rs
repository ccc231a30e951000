//! A session whose records s2n-tls encrypts, in user space.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::task::Poll;

use s2n_tls::enums::PeerKeyUpdate;

use crate::error::SessionError;
use crate::wire::Wire;

/// Bytes that one write accepts at most.
pub const MAX_WRITE: usize = 4 * RECORD;
/// Maximum plaintext of a record (RFC 8446, section 5.1).
pub(crate) const RECORD: usize = 16 * 1024;
/// Header, content type and tag of a record with AES-GCM.
const RECORD_OVERHEAD: usize = 5 + 1 + 16;
/// Buffer in s2n-tls, so that one write is sent with one system call. With one record to spare, as it is flushed when less than a
/// whole record has room.
pub(crate) const SEND_BUFFER: u32 = (MAX_WRITE + RECORD + 5 * RECORD_OVERHEAD) as u32;
/// The most memory of a session in bytes, and of the server's side of a handshake without the client's key (`tests/memory.rs`): the buffer
/// of writes, that of s2n-tls for sending, one record and received bytes there.
pub const SESSION_BYTES: usize = MAX_WRITE + SEND_BUFFER as usize + 3 * RECORD;
/// Bytes beyond the caller's buffer that one read receives at most, for records without data.
const READ_SLACK: usize = 2 * RECORD;

/// The state of [`Session`](crate::Session) in user space, with the same methods.
#[derive(Debug)]
pub(crate) struct UserSession {
    wire: Wire,
    /// Accepted bytes that are not sent yet.
    stage: Box<[u8]>,
    staged: Range<usize>,
    /// The last read emptied the socket: what is buffered is the beginning of a record.
    is_read_blocked: bool,
    /// How reading ended: `Ok` by close_notify.
    end: Option<Result<(), SessionError>>,
    is_end_reported: bool,
    /// Nothing more can be written.
    is_closed: bool,
    /// Writes until the key changes; a limit on records would take hours to reach in a test with a peer.
    #[cfg(debug_assertions)]
    writes_left: Option<u32>,
}

impl UserSession {
    pub(crate) fn new(wire: Wire) -> Self {
        Self {
            wire,
            stage: vec![0; MAX_WRITE].into(),
            staged: 0..0,
            is_read_blocked: false,
            end: None,
            is_end_reported: false,
            is_closed: false,
            #[cfg(debug_assertions)]
            writes_left: std::env::var("PILOTLIGHT_TEST_TLS_WRITES").ok().and_then(|text| text.parse().ok()),
        }
    }

    pub(crate) fn has_buffered(&self) -> bool {
        let conn = self.wire.conn_ref();
        let has_end = self.end.is_some() && !self.is_end_reported;
        has_end || self.end.is_none() && !self.is_read_blocked && conn.peek_len() + conn.peek_buffered_len() > 0
    }

    pub(crate) fn wants_write(&self) -> bool {
        !self.staged.is_empty()
    }

    pub(crate) fn read_vectored(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Result<usize, SessionError> {
        let mut total = 0;
        self.is_read_blocked = false;
        for buffer in buffers {
            if self.end.is_some() {
                break;
            }
            let (bytes, end) = self.fill(socket, buffer);
            total += bytes;
            self.is_read_blocked = matches!(end, Some(Err(SessionError::WouldBlock)));
            match end {
                Some(Err(SessionError::WouldBlock)) if total == 0 => return Err(SessionError::WouldBlock),
                Some(Err(SessionError::WouldBlock)) => break,
                end => self.end = end,
            }
        }
        match &self.end {
            Some(end) if total == 0 => {
                self.is_end_reported = true;
                end.clone().map(|()| 0)
            }
            _ => Ok(total),
        }
    }

    /// Fills one buffer: bytes, and how reading ended if the buffer is not full; `Ok` after close_notify.
    fn fill(&mut self, socket: BorrowedFd<'_>, buffer: &mut [u8]) -> (usize, Option<Result<(), SessionError>>) {
        let (mut bytes, budget) = (0, buffer.len() + READ_SLACK);
        let polled = self.wire.with(socket, budget, |conn| {
            while bytes < buffer.len() {
                match conn.poll_recv(&mut buffer[bytes..]) {
                    Poll::Ready(Ok(0)) => return Some(Poll::Ready(Ok(()))),
                    Poll::Ready(Ok(received)) => bytes += received,
                    Poll::Ready(Err(error)) => return Some(Poll::Ready(Err(error))),
                    Poll::Pending => return Some(Poll::Pending),
                }
            }
            None
        });
        let end = polled.map(|polled| match polled {
            Poll::Pending => Err(SessionError::WouldBlock),
            Poll::Ready(result) => result.map_err(|error| self.fail(error)),
        });
        (bytes, end)
    }

    pub(crate) fn write_vectored(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Result<usize, SessionError> {
        self.flush(socket)?;
        let Some(first) = buffers.iter().find(|buffer| !buffer.is_empty()) else { return Ok(0) };
        if first.len() >= RECORD {
            return self.write_direct(socket, &first[..first.len().min(MAX_WRITE)]);
        }
        #[cfg(debug_assertions)]
        if let Some(left) = self.writes_left.as_mut() {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.writes_left = None;
                self.update_key()?;
            }
        }
        let mut len = 0;
        for buffer in buffers {
            let bytes = buffer.len().min(MAX_WRITE - len);
            self.stage[len..len + bytes].copy_from_slice(&buffer[..bytes]);
            len += bytes;
        }
        self.staged = 0..len;
        match self.flush(socket) {
            Ok(()) | Err(SessionError::WouldBlock) => Ok(len),
            Err(error) => Err(error),
        }
    }

    /// Sends without a copy; what the socket does not take is kept, as s2n-tls must get the same bytes again.
    fn write_direct(&mut self, socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, SessionError> {
        let sent = match self.wire.with(socket, 0, |conn| conn.poll_send(bytes)) {
            Poll::Ready(Ok(sent)) => sent,
            Poll::Ready(Err(error)) => return Err(self.fail(error)),
            Poll::Pending => 0,
        };
        let rest = &bytes[sent..];
        self.stage[..rest.len()].copy_from_slice(rest);
        self.staged = 0..rest.len();
        Ok(bytes.len())
    }

    pub(crate) fn flush(&mut self, socket: BorrowedFd<'_>) -> Result<(), SessionError> {
        if self.is_closed {
            return Err(SessionError::Closed);
        }
        while !self.staged.is_empty() {
            let bytes = &self.stage[self.staged.clone()];
            match self.wire.with(socket, 0, |conn| conn.poll_send(bytes)) {
                Poll::Ready(Ok(sent)) => self.staged.start += sent,
                Poll::Ready(Err(error)) => return Err(self.fail(error)),
                Poll::Pending => return Err(SessionError::WouldBlock),
            }
        }
        Ok(())
    }

    pub(crate) fn close(&mut self, socket: BorrowedFd<'_>) -> Result<(), SessionError> {
        self.flush(socket)?;
        match self.wire.with(socket, 0, |conn| conn.poll_shutdown_send().map_ok(drop)) {
            Poll::Ready(Ok(())) => {
                self.is_closed = true;
                Ok(())
            }
            Poll::Ready(Err(error)) => Err(self.fail(error)),
            Poll::Pending => Err(SessionError::WouldBlock),
        }
    }

    pub(crate) fn update_key(&mut self) -> Result<(), SessionError> {
        match self.wire.conn().request_key_update(PeerKeyUpdate::KeyUpdateNotRequested) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.fail(error)),
        }
    }

    #[cold]
    fn fail(&mut self, error: s2n_tls::error::Error) -> SessionError {
        self.is_closed = true;
        self.staged = 0..0;
        SessionError::new(error, &self.wire)
    }
}
