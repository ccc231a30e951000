//! Sleep of the whole server, and its effect on ticks.
//!
//! A worker rests by itself after an idle timeout that the director publishes; the main core follows when every worker rests
//! or sleeps (`resting.rs`). An interval alone ends the sleep for no longer than it takes.
//!
//! Ticks stop with the main core and continue afterwards: no tick contains the time of a sleep. The last requests before it are reported by an
//! early tick, which counts as a whole one: a wait that ended for that alone would cost more than the request. A long sleep is interrupted
//! once if workers wait in an instruction, to let them sleep deeper.

use std::sync::atomic::Ordering::Relaxed;

use pilotlight_plant::{CoreId, CoreState, DEFAULT_IDLE_TIMEOUT_NS, Depth, LONGEST_PAUSE_NS, NEVER, Next};

use super::{Director, IdleTimeout};
use crate::event::Event;

/// Limit of a short sleep, in nanoseconds, in which workers keep waiting in an instruction.
const SHORT_NS: u64 = 10_000_000;

impl Director {
    /// Whether the whole server may wait in the kernel at `now_ns`, after the last request on the main core was polled at `request_ns`: the
    /// policy is not due, every worker rests, and nothing is pending.
    pub(crate) fn may_sleep(&self, now_ns: u64, request_ns: u64) -> bool {
        let idle_ns = now_ns.saturating_sub(request_ns);
        self.idle_timeout_ns().is_some_and(|timeout_ns| idle_ns >= timeout_ns)
            && self.has_no_pending_work()
            && self.workers_rest()
            && self.due_ns() > now_ns
    }

    /// The check after the main core has announced its rest: no worker has got a request meanwhile.
    pub(crate) fn may_still_sleep(&self, now_ns: u64) -> bool {
        // the counts after the rests: what a worker counted before it rested is visible then
        self.workers_rest() && self.due_ns() > now_ns && !(self.wants.tick_ns.is_some() && self.has_uncounted())
    }

    fn workers_rest(&self) -> bool {
        let rests = |core| self.state(core) != CoreState::Awake || self.peers[core.index()].cell.rests.is_set();
        self.topology.workers().all(rests)
    }

    /// Whether the policy receives requests at all, so that one on a worker ends a sleep.
    pub(crate) fn is_called(&self) -> bool {
        self.wants.tick_ns.is_some() || self.wants.interval_ns.is_some()
    }

    /// Notes the policy's next deadline, and publishes the workers' idle timeout if it has changed.
    pub(super) fn set_next(&mut self, next: Next) {
        let before = std::mem::replace(&mut self.next, next);
        let rules = |next: &Next| (next.round_ns, next.wait_ns, next.pause_ns);
        if rules(&next) != rules(&before) {
            let published = |ns: u64| if ns == NEVER { 0 } else { ns.max(1) };
            for peer in &*self.peers {
                peer.cell.round_ns.store(published(next.round_ns), Relaxed);
                peer.cell.wait_ns.store(published(next.wait_ns), Relaxed);
                peer.cell.pause_ns.store(next.pause_ns.min(LONGEST_PAUSE_NS), Relaxed);
            }
        }
        let timeout_ns = self.worker_idle_timeout_ns().map_or(0, |ns| ns.max(1)); // 0: never
        let before_ns = std::mem::replace(&mut self.worker_timeout_ns, timeout_ns);
        if timeout_ns == before_ns {
            return;
        }
        self.peers.iter().for_each(|peer| peer.cell.idle_timeout_ns.store(timeout_ns, Relaxed));
        if before_ns > 0 && (timeout_ns == 0 || timeout_ns > before_ns) {
            for core in (0..self.peers.len()).map(|core| CoreId(core as u16)) {
                self.send(core, Event::EndWait); // one that rests may have to poll
            }
        }
    }

    /// Idle timeout of a worker; `None` if it does not rest.
    fn worker_idle_timeout_ns(&self) -> Option<u64> {
        match self.idle_timeout {
            IdleTimeout::FromPolicy => Some(self.next.worker_idle_timeout_ns).filter(|&ns| ns != NEVER),
            IdleTimeout::Fixed(ns) => self.idle_timeout_ns().map(|_| ns.max(DEFAULT_IDLE_TIMEOUT_NS)),
            IdleTimeout::Never => None,
        }
    }

