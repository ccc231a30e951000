//! Checks that the simulator reads the value that a row is compared with: an unused copy of the paper's value would always agree.

use super::input::InputCheck;
use super::lab::Lab;
use super::map::Check;
use super::test_settings;
use super::verdict::Verdict;
use pilotlight_lab::simulated::{experiment, machine};

impl Lab<'_> {
    /// An input agrees only if something reads it, and a rule only if experiments use the settings of its test.
    pub(super) fn used(&self, check: &Check, found: InputCheck) -> InputCheck {
        if found.verdict != Verdict::Agrees {
            return found;
        }
        if let Some(value) = unread(check) {
            return InputCheck { verdict: Verdict::Unread, note: format!("nothing reads {value}"), ..found };
        }
        let Check::Test { file, name } = check else { return found };
        let unused = test_settings::unused(&(self.file)(file).unwrap_or_default(), name, self.map, self.file);
        if unused.is_empty() {
            return found;
        }
        let note = format!("{file}: {name} sets {}, which no experiment of the map does", unused.join(", "));
        InputCheck { verdict: Verdict::Differs, note, ..found }
    }
}

/// The first unread value of a row, as `FILE: KEY`.
#[must_use]
pub fn unread(check: &Check) -> Option<String> {
    let Check::Value { file, keys, .. } = check else { return None };
    keys.iter().find(|key| !is_read(file, key)).map(|key| format!("{file}: {key}"))
}

