//! A replay for a planner: size and power of the own server, policies that need a goal, and what energy costs.

use anyhow::{Context as _, anyhow};
use clap::Args;
use pilotlight_input::quantity::{self, POWERS};
use toml::{Table, Value};

/// States of the machine's power, the lowest first.
const STATES: [&str; 4] = ["deep", "shallow", "slow", "poll"];
/// Policies that need a goal, with its key.
const WITH_GOAL: [(&str, &str); 2] = [("pass", "budget_w"), ("pacer", "tolerance")];
/// Meters, for policies that hold a budget, as in PASS's experiments.
const SENSORS: &str = r#"sensors = { window = "100ms", lag = "10ms", server = { window = "1s", lag = "1300ms", update = "1s", step_mw = 1000 } }"#;

/// Options of a planner.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "A trace of your own")]
pub(in crate::run) struct PlannerArgs {
    /// Logical CPUs of the own server, instead of SANDMAN's machine
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..), requires_all = ["replay", "drives", "idle_power", "busy_power"])]
    cores: Option<u16>,

    /// Its drives
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..), requires = "cores")]
    drives: Option<u16>,

    /// Its power when idle, drives included, such as 60W
    #[arg(long, value_name = "POWER", value_parser = power, requires = "cores")]
    idle_power: Option<u64>,

    /// Its power while every core polls, such as 150W
    #[arg(long, value_name = "POWER", value_parser = power, requires = "cores")]
    busy_power: Option<u64>,

    /// Price of energy, such as 0.25/kWh
    #[arg(long, value_name = "PRICE", value_parser = price, requires = "replay")]
    pub(super) price: Option<f64>,

    /// CO2 of energy, such as 380g/kWh
    #[arg(long, value_name = "MASS", value_parser = carbon, requires = "replay")]
    pub(super) carbon: Option<f64>,
}

fn power(text: &str) -> anyhow::Result<u64> {
    quantity::parse(text, POWERS).map_err(|error| anyhow!("{error}: give a power such as 60W"))
}

fn per_kwh(text: &str, unit: &str) -> Option<f64> {
    let number = text.strip_suffix("/kWh")?.strip_suffix(unit)?.trim().parse::<f64>().ok()?;
    (number >= 0.0 && number.is_finite()).then_some(number)
}

fn price(text: &str) -> anyhow::Result<f64> {
    per_kwh(text, "").context("give a price such as 0.25/kWh")
}

/// Grams for each kWh.
fn carbon(text: &str) -> anyhow::Result<f64> {
    per_kwh(text, "g").context("give a mass such as 380g/kWh")
}

impl PlannerArgs {
    /// As arguments.
    pub(super) fn arguments(&self) -> Vec<String> {
        let watts = |uw: u64| format!("{}W", uw as f64 / 1e6);
        let options = [
            ("--cores", self.cores.map(|count| count.to_string())),
            ("--drives", self.drives.map(|count| count.to_string())),
            ("--idle-power", self.idle_power.map(watts)),
            ("--busy-power", self.busy_power.map(watts)),
            ("--price", self.price.map(|price| format!("{price}/kWh"))),
            ("--carbon", self.carbon.map(|grams| format!("{grams}g/kWh"))),
        ];
        options.into_iter().flat_map(|(name, value)| value.map(|value| [name.to_owned(), value])).flatten().collect()
    }