    /// Idle timeout of the main core; `None` if the server does not sleep.
    pub(super) fn idle_timeout_ns(&self) -> Option<u64> {
        let allowed = Some(self.next.idle_timeout_ns).filter(|&ns| ns != NEVER)?;
        match self.idle_timeout {
            IdleTimeout::FromPolicy => Some(allowed),
            IdleTimeout::Fixed(ns) => Some(ns),
            IdleTimeout::Never => None,
        }
    }

    /// Reports the last requests to the policy, if it has not received them. Returns whether the server may still sleep.
    pub(crate) fn report(&mut self, now_ns: u64, request_ns: u64) -> bool {
        if self.wants.tick_ns.is_none() || !self.has_uncounted() {
            return true;
        }
        self.tick(now_ns);
        self.set_due();
        self.may_sleep(now_ns, request_ns)
    }

    /// Whether the main core may wait in the kernel for its own I/O threads: the policy wants no ticks.
    pub(crate) fn may_wait(&self) -> bool {
        self.wants.tick_ns.is_none() && self.has_no_pending_work()
    }

    pub(super) fn has_no_pending_work(&self) -> bool {
        self.moving.is_empty() && self.unsent.is_empty()
    }

    /// Next time the policy must be called although nothing arrives.
    pub(crate) fn due_ns(&self) -> u64 {
        match self.wants.tick_ns {
            Some(_) => self.next.needed_ns,
            None if self.has_unreported() => self.interval_due_ns, // it is called at intervals only
            None => self.next.needed_ns.max(self.interval_due_ns),
        }
    }

    /// End of a wait of the main core for its own I/O threads, beside workers that may be awake and do not wake it: a policy without ticks is called
    /// at intervals.
    pub(crate) fn wait_ends_ns(&self) -> u64 {
        self.interval_due_ns
    }

    /// Called before the main core waits in the kernel, as the last one; returns the end of the wait. A long sleep is interrupted once, for
    /// workers to sleep deeper.
    pub(crate) fn before_sleep(&mut self, now_ns: u64, request_ns: u64) -> u64 {
        self.asleep_since_ns = now_ns;
        self.slept_quiet = !self.has_unreported();
        if self.slept_quiet {
            self.begin_cores(now_ns);
        }
        let long_ns = request_ns.max(self.active_ns).saturating_add(SHORT_NS);
        if now_ns >= long_ns {
            self.deepen_sleep();
            return self.due_ns();
        }
        let shallow = |core| self.state(core) == CoreState::Asleep(Depth::MonitorWait);
        if self.topology.workers().any(shallow) { self.due_ns().min(long_ns) } else { self.due_ns() }
    }

    /// Moves cores that wait in an instruction, which keeps them scheduled, into the kernel.
    pub(super) fn deepen_sleep(&mut self) {
        for core in self.topology.workers() {
            if self.state(core) == CoreState::Asleep(Depth::MonitorWait) && !self.deepened.contains(&core) {
                self.deepened.push(core);
                self.send(core, Event::Sleep(Depth::ServerSleep));
            }
        }
    }

    /// Called after the wait. Ticks continue where they stopped.
    pub(crate) fn after_sleep(&mut self, now_ns: u64) {
        if let Some(policy) = &mut self.policy {
            policy.on_resume(now_ns);
        }
        let slept_ns = now_ns.saturating_sub(self.asleep_since_ns);
        self.last_tick_ns = self.last_tick_ns.saturating_add(slept_ns).min(now_ns);
        self.tick_due_ns = self.tick_due_ns.saturating_add(slept_ns);
        if now_ns >= self.interval_due_ns {
            if self.slept_quiet && now_ns < self.next.needed_ns {
                self.skip_interval(now_ns); // a worker may have counted the request that ended the sleep
            } else {
                self.interval(now_ns);
            }
        }
        self.set_due();
    }

    /// Ticks and intervals with requests, at `now_ns`.
    pub(super) fn note_requests(&mut self, now_ns: u64, has_requests: bool) {
        if has_requests {
            self.active_ns = now_ns;
        }
    }

    /// After requests: workers may rest where a store wakes them.
    pub(super) fn restore_sleep_depth(&mut self) {
        while let Some(core) = self.deepened.pop() {
            self.send(core, Event::Sleep(Depth::MonitorWait)); // whether it is already deeper or not
        }
    }
}
