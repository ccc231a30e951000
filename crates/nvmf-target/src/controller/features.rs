//! Set Features and Get Features (Base 5.15, 5.27).
//!
//! No feature can be saved (a controller ends with its association, and what it was told with it) and none is specific to a
//! namespace. What a target over TCP has no use for (interrupt coalescing and vectors, host memory buffer; power states beside
//! the only one and transitions between them, unless the server is told to show some) is an invalid field, as the specification
//! says of unsupported features.

use pilotlight_nvme::feature::{SAVE, Select, async_event, capability, fid};
use pilotlight_nvme::power::TABLE_LEN;
use pilotlight_nvme::{Sqe, Status};

use super::events::Events;
use super::power::Power;
use super::{ControllerParams, Outcome};

const TIMESTAMP_LEN: u32 = 8;
const HOST_ID_LEN: u32 = 16;
/// Events that an I/O controller can report, and a discovery controller.
const IO_EVENTS: u32 = async_event::NAMESPACE_ATTRIBUTE | async_event::SMART;
const DISCOVERY_EVENTS: u32 = async_event::DISCOVERY_CHANGE;
/// What the composite temperature never reaches; it never falls below 0.
const TEMPERATURE_NONE: u32 = 0xffff;
/// Timestamp origin: set by Set Features. The other, 0, is "milliseconds since the last reset".
const TIMESTAMP_SET: u8 = 1 << 1;
const TIMESTAMP_MASK: u64 = 0xffff_ffff_ffff;
/// EXHID: the host identifier has 128 bits, as over fabrics it always has.
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
    /// As Connect asked for, which is what a reset returns to.
    connected_kato_ms: u32,
    max_queues: u16,
    granted_queues: u16,
    /// I/O queues have connected: their number can no longer be changed.
    queues_settled: bool,
    host_id: [u8; 16],
    /// What the host says the time was when the controller was enabled, in milliseconds since 1970, once it has said so.
    enabled_at_ms: Option<u64>,
    /// Where power states are shown.
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
            queues_settled: false,
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

    pub(super) fn settle_queues(&mut self) {
        self.queues_settled = true;
    }

    /// Bytes that Set Features brings for feature `id`.
    pub(super) fn data_len(&self, id: u8) -> u32 {
        match id {
            fid::TIMESTAMP => TIMESTAMP_LEN,
            fid::POWER_TRANSITIONS if self.power.is_some() => TABLE_LEN as u32,
            _ => 0,
        }
    }

    /// Bytes that Get Features takes back.
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
        if !self.knows(id, discovery) {
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
                fid::POWER_MANAGEMENT => return settled(power.set(value)),
                fid::POWER_TRANSITIONS => return settled(power.set_transitions(value, data)),
                _ => {}
            }
        }
        match id {
            fid::ARBITRATION => self.arbitration = value,
            fid::POWER_MANAGEMENT if value & 0x1f == 0 => {} // power state 0 is the only one
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
            // The cache is the medium's and cannot be turned off; the host identifier is Connect's.
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
        if self.queues_settled {
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
            _ => Outcome::error(Status::INVALID_FIELD), // there are no sensors beside the composite temperature
        }
    }

    fn set_timestamp(&mut self, data: &[u8], uptime_ms: u64) -> Outcome {
        let Some(bytes) = data.first_chunk::<8>() else { return Outcome::error(Status::SGL_LENGTH_INVALID) };
        let told = u64::from_le_bytes(*bytes) & TIMESTAMP_MASK;
        self.enabled_at_ms = Some(told.wrapping_sub(uptime_ms));
        Outcome::SUCCESS
    }

    /// Get Features; `uptime_ms` is the time since the controller was enabled.
    pub(super) fn get(&self, sqe: &Sqe, out: &mut [u8], uptime_ms: u64, events: &Events, discovery: bool) -> Outcome {
        let (id, cdw11) = (sqe.cdw10() as u8, sqe.cdw11());
        let Some(select) = Select::decode(sqe.cdw10()).filter(|_| self.knows(id, discovery)) else {
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

    fn knows(&self, id: u8, discovery: bool) -> bool {
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

fn settled(set: Result<(), Status>) -> Outcome {
    set.map_or_else(Outcome::error, |()| Outcome::SUCCESS)
}

/// Which temperature a command dword 11 means: sensor (TMPSEL) and threshold, over (0) or under (1) it (THSEL).
fn threshold(cdw11: u32) -> Option<(u32, usize)> {
    let which = (cdw11 >> 20 & 3) as usize;
    (which < 2).then_some((cdw11 >> 16 & 0xf, which))
}

/// A keep-alive timeout rounded up to the granularity that KAS states, 100 ms.
fn rounded(ms: u32) -> u32 {
    ms.checked_next_multiple_of(100).unwrap_or(u32::MAX / 100 * 100)
}
