//! Distributes connections round robin over the I/O threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use pilotlight_nvmf_proto::refusal_reason::RefusalReason;
use pilotlight_reactor::Sender;

use crate::shared::Shared;
use crate::thread::message::Message;
use crate::thread::stream::Accepted;

/// Distributes connections over the I/O threads.
pub struct Distributor {
    threads: Arc<[Sender<Message>]>,
    pub(crate) shared: Arc<Shared>,
    next: AtomicUsize,
}

impl Distributor {
    /// To `threads`.
    #[must_use]
    pub fn new(threads: Arc<[Sender<Message>]>, shared: Arc<Shared>) -> Self {
        Self { threads, shared, next: AtomicUsize::new(0) }
    }

    /// Passes a connection to the next I/O thread, and closes it if none takes it.
    pub(crate) fn distribute(&self, accepted: Accepted) {
        let peer = accepted.peer;
        let mut message = Message::Accept(accepted);
        for _ in 0..self.threads.len() {
            let thread = self.next.fetch_add(1, Relaxed) % self.threads.len();
            match self.threads[thread].send(message) {
                Ok(()) => return,
                Err(returned) => message = returned,
            }
        }
        self.shared.connection_closed();
        self.shared.hosts.refusals.note(RefusalReason::TooManyConnections);
        tracing::warn!(%peer, reason = "the inbox of every I/O thread is full", "connection refused");
    }
}
