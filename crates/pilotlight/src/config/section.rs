//! Reads a TOML table key by key, values with their places; problems are noted, and reading continues.

use std::borrow::Cow;
use std::cell::RefCell;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Located, Number, Origin, Problem, Text};
use super::schema::{Schema, top_level};

/// The section whose other keys are parameters of the policy.
const OPEN: &str = "policy";

/// Problems found so far, shared by the sections of a file.
pub(crate) type Problems = RefCell<Vec<Problem>>;

/// One table of the file.
pub(crate) struct Section<'a> {
    /// Its path with numbers: `subsystem[0].namespace[1]`; empty for the whole file.
    path: String,
    /// Its header without numbers; empty for the whole file.
    name: String,
    schemas: &'static [Schema],
    at: Origin,
    table: &'a DeTable<'a>,
    problems: &'a Problems,
}

impl<'a> Section<'a> {
    /// The whole file.
    pub(crate) fn root(table: &'a Spanned<DeTable<'a>>, schemas: &'static [Schema], problems: &'a Problems) -> Self {
        let at = Origin::File { key: String::new(), span: 0..0 };
        let root = Self { path: String::new(), name: String::new(), schemas, at, table: table.get_ref(), problems };
        root.refuse_unknown();
        root
    }

    /// Where the section is.
    pub(crate) fn at(&self) -> Origin {
        self.at.clone()
    }

    /// A string.
    pub(crate) fn text(&self, key: &str) -> Option<Text> {
        let (at, value) = self.get(key)?;
        match value {
            DeValue::String(text) => Some(Located::new(text.clone().into_owned(), at)),
            other => self.mismatch(&at, "a string", other),
        }
    }

    /// A string, number or boolean, as text.
    pub(crate) fn plain(&self, key: &str) -> Option<Text> {
        let (at, value) = self.get(key)?;
        self.scalar(at, value)
    }

    /// A quantity: a string with a unit, or a number.
    pub(crate) fn quantity(&self, key: &str) -> Option<Text> {
        let (at, value) = self.get(key)?;
        match value {
            DeValue::String(text) => Some(Located::new(text.clone().into_owned(), at)),
            DeValue::Integer(_) => self.integer_of(&at, value).map(|number| Located::new(number.to_string(), at)),
            other => self.mismatch(&at, "a string with a number and a unit", other),
        }
    }

    /// Keys that are not in the schema, each value as text, in the order of the file.
    pub(crate) fn others(&self) -> Vec<(Text, Text)> {
        let mut others: Vec<_> = self.table.iter().filter(|(key, _)| !self.has(key.get_ref())).collect();
        others.sort_by_key(|(key, _)| key.span().start);
        let other = |(key, value): (&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
            let name = key.get_ref().clone().into_owned();
            let value = self.scalar(self.origin(&name, value.span()), value.get_ref())?;
            Some((Located::new(name.clone(), self.origin(&name, key.span())), value))
        };
        others.into_iter().filter_map(other).collect()
    }

    /// A string, number or boolean, as text.
    fn scalar(&self, at: Origin, value: &DeValue<'_>) -> Option<Text> {
        let text = match value {
            DeValue::String(text) => text.clone().into_owned(),
            DeValue::Integer(_) => self.integer_of(&at, value)?.to_string(),
            DeValue::Float(number) => number.as_str().to_owned(),
            DeValue::Boolean(switch) => switch.to_string(),
            other => return self.mismatch(&at, "a string, a number or a boolean", other),
        };
        Some(Located::new(text, at))
    }

    /// An integer.
    pub(crate) fn number(&self, key: &str) -> Option<Number> {
        let (at, value) = self.get(key)?;
        self.integer_of(&at, value).map(|number| Located::new(number, at))
    }

    /// A boolean; `false` if it is missing.
    pub(crate) fn switch(&self, key: &str) -> bool {
        let Some((at, value)) = self.get(key) else { return false };
        match value {
            DeValue::Boolean(switch) => *switch,
            other => self.mismatch(&at, "true or false", other).unwrap_or_default(),
        }
    }

