//! A NETIO power distribution unit over HTTP: `netio.json` (NETIO JSON API; the thesis used it at 500 ms).
//!
//! Whole watts of each output (`Load`). Read access must be enabled in the unit's web interface, under M2M API protocols.

use pilotlight_drive::Roots;
use serde_json::Value;

use crate::http::{Client, Endpoint, number_at};
use crate::sensor::{Domain, Missing, Open, Part, ReadError, Reading, Sensor, SensorInfo, Why};
use crate::timing::Timing;

const NAME: &str = "netio";
pub(crate) const INTERVAL_NS: u64 = 500_000_000;
/// Whole watts.
const TIMING: Timing = Timing { update_ns: INTERVAL_NS, averaging_ns: None, lag_ns: None, quantum: Some(1_000_000) };
const PATH: &str = "/netio.json";

/// Options of the sensor.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// The unit.
    pub endpoint: Endpoint,
    /// The outputs that feed the machine under test, by name or number. A machine with two power supplies has two.
    pub outputs: Vec<String>,
}

/// The outputs of a unit that feed the machine.
#[derive(Debug)]
pub struct Netio {
    client: Client,
    info: SensorInfo,
    outputs: Vec<String>,
}

impl Open for Netio {
    type Options = Options;

    fn open(_: &Roots, options: &Options) -> Result<Self, Missing> {
        let client = Client::new(NAME, &options.endpoint)?;
        let all = client.get(PATH).map_err(|error| {
            let help = "check the unit's address, and enable its JSON API (M2M API protocols)";
            Missing::new(NAME, Why::Unreachable, error.to_string(), help)
        })?;
        if options.outputs.is_empty() {
            let what = format!("outputs is not set; the unit has {}", known(&all));
            return Err(Missing::new(NAME, Why::NotConfigured, what, "list the outputs that feed this machine"));
        }
        if let Some((first, second)) = duplicate(&all, &options.outputs) {
            let what = format!("{first} and {second} are the same output, which would count twice");
            return Err(Missing::new(NAME, Why::NotConfigured, what, "list each output once"));
        }
        let info = SensorInfo::slow(NAME, INTERVAL_NS, domains(&options.outputs));
        let mut netio = Self { client, info, outputs: options.outputs.clone() };
        let read = netio.read(&mut Vec::new());
        read.map_err(|error| {
            let help = format!("the unit has {}; use outputs that measure power", known(&all));
            Missing::new(NAME, Why::NotConfigured, error.to_string(), help)
        })?;
        Ok(netio)
    }
}

/// One output is the system; several are parts of it.
fn domains(outputs: &[String]) -> Vec<Domain> {
    if let [only] = outputs {
        return vec![Domain::power(&**only, Part::System).timed(TIMING)];
    }
    let one = |output: &String| {
        Domain::power(&**output, Part::Unknown(format!("output {output}"))).within(Some(0)).timed(TIMING)
    };
    [Domain::power("total", Part::System).timed(TIMING)].into_iter().chain(outputs.iter().map(one)).collect()
}

fn outputs(all: &Value) -> impl Iterator<Item = &Value> {
    all.pointer("/Outputs").and_then(Value::as_array).into_iter().flatten()
}

fn known(all: &Value) -> String {
    let name = |output: &Value| Some(format!("{} ({})", output.get("Name")?.as_str()?, output.get("ID")?));
    let names: Vec<String> = outputs(all).filter_map(name).collect();
    if names.is_empty() { "no outputs".into() } else { format!("outputs {}", names.join(", ")) }
}

fn find<'a>(all: &'a Value, wanted: &str) -> Option<&'a Value> {
    let is = |output: &&Value| {
        let named = output.get("Name").and_then(Value::as_str) == Some(wanted);
        let number = wanted.parse::<u64>().ok();
        named || (number.is_some() && output.get("ID").and_then(Value::as_u64) == number)
    };
    outputs(all).find(is)
}

/// Two entries for the same output, by name and by number.
fn duplicate<'a>(all: &Value, wanted: &'a [String]) -> Option<(&'a str, &'a str)> {
    let found: Vec<(&str, &Value)> = wanted.iter().filter_map(|name| Some((&**name, find(all, name)?))).collect();
    found.iter().enumerate().find_map(|(at, (name, output))| {
        let before = found[..at].iter().find(|(_, other)| std::ptr::eq(*other, *output))?;
        Some((before.0, *name))
    })
}

impl Sensor for Netio {
    fn info(&self) -> &SensorInfo {
        &self.info
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        let all = self.client.get(PATH)?;
        let mut all_uw = Vec::new();
        for wanted in &self.outputs {
            let output = find(&all, wanted);
            let output = output.ok_or_else(|| ReadError::Content(format!("the PDU has no output {wanted}")))?;
            let value = number_at(output, "/Load", 6);
            all_uw.push(value.ok_or_else(|| ReadError::Content(format!("output {wanted} does not measure its load")))?);
        }
        let total: i64 = all_uw.iter().sum();
        if total == 0 {
            // A machine that runs this program has a load above the unit's resolution.
            return Err(ReadError::Content(
                "the outputs have a load of 0 W: this machine is not connected to them".into(),
            ));
        }
        if all_uw.len() > 1 {
            all_uw.insert(0, total);
        }
        into.extend(all_uw.into_iter().enumerate().map(|(domain, value)| Reading { domain, value }));
        Ok(())
    }
}
