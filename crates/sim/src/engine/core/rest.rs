//! Transitions of a core to and from rest: between polls, in the kernel, asleep by command, and throttled by the quota.

use pilotlight_plant::CompletionMode;

use super::{Boundary, Core, Mode};
use crate::engine::shared::{Change, MessageKind, Shared, scaled};
use crate::trace::{RecordKind, State};

impl Core {
    /// Rests until `until_ns`.
    pub(super) fn rest_until(&mut self, until_ns: u64) {
        self.rested_ns += until_ns - self.now_ns;
        self.now_ns = until_ns;
    }

    /// Earliest known event of its I/O threads.
    pub(super) fn due_ns(&self, shared: &Shared<'_>) -> u64 {
        self.ring.iter().map(|&thread| shared.due_ns[usize::from(thread)]).min().unwrap_or(u64::MAX)
    }

    /// Rests after an empty loop, as the completion modes allow.
    pub(super) fn rest(&mut self, shared: &mut Shared<'_>) -> bool {
        let now_ns = self.now_ns;
        if shared.interrupts.is_active() && self.must_poll_again(shared) {
            return false;
        }
        let rests = self.ring.iter().map(|&thread| shared.threads[usize::from(thread)].rest_ns(now_ns));
        // A thread in interrupt mode is polled with the others, if there are any.
        let Some(rest_ns) = rests.clone().flatten().min() else {
            if self.ring.is_empty() || (self.is_main && !self.may_wait(shared)) {
                return false;
            }
            if self.is_main {
                self.idle_until_ns = shared.policy_due_ns;
            }
            self.idle(shared);
            return true;
        };
        if rest_ns == 0
            || (self.is_main && shared.policy_due_ns != u64::MAX && rests.clone().any(|rest| rest.is_none()))
        {
            return false;
        }
        self.pause(shared, self.now_ns + rest_ns, shared.machine.sleep.monitor);
        true
    }

    /// Rests without looking for requests until `until_ns`; in a wait instruction, or with a timer.
    fn pause(&mut self, shared: &mut Shared<'_>, until_ns: u64, in_instruction: bool) {
        self.turn(shared, self.now_ns, State::Shallow);
        self.rest_until(until_ns);
        let exit_ns = shared.machine.sleep.rest_wake_ns;
        self.wake_up(shared, self.now_ns, exit_ns);
        let timer_ns = if in_instruction { 0 } else { shared.machine.sockets.timer_ns };
        self.now_ns += exit_ns + scaled(timer_ns, self.factor);
    }

    /// Pauses if it had requests so recently that others may come together; before it asks for a sleep of the whole server, or waits.
    pub(super) fn pause_after_requests(&mut self, shared: &mut Shared<'_>) -> bool {
        let message_ns = self.inbox.front().map_or(u64::MAX, |message| message.at_ns);
        let mut until_ns = self.received_ns.saturating_add(shared.pause_ns).min(message_ns);
        if self.is_main {
            until_ns = until_ns.min(if shared.moving == 0 { shared.policy_due_ns } else { 0 });
        }
        let pauses = shared.pause_ns > 0
            && until_ns > self.now_ns
            && !shared.interrupts.is_active()
            && !self.ring.is_empty()
            && self.ring.iter().all(|&thread| shared.threads[usize::from(thread)].how() == CompletionMode::Interrupt);
        if pauses {
            self.pause(shared, until_ns, false);
        }
        pauses
    }

    /// Whether the main core may wait in the kernel until the policy is due: it needs no ticks, and nothing is moving.
    fn may_wait(&self, shared: &Shared<'_>) -> bool {
        shared.policy_due_ns == u64::MAX
            || shared.main_waits && shared.moving == 0 && shared.policy_due_ns > self.now_ns
    }

    /// Time in rests without a command until `now_ns`.
    pub(crate) fn rested_quietly_ns(&self, now_ns: u64) -> u64 {
        match self.mode {
            Mode::Idles { since_ns, .. } if self.rests_quietly => self.quiet_rest_ns + now_ns.saturating_sub(since_ns),
            _ => self.quiet_rest_ns,
        }
    }

    /// When a worker without work rests.
    pub(crate) fn rest_begins_ns(&self, shared: &Shared<'_>) -> u64 {
        if self.is_main { u64::MAX } else { self.last_request_ns.saturating_add(shared.worker_idle_timeout_ns) }
    }

    /// A worker that had no work for long enough, and has no request in progress, waits in the kernel.
    pub(super) fn rest_quietly(&mut self, shared: &mut Shared<'_>) -> bool {
        let rests = self.rest_begins_ns(shared) <= self.now_ns
            && !shared.interrupts.is_active()
            && self.ring.iter().all(|&thread| shared.threads[usize::from(thread)].in_progress == 0);
        if rests {
            self.idle(shared);
            self.rests_quietly = true;
        }
        rests
    }

