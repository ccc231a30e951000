//! For tests of a target: small sockets, PDUs in pieces, new TLS keys, another authentication.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pilotlight_auth::Config;
use pilotlight_auth::tls::RetainedPsk;
use pilotlight_tls::ClientConfig;

use super::{Connection, Handshake, Sizes, unreachable_target};
use crate::authenticate::authenticate;
use crate::error::HostError;
use crate::socket_limits::{Pieces, SocketLimits};
use crate::transmit::MAX_SLICES;

impl Connection {
    /// Like [`Connection::open`], with limits of the socket; `seed` is for the random lengths of pieces.
    ///
    /// # Errors
    /// As [`Connection::open`], and if the system refuses the size of a buffer.
    pub fn open_limited(
        addr: SocketAddr,
        tls: Option<&ClientConfig>,
        (socket_limits, seed): (&SocketLimits, u64),
        handshake: &Handshake,
        sizes: &Sizes,
    ) -> Result<Self, HostError> {
        let timeout = Duration::from_millis(sizes.timeout_ms);
        let stream = socket_limits.connect(addr, timeout).map_err(|e| unreachable_target(addr, e))?;
        let pieces = socket_limits.piece.map(|most| Pieces::new(most, seed));
        Ok(Self { pieces, ..Self::over(stream, tls, handshake, sizes)? })
    }

    /// Sends the next piece of pending PDUs ([`SocketLimits::piece`]).
    pub(super) fn send_piece(&mut self) -> Result<(), HostError> {
        let Some(pieces) = &mut self.pieces else { return Ok(()) };
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let n = self.queue.transmit.piece(&self.queue.arena, pieces.next_len(), &mut slices);
        if let Some(sent) = self.link.send(&slices[..n])? {
            self.queue.transmit.consume(sent);
        }
        Ok(())
    }

    /// Uses other TLS keys for what is sent from now on.
    ///
    /// # Errors
    /// The session has failed.
    pub fn update_key(&mut self) -> Result<(), HostError> {
        self.link.update_key()
    }

    /// Authenticates an authenticated queue again.
    ///
    /// # Errors
    /// The target refuses it.
    pub fn authenticate(&mut self, config: &Arc<Config>, t_id: u16) -> Result<Option<RetainedPsk>, HostError> {
        authenticate(self, config, t_id)
    }
}