/// By file and table: profiles and experiments refuse unknown keys, so all their values are read except in documentation tables.
fn is_read(file: &str, key: &str) -> bool {
    let top = key.split('.').next().unwrap_or(key);
    match file.split('/').next() {
        Some("profiles") => !machine::ABOUT.contains(&top),
        Some("experiments" | "papers") => !experiment::ABOUT.contains(&top),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use toml::Value;

    use super::super::claim::tests::claim;
    use super::super::claim::{Kind, Printed};
    use super::super::map;
    use super::super::report::Report;
    use super::super::results::tests::store;
    use super::*;
    use pilotlight_input::dotted;
    use pilotlight_lab::simulated::host;
    use pilotlight_lab::simulated::machine::{MachineFiles, calibration_of};

    fn root() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
    }

    fn text(file: &str) -> String {
        std::fs::read_to_string(root().join(file)).unwrap()
    }

    /// Every value of a profile that a row of the project's maps is compared with, as `(file, key)`.
    fn of_profiles() -> Vec<(String, String)> {
        let map = map::parse(&map::of_project()).unwrap();
        let values = map.rows.values().filter_map(|row| match &row.check {
            Check::Value { file, keys, .. } if file.starts_with("profiles/") && !file.contains("/ssd/") => {
                Some(keys.iter().map(|key| (file.clone(), key.clone())))
            }
            _ => None,
        });
        values.flatten().collect()
    }

    /// A machine as text, with the value at `key` changed.
    fn machine_with(file: &str, key: Option<&str>) -> String {
        let mut profile: toml::Table = toml::from_str(&text(file)).unwrap();
        if let Some(key) = key {
            let other = match dotted::get(&profile, key).unwrap() {
                Value::Boolean(value) => Value::Boolean(!value),
                Value::Integer(value) => Value::Integer(value + 1),
                other => panic!("{key}: {other}"),
            };
            dotted::set(&mut profile, key, other).unwrap();
        }
        let profile = profile.to_string();
        if dotted::get(&toml::from_str(&profile).unwrap(), "speed").is_some() {
            let calibration = text(&calibration_of(&profile).unwrap());
            let files = MachineFiles::parse(&profile, &calibration).unwrap();
            return format!("{:?}", files.machine(&[]).unwrap());
        }
        let calibration = text(&file.replace("profiles/", "profiles/calibration/"));
        format!("{:?}", host::parse(&profile, &calibration).unwrap())
    }

    /// All code below a folder.
    fn code(folder: &Path) -> String {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let text = |path: &Path| if path.is_dir() { code(path) } else { std::fs::read_to_string(path).unwrap() };
        entries.map(|path| text(&path)).collect()
    }

    #[test]
    fn a_value_with_a_reader_is_in_machine_and_simulator() {
        let all = of_profiles();
        let read: Vec<_> = all.iter().filter(|(file, key)| is_read(file, key)).collect();
        assert!(read.len() > 20, "{}", read.len());
        let simulator = code(&root().join("crates/sim/src"));
        for (file, key) in read {
            assert!(machine_with(file, Some(key)) != machine_with(file, None), "{key} of {file} is not in the machine");
            let field = format!(".{}", key.rsplit('.').next().unwrap());
            assert!(simulator.contains(&field), "{key} of {file}: nothing in the simulator reads {field}");
        }
    }

    #[test]
    fn copies_of_printed_values_have_no_reader() {
        assert!(!is_read("profiles/a.toml", "fact.\"core.kiops\".value"));
        assert!(!is_read("profiles/a.toml", "cores"));
        assert!(!is_read("papers/sandman/fig13.toml", "printed.strip"));
        assert!(!is_read("docs/a.toml", "power"));
        assert!(is_read("profiles/a.toml", "power.cpu_uw.poll"));
        assert!(is_read("papers/sandman/fig3.toml", "topology.cores"));
        assert!(is_read("profiles/calibration/sandman-epyc-9454p.toml", "constant.poll.batch.value"));
    }

    #[test]
    fn a_single_unread_value_is_found() {
        let check = |keys: &[&str]| Check::Value {
            file: "profiles/p.toml".to_owned(),
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            factor: 1.0,
            expect: None,
        };
        assert_eq!(unread(&check(&["power.poll", "fact.a.value"])).as_deref(), Some("profiles/p.toml: fact.a.value"));
        assert_eq!(unread(&check(&["power.poll"])), None);
        assert_eq!(unread(&Check::Formula("1".to_owned())), None);
    }

    #[test]
    fn unread_values_and_unused_rules_do_not_agree() {
        let map = "[[row]]\nid='fact'\nfile='profiles/p.toml'\nkey='fact.w.value'\n\
                   [[row]]\nid='read'\nfile='profiles/p.toml'\nkey='power.w'\n\
                   [[row]]\nid='rule'\ntest='t.rs::shows'\n[[row]]\nid='variant'\ntest='t.rs::shows_a_variant'\n";
        let map = map::parse(&[("map".to_owned(), map.to_owned())]).unwrap();
        let rule = |id: &str| claim(id, Kind::Parameter, None, Printed::Text("main core last".to_owned()));
        let input = |id: &str| claim(id, Kind::Input, None, Printed::Number(134.0));
        let claims = [input("fact"), input("read"), rule("rule"), rule("variant")];
        let files = |name: &str| match name {
            "t.rs" => Some(
                "fn shows() {\n}\nfn shows_a_variant() {\n    Parameters { main_takes_active: false, .. };\n}\n"
                    .to_owned(),
            ),
            _ => Some("[power]\nw = 134\n[[fact]]\nkey = 'w'\nvalue = 134\n".to_owned()),
        };
        let (store, calibrated) = (store(&[]), BTreeSet::new());
        let lab = Lab {
            claims: &claims,
            map: &map,
            store: &store,
            calibrated: &calibrated,
            file: &files,
            parameter: &|_, _| None,
            constants: None,
        };
        let report = Report::new(&lab, None);
        let verdicts: Vec<Verdict> = report.rows.iter().map(|row| row.verdict).collect();
        assert_eq!(verdicts, [Verdict::Unread, Verdict::Agrees, Verdict::Agrees, Verdict::Differs]);
        assert_eq!(report.unread(), ["fact"]);
        assert!(report.rows[3].note.contains("sets main_takes_active = false, which no experiment"));
    }
}
