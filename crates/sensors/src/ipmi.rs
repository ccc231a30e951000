//! Power of the server as measured by its BMC: IPMI-DCMI "Get Power Reading" (DCMI 1.5, 6.6.1), through the kernel's device
//! `/dev/ipmi0` or `ipmitool dcmi power reading` (also over the network). Without it, the BMC's sensors in watts that `ipmitool` lists
//! (`sdr.rs`).
//!
//! A BMC reports whole watts about once a second. The lag is not documented; 1 s is assumed.

use std::io::ErrorKind;
use std::thread;
use std::time::Duration;

use pilotlight_drive::Roots;
use pilotlight_power::plausible;

use crate::sdr;
use crate::sensor::{Domain, Missing, Open, Part, ReadError, Reading, Sensor, SensorInfo, Why};
use crate::sys::{child, ipmi::Bmc};
use crate::timing::Timing;

const NAME: &str = "ipmi";
pub(crate) const INTERVAL_NS: u64 = 1_000_000_000;
/// Whole watts; the averaging time is not reported, and the lag is an assumption.
const TIMING: Timing =
    Timing { update_ns: INTERVAL_NS, averaging_ns: None, lag_ns: Some(1_000_000_000), quantum: Some(1_000_000) };
/// Network function and command of DCMI's Get Power Reading, and its data: group extension, system power statistics.
const NETFN_GROUP: u8 = 0x2c;
const GET_POWER_READING: u8 = 0x02;
const REQUEST: [u8; 4] = [GROUP_DCMI, 0x01, 0, 0];
const GROUP_DCMI: u8 = 0xdc;
const TIMEOUT: Duration = Duration::from_secs(5);
/// Tries of a reading, and the time between them (chosen: far below the interval).
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(100);
/// ipmitool reads the description and value of every sensor of the BMC, which takes seconds.
const SENSORS_INTERVAL_NS: u64 = 5_000_000_000;
const SENSORS_TIMEOUT: Duration = Duration::from_secs(30);
const ABSENT: &str = "load the kernel modules ipmi_si and ipmi_devintf, or configure ipmitool with the arguments of a BMC on the \
    network; desktops, laptops and virtual machines have no BMC";
const DENIED: &str = "run as root, or with a udev rule: KERNEL==\"ipmi*\", GROUP=\"power\", MODE=\"0660\"";
/// phosphor-host-ipmid 167.
const INACTIVE: &str = "the BMC says that its power measurement is deactivated, as OpenBMC does; its readings are used";
const SLOW: &str = "try again; if it stays so, reset the BMC (`ipmitool mc reset cold`)";
const UNSUPPORTED: &str = "the BMC may lack DCMI power management, or it may be disabled; try redfish, or install ipmitool, which finds \
    sensors in watts";

/// Access to the BMC.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Options {
    /// The kernel's device with this number: 0 for `/dev/ipmi0`.
    Device(u32),
    /// The program `ipmitool` with the arguments before `dcmi power reading`; for another host
    /// `-I lanplus -H bmc -U user -f password-file`.
    Tool(Vec<String>),
}

impl Default for Options {
    fn default() -> Self {
        Self::Device(0)
    }
}

/// The BMC's power reading.
#[derive(Debug)]
pub struct Ipmi {
    info: SensorInfo,
    access: Access,
    helpers_cpu_ns: u64,
}

#[derive(Debug)]
enum Access {
    Device(Bmc),
    Tool(Vec<String>),
    /// With the sensors in its output that are added.
    Sensors(Vec<String>, Vec<sdr::Watts>),
}

impl Open for Ipmi {
    type Options = Options;

    fn open(roots: &Roots, options: &Options) -> Result<Self, Missing> {
        let tool = match options {
            Options::Device(number) => ["ipmitool", "-I", "open", "-d", &number.to_string()].map(Into::into).to_vec(),
            Options::Tool(arguments) => arguments.clone(),
        };
        let with = |last: [&str; 3]| tool.iter().cloned().chain(last.map(Into::into)).collect();
        let access = match options {
            Options::Device(number) => {
                let path = roots.dev.join(format!("ipmi{number}"));
                Access::Device(Bmc::open(&path).map_err(|error| Missing::file(NAME, &path, &error, ABSENT, DENIED))?)
            }
            Options::Tool(_) => Access::Tool(with(["dcmi", "power", "reading"])),
        };
        let info = SensorInfo::slow(NAME, INTERVAL_NS, vec![Domain::power("system", Part::System).timed(TIMING)]);
        let mut ipmi = Self { info, access, helpers_cpu_ns: 0 };
        match ipmi.power() {
            Ok(Power { active, .. }) => {
                ipmi.info.notes.extend((!active).then(|| INACTIVE.to_owned()));
                Ok(ipmi)
            }
            // a BMC that does not answer in time may have DCMI
            Err(error) if is_timeout(&error) => Err(Missing::new(NAME, Why::Broken, error.to_string(), SLOW)),
            Err(error) => ipmi.with_sensors(with(sdr::ARGUMENTS)).map_err(|other| {
                Missing::new(NAME, Why::Broken, format!("{error}; without DCMI: {other}"), UNSUPPORTED)
            }),
        }
    }
}

/// A power reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Power {
    uw: i64,
    /// Whether the BMC says that it measures.
    active: bool,
}

