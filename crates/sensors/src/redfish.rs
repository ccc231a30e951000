//! Power of a server through Redfish (DMTF DSP0266): `EnvironmentMetrics` (`PowerWatts.Reading`) of each chassis, or the older `Power`
//! (`PowerControl[0].PowerConsumedWatts`).
//!
//! A BMC updates the value every one to several seconds, often with a resolution of 1 W.

use pilotlight_drive::Roots;
use pilotlight_power::plausible;
use serde_json::Value;

use crate::http::{Client, Endpoint, number_at};
use crate::sensor::{Domain, Failed, Missing, Open, Part, ReadError, Reading, Sensor, SensorInfo, Why};

const NAME: &str = "redfish";
pub(crate) const INTERVAL_NS: u64 = 1_000_000_000;
/// Pointers to the power in `EnvironmentMetrics` and `Power`.
const METRICS: &str = "/PowerWatts/Reading";
const CONTROL: &str = "/PowerControl/0/PowerConsumedWatts";

/// Options of the sensor.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// The BMC.
    pub endpoint: Endpoint,
    /// Identifier of the chassis to read; default: all that report power.
    pub chassis: Option<String>,
}

/// Power of each chassis of a BMC.
#[derive(Debug)]
pub struct Redfish {
    client: Client,
    info: SensorInfo,
    resources: Vec<Resource>,
    failed: Vec<Failed>,
}

/// A resource with a power reading.
#[derive(Debug)]
struct Resource {
    path: String,
    pointer: &'static str,
}

impl Open for Redfish {
    type Options = Options;

    fn open(_: &Roots, options: &Options) -> Result<Self, Missing> {
        let client = Client::new(NAME, &options.endpoint)?;
        let unreachable = |error: ReadError| {
            let help = "check the BMC's address, user, password_file and ca_file, and enable Redfish on it";
            Missing::new(NAME, Why::Unreachable, error.to_string(), help)
        };
        let all = client.get("/redfish/v1/Chassis").map_err(unreachable)?;
        let (mut domains, mut resources, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        let mut first = None;
        for path in members(&all) {
            let id = path.trim_end_matches('/').rsplit('/').next().unwrap_or("").to_owned();
            if options.chassis.as_ref().is_some_and(|wanted| *wanted != id) {
                continue;
            }
            let chassis = match client.get(&path) {
                Ok(chassis) => chassis,
                Err(error) => {
                    notes.push(format!(
                        "chassis {id} is not read: {error}; set chassis to read another one as the whole system"
                    ));
                    first.get_or_insert(error);
                    continue;
                }
            };
            if let Some(resource) = power_resource(&client, &chassis) {
                // Several chassis may contain each other, and parts that other sensors read.
                domains.push(Domain::power(&*id, Part::Unknown(format!("chassis {id}"))));
                resources.push(resource);
            }
        }
        if let ([only], []) = (domains.as_mut_slice(), notes.as_slice()) {
            only.part = Part::System;
        }
        if let (true, Some(error)) = (domains.is_empty(), first) {
            return Err(unreachable(error));
        }
        if domains.is_empty() {
            let help = "the BMC may need a licence or newer firmware for power readings; try ipmi or another chassis";
            return Err(Missing::new(NAME, Why::Absent, "no chassis reports power", help));
        }
        let info = SensorInfo { notes, ..SensorInfo::slow(NAME, INTERVAL_NS, domains) };
        Ok(Self { client, info, resources, failed: Vec::new() })
    }
}

fn members(all: &Value) -> Vec<String> {
    let members = all.pointer("/Members").and_then(Value::as_array);
    let link = |member: &Value| Some(member.pointer("/@odata.id")?.as_str()?.to_owned());
    members.into_iter().flatten().filter_map(link).collect()
}

/// The resource with this chassis' power reading.
fn power_resource(client: &Client, chassis: &Value) -> Option<Resource> {
    let candidates = [("/EnvironmentMetrics/@odata.id", METRICS), ("/Power/@odata.id", CONTROL)];
    candidates.into_iter().find_map(|(link, pointer)| {
        let path = chassis.pointer(link)?.as_str()?.to_owned();
        watts(&client.get(&path).ok()?, pointer)?;
        Some(Resource { path, pointer })
    })
}

/// Microwatts; `None` if the BMC has no reading (`null`) or reads 0.
fn watts(value: &Value, pointer: &str) -> Option<i64> {
    number_at(value, pointer, 6).filter(|&uw| plausible::power(&Part::System, uw).is_ok())
}

impl Sensor for Redfish {
    fn info(&self) -> &SensorInfo {
        &self.info
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        self.failed.clear();
        for (domain, Resource { path, pointer }) in self.resources.iter().enumerate() {
            let value = self.client.get(path).and_then(|answer| {
                let missing = || ReadError::Content(format!("{path} has no power above 0 at {pointer}"));
                watts(&answer, pointer).ok_or_else(missing)
            });
            match value {
                Ok(value) => into.push(Reading { domain, value }),
                Err(error) if self.resources.len() == 1 => return Err(error),
                Err(error) => self.failed.push(Failed { domain, why: error.to_string() }),
            }
        }
        Ok(())
    }

    fn failed(&self) -> &[Failed] {
        &self.failed
    }
}
