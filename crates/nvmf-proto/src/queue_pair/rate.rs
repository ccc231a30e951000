//! Admin commands beyond their host's rate ([`Admission::take_command`]) wait in their slots.
//!
//! Keep Alive, Abort and Async Event Request do not count: they keep an association alive, or wait anyway. Nor do Fabrics commands. A
//! server that stops executes what waits.

use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::opcode::admin::{ABORT, ASYNC_EVENT_REQUEST, KEEP_ALIVE};

use super::io::Step;
use super::slots::State;
use super::{Cx, Gate, QueuePair, Role, Transport};
use crate::command::Work;
use crate::services::{Admission, Services};

impl<T: Transport, S: Services> QueuePair<T, S> {
    /// Executes the admin command in `index`, or has it wait for its host's rate.
    pub(super) fn admin_step(&mut self, index: u16, sqe: &Sqe, cx: &mut Cx<S>) -> Step {
        let (Some(queue), Role::Admin(admin)) = (&mut self.queue, &mut self.role) else { return Step::Handled };
        let is_free = matches!(sqe.opcode, KEEP_ALIVE | ABORT | ASYNC_EVENT_REQUEST) || self.gate == Gate::Drain;
        let due_ns = match queue.admission.has_rate() && !is_free {
            true if admin.delayed_until_ns == u64::MAX => queue.admission.take_command(cx.now_ns).err(),
            true => Some(admin.delayed_until_ns), // behind the others
            false => None,
        };
        let slot = queue.slots.get(index);
        if let Some(due_ns) = due_ns {
            (slot.work, slot.state) = (Work::AwaitRate(*sqe), State::Parked);
            admin.delayed_until_ns = due_ns;
            self.deadline_ns = self.deadline_ns.min(due_ns);
            return Step::Handled;
        }
        slot.work = Work::Counted(*sqe);
        self.counted_step(index, sqe, cx)
    }

    /// Resumes commands that waited for their host's rate, the oldest first.
    pub(super) fn resume_delayed_commands(&mut self, cx: &mut Cx<S>) {
        loop {
            let (Some(queue), Role::Admin(admin)) = (&mut self.queue, &mut self.role) else { return };
            if admin.delayed_until_ns > cx.now_ns {
                return;
            }
            if self.gate == Gate::Authenticate {
                admin.delayed_until_ns = u64::MAX; // re-authentication has failed: the connection ends
                return;
            }
            let waiting = queue.slots.iter_mut().filter_map(|(index, slot)| match slot.work {
                Work::AwaitRate(sqe) if slot.state == State::Parked => Some((slot.arrived_ns, index, sqe)),
                _ => None,
            });
            let Some((_, index, sqe)) = waiting.min_by_key(|(arrived_ns, ..)| *arrived_ns) else {
                admin.delayed_until_ns = u64::MAX;
                return;
            };
            if self.gate != Gate::Drain
                && let Err(due_ns) = queue.admission.take_command(cx.now_ns)
            {
                admin.delayed_until_ns = due_ns;
                return;
            }
            queue.slots.get(index).work = Work::Counted(sqe);
            self.drive(index, cx);
        }
    }

    /// When a command that waits, or re-authentication, is due in nanoseconds.
    pub(super) fn other_due_ns(&self) -> u64 {
        let delayed_ns = match &self.role {
            Role::Admin(admin) => admin.delayed_until_ns,
            _ => u64::MAX,
        };
        delayed_ns.min(self.authentication_due_ns())
    }

    /// The server stops: what waits is executed at the next check of deadlines.
    pub(super) fn hurry_delayed_commands(&mut self) {
        if let Role::Admin(admin) = &mut self.role
            && admin.delayed_until_ns < u64::MAX
        {
            admin.delayed_until_ns = 0;
            self.deadline_ns = 0;
        }
    }
}
