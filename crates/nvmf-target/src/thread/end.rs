//! The end of an I/O thread.
//!
//! # The problem
//! A thread that ends may have requests in backends: the device, or a thread of the backend's own, still reads and writes
//! their buffers. Nobody can take such a request back, and it may never return.
//!
//! # The algorithm
//! A thread that has drained hands its channels to the reaper and is dropped with nothing left. One that is dropped earlier
//! cuts its connections and waits for its backends, but no longer than the server does. What is still out then is
//! abandoned: channels are not closed, the connections' state is forgotten, and the buffer pool, having buffers out, leaves
//! its memory mapped.

use pilotlight_reactor::clock::now_ns;

use super::TargetThread;
use super::link::{Link, Resources};

/// How long a thread waits for its backends if the server is dropped without a stop, in nanoseconds: as long as a stop
/// does by default.
const PATIENCE_NS: u64 = 10_000_000_000;

impl Resources {
    /// Hands every idle channel to the reaper; returns whether no channel is left.
    pub(super) fn retire_channels(&mut self) -> bool {
        self.namespaces.retire_all(&self.shared.reaper)
    }
}

impl TargetThread {
    /// Connections with something in progress that a draining server waits for.
    fn cut_connections(&mut self) -> usize {
        let cut = |link: &mut Link| link.socket.is_some() && !link.conn.pair.is_idle();
        self.links.iter_mut().flatten().map(|link| usize::from(cut(link))).sum()
    }

    fn await_backends(&mut self, since_ns: u64) {
        while self.resources.namespaces.in_flight() > 0 && !self.resources.shared.ending.has_given_up() {
            let now_ns = now_ns();
            if now_ns.saturating_sub(since_ns) > PATIENCE_NS {
                return;
            }
            self.poll_backends(now_ns);
            std::thread::yield_now();
        }
    }
}

impl Drop for TargetThread {
    /// Ends every connection, waits a bounded time for the backends, and abandons what they have not returned.
    fn drop(&mut self) {
        let began_ns = now_ns();
        let cut = self.cut_connections();
        self.each(began_ns, |link, cx| link.conn.pair.lost(cx));
        self.await_backends(began_ns);
        self.resources.retire_channels();
        let abandoned = self.resources.namespaces.abandon();
        self.resources.tasks.abandon();
        for link in self.links.iter_mut().filter_map(Option::take) {
            if link.conn.pair.is_in_backend() {
                Box::leak(link); // its slots hold buffers
            }
        }
        self.resources.shared.ending.note(cut, &abandoned);
    }
}
