//! PowerSensor3 (van der Vlugt and others, 2025): a USB device that measures current and voltage of up to four pairs at 20 kHz. Its serial
//! protocol follows the published firmware and host library.
//!
//! **Protocol.** The host sends letters: `R` requests the configuration of the eight sensors, 41 bytes each (type and pair
//! name of 16 bytes, reference in volts and sensitivity as `f32`, one byte for "in use"; little endian), each followed by any
//! letter from the host, and after all a `D`; `S` starts the stream, `T` ends it, `X` ends it with the bytes `FF 3F`, twice.
//! The stream is packets of two bytes, `1iiihhhh 0mllllll`: sensor `i`, ten bits of level `hhhhllllll`, and a marker `m`. A
//! packet of sensor 7 with a marker is a time stamp: its level is microseconds modulo 1,024. Even sensors are currents, odd ones
//! the voltages that belong to them. (`FF 3F` once is sensor 7 at its greatest level.) A value is `(3.3 V x level / 1023 - reference) / sensitivity`.
//!
//! A thread reads the stream and integrates (trapezoids between the device's time stamps), so no sample is lost between readings. Lost
//! data is detected as a lag of the device's clock behind the host's, and is an error.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pilotlight_drive::Roots;
use rustix::time::{ClockId, clock_gettime};

use crate::files;
use crate::sensor::{Counts, Domain, Kind, Missing, Open, Part, ReadError, Reading, Sensor, SensorInfo, Unit, Why};

const NAME: &str = "powersensor3";
pub(crate) const INTERVAL_NS: u64 = 1_000_000;
const SENSORS: usize = 8;
const PAIRS: usize = SENSORS / 2;
const CONFIGURATION_BYTES: usize = 41;
const REFERENCE_V: f64 = 3.3;
const MAX_LEVEL: f64 = 1023.0;
/// Time stamps count microseconds modulo this.
const STAMP_MODULUS: u16 = 1024;
/// Read timeout of the port, in tenths of a second.
const PORT_TIMEOUT: u8 = 1;
/// Time without data after which the stream has ended.
const STREAM_TIMEOUT: Duration = Duration::from_secs(1);
/// Tolerated lag of the device's clock for data in flight. The device buffers less than a kilobyte.
const MAX_LAG: Duration = Duration::from_millis(100);
/// Relative difference of the clocks: less than one part in this.
const CLOCK_TOLERANCE: u32 = 1_000;
const DENIED: &str = "run as root, join the group dialout, or use a udev rule: SUBSYSTEM==\"tty\", KERNEL==\"ttyACM*\", \
    GROUP=\"power\", MODE=\"0660\"";

/// Options of the sensor.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// The port below `/dev`, such as `ttyACM0`. No other port is accessed.
    pub device: Option<String>,
    /// The part of the machine that all pairs supply, such as a drive on a riser card.
    pub part: Option<Part>,
}

/// A PowerSensor3 with a running stream.
#[derive(Debug)]
pub struct PowerSensor3 {
    info: SensorInfo,
    pairs: Vec<usize>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    cpu_ns: AtomicU64,
    totals: Mutex<Totals>,
}

#[derive(Clone, Debug, Default)]
struct Totals {
    /// Twice the energy of each pair, in picojoules.
    twice_pj: [i128; PAIRS],
    /// Time according to the device's stamps, in microseconds.
    device_us: u64,
    failed: Option<String>,
}

impl Open for PowerSensor3 {
    type Options = Options;

    fn open(roots: &Roots, options: &Options) -> Result<Self, Missing> {
        let absent = "connect it and set its port (device = \"ttyACM0\")";
        let Some(device) = &options.device else {
            let ports = files::names(&roots.dev).unwrap_or_default();
            let ports: Vec<String> = ports.into_iter().filter(|name| name.starts_with("ttyACM")).collect();
            let what = match ports.as_slice() {
                [] => "device is not set, and there is no /dev/ttyACM*".to_owned(),
                ports => format!("device is not set; ports: {}", ports.join(", ")),
            };
            return Err(Missing::new(NAME, Why::NotConfigured, what, absent));
        };
        let path = roots.dev.join(device);
        let port = open_port(&path).map_err(|error| Missing::file(NAME, &path, &error, absent, DENIED))?;
        Self::start(port, options.part.clone())
    }
}

