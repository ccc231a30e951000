//! Accepts connections and distributes them round robin over the I/O threads.
//!
//! One OS thread waits in the kernel for all listeners, so that an idle server uses no CPU for it and reactors do not poll
//! listening sockets.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use pilotlight_reactor::Sender;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::message::Message;
use crate::refusals::RefusalReason;
use crate::shared::Shared;

/// A running acceptor. Dropping it stops accepting.
pub struct Acceptor {
    stop: Arc<OwnedFd>,
    join: Option<JoinHandle<()>>,
}

impl Acceptor {
    /// Accepts on `listeners` and distributes to `threads`.
    ///
    /// # Errors
    /// If no thread or descriptor is available.
    pub fn start(
        listeners: Vec<TcpListener>,
        threads: Arc<[Sender<Message>]>,
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        for listener in &listeners {
            listener.set_nonblocking(true)?;
        }
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let stopped = Arc::clone(&stop);
        let join = std::thread::Builder::new()
            .name("acceptor".into())
            .spawn(move || Distributor { threads, shared, next: 0 }.run(&listeners, &stopped))?;
        Ok(Self { stop, join: Some(join) })
    }

    /// Stops accepting and closes the listeners.
    pub fn stop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
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

struct Distributor {
    threads: Arc<[Sender<Message>]>,
    shared: Arc<Shared>,
    next: usize,
}

impl Distributor {
    fn run(&mut self, listeners: &[TcpListener], stop: &OwnedFd) {
        loop {
            let mut fds: Vec<PollFd> = listeners.iter().map(|l| PollFd::new(l, PollFlags::IN)).collect();
            fds.push(PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN));
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    return tracing::error!(%error, "poll failed; no more connections are accepted: restart the server");
                }
            }
            if fds.last().is_some_and(|fd| !fd.revents().is_empty()) {
                return;
            }
            for listener in listeners {
                self.accept_all(listener);
            }
        }
    }

    fn accept_all(&mut self, listener: &TcpListener) {
        loop {
            match listener.accept() {
                Ok((socket, peer)) => {
                    let ready = socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true));
                    if let Err(error) = ready {
                        let reason = "cannot configure its socket";
                        tracing::warn!(%peer, reason, %error, "connection refused");
                        continue;
                    }
                    self.distribute(socket.into(), peer);
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

    fn distribute(&mut self, socket: OwnedFd, peer: SocketAddr) {
        if !self.shared.connection_opened() {
            self.shared.refusals.note(RefusalReason::TooManyConnections);
            tracing::warn!(%peer, reason = "too many connections (limits.max_connections)", "connection refused");
            return;
        }
        let mut message = Message::Accept(socket, peer);
        for _ in 0..self.threads.len() {
            let thread = self.next % self.threads.len();
            self.next += 1;
            match self.threads[thread].send(message) {
                Ok(()) => return,
                Err(returned) => message = returned,
            }
        }
        self.shared.connection_closed();
        self.shared.refusals.note(RefusalReason::TooManyConnections);
        tracing::warn!(%peer, reason = "the inbox of every I/O thread is full", "connection refused");
    }
}
