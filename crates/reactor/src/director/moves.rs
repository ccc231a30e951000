//! Moves of I/O threads, wake-ups of their new cores, and events that found a ring full.

use std::sync::atomic::Ordering::Acquire;

use pilotlight_plant::{CoreId, Refusal, ThreadId};

use super::Director;
use crate::cells::add;
use crate::event::Event;

/// Pending move of an I/O thread.
#[derive(Clone, Copy, Default)]
pub(super) struct PendingMove {
    pub(super) to: Option<CoreId>,
    /// The core that it has been sent to, until it arrives.
    pub(super) sent: Option<CoreId>,
}

impl Director {
    /// Whether an I/O thread is moving to a core, or will be; false if it is there and not leaving.
    pub(super) fn is_arriving(&self, thread: ThreadId, core: CoreId) -> bool {
        let PendingMove { to, sent } = self.pending_moves[thread.index()];
        let stays = self.cells[thread.index()].home() == core && sent.is_none_or(|sent| sent == core);
        to == Some(core) && !stays
    }

    pub(super) fn wake(&mut self, core: CoreId, now_ns: u64) {
        self.commanded_asleep[core.index()] = false;
        self.deepened.retain(|&other| other != core);
        self.send(core, Event::Wake { sent_ns: now_ns });
    }

    pub(super) fn start_move(&mut self, thread: ThreadId, to: CoreId, now_ns: u64) -> Result<(), Refusal> {
        let cell = self.cells.get(thread.index()).ok_or(Refusal::Unknown)?;
        if cell.finished.load(Acquire) || self.peers.get(to.index()).is_none() {
            return Err(Refusal::Unknown);
        }
        if self.commanded_asleep[to.index()] || self.peers[to.index()].cell.rests.is_set() {
            self.wake(to, now_ns);
        }
        add(&self.cell.moves, 1);
        let pending = &mut self.pending_moves[thread.index()];
        if pending.to.replace(to).is_none() {
            self.moving.push(thread);
        }
        Ok(())
    }

    /// Sends waiting events and advances all pending moves.
    pub(super) fn advance_moves(&mut self) {
        while let Some((core, event)) = self.unsent.pop_front() {
            if let Err(event) = self.peers[core.index()].events.send(event) {
                self.unsent.push_front((core, event));
                break;
            }
        }
        let mut at = 0;
        while at < self.moving.len() {
            if self.advance_move(self.moving[at]) {
                self.moving.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Advances a pending move; whether it is done.
    pub(super) fn advance_move(&mut self, thread: ThreadId) -> bool {
        let cell = &self.cells[thread.index()];
        let pending = &mut self.pending_moves[thread.index()];
        let Some(to) = pending.to.filter(|_| !cell.finished.load(Acquire)) else {
            *pending = PendingMove::default();
            return true;
        };
        let home = cell.home();
        if pending.sent.is_some_and(|sent| sent != home) {
            return false; // between two cores
        }
        pending.sent = None;
        if home == to {
            pending.to = None;
            return true;
        }
        if self.peers[to.index()].is_ready() {
            pending.sent = Some(to);
            self.send(home, Event::HandOver { thread, to });
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
