//! Execution of commands, and their costs for the main core.

use pilotlight_plant::{Command, CompletionMode, CoreId, Depth, Kind, KnobId, Refusal, Scope, SleepCost, ThreadId};

use super::Director;
use crate::engine::abilities::STORE_NS;
use crate::engine::core::Core;
use crate::engine::meter::Metering;
use crate::engine::shared::{DriveOrder, IoThread, Message, MessageKind, Shared};
use crate::machine::Machine;
use crate::rng::below;
use crate::trace::RecordKind;

impl Director {
    pub(super) fn carry_out(&mut self, cores: &mut [Core], meter: &mut dyn Metering, shared: &mut Shared<'_>) {
        let commands = std::mem::take(&mut self.commands);
        for command in &commands {
            let main = self.topology.main().index();
            let carried_out = if self.fails(command, shared.machine) {
                Self::spend_on(command, &mut cores[main], shared.machine);
                Err(Refusal::Failed)
            } else {
                let (what, argument) = command_code(command);
                shared.recorder.note(cores[main].now_ns, RecordKind::Commanded, what, argument);
                self.apply(command, cores, meter, shared)
            };
            if let Err(refusal) = carried_out {
                self.decisions.refused += 1;
                self.policy.on_refused(cores[main].now_ns, command, refusal);
            }
        }
        self.commands = commands;
        self.commands.clear();
    }

    /// Whether a command fails.
    fn fails(&mut self, command: &Command, machine: &Machine) -> bool {
        let can_fail = matches!(command, Command::Move { .. } | Command::Sleep { .. } | Command::Set { .. });
        let fails_ppm = u64::from(machine.director.fails_ppm);
        can_fail && fails_ppm > 0 && below(self.failures.draw(), 1_000_000) < fails_ppm
    }

    /// Charges the main core for a failed command.
    fn spend_on(command: &Command, main: &mut Core, machine: &Machine) {
        let set = matches!(command, Command::Set { .. });
        main.spend(if set { machine.director.frequency_ns } else { STORE_NS });
    }

    fn apply(
        &mut self,
        command: &Command,
        cores: &mut [Core],
        meter: &mut dyn Metering,
        shared: &mut Shared<'_>,
    ) -> Result<(), Refusal> {
        let main = self.topology.main().index();
        match *command {
            Command::Move { thread, to } => self.send_thread(thread, to, cores, shared),
            Command::Sleep { core, goal } => {
                if core.index() >= cores.len() {
                    return Err(Refusal::Unknown);
                }
                if core.index() == main {
                    return Err(Refusal::MainCore);
                }
                self.check_there(core)?;
                Self::check_empty(core, shared)?;
                let sleep = self.capabilities.sleep_for(goal).ok_or(Refusal::Unsupported)?;
                self.asleep[core.index()] = Some(sleep.depth);
                self.decisions.sleeps += 1;
                let at_ns = cores[main].spend(STORE_NS);
                let monitor = sleep.depth == Depth::MonitorWait;
                let deep = !monitor && shared.machine.power.family.kernel_idles_deep;
                let exit_ns = sleep.wake.ns();
                cores[core.index()].deliver(Message { at_ns, kind: MessageKind::Sleep { deep, exit_ns } });
                Ok(())
            }
            Command::Wake { core } => {
                if core.index() >= cores.len() {
                    return Err(Refusal::Unknown);
                }
                self.check_there(core)?;
                self.wake(core, cores, shared.machine);
                Ok(())
            }
            Command::Completions { thread, mode } => {
                let io = shared.threads.get_mut(thread.index()).ok_or(Refusal::Unknown)?;
                io.set_how(mode);
                if shared.interrupts.begin(mode) {
                    cores.iter_mut().for_each(Core::reset_empty_loop);
                }
                if let Some(home) = io.home {
                    cores[usize::from(home)].reset_empty_loop();
                    let at_ns = cores[main].spend(STORE_NS);
                    cores[usize::from(home)].deliver(Message { at_ns, kind: MessageKind::Wake });
                }
                Ok(())
            }
            Command::Set { knob, value } => self.set(knob, value, cores, meter, shared),
        }
    }

