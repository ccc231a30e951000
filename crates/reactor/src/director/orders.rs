//! Moving I/O threads along, waking their new homes first, and sending what found a ring full.

use std::sync::atomic::Ordering::Acquire;

use pilotlight_plant::{CoreId, Refusal, ThreadId};

use super::Director;
use crate::cells::add;
use crate::reactor::Event;

/// Where an I/O thread is to live.
#[derive(Clone, Copy, Default)]
pub(super) struct Order {
    pub(super) to: Option<CoreId>,
    /// The new home that it has been sent to, until it is there.
    pub(super) sent: Option<CoreId>,
}

impl Director {
    /// Whether an I/O thread is on its way to a core, or about to be; not where it lives there and nobody has sent it away.
    pub(super) fn comes(&self, thread: ThreadId, core: CoreId) -> bool {
        let Order { to, sent } = self.orders[thread.index()];
        let stays = self.cells[thread.index()].home() == core && sent.is_none_or(|sent| sent == core);
        to == Some(core) && !stays
    }

    pub(super) fn wake(&mut self, core: CoreId, now_ns: u64) {
        self.asleep_by_order[core.index()] = false;
        self.deepened.retain(|&other| other != core);
        self.send(core, Event::Wake { sent_ns: now_ns });
    }

    pub(super) fn order(&mut self, thread: ThreadId, to: CoreId, now_ns: u64) -> Result<(), Refusal> {
        let cell = self.cells.get(thread.index()).ok_or(Refusal::Unknown)?;
        if cell.finished.load(Acquire) || self.peers.get(to.index()).is_none() {
            return Err(Refusal::Unknown);
        }
        if self.asleep_by_order[to.index()] {
            self.wake(to, now_ns);
        }
        add(&self.cell.moves, 1);
        let order = &mut self.orders[thread.index()];
        if order.to.replace(to).is_none() {
            self.ordered.push(thread);
        }
        Ok(())
    }

    /// Sends what waits for room, and moves I/O threads along.
    pub(super) fn pursue(&mut self) {
        while let Some((core, event)) = self.unsent.pop_front() {
            if let Err(event) = self.peers[core.index()].events.send(event) {
                self.unsent.push_front((core, event));
                break;
            }
        }
        let mut at = 0;
        while at < self.ordered.len() {
            if self.is_settled(self.ordered[at]) {
                self.ordered.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Moves one I/O thread along; whether its order is done.
    pub(super) fn is_settled(&mut self, thread: ThreadId) -> bool {
        let cell = &self.cells[thread.index()];
        let order = &mut self.orders[thread.index()];
        let Some(to) = order.to.filter(|_| !cell.finished.load(Acquire)) else {
            *order = Order::default();
            return true;
        };
        let home = cell.home();
        if order.sent.is_some_and(|sent| sent != home) {
            return false; // on its way
        }
        order.sent = None;
        if home == to {
            order.to = None;
            return true;
        }
        if self.peers[to.index()].is_ready() {
            order.sent = Some(to);
            self.send(home, Event::Hand { thread, to });
        }
        false
    }

    pub(super) fn send(&mut self, core: CoreId, event: Event) {
        let blocked = self.unsent.iter().any(|(waiting, _)| *waiting == core); // order within a ring is kept
        let event = if blocked { Err(event) } else { self.peers[core.index()].events.send(event) };
        if let Err(event) = event {
            self.unsent.push_back((core, event));
        }
    }
}