    /// The time of its last request if it gets an I/O thread or a wake-up now: requests follow.
    pub(super) fn active_ns(&self) -> u64 {
        if self.is_main { self.last_request_ns } else { self.now_ns }
    }

    /// Earliest known event that ends its wait: of its I/O threads, or of any while the whole server sleeps, as a worker with a request wakes
    /// the main core.
    pub(super) fn wake_ns(&self, shared: &Shared<'_>) -> u64 {
        if self.is_last && shared.wakes_main {
            return shared.due_ns.iter().copied().min().unwrap_or(u64::MAX);
        }
        self.due_ns(shared)
    }

    /// When the main core may ask for a sleep of the whole server.
    pub(crate) fn idle_timeout_at_ns(&self, shared: &Shared<'_>) -> u64 {
        self.last_request_ns.saturating_add(shared.idle_timeout_ns).max(shared.ask_ns)
    }

    pub(crate) fn last_request_ns(&self) -> u64 {
        self.last_request_ns
    }

    /// End of a wait without an event.
    pub(crate) fn idle_until_ns(&self) -> u64 {
        self.idle_until_ns
    }

    pub(crate) fn take_idle_timeout(&mut self) -> bool {
        std::mem::take(&mut self.idle_timed_out)
    }

    pub(crate) fn take_resumed(&mut self) -> bool {
        std::mem::take(&mut self.resumed)
    }

    /// The main core of a sleeping server waits in the kernel, for an event or until `until_ns`.
    pub(crate) fn sleep_until(&mut self, shared: &mut Shared<'_>, until_ns: u64) {
        (self.idle_until_ns, self.is_last) = (until_ns, true);
        self.idle(shared);
        self.rests_quietly = true;
    }

    /// Enters the kernel's idle state.
    fn idle(&mut self, shared: &mut Shared<'_>) {
        let kernel = shared.machine.kernel;
        let deep = shared.machine.power.family.kernel_idles_deep && self.expected_idle_ns >= kernel.deep_residency_ns;
        let exit_ns = if deep { kernel.deep_exit_ns } else { kernel.shallow_exit_ns };
        self.now_ns += scaled(shared.machine.sockets.wait_ns, self.factor); // not in a poll step, so not busy
        if !self.ring.is_empty() && shared.wait_ns != u64::MAX {
            self.set_limit(shared);
            self.idle_until_ns = self.idle_until_ns.min(self.limit_ns);
        }
        self.return_quota(shared);
        self.mode = Mode::Idles { since_ns: self.now_ns, exit_ns };
        self.turn(shared, self.now_ns, if deep { State::Deep } else { State::Shallow });
    }

    /// Sets the timer of short waits, unless it still goes on.
    fn set_limit(&mut self, shared: &Shared<'_>) {
        let ends_ns = self.now_ns.saturating_add(shared.wait_ns);
        if self.now_ns >= self.limit_ns || self.limit_ns > ends_ns {
            self.limit_ns = ends_ns;
            self.now_ns += scaled(shared.machine.sockets.timer_ns, self.factor);
        }
    }

    /// Throttles the core. The kernel chooses the idle state for the remaining time.
    pub(super) fn throttle(&mut self, shared: &mut Shared<'_>) {
        let kernel = shared.machine.kernel;
        let rest_ns = shared.quota.until_ns() - self.now_ns;
        let deep = shared.machine.power.family.kernel_idles_deep && rest_ns >= kernel.deep_residency_ns;
        let exit_ns = if deep { kernel.deep_exit_ns } else { kernel.shallow_exit_ns };
        self.mode = Mode::Throttled { since_ns: self.now_ns, exit_ns };
        self.turn(shared, self.now_ns, if deep { State::Deep } else { State::Shallow });
    }

    /// Resumes after throttling, if the quota allows it before `until_ns`.
    pub(super) fn run_again(
        &mut self,
        shared: &mut Shared<'_>,
        until_ns: u64,
        since_ns: u64,
        exit_ns: u64,
    ) -> Boundary {
        let at_ns = shared.quota.release_ns(self.id).max(since_ns);
        if at_ns >= until_ns {
            return Boundary::Wait;
        }
        let charged_ns = self.awake_ns() + exit_ns; // the kernel charges a task from the time at which it runs
        if !self.quota.run_again(&mut shared.quota, self.id, at_ns, charged_ns) {
            return Boundary::Again; // others took the available time
        }
        self.wake_up(shared, at_ns, exit_ns);
        self.mode = Mode::Polls;
        self.rest_until(at_ns);
        self.quota_ns = at_ns;
        self.now_ns += exit_ns + scaled(shared.machine.kernel.switch_ns, self.factor);
        shared.switches += 1;
        Boundary::Again
    }

