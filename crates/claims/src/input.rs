//! Inputs: rows compared with the project's files, with defaults of policies, or by arithmetic. They are checked, not counted as results.

use super::claim::{Claim, Kind, Printed};
use super::error::NoResult;
use super::formula::{self, Name};
use super::map::Check;
use super::verdict::Verdict;

/// Sources of values.
pub struct Sources<'a> {
    /// The text of a file of the project; `None` if it does not exist.
    pub file: &'a dyn Fn(&str) -> Option<String>,
    /// A policy's parameter with the paper's value, in configuration syntax.
    pub parameter: &'a dyn Fn(&str, &str) -> Option<String>,
    /// The printed value of a claim.
    pub printed: &'a dyn Fn(&str) -> Option<f64>,
}

/// The result of comparing an input with the paper.
#[derive(Clone, Debug, PartialEq)]
pub struct InputCheck {
    /// Our value in the claim's unit.
    pub ours: Option<Printed>,
    /// The verdict.
    pub verdict: Verdict,
    /// The compared value, or what is missing.
    pub note: String,
}

/// Compares ours with the paper's value.
///
/// # Errors
/// If there is nothing to compare.
pub fn check(claim: &Claim, check: &Check, sources: &Sources<'_>) -> Result<InputCheck, NoResult> {
    match check {
        Check::Value { file, keys, factor, expect } => value(claim, sources, (file, keys), *factor, expect.as_ref()),
        Check::Formula(text) => {
            let ours = formula::value(text, &|name| sources.look_up(name))?;
            judge(claim, ours, format!("= {text}"))
        }
        Check::Test { file, name } => test(claim, sources, file, name),
        Check::Quantity(_) | Check::Order(_) | Check::Crossover(_) => {
            Err(NoResult::Unsuitable("what is taken as given is not a result"))
        }
    }
}

impl Sources<'_> {
    /// The value of a name in a formula.
    #[must_use]
    pub fn look_up(&self, name: Name<'_>) -> Option<f64> {
        match name {
            Name::Claim(id) => (self.printed)(id),
            Name::Parameter(name) => {
                let (policy, key) = name.split_once('.')?;
                number(&(self.parameter)(policy, key)?)
            }
        }
    }
}

/// A parameter's value as a number: times in seconds, percentages as they are written.
fn number(text: &str) -> Option<f64> {
    let units = [("ns", 1e9), ("us", 1e6), ("ms", 1e3), ("s", 1.0), ("%", 1.0)];
    let unit = units.iter().find_map(|(unit, per)| Some((text.strip_suffix(unit)?, *per)));
    let (digits, per) = unit.unwrap_or((text, 1.0));
    Some(digits.trim().parse::<f64>().ok()? / per)
}

fn judge(claim: &Claim, ours: f64, note: String) -> Result<InputCheck, NoResult> {
    let in_words = NoResult::Unsuitable("the claim is in words; say expect or test");
    let printed = claim.value.number().ok_or(in_words)?;
    // a derived value was rounded when printed; an input was copied
    let tolerance = if claim.kind == Kind::Derived { last_digit(printed) } else { 1e-9 * printed.abs() };
    let agrees = (ours - printed).abs() <= tolerance * (1.0 + 1e-9);
    let verdict = if agrees { Verdict::Agrees } else { Verdict::Differs };
    Ok(InputCheck { ours: Some(Printed::Number(ours)), verdict, note })
}

/// One unit of the last digit that is printed.
fn last_digit(printed: f64) -> f64 {
    let text = printed.to_string();
    let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    10_f64.powi(-(decimals as i32))
}

fn value(
    claim: &Claim,
    sources: &Sources<'_>,
    (file, keys): (&str, &[String]),
    factor: f64,
    expect: Option<&toml::Value>,
) -> Result<InputCheck, NoResult> {
    let text = (sources.file)(file).ok_or_else(|| NoResult::NoFile(file.to_owned()))?;
    let table: toml::Table = toml::from_str(&text).map_err(|error| NoResult::Toml(file.to_owned(), error))?;
    let table = toml::Value::Table(table);
    let absent = |part: String| NoResult::NotInFile(file.to_owned(), part);
    let find = |key: &String| at(&table, key).ok_or_else(|| absent(key.clone()));
    let found: Vec<toml::Value> = keys.iter().map(find).collect::<Result<_, _>>()?;
    let note = format!("{file}: {}", keys.join(" + "));
    if let (Some(expect), [found]) = (expect, &found[..]) {
        let verdict = if are_equal(expect, found) { Verdict::Agrees } else { Verdict::Differs };
        return Ok(InputCheck { ours: Some(Printed::Text(found.to_string())), verdict, note });
    }
    let numbers: Option<Vec<f64>> = found.iter().map(numeric).collect();
    let sum: f64 = numbers.ok_or_else(|| NoResult::NotNumeric(note.clone()))?.iter().sum();
    judge(claim, sum * factor, note)
}

