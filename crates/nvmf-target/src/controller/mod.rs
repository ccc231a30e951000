//! A controller: what one host sees of a subsystem, as a pure state machine.
//!
//! No socket, no clock, no thread: commands, properties, time and events come in as arguments, answers go out as values.
//! The admin queue's connection owns the controller and carries out what it decides.
//!
//! | file | what it answers |
//! |---|---|
//! | `mod.rs` | properties, enabling, shutdown, keep-alive, which command goes where |
//! | `identify.rs` | Identify |
//! | `logs.rs` | Get Log Page |
//! | `features.rs` | Set Features and Get Features |
//! | `power.rs` | power states, where they are shown |
//! | `events.rs` | asynchronous events: what is pending, masked, parked |
//!
//! Properties: no admin command is carried out before CC.EN; an event of a kind is reported once until its log page has
//! been read; a silent host is found out once it has said nothing for one and a quarter keep-alive timeouts.

mod events;
mod features;
mod identify;
mod logs;
mod power;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use pilotlight_nvme::command::opcode::admin;
use pilotlight_nvme::fabrics::{CAP_CRWMS, PropertyCmd, cap, cc, csts, property};
use pilotlight_nvme::log::GetLogPage;
use pilotlight_nvme::{Sqe, Status};

use crate::buffer::MAX_BUFFER;
use crate::discovery::DiscoveryLog;
use crate::stats::Totals;
use crate::subsystem::{NamespaceInfo, Subsystem};
use events::Events;
use features::Features;
pub use identify::reports_utilization;
use logs::ErrorLog;

/// Version 2.0 of the specification, as VS says it.
const VERSION: u32 = 0x0002_0000;
/// Time that a change of CSTS.RDY may take at most, in units of 500 ms.
const READY_TIMEOUT: u8 = 30;
/// The part of the keep-alive timeout that a host may be late, as a divisor. Linux before 6.5, told of traffic based
/// keep-alive, sends its Keep Alive as late as one whole timeout after other traffic; the way here comes on top.
const GRACE: u64 = 4;

/// What kind of controller.
#[derive(Clone, Debug)]
pub enum ControllerKind {
    /// I/O, of this subsystem.
    Io(Arc<Subsystem>),
    /// Discovery.
    Discovery,
}

/// What a new controller is given.
#[derive(Clone, Debug)]
pub struct ControllerParams {
    /// Controller identifier.
    pub cntlid: u16,
    /// I/O or discovery.
    pub kind: ControllerKind,
    /// Host identifier.
    pub hostid: [u8; 16],
    /// Host NQN.
    pub hostnqn: String,
    /// Keep-alive timeout that Connect asked for in milliseconds; 0 for none.
    pub kato_ms: u32,
    /// Most I/O queues.
    pub max_io_queues: u16,
    /// Most entries of a queue.
    pub max_queue_depth: u16,
    /// Monotonic time in nanoseconds.
    pub now_ns: u64,
    /// Whether the host is shown power states that it can set. They save nothing.
    pub power_states: bool,
}

/// What an admin command may look at.
pub struct AdminEnv<'a> {
    /// The subsystem's namespaces by ascending NSID.
    pub namespaces: &'a [(u32, NamespaceInfo)],
    /// What the server has counted.
    pub counters: &'a Totals,
    /// Time since the server started.
    pub power_on: Duration,
    /// The discovery log.
    pub discovery: &'a DiscoveryLog,
    /// The address at which the host has reached the server.
    pub reached: Option<IpAddr>,
}

/// What setting a property asks of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// The controller is enabled.
    Enabled,
    /// The controller is being reset: end the I/O queues, then call [`Controller::reset_done`].
    Reset,
    /// The controller is being shut down: flush, then call [`Controller::shutdown_done`] or
    /// [`Controller::shutdown_failed`].
    Shutdown {
        /// Whether the host is in a hurry.
        abrupt: bool,
    },
}

/// What came of an admin command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answer it.
    Complete {
        /// The status.
        status: Status,
        /// Dwords 0 and 1 of the completion.
        result: u64,
    },
    /// Keep it open until [`Controller::take_event_completion`] names it.
    Parked,
    /// Abort command `cid` of queue `sqid`, then answer.
    Abort {
        /// The queue.
        sqid: u16,
        /// The command.
        cid: u16,
    },
}

impl Outcome {
    const SUCCESS: Self = Self::Complete { status: Status::SUCCESS, result: 0 };

    const fn error(status: Status) -> Self {
        Self::Complete { status: status.dnr(), result: 0 }
    }

    const fn result(result: u32) -> Self {
        Self::Complete { status: Status::SUCCESS, result: result as u64 }
    }
}

/// One host's controller.
#[derive(Debug)]
pub struct Controller {
    params: ControllerParams,
    cc: u32,
    csts: u32,
    /// The host has cleared CC.EN and its I/O queues are still there.
    resetting: bool,
    /// When the controller was last enabled: the timestamp counts from here until the host sets it.
    enabled_ns: u64,
    heard_ns: u64,
    features: Features,
    events: Events,
    errors: ErrorLog,
}

