//! The committed calibrations, and invalid ones.

use super::*;
use crate::simulated::variant;

const COMMITTED: &str = include_str!("../../../../../profiles/calibration/sandman-epyc-9454p.toml");

fn constant(key: &str, rest: &str) -> String {
    format!("[[constant]]\nkey = '{key}'\nsource = 's'\nfitted_on = []\n{rest}\n")
}

#[test]
fn the_committed_calibration_can_be_drawn() {
    let calibration = Calibration::parse(COMMITTED).unwrap();
    let draws = calibration.hypercube(20, 1).unwrap();
    for draw in &draws {
        for (key, value) in draw {
            let constant = calibration.constant(key).unwrap();
            let (low, high) = (number(constant.low.as_ref().unwrap()), number(constant.high.as_ref().unwrap()));
            assert!(low <= number(value) && number(value) <= high, "{key} = {value}");
            assert_eq!(value.type_str(), constant.value.type_str(), "{key}");
        }
    }
    let deep =
        draws.iter().flatten().filter(|(key, value)| key.ends_with("idles_deep") && value.as_bool() == Some(true));
    assert_eq!(deep.count(), 10, "booleans are drawn in equal parts");
    assert_eq!(calibration.moved("poll.loop_ns", -20).unwrap(), Value::Integer(80));
    assert!(calibration.moved("speed.transition_restarts", 20).is_err());
}

#[test]
fn the_midpoint_depends_on_the_scale() {
    let middle = |rest: &str| Calibration::parse(&constant("a", rest)).unwrap().constants[0].middle();
    assert_eq!(middle("value = 10\nlow = 10\nhigh = 90"), Some(Value::Integer(50)));
    assert_eq!(middle("value = 10\nlow = 10\nhigh = 90\nscale = 'log'"), Some(Value::Integer(30)));
    assert_eq!(middle("value = 1.0\nlow = 0.5\nhigh = 2.0"), Some(Value::Float(1.25)));
    assert_eq!(middle("value = 10"), None);
    assert_eq!(middle("value = true\nlow = false\nhigh = true"), None);
}

#[test]
fn fits_of_constants_are_collected() {
    let text = constant("a", "value = 1").replace("[]", "['row', 'x.csv']") + &constant("b", "value = 1");
    let fitted = Calibration::parse(&text).unwrap().fitted_on();
    assert_eq!(fitted, BTreeSet::from(["row".to_owned(), "x.csv".to_owned()]));
}

#[test]
fn a_choice_counts_as_a_fit() {
    let choice = "[[choice]]\nwhat='guards'\nplace='a.rs'\nchosen_on=['accuracy']\nsource='s'\n";
    let text = constant("a", "value = true\nchosen_on = ['order']") + choice;
    let named = Calibration::parse(&text).unwrap().fitted_on();
    assert_eq!(named, BTreeSet::from(["accuracy".to_owned(), "order".to_owned()]));
    let fits = Calibration::parse(&text).unwrap().fits();
    assert_eq!((&fits["accuracy"][..], &fits["order"][..]), (&["guards".to_owned()][..], &["a".to_owned()][..]));
    let without = Calibration::parse(&choice.replace("chosen_on=['accuracy']\n", "")).unwrap_err().to_string();
    assert!(without.contains("chosen_on"), "{without}");
}

/// An unknown claim would be ignored silently.
#[test]
fn claims_and_files_of_the_committed_calibrations_exist() {
    let claims = include_str!("../../../../../papers/claims.toml");
    let claims: toml::Table = claims.parse().unwrap();
    let is_claim =
        |name: &str| claims["claim"].as_array().unwrap().iter().any(|claim| claim["id"].as_str() == Some(name));
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let all = crate::simulated::host::calibrations(&root.join("profiles")).unwrap();
    for (_, calibration) in &all {
        for name in calibration.fitted_on() {
            let is_digitized = ["thesis-figures/", "thesis-text/", "pass-artifact/", "live-16cpu/"]
                .iter()
                .any(|folder| name.starts_with(folder));
            assert!(is_digitized || is_claim(&name), "there is no claim {name}");
        }
        for choice in &calibration.choices {
            assert!(root.join(&choice.place).is_file(), "{}: there is no {}", choice.what, choice.place);
        }
    }
}

#[test]
fn errors_name_the_constant() {
    let message = |text: &str| Calibration::parse(text).unwrap_err().to_string();
    let twice = constant("a.b", "value = 1") + &constant("a.b", "value = 2");
    assert!(message(&twice).contains("duplicate constant a.b"));
    assert!(message(&constant("a.b", "value = 3\nlow = 1\nhigh = 2")).contains("a.b: must have low <= value"));
    assert!(message(&constant("a.b", "value = 1\nlow = 0\nhigh = 2\nscale = 'log'")).contains("a.b"));
    assert!(message(&constant("a.b", "value = 1\nlows = 2")).contains("lows"));
    let family = constant("a.b", "value = 1") + "[[family]]\nname = 'f'\nset = { 'a.c' = 2 }\n";
    assert!(message(&family).contains("family f sets a.c"));
}

#[test]
fn variants_of_every_server_keep_the_order_of_states() {
    let home = concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles");
    for name in ["sandman-epyc-9454p", "pass-sys-111c-nr", "pacer-dorado-6000"] {
        let file = |folder: &str| std::fs::read_to_string(format!("{home}/{folder}{name}.toml")).unwrap();
        let files = crate::simulated::machine::MachineFiles::parse(&file(""), &file("calibration/")).unwrap();
        let choice = variant::Choice { family: true, perturb: Some(20), draws: 100, ..variant::Choice::default() };
        for variant in variant::variants(&files.calibration, &choice).unwrap() {
            let machine =
                files.machine(&variant.changes).unwrap_or_else(|error| panic!("{name}, {}: {error}", variant.name));
            let (cpu, uncore) = (machine.power.cpu_uw, machine.power.uncore_uw.unwrap_or(0));
            assert!(cpu.poll - cpu.shallow >= uncore, "{name}, {}: {cpu:?}", variant.name);
            let others = machine.power.others_uw;
            assert!(name != "pacer-dorado-6000" || others.deep == others.poll, "{}: {others:?}", variant.name);
        }
        let deeper = [("power.cpu_uw.deep".to_owned(), Value::Integer(900_000_000))];
        let said = files.machine(&deeper).unwrap_err().to_string();
        assert!(said.starts_with("machine.power.cpu_uw: deep <= shallow"), "{said}");
    }
}

#[test]
fn an_equal_constant_has_no_range_and_the_value_of_the_other() {
    let both = |rest: &str| Calibration::parse(&(constant("a", "value = 5\nlow = 1\nhigh = 9") + &constant("b", rest)));
    let calibration = both("value = 5\nequal_to = 'a'").unwrap();
    assert_eq!(calibration.numbers().count(), 1);
    let changes = calibration.consistent(vec![("a".to_owned(), Value::Integer(7))]);
    assert_eq!(changes, ["a", "b"].map(|key| (key.to_owned(), Value::Integer(7))));
    for wrong in
        ["value = 6\nequal_to = 'a'", "value = 5\nequal_to = 'c'", "value = 5\nlow = 1\nhigh = 9\nequal_to = 'a'"]
    {
        assert!(both(wrong).unwrap_err().to_string().starts_with("calibration: b: equal_to"), "{wrong}");
    }
}
