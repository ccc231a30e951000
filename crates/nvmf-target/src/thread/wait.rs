//! Waiting in the kernel: whether an I/O thread may, for how long, and what wakes it.
//!
//! # The problem
//! A thread that is not polled must not miss anything: bytes on a socket, a message, a completion, a deadline, a command
//! that can go on.
//!
//! # The algorithm
//! Everything that can wake the thread is in its own epoll descriptor: its sockets (level-triggered), the doorbell of its
//! inbox and the bell of its backends (edge-triggered, so that nobody has to empty them). First the bells are armed, then
//! everything is looked at once more: what came before the look is seen, what comes after it rings.
//!
//! # The properties
//! - Sockets need no look: what is readable makes the epoll descriptor readable.
//! - Commands that wait for memory, or for room to send, wait for an event of this thread, as all that they wait for comes
//!   back by one; but only a poll that came to nothing shows that nothing came back after they were last tried.
//! - Timers are not lost: the wait ends when the first deadline is due. Deadlines are looked at in ticks, so those of one
//!   tick end one wait together.
//! - When `prepare` says `None`, nothing is armed.

use rustix::event::epoll;

use super::TargetThread;
use crate::wait::Wait;

/// What stands in events of the doorbell, and of the bell, where sockets have their link's index.
pub(super) const DOORBELL: u64 = u64::MAX;
pub(super) const BELL: u64 = u64::MAX - 1;

impl TargetThread {
    /// Has the bells watched, once for the thread's life.
    pub(super) fn watch_bells(&self) -> std::io::Result<()> {
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let epoll = &self.resources.epoll;
        epoll::add(epoll, self.inbox.doorbell()?, epoll::EventData::new_u64(DOORBELL), edge)?;
        epoll::add(epoll, &**self.resources.namespaces.bell(), epoll::EventData::new_u64(BELL), edge)?;
        Ok(())
    }

    /// Arms the bells and looks whether the thread may wait; until when, in nanoseconds, or `u64::MAX`.
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

    /// What has to happen before there is anything to do, messages and backends apart.
    fn wait(&self, now_ns: u64) -> Wait {
        let over = self.draining && self.open == 0; // only a poll says so
        if over || !self.resources.out.is_empty() || !self.waiting.is_empty() && !self.quiet {
            return Wait::Poll;
        }
        let links = self.waiting.iter().filter_map(|&index| self.links[index as usize].as_ref());
        let commands = links.map(|link| link.conn.pair.wait(now_ns)).min().unwrap_or(Wait::Event);
        let background = Wait::until(self.resources.tasks.due_ns());
        commands.min(self.timers()).min(Wait::until(self.resources.caps.due_ns())).min(background)
    }

    /// When the next tick comes that has anything to do.
    fn timers(&self) -> Wait {
        let relief_ns = if self.resources.memory.has_refused() { self.next_relief_ns } else { u64::MAX };
        let due_ns = self.deadlines.iter().copied().min().unwrap_or(u64::MAX).min(relief_ns);
        Wait::until(if due_ns == u64::MAX { due_ns } else { due_ns.max(self.next_tick_ns) })
    }
}