fn numeric(value: &toml::Value) -> Option<f64> {
    match value {
        toml::Value::Integer(number) => Some(*number as f64),
        toml::Value::Float(number) => Some(*number),
        // a time or percentage as an operator writes it
        toml::Value::String(text) => number(text),
        _ => None,
    }
}

/// Whether two values are the same, numbers as numbers.
fn are_equal(a: &toml::Value, b: &toml::Value) -> bool {
    match (a, b) {
        (toml::Value::Array(a), toml::Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| are_equal(a, b))
        }
        _ => a == b || numeric(a).is_some_and(|a| numeric(b) == Some(a)),
    }
}

/// The value at a path of keys joined by dots; a key with dots is quoted. In a list, a number is an index from 0, `last`, `len`, `min` and
/// `max` are functions, and any other word selects the table with this `name`, `key`, `label` or `profile`.
fn at(value: &toml::Value, path: &str) -> Option<toml::Value> {
    let mut value = value.clone();
    for key in segments(path) {
        value = match &value {
            toml::Value::Table(table) => table.get(key)?.clone(),
            toml::Value::Array(list) => of_list(list, key)?,
            _ => return None,
        };
    }
    Some(value)
}

/// `fact."core.kiops".value` in its parts.
fn segments(path: &str) -> Vec<&str> {
    let (mut rest, mut segments) = (path, Vec::new());
    while !rest.is_empty() {
        let quoted = rest.strip_prefix('"').and_then(|inner| inner.split_once('"'));
        let (segment, after) = quoted.unwrap_or_else(|| rest.split_at(rest.find('.').unwrap_or(rest.len())));
        segments.push(segment);
        rest = after.strip_prefix('.').unwrap_or(after);
    }
    segments
}

fn of_list(list: &[toml::Value], key: &str) -> Option<toml::Value> {
    let numbers = || list.iter().filter_map(numeric);
    let named = |item: &&toml::Value| {
        let is = |name| item.get(name).and_then(toml::Value::as_str) == Some(key);
        ["name", "key", "label", "profile"].into_iter().any(is)
    };
    match key {
        "len" => i64::try_from(list.len()).ok().map(toml::Value::Integer),
        "last" => list.last().cloned(),
        "min" => numbers().reduce(f64::min).map(toml::Value::Float),
        "max" => numbers().reduce(f64::max).map(toml::Value::Float),
        name => match name.parse::<usize>() {
            Ok(index) => list.get(index).cloned(),
            Err(_) => list.iter().find(named).cloned(),
        },
    }
}

/// A rule in words needs a test; this checks only that it exists.
fn test(claim: &Claim, sources: &Sources<'_>, file: &str, name: &str) -> Result<InputCheck, NoResult> {
    let text = (sources.file)(file).ok_or_else(|| NoResult::NoFile(file.to_owned()))?;
    if !text.contains(&format!("fn {name}(")) {
        return Err(NoResult::NotInFile(file.to_owned(), format!("test {name}")));
    }
    let ours = claim.value.number().is_none().then(|| Printed::Text(format!("test {name}")));
    Ok(InputCheck { ours, verdict: Verdict::Agrees, note: format!("{file}: {name}") })
}

#[cfg(test)]
mod tests {
    use super::super::claim::tests::claim;
    use super::*;

    const PROFILE: &str = "cores = 48\n[power.cpu_uw]\npoll = 244_000_000\n[sweep]\nrate = [10, 20, 40.5]\nfine = ['5us', '10us']\n\
                           [[fact]]\nkey = 'core.kiops'\nvalue = 800\n";

    fn checked(value: Printed, kind: Kind, check: &Check) -> Result<InputCheck, NoResult> {
        let sources = Sources {
            file: &|name| match name {
                "p.toml" => Some(PROFILE.to_owned()),
                "t.rs" => Some("fn siblings_sleep_together() {".to_owned()),
                _ => None,
            },
            parameter: &|policy, key| match (policy, key) {
                ("sandman", "fine_interval") => Some("10us".to_owned()),
                ("sandman", "healthy_threshold") => Some("80%".to_owned()),
                _ => None,
            },
            printed: &|id| (id == "cpu").then_some(134.0),
        };
        super::check(&claim("x", kind, None, value), check, &sources)
    }

    fn file(key: &str, factor: f64) -> Check {
        Check::Value { file: "p.toml".to_owned(), keys: vec![key.to_owned()], factor, expect: None }
    }

