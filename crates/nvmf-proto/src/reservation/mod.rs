//! Reservations of one namespace (Base 8.19): registrants, the reservation, and what each command changes.
//!
//! # The problem
//! Hosts of a cluster exclude each other from a namespace. A command of one host may take the rights of others, of which some have to be
//! told, and of some the commands in progress have to be stopped; both happens on other I/O threads.
//!
//! # Words
//! A *registrant* is a host with a key. The *reservation* has a type and a holder; of the types for all registrants every registrant is a
//! holder. *PTPL* (Persist Through Power Loss) is the state in which all of this outlives the server.
//!
//! # The algorithm
//! [`State`] is a plain value without I/O and clock: a command returns its [`Effects`], or a status and has changed nothing.
//! [`published::Reservation`] has the state of a namespace behind a lock, and publishes who has access ([`access`]).
//!
//! # The properties
//! - There is no reservation without a registrant, and the holder is a registrant.
//! - A failed command changes nothing.
//! - A host identifier belongs to the host NQN that has registered it: others get Reservation Conflict.
//! - The generation changes with each successful Register, Preempt, Preempt and Abort, and Clear.
//! - `tests.rs` compares every sequence of commands of three hosts, up to a depth, with rules written down separately.

pub mod access;
pub mod published;
mod record;
mod report;

use pilotlight_nvme::command::opcode::io;
use pilotlight_nvme::reservation::{
    Acquire, AcquireAction, Notification, Register, RegisterAction, Release, ReleaseAction, Report, Type,
};
use pilotlight_nvme::{Sqe, Status};
use pilotlight_storage::buffer::MAX_BUFFER;

use crate::ids::HostKey;

/// Maximum registrants of a namespace: a bound on memory. The specification has no status for it; more get Internal Error.
pub const MAX_REGISTRANTS: usize = 256;

const CONFLICT: Status = Status::RESERVATION_CONFLICT.dnr();
const INVALID_FIELD: Status = Status::INVALID_FIELD.dnr();

/// Identity of a host, whatever the subsystem is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Host identifier.
    pub hostid: [u8; 16],
    /// Host NQN.
    pub hostnqn: String,
}

impl Identity {
    /// That of `host`.
    #[must_use]
    pub fn from_host(host: &HostKey) -> Self {
        Self { hostid: host.hostid, hostnqn: host.hostnqn.clone() }
    }

    /// Whether it is that of `host`.
    #[must_use]
    pub fn is_of(&self, host: &HostKey) -> bool {
        self.hostid == host.hostid && self.hostnqn == host.hostnqn
    }
}

/// A command on the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Reservation Register.
    Register(Register),
    /// Reservation Acquire.
    Acquire(Acquire),
    /// Reservation Release.
    Release(Release),
    /// Reservation Report.
    Report,
    /// Set Features, Reservation Persistence.
    Persist(bool),
}

impl Command {
    /// Decodes a reservation command with its data.
    ///
    /// # Errors
    /// The status to complete it with.
    pub(crate) fn decode(sqe: &Sqe, data: &[u8]) -> Result<Self, Status> {
        let decoded = match sqe.opcode {
            io::RESERVATION_REGISTER => Register::decode(sqe, data).map(Self::Register),
            io::RESERVATION_ACQUIRE => Acquire::decode(sqe, data).map(Self::Acquire),
            io::RESERVATION_RELEASE => Release::decode(sqe, data).map(Self::Release),
            // Host identifiers have 128 bits, which the other form has no room for.
            _ if !Report::decode(sqe).extended => return Err(Status::HOST_ID_FORMAT.dnr()),
            _ => Some(Self::Report),
        };
        decoded.ok_or(INVALID_FIELD)
    }

    /// Bytes of the data that a Report transfers.
    ///
    /// # Errors
    /// Invalid Field beyond MDTS.
    pub(crate) fn report_len(sqe: &Sqe) -> Result<u32, Status> {
        let len = Report::decode(sqe).len;
        if len > MAX_BUFFER as u64 { Err(INVALID_FIELD) } else { Ok(len as u32) }
    }
}

/// A host with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registrant {
    pub(crate) host: Identity,
    pub(crate) key: u64,
}

/// A reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) kind: Type,
    /// The holder's host identifier; without meaning where all registrants are holders.
    pub(crate) holder: [u8; 16],
}

