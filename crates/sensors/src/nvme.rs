//! State of an NVMe drive by admin commands through `/dev/nvmeN` (NVMe Base 2.3): the SMART log page (02h) with temperature, data units
//! and, if supported, the power of the last second and the lifetime energy; the current power state (Get Features 02h) and its maximum
//! power; and optionally the power measurement log page (25h), whose mean, maximum and number of measurements cover the time since the
//! measurement was started. These are gauges and not integrated, because that time may include time before the run.
//!
//! Nothing is set. A command can wake a drive from a non-operational power state, so the interval is 1 s.

use std::io;

use pilotlight_drive::Roots;
use pilotlight_drive::{Controller, Drive};

use crate::sensor::{Domain, Missing, Open, Part, ReadError, Reading, Sensor, SensorInfo, Unit, Why};
use crate::timing::Timing;

const NAME: &str = "nvme";
pub(crate) const INTERVAL_NS: u64 = 1_000_000_000;
const SMART_LOG: u8 = 0x02;
const POWER_MEASUREMENT_LOG: u8 = 0x25;
const POWER_MANAGEMENT: u8 = 0x02;
/// A data unit of the SMART log is 1,000 blocks of 512 bytes.
const DATA_UNIT_BYTES: u128 = 512_000;
/// Zero degrees Celsius, in kelvins.
const ZERO_CELSIUS_K: i64 = 273;
const DENIED: &str = "run as root, or give the program cap_sys_admin (required for admin commands) and let it open \
    the device with a udev rule: KERNEL==\"nvme[0-9]*\", GROUP=\"power\", MODE=\"0660\"";

/// Options of the sensor.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// The controller, such as `nvme0`.
    pub drive: String,
    /// Also read the power measurement log page, which must be measuring (`nvme feat power-meas`).
    pub measurement_log: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { drive: "nvme0".into(), measurement_log: false }
    }
}

/// An open drive.
pub struct Nvme {
    drive: Box<dyn Drive>,
    info: SensorInfo,
    /// Maximum power of each state, in microwatts; 0 if not reported.
    states_uw: Vec<i64>,
    has_interval_power: bool,
    measurement_log: bool,
}

/// Indices of the domains that all drives have.
const TEMPERATURE: usize = 0;
const READ: usize = 1;
const WRITTEN: usize = 2;
const STATE: usize = 3;
const STATE_LIMIT: usize = 4;
const LIFETIME: usize = 5;

impl Open for Nvme {
    type Options = Options;

    fn open(roots: &Roots, options: &Options) -> Result<Self, Missing> {
        let path = roots.dev.join(&options.drive);
        let absent = "set drive to a controller in /dev/nvme*; SATA and virtio drives do not have these commands";
        let drive = Controller::open(&path).map_err(|error| Missing::file(NAME, &path, &error, absent, DENIED))?;
        Self::with_drive(Box::new(drive), options)
    }
}

impl Nvme {
    fn with_drive(mut drive: Box<dyn Drive>, options: &Options) -> Result<Self, Missing> {
        let failed = |error: io::Error| {
            let why = if error.kind() == io::ErrorKind::PermissionDenied { Why::Denied } else { Why::Broken };
            Missing::new(NAME, why, format!("{} failed: {error}", options.drive), DENIED)
        };
        let identity = drive.identify().map_err(failed)?;
        let mut page = [0; 512];
        drive.log_page(SMART_LOG, &mut page).map_err(failed)?;
        let has_interval_power = Smart::decode(&page).interval_uw.is_some();
        let part = || Part::Drive(options.drive.clone());
        let mut domains = vec![
            Domain::gauge("temperature", Unit::MilliCelsius),
            Domain::counter("read", Unit::Byte),
            Domain::counter("written", Unit::Byte),
            Domain::gauge("power-state", Unit::Count),
            Domain::gauge("power-state-limit", Unit::MicroWatt),
            Domain::counter("lifetime", Unit::WattHour).timed(Timing::default().steps(1)),
        ];
        if has_interval_power {
            // The power of the last second (NVMe Base 2.3, SMART log).
            let last_second = Timing { averaging_ns: Some(1_000_000_000), ..Timing::default() };
            domains.push(Domain::power("interval-power", part()).timed(last_second));
        }
        if options.measurement_log {
            domains.push(Domain::gauge("measured-mean", Unit::MicroWatt));
            domains.push(Domain::gauge("measured-max", Unit::MicroWatt));
            domains.push(Domain::counter("measured", Unit::Count));
        }
        let states_uw = states_uw(&identity);
        let (info, measurement_log) = (SensorInfo::slow(NAME, INTERVAL_NS, domains), options.measurement_log);
        let mut nvme = Self { drive, info, states_uw, has_interval_power, measurement_log };
        nvme.read(&mut Vec::new()).map_err(|error| {
            let help = "omit measurement_log, or start the measurement (nvme feat power-meas)";
            Missing::new(NAME, Why::Broken, error.to_string(), help)
        })?;
        Ok(nvme)
    }

    /// The current power state (Get Features 02h, bits 4:0).
    fn power_state(&mut self) -> Result<usize, ReadError> {
        let value =
            self.drive.feature(POWER_MANAGEMENT, &mut []).map_err(|error| ReadError::io("the power state", error))?;
        Ok((value & 0x1f) as usize)
    }

