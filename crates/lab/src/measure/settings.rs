//! Settings of the machine from the command line: `KEY=VALUE` with the keys of `[machine]` or paths of `/sys` and `/proc`.

use pilotlight_actuators::Machine;
use pilotlight_actuators::machine::Text;

use crate::experiment::machine::machine;
use pilotlight_input::ReadError;
use pilotlight_workloads::{Point, Value};

/// The origin of a setting, for messages.
const ORIGIN: &str = "--set";

/// `section` with these settings. A key is one of `[machine]`, such as `governor` or `cgroup.cpus`, or a path below `/sys`, `/proc/sys` or
/// `/proc/irq`.
///
/// # Errors
/// A setting without `=` or an unknown key.
pub fn add(section: &Machine, settings: &[String]) -> Result<Machine, ReadError> {
    let (mut keys, mut files) = (Point::new(), Vec::new());
    for setting in settings {
        let (key, value) = setting.split_once('=').ok_or_else(|| {
            ReadError::key(ORIGIN, "", format!("{setting:?} is not KEY=VALUE, such as governor=performance"))
        })?;
        if key.starts_with('/') {
            files.push((key.into(), value.parse().map_or_else(|_| Text::Word(value.to_owned()), Text::Number)));
        } else {
            keys.insert(format!("machine.{key}"), read(value));
        }
    }
    let mut machine = machine(section, &keys, ORIGIN)?;
    machine.files.extend(files);
    Ok(machine)
}

/// A boolean, an integer or a word.
fn read(value: &str) -> Value {
    let switch = value.parse().map(Value::Switch);
    switch.or_else(|_| value.parse().map(Value::Integer)).unwrap_or_else(|_| Value::Word(value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overridden(settings: &[&str]) -> Result<Machine, String> {
        let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let section: Machine = toml::from_str("governor = 'powersave'\nscheduler = 'none'").unwrap();
        add(&section, &settings).map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_line_overrides_the_file() {
        let machine = overridden(&[
            "governor=performance",
            "apst=false",
            "power_state=2",
            "cgroup.cpus=0-1",
            "/sys/block/sda/queue/nomerges=2",
            "/proc/sys/kernel/core_pattern=a=b",
        ])
        .unwrap();
        assert_eq!((machine.governor.as_deref(), machine.scheduler.as_deref()), (Some("performance"), Some("none")));
        assert_eq!((machine.apst, machine.power_state), (Some(false), Some(2)));
        assert_eq!(machine.cgroup.unwrap().cpus.as_deref(), Some("0-1"));
        let files: Vec<_> = machine.files.values().cloned().collect();
        assert_eq!(files, [Text::Word("a=b".into()), Text::Number(2)]);
    }

    #[test]
    fn unknown_keys_are_refused_with_the_nearest_known_one() {
        assert!(overridden(&["governer=x"]).unwrap_err().contains("did you mean `governor`?"));
        assert!(overridden(&["governor"]).unwrap_err().starts_with("--set: \"governor\" is not KEY=VALUE"));
        assert!(overridden(&["power_state=deep"]).unwrap_err().contains("machine.power_state"));
    }
}
