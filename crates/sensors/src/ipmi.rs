//! Power of the server as measured by its BMC: IPMI-DCMI "Get Power Reading" (DCMI 1.5, 6.6.1), through the kernel's device
//! `/dev/ipmi0` or `ipmitool dcmi power reading` (also over the network).
//!
//! A BMC reports whole watts about once a second. The lag is not documented; 1 s is assumed.

use std::io::ErrorKind;
use std::thread;
use std::time::Duration;

use pilotlight_drive::Roots;

use crate::sensor::{About, Domain, Missing, Open, Part, ReadError, Reading, Sensor, Why};
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
const ABSENT: &str = "load the kernel modules ipmi_si and ipmi_devintf, or configure ipmitool with the arguments of a BMC on the \
    network; desktops, laptops and virtual machines have no BMC";
const DENIED: &str = "run as root, or with a udev rule: KERNEL==\"ipmi*\", GROUP=\"power\", MODE=\"0660\"";
/// phosphor-host-ipmid 167.
const INACTIVE: &str = "the BMC says that its power measurement is deactivated, as OpenBMC does; its readings are used";
/// No reading: all bits set.
const NO_WATTS: u32 = 0xffff;
const UNSUPPORTED: &str = "the BMC may lack DCMI power management, or it may be disabled; try redfish";

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
    about: About,
    access: Access,
    helpers_cpu_ns: u64,
}

#[derive(Debug)]
enum Access {
    Device(Bmc),
    Tool(Vec<String>),
}

impl Open for Ipmi {
    type Options = Options;

    fn open(roots: &Roots, options: &Options) -> Result<Self, Missing> {
        let access = match options {
            Options::Device(number) => {
                let path = roots.dev.join(format!("ipmi{number}"));
                Access::Device(Bmc::open(&path).map_err(|error| Missing::file(NAME, &path, &error, ABSENT, DENIED))?)
            }
            Options::Tool(arguments) => {
                Access::Tool(arguments.iter().cloned().chain(["dcmi", "power", "reading"].map(Into::into)).collect())
            }
        };
        let about = About::slow(NAME, INTERVAL_NS, vec![Domain::power("system", Part::System).timed(TIMING)]);
        let mut ipmi = Self { about, access, helpers_cpu_ns: 0 };
        match ipmi.power() {
            Ok(Power { active, .. }) => {
                ipmi.about.notes.extend((!active).then(|| INACTIVE.to_owned()));
                Ok(ipmi)
            }
            Err(error) => Err(Missing::new(NAME, Why::Broken, error.to_string(), UNSUPPORTED)),
        }
    }
}

/// A power reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Power {
    watts: u32,
    /// Whether the BMC says that it measures.
    active: bool,
}

impl Ipmi {
    /// A BMC fails now and then with an unspecified error, or has no value at first (xen-api 5561, check_ipmi_sensor_v3 26). A time-out has taken long
    /// enough and is not repeated.
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
            Access::Tool(arguments) => {
                let ended = child::run(arguments, TIMEOUT);
                let ended =
                    ended.map_err(|error| ReadError::io(format!("the output of {}", arguments.join(" ")), error))?;
                self.helpers_cpu_ns += ended.cpu_ns;
                if !ended.status.success() {
                    return Err(ReadError::Content(format!("{} failed with {}", arguments.join(" "), ended.status)));
                }
                parse(&ended.stdout)
            }
        }
    }
}

fn is_timeout(error: &ReadError) -> bool {
    matches!(error, ReadError::Io { source, .. } if source.kind() == ErrorKind::TimedOut)
}

impl Sensor for Ipmi {
    fn about(&self) -> &About {
        &self.about
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        let value = i64::from(self.power()?.watts) * 1_000_000;
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
            validated(u16::from_le_bytes([low, high]).into(), response[18] & 0x40 != 0)
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
    match value("Instantaneous power reading").and_then(|watts| watts.parse().ok()) {
        Some(watts) => validated(watts, active),
        None => Err(ReadError::Content("no \"Instantaneous power reading\" in ipmitool's output".into())),
    }
}

/// A running server draws power. The state is no reason to refuse it: OpenBMC never says that it measures.
fn validated(watts: u32, active: bool) -> Result<Power, ReadError> {
    match watts {
        0 => Err(ReadError::Content("the BMC reports 0 W: it does not measure power".into())),
        NO_WATTS.. => Err(ReadError::Content(format!("the BMC reports {watts} W: all bits set means no reading"))),
        watts => Ok(Power { watts, active }),
    }
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
        assert_eq!(decode(&answer(214, 0x40)).unwrap(), Power { watts: 214, active: true });
        assert_eq!(decode(&answer(360, 0)).unwrap(), Power { watts: 360, active: false }, "as OpenBMC says");
        for (bytes, expected) in [
            (answer(0, 0x40), "0 W"),
            (answer(0xffff, 0x40), "no reading"),
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
