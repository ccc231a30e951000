//! A controller as a pure state machine.
//!
//! No socket, no clock, no thread: commands, properties, time and events are arguments, responses are return values. The
//! admin queue's connection owns the controller and executes its decisions.
//!
//! | file | content |
//! |---|---|
//! | `mod.rs` | properties, enabling, shutdown, keep-alive, dispatch of commands |
//! | `identify.rs` | Identify |
//! | `logs.rs` | Get Log Page |
//! | `features.rs` | Set Features and Get Features |
//! | `power.rs` | power states, if configured |
//! | `events.rs` | asynchronous events |
//! | `reservations.rs` | notifications of reservations, their mask, persistence |
//!
//! Properties: no admin command is executed before CC.EN; an event of a kind is reported once until its log page has been
//! read; keep-alive expires after one and a quarter timeouts without traffic.

mod events;
mod features;
mod identify;
mod logs;
mod power;
mod reservations;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use pilotlight_nvme::command::opcode::admin;
use pilotlight_nvme::fabrics::{CAP_CRWMS, PropertyCmd, cap, cc, csts, property};
use pilotlight_nvme::log::GetLogPage;
use pilotlight_nvme::{Sqe, Status};

use crate::ids::PortId;
use crate::services::Totals;
use crate::subsystems::directory::Directory;
use crate::subsystems::listing::Listed;
use crate::subsystems::subsystem::Subsystem;
use events::Events;
use features::Features;
pub(crate) use identify::reports_utilization;
use logs::ErrorLog;
use pilotlight_storage::buffer::MAX_BUFFER;
use reservations::Notifications;

/// VS: version 2.0.
const VERSION: u32 = 0x0002_0000;
/// Maximum time of a change of CSTS.RDY, in units of 500 ms.
const READY_TIMEOUT: u8 = 30;
/// Tolerated delay as a fraction (divisor) of the keep-alive timeout: Linux before 6.5 with traffic based keep-alive sends
/// Keep Alive up to one whole timeout after other traffic, and transmission takes time.
const GRACE: u64 = 4;
/// The keep-alive timeout of a discovery controller whose host has set none, in milliseconds, as in Linux (`NVMET_DISC_KATO_MS`): a
/// host that has vanished must not keep a connection for ever.
const DISCOVERY_KATO_MS: u32 = 120_000;

/// What kind of controller.
#[derive(Clone, Debug)]
pub(crate) enum ControllerKind {
    /// I/O, of this subsystem.
    Io(Arc<Subsystem>),
    /// Discovery.
    Discovery,
}

/// Parameters of a new controller.
#[derive(Clone, Debug)]
pub(crate) struct ControllerParams {
    /// Controller identifier.
    pub cntlid: u16,
    /// I/O or discovery.
    pub kind: ControllerKind,
    /// Host identifier.
    pub hostid: [u8; 16],
    /// Host NQN.
    pub hostnqn: String,
    /// Keep-alive timeout of Connect in milliseconds; 0 for none.
    pub kato_ms: u32,
    /// Maximum I/O queues.
    pub max_io_queues: u16,
    /// Maximum entries of a queue.
    pub max_queue_depth: u16,
    /// Monotonic time in nanoseconds.
    pub now_ns: u64,
    /// Whether it reports power states.
    pub power_states: bool,
    /// Number of changes of the states of paths by its port ([`Directory::path_changes`]).
    pub path_changes: u64,
}

/// Inputs of an admin command.
pub(crate) struct AdminEnv<'a> {
    /// The subsystem's namespaces by ascending NSID.
    pub namespaces: Listed<'a>,
    /// Counters of the server.
    pub counters: &'a Totals,
    /// Time since the server started.
    pub power_on: Duration,
    /// Discovery log and states of paths.
    pub directory: &'a Directory,
    /// The port of the association.
    pub port: PortId,
    /// The address that the host connected to.
    pub local: Option<IpAddr>,
}

/// Effect of setting a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    None,
    /// The controller is enabled.
    Enabled,
    /// The controller is being reset: end the I/O queues, then call [`Controller::reset_done`].
    Reset,
    /// The controller is being shut down: flush, then call [`Controller::shutdown_done`] or
    /// [`Controller::shutdown_failed`].
    Shutdown {
        /// An abrupt shutdown.
        abrupt: bool,
    },
}

