//! Knobs: keys of an experiment that hold one value or several, and the point where each has one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Point, Problem, Value, problem};

/// One value or several, each of them tried. In TOML: `bs = "4k"` or `bs = ["4k", "64k"]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Knob {
    /// Several, in this order.
    Several(Vec<Value>),
    /// Always this one.
    One(Value),
}

impl Knob {
    /// A knob that is always this word.
    pub fn word(word: &str) -> Self {
        Self::One(Value::Word(word.into()))
    }

    /// A knob that is always this number.
    pub fn integer(value: i64) -> Self {
        Self::One(Value::Integer(value))
    }

    /// 1, for what is one where the experiment does not say.
    pub fn one() -> Self {
        Self::integer(1)
    }

    /// Blocks of 4 KiB, where the experiment does not say.
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

    /// Refuses a knob without values, and one that names a value twice.
    ///
    /// # Errors
    /// `key` and what is wrong with it.
    pub fn check(&self, key: &str) -> Result<(), Problem> {
        let values = self.values();
        let why = match values.iter().enumerate().find(|(i, value)| values[..*i].contains(value)) {
            Some((_, twice)) => format!("names {twice} twice"),
            None if values.is_empty() => "names no value".into(),
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

/// The same of a table of a tool's own options, of which some are the adapter's: `own`.
///
/// # Errors
/// The key and what is wrong with it.
pub fn check_others(knobs: &BTreeMap<String, Knob>, table: &str, own: &[&str]) -> Result<(), Problem> {
    knobs.iter().try_for_each(|(key, knob)| {
        let at = format!("{table}.{key}");
        if own.contains(&key.as_str()) {
            return Err(problem(at, "this is set for every run; is there a key of its own for it?"));
        }
        knob.check(&at)
    })
}

/// All knobs with their values, those of the tables behind the main ones: as [`super::Workload::knobs`] wants them.
pub fn listed<'a>(
    main: impl IntoIterator<Item = (&'a str, &'a Knob)>,
    tables: &[&'a BTreeMap<String, Knob>],
) -> Vec<(String, Vec<Value>)> {
    let others = tables.iter().flat_map(|table| table.iter()).map(|(key, knob)| (key.as_str(), knob));
    main.into_iter().chain(others).map(|(key, knob)| (key.to_owned(), knob.values().to_vec())).collect()
}

/// What the knob `name` stands at.
///
/// # Errors
/// The point has no such knob.
pub fn at<'a>(point: &'a Point, name: &str) -> Result<&'a Value, Problem> {
    let missing = || Problem { at: name.into(), why: "the plan gives this knob no value here".into() };
    point.get(name).ok_or_else(missing)
}

/// What the knob `name` stands at, as a tool's argument: switches are 1 and 0.
///
/// # Errors
/// The point has no such knob.
pub fn argument(point: &Point, name: &str) -> Result<String, Problem> {
    Ok(match at(point, name)? {
        Value::Switch(on) => u8::from(*on).to_string(),
        other => other.to_string(),
    })
}

/// A whole number that is not negative.
///
/// # Errors
/// It is something else.
pub fn count(point: &Point, name: &str) -> Result<u64, Problem> {
    let value = at(point, name)?;
    let number = match value {
        Value::Integer(number) => u64::try_from(*number).ok(),
        Value::Word(word) => word.parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| Problem { at: name.into(), why: format!("{value} is no whole number") })
}

/// A name with options of its own behind it, as in `io_uring hipri=1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The first word.
    pub name: String,
    /// The others: keys and values, in order.
    pub options: Vec<(String, String)>,
}

impl Named {
    /// Reads it.
    ///
    /// # Errors
    /// There is no name, or a word behind it is no `key=value`; it is about `key`.
    pub fn read(value: &Value, key: &str) -> Result<Self, Problem> {
        let text = value.to_string();
        let mut words = text.split_whitespace();
        let name = words.next().ok_or_else(|| problem(key, "names nothing"))?.to_owned();
        let why = || problem(key, format!("{text:?}: behind the name come its options, as in \"{name} key=1\""));
        let option = |word: &str| word.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        let options = words.map(|word| option(word).ok_or_else(why)).collect::<Result<_, _>>()?;
        Ok(Self { name, options })
    }
}

/// An access pattern: fio's word, and the share of reads where it is given, as in `randrw 70/30`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Such as `randrw`.
    pub word: String,
    /// Reads, in percent of reads and writes.
    pub read_percent: Option<u8>,
}

impl Pattern {
    /// Reads it.
    ///
    /// # Errors
    /// The mix is not reads and writes that are 100 together; it is about `key`.
    pub fn read(value: &Value, key: &str) -> Result<Self, Problem> {
        let text = value.to_string();
        let Some((word, mix)) = text.split_once(' ') else { return Ok(Self { word: text, read_percent: None }) };
        let shares = mix.split_once('/').and_then(|(r, w)| Some((r.parse::<u8>().ok()?, w.parse::<u8>().ok()?)));
        match shares {
            Some((reads, writes)) if u16::from(reads) + u16::from(writes) == 100 => {
                Ok(Self { word: word.into(), read_percent: Some(reads) })
            }
            _ => Err(problem(key, format!("{text:?}: the mix is reads/writes in percent, as in \"randrw 70/30\""))),
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
    fn what_is_not_said_is_one_job_with_blocks_of_4_kib() {
        let expected = [Some(vec![Value::Word("4k".into())]), Some(vec![Value::Integer(1)])];
        let fio = fio::Fio::new(toml::from_str("").unwrap()).unwrap();
        let load = load::Load::new(toml::from_str("target = '127.0.0.1:4420'").unwrap()).unwrap();
        let read = read::Read::new(toml::from_str("").unwrap()).unwrap();
        for workload in [&fio as &dyn Workload, &load, &read] {
            assert_eq!(block_and_jobs(workload), expected, "{}", workload.name());
        }
    }

    #[test]
    fn a_knob_without_values_or_with_one_twice_is_refused_by_its_key() {
        assert!(knob("bs = [1, 2]").check("workload.bs").is_ok());
        for text in ["bs = []", "bs = [1, 2, 1]"] {
            assert_eq!(knob(text).check("workload.bs").unwrap_err().at, "workload.bs");
        }
    }

    #[test]
    fn arguments_are_what_tools_read() {
        let point = Point::from([("direct".into(), Value::Switch(true)), ("depth".into(), Value::Integer(4))]);
        assert_eq!(argument(&point, "direct").unwrap(), "1");
        assert_eq!((argument(&point, "depth").unwrap().as_str(), count(&point, "depth").unwrap()), ("4", 4));
        assert!(count(&point, "direct").is_err() && argument(&point, "bs").is_err());
    }
}
