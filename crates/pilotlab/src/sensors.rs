//! `pilotlab sensors`: shows the sensors of this machine with their values, and remedies for missing ones.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use pilotlight_lab::measure::text;
use pilotlight_lab::sensor_set::is_power as is_power_sensor;
use pilotlight_sensors::catalogue::open_live;
use pilotlight_sensors::live::{Live, LiveReading, Value};
use pilotlight_sensors::{Domain, Missing, Part, Roots, Timing, Unit, clock};
use serde_json::json;

use crate::console;
use crate::exit::Exit;
use crate::table::{Table, wrapped};

const ABOUT: &str = "\
Show the sensors of this machine with values, units and update intervals. Sensors that cannot be read are listed with the reason and a \
remedy. Nothing is changed.";

const EXAMPLES: &str = "\
Examples:
  pilotlab sensors                  sensors found, and remedies for the others
  pilotlab sensors --watch          every second until Ctrl-C; lines if the output is not a terminal
  pilotlab sensors --all            every value of every sensor
  pilotlab sensors --watch --json   one JSON object per second

Exit codes:
  0  shown, also if there is no power sensor";

/// Interval for rates of counters.
const RATE_INTERVAL: Duration = Duration::from_millis(500);
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Width of the reason of a missing sensor, with its indent.
const WIDTH: usize = 106;

/// Options of `pilotlab sensors`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct SensorsArgs {
    /// Show values every second until Ctrl-C
    #[arg(long)]
    watch: bool,

    /// Show every value, not only power and one value of each other sensor
    #[arg(long)]
    all: bool,

    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &SensorsArgs) -> anyhow::Result<ExitCode> {
    let (mut live, missing) = open_live(&Roots::default());
    live.read(clock::now_ns);
    if args.watch {
        return watch(args, &mut live, &missing);
    }
    std::thread::sleep(RATE_INTERVAL);
    let reading = live.read(clock::now_ns);
    if args.json {
        console::println(serde_json::to_string_pretty(&as_value(&reading, &missing))?)?;
    } else {
        console::print(reading_table(&reading, args.all) + &noted(&reading) + &absent(&reading, &missing))?;
    }
    Ok(Exit::Clean.into())
}

/// Reads every second until the process ends or its output is closed.
fn watch(args: &SensorsArgs, live: &mut Live, missing: &[Missing]) -> anyhow::Result<ExitCode> {
    const CLEAR_SCREEN: &str = "\x1b[H\x1b[J";
    let terminal = std::io::stdout().is_terminal();
    let began = Instant::now();
    for second in 1_u32.. {
        std::thread::sleep((WATCH_INTERVAL * second).saturating_sub(began.elapsed()));
        let reading = live.read(clock::now_ns);
        if args.json {
            console::println(as_value(&reading, missing))?;
        } else if terminal {
            console::print(format_args!("{CLEAR_SCREEN}{}{}", reading_table(&reading, args.all), none(&reading)))?;
        } else {
            console::println(format_args!("{second} s  {}", one_line(&reading, args.all)))?;
        }
    }
    Ok(Exit::Clean.into())
}

fn is_power(domain: &Domain) -> bool {
    domain.part != Part::None
}

fn has_power(reading: &[LiveReading]) -> bool {
    reading
        .iter()
        .any(|reading| reading.values.as_ref().is_ok_and(|values| values.iter().any(|(domain, _)| is_power(domain))))
}

/// The update interval, and of power the averaging time, lag and resolution.
fn timing(domain: &Domain, every: &str) -> String {
    let known = |what: &str, ns: Option<u64>| {
        ns.filter(|ns| *ns > 0).map_or(String::new(), |ns| format!(", {what} {}", text::seconds(ns)))
    };
    let Timing { averaging_ns, lag_ns, quantum, .. } = domain.timing;
    let steps =
        quantum.filter(|_| is_power(domain)).map(|quantum| format!(", steps of {quantum} {}", domain.unit.suffix()));
    format!("{every}{}{}{}", known("average of", averaging_ns), known("lag", lag_ns), steps.unwrap_or_default())
}

/// Name, value, update interval and part: each value of power, and one or all values of other sensors.
fn rows(reading: &LiveReading, all: bool) -> Vec<[String; 4]> {
    let every = text::seconds(reading.interval_ns);
    let values = match &reading.values {
        Ok(values) => values,
        Err(why) => return vec![[reading.sensor.clone(), "-".to_owned(), why.clone(), every]],
    };
    let own = |(index, (domain, value)): (usize, &(Domain, Option<Value>))| {
        let failed = reading.failed.iter().find(|failed| failed.domain == index);
        let of = if let Some(failed) = failed {
            failed.why.clone()
        } else if is_power(domain) {
            domain.part.to_string()
        } else {
            String::new()
        };
        [format!("{}/{}", reading.sensor, domain.name), formatted(domain, *value), of, timing(domain, &every)]
    };
    let shown = values.iter().enumerate().filter(|(_, (domain, _))| all || is_power(domain));
    let mut rows: Vec<[String; 4]> = shown.map(own).collect();
    if rows.is_empty() {
        rows.push([reading.sensor.clone(), figure(reading, values), String::new(), every]);
    }
    rows
}