    /// Sets a knob at the cost of a write to a kernel file.
    fn set(
        &mut self,
        id: KnobId,
        value: u64,
        cores: &mut [Core],
        meter: &mut dyn Metering,
        shared: &mut Shared<'_>,
    ) -> Result<(), Refusal> {
        let knob = self.capabilities.knob(id).filter(|knob| knob.values.lowest().is_some());
        let (of, kind) = knob.map(|knob| (knob.scope, knob.kind)).ok_or(Refusal::Unknown)?;
        // Caps and rates are variables of the server; all others are kernel files.
        let cost_ns = if matches!(kind, Kind::BytesPerS | Kind::RatePpm) {
            STORE_NS
        } else {
            shared.machine.director.frequency_ns
        };
        let at_ns = cores[self.topology.main().index()].spend(cost_ns);
        if let (Scope::Core(core), Kind::FrequencyKhz) = (of, kind) {
            self.decisions.frequencies += 1;
            shared.recorder.note(at_ns, RecordKind::Ordered, u64::from(core.0), value);
        }
        if !self.set.contains(&id) {
            self.set.push(id);
        }
        self.apply_knob(id, value, at_ns, cores, meter, shared)
    }

    /// Restores a knob at `at_ns`.
    pub(super) fn restore_knob(
        &mut self,
        id: KnobId,
        at_ns: u64,
        cores: &mut [Core],
        meter: &mut dyn Metering,
        shared: &mut Shared<'_>,
    ) {
        let Some(knob) = self.capabilities.knob(id) else { return };
        let value = knob.initial;
        if let (Scope::Core(core), Kind::FrequencyKhz) = (knob.scope, knob.kind) {
            shared.recorder.note(at_ns, RecordKind::Ordered, u64::from(core.0), value);
        }
        // A knob that was set before cannot be refused.
        let _ = self.apply_knob(id, value, at_ns, cores, meter, shared);
    }

    fn apply_knob(
        &mut self,
        id: KnobId,
        value: u64,
        at_ns: u64,
        cores: &mut [Core],
        meter: &mut dyn Metering,
        shared: &mut Shared<'_>,
    ) -> Result<(), Refusal> {
        let knob = self.capabilities.knob(id).ok_or(Refusal::Unknown)?;
        match (knob.scope, knob.kind) {
            (Scope::Core(core), Kind::FrequencyKhz) => {
                meter.order(at_ns, core.index(), u32::try_from(value).unwrap_or(u32::MAX));
            }
            (_, Kind::LimitUw) => meter.limit(at_ns, (value < knob.initial).then_some(value)),
            (_, Kind::QuotaPpm) => {
                self.quota.0 = (value < knob.initial).then_some(value);
                self.limit_time(at_ns, cores, shared);
            }
            (_, Kind::QuotaPeriodNs) => {
                self.quota.1 = knob.values.nearest(value).unwrap_or(knob.initial);
                self.limit_time(at_ns, cores, shared);
            }
            (of, Kind::BytesPerS) => {
                let value = knob.values.nearest(value).unwrap_or(value);
                shared.caps.order(at_ns, of, (value < knob.initial).then_some(value));
            }
            (Scope::Background(class), Kind::RatePpm) => {
                let value = knob.values.nearest(value).unwrap_or(knob.initial);
                shared.background.order(at_ns, class, value);
                shared.look_at_background();
            }
            (Scope::Device(drive), Kind::PowerState) => {
                let state = knob.values.nearest(value).unwrap_or(knob.initial);
                shared.drive_orders.push((at_ns, drive, DriveOrder::PowerState(state as usize)));
            }
            (Scope::Device(drive), Kind::WakeLimitNs) => {
                let limit_ns = knob.values.nearest(value).unwrap_or(knob.initial);
                shared.drive_orders.push((at_ns, drive, DriveOrder::WakeLimitNs(limit_ns)));
            }
            (Scope::Core(core), Kind::Online) => return self.switch(core, value > 0, at_ns, cores, shared),
            _ => return Err(Refusal::Unsupported),
        }
        Ok(())
    }

    /// Refuses cores that are offline, going offline, or scheduled.
    fn check_there(&self, core: CoreId) -> Result<(), Refusal> {
        let scheduled = core.index() >= self.first_scheduled;
        if scheduled || self.asleep[core.index()] == Some(Depth::Offline) { Err(Refusal::Unknown) } else { Ok(()) }
    }

    fn check_empty(core: CoreId, shared: &Shared<'_>) -> Result<(), Refusal> {
        let pending = |thread: &IoThread| thread.destination == core.0 && thread.home != Some(core.0);
        if shared.threads.iter().any(pending) { Err(Refusal::NotEmpty) } else { Ok(()) }
    }