    fn verdict(value: f64, kind: Kind, check: &Check) -> Verdict {
        checked(Printed::Number(value), kind, check).unwrap().verdict
    }

    #[test]
    fn inputs_are_compared_with_the_profile() {
        assert_eq!(verdict(244.0, Kind::Input, &file("power.cpu_uw.poll", 1e-6)), Verdict::Agrees);
        assert_eq!(verdict(245.0, Kind::Input, &file("power.cpu_uw.poll", 1e-6)), Verdict::Differs);
        assert_eq!(verdict(40.5, Kind::Input, &file("sweep.rate.max", 1.0)), Verdict::Agrees);
        assert_eq!(verdict(3.0, Kind::Input, &file("sweep.rate.len", 1.0)), Verdict::Agrees);
        assert_eq!(verdict(20.0, Kind::Input, &file("sweep.rate.1", 1.0)), Verdict::Agrees);
        assert_eq!(verdict(40.5, Kind::Input, &file("sweep.rate.last", 1.0)), Verdict::Agrees);
        assert_eq!(verdict(5.0, Kind::Input, &file("sweep.fine.min", 1e6)), Verdict::Agrees);
        assert_eq!(verdict(800.0, Kind::Input, &file("fact.\"core.kiops\".value", 1.0)), Verdict::Agrees);
        let keys = vec!["cores".to_owned(), "sweep.rate.0".to_owned()];
        let sum = Check::Value { file: "p.toml".to_owned(), keys, factor: 1.0, expect: None };
        assert_eq!(verdict(58.0, Kind::Input, &sum), Verdict::Agrees);
    }

    #[test]
    fn words_are_compared_with_the_expected_value() {
        let expect = |list: &str| Check::Value {
            file: "p.toml".to_owned(),
            keys: vec!["sweep.rate".to_owned()],
            factor: 1.0,
            expect: Some(toml::from_str::<toml::Table>(&format!("v = {list}")).unwrap()["v"].clone()),
        };
        let words = || Printed::Text("10, 20, 40.5".to_owned());
        assert_eq!(checked(words(), Kind::Input, &expect("[10.0, 20, 40.5]")).unwrap().verdict, Verdict::Agrees);
        assert_eq!(checked(words(), Kind::Input, &expect("[10, 20]")).unwrap().verdict, Verdict::Differs);
        assert!(checked(words(), Kind::Input, &file("cores", 1.0)).unwrap_err().to_string().contains("in words"));
    }

    #[test]
    fn parameters_have_units() {
        let formula = |text: &str| Check::Formula(text.to_owned());
        assert_eq!(verdict(10.0, Kind::Parameter, &formula("1_000_000 * {sandman.fine_interval}")), Verdict::Agrees);
        assert_eq!(verdict(20.0, Kind::Parameter, &formula("100 - {sandman.healthy_threshold}")), Verdict::Agrees);
        assert_eq!(verdict(21.0, Kind::Parameter, &formula("100 - {sandman.healthy_threshold}")), Verdict::Differs);
        let missing = checked(Printed::Number(1.0), Kind::Parameter, &formula("{sandman.colour}"));
        assert!(missing.unwrap_err().to_string().contains("sandman.colour"));
    }

    #[test]
    fn derived_rows_may_be_rounded() {
        let share = Check::Formula("100 * [cpu] / 412".to_owned()); // 32.52
        assert_eq!(verdict(33.0, Kind::Derived, &share), Verdict::Agrees);
        assert_eq!(verdict(32.0, Kind::Derived, &share), Verdict::Agrees);
        assert_eq!(verdict(34.0, Kind::Derived, &share), Verdict::Differs);
        assert_eq!(verdict(32.7, Kind::Derived, &share), Verdict::Differs);
    }

    #[test]
    fn errors_name_what_is_missing() {
        let missing = |check: &Check| checked(Printed::Number(1.0), Kind::Input, check).unwrap_err().to_string();
        assert_eq!(missing(&file("power.gpu_uw", 1.0)), "p.toml has no power.gpu_uw");
        assert_eq!(missing(&file("power", 1.0)), "p.toml: power is no number");
        let test = |file: &str, name: &str| Check::Test { file: file.to_owned(), name: name.to_owned() };
        assert_eq!(missing(&test("u.rs", "f")), "there is no u.rs");
        assert_eq!(missing(&test("t.rs", "siblings")), "t.rs has no test siblings");
        assert!(
            checked(Printed::Text("rule".into()), Kind::Parameter, &test("t.rs", "siblings_sleep_together")).is_ok()
        );
    }
}
