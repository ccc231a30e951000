//! Set Features and Get Features (Base 5.15, 5.27).
//!
//! No feature can be saved, because a controller ends with its association, and none is specific to a namespace. Features
//! without use for a target over TCP (interrupt coalescing and vectors, host memory buffer, and, unless configured, power
//! states and their transitions) are unsupported: Invalid Field.

use pilotlight_nvme::feature::{SAVE, Select, async_event, capability, fid};
use pilotlight_nvme::power::TABLE_LEN;
use pilotlight_nvme::{Sqe, Status};

use super::events::Events;
use super::power::Power;
use super::{ControllerParams, Outcome};

const TIMESTAMP_LEN: u32 = 8;
const HOST_ID_LEN: u32 = 16;
/// Events of an I/O controller, and of a discovery controller.
const IO_EVENTS: u32 = async_event::NAMESPACE_ATTRIBUTE | async_event::ANA_CHANGE | async_event::SMART;
const DISCOVERY_EVENTS: u32 = async_event::DISCOVERY_CHANGE;
/// A threshold that the composite temperature never reaches.
const TEMPERATURE_NONE: u32 = 0xffff;
/// Timestamp origin: set by Set Features. The other, 0, is "milliseconds since the last reset".
const TIMESTAMP_SET: u8 = 1 << 1;
const TIMESTAMP_MASK: u64 = 0xffff_ffff_ffff;
/// EXHID: a host identifier of 128 bits, required over fabrics.
const EXHID: u32 = 1;
const NSID_ALL: u32 = u32::MAX;

/// The values of a controller's features.
#[derive(Debug)]
pub(super) struct Features {
    arbitration: u32,
    /// Over and under temperature thresholds of the composite temperature.
    temperature_thresholds: [u32; 2],
    error_recovery: u32,
    write_atomicity: u32,
    kato_ms: u32,
    /// The value of Connect, restored by a reset.
    connected_kato_ms: u32,
    max_queues: u16,
    granted_queues: u16,
    /// I/O queues have connected: their number cannot be changed.
    queues_fixed: bool,
    host_id: [u8; 16],
    /// Time of enabling according to the host's timestamp, in milliseconds since 1970, if set.
    enabled_at_ms: Option<u64>,
    /// Present if power states are configured.
    pub(super) power: Option<Power>,
}

impl Features {
    pub(super) fn new(params: &ControllerParams) -> Self {
        Self {
            arbitration: 0,
            temperature_thresholds: [TEMPERATURE_NONE, 0],
            error_recovery: 0,
            write_atomicity: 0,
            kato_ms: rounded(params.kato_ms),
            connected_kato_ms: rounded(params.kato_ms),
            max_queues: params.max_io_queues,
            granted_queues: params.max_io_queues,
            queues_fixed: false,
            host_id: params.hostid,
            enabled_at_ms: None,
            power: params.power_states.then(|| Power::new(params.now_ns)),
        }
    }

    pub(super) fn kato_ms(&self) -> u32 {
        self.kato_ms
    }

    pub(super) fn granted_queues(&self) -> u16 {
        self.granted_queues
    }

    pub(super) fn fix_queues(&mut self) {
        self.queues_fixed = true;
    }

    /// Data length of Set Features for feature `id`.
    pub(super) fn data_len(&self, id: u8) -> u32 {
        match id {
            fid::TIMESTAMP => TIMESTAMP_LEN,
            fid::POWER_TRANSITIONS if self.power.is_some() => TABLE_LEN as u32,
            _ => 0,
        }
    }

    /// Data length of Get Features.
    pub(super) fn get_data_len(&self, sqe: &Sqe) -> u32 {
        if Select::decode(sqe.cdw10()) == Some(Select::Supported) {
            return 0;
        }
        match sqe.cdw10() as u8 {
            fid::TIMESTAMP => TIMESTAMP_LEN,
            fid::HOST_IDENTIFIER => HOST_ID_LEN,
            fid::POWER_TRANSITIONS if self.power.is_some() => TABLE_LEN as u32,
            _ => 0,
        }
    }

