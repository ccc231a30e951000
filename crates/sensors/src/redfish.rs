//! Power of a server through Redfish (DMTF DSP0266): of each chassis `EnvironmentMetrics` (`PowerWatts.Reading`), or the
//! older `Power` (`PowerControl[0].PowerConsumedWatts`).
//!
//! A BMC brings the value up to date once in one to several seconds, and often gives whole watts.

use pilotlight_drive::Roots;
use serde_json::Value;

use crate::http::{Client, Endpoint, number_at};
use crate::sensor::{About, Domain, Missing, Open, Part, ReadError, Reading, Sensor, Why};

const NAME: &str = "redfish";
const INTERVAL_NS: u64 = 1_000_000_000;
/// Where the power stands in `EnvironmentMetrics` and in `Power`.
const METRICS: &str = "/PowerWatts/Reading";
const CONTROL: &str = "/PowerControl/0/PowerConsumedWatts";

/// Which BMC, and which of its chassis.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// The BMC.
    pub endpoint: Endpoint,
    /// The identifier of the one chassis to read; all that have a power where it is not given.
    pub chassis: Option<String>,
}

/// Power of each chassis of a BMC.
#[derive(Debug)]
pub struct Redfish {
    client: Client,
    about: About,
    places: Vec<Place>,
}

/// Where a power is.
#[derive(Debug)]
struct Place {
    path: String,
    pointer: &'static str,
}

impl Open for Redfish {
    type Options = Options;

    fn open(_: &Roots, options: &Options) -> Result<Self, Missing> {
        let client = Client::new(NAME, &options.endpoint)?;
        let unreachable = |error: ReadError| {
            let help =
                "is this the BMC's address, and is Redfish switched on there? See also user, password_file, ca_file";
            Missing::new(NAME, Why::Unreachable, error.to_string(), help)
        };
        let all = client.get("/redfish/v1/Chassis").map_err(unreachable)?;
        let (mut domains, mut places) = (Vec::new(), Vec::new());
        for path in members(&all) {
            let id = path.trim_end_matches('/').rsplit('/').next().unwrap_or("").to_owned();
            if options.chassis.as_ref().is_some_and(|wanted| *wanted != id) {
                continue;
            }
            let chassis = client.get(&path).map_err(unreachable)?;
            if let Some(place) = place(&client, &chassis) {
                // Of several, who contains whom is not told, and what is in them is known to other sensors, too.
                domains.push(Domain::power(&*id, Part::Unknown(format!("chassis {id}"))));
                places.push(place);
            }
        }
        if let [only] = domains.as_mut_slice() {
            only.part = Part::System;
        }
        if domains.is_empty() {
            let help = "the BMC may need a licence or newer firmware for power; try ipmi, or name another chassis";
            return Err(Missing::new(NAME, Why::Absent, "no chassis gives a power", help));
        }
        Ok(Self { client, about: About::slow(NAME, INTERVAL_NS, domains), places })
    }
}

fn members(all: &Value) -> Vec<String> {
    let members = all.pointer("/Members").and_then(Value::as_array);
    let link = |member: &Value| Some(member.pointer("/@odata.id")?.as_str()?.to_owned());
    members.into_iter().flatten().filter_map(link).collect()
}

/// Where this chassis says a power now, if anywhere.
fn place(client: &Client, chassis: &Value) -> Option<Place> {
    let ways = [("/EnvironmentMetrics/@odata.id", METRICS), ("/Power/@odata.id", CONTROL)];
    ways.into_iter().find_map(|(link, pointer)| {
        let path = chassis.pointer(link)?.as_str()?.to_owned();
        watts(&client.get(&path).ok()?, pointer)?;
        Some(Place { path, pointer })
    })
}

/// Microwatts; none where the BMC has no reading (`null`) or says 0 of a machine that answers.
fn watts(value: &Value, pointer: &str) -> Option<i64> {
    number_at(value, pointer, 6).filter(|&uw| uw > 0)
}

impl Sensor for Redfish {
    fn about(&self) -> &About {
        &self.about
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        for (domain, place) in self.places.iter().enumerate() {
            let answer = self.client.get(&place.path)?;
            let value = watts(&answer, place.pointer).ok_or_else(|| {
                ReadError::Content(format!("{} has no power above 0 at {}", place.path, place.pointer))
            })?;
            into.push(Reading { domain, value });
        }
        Ok(())
    }
}