/// Result of an admin command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Complete it.
    Complete {
        /// The status.
        status: Status,
        /// Dwords 0 and 1 of the completion.
        result: u64,
    },
    /// Keep it outstanding until [`Controller::take_event_completion`] returns it.
    Parked,
    /// Set whether the reservations of the command's namespaces outlive the server, then complete it.
    Persist {
        /// Whether they do.
        persists: bool,
    },
    /// Abort command `cid` of queue `sqid`, then complete it.
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
pub(crate) struct Controller {
    params: ControllerParams,
    cc: u32,
    csts: u32,
    /// The host has cleared CC.EN and its I/O queues still exist.
    resetting: bool,
    /// Time of enabling: the origin of the timestamp until the host sets it.
    enabled_ns: u64,
    traffic_ns: u64,
    features: Features,
    events: Events,
    errors: ErrorLog,
    /// Number of changes of the states of paths that it knows.
    path_changes: u64,
    /// The greatest length in bytes of a discovery log that the host has read from.
    discovery_len: u64,
    reservations: Notifications,
}

impl Controller {
    /// Maximum allocation of a controller in bytes.
    pub(crate) const HEAP_BYTES: usize = events::HEAP_BYTES + logs::HEAP_BYTES + reservations::HEAP_BYTES;

    /// A controller that is not enabled yet.
    #[must_use]
    pub(crate) fn new(params: ControllerParams) -> Self {
        let features = Features::new(&params);
        let (now_ns, path_changes) = (params.now_ns, params.path_changes);
        Self {
            params,
            path_changes,
            cc: 0,
            csts: 0,
            resetting: false,
            enabled_ns: now_ns,
            traffic_ns: now_ns,
            features,
            events: Events::default(),
            errors: ErrorLog::default(),
            discovery_len: 0,
            reservations: Notifications::default(),
        }
    }

    fn is_discovery(&self) -> bool {
        matches!(self.params.kind, ControllerKind::Discovery)
    }

    /// Whether I/O queues may connect.
    #[must_use]
    pub(crate) fn is_ready(&self) -> bool {
        self.csts & csts::RDY != 0 && self.cc & cc::EN != 0
    }

    /// The highest queue identifier that may connect.
    #[must_use]
    pub(crate) fn granted_io_queues(&self) -> u16 {
        if self.is_discovery() { 0 } else { self.features.granted_queues() }
    }

    /// Records an I/O queue: the number of queues is fixed until the next reset.
    pub(crate) fn io_queue_connected(&mut self) {
        self.features.fix_queues();
    }

