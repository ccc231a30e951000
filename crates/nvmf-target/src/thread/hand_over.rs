//! A connection that another I/O thread is to serve, as its class is not this one's (`classes.rs`): given away at Connect, before it is a queue.

use std::os::fd::OwnedFd;

use rustix::event::epoll;

use super::TargetThread;
use crate::message::Message;
use crate::tcp::Connection;

impl TargetThread {
    /// Gives the connection at `index` to I/O thread `to`.
    #[cold]
    pub(super) fn hand_over(&mut self, index: u32, to: u16) {
        let Some(link) = self.links.get_mut(index as usize).and_then(Option::take) else { return };
        self.deadlines[index as usize] = u64::MAX;
        self.free.push(index);
        self.open -= 1;
        self.resources.counters.set_connections(u64::from(self.open));
        let Some(socket) = link.socket else { return };
        if let Err(error) = epoll::delete(&self.resources.epoll, &socket) {
            tracing::debug!(%error, "a socket that is handed over was not watched");
        }
        self.resources.out.send(to, Message::HandOver(socket, Box::new(link.conn)));
    }

    /// Serves a connection from now on, and acts on its Connect.
    #[cold]
    pub(super) fn take_over(&mut self, socket: OwnedFd, conn: Box<Connection>, now_ns: u64) {
        if self.draining {
            return self.resources.shared.connection_closed();
        }
        let Some(address) = self.serve(socket, *conn) else { return };
        self.with(address, now_ns, |link, cx| link.conn.pair.take_over(cx));
    }
}