impl Controller {
    /// Bytes that a controller allocates beside itself, at most.
    pub(crate) const HEAP_BYTES: usize = events::HEAP_BYTES + logs::HEAP_BYTES;

    /// A controller that is not enabled yet.
    #[must_use]
    pub fn new(params: ControllerParams) -> Self {
        let features = Features::new(&params);
        let now_ns = params.now_ns;
        Self {
            params,
            cc: 0,
            csts: 0,
            resetting: false,
            enabled_ns: now_ns,
            heard_ns: now_ns,
            features,
            events: Events::default(),
            errors: ErrorLog::default(),
        }
    }

    fn is_discovery(&self) -> bool {
        matches!(self.params.kind, ControllerKind::Discovery)
    }

    /// Whether I/O queues may connect.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.csts & csts::RDY != 0 && self.cc & cc::EN != 0
    }

    /// The highest queue identifier that may connect.
    #[must_use]
    pub fn granted_io_queues(&self) -> u16 {
        if self.is_discovery() { 0 } else { self.features.granted_queues() }
    }

    /// An I/O queue has connected: the number of queues is settled until the next reset.
    pub fn io_queue_connected(&mut self) {
        self.features.settle_queues();
    }

    /// Property Get (Base 6.6).
    ///
    /// # Errors
    /// Invalid Field for a property or size that does not exist.
    pub fn property_get(&self, cmd: &PropertyCmd) -> Result<u64, Status> {
        // Without Do Not Retry: nvme-cli 2.3 reads every register that PCIe has and gives up at any other answer.
        let invalid = Status::INVALID_FIELD;
        let (value, is_wide) = match cmd.offset {
            property::CAP => (cap(self.params.max_queue_depth, READY_TIMEOUT) | CAP_CRWMS, true),
            property::VS => (u64::from(VERSION), false),
            property::CC => (u64::from(self.cc), false),
            property::CSTS => (u64::from(self.csts), false),
            property::CRTO => (u64::from(READY_TIMEOUT), false),
            _ => return Err(invalid),
        };
        if cmd.wide == Some(is_wide) { Ok(value) } else { Err(invalid) }
    }

    /// Property Set (Base 6.7): CC is the only property that can be set.
    ///
    /// # Errors
    /// Invalid Field for anything else and for a reserved shutdown notification; Command Sequence Error while a reset is
    /// in progress, whose end the host has to await (Base 3.5.3).
    pub fn property_set(&mut self, cmd: &PropertyCmd, now_ns: u64) -> Result<Effect, Status> {
        let new = cmd.value as u32;
        if cmd.offset != property::CC || cmd.wide != Some(false) || cc::shn(new) == 3 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        if self.resetting {
            return Err(Status::COMMAND_SEQUENCE);
        }
        let old = std::mem::replace(&mut self.cc, new);
        self.heard_ns = now_ns;
        if old & cc::EN != 0 && new & cc::EN == 0 {
            self.resetting = true;
            return Ok(Effect::Reset);
        }
        if cc::shn(old) == 0 && cc::shn(new) != 0 {
            self.csts |= csts::SHST_OCCURRING;
            return Ok(Effect::Shutdown { abrupt: cc::shn(new) == 2 });
        }
        if old & cc::EN == 0 && new & cc::EN != 0 {
            return Ok(self.enable(new, now_ns));
        }
        Ok(Effect::None)
    }

    fn enable(&mut self, cc: u32, now_ns: u64) -> Effect {
        let (css, mps, ams, iosqes, iocqes) =
            (cc >> 4 & 7, cc >> 7 & 0xf, cc >> 11 & 7, cc >> 16 & 0xf, cc >> 20 & 0xf);
        let sizes_fit = matches!(iosqes, 0 | 6) && matches!(iocqes, 0 | 4); // 0: a host that uses no I/O queues
        if css != 0 || mps != 0 || ams != 0 || !sizes_fit {
            self.csts |= csts::CFS;
            return Effect::None;
        }
        self.csts = csts::RDY;
        self.enabled_ns = now_ns;
        Effect::Enabled
    }

    /// The I/O queues of a controller that is being reset are gone.
    pub fn reset_done(&mut self) {
        self.csts = 0;
        self.resetting = false;
        self.events = Events::default();
        self.features = Features::new(&self.params);
    }

    /// Everything is flushed: the shutdown is complete, unless a reset has overtaken it.
    pub fn shutdown_done(&mut self) {
        if self.csts & csts::SHST_OCCURRING == 0 {
            return;
        }
        self.csts = self.csts & !csts::SHST_OCCURRING | csts::SHST_COMPLETE;
    }

    /// Not everything could be flushed. Shutdown processing never completes (CSTS.SHST stays 01b), and Controller Fatal
    /// Status says why (Base 3.1.4.6): the host's way on is a reset. Unless a reset has overtaken the shutdown.
    pub fn shutdown_failed(&mut self) {
        if self.csts & csts::SHST_OCCURRING != 0 {
            self.csts |= csts::CFS;
        }
    }

    /// Something was heard from the host, on any of its queues (TBKAS).
    pub fn traffic(&mut self, now_ns: u64) {
        self.heard_ns = now_ns;
    }

    /// Something was heard from the host on an I/O queue.
    pub fn io_traffic(&mut self, now_ns: u64) {
        self.traffic(now_ns);
        if let Some(power) = &mut self.features.power {
            power.io(now_ns);
        }
    }

    /// The power state as of the last command; `None` where none are shown.
    #[must_use]
    pub fn power_state(&self) -> Option<u8> {
        self.features.power.as_ref().map(power::Power::state)
    }

    /// The keep-alive timeout in nanoseconds; `None` without one.
    #[must_use]
    pub fn kato_ns(&self) -> Option<u64> {
        let ms = self.features.kato_ms();
        (ms > 0).then_some(u64::from(ms) * 1_000_000)
    }

    /// Whether the host has been silent for longer than its keep-alive timeout, and a quarter of it for being late.
    #[must_use]
    pub fn expired(&self, now_ns: u64) -> bool {
        self.kato_ns().is_some_and(|kato| now_ns.saturating_sub(self.heard_ns) > kato + kato / GRACE)
    }

    /// Bytes that an admin command brings from the host.
    ///
    /// # Errors
    /// None today: commands that would be refused bring nothing.
    pub fn host_data_len(&self, sqe: &Sqe) -> Result<u32, Status> {
        Ok(if sqe.opcode == admin::SET_FEATURES { self.features.data_len(sqe.cdw10() as u8) } else { 0 })
    }

    /// Bytes that an admin command takes to the host.
    ///
    /// # Errors
    /// Invalid Field if they are more than MDTS allows.
    pub fn controller_data_len(&self, sqe: &Sqe) -> Result<u32, Status> {
        match sqe.opcode {
            admin::IDENTIFY => Ok(pilotlight_nvme::identify::IDENTIFY_LEN as u32),
            admin::GET_LOG_PAGE => {
                let len = GetLogPage::decode(sqe).len;
                if len > MAX_BUFFER as u64 { Err(Status::INVALID_FIELD.dnr()) } else { Ok(len as u32) }
            }
            admin::GET_FEATURES => Ok(self.features.get_data_len(sqe)),
            _ => Ok(0),
        }
    }

    /// Carries out an admin command. `data` is what it brought, `out` (zeroed, [`Controller::controller_data_len`] bytes)
    /// what it takes back.
    pub fn execute(&mut self, sqe: &Sqe, data: &[u8], out: &mut [u8], now_ns: u64, env: &AdminEnv) -> Outcome {
        let outcome = self.dispatch(sqe, data, out, now_ns, env);
        if let Outcome::Complete { status, .. } = outcome
            && !status.is_success()
        {
            self.errors.record(0, sqe.cid.get(), status, sqe.nsid.get());
        }
        outcome
    }

    fn dispatch(&mut self, sqe: &Sqe, data: &[u8], out: &mut [u8], now_ns: u64, env: &AdminEnv) -> Outcome {
        if !self.is_ready() {
            return Outcome::error(Status::COMMAND_SEQUENCE);
        }
        if sqe.fuse() != 0 {
            return Outcome::error(Status::INVALID_FIELD);
        }
        if let Some(power) = &mut self.features.power {
            power.settle(now_ns);
        }
        let discovery = self.is_discovery();
        let uptime_ms = now_ns.saturating_sub(self.enabled_ns) / 1_000_000;
        match sqe.opcode {
            admin::IDENTIFY => self.identify(sqe, out, env),
            admin::GET_LOG_PAGE => self.get_log_page(sqe, out, env),
            admin::SET_FEATURES => self.features.set(sqe, data, uptime_ms, &mut self.events, discovery),
            admin::GET_FEATURES => self.features.get(sqe, out, uptime_ms, &self.events, discovery),
            admin::ASYNC_EVENT_REQUEST => match self.events.park(sqe.cid.get()) {
                Ok(()) => Outcome::Parked,
                Err(status) => Outcome::error(status),
            },
            admin::ABORT if !self.is_discovery() => {
                Outcome::Abort { sqid: sqe.cdw10() as u16, cid: (sqe.cdw10() >> 16) as u16 }
            }
            admin::KEEP_ALIVE => {
                self.heard_ns = now_ns;
                Outcome::SUCCESS
            }
            _ => Outcome::error(Status::INVALID_OPCODE),
        }
    }

    /// Notes that namespace `nsid` was added, resized or removed.
    pub fn namespace_changed(&mut self, nsid: u32) {
        self.events.namespace_changed(nsid);
    }

    /// Notes that the discovery log has changed.
    pub fn discovery_changed(&mut self) {
        self.events.discovery_changed();
    }

    /// The next parked Async Event Request that can be completed, and its result.
    pub fn take_event_completion(&mut self) -> Option<(u16, u32)> {
        self.events.take()
    }

    /// A parked Async Event Request was aborted.
    pub fn forget_parked(&mut self, cid: u16) {
        self.events.forget(cid);
    }
}

#[cfg(test)]
mod tests;