    /// Set Features; `uptime_ms` is the time since the controller was enabled.
    pub(super) fn set(
        &mut self,
        sqe: &Sqe,
        data: &[u8],
        uptime_ms: u64,
        events: &mut Events,
        discovery: bool,
    ) -> Outcome {
        let (id, value) = (sqe.cdw10() as u8, sqe.cdw11());
        if !self.supports(id, discovery) {
            return Outcome::error(Status::INVALID_FIELD);
        }
        if sqe.cdw10() & SAVE != 0 {
            return Outcome::error(Status::FEATURE_NOT_SAVEABLE);
        }
        if !matches!(sqe.nsid.get(), 0 | NSID_ALL) {
            return Outcome::error(Status::FEATURE_NOT_NAMESPACE);
        }
        if let Some(power) = &mut self.power {
            match id {
                fid::POWER_MANAGEMENT => return outcome_of(power.set(value)),
                fid::POWER_TRANSITIONS => return outcome_of(power.set_transitions(value, data)),
                _ => {}
            }
        }
        match id {
            fid::ARBITRATION => self.arbitration = value,
            fid::POWER_MANAGEMENT if value & 0x1f == 0 => {} // the only power state
            fid::TEMPERATURE_THRESHOLD => return self.set_temperature(value),
            fid::ERROR_RECOVERY if value & 1 << 16 == 0 => self.error_recovery = value & 0xffff,
            fid::WRITE_ATOMICITY => self.write_atomicity = value & 1,
            fid::NUMBER_OF_QUEUES => return self.set_queues(value),
            fid::ASYNC_EVENT_CONFIGURATION => {
                events.mask = value & if discovery { DISCOVERY_EVENTS } else { IO_EVENTS };
            }
            fid::TIMESTAMP => return self.set_timestamp(data, uptime_ms),
            fid::KEEP_ALIVE_TIMER => self.kato_ms = rounded(value),
            fid::VOLATILE_WRITE_CACHE if value & 1 == 1 => {}
            // The medium's cache cannot be turned off; Connect sets the host identifier.
            fid::VOLATILE_WRITE_CACHE => return Outcome::error(Status::FEATURE_NOT_CHANGEABLE),
            fid::HOST_IDENTIFIER => return Outcome::error(Status::COMMAND_SEQUENCE),
            _ => return Outcome::error(Status::INVALID_FIELD),
        }
        Outcome::SUCCESS
    }

    fn set_queues(&mut self, value: u32) -> Outcome {
        let (sq, cq) = (value as u16, (value >> 16) as u16);
        if sq == u16::MAX || cq == u16::MAX {
            return Outcome::error(Status::INVALID_FIELD);
        }
        if self.queues_fixed {
            return Outcome::error(Status::COMMAND_SEQUENCE);
        }
        self.granted_queues = self.max_queues.min(sq + 1).min(cq + 1);
        Outcome::result(self.queues())
    }

    fn queues(&self) -> u32 {
        let less_one = u32::from(self.granted_queues) - 1;
        less_one | less_one << 16
    }

    fn set_temperature(&mut self, value: u32) -> Outcome {
        const ALL_SENSORS: u32 = 0xf;
        match threshold(value) {
            Some((0 | ALL_SENSORS, which)) => {
                self.temperature_thresholds[which] = value & 0xffff;
                Outcome::SUCCESS
            }
            _ => Outcome::error(Status::INVALID_FIELD), // there is only the composite temperature
        }
    }

    fn set_timestamp(&mut self, data: &[u8], uptime_ms: u64) -> Outcome {
        let Some(bytes) = data.first_chunk::<8>() else { return Outcome::error(Status::SGL_LENGTH_INVALID) };
        let timestamp = u64::from_le_bytes(*bytes) & TIMESTAMP_MASK;
        self.enabled_at_ms = Some(timestamp.wrapping_sub(uptime_ms));
        Outcome::SUCCESS
    }

    /// Get Features; `uptime_ms` is the time since the controller was enabled.
    pub(super) fn get(&self, sqe: &Sqe, out: &mut [u8], uptime_ms: u64, events: &Events, discovery: bool) -> Outcome {
        let (id, cdw11) = (sqe.cdw10() as u8, sqe.cdw11());
        let Some(select) = Select::decode(sqe.cdw10()).filter(|_| self.supports(id, discovery)) else {
            return Outcome::error(Status::INVALID_FIELD);
        };
        let no_such_sensor = id == fid::TEMPERATURE_THRESHOLD && threshold(cdw11).is_none_or(|(sensor, _)| sensor != 0);
        let short_host_id = id == fid::HOST_IDENTIFIER && cdw11 & EXHID == 0;
        if select != Select::Supported && (no_such_sensor || short_host_id) {
            return Outcome::error(Status::INVALID_FIELD);
        }
        match select {
            Select::Supported => Outcome::result(if self.can_change(id) { capability::CHANGEABLE } else { 0 }),
            Select::Default | Select::Saved => self.default_of(id, cdw11, out),
            Select::Current => self.current(id, cdw11, out, uptime_ms, events),
        }
    }