    fn measured(&mut self) -> Result<[i64; 3], ReadError> {
        let mut page = [0; 64];
        let read = self.drive.log_page(POWER_MEASUREMENT_LOG, &mut page);
        read.map_err(|error| ReadError::io("the power measurement log", error))?;
        measured(&page)
    }
}

impl Sensor for Nvme {
    fn info(&self) -> &SensorInfo {
        &self.info
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        let mut page = [0; 512];
        self.drive.log_page(SMART_LOG, &mut page).map_err(|error| ReadError::io("the SMART log", error))?;
        let smart = Smart::decode(&page);
        let state = self.power_state()?;
        let mut add = |domain, value| into.push(Reading { domain, value });
        if let Some(temperature) = smart.temperature_mc {
            add(TEMPERATURE, temperature);
        }
        add(READ, smart.read_bytes);
        add(WRITTEN, smart.written_bytes);
        add(STATE, state as i64);
        if let Some(&limit) = self.states_uw.get(state).filter(|&&limit| limit > 0) {
            add(STATE_LIMIT, limit);
        }
        if let Some(wh) = smart.lifetime_wh {
            add(LIFETIME, wh);
        }
        let mut next = LIFETIME + 1;
        if self.has_interval_power {
            let missing = || ReadError::Content("the drive no longer reports its interval power".into());
            add(next, smart.interval_uw.ok_or_else(missing)?);
            next += 1;
        }
        if self.measurement_log {
            let values = self.measured()?.into_iter().enumerate();
            into.extend(values.map(|(at, value)| Reading { domain: next + at, value }));
        }
        Ok(())
    }
}

/// Fields of the SMART log page.
#[derive(Debug, PartialEq, Eq)]
struct Smart {
    /// `None` if the drive reports 0 K.
    temperature_mc: Option<i64>,
    read_bytes: i64,
    written_bytes: i64,
    /// Watt-hours since manufacture, rounded up; `None` if not reported.
    lifetime_wh: Option<i64>,
    /// Mean of the last second; `None` if not reported.
    interval_uw: Option<i64>,
}

impl Smart {
    fn decode(page: &[u8; 512]) -> Self {
        let u16_at = |at: usize| u16::from_le_bytes([page[at], page[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let u128_at = |at: usize| (0..16).rev().fold(0_u128, |value, byte| value << 8 | u128::from(page[at + byte]));
        let bytes = |units: u128| i64::try_from(units.saturating_mul(DATA_UNIT_BYTES)).unwrap_or(i64::MAX);
        let lifetime = u64::from(u32_at(232)) | u64::from(u32_at(236)) << 32;
        Self {
            temperature_mc: Some(i64::from(u16_at(1))).filter(|&k| k > 0).map(|k| (k - ZERO_CELSIUS_K) * 1_000),
            read_bytes: bytes(u128_at(32)),
            written_bytes: bytes(u128_at(48)),
            lifetime_wh: i64::try_from(lifetime).ok().filter(|&wh| wh > 0),
            interval_uw: scaled_power(u32_at(240)),
        }
    }
}

/// A power in bits 15:0 with its scale in bits 17:16: 1 for 100 uW, 2 for 10 mW, 0 for not reported.
fn scaled_power(field: u32) -> Option<i64> {
    let value = i64::from(field & 0xffff);
    match (field >> 16) & 3 {
        1 if value > 0 => Some(value * 100),
        2 if value > 0 => Some(value * 10_000),
        _ => None,
    }
}

/// Mean and greatest power of the intervals in the power measurement log page, and how many there were.
///
/// Places of fields follow the order in which nvme-cli's `power-measurement-log` prints them, in natural alignment: version (1 byte),
/// generation (1), attributes (2), size (4), count (4), descriptors (2), minutes left (2), end (8), four sizes (2 each), overflows (4),
/// mean (4), maximum (4). No drive with this page was available.
fn measured(page: &[u8; 64]) -> Result<[i64; 3], ReadError> {
    let wrong = |what: &str| Err(ReadError::Content(format!("the power measurement log {what}")));
    let u32_at = |at: usize| u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
    let (version, attributes, size) = (page[0], page[2], u32_at(4));
    if version != 0 || size < 53 {
        return wrong(&format!("has version {version} and {size} bytes, which is not understood"));
    }
    if attributes & 1 == 0 {
        return wrong("is not measuring");
    }
    let (mean, greatest) = (scaled_power(u32_at(36)), scaled_power(u32_at(40)));
    match mean.zip(greatest) {
        Some((mean, greatest)) => Ok([mean, greatest, u32_at(8).into()]),
        None => wrong("has no mean power yet"),
    }
}

/// Greatest power of each state of Identify Controller: NPSS at byte 263, descriptors of 32 bytes from byte 2048 on.
fn states_uw(identity: &[u8; 4096]) -> Vec<i64> {
    let descriptors = identity[2048..].chunks(32).take(usize::from(identity[263]).min(31) + 1);
    let power = |descriptor: &[u8]| {
        let value = i64::from(u16::from_le_bytes([descriptor[0], descriptor[1]]));
        // Max Power Scale: 0.01 W, or 0.0001 W where it is set.
        value * if descriptor[3] & 1 == 0 { 10_000 } else { 100 }
    };
    descriptors.map(power).collect()
}

#[cfg(test)]
mod tests;
