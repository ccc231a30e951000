//! Reading a TOML table key by key, each value with its place, noting every problem instead of stopping at the first.

use std::borrow::Cow;
use std::cell::RefCell;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::draft::{Number, Text};
use super::problem::{Located, Origin, Problem};

/// Which keys stand in which section. The sections' names leave out the numbers of list entries.
pub(crate) const SCHEMA: [(&str, &[&str]); 16] = [
    (
        "",
        &[
            "server",
            "policy",
            "goals",
            "limits",
            "admin",
            "metrics",
            "log",
            "discovery",
            "page",
            "subsystem",
            "host",
            "class",
            "background",
        ],
    ),
    (
        "server",
        &[
            "listen",
            "advertise",
            "cores",
            "main_core",
            "reactors",
            "io_threads",
            "sleep_after",
            "hotplug",
            "power_states",
            "sensor",
            "energy_shares",
        ],
    ),
    ("policy", &["name"]),
    ("goals", &["budget", "domain", "schedule", "profile", "tolerance"]),
    ("admin", &["socket", "read_group", "state"]),
    ("metrics", &["listen"]),
    ("discovery", &["mdns", "referral"]),
    ("discovery.referral", &["address"]),
    ("log", &["format"]),
    ("page", &["listen", "hosts", "token_file"]),
    (
        "limits",
        &[
            "max_memory",
            "buffer_memory",
            "queue_memory",
            "max_connections",
            "max_host_queues",
            "max_io_queues",
            "max_queue_depth",
            "icreq_timeout",
            "drain_timeout",
        ],
    ),
    ("subsystem", &["nqn", "serial", "allowed_hosts", "controller_ids", "namespace"]),
    (
        "subsystem.namespace",
        &[
            "nsid",
            "backend",
            "block_size",
            "uuid",
            "hosts",
            "shrink",
            "max_bytes_per_s",
            "priority",
            "tolerance",
            "checksums",
            "checksums_file",
            "trim",
        ],
    ),
    ("background", &["scrub", "scrub_rate", "scrub_days", "trim_rate"]),
    ("host", &["nqn", "max_bytes_per_s", "priority"]),
    ("class", &["priority", "min_bytes_per_s"]),
];

/// A section whose other keys are not in the schema: parameters of the policy.
const OPEN: &str = "policy";

/// Problems found so far, shared by the sections of a file.
pub(crate) type Problems = RefCell<Vec<Problem>>;

/// One table of the file.
pub(crate) struct Section<'a> {
    /// Its path with numbers: `subsystem[0].namespace[1]`; empty for the whole file.
    path: String,
    /// Its name in [`SCHEMA`].
    name: String,
    /// Where it stands.
    at: Origin,
    table: &'a DeTable<'a>,
    problems: &'a Problems,
}

impl<'a> Section<'a> {
    /// The whole file.
    pub(crate) fn root(table: &'a Spanned<DeTable<'a>>, problems: &'a Problems) -> Self {
        let at = Origin::File { key: String::new(), span: 0..0 };
        let root = Self { path: String::new(), name: String::new(), at, table: table.get_ref(), problems };
        root.refuse_unknown();
        root
    }

    /// Where the section as a whole stands.
    pub(crate) fn at(&self) -> Origin {
        self.at.clone()
    }

    /// A text.
    pub(crate) fn text(&self, key: &str) -> Option<Text> {
        let (at, value) = self.get(key)?;
        match value {
            DeValue::String(text) => Some(Located::new(text.clone().into_owned(), at)),
            other => self.mismatch(&at, "a string", other),
        }
    }

    /// A text, a number or a switch, as text.
    pub(crate) fn plain(&self, key: &str) -> Option<Text> {
        let (at, value) = self.get(key)?;
        self.scalar(at, value)
    }

    /// A quantity: a text with a unit, or a bare number.
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

    /// A text, a number or a switch, as text.
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

    /// A whole number.
    pub(crate) fn number(&self, key: &str) -> Option<Number> {
        let (at, value) = self.get(key)?;
        self.integer_of(&at, value).map(|number| Located::new(number, at))
    }

    /// A switch.
    pub(crate) fn switch(&self, key: &str) -> Option<bool> {
        let (at, value) = self.get(key)?;
        match value {
            DeValue::Boolean(switch) => Some(*switch),
            other => self.mismatch(&at, "true or false", other),
        }
    }

    /// A list of texts, or one text.
    pub(crate) fn texts(&self, key: &str) -> Vec<Text> {
        let text = |at: Origin, value: &DeValue<'_>| match value {
            DeValue::String(text) => Some(Located::new(text.clone().into_owned(), at)),
            other => self.mismatch(&at, "a string", other),
        };
        self.entries(key).into_iter().filter_map(|(at, value)| text(at, value)).collect()
    }

    /// A list of cores: numbers, or a text such as `0-3`.
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

    /// A value and its place. Asking for a key that [`SCHEMA`] does not have is a mistake in this program.
    fn get(&self, key: &str) -> Option<(Origin, &'a DeValue<'a>)> {
        assert!(self.has(key), "{}: `{key}` is not in the schema", self.name);
        let value = self.table.get(key)?;
        Some((self.origin(key, value.span()), value.get_ref()))
    }

    /// The entries of a list that must not be empty, or a single value as a list of one.
    fn entries(&self, key: &str) -> Vec<(Origin, &'a DeValue<'a>)> {
        let Some((at, value)) = self.get(key) else { return Vec::new() };
        let DeValue::Array(entries) = value else { return vec![(at, value)] };
        if entries.is_empty() {
            self.problem(
                Problem::error(&at, "the list is empty").help("give at least one entry, or leave the key out"),
            );
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
            self.problem(Problem::error(at, format!("{integer} is too large a number")));
        }
        parsed
    }

    fn child(&self, key: &str, at: Origin, table: &'a DeTable<'a>) -> Section<'a> {
        let path = join(&self.path, key);
        let name = self.name_of(key.split('[').next().unwrap_or(key));
        let child = Section { path, name, at, table, problems: self.problems };
        child.refuse_unknown();
        child
    }

    /// Notes every key of this table that the schema does not have.
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
        let similar = |known: &&&str| strsim::jaro(key, known) > 0.75;
        let closer = |a: &&&str, b: &&&str| strsim::jaro(key, a).total_cmp(&strsim::jaro(key, b));
        if let Some(meant) = self.keys().iter().filter(similar).max_by(closer) {
            problem = problem.help(format!("did you mean `{meant}`?"));
        } else if let Some((section, _)) = SCHEMA.iter().find(|(_, keys)| keys.contains(&key)) {
            problem = problem.help(format!("`{key}` belongs {}", place_of(section)));
        }
        problem.help(format!("valid {}: {}", place_of(&self.name), self.keys().join(", ")))
    }

    fn has(&self, key: &str) -> bool {
        self.keys().contains(&key)
    }

    fn keys(&self) -> &'static [&'static str] {
        SCHEMA.iter().find(|(name, _)| *name == self.name).map_or(&[], |(_, keys)| keys)
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

fn place_of(section: &str) -> String {
    match section {
        "" => "at the top of the file".to_owned(),
        list if list.starts_with("subsystem") || ["host", "class", "discovery.referral"].contains(&list) => {
            format!("in [[{list}]]")
        }
        table => format!("in [{table}]"),
    }
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
