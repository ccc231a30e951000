//! Knobs: keys of an experiment with one or more values. A point has one value of each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Point, Problem, Value, problem};

/// One or more values, each of which is measured. In TOML: `bs = "4k"` or `bs = ["4k", "64k"]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Knob {
    /// Several values, in this order.
    Several(Vec<Value>),
    /// One value.
    One(Value),
}

impl Knob {
    /// A knob with one word.
    pub fn word(word: &str) -> Self {
        Self::One(Value::Word(word.into()))
    }

    /// A knob with one integer.
    pub fn integer(value: i64) -> Self {
        Self::One(Value::Integer(value))
    }

    /// The default 1.
    pub fn one() -> Self {
        Self::integer(1)
    }

    /// The default block size.
    pub fn block_4k() -> Self {
        Self::word("4k")
    }

    /// The values, in order.
    pub fn values(&self) -> &[Value] {
        match self {
            Self::Several(values) => values,
            Self::One(value) => std::slice::from_ref(value),
        }
    }

    /// Refuses a knob without values or with duplicates.
    ///
    /// # Errors
    /// `key` and what is wrong with it.
    pub fn check(&self, key: &str) -> Result<(), Problem> {
        let values = self.values();
        let why = match values.iter().enumerate().find(|(i, value)| values[..*i].contains(value)) {
            Some((_, twice)) => format!("has {twice} twice"),
            None if values.is_empty() => "has no value".into(),
            None => return Ok(()),
        };
        Err(Problem { at: key.into(), why })
    }
}

/// Refuses knobs as [`Knob::check`] does, by the keys of `[workload]`.
///
/// # Errors
/// The key and what is wrong with it.
pub fn check_main<'a>(knobs: impl IntoIterator<Item = (&'a str, &'a Knob)>) -> Result<(), Problem> {
    knobs.into_iter().try_for_each(|(key, knob)| knob.check(&format!("workload.{key}")))
}

/// Like [`check_main`], for a table of the tool's options, of which the adapter sets those in `reserved`.
///
/// # Errors
/// The key and what is wrong with it.
pub fn check_others(knobs: &BTreeMap<String, Knob>, table: &str, reserved: &[&str]) -> Result<(), Problem> {
    knobs.iter().try_for_each(|(key, knob)| {
        let at = format!("{table}.{key}");
        if reserved.contains(&key.as_str()) {
            return Err(problem(at, "is set by the adapter; use the key of [workload] for it, if there is one"));
        }
        knob.check(&at)
    })
}

/// The main knobs followed by those of the tables, for [`super::Workload::knobs`].
pub fn listed<'a>(
    main: impl IntoIterator<Item = (&'a str, &'a Knob)>,
    tables: &[&'a BTreeMap<String, Knob>],
) -> Vec<(String, Vec<Value>)> {
    let others = tables.iter().flat_map(|table| table.iter()).map(|(key, knob)| (key.as_str(), knob));
    main.into_iter().chain(others).map(|(key, knob)| (key.to_owned(), knob.values().to_vec())).collect()
}

/// The value of the knob `name`.
///
/// # Errors
/// The point has no such knob.
pub fn at<'a>(point: &'a Point, name: &str) -> Result<&'a Value, Problem> {
    let missing = || Problem { at: name.into(), why: "the point has no value of this knob".into() };
    point.get(name).ok_or_else(missing)
}

/// The value of the knob `name` as an argument; switches are 1 and 0.
///
/// # Errors
/// The point has no such knob.
pub fn argument(point: &Point, name: &str) -> Result<String, Problem> {
    Ok(match at(point, name)? {
        Value::Switch(on) => u8::from(*on).to_string(),
        other => other.to_string(),
    })
}

/// The value of the knob `name` as a count.
///
/// # Errors
/// It is not a non-negative integer.
pub fn count(point: &Point, name: &str) -> Result<u64, Problem> {
    let value = at(point, name)?;
    let number = match value {
        Value::Integer(number) => u64::try_from(*number).ok(),
        Value::Word(word) => word.parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| Problem { at: name.into(), why: format!("{value} is not a whole number") })
}

/// A name followed by options, as in `io_uring hipri=1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The first word.
    pub name: String,
    /// Keys and values of the options, in order.
    pub options: Vec<(String, String)>,
}

