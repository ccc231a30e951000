//! The end of an I/O thread.
//!
//! # The problem
//! An ending thread may have requests in backends, whose device or threads still access their buffers. Such a request cannot
//! be cancelled, and may never complete.
//!
//! # The algorithm
//! A drained thread passes its channels to the reaper and is dropped with nothing left. One that is dropped earlier closes
//! its connections and waits for its backends, within the server's time limit. Remaining requests are abandoned: channels
//! and connection state are leaked, and the buffer pool leaves its memory mapped.

use pilotlight_reactor::clock::now_ns;

use super::TargetThread;
use super::socket::{Resources, Socket};

/// Time limit for backends if the server is dropped without a stop, in nanoseconds: the default of a stop.
const BACKEND_TIMEOUT_NS: u64 = 10_000_000_000;

impl Resources {
    /// Passes every idle channel to the reaper; returns whether no channel is left.
    pub(super) fn retire_channels(&mut self) -> bool {
        self.namespaces.retire_all(&self.shared.reaper)
    }
}

impl TargetThread {
    /// Number of connections with work in progress that a draining server waits for.
    fn count_unfinished(&mut self) -> usize {
        let is_unfinished =
            |socket: &mut Socket| socket.fd.is_some() && (socket.conn.blocked || !socket.conn.pair.is_idle());
        self.sockets.iter_mut().flatten().map(|socket| usize::from(is_unfinished(socket))).sum()
    }

    fn await_backends(&mut self, since_ns: u64) {
        while self.resources.namespaces.in_flight() > 0 && !self.resources.shared.stop_state.has_expired() {
            let now_ns = now_ns();
            if now_ns.saturating_sub(since_ns) > BACKEND_TIMEOUT_NS {
                return;
            }
            self.poll_backends(now_ns);
            std::thread::yield_now();
        }
    }
}

impl Drop for TargetThread {
    /// Ends every connection, waits a bounded time for the backends, and abandons remaining requests.
    fn drop(&mut self) {
        let began_ns = now_ns();
        let unfinished = self.count_unfinished();
        self.each(began_ns, |socket, cx| socket.conn.pair.lost(cx));
        self.await_backends(began_ns);
        self.resources.retire_channels();
        let abandoned = self.resources.namespaces.abandon();
        self.resources.tasks.abandon();
        for socket in self.sockets.iter_mut().filter_map(Option::take) {
            if socket.conn.pair.is_in_backend() {
                Box::leak(socket); // its slots hold buffers
            }
        }
        self.resources.shared.stop_state.note(unfinished, &abandoned);
    }
}
