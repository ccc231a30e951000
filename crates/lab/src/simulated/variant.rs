//! Variants of a machine: family members, one constant changed, random constants, constants of a figure reset.

use std::collections::BTreeMap;

use pilotlight_report::{Cell, Column, Table};
use toml::Value;

use crate::simulated::calibration::{Calibration, CalibrationError};
use crate::simulated::experiment::schema::PolicySpec;

/// A machine with changed constants.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Its name in results: `default`, `family:NAME`, `perturb:KEY:+20`, `lhs:3/100`, `without:sandman/Table 3`.
    pub name: String,
    /// The values, by dotted key.
    pub changes: Vec<(String, Value)>,
}

impl Variant {
    /// Whether only power differs, so that one run serves both.
    #[must_use]
    pub fn rides(&self) -> bool {
        self.differs_only(|key| key.starts_with("power.") && key != IDLES_DEEP)
    }

    /// [`Variant::rides`] under a policy: the kernel's idle states have no effect if no core idles in the kernel.
    #[must_use]
    pub fn rides_under(&self, policy: &PolicySpec) -> bool {
        self.rides() || (!enters_the_kernel(policy) && self.differs_only(|key| key.starts_with("power.")))
    }

    fn differs_only(&self, power: impl Fn(&str) -> bool) -> bool {
        let kinds = [MEMBER, "perturb:", WITHOUT];
        let kind = kinds.iter().any(|kind| self.name.starts_with(kind));
        kind && !self.changes.is_empty() && self.changes.iter().all(|(key, _)| power(key))
    }
}

const IDLES_DEEP: &str = "power.family.kernel_idles_deep";

/// Whether cores can idle in the kernel under a policy.
fn enters_the_kernel(policy: &PolicySpec) -> bool {
    let monitors = policy.settings.get("sleep").and_then(Value::as_str).is_none_or(|sleep| sleep == "monitor");
    let polls = match policy.name.as_str() {
        "static" | "governor" | "hybrid-poll" => true,
        "sandman" => monitors && policy.settings.get("detect").is_none(),
        _ => false,
    };
    !polls || !policy.machine.is_empty()
}

/// Selected variants beside the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Every member of the family.
    pub family: bool,
    /// Percentage of changes of every numeric constant, up and down.
    pub perturb: Option<u32>,
    /// Number of random sets of all constants.
    pub draws: usize,
    /// Figures to leave out, with the keys of their constants.
    pub without: BTreeMap<String, Vec<String>>,
}

/// Name of the unchanged machine.
pub const DEFAULT: &str = "default";

/// Name of the variant with the bounds of the oracle (`oracle.rs`).
pub const ORACLE: &str = "oracle";

/// Prefix of family members.
pub const MEMBER: &str = "family:";

/// Prefix of variants that leave a figure out.
pub const WITHOUT: &str = "without:";

/// Seed of random sets, equal for all experiments so that results can be compared.
const SEED: u64 = 0x1a7;

/// The variants, the default first.
///
/// # Errors
/// If a range is invalid.
pub fn variants(calibration: &Calibration, choice: &Choice) -> Result<Vec<Variant>, CalibrationError> {
    let mut all = vec![Variant { name: DEFAULT.into(), changes: Vec::new() }];
    if choice.family {
        all.extend(families(calibration));
    }
    if let Some(percent) = choice.perturb {
        all.extend(perturbed(calibration, percent)?);
    }
    if choice.draws > 0 {
        all.extend(drawn(calibration, choice.draws)?);
    }
    all.extend(choice.without.iter().filter_map(|(figure, keys)| without(calibration, figure, keys)));
    Ok(all)
}

/// The machine without the fit on a figure: its constants at the midpoints of their ranges. `None` if nothing changes.
fn without(calibration: &Calibration, figure: &str, keys: &[String]) -> Option<Variant> {
    let fitted = keys.iter().filter_map(|key| calibration.constant(key));
    let back = fitted.filter_map(|constant| Some((constant, constant.middle()?)));
    let moved = back.filter(|(constant, middle)| *middle != constant.value);
    let changes = calibration.consistent(moved.map(|(constant, middle)| (constant.key.clone(), middle)).collect());
    (!changes.is_empty()).then(|| Variant { name: format!("{WITHOUT}{figure}"), changes })
}

