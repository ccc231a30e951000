//! The HTTP server of metrics and of the page, on a separate thread that avoids the CPUs of reactors.
//!
//! Limits: concurrent connections (`places.rs`), the time to receive the head of a request, and the time without progress on a connection.
//! Each connection has its own router, made by the service.

mod places;

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use futures_util::future::{Either, select};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use pilotlight_reactor::keep_off;
use rustix::net::sockopt::socket_peercred;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tracing::{debug, warn};

use crate::admin::listener::owner_at;
use crate::admin::socket::ControlSocket;
use places::Places;
pub(crate) use places::Progress;

/// Timeout for the head of a request.
const HEAD: Duration = Duration::from_secs(10);
/// Default time without progress after which a connection is closed.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay after a failed accept, for example without free descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum of buffered bytes of a connection in each direction.
const BUFFER: usize = 64 * 1024;
/// Threads for blocking work: one samples, one answers.
const WAITING: usize = 2;

/// The source of connections.
pub(crate) enum Listener {
    Tcp(TcpListener),
    /// A socket of this user.
    Unix(ControlSocket),
}

/// A connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// The peer: an address, or a user.
    pub(crate) name: Arc<str>,
    /// The same for all connections of one address (without its port; all loopback addresses are one), or of one user.
    pub(crate) source: Arc<str>,
    /// The local address is a loopback address.
    pub(crate) is_local: bool,
    /// Counts requests, and the sent parts of a long response.
    pub(crate) progress: Progress,
}

/// A thread that serves until this is dropped.
pub(crate) struct Http {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A service.
pub(crate) struct Service<R, B> {
    /// Name of the thread and in the log.
    pub(crate) name: &'static str,
    /// Maximum of concurrent connections.
    pub(crate) connections: usize,
    /// Idle timeout of a connection.
    pub(crate) idle_timeout: Duration,
    /// Makes the router of a connection.
    pub(crate) router: R,
    /// A task that runs in the same thread.
    pub(crate) beside: B,
}

impl Http {
    /// Serves connections to `listener`, if possible not on these CPUs.
    ///
    /// # Errors
    /// If the system cannot create a thread or an epoll instance.
    pub(crate) fn start<R, B>(listener: Listener, service: Service<R, B>, reactors: &[Option<u32>]) -> io::Result<Self>
    where
        R: Fn(Peer) -> Router + Send + 'static,
        B: Future<Output = ()> + Send + 'static,
    {
        if let Listener::Tcp(listener) = &listener {
            listener.set_nonblocking(true)?;
        }
        let cpus: Vec<u32> = reactors.iter().flatten().copied().collect();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.max_blocking_threads(WAITING).thread_name(service.name).enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name(service.name.to_owned()).spawn(move || {
            keep_off(&cpus); // threads that this one starts inherit it
            let Service { beside, .. } = service;
            let accepting =
                Accepting { name: service.name, router: service.router, idle_timeout: service.idle_timeout };
            runtime.block_on(async move {
                let beside = tokio::spawn(beside);
                let accepting = pin!(accepting.run(listener, service.connections));
                if let Either::Left((Err(error), stopped)) = select(accepting, stopped).await {
                    warn!("{}: nothing is served: {error}", service.name);
                    let _ = stopped.await;
                }
                beside.abort();
            });
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The listening socket.
struct Accepting<R> {
    name: &'static str,
    router: R,
    idle_timeout: Duration,
}

impl<R: Fn(Peer) -> Router> Accepting<R> {
    async fn run(&self, listener: Listener, connections: usize) -> io::Result<()> {
        let mut places = Places::new(connections);
        match listener {
            Listener::Tcp(listener) => {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                loop {
                    let Some((stream, peer)) = self.taken(listener.accept().await).await else { continue };
                    let is_local = stream.local_addr().is_ok_and(|address| address.ip().is_loopback());
                    self.serve(stream, &mut places, peer.to_string().into(), source(peer.ip()), is_local);
                }
            }
            Listener::Unix(socket) => {
                let listener = std::os::unix::net::UnixListener::from(socket.as_fd().try_clone_to_owned()?);
                let listener = tokio::net::UnixListener::from_std(listener)?;
                loop {
                    let Some((stream, _)) = self.taken(listener.accept().await).await else { continue };
                    let name: Arc<str> = user_at(stream.as_fd()).into();
                    if owner_at(stream.as_fd()).is_none() {
                        warn!(
                            peer = &*name,
                            reason = "the socket is another user's",
                            "{} connection refused",
                            self.name
                        );
                        continue;
                    }
                    self.serve(stream, &mut places, Arc::clone(&name), name, true);
                }
            }
        }
    }

    /// Accepts a connection. After a failure it waits, because without descriptors the next accept would fail immediately.
    async fn taken<T>(&self, accepted: io::Result<T>) -> Option<T> {
        match accepted {
            Ok(accepted) => Some(accepted),
            Err(error) => {
                debug!("{}: {error}", self.name);
                tokio::time::sleep(PAUSE).await;
                None
            }
        }
    }

    /// Serves a connection, for which another one may have to end.
    fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        places: &mut Places,
        name: Arc<str>,
        source: Arc<str>,
        is_local: bool,
    ) {
        if let Some(ended) = places.make_room(&source) {
            warn!(peer = &*ended.name, reason = "too many connections", "{} connection closed", self.name);
        }
        let peer = Peer { name, source, is_local, progress: places.progress() };
        let router = (self.router)(peer.clone()).layer(from_fn_with_state(peer.progress.clone(), counted));
        let Peer { name, source, progress, .. } = peer.clone();
        let (service, idle_timeout) = (self.name, self.idle_timeout);
        let task = tokio::spawn(async move { serve(stream, service, &peer, router, idle_timeout).await });
        places.add(name, source, progress, task.abort_handle());
    }
}

/// Counts a request when it arrives and when its response begins: a persistent connection is in use.
async fn counted(State(progress): State<Progress>, request: Request, next: Next) -> Response {
    progress.note();
    let response = next.run(request).await;
    progress.note();
    response
}

/// The peer of a Unix socket.
fn user_at(stream: BorrowedFd<'_>) -> String {
    socket_peercred(stream).map_or_else(
        |_| "unix socket, uid unknown".to_owned(),
        |peer| format!("unix socket, uid {}", peer.uid.as_raw()),
    )
}

/// Properties of connections of one address; of an IPv6 host, which has as many as it likes, the network of 64 bits.
fn source(address: IpAddr) -> Arc<str> {
    match address.to_canonical() {
        address if address.is_loopback() => "loopback".into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !0 << 64).to_string().into(),
        address => address.to_string().into(),
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    name: &str,
    peer: &Peer,
    router: Router,
    idle_timeout: Duration,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let mut before = peer.progress.last();
    loop {
        match tokio::time::timeout(idle_timeout, connection.as_mut()).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => return debug!(peer = %peer.name, "{name}: {error}"),
            Err(_) if peer.progress.last() == before => {
                return debug!(peer = %peer.name, "{name}: a connection that made no progress is closed");
            }
            Err(_) => before = peer.progress.last(),
        }
    }
}

/// The name in a `Host`, without its port.
pub(crate) fn name_in(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

/// Whether a `Host` is an address or `localhost`, with or without a port. A page of another name cannot send one of these, whatever its
/// name resolves to (DNS rebinding).
pub(crate) fn is_this_machine(host: &str) -> bool {
    let name = name_in(host);
    name.eq_ignore_ascii_case("localhost") || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests;
