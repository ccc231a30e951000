//! Accepting connections and dealing them round robin over the I/O threads.
//!
//! One OS thread waits in the kernel for all listeners, so that an idle server spends nothing on it and the reactors
//! never look at a listening socket.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use pilotlight_reactor::Sender;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::message::Message;
use crate::refusals::RefusalReason;
use crate::server::Shared;

/// A running acceptor; dropped, it stops accepting.
pub struct Acceptor {
    stop: Arc<OwnedFd>,
    join: Option<JoinHandle<()>>,
}

impl Acceptor {
    /// Accepts on `listeners` and deals to `threads`.
    ///
    /// # Errors
    /// If the system has no thread or descriptor left.
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
            .spawn(move || Dealer { threads, shared, next: 0 }.run(&listeners, &stopped))?;
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

struct Dealer {
    threads: Arc<[Sender<Message>]>,
    shared: Arc<Shared>,
    next: usize,
}

impl Dealer {
    fn run(&mut self, listeners: &[TcpListener], stop: &OwnedFd) {
        loop {
            let mut fds: Vec<PollFd> = listeners.iter().map(|l| PollFd::new(l, PollFlags::IN)).collect();
            fds.push(PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN));
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return tracing::error!(%error, "cannot wait for connections any more"),
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
                        let reason = "its socket cannot be set up";
                        tracing::warn!(%peer, reason, %error, "connection refused");
                        continue;
                    }
                    self.deal(socket.into(), peer);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    // Out of descriptors, most likely: what waits in the backlog is tried again in a moment.
                    tracing::warn!(%error, "cannot accept a connection; raise the limit on open files (ulimit -n)");
                    std::thread::sleep(std::time::Duration::from_millis(10));
                    return;
                }
            }
        }
    }

    fn deal(&mut self, socket: OwnedFd, peer: SocketAddr) {
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
                Err(back) => message = back,
            }
        }
        self.shared.connection_closed();
        self.shared.refusals.note(RefusalReason::TooManyConnections);
        tracing::warn!(%peer, reason = "every I/O thread is behind", "connection refused");
    }
}