    fn current(&self, id: u8, cdw11: u32, out: &mut [u8], uptime_ms: u64, events: &Events) -> Outcome {
        Outcome::result(match id {
            fid::POWER_MANAGEMENT => self.power.as_ref().map_or(0, Power::value),
            fid::POWER_TRANSITIONS => self.power.as_ref().map_or(0, |power| power.transitions(out)),
            fid::ARBITRATION => self.arbitration,
            fid::TEMPERATURE_THRESHOLD => threshold(cdw11).map_or(0, |(_, which)| self.temperature_thresholds[which]),
            fid::ERROR_RECOVERY => self.error_recovery,
            fid::VOLATILE_WRITE_CACHE => 1,
            fid::NUMBER_OF_QUEUES => self.queues(),
            fid::WRITE_ATOMICITY => self.write_atomicity,
            fid::ASYNC_EVENT_CONFIGURATION => events.mask,
            fid::KEEP_ALIVE_TIMER => self.kato_ms,
            fid::TIMESTAMP => {
                let now_ms = self.enabled_at_ms.unwrap_or(0).wrapping_add(uptime_ms) & TIMESTAMP_MASK;
                out.copy_from_slice(&now_ms.to_le_bytes());
                out[6] = if self.enabled_at_ms.is_some() { TIMESTAMP_SET } else { 0 };
                0
            }
            fid::HOST_IDENTIFIER => {
                out.copy_from_slice(&self.host_id);
                0
            }
            _ => 0,
        })
    }

    fn default_of(&self, id: u8, cdw11: u32, out: &mut [u8]) -> Outcome {
        Outcome::result(match id {
            fid::TEMPERATURE_THRESHOLD if threshold(cdw11) == Some((0, 0)) => TEMPERATURE_NONE,
            fid::VOLATILE_WRITE_CACHE => 1,
            fid::NUMBER_OF_QUEUES => {
                let less_one = u32::from(self.max_queues) - 1;
                less_one | less_one << 16
            }
            fid::KEEP_ALIVE_TIMER => self.connected_kato_ms,
            fid::HOST_IDENTIFIER => {
                out.copy_from_slice(&self.host_id);
                0
            }
            _ => 0,
        })
    }

    fn supports(&self, id: u8, discovery: bool) -> bool {
        match id {
            fid::ASYNC_EVENT_CONFIGURATION | fid::KEEP_ALIVE_TIMER | fid::HOST_IDENTIFIER => true,
            fid::ARBITRATION
            | fid::POWER_MANAGEMENT
            | fid::TEMPERATURE_THRESHOLD
            | fid::ERROR_RECOVERY
            | fid::VOLATILE_WRITE_CACHE
            | fid::NUMBER_OF_QUEUES
            | fid::WRITE_ATOMICITY
            | fid::TIMESTAMP => !discovery,
            fid::POWER_TRANSITIONS => self.power.is_some(),
            _ => false,
        }
    }

    fn can_change(&self, id: u8) -> bool {
        match id {
            fid::VOLATILE_WRITE_CACHE | fid::HOST_IDENTIFIER => false,
            fid::POWER_MANAGEMENT => self.power.is_some(),
            _ => true,
        }
    }
}

fn outcome_of(set: Result<(), Status>) -> Outcome {
    set.map_or_else(Outcome::error, |()| Outcome::SUCCESS)
}

/// Sensor (TMPSEL) and threshold (THSEL: 0 over, 1 under) of a command dword 11.
fn threshold(cdw11: u32) -> Option<(u32, usize)> {
    let which = (cdw11 >> 20 & 3) as usize;
    (which < 2).then_some((cdw11 >> 16 & 0xf, which))
}

/// A keep-alive timeout rounded up to the granularity that KAS states, 100 ms.
fn rounded(ms: u32) -> u32 {
    ms.checked_next_multiple_of(100).unwrap_or(u32::MAX / 100 * 100)
}
