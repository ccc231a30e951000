//! Sensors in watts of a BMC without DCMI power, in the output of `ipmitool sdr elist full`: name, number, state, entity and reading of each.
//!
//! One sensor of the whole system has precedence; without one, the inputs of the power supplies are added. Entities are those of
//! IPMI 2.0, table 43-13.

use crate::decimal;
use crate::sensor::ReadError;

/// Arguments of ipmitool.
pub(crate) const ARGUMENTS: [&str; 3] = ["sdr", "elist", "full"];
/// Entity of a power supply.
const POWER_SUPPLY: u32 = 10;
/// Entities of the whole system: its board, power management, its chassis.
const WHOLE: [u32; 3] = [7, 21, 23];
/// Words in names of sensors of the system (Cisco's "System Level", Dell's "Pwr Consumption", HPE's "Power Meter"), and of its parts.
const SYSTEM: [&str; 4] = ["sys", "total", "consumption", "power meter"];
const PARTS: [&str; 9] = ["cpu", "proc", "mem", "dimm", "fan", "gpu", "hdd", "disk", "pci"];

/// A sensor in watts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Watts {
    pub(crate) name: String,
    /// Its number, such as `98h`, as names can be equal.
    number: String,
    entity: u32,
    uw: i64,
}

/// The sensors in watts that have a reading.
fn sensors(text: &str) -> Vec<Watts> {
    let sensor = |line: &str| {
        let mut columns = line.split('|').map(str::trim);
        let (name, number, _, entity, reading) =
            (columns.next()?, columns.next()?, columns.next()?, columns.next()?, columns.next()?);
        let uw = decimal::scaled(reading.strip_suffix("Watts")?, 6)?;
        let entity = entity.split('.').next()?.parse().ok()?;
        Some(Watts { name: name.into(), number: number.into(), entity, uw })
    };
    text.lines().filter_map(sensor).collect()
}

/// The sensors whose sum is the power of the system; none if it has none.
pub(crate) fn choose(text: &str) -> Vec<Watts> {
    let has = |sensor: &Watts, words: &[&str]| {
        let name = sensor.name.to_lowercase();
        words.iter().any(|word| name.contains(word))
    };
    let (supplies, others): (Vec<_>, Vec<_>) =
        sensors(text).into_iter().partition(|sensor| sensor.entity == POWER_SUPPLY);
    let whole: Vec<Watts> = others.into_iter().filter(|sensor| !has(sensor, &PARTS)).collect();
    if let Some(system) = whole.iter().find(|sensor| has(sensor, &SYSTEM)) {
        return vec![system.clone()];
    }
    let by_entity: Vec<&Watts> = whole.iter().filter(|sensor| WHOLE.contains(&sensor.entity)).collect();
    if let [only] = by_entity[..] {
        return vec![only.clone()];
    }
    let supplies: Vec<Watts> = supplies.into_iter().filter(|sensor| !has(sensor, &["out"])).collect();
    let inputs: Vec<Watts> = supplies.iter().filter(|sensor| has(sensor, &["in"])).cloned().collect();
    if inputs.is_empty() { supplies } else { inputs }
}

/// The sum of the chosen sensors in a later output, in microwatts, or why there is none.
pub(crate) fn sum(chosen: &[Watts], text: &str) -> Result<i64, ReadError> {
    let now = sensors(text);
    let is_chosen = |sensor: &Watts| chosen.iter().any(|one| one.name == sensor.name && one.number == sensor.number);
    if let Some(new) = choose(text).into_iter().find(|sensor| !is_chosen(sensor)) {
        // as a supply that is switched on
        return Err(wrong(&new, "a reading that it had not at first; start again"));
    }
    let uw = |sensor: &Watts| {
        let same = now.iter().find(|other| other.name == sensor.name && other.number == sensor.number);
        same.map(|same| same.uw).ok_or_else(|| wrong(sensor, "no reading"))
    };
    chosen.iter().map(uw).sum()
}

fn wrong(sensor: &Watts, has: &str) -> ReadError {
    ReadError::Content(format!("the BMC's sensor {} has {has}", sensor.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sensor_of_the_system_has_precedence_and_inputs_of_power_supplies_are_added() {
        let intel = "PS1 Input Power  | 54h | ok  | 10.1 | 168 Watts\nPS2 Input Power  | 55h | ok  | 10.2 | 0 Watts\n\
                     PS1 Curr Out %   | 58h | ok  | 10.1 | 14 percent\nPS1 Output Power | 5Ah | ok  | 10.1 | 150 Watts\n";
        let cases: [(&str, &[&str], i64); 8] = [
            // home-assistant-ipmi 13, three servers
            (
                "Current          | 94h | ns  | 10.1 | No Reading\nCurrent          | 95h | ok  | 10.2 | 0.48 Amps\n\
                 System Level     | 98h | ok  |  7.1 | 105 Watts\n",
                &["System Level"],
                105,
            ),
            ("Pwr Consumption  | 77h | ok  |  7.1 | 98 Watts\n", &["Pwr Consumption"], 98),
            (
                "PS1 Power In     | 52h | ok  | 10.1 | 132 Watts\nPS2 Power In     | 53h | ok  | 10.2 | 160 Watts\n",
                &["PS1 Power In", "PS2 Power In"],
                292,
            ),
            // home-assistant-ipmi 27 and 25, with entities
            (intel, &["PS1 Input Power", "PS2 Input Power"], 168),
            ("PMB1Power | 61h | cr  | 10.1 | 90 Watts\n", &["PMB1Power"], 90),
            // a sensor of the system beside one of a part and of a supply
            (
                "CPU Power | 40h | ok  |  7.1 | 40 Watts\nInput | 41h | ok | 10.1 | 99 Watts\nBoard | 42h | ok  |  7.1 | 90 Watts\n",
                &["Board"],
                90,
            ),
            ("CPU Power | 40h | ok  |  3.1 | 40 Watts\nFAN1 | 41h | ok | 29.1 | 4399 RPM\n", &[], 0),
            ("", &[], 0),
        ];
        for (text, names, watts) in cases {
            let chosen = choose(text);
            let found: Vec<&str> = chosen.iter().map(|sensor| sensor.name.as_str()).collect();
            assert_eq!((found.as_slice(), sum(&chosen, text).unwrap()), (names, watts * 1_000_000), "{text}");
        }
        let without = intel.replace("168 Watts", "No Reading");
        let gone = sum(&choose(intel), &without).unwrap_err().to_string();
        assert_eq!(gone, "the BMC's sensor PS1 Input Power has no reading");
        assert!(
            sum(&choose(&without), intel).unwrap_err().to_string().contains("PS1 Input Power has a reading"),
            "no half of a sum"
        );
    }

    #[test]
    fn sensors_of_one_name_are_apart() {
        let text = "Power In | 52h | ok  | 10.1 | 132 Watts\nPower In | 53h | ok  | 10.2 | 160 Watts\n";
        assert_eq!(sum(&choose(text), text).unwrap(), 292_000_000);
    }
}