/// The registrants and the reservation of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// In the order of registration.
    registrants: Vec<Registrant>,
    held: Option<Held>,
    generation: u32,
    persists: bool,
}

/// What a successful command entails for other hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Hosts to notify.
    pub notify: Vec<(Identity, Notification)>,
    /// Hosts whose commands in progress have to be aborted.
    pub abort: Vec<Identity>,
}

impl State {
    /// Whether it outlives the server.
    #[must_use]
    pub fn persists(&self) -> bool {
        self.persists
    }

    /// Executes a command of `host`; a Report has no effect here.
    ///
    /// # Errors
    /// The status to complete it with; nothing has changed then.
    pub fn execute(&mut self, host: &Identity, command: &Command, can_persist: bool) -> Result<Effects, Status> {
        match command {
            Command::Register(register) => self.register(host, register, can_persist),
            Command::Acquire(acquire) => self.acquire(host, acquire),
            Command::Release(release) => self.release(host, release),
            Command::Persist(persists) => self.persist(*persists, can_persist),
            Command::Report => Ok(Effects::default()),
        }
    }

    fn persist(&mut self, persists: bool, can_persist: bool) -> Result<Effects, Status> {
        if persists && !can_persist {
            return Err(INVALID_FIELD);
        }
        self.persists = persists;
        Ok(Effects::default())
    }

    fn register(&mut self, host: &Identity, command: &Register, can_persist: bool) -> Result<Effects, Status> {
        let own = self.find(host)?;
        let has_key = own.is_some_and(|at| command.ignore_key || self.registrants[at].key == command.key);
        if command.persist == Some(true) && !can_persist {
            return Err(INVALID_FIELD);
        }
        let mut effects = Effects::default();
        match (command.action, own) {
            (RegisterAction::Register, Some(at)) if self.registrants[at].key != command.new_key => {
                return Err(CONFLICT);
            }
            (RegisterAction::Register, Some(_)) => {}
            (RegisterAction::Register, None) => self.add(host, command.new_key)?,
            // "without regard to its registration status" (Base 8.19.3)
            (RegisterAction::Replace, None) if command.ignore_key => self.add(host, command.new_key)?,
            (RegisterAction::Replace, Some(at)) if has_key => self.registrants[at].key = command.new_key,
            (RegisterAction::Unregister, Some(at)) if has_key => effects = self.unregister(at),
            (RegisterAction::Replace | RegisterAction::Unregister, _) => return Err(CONFLICT),
        }
        self.persists = command.persist.unwrap_or(self.persists);
        self.generation = self.generation.wrapping_add(1);
        Ok(effects)
    }

    /// A registrant gives up its registration.
    fn unregister(&mut self, at: usize) -> Effects {
        let was_holder = self.is_holder(at);
        self.registrants.remove(at);
        let mut effects = Effects::default();
        match self.held {
            Some(held) if held.kind.is_of_all_registrants() => self.release_without_registrants(),
            Some(held) if was_holder => {
                self.held = None;
                if held.kind.admits_registrants() {
                    effects.notify = self.others(None, Notification::ReservationReleased);
                }
            }
            _ => {}
        }
        effects
    }

    fn acquire(&mut self, host: &Identity, command: &Acquire) -> Result<Effects, Status> {
        let own = self.registrant(host, command.key)?;
        if command.action != AcquireAction::Acquire {
            return self.preempt(host, command);
        }
        match self.held {
            None => self.hold(command.kind, host),
            Some(held) if self.is_holder(own) && held.kind == command.kind => {}
            Some(_) => return Err(CONFLICT),
        }
        Ok(Effects::default())
    }

