//! Notifications of reservations: log page, mask and persistence (Base 5.16.1.24, 5.27.1.25, 5.27.1.26).

use std::collections::VecDeque;

use pilotlight_nvme::feature::{SAVE, Select, capability, fid};
use pilotlight_nvme::log::ReservationLog;
use pilotlight_nvme::reservation::{Notification, mask};
use pilotlight_nvme::{Sqe, Status};

use super::{AdminEnv, Controller, Outcome};
use crate::subsystems::config::MAX_NSID;

/// Maximum unread notifications; what exceeds them is lost, and counted.
const UNREAD: usize = 255;
const NSID_ALL: u32 = u32::MAX;

/// Maximum allocation: the unread notifications, and the masks.
pub(super) const HEAP_BYTES: usize = (UNREAD + 1) * size_of::<Unread>() + MAX_NSID as usize;

/// A notification that has not been read.
#[derive(Debug)]
struct Unread {
    count: u64,
    nsid: u32,
    kind: Notification,
}

/// The notifications of a controller.
#[derive(Debug, Default)]
pub(super) struct Notifications {
    /// Notifications until now, lost ones included.
    count: u64,
    /// Oldest first.
    unread: VecDeque<Unread>,
    /// By NSID minus one.
    masks: Vec<u8>,
}

impl Notifications {
    fn mask(&self, nsid: u32) -> u32 {
        self.masks.get(nsid as usize - 1).copied().unwrap_or(0).into()
    }

    fn set_mask(&mut self, nsid: u32, value: u32) {
        let at = nsid as usize - 1;
        if at >= self.masks.len() {
            self.masks.reserve_exact(at + 1 - self.masks.len());
            self.masks.resize(at + 1, 0);
        }
        self.masks[at] = (value & mask::ALL) as u8;
    }

    /// Adds a notification; returns whether it is to be reported.
    fn add(&mut self, nsid: u32, kind: Notification) -> bool {
        if self.mask(nsid) & 1 << kind as u32 != 0 {
            return false;
        }
        self.count = self.count.wrapping_add(1).max(1);
        if self.unread.len() < UNREAD {
            self.unread.push_back(Unread { count: self.count, nsid, kind });
        }
        true
    }

    /// The log page.
    pub(super) fn page(&self) -> ReservationLog {
        let Some(Unread { count, nsid, kind }) = self.unread.front() else { return ReservationLog::default() };
        ReservationLog {
            count: (*count).into(),
            kind: *kind as u8,
            available: (self.unread.len() - 1) as u8,
            nsid: (*nsid).into(),
            ..ReservationLog::default()
        }
    }
}

impl Controller {
    /// Whether a Set Features or Get Features command is for a feature of reservations.
    pub(super) fn is_of_reservations(&self, sqe: &Sqe) -> bool {
        let is_feature = matches!(sqe.cdw10() as u8, fid::RESERVATION_MASK | fid::RESERVATION_PERSISTENCE);
        is_feature && !self.is_discovery()
    }

    /// Records a notification of the reservation of namespace `nsid`.
    pub(crate) fn reservation_notified(&mut self, nsid: u32, kind: Notification) {
        if self.reservations.add(nsid, kind) {
            self.events.reservation_notified();
        }
    }

    /// The host has read the log page.
    pub(super) fn notification_read(&mut self) {
        self.reservations.unread.pop_front();
        self.events.reservation_read(!self.reservations.unread.is_empty());
    }

    pub(super) fn set_reservation_feature(&mut self, sqe: &Sqe, env: &AdminEnv) -> Outcome {
        if sqe.cdw10() & SAVE != 0 {
            return Outcome::error(Status::FEATURE_NOT_SAVEABLE);
        }
        let (nsid, value) = (sqe.nsid.get(), sqe.cdw11());
        let selected = || env.namespaces.iter().filter(move |(of, _)| nsid == NSID_ALL || *of == nsid);
        if nsid != NSID_ALL && selected().next().is_none() {
            return Outcome::error(Status::INVALID_NAMESPACE);
        }
        if sqe.cdw10() as u8 == fid::RESERVATION_MASK {
            selected().for_each(|(nsid, _)| self.reservations.set_mask(*nsid, value));
            return Outcome::SUCCESS;
        }
        let persists = value & 1 != 0;
        if persists && selected().any(|(_, info)| !info.reservation.can_persist()) {
            return Outcome::error(Status::INVALID_FIELD);
        }
        Outcome::Persist { persists }
    }

    pub(super) fn get_reservation_feature(&self, sqe: &Sqe, env: &AdminEnv) -> Outcome {
        let nsid = sqe.nsid.get();
        let Some(select) = Select::decode(sqe.cdw10()) else { return Outcome::error(Status::INVALID_FIELD) };
        if select == Select::Supported {
            return Outcome::result(capability::CHANGEABLE | capability::NAMESPACE_SPECIFIC);
        }
        let Some(info) = env.namespaces.find(nsid) else { return Outcome::error(Status::INVALID_NAMESPACE) };
        Outcome::result(match (select, sqe.cdw10() as u8) {
            (Select::Current, fid::RESERVATION_MASK) => self.reservations.mask(nsid),
            (Select::Current, _) => info.reservation.persists().into(),
            _ => 0,
        })
    }
}