impl Named {
    /// Parses the value of `key`.
    ///
    /// # Errors
    /// There is no name, or an option is not `key=value`.
    pub fn read(value: &Value, key: &str) -> Result<Self, Problem> {
        let text = value.to_string();
        let mut words = text.split_whitespace();
        let name = words.next().ok_or_else(|| problem(key, "is empty"))?.to_owned();
        let why = || problem(key, format!("{text:?}: options must be key=value, as in \"{name} key=1\""));
        let option = |word: &str| word.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        let options = words.map(|word| option(word).ok_or_else(why)).collect::<Result<_, _>>()?;
        Ok(Self { name, options })
    }
}

/// An access pattern of fio, optionally with the percentage of reads, as in `randrw 70/30`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Such as `randrw`.
    pub word: String,
    /// Percentage of reads.
    pub read_percent: Option<u8>,
}

impl Pattern {
    /// Parses the value of `key`.
    ///
    /// # Errors
    /// The percentages of reads and writes do not add up to 100.
    pub fn read(value: &Value, key: &str) -> Result<Self, Problem> {
        let text = value.to_string();
        let Some((word, mix)) = text.split_once(' ') else { return Ok(Self { word: text, read_percent: None }) };
        let percentages = mix.split_once('/').and_then(|(r, w)| Some((r.parse::<u8>().ok()?, w.parse::<u8>().ok()?)));
        match percentages {
            Some((reads, writes)) if u16::from(reads) + u16::from(writes) == 100 => {
                Ok(Self { word: word.into(), read_percent: Some(reads) })
            }
            _ => Err(problem(
                key,
                format!("{text:?}: reads and writes must add up to 100 percent, as in \"randrw 70/30\""),
            )),
        }
    }

    /// As arguments: `--rw=randrw`, `--rwmixread=70`.
    pub fn arguments(&self) -> impl Iterator<Item = String> {
        let mix = self.read_percent.map(|percent| format!("--rwmixread={percent}"));
        std::iter::once(format!("--rw={}", self.word)).chain(mix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Workload, fio, load, read};

    #[derive(Deserialize)]
    struct Keys {
        bs: Knob,
    }

    fn knob(text: &str) -> Knob {
        toml::from_str::<Keys>(text).unwrap().bs
    }

    #[test]
    fn one_value_and_several_are_read_alike() {
        assert_eq!(knob("bs = '4k'").values(), [Value::Word("4k".into())]);
        assert_eq!(knob("bs = [4096, '8k']").values(), [Value::Integer(4096), Value::Word("8k".into())]);
        assert_eq!(knob("bs = [true, 0.5]").values(), [Value::Switch(true), Value::Number(0.5)]);
    }

    /// Two knobs that several tools have.
    fn block_and_jobs(workload: &dyn Workload) -> [Option<Vec<Value>>; 2] {
        let values = |name| workload.knobs().into_iter().find(|(key, _)| key == name).map(|(_, values)| values);
        ["bs", "numjobs"].map(values)
    }

    #[test]
    fn defaults_are_one_job_with_blocks_of_4_kib() {
        let expected = [Some(vec![Value::Word("4k".into())]), Some(vec![Value::Integer(1)])];
        let fio = fio::Fio::new(toml::from_str("").unwrap()).unwrap();
        let load = load::Load::new(toml::from_str("target = '127.0.0.1:4420'").unwrap()).unwrap();
        let read = read::Read::new(toml::from_str("").unwrap()).unwrap();
        for workload in [&fio as &dyn Workload, &load, &read] {
            assert_eq!(block_and_jobs(workload), expected, "{}", workload.name());
        }
    }

    #[test]
    fn a_knob_without_values_or_with_duplicates_is_refused_by_its_key() {
        assert!(knob("bs = [1, 2]").check("workload.bs").is_ok());
        for text in ["bs = []", "bs = [1, 2, 1]"] {
            assert_eq!(knob(text).check("workload.bs").unwrap_err().at, "workload.bs");
        }
    }

    #[test]
    fn arguments_and_counts() {
        let point = Point::from([("direct".into(), Value::Switch(true)), ("depth".into(), Value::Integer(4))]);
        assert_eq!(argument(&point, "direct").unwrap(), "1");
        assert_eq!((argument(&point, "depth").unwrap().as_str(), count(&point, "depth").unwrap()), ("4", 4));
        assert!(count(&point, "direct").is_err() && argument(&point, "bs").is_err());
    }
}
