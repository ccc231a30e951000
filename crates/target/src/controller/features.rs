//! Set Features and Get Features (Base 5.15, 5.27).
//!
//! No feature can be saved and none is specific to a namespace. What a target over TCP has no use for (interrupt
//! coalescing and vectors, host memory buffer, autonomous power states) is an invalid field, as the specification says
//! of unsupported features.

use pilotlight_nvme::feature::{SAVE, Select, async_event, capability, fid};
use pilotlight_nvme::{Sqe, Status};

use super::events::Events;
use super::{ControllerParams, Outcome};

const TIMESTAMP_LEN: u32 = 8;
const HOST_ID_LEN: u32 = 16;
/// Events that an I/O controller can report, and a discovery controller.
const IO_EVENTS: u32 = async_event::NAMESPACE_ATTRIBUTE | async_event::SMART;
const DISCOVERY_EVENTS: u32 = async_event::DISCOVERY_CHANGE;
const TEMPERATURE_NONE: u32 = 0xffff;
/// Timestamp origin: set by Set Features.
const TIMESTAMP_SET: u8 = 1 << 1;

/// The values of a controller's features.
#[derive(Debug)]
pub(super) struct Features {
    arbitration: u32,
    temperature_threshold: u32,
    error_recovery: u32,
    write_atomicity: u32,
    kato_ms: u32,
    max_queues: u16,
    granted_queues: u16,
    host_id: [u8; 16],
    /// Difference between what the host says the time is and our clock, once it has said so.
    timestamp_offset: Option<i64>,
}

impl Features {
    pub(super) fn new(params: &ControllerParams) -> Self {
        Self {
            arbitration: 0,
            temperature_threshold: TEMPERATURE_NONE,
            error_recovery: 0,
            write_atomicity: 0,
            kato_ms: rounded(params.kato_ms),
            max_queues: params.max_io_queues,
            granted_queues: params.max_io_queues,
            host_id: params.hostid,
            timestamp_offset: None,
        }
    }

    pub(super) fn kato_ms(&self) -> u32 {
        self.kato_ms
    }

    pub(super) fn granted_queues(&self) -> u16 {
        self.granted_queues
    }

    /// Bytes that Set Features brings for feature `id`.
    pub(super) fn data_len(id: u8) -> u32 {
        if id == fid::TIMESTAMP { TIMESTAMP_LEN } else { 0 }
    }

    /// Bytes that Get Features takes back.
    pub(super) fn get_data_len(sqe: &Sqe) -> u32 {
        if Select::decode(sqe.cdw10()) == Some(Select::Supported) {
            return 0;
        }
        match sqe.cdw10() as u8 {
            fid::TIMESTAMP => TIMESTAMP_LEN,
            fid::HOST_IDENTIFIER => HOST_ID_LEN,
            _ => 0,
        }
    }

    pub(super) fn set(
        &mut self,
        sqe: &Sqe,
        data: &[u8],
        unix_time_ms: u64,
        events: &mut Events,
        discovery: bool,
    ) -> Outcome {
        let (id, value) = (sqe.cdw10() as u8, sqe.cdw11());
        if !known(id, discovery) {
            return Outcome::error(Status::INVALID_FIELD);
        }
        if sqe.cdw10() & SAVE != 0 {
            return Outcome::error(Status::FEATURE_NOT_SAVEABLE);
        }
        match id {
            fid::ARBITRATION => self.arbitration = value,
            fid::POWER_MANAGEMENT if value & 0x1f == 0 => {} // power state 0 is the only one
            fid::TEMPERATURE_THRESHOLD => self.temperature_threshold = value & 0xffff,
            fid::ERROR_RECOVERY if value & 1 << 16 == 0 => self.error_recovery = value & 0xffff,
            fid::WRITE_ATOMICITY => self.write_atomicity = value & 1,
            fid::NUMBER_OF_QUEUES => return self.set_queues(value),
            fid::ASYNC_EVENT_CONFIGURATION => {
                events.mask = value & if discovery { DISCOVERY_EVENTS } else { IO_EVENTS };
            }
            fid::TIMESTAMP => return self.set_timestamp(data, unix_time_ms),
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
        self.granted_queues = self.max_queues.min(sq + 1).min(cq + 1);
        Outcome::result(self.queues())
    }

    fn queues(&self) -> u32 {
        let less_one = u32::from(self.granted_queues) - 1;
        less_one | less_one << 16
    }

    fn set_timestamp(&mut self, data: &[u8], unix_time_ms: u64) -> Outcome {
        let Some(bytes) = data.first_chunk::<8>() else { return Outcome::error(Status::SGL_LENGTH_INVALID) };
        let set = u64::from_le_bytes(*bytes) & 0xffff_ffff_ffff;
        self.timestamp_offset = Some(set as i64 - unix_time_ms as i64);
        Outcome::SUCCESS
    }

    pub(super) fn get(
        &self,
        sqe: &Sqe,
        out: &mut [u8],
        unix_time_ms: u64,
        events: &Events,
        discovery: bool,
    ) -> Outcome {
        let id = sqe.cdw10() as u8;
        let Some(select) = Select::decode(sqe.cdw10()).filter(|_| known(id, discovery)) else {
            return Outcome::error(Status::INVALID_FIELD);
        };
        match select {
            Select::Supported => Outcome::result(if changeable(id) { capability::CHANGEABLE } else { 0 }),
            Select::Default | Select::Saved => Outcome::result(self.default_of(id)),
            Select::Current => self.current(id, out, unix_time_ms, events),
        }
    }

    fn current(&self, id: u8, out: &mut [u8], unix_time_ms: u64, events: &Events) -> Outcome {
        Outcome::result(match id {
            fid::ARBITRATION => self.arbitration,
            fid::TEMPERATURE_THRESHOLD => self.temperature_threshold,
            fid::ERROR_RECOVERY => self.error_recovery,
            fid::VOLATILE_WRITE_CACHE => 1,
            fid::NUMBER_OF_QUEUES => self.queues(),
            fid::WRITE_ATOMICITY => self.write_atomicity,
            fid::ASYNC_EVENT_CONFIGURATION => events.mask,
            fid::KEEP_ALIVE_TIMER => self.kato_ms,
            fid::TIMESTAMP => {
                let now = unix_time_ms.wrapping_add_signed(self.timestamp_offset.unwrap_or(0));
                out.copy_from_slice(&(now & 0xffff_ffff_ffff).to_le_bytes());
                out[6] = if self.timestamp_offset.is_some() { TIMESTAMP_SET } else { 0 };
                0
            }
            fid::HOST_IDENTIFIER => {
                out.copy_from_slice(&self.host_id);
                0
            }
            _ => 0,
        })
    }

    fn default_of(&self, id: u8) -> u32 {
        match id {
            fid::TEMPERATURE_THRESHOLD => TEMPERATURE_NONE,
            fid::VOLATILE_WRITE_CACHE => 1,
            fid::NUMBER_OF_QUEUES => {
                let less_one = u32::from(self.max_queues) - 1;
                less_one | less_one << 16
            }
            _ => 0,
        }
    }
}

fn known(id: u8, discovery: bool) -> bool {
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
        _ => false,
    }
}

fn changeable(id: u8) -> bool {
    !matches!(id, fid::VOLATILE_WRITE_CACHE | fid::HOST_IDENTIFIER | fid::POWER_MANAGEMENT)
}

/// A keep-alive timeout rounded up to the granularity that KAS states, 100 ms.
fn rounded(ms: u32) -> u32 {
    ms.checked_next_multiple_of(100).unwrap_or(u32::MAX / 100 * 100)
}
