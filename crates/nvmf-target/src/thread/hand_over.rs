//! Passing a connection to another I/O thread at Connect, because of its class or because it has fewer I/O queues (`classes.rs`).

use pilotlight_nvmf_proto::tcp::Connection;
use rustix::event::epoll;

use super::TargetThread;
use crate::latency::set_stamping;
use crate::shared::Shared;
use crate::thread::message::Message;
use crate::thread::stream::Stream;

impl TargetThread {
    /// Passes the connection at `index` to I/O thread `to`.
    #[cold]
    pub(super) fn hand_over(&mut self, index: u32, to: u16) {
        let Some(mut socket) = self.sockets.get_mut(index as usize).and_then(Option::take) else { return };
        self.deadlines[index as usize] = u64::MAX;
        self.free.push(index);
        self.open -= 1;
        self.resources.accounting.counters.set_connections(u64::from(self.open));
        let Some(fd) = socket.fd else { return };
        if let Err(error) = epoll::delete(&self.resources.epoll, &fd) {
            tracing::debug!(%error, "cannot remove a socket from epoll");
        }
        if socket.is_stamping {
            set_stamping(&fd, false);
        }
        socket.conn.blocked = false; // the next flush watches for space again
        self.resources.out.send_message(to, Message::HandOver(Stream { fd, tls: socket.tls }, Box::new(socket.conn)));
    }

    /// Accepts a passed connection, and handles its Connect.
    #[cold]
    pub(super) fn take_over(&mut self, stream: Stream, conn: Box<Connection<Shared>>, now_ns: u64) {
        if self.draining {
            return self.resources.shared.connection_closed();
        }
        let Some(address) = self.serve(stream, *conn) else { return };
        self.with(address, now_ns, |socket, cx| socket.conn.pair.take_over(cx));
    }
}