/// Opens the port as a raw serial line with a read timeout.
fn open_port(path: &Path) -> io::Result<File> {
    use rustix::termios::{OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};
    let port = OpenOptions::new().read(true).write(true).open(path)?;
    let mut settings = tcgetattr(&port)?;
    settings.make_raw();
    settings.special_codes[SpecialCodeIndex::VMIN] = 0;
    settings.special_codes[SpecialCodeIndex::VTIME] = PORT_TIMEOUT;
    tcsetattr(&port, OptionalActions::Flush, &settings)?;
    Ok(port)
}

impl PowerSensor3 {
    /// Starts the stream of a port whose reads have a timeout.
    fn start<P: Read + Write + Send + 'static>(mut port: P, part: Option<Part>) -> Result<Self, Missing> {
        let sensors = configuration(&mut port).map_err(|error| {
            Missing::new(
                NAME,
                Why::Broken,
                format!("the device is not a PowerSensor3: {error}"),
                "set device to the port of the PowerSensor3",
            )
        })?;
        let pairs: Vec<usize> =
            (0..PAIRS).filter(|&pair| sensors[2 * pair].in_use && sensors[2 * pair + 1].in_use).collect();
        if pairs.is_empty() {
            let help = "enable the connected pairs with psconfig";
            return Err(Missing::new(NAME, Why::NotConfigured, "no pair of sensors is enabled", help));
        }
        port.write_all(b"S").map_err(|error| Missing::new(NAME, Why::Broken, error.to_string(), DENIED))?;
        let shared = Arc::new(Shared::default());
        let receiver = Receiver { port, shared: shared.clone(), stream: Stream::new(&sensors) };
        let thread = thread::Builder::new().name(NAME.into()).spawn(move || receiver.run());
        let thread =
            thread.map_err(|error| Missing::new(NAME, Why::Broken, error.to_string(), "allow more threads"))?;
        let info = SensorInfo::new(NAME, INTERVAL_NS, domains(&sensors, &pairs, part));
        Ok(Self { info, pairs, shared, thread: Some(thread) })
    }
}

fn domains(sensors: &[Configuration; SENSORS], pairs: &[usize], part: Option<Part>) -> Vec<Domain> {
    let counts = Counts { may_decrease: true, update_ns: 50_000, ..Counts::endless() };
    let domain = |name: String, part| Domain::new(name, Kind::EnergyCounter(counts), Unit::MicroJoule, part);
    let total = domain("total".into(), part.unwrap_or_else(|| Part::Unknown("all pairs of PowerSensor3".into())));
    let alike = |name: &str| pairs.iter().filter(|&&pair| sensors[2 * pair].pair_name == name).count();
    let pair = |&pair: &usize| {
        let name = match sensors[2 * pair].pair_name.as_str() {
            "" => format!("pair-{pair}"),
            name if alike(name) > 1 => format!("{name}#{pair}"),
            name => name.to_owned(),
        };
        domain(name.clone(), Part::Unknown(name)).within(Some(0))
    };
    [total].into_iter().chain(pairs.iter().map(pair)).collect()
}

/// Conversion of a sensor's levels to volts or amperes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Configuration {
    pair_name: String,
    reference_v: f64,
    sensitivity: f64,
    in_use: bool,
}

impl Configuration {
    fn decode(bytes: &[u8; CONFIGURATION_BYTES]) -> Self {
        let float = |at: usize| f64::from(f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]));
        let name: Vec<u8> = bytes[16..32].iter().copied().take_while(|&byte| byte != 0).collect();
        Self {
            pair_name: String::from_utf8_lossy(&name).into_owned(),
            reference_v: float(32),
            sensitivity: float(36),
            in_use: bytes[40] != 0,
        }
    }

    fn value(&self, level: u16) -> f64 {
        (REFERENCE_V * f64::from(level) / MAX_LEVEL - self.reference_v) / self.sensitivity
    }
}

