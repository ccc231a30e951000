//! Accepts connections, and passes them to the distributor, those with TLS after their handshake
//! ([`crate::server::handshakes`]).
//!
//! One OS thread waits in the kernel for all listeners, so that an idle server uses no CPU for it and reactors do not poll
//! listening sockets.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use pilotlight_nvmf_proto::ids::PortId;
use pilotlight_nvmf_proto::refusal_reason::RefusalReason;
use pilotlight_nvmf_proto::subsystems::discovery::Endpoint;
use pilotlight_reactor::clock::now_ns;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use crate::config::{Security, ServerConfig};
use crate::server::distributor::Distributor;
use crate::server::handshakes::Handshakes;
use crate::thread::stream::Accepted;

/// Listen backlog; the kernel limits it to `net.core.somaxconn`. With the 128 of the standard library the kernel drops connection
/// attempts of many hosts at once, and they retry after a second.
const BACKLOG: i32 = 4096;

/// A socket bound as that of a listener, without listening; `is_v6_only`: leaves the IPv4 connections of `[::]` to other listeners.
///
/// # Errors
/// The system's.
pub fn bind(address: SocketAddr, is_v6_only: bool) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if is_v6_only {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

/// A configured address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// The address; port 0 takes any free port.
    pub(crate) address: SocketAddr,
    /// It is `[::]` without connections over IPv4.
    pub(crate) is_v6_only: bool,
    /// How its connections are encrypted.
    pub(crate) security: Security,
    /// It is for the discovery service, and not in the discovery log, which would list each subsystem twice.
    pub(crate) is_for_discovery: bool,
}

impl Address {
    /// All addresses of a configuration.
    pub(crate) fn all(config: &ServerConfig) -> Vec<Self> {
        let discovery = config.discovery_listeners();
        let of = |is_for_discovery| {
            move |(address, security)| Self {
                address,
                is_v6_only: config.is_v6_only(address),
                security,
                is_for_discovery,
            }
        };
        config.listeners_with_security().map(of(false)).chain(discovery.into_iter().map(of(true))).collect()
    }
}

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    /// Its identity.
    pub(crate) id: PortId,
    /// What is configured.
    pub(crate) configured: Address,
}

impl Listener {
    /// Listens on `configured`.
    ///
    /// # Errors
    /// As of [`bind`].
    pub(crate) fn open(configured: Address, id: PortId) -> io::Result<Self> {
        let socket = TcpListener::from(bind(configured.address, configured.is_v6_only)?);
        rustix::net::listen(&socket, BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, id, configured })
    }

    /// Its address.
    pub(crate) fn endpoint(&self) -> io::Result<Endpoint> {
        let address = self.socket.local_addr()?;
        let is_v6_only = address.is_ipv6() && sockopt::ipv6_v6only(&self.socket)?;
        Ok(Endpoint { id: self.id, address, security: self.configured.security, is_v6_only })
    }
}

/// The endpoints of these listeners: those in the discovery log, and those for the discovery service alone.
///
/// # Errors
/// The system's.
pub(crate) fn endpoints(listeners: &[Arc<Listener>]) -> io::Result<(Vec<Endpoint>, Vec<Endpoint>)> {
    let (mut listed, mut discovery) = (Vec::new(), Vec::new());
    for listener in listeners {
        let to = if listener.configured.is_for_discovery { &mut discovery } else { &mut listed };
        to.push(listener.endpoint()?);
    }
    Ok((listed, discovery))
}

/// A running acceptor. Dropping it stops accepting.
pub struct Acceptor {
    orders: Sender<Order>,
    wake: Arc<OwnedFd>,
    /// Takes connections with TLS; set before the first listener that has any.
    pub(crate) handshakes: Arc<OnceLock<Arc<Handshakes>>>,
    join: Option<JoinHandle<()>>,
}

/// Accept on these listeners alone from now on, or for none stop; the sender is dropped when that holds.
type Order = (Option<Vec<Arc<Listener>>>, Sender<()>);

