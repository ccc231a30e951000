//! A bad way to the target: small socket buffers, and PDUs that come in pieces. For tests of how a target copes.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::rng::Rng;

/// What is narrow about a connection; by default nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Narrow {
    /// Bytes of the socket's send buffer (`SO_SNDBUF`); `None` leaves it to the system, which has a least.
    pub send_buffer: Option<u32>,
    /// Bytes of the socket's receive buffer (`SO_RCVBUF`): how much the target can send ahead.
    pub receive_buffer: Option<u32>,
    /// Most bytes of a TCP segment (`TCP_MAXSEG`). Over loopback segments are 64 KiB long, and a receive buffer that holds
    /// less than one is filled by timers only.
    pub segment: Option<u32>,
    /// Most bytes handed to the socket at once, each time a number at random up to this; `None` for all there is.
    pub piece: Option<u32>,
}

impl Narrow {
    /// Connects to `addr`.
    pub(crate) fn connect(&self, addr: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        self.send_buffer.map_or(Ok(()), |bytes| socket.set_send_buffer_size(bytes as usize))?;
        self.receive_buffer.map_or(Ok(()), |bytes| socket.set_recv_buffer_size(bytes as usize))?;
        self.segment.map_or(Ok(()), |bytes| socket.set_tcp_mss(bytes))?;
        socket.connect_timeout(&addr.into(), timeout)?;
        Ok(socket.into())
    }
}

/// Lengths of the pieces that are sent.
#[derive(Debug)]
pub(crate) struct Pieces {
    most: u64,
    rng: Rng,
}

impl Pieces {
    pub(crate) fn new(most: u32, seed: u64) -> Self {
        Self { most: u64::from(most.max(1)), rng: Rng::new(seed) }
    }

    /// Bytes of the next piece.
    pub(crate) fn next_len(&mut self) -> usize {
        1 + self.rng.below(self.most) as usize
    }
}