    /// Takes a core online, or offline as soon as it has no I/O thread; hotplug operations are sequential.
    fn switch(
        &mut self,
        core: CoreId,
        on: bool,
        at_ns: u64,
        cores: &mut [Core],
        shared: &Shared<'_>,
    ) -> Result<(), Refusal> {
        let hotplug = shared.machine.hotplug.ok_or(Refusal::Unsupported)?;
        if self.check_there(core).is_ok() == on {
            return Ok(());
        }
        let begin_ns = self.ready_ns[core.index()].max(at_ns);
        if on {
            self.asleep[core.index()] = None;
            cores[core.index()].deliver(Message { at_ns: begin_ns, kind: MessageKind::Online });
            self.ready_ns[core.index()] = begin_ns + hotplug.online_ns;
            return Ok(());
        }
        Self::check_empty(core, shared)?;
        self.asleep[core.index()] = Some(Depth::Offline);
        let (gone_ns, exit_ns) = (begin_ns + hotplug.offline_ns, hotplug.online_ns);
        cores[core.index()].deliver(Message { at_ns: gone_ns, kind: MessageKind::Offline { exit_ns } });
        self.ready_ns[core.index()] = gone_ns + 1; // after it has read the message
        Ok(())
    }

    /// Applies quota and period from `at_ns` on.
    fn limit_time(&self, at_ns: u64, cores: &mut [Core], shared: &mut Shared<'_>) {
        let (quota_ppm, period_ns) = self.quota;
        shared.quota.order(at_ns, quota_ppm.map(|ppm| ppm * period_ns / 1_000_000), period_ns);
        self.limited.iter().for_each(|core| cores[core.index()].follow_quota(at_ns));
    }

    /// Wakes a core, at the waker's cost.
    fn wake(&mut self, core: CoreId, cores: &mut [Core], machine: &Machine) {
        let main = self.topology.main().index();
        let slept = self.asleep[core.index()].take();
        let cost = self.capabilities.sleeps.iter().find(|sleep| Some(sleep.depth) == slept).copied();
        self.decisions.wakes += u64::from(slept.is_some());
        let at_ns = cores[main].spend(cost.map_or(STORE_NS, |cost| cost.waker.ns() as u32));
        cores[core.index()].deliver(Message { at_ns, kind: MessageKind::Wake });
        let waits = |cost: &SleepCost| cost.depth == Depth::SoftwareWait && !machine.director.leaves_at_once;
        if let Some(cost) = cost.filter(waits) {
            self.ready_ns[core.index()] = at_ns + cost.wake.ns();
        }
    }

    /// Moves a thread. A core that software wakes is awake before the thread leaves its old core, unless `leaves_at_once`.
    fn send_thread(
        &mut self,
        thread: ThreadId,
        to: CoreId,
        cores: &mut [Core],
        shared: &mut Shared<'_>,
    ) -> Result<(), Refusal> {
        let main = self.topology.main().index();
        if to.index() >= cores.len() || thread.index() >= shared.threads.len() {
            return Err(Refusal::Unknown);
        }
        self.check_there(to)?;
        if self.asleep[to.index()].is_some() {
            self.wake(to, cores, shared.machine);
        }
        let io = &mut shared.threads[thread.index()];
        let settled = io.home == Some(io.destination);
        let Some(home) = io.home else {
            io.destination = to.0; // forwarded on arrival
            return Ok(());
        };
        if settled && home != to.0 {
            shared.moving += 1;
        } else if !settled && home == to.0 {
            shared.moving -= 1;
        }
        io.destination = to.0;
        io.orders += 1;
        let order = io.orders;
        if home == to.0 {
            return Ok(());
        }
        self.moves += 1;
        self.decisions.moves += 1;
        let sent_ns = cores[main].spend(STORE_NS);
        let at_ns = self.ready_ns[to.index()].max(sent_ns);
        cores[usize::from(home)].deliver(Message { at_ns, kind: MessageKind::MoveOut(thread.0, order) });
        Ok(())
    }
}

/// Encodes a command for a trace: code and argument.
#[must_use]
pub fn command_code(command: &Command) -> (u64, u64) {
    let pair = |high: u16, low: u64| (u64::from(high) << 32) | low;
    match *command {
        Command::Move { thread, to } => (1, pair(thread.0, u64::from(to.0))),
        Command::Sleep { core, goal } => (2, pair(core.0, goal.wake_within_ns.min(u64::from(u32::MAX)))),
        Command::Wake { core } => (3, pair(core.0, 0)),
        Command::Completions { thread, mode } => {
            let how = match mode {
                CompletionMode::Poll => 0,
                CompletionMode::Interrupt => 1,
                CompletionMode::Hybrid { idle_ns, rest_ns } => 2 + u64::from(idle_ns.max(rest_ns)),
            };
            (4, pair(thread.0, how))
        }
        Command::Set { knob, value } => (5, pair(knob.0, value.min(u64::from(u32::MAX)))),
    }
}
