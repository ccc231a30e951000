//! Settings of a rule's test: a rule agrees with the paper only if experiments use the tested settings. A test that sets a parameter to
//! another value than the paper's counts only if an experiment of the map uses that value.

use std::collections::BTreeSet;

use pilotlight_policy::registry::{self, Entry};

use super::check::selections;
use super::map::Map;
use pilotlight_lab::simulated::experiment::{Experiment, scenario};

/// Parameters that a test sets and no experiment uses, such as `main_takes_active = false`.
#[must_use]
pub fn unused(text: &str, test: &str, map: &Map, file: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let set = settings(body(text, test).unwrap_or_default());
    let others: Vec<_> = set.into_iter().filter(|(key, value)| !is_printed(key, value)).collect();
    if others.is_empty() {
        return Vec::new();
    }
    let experiments = experiments(map, file);
    let unused = others.iter().filter(|(key, value)| !experiments.iter().any(|one| has(one, key, value)));
    unused.map(|(key, value)| format!("{key} = {value}")).collect()
}

/// The body of a function, up to the line that closes it.
fn body<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let at = text.find(&format!("fn {name}("))?;
    let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let indent: String = text[line..].chars().take_while(|c| *c == ' ').collect();
    let rest = &text[at..];
    Some(&rest[..rest.find(&format!("\n{indent}}}")).unwrap_or(rest.len())])
}

/// Literal values in `Parameters { key: value, .. }` expressions of a body. (Rust source, not CSV.)
fn settings(body: &str) -> Vec<(String, String)> {
    let inside = body.split("Parameters {").skip(1).filter_map(|rest| rest.split('}').next());
    let fields = inside.flat_map(|fields| fields.split(',')).filter_map(|field| field.split_once(':'));
    let is_literal = |value: &str| {
        let number = || value.starts_with(|c: char| c.is_ascii_digit());
        matches!(value, "true" | "false") || number()
    };
    let fields = fields.map(|(key, value)| (key.trim().to_owned(), value.trim().replace('_', "")));
    fields.filter(|(_, value)| is_literal(value)).collect()
}

/// Policies with this parameter.
fn with_parameter(key: &str) -> impl Iterator<Item = Entry> {
    registry::POLICIES.iter().copied().filter(move |entry| (entry.parameters)(&[]).iter().any(|one| one.key == key))
}

/// Whether this is the paper's value for every policy with the parameter; true for fields that are not parameters.
fn is_printed(key: &str, value: &str) -> bool {
    let printed = |entry: Entry| {
        let all = registry::as_printed(entry.name).unwrap_or_default();
        all.into_iter().any(|setting| setting.key == key && setting.value == value)
    };
    with_parameter(key).all(printed)
}

fn value_of(entry: &Entry, settings: &[(&str, &str)], key: &str) -> Option<String> {
    (entry.parameters)(settings).into_iter().find(|setting| setting.key == key).map(|setting| setting.value)
}

/// The experiments used by the map.
fn experiments(map: &Map, file: &dyn Fn(&str) -> Option<String>) -> Vec<Experiment> {
    let names: BTreeSet<&str> = map
        .rows
        .values()
        .flat_map(|row| selections(&row.check))
        .map(|selection| selection.experiment.as_str())
        .collect();
    let text = |name: &str| file(&format!("papers/sandman/{name}.toml"));
    names.into_iter().filter_map(|name| toml::from_str(&text(name)?).ok()).collect()
}

/// Whether one of an experiment's policies runs with this value.
fn has(experiment: &Experiment, key: &str, value: &str) -> bool {
    experiment.policies.iter().any(|policy| {
        let settings = scenario::settings(policy);
        let settings: Vec<(&str, &str)> = settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let entry = registry::by_name(&policy.name);
        entry.and_then(|entry| value_of(&entry, &settings, key)).as_deref() == Some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::super::map;
    use super::*;

    const TESTS: &str = "\
#[test]
fn keeps_a_worker() {
    let parameters = Parameters { main_takes_active: false, ..Parameters::printed() };
    assert!(plan(parameters));
}

#[test]
fn relieves() {
    let relieved = Parameters { relieve: true, ..Parameters::printed() };
}

mod tests {
    #[test]
    fn as_it_is() {
        let parameters = Parameters { relieve, main_takes_active: true, ..Parameters::printed() };
    }
}
";
    const MAP: &str = "[[row]]\nid='x'\nexperiment='fig3'\nmetric='w'\npolicy='sandman'\ncompare='value'\n";

    fn unused_by(test: &str, settings: &str) -> Vec<String> {
        let map = map::parse(&[("map".to_owned(), MAP.to_owned())]).unwrap();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../papers/sandman/fig3.toml");
        let fig3 = std::fs::read_to_string(path).unwrap();
        let fig3 = fig3.replace("variant = \"paper\"", settings).replace("guards = \"recommended\"", settings);
        let file = |name: &str| (name == "papers/sandman/fig3.toml").then(|| fig3.clone());
        unused(TESTS, test, &map, &file)
    }

    #[test]
    fn an_experiment_must_use_the_settings_of_a_test() {
        let guards = "guards = \"recommended\"";
        assert_eq!(unused_by("keeps_a_worker", guards), ["main_takes_active = false"]);
        assert_eq!(unused_by("keeps_a_worker", "main_takes_active = false"), [""; 0]);
        assert_eq!(unused_by("relieves", guards), [""; 0], "the recommended guards have it");
        assert_eq!(unused_by("relieves", "guards = \"printed\""), ["relieve = true"]);
        assert_eq!(unused_by("as_it_is", guards), [""; 0], "what is printed anyway");
        assert_eq!(unused_by("elsewhere", guards), [""; 0]);
    }
}
