//! Variants of a machine: members of the family, one constant moved, all constants drawn.

use toml::Value;

use crate::calibration::{Calibration, CalibrationError};

/// A machine with some values changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// As results have it: `default`, `family:NAME`, `perturb:KEY:+20`, `lhs:3/100`.
    pub name: String,
    /// The values, by dotted key.
    pub changes: Vec<(String, Value)>,
}

impl Variant {
    /// Whether nothing but power differs: then what happens is the same as under the default, and one run serves both.
    #[must_use]
    pub fn rides(&self) -> bool {
        let power = |key: &str| key.starts_with("power.") && key != "power.family.kernel_idles_deep";
        !self.changes.is_empty() && self.name.starts_with("family:") && self.changes.iter().all(|(key, _)| power(key))
    }
}

/// Which variants are run beside the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Every member of the family.
    pub family: bool,
    /// Every constant that is a number, moved by so many percent both ways.
    pub perturb: Option<u32>,
    /// So many draws of all constants over their ranges.
    pub draws: usize,
}

/// The name of the machine as the files have it.
pub const DEFAULT: &str = "default";

/// The seed of the draws: the same draws for every experiment, so that their results can be compared.
const SEED: u64 = 0x1a7;

/// The variants, the default first.
///
/// # Errors
/// If a range is none.
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
    Ok(all)
}

/// The constants of each draw as a table `variant,constant,value`; `None` if there are no draws. Yes and no are 1 and 0.
#[must_use]
pub fn draws(variants: &[Variant]) -> Option<String> {
    let mut text = String::from("variant,constant,value\n");
    let drawn: Vec<&Variant> = variants.iter().filter(|variant| variant.name.starts_with("lhs:")).collect();
    for Variant { name, changes } in &drawn {
        for (key, value) in changes {
            let value = value.as_bool().map_or_else(|| value.to_string(), |yes| u8::from(yes).to_string());
            text += &format!("{name},{key},{value}\n");
        }
    }
    (!drawn.is_empty()).then_some(text)
}

fn families(calibration: &Calibration) -> impl Iterator<Item = Variant> + '_ {
    calibration.families.iter().map(|family| Variant {
        name: format!("family:{}", family.name),
        changes: family.set.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
    })
}

fn perturbed(calibration: &Calibration, percent: u32) -> Result<Vec<Variant>, CalibrationError> {
    let mut all = Vec::new();
    for constant in calibration.numbers() {
        for signed in [percent as i32, -(percent as i32)] {
            let value = calibration.moved(&constant.key, signed)?;
            let name = format!("perturb:{}:{signed:+}", constant.key);
            all.push(Variant { name, changes: vec![(constant.key.clone(), value)] });
        }
    }
    Ok(all)
}

fn drawn(calibration: &Calibration, draws: usize) -> Result<Vec<Variant>, CalibrationError> {
    let sets = calibration.hypercube(draws, SEED)?;
    let named = |(at, changes)| Variant { name: format!("lhs:{}/{draws}", at + 1), changes };
    Ok(sets.into_iter().enumerate().map(named).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_changed() {
        let calibration = Calibration::parse(include_str!("../../../calibration.toml")).unwrap();
        let choice = Choice { family: true, perturb: Some(20), draws: 3 };
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
        let table = draws(&all).unwrap();
        assert!(table.lines().nth(1).unwrap().starts_with("lhs:1/3,"), "{table}");
        assert_eq!(draws(&all[..1]), None);
    }
}
