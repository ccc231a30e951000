//! Settings of the machine at a point.

use pilotlight_actuators::Machine;
use pilotlight_input::{ReadError, file as read};
use pilotlight_workloads::{Point, Value};
use toml::{Table, Value as Toml};

/// `[machine]` with the varied keys of a point.
///
/// # Errors
/// An unknown or invalid key.
pub fn machine(section: &Machine, setting: &Point, file: &str) -> Result<Machine, ReadError> {
    let mut table = Table::try_from(section).map_err(|error| ReadError::key(file, "machine", error.to_string()))?;
    for (key, value) in setting {
        let keys: Vec<&str> = key.split('.').skip(1).collect();
        set(&mut table, &keys, value);
    }
    read::section(table, file, "machine")
}

fn set(table: &mut Table, keys: &[&str], value: &Value) {
    let Some((first, rest)) = keys.split_first() else { return };
    if rest.is_empty() {
        table.insert((*first).to_owned(), toml_of(value));
    } else if let Toml::Table(inner) = table.entry(*first).or_insert_with(|| Toml::Table(Table::new())) {
        set(inner, rest, value);
    }
}

fn toml_of(value: &Value) -> Toml {
    match value {
        Value::Switch(on) => Toml::Boolean(*on),
        Value::Integer(number) => Toml::Integer(*number),
        Value::Number(number) => Toml::Float(*number),
        Value::Word(word) => Toml::String(word.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varied_keys_take_precedence_and_unknown_keys_are_refused() {
        let section: Machine = toml::from_str("scheduler = 'none'\ngovernor = 'performance'").unwrap();
        let word = |word: &str| Value::Word(word.into());
        let varied = Point::from([
            ("machine.scheduler".to_owned(), word("kyber")),
            ("machine.power_state".to_owned(), Value::Integer(2)),
            ("machine.cgroup.cpu_time".to_owned(), word("50%")),
        ]);
        let machine = machine(&section, &varied, "e.toml").unwrap();
        assert_eq!((machine.scheduler.as_deref(), machine.governor.as_deref()), (Some("kyber"), Some("performance")));
        assert_eq!((machine.power_state, machine.cgroup.unwrap().cpu_time.as_deref()), (Some(2), Some("50%")));
        let wrong = Point::from([("machine.schedular".to_owned(), word("kyber"))]);
        let error = super::machine(&section, &wrong, "e.toml").unwrap_err().to_string();
        assert!(error.contains("did you mean `scheduler`?"), "{error}");
    }
}