/// Stops a running stream and reads the configuration of all sensors.
fn configuration(port: &mut (impl Read + Write)) -> io::Result<[Configuration; SENSORS]> {
    port.write_all(b"T")?;
    let mut rest = [0; 4096];
    let until = Instant::now() + STREAM_TIMEOUT;
    while port.read(&mut rest)? > 0 {
        if Instant::now() > until {
            return Err(io::Error::other("the stream does not stop"));
        }
    }
    port.write_all(b"R")?;
    let mut sensors: [Configuration; SENSORS] = Default::default();
    for sensor in &mut sensors {
        let mut bytes = [0; CONFIGURATION_BYTES];
        fill(port, &mut bytes)?;
        *sensor = Configuration::decode(&bytes);
        port.write_all(b"s")?;
    }
    let mut done = [0];
    fill(port, &mut done)?;
    if done != *b"D" {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the configuration does not end with D"));
    }
    let usable =
        |sensor: &Configuration| !sensor.in_use || (sensor.sensitivity.is_normal() && sensor.reference_v.is_finite());
    if !sensors.iter().all(usable) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a sensor in use has no sensitivity"));
    }
    Ok(sensors)
}

fn fill(port: &mut impl Read, mut into: &mut [u8]) -> io::Result<()> {
    let until = Instant::now() + STREAM_TIMEOUT;
    while !into.is_empty() {
        let length = port.read(into)?;
        into = &mut into[length..];
        if Instant::now() > until {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "timed out"));
        }
    }
    Ok(())
}

/// A packet of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packet {
    Stamp(u16),
    Level(usize, u16),
    End,
}

/// Decodes packets and resynchronizes after a lost byte.
#[derive(Debug, Default)]
struct Decoder {
    held: Option<u8>,
    /// Whether the previous packet was `FF 3F`.
    half_ended: bool,
}

impl Decoder {
    fn push(&mut self, byte: u8) -> Option<Packet> {
        let Some(first) = self.held.take() else {
            self.held = (byte & 0x80 != 0).then_some(byte);
            return None;
        };
        if byte & 0x80 != 0 {
            self.held = Some(byte);
            return None;
        }
        let (sensor, marker) = (usize::from(first >> 4 & 7), byte & 0x40 != 0);
        let level = u16::from(first & 0x0f) << 6 | u16::from(byte & 0x3f);
        let half_ended = (first, byte) == (0xff, 0x3f);
        let ended = half_ended && self.half_ended;
        self.half_ended = half_ended;
        Some(match sensor {
            _ if ended => Packet::End,
            _ if marker && sensor == SENSORS - 1 => Packet::Stamp(level),
            _ => Packet::Level(sensor, level),
        })
    }
}

/// Integrates the powers of all pairs.
#[derive(Debug)]
struct Stream {
    sensors: [Configuration; SENSORS],
    decoder: Decoder,
    levels: [Option<u16>; SENSORS],
    stamp: Option<u16>,
    /// Stamp and powers in microwatts of the last complete set.
    before: Option<(u16, [i128; PAIRS])>,
}

impl Stream {
    fn new(sensors: &[Configuration; SENSORS]) -> Self {
        Self {
            sensors: sensors.clone(),
            decoder: Decoder::default(),
            levels: [None; SENSORS],
            stamp: None,
            before: None,
        }
    }

    /// Processes bytes. Returns whether the device has ended the stream.
    fn take(&mut self, bytes: &[u8], totals: &mut Totals) -> bool {
        for &byte in bytes {
            match self.decoder.push(byte) {
                Some(Packet::Level(sensor, level)) => self.levels[sensor] = Some(level),
                Some(Packet::Stamp(stamp)) => {
                    self.close_set(totals);
                    (self.stamp, self.levels) = (Some(stamp), [None; SENSORS]);
                }
                Some(Packet::End) => return true,
                None => {}
            }
        }
        false
    }

    /// Adds the trapezoid between the last set and this one, if complete.
    fn close_set(&mut self, totals: &mut Totals) {
        let (Some(stamp), Some(powers)) = (self.stamp, self.powers()) else { return };
        if let Some((before, last)) = self.before {
            let us = stamp.wrapping_sub(before) % STAMP_MODULUS;
            totals.device_us += u64::from(us);
            for (pair, twice) in totals.twice_pj.iter_mut().enumerate() {
                *twice += (last[pair] + powers[pair]) * i128::from(us);
            }
        }
        self.before = Some((stamp, powers));
    }

