//! A core whose I/O threads wait by interrupts that other cores may take ([`crate::engine::interrupts`]): it takes those of others,
//! runs its I/O threads in turn, and pays for each switch.

use super::{Boundary, Core, Mode};
use crate::engine::floor::{At, Floor, scaled};
use crate::trace::State;

impl Core {
    /// As [`Core::advance`].
    #[inline(never)] // beside the way of what is polled
    pub(super) fn advance_in_kernel(&mut self, floor: &mut Floor<'_>, until_ns: u64) -> bool {
        loop {
            self.take_interrupts(floor, until_ns);
            if self.mode == Mode::Polls && self.now_ns >= until_ns {
                return false;
            }
            if let Some(place) = self.place {
                self.serve(floor, place);
                continue;
            }
            match self.boundary(floor, until_ns) {
                Boundary::Loop => self.begin_loop(floor),
                Boundary::Again if !floor.mail.is_empty() => return false,
                Boundary::Again => {}
                Boundary::Wait => return false,
                Boundary::Ask => return true,
            }
        }
    }

    /// Interrupts that have come by now, and before `until_ns`, to a core that is not at rest: each takes its time from what the core does.
    fn take_interrupts(&mut self, floor: &mut Floor<'_>, until_ns: u64) {
        let throttled = match self.mode {
            Mode::Polls => false,
            Mode::Throttled { .. } => true, // the kernel runs, for a time that is not counted
            Mode::Sleeps { .. } | Mode::Idles { .. } => return,
        };
        let cost_ns = scaled(floor.machine.kernel.interrupt_ns, self.factor);
        loop {
            let come_ns = if throttled { until_ns } else { self.now_ns };
            let begins_ns = floor.interrupts.next_ns(self.id).max(self.interrupted_ns);
            if begins_ns >= until_ns {
                return;
            }
            let Some(interrupt) = floor.interrupts.pop(self.id, come_ns) else { return };
            self.interrupted_ns = begins_ns + cost_ns;
            floor.taken(self.id, &interrupt, begins_ns, self.interrupted_ns);
            while let Some(another) = floor.interrupts.pop_same(self.id, interrupt.source, begins_ns) {
                floor.taken(self.id, &another, begins_ns, self.interrupted_ns);
            }
            if !throttled {
                self.now_ns += cost_ns;
                self.busy_ns += cost_ns;
            }
        }
    }

    /// The turn of an I/O thread: first the switch to it, then its poll step, if it has anything to do.
    fn serve(&mut self, floor: &mut Floor<'_>, place: usize) {
        let Some(&thread) = self.ring.get(place) else {
            self.place = None;
            self.fruitless = !self.found;
            return;
        };
        let io = &floor.threads[usize::from(thread)];
        if floor.due_ns[usize::from(thread)] > self.now_ns {
            self.place = Some(place + 1);
            if io.is_polled() {
                self.now_ns += self.empty_loop(floor).step_ns;
            }
            return;
        }
        if self.runs != Some(thread) {
            let took_ns = scaled(floor.machine.kernel.switch_ns, self.factor);
            self.runs = Some(thread);
            self.now_ns += took_ns;
            self.busy_ns += took_ns;
            floor.switches += 1;
            return; // its step may begin in the next window
        }
        let took_ns = floor.poll(thread, At { core: self.id, now_ns: self.now_ns, factor: self.factor });
        self.now_ns += took_ns;
        self.busy_ns += took_ns;
        self.found = true;
        self.place = Some(place + 1);
    }

    /// When an I/O thread has something to do of a core that waits in the kernel, or a message is there, and the CPU time of the interrupt
    /// with which the core learns of it, if it is its own.
    pub(super) fn called(&self, floor: &Floor<'_>) -> (u64, u32) {
        let kernel = &floor.machine.kernel;
        let message = self.inbox.front().map_or((u64::MAX, 0), |message| (message.at_ns, kernel.interrupt_ns));
        let by = |taken: bool, at_ns: u64| {
            if taken { (at_ns, 0) } else { (at_ns.saturating_add(kernel.coalesce_ns), kernel.interrupt_ns) }
        };
        let of_thread = |&thread: &u16| {
            let (received_ns, completed_ns) = floor.threads[usize::from(thread)].comes_ns();
            let packet = by(floor.interrupts.takes_packets(), received_ns);
            packet.min(by(floor.interrupts.takes_completions(), completed_ns))
        };
        self.ring.iter().map(of_thread).fold(message, Ord::min)
    }

    /// Out of the kernel, for a call or for an interrupt that it takes, if one comes before `until_ns`.
    pub(super) fn leave_kernel(
        &mut self,
        floor: &mut Floor<'_>,
        until_ns: u64,
        since_ns: u64,
        exit_ns: u64,
    ) -> Boundary {
        let (called_ns, cost_ns) = self.called(floor);
        let interrupt_ns = floor.interrupts.next_ns(self.id);
        let woken_ns = called_ns.min(interrupt_ns).max(since_ns);
        if woken_ns >= until_ns {
            return Boundary::Wait;
        }
        self.expected_idle_ns = (self.expected_idle_ns * 7 + (woken_ns - since_ns)) / 8;
        self.leave_rest(floor, woken_ns, exit_ns);
        if called_ns <= interrupt_ns {
            let took_ns = scaled(cost_ns, self.factor);
            self.now_ns += took_ns;
            self.interrupted_ns = self.now_ns;
            self.busy_ns += exit_ns + took_ns;
            self.fruitless = false;
        }
        Boundary::Again
    }

    /// Whether a core that has looked in vain has to look again before it waits in the kernel: something has come since, or, where it has
    /// only taken interrupts of others since it was woken, it is called.
    pub(super) fn looks_again(&mut self, floor: &Floor<'_>) -> bool {
        if self.runs.is_some() {
            return self.due_ns(floor) <= self.now_ns;
        }
        let (called_ns, cost_ns) = self.called(floor);
        if called_ns > self.now_ns {
            return false;
        }
        let took_ns = scaled(cost_ns, self.factor);
        self.now_ns += took_ns;
        self.busy_ns += took_ns;
        true
    }

    /// Out of a sleep for an interrupt that it takes, if one comes before `until_ns` and any message.
    pub(super) fn leave_sleep(&mut self, floor: &mut Floor<'_>, until_ns: u64, since_ns: u64) -> bool {
        let interrupt_ns = floor.interrupts.next_ns(self.id).max(since_ns);
        let message_ns = self.inbox.front().map_or(u64::MAX, |message| message.at_ns.max(since_ns));
        if interrupt_ns >= until_ns || message_ns <= interrupt_ns {
            return false;
        }
        let kernel = floor.machine.kernel;
        let exit_ns = if self.state == State::Deep { kernel.deep_exit_ns } else { kernel.shallow_exit_ns };
        self.leave_rest(floor, interrupt_ns, exit_ns);
        true
    }

    /// Out of a rest; back into it at the next boundary at which there is nothing to do.
    fn leave_rest(&mut self, floor: &mut Floor<'_>, woken_ns: u64, exit_ns: u64) {
        self.wake_up(floor, woken_ns, exit_ns);
        self.mode = Mode::Polls;
        self.rest_until(woken_ns);
        self.now_ns += exit_ns;
        self.interrupted_ns = self.now_ns;
        self.runs = None;
        self.fruitless = true;
    }
}
