//! Sleep of the whole server, as in `crates/reactor/src/director/sleep.rs`: when no worker is awake and no request has come for a while, the main
//! core waits in the kernel, and ticks stop. The last requests are reported by an early tick, which counts as a whole one.

use pilotlight_plant::{NEVER, Next};

use super::Director;
use crate::engine::core::Core;
use crate::engine::meter::Metering;
use crate::engine::shared::Shared;

impl Director {
    pub(super) fn set_next(&mut self, next: Next) {
        (self.next_needed_ns, self.awake_ns) = (next.needed_ns, next.awake_ns);
    }

    /// Lets the main core ask for a sleep once no request has come for long enough.
    pub(super) fn allow_sleep(&self, shared: &mut Shared<'_>) {
        let sleeps = shared.machine.sockets.server_sleep_ns > 0 && self.wants.tick_ns.is_some() && self.workers_rest();
        shared.awake_ns = if sleeps { self.awake_ns } else { NEVER };
    }

    fn workers_rest(&self) -> bool {
        self.topology.workers().all(|core| self.asleep[core.index()].is_some())
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
        } else if cores[main].take_quiet() {
            self.try_sleep(cores, meter, shared);
        } else {
            return false;
        }
        shared.policy_due_ns = self.due_ns();
        self.allow_sleep(shared);
        self.skipped = false;
        true
    }

    fn is_quiet(&self, main: &Core, shared: &Shared<'_>) -> bool {
        let now_ns = main.now_ns;
        self.next_needed_ns.min(self.pending.due_ns()) > now_ns
            && shared.moving == 0
            && self.workers_rest()
            && main.last_request_ns().saturating_add(self.awake_ns) <= now_ns
    }

    fn try_sleep(&mut self, cores: &mut [Core], meter: &mut dyn Metering, shared: &mut Shared<'_>) {
        let main = self.topology.main().index();
        if !self.is_quiet(&cores[main], shared) {
            return;
        }
        if self.counted_ns < cores[main].last_request_ns() {
            let now_ns = cores[main].now_ns;
            self.tick_due_ns = self.tick_after_ns(now_ns);
            self.decide(cores, shared);
            self.reports = true;
            self.tick(now_ns, shared);
            self.reports = false;
            self.carry_out(cores, meter, shared);
            if !self.is_quiet(&cores[main], shared) {
                return;
            }
        }
        let until_ns = self.next_needed_ns.min(self.pending.due_ns());
        self.asleep_since_ns = cores[main].now_ns;
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
            self.decide(cores, shared);
            self.interval(now_ns, cores, shared);
            self.carry_out(cores, meter, shared);
        }
    }
}