    /// Property Get (Base 6.6).
    ///
    /// # Errors
    /// Invalid Field for a property or size that does not exist.
    pub(crate) fn property_get(&self, cmd: &PropertyCmd) -> Result<u64, Status> {
        // Without Do Not Retry: nvme-cli 2.3 reads every PCIe register and aborts at any other status.
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
    /// Invalid Field for other properties and a reserved shutdown notification; Command Sequence Error during a reset (Base
    /// 3.5.3).
    pub(crate) fn property_set(&mut self, cmd: &PropertyCmd, now_ns: u64) -> Result<Effect, Status> {
        let new = cmd.value as u32;
        if cmd.offset != property::CC || cmd.wide != Some(false) || cc::shn(new) == 3 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        if self.resetting {
            return Err(Status::COMMAND_SEQUENCE);
        }
        let old = std::mem::replace(&mut self.cc, new);
        self.traffic_ns = now_ns;
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

    /// Ends a reset, when the I/O queues are closed.
    pub(crate) fn reset_done(&mut self) {
        self.csts = 0;
        self.resetting = false;
        self.events = Events::default();
        self.reservations = Notifications::default();
        self.features = Features::new(&self.params);
    }

    /// Ends a shutdown after the flush, unless a reset has replaced it.
    pub(crate) fn shutdown_done(&mut self) {
        if self.csts & csts::SHST_OCCURRING == 0 {
            return;
        }
        self.csts = self.csts & !csts::SHST_OCCURRING | csts::SHST_COMPLETE;
    }

    /// The flush of a shutdown failed. Shutdown processing does not complete (CSTS.SHST stays 01b), and Controller Fatal Status
    /// is set (Base 3.1.4.6): the host must reset the controller. No effect if a reset has replaced the shutdown.
    pub(crate) fn shutdown_failed(&mut self) {
        if self.csts & csts::SHST_OCCURRING != 0 {
            self.csts |= csts::CFS;
        }
    }

    /// Records traffic on any queue (TBKAS).
    pub(crate) fn traffic(&mut self, now_ns: u64) {
        self.traffic_ns = now_ns;
    }

    /// Records traffic on an I/O queue.
    pub(crate) fn io_traffic(&mut self, now_ns: u64) {
        self.traffic(now_ns);
        if let Some(power) = &mut self.features.power {
            power.io(now_ns);
        }
    }

    /// The power state as of the last command; `None` without power states.
    #[must_use]
    pub(crate) fn power_state(&self) -> Option<u8> {
        self.features.power.as_ref().map(power::Power::state)
    }

    /// The keep-alive timeout in nanoseconds; `None` without one.
    #[must_use]
    pub(crate) fn kato_ns(&self) -> Option<u64> {
        let ms = match self.features.kato_ms() {
            0 if self.is_discovery() => DISCOVERY_KATO_MS,
            ms => ms,
        };
        (ms > 0).then_some(u64::from(ms) * 1_000_000)
    }

    /// Whether the keep-alive timeout, with its tolerance, has expired.
    #[must_use]
    pub(crate) fn expired(&self, now_ns: u64) -> bool {
        self.kato_ns().is_some_and(|kato| now_ns.saturating_sub(self.traffic_ns) > kato + kato / GRACE)
    }

    /// Length of an admin command's data from the host.
    ///
    /// # Errors
    /// None at present: refused commands have no data.
    pub(crate) fn host_data_len(&self, sqe: &Sqe) -> Result<u32, Status> {
        Ok(if sqe.opcode == admin::SET_FEATURES { self.features.data_len(sqe.cdw10() as u8) } else { 0 })
    }

    /// Length of an admin command's data to the host.
    ///
    /// # Errors
    /// Invalid Field beyond MDTS.
    pub(crate) fn controller_data_len(&self, sqe: &Sqe) -> Result<u32, Status> {
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

    /// Executes an admin command with `data` from the host; `out` (zeroed, [`Controller::controller_data_len`] bytes) is the
    /// data to the host.
    pub(crate) fn execute(&mut self, sqe: &Sqe, data: &[u8], out: &mut [u8], now_ns: u64, env: &AdminEnv) -> Outcome {
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
            power.advance(now_ns);
        }
        let discovery = self.is_discovery();
        let uptime_ms = now_ns.saturating_sub(self.enabled_ns) / 1_000_000;
        match sqe.opcode {
            admin::IDENTIFY => self.identify(sqe, out, env),
            admin::GET_LOG_PAGE => self.get_log_page(sqe, out, env),
            admin::SET_FEATURES if self.is_of_reservations(sqe) => self.set_reservation_feature(sqe, env),
            admin::GET_FEATURES if self.is_of_reservations(sqe) => self.get_reservation_feature(sqe, env),
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
                self.traffic_ns = now_ns;
                Outcome::SUCCESS
            }
            _ => Outcome::error(Status::INVALID_OPCODE),
        }
    }

    /// Records that namespace `nsid` was added, resized or removed.
    pub(crate) fn namespace_changed(&mut self, nsid: u32) {
        self.events.namespace_changed(nsid);
    }

    /// Records this number of changes of the states of paths by its port; returns whether there are new ones.
    pub(crate) fn note_path_changes(&mut self, changes: u64) -> bool {
        let is_new = !self.is_discovery() && std::mem::replace(&mut self.path_changes, changes) != changes;
        if is_new {
            self.events.paths_changed();
        }
        is_new
    }

    /// Records a change of the discovery log.
    pub(crate) fn discovery_changed(&mut self) {
        self.events.discovery_changed();
    }

    /// The next parked Async Event Request that can be completed, and its result.
    pub(crate) fn take_event_completion(&mut self) -> Option<(u16, u32)> {
        self.events.take()
    }

    /// Removes an aborted Async Event Request.
    pub(crate) fn forget_parked(&mut self, cid: u16) {
        self.events.forget(cid);
    }
}

#[cfg(test)]
mod tests;