fn reading_table(reading: &[LiveReading], all: bool) -> String {
    let mut table = Table::new(&["<sensor", "value", "<of", "<new value every"]);
    for reading in reading {
        for [name, value, of, timing] in rows(reading, all) {
            table.row([name, value, of, timing]);
        }
    }
    table.to_string()
}

fn one_line(reading: &[LiveReading], all: bool) -> String {
    let rows = reading.iter().flat_map(|reading| rows(reading, all));
    rows.map(|[name, value, ..]| format!("{name} {value}")).collect::<Vec<_>>().join("  ")
}

fn none(reading: &[LiveReading]) -> &'static str {
    if has_power(reading) { "" } else { "\nNo power sensor can be read: `pilotlab sensors` lists remedies.\n" }
}

/// Sensors that cannot be read, with reason and remedy; those of power first if none can be read.
fn absent(reading: &[LiveReading], missing: &[Missing]) -> String {
    const NO_POWER: &str = "No power is measured: no power sensor of this machine can be read. Remedies:";
    if has_power(reading) {
        return not_found("not found:", missing);
    }
    let (power, others): (Vec<&Missing>, Vec<&Missing>) = missing.iter().partition(|missing| is_power_sensor(missing));
    not_found(NO_POWER, power) + &not_found("not found:", others)
}

fn not_found<'a>(heading: &str, missing: impl IntoIterator<Item = &'a Missing>) -> String {
    listed(heading, missing.into_iter().map(|missing| (&*missing.sensor, vec![&*missing.what, &*missing.help])))
}

/// What users should know of the sensors that are read.
fn noted(reading: &[LiveReading]) -> String {
    let noted = reading.iter().filter(|reading| !reading.notes.is_empty());
    listed("notes:", noted.map(|reading| (&*reading.sensor, reading.notes.iter().map(|note| &**note).collect())))
}

/// Sensors, each with texts.
fn listed<'a>(heading: &str, sensors: impl Iterator<Item = (&'a str, Vec<&'a str>)>) -> String {
    let mut text = String::new();
    for (sensor, texts) in sensors {
        let _ = writeln!(text, "  {sensor}");
        texts.into_iter().for_each(|line| text += &wrapped(line, "      ", WIDTH));
    }
    if text.is_empty() { text } else { format!("\n{heading}\n{text}") }
}

/// One value of a sensor without power.
fn figure(reading: &LiveReading, values: &[(Domain, Option<Value>)]) -> String {
    const BUSY_KINDS: [&str; 5] = ["user", "nice", "system", "irq", "softirq"];
    let numbers = |fits: &dyn Fn(&str) -> bool| -> Vec<f64> {
        let fitting = values.iter().filter(|(domain, _)| fits(&domain.name));
        fitting.filter_map(|(_, value)| value.map(number)).collect()
    };
    let all = |_: &str| true;
    let busy = |name: &str| name.rsplit('/').next().is_some_and(|state| BUSY_KINDS.contains(&state));
    match reading.sensor.as_str() {
        "cputime" => format!("{:.2} CPUs busy", numbers(&busy).iter().sum::<f64>() / 1e9),
        "frequency" if !values.is_empty() => {
            let khz = numbers(&all);
            format!("{:.2} GHz, mean", khz.iter().sum::<f64>() / khz.len().max(1) as f64 / 1e6)
        }
        "kernel" => {
            let switches = numbers(&|name| name == "context-switches").iter().sum::<f64>();
            format!("{switches:.0} context switches/s")
        }
        _ => format!("{} values", values.len()),
    }
}

const fn number(value: Value) -> f64 {
    match value {
        Value::Watts(number) | Value::Gauge(number) | Value::PerSecond(number) => number,
    }
}

/// A value with its unit.
fn formatted(domain: &Domain, value: Option<Value>) -> String {
    let value = match value {
        None => return "-".to_owned(),
        Some(value) => value,
    };
    match (value, &domain.unit) {
        (Value::Watts(watts), _) => format!("{watts:.2} W"),
        (Value::Gauge(khz), Unit::KiloHertz) => format!("{:.2} GHz", khz / 1e6),
        (Value::Gauge(milli), Unit::MilliCelsius) => format!("{:.1} °C", milli / 1e3),
        (Value::Gauge(milli), Unit::Milli) => format!("{:.2}", milli / 1e3),
        (Value::Gauge(number), unit) => format!("{number:.0} {}", unit.suffix()),
        (Value::PerSecond(ns), Unit::NanoSecond) => format!("{:.1} % of the time", ns / 1e7),
        (Value::PerSecond(bytes), Unit::Byte) => format!("{:.2} MB/s", bytes / 1e6),
        (Value::PerSecond(count), Unit::Count) => format!("{count:.0} 1/s"),
        (Value::PerSecond(number), unit) => format!("{number:.0} {}/s", unit.suffix()),
    }
}

