//! Small socket buffers and segments, and PDUs sent in pieces, for tests of a target.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::rng::Rng;

/// Limits of a connection's socket; by default none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketLimits {
    /// Bytes of the socket's send buffer (`SO_SNDBUF`); `None` for the system's default.
    pub send_buffer: Option<u32>,
    /// Bytes of the socket's receive buffer (`SO_RCVBUF`).
    pub receive_buffer: Option<u32>,
    /// Most bytes of a TCP segment (`TCP_MAXSEG`). Loopback segments have 64 KiB; a smaller receive buffer is filled by
    /// timers only.
    pub segment: Option<u32>,
    /// Most bytes of a `sendmsg`, each time a random number up to this; `None` for no limit.
    pub piece: Option<u32>,
}

impl SocketLimits {
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

/// Random lengths of pieces.
#[derive(Debug)]
pub(crate) struct Pieces {
    max_len: u64,
    rng: Rng,
}

impl Pieces {
    pub(crate) fn new(max_len: u32, seed: u64) -> Self {
        Self { max_len: u64::from(max_len.max(1)), rng: Rng::new(seed) }
    }

    pub(crate) fn next_len(&mut self) -> usize {
        1 + self.rng.below(self.max_len) as usize
    }
}