/// The constants of random sets by variant, booleans as 1 and 0.
#[must_use]
pub fn drawn_constants(variants: &[Variant]) -> BTreeMap<String, BTreeMap<String, f64>> {
    let number = |value: &Value| match value {
        Value::Boolean(yes) => Some(f64::from(u8::from(*yes))),
        Value::Integer(number) => Some(*number as f64),
        value => value.as_float(),
    };
    let constants = |variant: &Variant| {
        let changes = variant.changes.iter();
        changes.filter_map(|(key, value)| Some((key.clone(), number(value)?))).collect()
    };
    let drawn = variants.iter().filter(|variant| variant.name.starts_with("lhs:"));
    drawn.map(|variant| (variant.name.clone(), constants(variant))).collect()
}

/// The constants of random sets as CSV `variant,constant,value`, booleans as 1 and 0; `None` without draws.
#[must_use]
pub fn draws(variants: &[Variant]) -> Option<String> {
    let drawn = drawn_constants(variants);
    let rows = drawn.iter().flat_map(|(variant, constants)| {
        constants.iter().map(move |(key, value)| [variant, key, &value.to_string()].map(Cell::text).to_vec())
    });
    let columns = ["variant", "constant", "value"].map(Column::text).to_vec();
    let table = Table { columns, rows: rows.collect(), ..Table::default() };
    (!drawn.is_empty()).then(|| table.csv())
}

fn families(calibration: &Calibration) -> impl Iterator<Item = Variant> + '_ {
    calibration.families.iter().map(|family| Variant {
        name: format!("{MEMBER}{}", family.name),
        changes: family.set.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
    })
}

fn perturbed(calibration: &Calibration, percent: u32) -> Result<Vec<Variant>, CalibrationError> {
    let mut all = Vec::new();
    for constant in calibration.numbers() {
        for signed in [percent as i32, -(percent as i32)] {
            let value = calibration.moved(&constant.key, signed)?;
            let name = format!("perturb:{}:{signed:+}", constant.key);
            all.push(Variant { name, changes: calibration.consistent(vec![(constant.key.clone(), value)]) });
        }
    }
    Ok(all)
}

fn drawn(calibration: &Calibration, draws: usize) -> Result<Vec<Variant>, CalibrationError> {
    let sets = calibration.hypercube(draws, SEED)?;
    let named =
        |(at, changes)| Variant { name: format!("lhs:{}/{draws}", at + 1), changes: calibration.consistent(changes) };
    Ok(sets.into_iter().enumerate().map(named).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_describe_the_change() {
        let calibration =
            Calibration::parse(include_str!("../../../../profiles/calibration/sandman-epyc-9454p.toml")).unwrap();
        let without = BTreeMap::from([
            ("sandman/Table 1".to_owned(), vec!["power.read_4k_nj".to_owned()]),
            ("sandman/s2.2".to_owned(), vec!["poll.receive_ns".to_owned()]),
        ]);
        let choice = Choice { family: true, perturb: Some(20), draws: 3, without };
        let all = variants(&calibration, &choice).unwrap();
        let find = |name: &str| all.iter().find(|variant| variant.name == name).unwrap();
        assert_eq!(all[0].name, DEFAULT);
        assert_eq!(find("perturb:poll.loop_ns:+20").changes, [("poll.loop_ns".to_owned(), Value::Integer(120))]);
        assert_eq!(find("perturb:poll.loop_ns:-20").changes, [("poll.loop_ns".to_owned(), Value::Integer(80))]);
        assert_eq!(
            find("family:idle-deep").changes,
            [("power.family.kernel_idles_deep".to_owned(), Value::Boolean(true))]
        );
        assert!(find("lhs:3/3").changes.len() > 20);
        let left_out = find("without:sandman/Table 1");
        assert_eq!(left_out.changes, [("power.read_4k_nj".to_owned(), Value::Integer(19_000))]);
        assert!(left_out.rides() && find("perturb:power.read_4k_nj:+20").rides(), "power alone");
        assert!(!find("perturb:poll.loop_ns:+20").rides() && !find("family:idle-deep").rides());
        let as_before = |variant: &Variant| variant.name == "without:sandman/s2.2";
        assert!(!all.iter().any(as_before), "it is already at the middle of its range");
        let table = draws(&all).unwrap();
        assert!(table.lines().nth(1).unwrap().starts_with("lhs:1/3,"), "{table}");
        assert_eq!(draws(&all[..1]), None);
    }
}