    fn powers(&self) -> Option<[i128; PAIRS]> {
        let mut powers = [0; PAIRS];
        for (pair, power) in powers.iter_mut().enumerate() {
            let (current, voltage) = (&self.sensors[2 * pair], &self.sensors[2 * pair + 1]);
            if current.in_use && voltage.in_use {
                let watts = current.value(self.levels[2 * pair]?) * voltage.value(self.levels[2 * pair + 1]?);
                *power = (watts * 1e6).round() as i128;
            }
        }
        Some(powers)
    }
}

/// The thread that reads the stream.
struct Receiver<P> {
    port: P,
    shared: Arc<Shared>,
    stream: Stream,
}

impl<P: Read + Write> Receiver<P> {
    fn run(mut self) {
        let ended = self.receive();
        let _ = self.port.write_all(b"T");
        self.totals(|totals| totals.failed = totals.failed.take().or(ended));
    }

    fn totals<R>(&self, update: impl FnOnce(&mut Totals) -> R) -> R {
        update(&mut self.shared.totals.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs until stopped (`None`) or until the stream ends (the reason).
    fn receive(&mut self) -> Option<String> {
        let (mut buffer, mut last, mut clock) = ([0; 4096], Instant::now(), Clock::default());
        while !self.shared.stop.load(Ordering::Relaxed) {
            let before = Instant::now();
            let length = match self.port.read(&mut buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Some(format!("cannot read the port: {error}")),
            };
            if length > 0 {
                last = Instant::now();
            } else if last.elapsed() > STREAM_TIMEOUT {
                return Some("the device stopped sending".into());
            }
            let shared = self.shared.clone();
            let mut totals = shared.totals.lock().unwrap_or_else(PoisonError::into_inner);
            if self.stream.take(&buffer[..length], &mut totals) {
                return Some("the device has ended the stream".into());
            }
            let device_us = totals.device_us;
            drop(totals);
            if let Some(lost) = clock.lost(before, device_us, length < buffer.len()) {
                return Some(format!("the device's clock lags by {lost:?}: samples were lost"));
            }
            let used = clock_gettime(ClockId::ThreadCPUTime);
            shared.cpu_ns.store(used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64, Ordering::Relaxed);
        }
        None
    }
}

/// Compares the device's clock with the host's.
#[derive(Debug, Default)]
struct Clock {
    /// Host and device time at the first time stamp.
    began: Option<(Instant, u64)>,
}

impl Clock {
    /// Lag of the device's clock if it exceeds [`MAX_LAG`]. `before` is a time before the last read; data sent by then was processed if the
    /// read returned `all` available bytes.
    fn lost(&mut self, before: Instant, device_us: u64, all: bool) -> Option<Duration> {
        if device_us == 0 {
            return None;
        }
        let (began, began_us) = *self.began.get_or_insert((before, device_us));
        let (host, device) = (before.duration_since(began), Duration::from_micros(device_us - began_us));
        let behind = host.saturating_sub(host / CLOCK_TOLERANCE).saturating_sub(device);
        (all && behind > MAX_LAG).then_some(behind)
    }
}

impl Sensor for PowerSensor3 {
    fn info(&self) -> &SensorInfo {
        &self.info
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        let totals = self.shared.totals.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(why) = totals.failed {
            return Err(ReadError::Content(why));
        }
        let uj = |pair: &usize| (totals.twice_pj[*pair] / 2_000_000) as i64;
        into.push(Reading { domain: 0, value: self.pairs.iter().map(uj).sum() });
        into.extend(self.pairs.iter().enumerate().map(|(index, pair)| Reading { domain: index + 1, value: uj(pair) }));
        Ok(())
    }

    fn helpers_cpu_ns(&self) -> u64 {
        self.shared.cpu_ns.load(Ordering::Relaxed)
    }
}

impl Drop for PowerSensor3 {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