    fn preempt(&mut self, host: &Identity, command: &Acquire) -> Result<Effects, Status> {
        let is_own = |one: &Registrant| one.host == *host;
        let has_key = |one: &Registrant| one.key == command.preempted;
        let before = self.held;
        let removed = match before {
            Some(held) if held.kind.is_of_all_registrants() && command.preempted == 0 => {
                self.hold(command.kind, host);
                self.remove(|one| !is_own(one))
            }
            Some(held) if !held.kind.is_of_all_registrants() && self.holder().is_some_and(has_key) => {
                self.hold(command.kind, host);
                self.remove(|one| has_key(one) && !is_own(one))
            }
            Some(held) if !held.kind.is_of_all_registrants() && command.preempted == 0 => return Err(INVALID_FIELD),
            _ if !self.registrants.iter().any(has_key) => return Err(CONFLICT),
            _ => self.remove(has_key),
        };
        self.release_without_registrants();
        self.generation = self.generation.wrapping_add(1);
        let preempted: Vec<Identity> = removed.into_iter().filter(|one| one != host).collect();
        let notification = |one: &Identity| (one.clone(), Notification::RegistrationPreempted);
        let mut effects = Effects { notify: preempted.iter().map(notification).collect(), abort: Vec::new() };
        if let (Some(before), Some(now)) = (before, self.held)
            && before.kind != now.kind
        {
            effects.notify.extend(self.others(Some(host), Notification::ReservationReleased));
        }
        if command.action == AcquireAction::PreemptAndAbort {
            effects.abort = preempted;
        }
        Ok(effects)
    }

    fn release(&mut self, host: &Identity, command: &Release) -> Result<Effects, Status> {
        let own = self.registrant(host, command.key)?;
        let mut effects = Effects::default();
        match (command.action, self.held) {
            (ReleaseAction::Clear, _) => {
                effects.notify = self.others(Some(host), Notification::ReservationPreempted);
                self.registrants.clear();
                self.held = None;
                self.generation = self.generation.wrapping_add(1);
            }
            (ReleaseAction::Release, Some(held)) if self.is_holder(own) => {
                if command.kind != Some(held.kind) {
                    return Err(INVALID_FIELD);
                }
                self.held = None;
                if held.kind.admits_registrants() {
                    effects.notify = self.others(Some(host), Notification::ReservationReleased);
                }
            }
            (ReleaseAction::Release, _) => {}
        }
        Ok(effects)
    }

    /// The registrant `host`, if it is one.
    ///
    /// # Errors
    /// Reservation Conflict if another host NQN has registered its host identifier.
    fn find(&self, host: &Identity) -> Result<Option<usize>, Status> {
        let Some(at) = self.registrants.iter().position(|one| one.host.hostid == host.hostid) else { return Ok(None) };
        if self.registrants[at].host.hostnqn == host.hostnqn { Ok(Some(at)) } else { Err(CONFLICT) }
    }

    /// The registrant `host`, which must have this key.
    fn registrant(&self, host: &Identity, key: u64) -> Result<usize, Status> {
        let own = self.find(host)?.filter(|&at| self.registrants[at].key == key);
        own.ok_or(CONFLICT)
    }

    fn add(&mut self, host: &Identity, key: u64) -> Result<(), Status> {
        if self.registrants.len() >= MAX_REGISTRANTS {
            return Err(Status::INTERNAL.dnr());
        }
        self.registrants.push(Registrant { host: host.clone(), key });
        Ok(())
    }

    fn hold(&mut self, kind: Type, host: &Identity) {
        self.held = Some(Held { kind, holder: host.hostid });
    }

    fn is_holder(&self, at: usize) -> bool {
        let holds = |held: Held| held.kind.is_of_all_registrants() || self.registrants[at].host.hostid == held.holder;
        self.held.is_some_and(holds)
    }

    /// The only holder.
    fn holder(&self) -> Option<&Registrant> {
        let held = self.held.filter(|held| !held.kind.is_of_all_registrants())?;
        self.registrants.iter().find(|one| one.host.hostid == held.holder)
    }

    /// Removes the selected registrants and returns them.
    fn remove(&mut self, selected: impl Fn(&Registrant) -> bool) -> Vec<Identity> {
        let (removed, kept) = std::mem::take(&mut self.registrants).into_iter().partition(selected);
        self.registrants = kept;
        let removed: Vec<Registrant> = removed;
        removed.into_iter().map(|one| one.host).collect()
    }

    fn release_without_registrants(&mut self) {
        if self.registrants.is_empty() {
            self.held = None;
        }
    }

    /// A notification for every registrant other than `host`.
    fn others(&self, host: Option<&Identity>, kind: Notification) -> Vec<(Identity, Notification)> {
        let others = self.registrants.iter().filter(|one| Some(&one.host) != host);
        others.map(|one| (one.host.clone(), kind)).collect()
    }
}

#[cfg(test)]
mod tests;
