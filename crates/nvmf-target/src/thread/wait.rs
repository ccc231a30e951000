//! Waiting of an I/O thread in the kernel.
//!
//! # The problem
//! A waiting thread must not miss an event: bytes on a socket, a message, a completion, a deadline, a command that can
//! continue.
//!
//! # The algorithm
//! All events are in its epoll descriptor: its sockets (level-triggered), the doorbell of its inbox and the bell of its
//! backends (edge-triggered, so that they need not be drained). First the bells are armed, then all sources are checked
//! again: earlier events are found by the check, later ones ring.
//!
//! # The properties
//! - Sockets need no check: a readable socket makes the epoll descriptor readable.
//! - Memory and space to send are freed by events of this thread, so commands that need them can wait for events; but only
//!   after a poll without work it is certain that nothing was freed after their last retry.
//! - The wait ends with the first deadline. Deadlines are checked in ticks, so those of one tick end one wait.
//! - When `prepare` returns `None`, nothing is armed.

use pilotlight_storage::wait::Wait;
use rustix::event::epoll;

use super::TargetThread;

/// Epoll tokens of the doorbell and of the bell; sockets have their index.
pub(super) const DOORBELL: u64 = u64::MAX;
pub(super) const BELL: u64 = u64::MAX - 1;

impl TargetThread {
    /// Adds the bells to epoll, once.
    pub(super) fn watch_bells(&self) -> std::io::Result<()> {
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let epoll = &self.resources.epoll;
        epoll::add(epoll, self.inbox.doorbell()?, epoll::EventData::new_u64(DOORBELL), edge)?;
        epoll::add(epoll, &**self.resources.namespaces.bell(), epoll::EventData::new_u64(BELL), edge)?;
        Ok(())
    }

    /// Arms the bells and returns the end of the wait in nanoseconds, `u64::MAX` without a timer, or `None` if the thread must
    /// not wait.
    pub(super) fn prepare(&mut self, now_ns: u64) -> Option<u64> {
        let own = self.wait(now_ns);
        own.limit_ns(now_ns)?;
        if !self.inbox.arm() {
            return None;
        }
        self.resources.namespaces.bell().arm();
        let limit_ns = own.min(self.resources.namespaces.wait(now_ns)).limit_ns(now_ns);
        if limit_ns.is_none() {
            self.disarm();
        }
        limit_ns
    }

    pub(super) fn disarm(&mut self) {
        self.inbox.disarm();
        self.resources.namespaces.bell().disarm();
    }

    /// The event before the next work other than messages and backends.
    fn wait(&self, now_ns: u64) -> Wait {
        let over = self.draining && self.open == 0; // only a poll reports it
        if over || !self.sweeps.is_empty() || !self.resources.out.is_empty() || !self.waiting.is_empty() && !self.idle {
            return Wait::Poll;
        }
        let sockets = self.waiting.iter().filter_map(|&index| self.sockets[index as usize].as_ref());
        let commands = sockets.map(|socket| socket.conn.pair.wait(now_ns)).min().unwrap_or(Wait::Event);
        let background = Wait::until(self.resources.tasks.due_ns());
        commands.min(self.timers()).min(Wait::until(self.resources.accounting.caps.due_ns())).min(background)
    }

    /// The next tick with a due deadline.
    fn timers(&self) -> Wait {
        let stall_check_ns = if self.resources.memory.has_refused() { self.next_stall_check_ns } else { u64::MAX };
        let due_ns = self.deadlines.iter().copied().min().unwrap_or(u64::MAX).min(stall_check_ns);
        Wait::until(if due_ns == u64::MAX { due_ns } else { due_ns.max(self.next_tick_ns) })
    }
}
