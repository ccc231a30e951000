//! How a core comes to rest and back: between polls, in the kernel, asleep by command, and throttled by its quota.

use super::{Boundary, Core, Mode};
use crate::engine::floor::{Change, Floor, Say, scaled};
use crate::trace::{State, What};

impl Core {
    /// Not awake until `until_ns`.
    pub(super) fn rest_until(&mut self, until_ns: u64) {
        self.rested_ns += until_ns - self.now_ns;
        self.now_ns = until_ns;
    }

    /// When its I/O threads next have something to do, as far as is known.
    pub(super) fn due_ns(&self, floor: &Floor<'_>) -> u64 {
        self.ring.iter().map(|&thread| floor.due_ns[usize::from(thread)]).min().unwrap_or(u64::MAX)
    }

    /// After a loop that found nothing: what its threads wait by.
    pub(super) fn rest(&mut self, floor: &mut Floor<'_>) -> bool {
        let now_ns = self.now_ns;
        if floor.interrupts.is_active() && self.looks_again(floor) {
            return false;
        }
        let rests = self.ring.iter().map(|&thread| floor.threads[usize::from(thread)].rest_ns(now_ns));
        // One that waits for interrupts is polled with the others, if there are any.
        let Some(rest_ns) = rests.clone().flatten().min() else {
            if self.ring.is_empty() || (self.is_main && floor.ask_ns != u64::MAX) {
                return false;
            }
            self.idle(floor);
            return true;
        };
        if rest_ns == 0 || (self.is_main && floor.ask_ns != u64::MAX && rests.clone().any(|rest| rest.is_none())) {
            return false;
        }
        self.turn(floor, self.now_ns, State::Shallow);
        self.rest_until(self.now_ns + rest_ns);
        let exit_ns = floor.machine.sleep.rest_wake_ns;
        self.wake_up(floor, self.now_ns, exit_ns);
        self.now_ns += exit_ns;
        true
    }

    /// Into the kernel, in the state that its idle governor chooses.
    fn idle(&mut self, floor: &mut Floor<'_>) {
        let kernel = floor.machine.kernel;
        let deep = floor.machine.power.family.kernel_idles_deep && self.expected_idle_ns >= kernel.deep_residency_ns;
        let exit_ns = if deep { kernel.deep_exit_ns } else { kernel.shallow_exit_ns };
        self.return_quota(floor);
        self.mode = Mode::Idles { since_ns: self.now_ns, exit_ns };
        self.turn(floor, self.now_ns, if deep { State::Deep } else { State::Shallow });
    }

    /// The quota is used. The kernel lets it rest as deep as any core that has nothing to do for so long.
    pub(super) fn throttle(&mut self, floor: &mut Floor<'_>) {
        let kernel = floor.machine.kernel;
        let rest_ns = floor.quota.until_ns() - self.now_ns;
        let deep = floor.machine.power.family.kernel_idles_deep && rest_ns >= kernel.deep_residency_ns;
        let exit_ns = if deep { kernel.deep_exit_ns } else { kernel.shallow_exit_ns };
        self.mode = Mode::Throttled { since_ns: self.now_ns, exit_ns };
        self.turn(floor, self.now_ns, if deep { State::Deep } else { State::Shallow });
    }

    /// On with its I/O threads, if the quota allows it before `until_ns`.
    pub(super) fn run_again(&mut self, floor: &mut Floor<'_>, until_ns: u64, since_ns: u64, exit_ns: u64) -> Boundary {
        let at_ns = floor.quota.release_ns(self.id).max(since_ns);
        if at_ns >= until_ns {
            return Boundary::Wait;
        }
        let awake_ns = self.awake_ns();
        if !self.quota.run_again(&mut floor.quota, self.id, at_ns, awake_ns) {
            return Boundary::Again; // what there was went to others
        }
        self.wake_up(floor, at_ns, exit_ns);
        self.mode = Mode::Polls;
        self.rest_until(at_ns);
        self.quota_ns = at_ns;
        self.now_ns += exit_ns + scaled(floor.machine.kernel.switch_ns, self.factor);
        floor.switches += 1;
        Boundary::Again
    }

    /// Out of the kernel, if anything comes before `until_ns`.
    pub(super) fn interrupt(&mut self, floor: &mut Floor<'_>, until_ns: u64, since_ns: u64, exit_ns: u64) -> Boundary {
        if floor.interrupts.is_active() {
            return self.leave_kernel(floor, until_ns, since_ns, exit_ns);
        }
        let message = self.inbox.front().map_or(u64::MAX, |message| message.at_ns);
        let due_ns = self.due_ns(floor);
        let event_ns = due_ns.min(message).max(since_ns);
        if event_ns >= until_ns {
            return Boundary::Wait;
        }
        let kernel = floor.machine.kernel;
        let woken_ns = if due_ns < message { event_ns + kernel.coalesce_ns } else { event_ns };
        self.expected_idle_ns = (self.expected_idle_ns * 7 + (woken_ns - since_ns)) / 8;
        self.wake_up(floor, woken_ns, exit_ns);
        self.mode = Mode::Polls;
        self.rest_until(woken_ns);
        let before_ns = self.now_ns;
        self.now_ns += exit_ns + scaled(kernel.interrupt_ns + kernel.switch_ns, self.factor);
        self.busy_ns += self.now_ns - before_ns;
        floor.switches += 1;
        Boundary::Again
    }

    /// Out of a sleep, if a message comes before `until_ns`.
    pub(super) fn wake(&mut self, floor: &mut Floor<'_>, until_ns: u64, since_ns: u64, exit_ns: u64) -> Boundary {
        if floor.interrupts.is_active() && self.leave_sleep(floor, until_ns, since_ns) {
            return Boundary::Again;
        }
        let Some(message) = self.inbox.front() else { return Boundary::Wait };
        let woken_ns = message.at_ns.max(since_ns);
        if woken_ns >= until_ns {
            return Boundary::Wait;
        }
        match message.say {
            Say::Leave { exit_ns } => {
                self.inbox.pop_front();
                self.leaves = true;
                self.mode = Mode::Sleeps { since_ns: woken_ns, exit_ns };
                self.turn(floor, woken_ns, State::Deep);
                return Boundary::Again;
            }
            Say::Sleep { .. } => {
                self.inbox.pop_front(); // it does
                return Boundary::Again;
            }
            _ => {}
        }
        // Of a software wake-up the rest is the kernel's work on this core.
        let kernel = floor.machine.kernel;
        let latency_ns = if self.state == State::Deep { kernel.deep_exit_ns } else { kernel.shallow_exit_ns };
        self.wake_up(floor, woken_ns, exit_ns.min(latency_ns));
        self.mode = Mode::Polls;
        self.to_sleep = None;
        self.rest_until(woken_ns);
        self.now_ns += exit_ns;
        Boundary::Again
    }

    /// Leaves the state in which it rests, which takes the hardware `exit_ns`.
    pub(super) fn wake_up(&mut self, floor: &mut Floor<'_>, at_ns: u64, exit_ns: u64) {
        self.change(floor, Change { at_ns, state: State::Awake, exit_ns });
        floor.recorder.note(at_ns, What::Exits, u64::from(self.id), exit_ns);
    }
}