impl Acceptor {
    /// Starts without listeners.
    ///
    /// # Errors
    /// If no thread or descriptor is available.
    pub fn start(distributor: Arc<Distributor>) -> io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (orders, ordered) = channel();
        let handshakes = Arc::default();
        let accepting =
            Accepting { distributor, handshakes: Arc::clone(&handshakes), orders: ordered, wake: Arc::clone(&wake) };
        let join = std::thread::Builder::new().name("acceptor".into()).spawn(move || accepting.run())?;
        Ok(Self { orders, wake, handshakes, join: Some(join) })
    }

    /// Accepts on these listeners alone; returns when no other is used any more.
    pub(crate) fn set(&self, listeners: Vec<Arc<Listener>>) {
        self.order(Some(listeners));
    }

    fn order(&self, listeners: Option<Vec<Arc<Listener>>>) {
        let (holds, held) = channel();
        if self.orders.send((listeners, holds)).is_ok() {
            let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
            let _ = held.recv(); // it ends with the thread at the latest
        }
    }

    /// Stops accepting and closes the listeners.
    pub fn stop(&mut self) {
        self.order(None);
        if let Some(join) = self.join.take() {
            let _ = join.join();
        }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Silence after which the kernel probes a peer.
const PROBE_AFTER: Duration = Duration::from_secs(60);
/// Time between probes.
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// Unanswered probes after which the connection is lost.
const PROBES: u32 = 6;

/// Configures an accepted socket. TCP keep-alive ends connections of hosts that have vanished without a keep-alive timeout of NVMe.
fn configure(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    sockopt::set_tcp_keepidle(socket, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(socket, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(socket, PROBES)?;
    sockopt::set_socket_keepalive(socket, true)?;
    Ok(())
}

/// The acceptor's thread.
struct Accepting {
    distributor: Arc<Distributor>,
    handshakes: Arc<OnceLock<Arc<Handshakes>>>,
    orders: Receiver<Order>,
    wake: Arc<OwnedFd>,
}

impl Accepting {
    fn run(&self) {
        let mut listeners: Vec<Arc<Listener>> = Vec::new();
        loop {
            let mut fds: Vec<PollFd> = listeners.iter().map(|l| PollFd::new(&l.socket, PollFlags::IN)).collect();
            fds.push(PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN));
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    return tracing::error!(%error, "poll failed; no more connections are accepted: restart the server");
                }
            }
            let _ = rustix::io::read(&*self.wake, &mut [0u8; 8]);
            while let Ok((order, _holds)) = self.orders.try_recv() {
                let Some(next) = order else { return };
                listeners = next;
            }
            for listener in &listeners {
                self.accept_all(listener);
            }
        }
    }

    fn accept_all(&self, listener: &Listener) {
        loop {
            match listener.socket.accept() {
                Ok((socket, peer)) => {
                    if let Err(error) = configure(&socket) {
                        let reason = "cannot configure its socket";
                        tracing::warn!(%peer, reason, %error, "connection refused");
                        continue;
                    }
                    self.pass_on(socket.into(), peer, listener);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    // Probably out of descriptors: retry the backlog after a moment.
                    tracing::warn!(%error, "cannot accept a connection; raise the limit on open files (ulimit -n)");
                    std::thread::sleep(std::time::Duration::from_millis(10));
                    return;
                }
            }
        }
    }

    fn pass_on(&self, socket: OwnedFd, peer: SocketAddr, listener: &Listener) {
        let shared = &self.distributor.shared;
        if !shared.connection_opened() {
            shared.hosts.refusals.note(RefusalReason::TooManyConnections);
            tracing::warn!(%peer, reason = "too many connections (limits.max_connections)", "connection refused");
            return;
        }
        let pending = shared.hosts.addresses.enter(peer.ip());
        if pending.is_none() {
            shared.connection_closed();
            shared.hosts.refusals.note(RefusalReason::TooManyPending);
            let reason =
                "too many connections that are not admitted yet (limits.max_address_pending, limits.max_pending)";
            tracing::warn!(%peer, reason, "connection refused");
            return;
        }
        let (stream, accepted_ns, session_memory) = (socket.into(), now_ns(), None);
        let (port, security) = (listener.id, listener.configured.security);
        let accepted = Accepted { stream, peer, accepted_ns, port, security, pending, session_memory };
        match self.handshakes.get().filter(|_| security != Security::Plain) {
            Some(handshakes) => handshakes.begin(accepted),
            None => self.distributor.distribute(accepted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_wildcards_can_have_one_port() {
        let listen = |address, is_v6_only| {
            let configured = Address { address, is_v6_only, security: Security::Plain, is_for_discovery: false };
            Listener::open(configured, PortId(1))
        };
        let both = |_| {
            let v6 = listen("[::]:0".parse().expect("an address"), true).ok()?.endpoint().expect("open");
            let v6 = listen(v6.address, true).ok()?;
            let v4 = listen(SocketAddr::from(([0; 4], v6.endpoint().expect("open").address.port())), false).ok()?;
            Some([v6, v4].map(|listener| listener.endpoint().expect("open").is_v6_only))
        };
        if std::net::TcpListener::bind("[::]:0").is_err() {
            return eprintln!("SKIPPED: this machine has no IPv6");
        }
        // another process may have the port
        assert_eq!((0..100).find_map(both), Some([true, false]));
    }

    #[test]
    fn the_kernel_probes_silent_peers() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let _host = TcpStream::connect(listener.local_addr().expect("its address")).expect("a connection");
        let (socket, _) = listener.accept().expect("the connection");
        configure(&socket).expect("a configured socket");
        assert!(sockopt::socket_keepalive(&socket).expect("SO_KEEPALIVE"));
        let idle = sockopt::tcp_keepidle(&socket).expect("TCP_KEEPIDLE");
        let interval = sockopt::tcp_keepintvl(&socket).expect("TCP_KEEPINTVL");
        let probes = sockopt::tcp_keepcnt(&socket).expect("TCP_KEEPCNT");
        assert_eq!(idle + interval * probes, Duration::from_secs(120));
    }
}