fn as_value(reading: &[LiveReading], missing: &[Missing]) -> serde_json::Value {
    let value = |domain: &Domain, value: Option<&Value>, why: Option<&str>| {
        let (number, unit) = match value {
            None => (None, String::new()),
            Some(Value::Watts(watts)) => (Some(*watts), "W".to_owned()),
            Some(Value::Gauge(number)) => (Some(*number), domain.unit.suffix().to_owned()),
            Some(Value::PerSecond(number)) => (Some(*number), format!("{}/s", domain.unit.suffix())),
        };
        json!({ "name": domain.name, "part": domain.part, "origin": domain.origin, "timing": domain.timing, "value": number, "unit": unit, "error": why })
    };
    let sensor = |reading: &LiveReading| {
        let values = reading.values.as_ref().map(|values| {
            values
                .iter()
                .enumerate()
                .map(|(index, (domain, of))| {
                    let failed = reading.failed.iter().find(|failed| failed.domain == index);
                    value(domain, of.as_ref(), failed.map(|failed| &*failed.why))
                })
                .collect::<Vec<_>>()
        });
        json!({
            "sensor": reading.sensor, "interval_ns": reading.interval_ns,
            "values": values.as_ref().ok(), "error": values.as_ref().err(), "notes": reading.notes,
        })
    };
    json!({ "sensors": reading.iter().map(sensor).collect::<Vec<_>>(), "missing": missing })
}

#[cfg(test)]
mod tests {
    use pilotlight_sensors::{Failed, Why};

    use super::*;

    fn reading(sensor: &str, values: Vec<(Domain, Option<Value>)>) -> LiveReading {
        LiveReading {
            sensor: sensor.into(),
            interval_ns: 1_000_000,
            notes: Vec::new(),
            failed: Vec::new(),
            values: Ok(values),
        }
    }

    fn machine() -> Vec<LiveReading> {
        let busy = |name: &str, ns| (Domain::counter(name, Unit::NanoSecond), Some(Value::PerSecond(ns)));
        vec![
            reading("rapl", vec![(Domain::power("package-0", Part::Package(0)), Some(Value::Watts(20.6)))]),
            reading("cputime", vec![busy("cpu0/user", 0.25e9), busy("cpu1/system", 0.5e9), busy("cpu0/idle", 9e8)]),
            LiveReading { values: Err("no answer within 5 s".into()), ..reading("ipmi", Vec::new()) },
        ]
    }

    #[test]
    fn power_is_shown_by_part_and_counters_by_a_figure() {
        let expected = "\
sensor                   value  of                    new value every
rapl/package-0         20.60 W  package 0             1 ms
cputime         0.75 CPUs busy                        1 ms
ipmi                         -  no answer within 5 s  1 ms
";
        assert_eq!(reading_table(&machine(), false), expected);
        assert!(reading_table(&machine(), true).contains("25.0 % of the time"), "{}", reading_table(&machine(), true));
        let line = one_line(&machine(), false);
        assert_eq!(line, "rapl/package-0 20.60 W  cputime 0.75 CPUs busy  ipmi -");
    }

    #[test]
    fn missing_sensors_have_a_remedy() {
        let missing = [Missing::new("rapl", Why::Absent, "no powercap", "load the kernel module intel_rapl_msr")];
        let text = absent(&machine()[1..2], &missing);
        assert!(text.contains("No power is measured") && text.contains("intel_rapl_msr"), "{text}");
        assert!(absent(&machine(), &missing).starts_with("\nnot found:"));
        assert!(!none(&machine()[1..]).is_empty() && none(&machine()).is_empty());
    }

    #[test]
    fn a_domain_that_fails_has_its_reason() {
        let mut reading = machine();
        reading[0].failed.push(Failed { domain: 0, why: "cannot read it".into() });
        assert!(reading_table(&reading, false).contains("cannot read it"), "{}", reading_table(&reading, false));
        assert_eq!(as_value(&reading, &[])["sensors"][0]["values"][0]["error"], "cannot read it");
    }

    #[test]
    fn notes_of_sensors_are_shown() {
        assert_eq!(noted(&machine()), "");
        let mut reading = machine();
        reading[0].notes.push("it may lie".into());
        assert_eq!(noted(&reading), "\nnotes:\n  rapl\n      it may lie\n");
        assert_eq!(as_value(&reading, &[])["sensors"][0]["notes"][0], "it may lie");
    }

    #[test]
    fn json_has_numbers_with_units() {
        let value = as_value(&machine(), &[]);
        assert_eq!(value["sensors"][0]["values"][0]["unit"], "W");
        assert_eq!(value["sensors"][1]["values"][0]["unit"], "ns/s");
        assert_eq!(value["sensors"][2]["error"], "no answer within 5 s");
    }
}
