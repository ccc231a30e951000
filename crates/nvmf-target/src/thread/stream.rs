//! The socket of a connection, with its TLS session if it has one.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use pilotlight_nvmf_proto::ids::PortId;
use pilotlight_tls::Session;

use crate::config::Security;
use crate::hosts::addresses::Pending;
use crate::hosts::admission::SessionMemory;

/// A socket, encrypted or not.
#[derive(Debug)]
pub struct Stream {
    /// The socket, nonblocking.
    pub fd: OwnedFd,
    /// The session on it.
    pub tls: Option<Box<Session>>,
}

impl From<OwnedFd> for Stream {
    /// Without TLS.
    fn from(fd: OwnedFd) -> Self {
        Self { fd, tls: None }
    }
}

/// An accepted connection, after its TLS handshake.
#[derive(Debug)]
pub struct Accepted {
    /// Its socket.
    pub stream: Stream,
    /// The host's address.
    pub peer: SocketAddr,
    /// When it was accepted, in nanoseconds of the reactors' clock: its time limit for ICReq begins then.
    pub accepted_ns: u64,
    /// Its listener.
    pub port: PortId,
    /// How connections of its listener are encrypted.
    pub security: Security,
    /// Its count among those that are not admitted yet.
    pub pending: Option<Pending>,
    /// The memory of its TLS session.
    pub session_memory: Option<SessionMemory>,
}
