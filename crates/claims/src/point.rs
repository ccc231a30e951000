//! Points of a sweep, and patterns that select them.
//!
//! A point is a `;`-joined list of `key=value`, in any order. A pattern is a list of conditions such as `rate_kiops>=640`,
//! joined by `;` or `,`; a point matches if it meets them all, so the empty pattern matches every point.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

/// A point of a sweep: values by key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Point(BTreeMap<String, String>);

/// Conditions on points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pattern(Vec<Condition>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    key: String,
    test: Test,
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    Is,
    AtLeast,
    AtMost,
}

impl Point {
    /// Parses `rate_kiops=5120;drives=16`, or `-` without a sweep; `None` if a part has no `=` or a key is repeated.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut values = BTreeMap::new();
        for part in parts(text).filter(|part| *part != "-") {
            let (key, value) = part.split_once('=')?;
            if values.insert(key.trim().to_owned(), value.trim().to_owned()).is_some() {
                return None;
            }
        }
        Some(Self(values))
    }

    /// The keys whose values differ or that only one has.
    #[must_use]
    pub fn differing<'a>(&'a self, other: &'a Self) -> BTreeSet<&'a str> {
        let keys = self.0.keys().chain(other.0.keys());
        keys.filter(|key| self.0.get(*key) != other.0.get(*key)).map(String::as_str).collect()
    }

    /// The point without a key, and the value of that key.
    #[must_use]
    pub fn without(&self, key: &str) -> Option<(Self, &str)> {
        let value = self.value(key)?;
        let mut rest = self.0.clone();
        rest.remove(key);
        Some((Self(rest), value))
    }

    /// The value of a key.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// The point in words.
    #[must_use]
    pub fn description(&self) -> String {
        if self.0.is_empty() { "its only point".to_owned() } else { self.to_string() }
    }
}

/// By key, then by value, numbers numerically.
impl Ord for Point {
    fn cmp(&self, other: &Self) -> Ordering {
        let each = self.0.iter().zip(&other.0).map(|((a, x), (b, y))| a.cmp(b).then_with(|| by_value(x, y)));
        each.fold(Ordering::Equal, Ordering::then).then(self.0.len().cmp(&other.0.len()))
    }
}

impl PartialOrd for Point {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn by_value(a: &str, b: &str) -> Ordering {
    match (number(a), number(b)) {
        (Some(x), Some(y)) => x.total_cmp(&y).then_with(|| a.cmp(b)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(key, value)| format!("{key}={value}")).collect();
        parts.join(";").fmt(f)
    }
}

impl Pattern {
    /// Parses `rate_kiops>=640; drives=16`; `None` if a part is not a condition.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        parts(text).map(Condition::parse).collect::<Option<_>>().map(Self)
    }

    /// The pattern that only this point of its sweep matches.
    #[must_use]
    pub fn at(point: &Point) -> Self {
        let is =
            |(key, value): (&String, &String)| Condition { key: key.clone(), test: Test::Is, value: value.clone() };
        Self(point.0.iter().map(is).collect())
    }

    /// The keys with a fixed value.
    pub fn fixed(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|condition| condition.test == Test::Is).map(|condition| condition.key.as_str())
    }

    /// The pattern with another value of a fixed key.
    #[must_use]
    pub fn with(&self, key: &str, value: &str) -> Self {
        let mut changed = self.clone();
        let conditions = changed.0.iter_mut().filter(|condition| condition.test == Test::Is && condition.key == key);
        conditions.for_each(|condition| condition.value = value.to_owned());
        changed
    }

    /// Whether the point meets every condition.
    #[must_use]
    pub fn matches(&self, point: &Point) -> bool {
        self.0.iter().all(|condition| condition.holds(point))
    }
}

impl Condition {
    fn parse(text: &str) -> Option<Self> {
        let (sign, test) = [(">=", Test::AtLeast), ("<=", Test::AtMost), ("=", Test::Is)]
            .into_iter()
            .find(|(sign, _)| text.contains(sign))?;
        let (key, value) = text.split_once(sign)?;
        let (key, value) = (key.trim(), value.trim());
        let sound = !key.is_empty() && (test == Test::Is || number(value).is_some());
        sound.then(|| Self { key: key.to_owned(), test, value: value.to_owned() })
    }

    fn holds(&self, point: &Point) -> bool {
        let Some(value) = point.0.get(&self.key) else { return false };
        match (self.test, number(value), number(&self.value)) {
            (Test::Is, Some(ours), Some(wanted)) => ours == wanted,
            (Test::Is, ..) => *value == self.value,
            (Test::AtLeast, Some(ours), Some(bound)) => ours >= bound,
            (Test::AtMost, Some(ours), Some(bound)) => ours <= bound,
            _ => false,
        }
    }
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split([';', ',']).map(str::trim).filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_select_points() {
        let point = Point::parse("rate_kiops=640;workload=nor-r").unwrap();
        let matches = |text: &str| Pattern::parse(text).unwrap().matches(&point);
        for yes in ["", "rate_kiops=640", "rate_kiops = 640.0", "workload=nor-r, rate_kiops>=640", "rate_kiops<=1e3"] {
            assert!(matches(yes), "{yes}");
        }
        for no in ["rate_kiops=64", "rate_kiops>=641", "workload=deg-r", "other=1", "workload>=3"] {
            assert!(!matches(no), "{no}");
        }
        for wrong in ["rate", "rate>=fast", "=3"] {
            assert_eq!(Pattern::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn points_sort_numerically() {
        let mut points = ["rate=10240", "rate=80", "rate=640"].map(|text| Point::parse(text).unwrap());
        points.sort();
        assert_eq!(points.map(|point| point.to_string()), ["rate=80", "rate=640", "rate=10240"]);
        assert_eq!(Point::parse("b=1;a=2"), Point::parse("a=2; b=1"));
        assert_eq!(Point::parse("a=1;a=2"), None);
        assert_eq!(Point::parse("a"), None);
        assert_eq!(Point::parse("-"), Some(Point::default()));
    }
}