impl Ipmi {
    /// The power by sensors of the BMC that `ipmitool` lists in watts.
    fn with_sensors(self, arguments: Vec<String>) -> Result<Self, ReadError> {
        let mut helpers_cpu_ns = self.helpers_cpu_ns;
        let chosen = sdr::choose(&output(&arguments, SENSORS_TIMEOUT, &mut helpers_cpu_ns)?);
        if chosen.is_empty() {
            let what = format!("{} lists no power of the system or of its power supplies", arguments.join(" "));
            return Err(ReadError::Content(what));
        }
        let names: Vec<&str> = chosen.iter().map(|sensor| sensor.name.as_str()).collect();
        let note = format!("the BMC has no DCMI power reading: power is that of its sensors {}", names.join(" + "));
        let timing = Timing { update_ns: SENSORS_INTERVAL_NS, ..TIMING };
        let domain = Domain::power("system", Part::System).timed(timing);
        let info = SensorInfo { notes: vec![note], ..SensorInfo::slow(NAME, SENSORS_INTERVAL_NS, vec![domain]) };
        let mut ipmi = Self { info, access: Access::Sensors(arguments, chosen), helpers_cpu_ns };
        ipmi.power()?;
        Ok(ipmi)
    }

    /// A BMC fails now and then with an unspecified error, or has no value at first (xen-api 5561, check_ipmi_sensor_v3 26). A time-out has
    /// taken long enough and is not repeated.
    fn power(&mut self) -> Result<Power, ReadError> {
        for _ in 1..TRIES {
            match self.try_power() {
                Err(error) if !is_timeout(&error) => thread::sleep(PAUSE),
                result => return result,
            }
        }
        self.try_power()
    }

    fn try_power(&mut self) -> Result<Power, ReadError> {
        match &mut self.access {
            Access::Device(bmc) => {
                let response = bmc.request(NETFN_GROUP, GET_POWER_READING, &REQUEST, TIMEOUT);
                decode(&response.map_err(|error| ReadError::io("the BMC", error))?)
            }
            Access::Tool(arguments) => parse(&output(arguments, TIMEOUT, &mut self.helpers_cpu_ns)?),
            Access::Sensors(arguments, chosen) => {
                let text = output(arguments, SENSORS_TIMEOUT, &mut self.helpers_cpu_ns)?;
                validated(sdr::sum(chosen, &text)?, true)
            }
        }
    }
}

/// The output of a program.
fn output(arguments: &[String], timeout: Duration, cpu_ns: &mut u64) -> Result<String, ReadError> {
    let ended = child::run(arguments, timeout);
    let ended = ended.map_err(|error| ReadError::io(format!("the output of {}", arguments.join(" ")), error))?;
    *cpu_ns += ended.cpu_ns;
    if !ended.status.success() {
        return Err(ReadError::Content(format!("{} failed with {}", arguments.join(" "), ended.status)));
    }
    Ok(ended.stdout)
}

fn is_timeout(error: &ReadError) -> bool {
    matches!(error, ReadError::Io { source, .. } if source.kind() == ErrorKind::TimedOut)
}

impl Sensor for Ipmi {
    fn info(&self) -> &SensorInfo {
        &self.info
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        let value = self.power()?.uw;
        into.push(Reading { domain: 0, value });
        Ok(())
    }

    fn helpers_cpu_ns(&self) -> u64 {
        self.helpers_cpu_ns
    }
}

/// The power in a response: completion code, group, current, minimum, maximum and mean power (two bytes each), time (four), period (four),
/// state.
fn decode(response: &[u8]) -> Result<Power, ReadError> {
    let wrong = |what: String| Err(ReadError::Content(format!("the BMC's power reading: {what}")));
    match *response {
        [0xc1, ..] => wrong("not supported (C1h)".into()),
        [code, ..] if code != 0 => wrong(format!("completion code {code:#04x}")),
        [0, GROUP_DCMI, low, high, ..] if response.len() >= 19 => {
            validated(i64::from(u16::from_le_bytes([low, high])) * 1_000_000, response[18] & 0x40 != 0)
        }
        _ => wrong(format!("invalid response of {} bytes", response.len())),
    }
}

/// The power in the output of `ipmitool dcmi power reading`.
fn parse(text: &str) -> Result<Power, ReadError> {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
        line.and_then(|rest| rest.trim_start_matches([' ', ':']).split_whitespace().next())
    };
    let active = value("Power reading state is") != Some("deactivated");
    match value("Instantaneous power reading").and_then(|watts| watts.parse::<u32>().ok()) {
        Some(watts) => validated(i64::from(watts) * 1_000_000, active),
        None => Err(ReadError::Content("no \"Instantaneous power reading\" in ipmitool's output".into())),
    }
}

/// The state is no reason to refuse a power: OpenBMC never says that it measures.
fn validated(uw: i64, active: bool) -> Result<Power, ReadError> {
    let refused = |why| ReadError::Content(format!("the BMC's power: {why}"));
    plausible::power(&Part::System, uw).map_err(refused)?;
    Ok(Power { uw, active })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(watts: u16, state: u8) -> Vec<u8> {
        let mut bytes = vec![0, GROUP_DCMI];
        for value in [watts, 2, 468, 184] {
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend([0; 4]);
        bytes.extend(1_000_u32.to_le_bytes());
        bytes.push(state);
        bytes
    }

    #[test]
    fn responses_are_decoded() {
        assert_eq!(decode(&answer(214, 0x40)).unwrap(), Power { uw: 214_000_000, active: true });
        assert_eq!(decode(&answer(360, 0)).unwrap(), Power { uw: 360_000_000, active: false }, "as OpenBMC says");
        for (bytes, expected) in [
            (answer(0, 0x40), "0 W"),
            (answer(0xffff, 0x40), "error code"),
            (answer(0, 0), "0 W"),
            (vec![0xc1], "not supported"),
            (vec![0xd4, 0], "0xd4"),
            (vec![0, GROUP_DCMI, 1, 0], "4 bytes"),
            (vec![], "0 bytes"),
        ] {
            assert!(decode(&bytes).unwrap_err().to_string().contains(expected), "{bytes:x?}");
        }
    }
}