    /// A list of strings, or one string.
    pub(crate) fn texts(&self, key: &str) -> Vec<Text> {
        let text = |at: Origin, value: &DeValue<'_>| match value {
            DeValue::String(text) => Some(Located::new(text.clone().into_owned(), at)),
            other => self.mismatch(&at, "a string", other),
        };
        self.entries(key).into_iter().filter_map(|(at, value)| text(at, value)).collect()
    }

    /// A list of cores: integers, or a string such as `0-3`.
    pub(crate) fn cores(&self, key: &str) -> Vec<Number> {
        let mut cores = Vec::new();
        for (at, value) in self.entries(key) {
            let DeValue::String(text) = value else {
                cores.extend(self.integer_of(&at, value).map(|core| Located::new(core, at)));
                continue;
            };
            match super::units::parse_cores(text) {
                Ok(list) => cores.extend(list.into_iter().map(|core| Located::new(i64::from(core), at.clone()))),
                Err(what) => self.problem(Problem::error(&at, what)),
            }
        }
        cores
    }

    /// A table within this one: `[server]`.
    pub(crate) fn section(&self, key: &str) -> Option<Section<'a>> {
        let (at, value) = self.get(key)?;
        match value {
            DeValue::Table(table) => Some(self.child(key, at, table)),
            other => self.mismatch(&at, &format!("a table headed [{}]", self.name_of(key)), other),
        }
    }

    /// A list of tables within this one: `[[subsystem]]`.
    pub(crate) fn sections(&self, key: &str) -> Vec<Section<'a>> {
        let expected = || format!("tables headed [[{}]]", self.name_of(key));
        let Some((at, value)) = self.get(key) else { return Vec::new() };
        let DeValue::Array(entries) = value else {
            self.mismatch::<()>(&at, &expected(), value);
            return Vec::new();
        };
        let section = |(index, entry): (usize, &'a Spanned<DeValue<'a>>)| {
            let at = self.origin(&format!("{key}[{index}]"), entry.span());
            match entry.get_ref() {
                DeValue::Table(table) => Some(self.child(&format!("{key}[{index}]"), at, table)),
                other => self.mismatch(&at, &expected(), other),
            }
        };
        entries.iter().enumerate().filter_map(section).collect()
    }

    /// A value and its place. A key outside the schema is a bug.
    fn get(&self, key: &str) -> Option<(Origin, &'a DeValue<'a>)> {
        assert!(self.has(key), "{}: `{key}` is not in the schema", self.name);
        let value = self.table.get(key)?;
        Some((self.origin(key, value.span()), value.get_ref()))
    }

    /// The entries of a non-empty list, or a single value.
    fn entries(&self, key: &str) -> Vec<(Origin, &'a DeValue<'a>)> {
        let Some((at, value)) = self.get(key) else { return Vec::new() };
        let DeValue::Array(entries) = value else { return vec![(at, value)] };
        if entries.is_empty() {
            self.problem(Problem::error(&at, "the list is empty").help("add an entry, or omit the key"));
        }
        let place = |(index, entry): (usize, &'a Spanned<DeValue<'a>>)| {
            (self.origin(&format!("{key}[{index}]"), entry.span()), entry.get_ref())
        };
        entries.iter().enumerate().map(place).collect()
    }

    fn integer_of(&self, at: &Origin, value: &DeValue<'_>) -> Option<i64> {
        let DeValue::Integer(integer) = value else { return self.mismatch(at, "an integer", value) };
        let parsed = i64::from_str_radix(integer.as_str(), integer.radix()).ok();
        if parsed.is_none() {
            self.problem(Problem::error(at, format!("{integer} is too large")));
        }
        parsed
    }

    fn child(&self, key: &str, at: Origin, table: &'a DeTable<'a>) -> Section<'a> {
        let path = join(&self.path, key);
        let name = self.name_of(key.split('[').next().unwrap_or(key));
        let child = Section { path, name, schemas: self.schemas, at, table, problems: self.problems };
        child.refuse_unknown();
        child
    }

    /// Notes unknown keys.
    fn refuse_unknown(&self) {
        if self.name == OPEN {
            return;
        }
        for key in self.table.keys().filter(|key| !self.has(key.get_ref())) {
            self.problem(self.unknown(key.get_ref(), &self.origin(key.get_ref(), key.span())));
        }
    }

    fn unknown(&self, key: &str, at: &Origin) -> Problem {
        let mut problem = Problem::error(at, "unknown key");
        let keys = self.keys();
        if let Some(known) = pilotlight_input::file::nearest(key, &keys) {
            problem = problem.help(format!("did you mean `{known}`?"));
        } else if let Some(schema) = self.schemas.iter().find(|schema| schema.names().any(|known| known == key)) {
            problem = problem.help(format!("`{key}` belongs in {}", schema.heading()));
        }
        let place =
            self.schema().map_or("at the top of the file".to_owned(), |schema| format!("in {}", schema.heading()));
        problem.help(format!("valid {place}: {}", keys.join(", ")))
    }

    fn has(&self, key: &str) -> bool {
        self.keys().contains(&key)
    }

    fn schema(&self) -> Option<&'static Schema> {
        self.schemas.iter().find(|schema| schema.header == self.name)
    }

    fn keys(&self) -> Vec<&'static str> {
        if self.name.is_empty() {
            return top_level(self.schemas).collect();
        }
        self.schema().map(|schema| schema.names().collect()).unwrap_or_default()
    }

    fn name_of(&self, key: &str) -> String {
        join(&self.name, key)
    }

    fn origin(&self, key: &str, span: std::ops::Range<usize>) -> Origin {
        Origin::File { key: join(&self.path, key), span }
    }

    fn mismatch<T>(&self, at: &Origin, expected: &str, found: &DeValue<'_>) -> Option<T> {
        self.problem(Problem::error(at, format!("expected {expected}, found {}", kind(found))));
        None
    }

    fn problem(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}
