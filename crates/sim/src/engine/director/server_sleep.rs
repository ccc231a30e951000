//! Sleep of the whole server, as in `crates/reactor/src/director/sleep.rs`: a worker without requests rests, and when no worker is awake and no
//! request has come for a while, the main core waits in the kernel too, and ticks stop. The last requests are reported by an early tick, which
//! counts as a whole one.

use pilotlight_plant::{LONGEST_PAUSE_NS, Next};

use super::Director;
use crate::engine::core::Core;
use crate::engine::meter::Metering;
use crate::engine::shared::Shared;

/// Time until the main core asks again while a worker that could rest still polls, in nanoseconds.
const ASK_AGAIN_NS: u64 = 10_000;

impl Director {
    pub(super) fn set_next(&mut self, next: Next) {
        self.next = next;
    }

    /// Lets workers rest, and the main core ask for a sleep, once no request has come for long enough.
    pub(super) fn allow_sleep(&self, shared: &mut Shared<'_>) {
        shared.round_ns = self.next.round_ns;
        if shared.machine.sockets.server_sleep_ns == 0 {
            return;
        }
        shared.idle_timeout_ns = self.next.idle_timeout_ns;
        shared.worker_idle_timeout_ns = self.next.worker_idle_timeout_ns;
        shared.wait_ns = self.next.wait_ns;
        shared.pause_ns = self.next.pause_ns.min(LONGEST_PAUSE_NS);
        shared.looks_at_steps = shared.machine.sockets.between_polls || shared.pause_ns > 0;
        shared.main_waits = self.wants.tick_ns.is_none();
        shared.wakes_main = self.wants.tick_ns.is_some() || self.wants.interval_ns.is_some();
        if self.topology.workers().all(|core| self.asleep[core.index()].is_some()) {
            shared.ask_ns = 0;
        }
    }

    /// Workers that neither sleep nor rest.
    fn awake<'a>(&self, cores: &'a [Core]) -> impl Iterator<Item = &'a Core> {
        let workers = self.topology.workers().filter(|core| self.asleep[core.index()].is_none());
        workers.map(|core| &cores[core.index()]).filter(|core| !core.idles())
    }

    /// Whether there are requests since the last tick.
    fn has_uncounted(&self, shared: &Shared<'_>) -> bool {
        shared.threads.iter().zip(&self.on_tick).any(|(thread, seen)| thread.polled != seen.polled)
    }

    /// Whether the current interval has requests, or some are in progress.
    fn has_unreported(&self, shared: &Shared<'_>) -> bool {
        let mut threads = shared.threads.iter().zip(&self.on_interval);
        threads.any(|(thread, seen)| {
            let serves = thread.in_progress > 0 || seen.in_progress > 0;
            thread.polled != seen.polled || self.wants.service && serves
        })
    }

    /// Next time the policy must be called although nothing arrives; without ticks it is called at intervals only.
    fn needed_ns(&self, shared: &Shared<'_>) -> u64 {
        let needed_ns = match self.wants.tick_ns {
            Some(_) => self.next.needed_ns,
            None if self.has_unreported(shared) => self.interval_due_ns,
            None => self.next.needed_ns.max(self.interval_due_ns),
        };
        needed_ns.min(self.pending.due_ns())
    }

    /// The main core asks for a sleep of the whole server, or has ended one; `false` if neither.
    pub(super) fn sleep_or_wake(
        &mut self,
        cores: &mut [Core],
        meter: &mut dyn Metering,
        shared: &mut Shared<'_>,
    ) -> bool {
        let main = self.topology.main().index();
        if cores[main].take_resumed() {
            self.after_sleep(cores, meter, shared);
        } else if cores[main].take_idle_timeout() {
            self.try_sleep(cores, meter, shared);
        } else {
            return false;
        }
        shared.policy_due_ns = self.due_ns();
        self.allow_sleep(shared);
        self.skipped = false;
        true
    }

    fn may_sleep(&self, cores: &[Core], shared: &Shared<'_>) -> bool {
        let main = &cores[self.topology.main().index()];
        let now_ns = main.now_ns;
        self.needed_ns(shared) > now_ns
            && shared.moving == 0
            && self.awake(cores).next().is_none()
            && main.last_request_ns().saturating_add(self.next.idle_timeout_ns) <= now_ns
    }

    fn try_sleep(&mut self, cores: &mut [Core], meter: &mut dyn Metering, shared: &mut Shared<'_>) {
        let main = self.topology.main().index();
        if !self.may_sleep(cores, shared) {
            let rest_ns = self.awake(cores).map(|core| core.rest_begins_ns(shared)).max().unwrap_or(0);
            shared.ask_ns = rest_ns.max(cores[main].now_ns + ASK_AGAIN_NS);
            return;
        }
        if self.wants.tick_ns.is_some() && self.has_uncounted(shared) {
            let now_ns = cores[main].now_ns;
            self.tick_due_ns = self.tick_after_ns(now_ns);
            self.decide(cores, shared);
            self.reports = true;
            self.tick(now_ns, shared);
            self.reports = false;
            self.carry_out(cores, meter, shared);
            if !self.may_sleep(cores, shared) {
                shared.ask_ns = cores[main].now_ns + ASK_AGAIN_NS;
                return;
            }
        }
        let until_ns = self.needed_ns(shared);
        self.asleep_since_ns = cores[main].now_ns;
        self.slept_quiet = !self.has_unreported(shared);
        if self.slept_quiet {
            self.fill_cores(cores, self.asleep_since_ns, 0); // the next sample of the cores begins
        }
        cores[main].sleep_until(shared, until_ns);
    }

    /// Ticks continue where they stopped.
    fn after_sleep(&mut self, cores: &mut [Core], meter: &mut dyn Metering, shared: &mut Shared<'_>) {
        let now_ns = cores[self.topology.main().index()].now_ns;
        self.policy.on_resume(now_ns);
        let slept_ns = now_ns - self.asleep_since_ns;
        self.ticked_ns = (self.ticked_ns + slept_ns).min(now_ns);
        self.tick_due_ns = self.tick_due_ns.saturating_add(slept_ns);
        if self.interval_due_ns <= now_ns {
            self.interval_due_ns = self.interval_after_ns(now_ns);
            if self.slept_quiet && now_ns < self.next.needed_ns && !self.eager {
                self.sampled_ns = now_ns; // the next interval begins
                return;
            }
            self.decide(cores, shared);
            self.interval(now_ns, cores, None, shared);
            self.carry_out(cores, meter, shared);
        }
    }
}
