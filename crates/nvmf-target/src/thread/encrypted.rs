//! Reads and sends of a connection with TLS.
//!
//! A session holds bytes of its own: decrypted or received ones, which epoll does not signal, so that the connection is listed for the
//! next poll while it [has some](Socket::has_buffered); and accepted ones that the socket has not taken, so that the socket is watched
//! for space while there are some.

use std::io::IoSliceMut;

use pilotlight_nvmf_proto::services::NamespaceTable as _;
use pilotlight_tls::SessionError;
use rustix::event::epoll;
use rustix::io::Errno;

use super::socket::{Resources, Socket, readable, receive_error};

/// The error of a socket in place of a session's. A host that goes away is no news, as without TLS; Linux leaves without close_notify.
#[cold]
fn errno(error: &SessionError, socket: &Socket) -> Errno {
    let peer = socket.conn.pair.peer();
    match error {
        SessionError::WouldBlock => return Errno::AGAIN,
        SessionError::Truncated | SessionError::Closed | SessionError::Io(_) => {
            tracing::debug!(%peer, reason = %error, "TLS connection ended");
        }
        error => {
            let host = socket.conn.pair.host().map(|host| host.hostnqn.as_str());
            tracing::warn!(host, %peer, reason = %error, "TLS connection lost");
        }
    }
    Errno::CONNRESET
}

impl Socket {
    /// Reads once and handles the bytes; returns whether there were any.
    #[cold]
    #[inline(never)]
    pub(super) fn read_encrypted(&mut self, res: &mut Resources, now_ns: u64) -> bool {
        let (Some(fd), Some(session), Some(room)) = (&self.fd, &mut self.tls, res.room()) else { return false };
        let mut scratch = std::mem::take(&mut res.scratch);
        let kept = self.conn.take_kept(&mut scratch);
        let mut in_place = 0;
        let received = match self.conn.body_target().filter(|_| kept == 0) {
            Some(target) => {
                in_place = target.len();
                session.read_vectored(fd, &mut [IoSliceMut::new(target), IoSliceMut::new(&mut scratch[..room])])
            }
            None => session.read(fd, &mut scratch[kept..room]),
        };
        let received = received.map_err(|error| errno(&error, self));
        self.conn.on_received_encrypted(
            received.map_err(receive_error),
            in_place,
            (&scratch, kept),
            &mut res.cx(now_ns, self.address),
        );
        res.scratch = scratch;
        received != Err(Errno::AGAIN)
    }

    /// Sends queued responses until all are sent or the socket blocks.
    #[cold]
    #[inline(never)]
    pub(super) fn flush_encrypted(&mut self, res: &mut Resources, now_ns: u64) {
        match self.send_all(res, now_ns) {
            Ok(()) if self.conn.blocked => {
                self.conn.blocked = false;
                self.watch(res, readable());
            }
            Ok(()) => {}
            Err(SessionError::WouldBlock) => {
                self.conn.blocked = true;
                self.watch(res, readable() | epoll::EventFlags::OUT);
            }
            Err(error) => {
                errno(&error, self);
                self.conn.pair.lost(&mut res.cx(now_ns, self.address));
            }
        }
    }

    /// Sends queued responses, and then the announcement of the end if the connection is closing.
    fn send_all(&mut self, res: &mut Resources, now_ns: u64) -> Result<(), SessionError> {
        let (Some(fd), Some(session)) = (&self.fd, &mut self.tls) else { return Ok(()) };
        if self.shut {
            return Ok(());
        }
        while !self.conn.pair.transport.tx.is_empty() {
            let tx = &self.conn.pair.transport.tx;
            let bytes = tx.gather(res.namespaces.loans(), |slices| session.write_vectored(fd, slices))?;
            self.conn.on_sent(bytes, &mut res.cx(now_ns, self.address));
        }
        session.flush(fd)?;
        if self.conn.pair.is_closing() {
            session.close(fd)?;
            self.shut = true;
            let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Write);
        }
        Ok(())
    }
}
