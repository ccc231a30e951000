//! When the whole server sleeps, and what that does to ticks.
//!
//! Ticks stop with the main core and go on where they stopped: the time of a sleep is in none of them. Requests that were polled just before
//! are in the first tick after it, or in one for which a sleep that turns out to be long is interrupted, once.

use pilotlight_plant::{CoreState, Depth, NEVER};

use super::Director;
use crate::reactor::Event;
use crate::runtime::QuietTime;

/// A sleep of the whole server that is shorter is none of which the policy has to be told first, nor one for which workers that wait in an
/// instruction go into the kernel, in nanoseconds.
const SHORT_NS: u64 = 10_000_000;

impl Director {
    /// Whether the whole server may wait in the kernel at `now_ns`, where the last request on the main core was polled at
    /// `request_ns`: the policy waits for nothing yet, every worker rests, and nothing is on its way. A short sleep may come before
    /// the policy has been told of the last requests, a long one not.
    pub(crate) fn is_quiet(&self, now_ns: u64, request_ns: u64) -> bool {
        let quiet_for_ns = now_ns.saturating_sub(request_ns);
        self.awake_ns().is_some_and(|awake_ns| quiet_for_ns >= awake_ns)
            && (quiet_for_ns < SHORT_NS || self.is_told(request_ns))
            && self.due_ns() > now_ns
            && self.may_wait_for_orders()
            && self.topology.workers().all(|core| self.state(core) != CoreState::Awake)
    }

    /// How long the server stays awake after a request; `None` if it does not sleep.
    pub(super) fn awake_ns(&self) -> Option<u64> {
        let allowed = Some(self.next.awake_ns).filter(|&ns| ns != NEVER)?;
        match self.quiet {
            QuietTime::AsPolicySays => Some(allowed),
            QuietTime::Fixed(ns) => Some(ns),
            QuietTime::Never => None,
        }
    }

    /// Whether the policy has been told of requests that were polled until then.
    pub(super) fn is_told(&self, request_ns: u64) -> bool {
        self.wants.tick_ns.is_none() || self.gathered_ns >= request_ns
    }

    /// Whether the main core may wait in the kernel for its own I/O threads: nobody wants ticks.
    pub(crate) fn may_wait(&self) -> bool {
        self.wants.tick_ns.is_none() && self.may_wait_for_orders()
    }

    pub(super) fn may_wait_for_orders(&self) -> bool {
        self.ordered.is_empty() && self.unsent.is_empty()
    }

    /// When the policy could act although nothing arrives. Ticks do not count: they stop with the main core.
    pub(crate) fn due_ns(&self) -> u64 {
        // Without ticks it is asked at intervals only.
        if self.wants.tick_ns.is_some() { self.next.needed_ns } else { self.next.needed_ns.max(self.interval_due_ns) }
    }

    /// The main core is about to wait in the kernel, as the last one; until when. A sleep that turns out to be long is interrupted
    /// once: the policy is told of what came before it, and workers go deeper.
    pub(crate) fn before_sleep(&mut self, now_ns: u64, request_ns: u64) -> u64 {
        self.asleep_since_ns = now_ns;
        let long_ns = request_ns.saturating_add(SHORT_NS);
        if now_ns >= long_ns {
            self.deepen();
            return self.due_ns();
        }
        let shallow = |core| self.state(core) == CoreState::Asleep(Depth::MonitorWait);
        let interrupted = !self.is_told(request_ns) || self.topology.workers().any(shallow);
        if interrupted { self.due_ns().min(long_ns) } else { self.due_ns() }
    }

    /// Cores that wait in an instruction are scheduled all the time, so they go into the kernel too.
    pub(super) fn deepen(&mut self) {
        for core in self.topology.workers() {
            if self.state(core) == CoreState::Asleep(Depth::MonitorWait) && !self.deepened.contains(&core) {
                self.deepened.push(core);
                self.send(core, Event::Sleep(Depth::ServerSleep));
            }
        }
    }

    /// The main core is back. Ticks go on where they have stopped.
    pub(crate) fn after_sleep(&mut self, now_ns: u64) {
        if let Some(policy) = &mut self.policy {
            policy.on_resume(now_ns);
        }
        let slept_ns = now_ns.saturating_sub(self.asleep_since_ns);
        self.last_tick_ns = self.last_tick_ns.saturating_add(slept_ns).min(now_ns);
        self.tick_due_ns = self.tick_due_ns.saturating_add(slept_ns);
        if now_ns >= self.interval_due_ns {
            self.interval(now_ns); // it ended before anything came that ends the sleep
        }
        self.set_due();
    }

    /// Requests are there again: workers may rest where a store wakes them.
    pub(super) fn make_shallow(&mut self) {
        while let Some(core) = self.deepened.pop() {
            self.send(core, Event::Sleep(Depth::MonitorWait)); // whether it has got as deep by now or not
        }
    }
}