    /// The keys of the own server: its power states have the distances of those of the `profile`, between idle and busy power.
    pub(super) fn keys(&self, profile: &str, of_drives: u16) -> anyhow::Result<Vec<(String, String)>> {
        let (Some(cores), Some(drives)) = (self.cores, self.drives) else { return Ok(Vec::new()) };
        let (Some(idle_uw), Some(busy_uw)) = (self.idle_power, self.busy_power) else { return Ok(Vec::new()) };
        let profile: Table = profile.parse()?;
        let power = profile.get("power").and_then(Value::as_table).context("the profile has no power")?;
        let number = |value: Option<&Value>| value.and_then(Value::as_integer).unwrap_or_default() as f64;
        let of = |part: &str, state: &str| number(power.get(part).and_then(|part| part.get(state)));
        let drives_uw = number(power.get("drives_idle_uw")) * f64::from(drives) / f64::from(of_drives);
        let (lowest, highest) = (idle_uw as f64 - drives_uw, busy_uw as f64 - drives_uw);
        anyhow::ensure!(
            lowest > 0.0 && highest > lowest,
            "--busy-power must be above --idle-power, and that above {:.1} W, which {drives} idle drives draw here",
            drives_uw / 1e6
        );
        let total = |state: &str| of("cpu_uw", state) + of("others_uw", state);
        let slope = (highest - lowest) / (total("poll") - total("deep"));
        let mut keys = vec![("machine.power.drives_idle_uw".to_owned(), format!("{drives_uw:.0}"))];
        for state in STATES {
            let factor = (lowest + (total(state) - total("deep")) * slope) / total(state);
            for part in ["cpu_uw", "others_uw"] {
                keys.push((format!("machine.power.{part}.{state}"), format!("{:.0}", of(part, state) * factor)));
            }
        }
        let siblings = cores.is_multiple_of(2);
        let physical = if siblings { cores / 2 } else { cores };
        keys.push(("machine.power.physical_cores".to_owned(), physical.to_string()));
        keys.push(("drive.0.count".to_owned(), drives.to_string()));
        for topology in ["topology", "policy.linux-interrupt.topology"] {
            keys.extend(["cores", "threads"].map(|key| (format!("{topology}.{key}"), cores.to_string())));
            keys.push((format!("{topology}.siblings"), siblings.to_string()));
        }
        Ok(keys)
    }

    /// The own server in words.
    pub(super) fn machine(&self) -> Option<String> {
        let watts = |uw: u64| uw as f64 / 1e6;
        let (idle, busy) = (watts(self.idle_power?), watts(self.busy_power?));
        Some(format!(", scaled to {} cores, {} drives, {idle} W idle and {busy} W busy", self.cores?, self.drives?))
    }
}

/// The experiment with the policies whose goal is set.
pub(super) fn with_goals(experiment: &str, set: &[(String, String)]) -> String {
    let is_set = |goal: &str| set.iter().any(|(key, _)| key == goal);
    let sensors = if is_set("budget_w") { format!("{SENSORS}\n") } else { String::new() };
    let policy = |(name, _): &(&str, &str)| format!("\n[[policy]]\nlabel = \"{name}\"\nname = \"{name}\"\n");
    let policies: String = WITH_GOAL.iter().filter(|(_, goal)| is_set(goal)).map(policy).collect();
    format!("{sensors}{experiment}{policies}")
}

/// The goal that a missing policy needs, as text.
pub(super) fn needed(name: &str) -> Option<&'static str> {
    match name {
        "pass" => Some("it needs a budget: --set budget_w=300"),
        "pacer" => Some("it needs a tolerance: --set tolerance=0.2"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = include_str!("../../../../../profiles/sandman-epyc-9454p.toml");

    #[test]
    fn an_own_server_draws_its_idle_and_busy_power() {
        let args = |idle_w: u64, busy_w: u64| PlannerArgs {
            cores: Some(16),
            drives: Some(4),
            idle_power: Some(idle_w * 1_000_000),
            busy_power: Some(busy_w * 1_000_000),
            ..PlannerArgs::default()
        };
        let keys = args(60, 150).keys(PROFILE, 16).unwrap();
        let of = |name: &str| keys.iter().find(|(key, _)| key == name).unwrap().1.parse::<i64>().unwrap();
        let system = |state: &str| {
            let parts = ["cpu_uw", "others_uw"].map(|part| of(&format!("machine.power.{part}.{state}")));
            parts.iter().sum::<i64>() + of("machine.power.drives_idle_uw")
        };
        assert!((system("deep") - 60_000_000).abs() < 3 && (system("poll") - 150_000_000).abs() < 3);
        assert!(system("deep") < system("shallow") && system("shallow") < system("slow"));
        assert_eq!((of("topology.cores"), of("drive.0.count"), of("machine.power.physical_cores")), (16, 4, 8));
        assert!(args(10, 150).keys(PROFILE, 16).unwrap_err().to_string().contains("18.5 W, which 4 idle drives"));
        assert!(PlannerArgs::default().keys(PROFILE, 16).unwrap().is_empty());
    }

    #[test]
    fn prices_and_masses_have_units() {
        assert_eq!((price("0.25/kWh").unwrap(), carbon("380g/kWh").unwrap()), (0.25, 380.0));
        for wrong in ["", "0.25", "-1/kWh", "x/kWh", "380g", "NaN/kWh"] {
            assert!(price(wrong).is_err() && carbon(wrong).is_err(), "{wrong}");
        }
    }
}