    /// Leaves the kernel for an event before `until_ns`.
    pub(super) fn interrupt(
        &mut self,
        shared: &mut Shared<'_>,
        until_ns: u64,
        since_ns: u64,
        exit_ns: u64,
    ) -> Boundary {
        if shared.interrupts.is_active() {
            return self.leave_kernel(shared, until_ns, since_ns, exit_ns);
        }
        let message = self.inbox.front().map_or(u64::MAX, |message| message.at_ns);
        let due_ns = self.wake_ns(shared);
        let is_own = due_ns == self.due_ns(shared);
        let event_ns = due_ns.min(message).min(self.idle_until_ns).max(since_ns);
        if event_ns >= until_ns {
            return Boundary::Wait;
        }
        let timer_ns = std::mem::replace(&mut self.idle_until_ns, u64::MAX);
        self.resumed = std::mem::take(&mut self.is_last);
        let kernel = shared.machine.kernel;
        let mut woken_ns = event_ns + self.late_ns(shared, event_ns - since_ns);
        if due_ns < message.min(timer_ns) {
            // a worker wakes first, on time, takes the request and notifies this core
            let worker_ns = kernel.shallow_exit_ns + scaled(kernel.interrupt_ns + kernel.switch_ns, self.factor);
            woken_ns += kernel.coalesce_ns + if is_own { 0 } else { worker_ns };
        }
        self.expected_idle_ns = (self.expected_idle_ns * 7 + (woken_ns - since_ns)) / 8;
        if std::mem::take(&mut self.rests_quietly) {
            self.quiet_rest_ns += woken_ns - since_ns;
        }
        self.wake_up(shared, woken_ns, exit_ns);
        self.mode = Mode::Polls;
        self.rest_until(woken_ns);
        let before_ns = self.now_ns;
        let cold_ns = shared.machine.sockets.cold_ns(woken_ns - since_ns);
        self.now_ns += exit_ns + scaled(kernel.interrupt_ns + kernel.switch_ns + cold_ns, self.factor);
        self.busy_ns += self.now_ns - before_ns;
        shared.switches += 1;
        Boundary::Again
    }

    /// Leaves a sleep for a message before `until_ns`.
    pub(super) fn wake(&mut self, shared: &mut Shared<'_>, until_ns: u64, since_ns: u64, exit_ns: u64) -> Boundary {
        if shared.interrupts.is_active() && self.leave_sleep(shared, until_ns, since_ns) {
            return Boundary::Again;
        }
        let Some(message) = self.inbox.front() else { return Boundary::Wait };
        let woken_ns = message.at_ns.max(since_ns);
        if woken_ns >= until_ns {
            return Boundary::Wait;
        }
        match message.kind {
            MessageKind::Offline { exit_ns } => {
                self.inbox.pop_front();
                self.leaves = true;
                self.mode = Mode::Sleeps { since_ns: woken_ns, exit_ns };
                self.turn(shared, woken_ns, State::Deep);
                return Boundary::Again;
            }
            MessageKind::Sleep { .. } => {
                self.inbox.pop_front(); // already asleep
                return Boundary::Again;
            }
            _ => {}
        }
        let woken_ns = woken_ns + self.late_ns(shared, woken_ns - since_ns);
        let cold_ns = shared.machine.sockets.cold_ns(woken_ns - since_ns);
        // The remainder of a software wake-up is kernel work on this core.
        let kernel = shared.machine.kernel;
        let latency_ns = if self.state == State::Deep { kernel.deep_exit_ns } else { kernel.shallow_exit_ns };
        self.wake_up(shared, woken_ns, exit_ns.min(latency_ns));
        self.mode = Mode::Polls;
        self.to_sleep = None;
        self.rest_until(woken_ns);
        self.now_ns += exit_ns + scaled(cold_ns, self.factor);
        Boundary::Again
    }

    /// How late the host of this virtual CPU ends a wait of `waited_ns`.
    fn late_ns(&mut self, shared: &Shared<'_>, waited_ns: u64) -> u64 {
        let sockets = &shared.machine.sockets;
        let is_late = sockets.host_wakes_ns > 0 && waited_ns > sockets.host_polls_ns;
        if is_late { self.delays.exponential(sockets.host_wakes_ns.into()) as u64 } else { 0 }
    }

    /// Leaves an idle state with this exit latency.
    pub(super) fn wake_up(&mut self, shared: &mut Shared<'_>, at_ns: u64, exit_ns: u64) {
        self.change(shared, Change { at_ns, state: State::Awake, exit_ns });
        shared.recorder.note(at_ns, RecordKind::Exits, u64::from(self.id), exit_ns);
    }
}
