//! A core on a machine where cores take interrupts for others ([`crate::engine::interrupts`]): it handles their interrupts, runs its I/O
//! threads in turn, and charges each context switch.

use super::{Boundary, Core, Mode};
use crate::engine::shared::{CoreTime, Shared, scaled};
use crate::trace::State;

impl Core {
    /// As [`Core::advance`].
    #[inline(never)] // not on the polled path
    pub(super) fn advance_in_kernel(&mut self, shared: &mut Shared<'_>, until_ns: u64) -> bool {
        loop {
            self.take_interrupts(shared, until_ns);
            if self.mode == Mode::Polls && self.now_ns >= until_ns {
                return false;
            }
            if let Some(place) = self.place {
                self.serve(shared, place);
                continue;
            }
            match self.boundary(shared, until_ns) {
                Boundary::Loop => self.begin_loop(shared),
                Boundary::Again if !shared.messages.is_empty() => return false,
                Boundary::Again => {}
                Boundary::Wait => return false,
                Boundary::CallPolicy => return true,
            }
        }
    }

    /// Handles pending interrupts before `until_ns` on a core that is not at rest.
    fn take_interrupts(&mut self, shared: &mut Shared<'_>, until_ns: u64) {
        let throttled = match self.mode {
            Mode::Polls => false,
            Mode::Throttled { .. } => true, // kernel time is not charged to the quota
            Mode::Sleeps { .. } | Mode::Idles { .. } => return,
        };
        let cost_ns = scaled(shared.machine.kernel.interrupt_ns, self.factor);
        loop {
            let come_ns = if throttled { until_ns } else { self.now_ns };
            let begins_ns = shared.interrupts.next_ns(self.id).max(self.interrupted_ns);
            if begins_ns >= until_ns {
                return;
            }
            let Some(interrupt) = shared.interrupts.pop(self.id, come_ns) else { return };
            self.interrupted_ns = begins_ns + cost_ns;
            shared.taken(self.id, &interrupt, begins_ns, self.interrupted_ns);
            while let Some(another) = shared.interrupts.pop_same(self.id, interrupt.source, begins_ns) {
                shared.taken(self.id, &another, begins_ns, self.interrupted_ns);
            }
            if !throttled {
                self.now_ns += cost_ns;
                self.busy_ns += cost_ns;
            }
        }
    }

    /// Runs an I/O thread that has work: first the context switch, then its poll step.
    fn serve(&mut self, shared: &mut Shared<'_>, place: usize) {
        let Some(&thread) = self.ring.get(place) else {
            self.place = None;
            self.loop_was_empty = !self.found;
            return;
        };
        let io = &shared.threads[usize::from(thread)];
        if shared.due_ns[usize::from(thread)] > self.now_ns {
            self.place = Some(place + 1);
            if io.is_polled() {
                self.now_ns += self.empty_loop(shared).step_ns;
            }
            return;
        }
        if self.runs != Some(thread) {
            let took_ns = scaled(shared.machine.kernel.switch_ns, self.factor);
            self.runs = Some(thread);
            self.now_ns += took_ns;
            self.busy_ns += took_ns;
            shared.switches += 1;
            return; // its step may begin in the next window
        }
        let took_ns = shared.poll(thread, CoreTime { core: self.id, now_ns: self.now_ns, factor: self.factor });
        self.now_ns += took_ns;
        self.busy_ns += took_ns;
        self.found = true;
        self.place = Some(place + 1);
    }

    /// For a core that waits in the kernel: time of the next event or message, and CPU time of the interrupt, if it is its own.
    pub(super) fn called(&self, shared: &Shared<'_>) -> (u64, u32) {
        let kernel = &shared.machine.kernel;
        let message = self.inbox.front().map_or((u64::MAX, 0), |message| (message.at_ns, kernel.interrupt_ns));
        let by = |taken: bool, at_ns: u64| {
            if taken { (at_ns, 0) } else { (at_ns.saturating_add(kernel.coalesce_ns), kernel.interrupt_ns) }
        };
        let of_thread = |&thread: &u16| {
            let (received_ns, completed_ns) = shared.threads[usize::from(thread)].comes_ns();
            let packet = by(shared.interrupts.takes_packets(), received_ns);
            packet.min(by(shared.interrupts.takes_completions(), completed_ns))
        };
        self.ring.iter().map(of_thread).fold(message, Ord::min)
    }

    /// Leaves the kernel for an event or an interrupt before `until_ns`.
    pub(super) fn leave_kernel(
        &mut self,
        shared: &mut Shared<'_>,
        until_ns: u64,
        since_ns: u64,
        exit_ns: u64,
    ) -> Boundary {
        let (called_ns, cost_ns) = self.called(shared);
        let interrupt_ns = shared.interrupts.next_ns(self.id);
        let woken_ns = called_ns.min(interrupt_ns).max(since_ns);
        if woken_ns >= until_ns {
            return Boundary::Wait;
        }
        self.expected_idle_ns = (self.expected_idle_ns * 7 + (woken_ns - since_ns)) / 8;
        self.leave_rest(shared, woken_ns, exit_ns);
        if called_ns <= interrupt_ns {
            let took_ns = scaled(cost_ns, self.factor);
            self.now_ns += took_ns;
            self.interrupted_ns = self.now_ns;
            self.busy_ns += exit_ns + took_ns;
            self.loop_was_empty = false;
        }
        Boundary::Again
    }

    /// Whether a core must poll again before it waits in the kernel, as an event has arrived since its last empty loop.
    pub(super) fn must_poll_again(&mut self, shared: &Shared<'_>) -> bool {
        if self.runs.is_some() {
            return self.due_ns(shared) <= self.now_ns;
        }
        let (called_ns, cost_ns) = self.called(shared);
        if called_ns > self.now_ns {
            return false;
        }
        let took_ns = scaled(cost_ns, self.factor);
        self.now_ns += took_ns;
        self.busy_ns += took_ns;
        true
    }

    /// Leaves a sleep for an interrupt before `until_ns` and before any message.
    pub(super) fn leave_sleep(&mut self, shared: &mut Shared<'_>, until_ns: u64, since_ns: u64) -> bool {
        let interrupt_ns = shared.interrupts.next_ns(self.id).max(since_ns);
        let message_ns = self.inbox.front().map_or(u64::MAX, |message| message.at_ns.max(since_ns));
        if interrupt_ns >= until_ns || message_ns <= interrupt_ns {
            return false;
        }
        let kernel = shared.machine.kernel;
        let exit_ns = if self.state == State::Deep { kernel.deep_exit_ns } else { kernel.shallow_exit_ns };
        self.leave_rest(shared, interrupt_ns, exit_ns);
        true
    }

    /// Leaves a rest; it resumes at the next boundary without work.
    fn leave_rest(&mut self, shared: &mut Shared<'_>, woken_ns: u64, exit_ns: u64) {
        self.wake_up(shared, woken_ns, exit_ns);
        self.mode = Mode::Polls;
        self.rest_until(woken_ns);
        self.now_ns += exit_ns;
        self.interrupted_ns = self.now_ns;
        self.runs = None;
        self.loop_was_empty = true;
    }
}
