//! What every experiment leaves, measured or simulated: a folder `NAME` with all numbers of all runs in `values.csv.zst`.
//!
//! *File.* A long CSV, a row for each number of each run, packed with zstd; while a sweep runs `values.csv` beside it has what has come
//! since. Comment lines say the layout's version ([`SCHEMA`]), the machine and how to ask the same again, and before the rows of each
//! cell the fingerprint of its values. A run's rows end with the metric `saturated` where runs are simulated one by one; one without that
//! row was interrupted, and is not there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;
use crate::metric::SATURATED;
pub use crate::place::{FILE, files, files_below, forget, is_results, packed_path, put, read, read_whole};

/// The version of this layout and of the names of metrics. Files of another one are refused.
pub const SCHEMA: u32 = 2;

/// [`SCHEMA`] as a field of a file: reading another one fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Schema(u32);

impl Default for Schema {
    fn default() -> Self {
        Self(SCHEMA)
    }
}

impl TryFrom<u32> for Schema {
    type Error = String;

    fn try_from(found: u32) -> Result<Self, String> {
        if found == SCHEMA { Ok(Self(found)) } else { Err(schema_words(Some(found))) }
    }
}

impl From<Schema> for u32 {
    fn from(Schema(schema): Schema) -> Self {
        schema
    }
}

/// Results are packed once and kept for long: small before fast.
const LEVEL: i32 = 19;

/// The columns.
pub const HEADER: &str = "experiment,point,variant,policy,replication,seed,metric,unit,value";

/// Which run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunKey {
    /// The point's name.
    pub point: String,
    /// The variant's name.
    pub variant: String,
    /// The policy's label.
    pub policy: String,
    /// The replication, from 0.
    pub replication: u32,
}

impl RunKey {
    /// What it is a replication of.
    #[must_use]
    pub fn cell(&self) -> Cell {
        Cell { point: self.point.clone(), variant: self.variant.clone(), policy: self.policy.clone() }
    }
}

/// What is replicated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// The point's name.
    pub point: String,
    /// The variant's name.
    pub variant: String,
    /// The policy's label.
    pub policy: String,
}

impl Cell {
    /// The comment line that names its values.
    #[must_use]
    pub fn line(&self, fingerprint: Fingerprint) -> String {
        let Self { point, variant, policy } = self;
        format!("# {CELL}{fingerprint} {point},{variant},{policy}\n")
    }

    /// A comment line's cell and fingerprint, if it is such a line.
    fn parse(comment: &str) -> Option<(Self, Fingerprint)> {
        let (fingerprint, names) = comment.trim().strip_prefix(CELL)?.split_once(' ')?;
        let mut names = names.splitn(3, ',').map(str::to_owned);
        let cell = Self { point: names.next()?, variant: names.next()?, policy: names.next()? };
        Some((cell, fingerprint.parse().ok()?))
    }
}

/// What a comment line about a cell begins with.
const CELL: &str = "cell=";

/// A number of a run, as the file has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Its name.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Its value.
    pub value: f64,
}

/// A finished run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The seed.
    pub seed: u64,
    /// Its numbers, `saturated` last.
    pub values: Vec<Value>,
}

impl Run {
    /// A number of this run.
    #[must_use]
    pub fn get(&self, metric: &str) -> Option<f64> {
        self.values.iter().find(|value| value.metric == metric).map(|value| value.value)
    }

    /// Whether the plant could not keep up.
    #[must_use]
    pub fn saturated(&self) -> bool {
        self.get(SATURATED) == Some(1.0)
    }
}

/// What the comment lines say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The experiment's name.
    pub experiment: String,
    /// Where they were measured; empty if they are simulated.
    pub host: String,
    /// The profile's name; empty if they were measured.
    pub profile: String,
    /// The fingerprint of the machine and its drives, for people: each cell has its own.
    pub hash: String,
    /// The experiment's file, from the folder that holds `calibration.toml`; empty where it is not known.
    pub file: String,
    /// What was asked beside the file.
    pub asked: Asked,
}

/// What was asked beside the file, so that it can be asked again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Keys and values, as on the command line.
    pub set: Vec<(String, String)>,
    /// Whether the file's `smoke` keys held.
    pub smoke: bool,
}

/// Results in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// Where they are from.
    pub about: About,
    /// The values of each cell that has runs.
    pub cells: BTreeMap<Cell, Fingerprint>,
    /// The finished runs.
    pub runs: BTreeMap<RunKey, Run>,
}

/// Why results cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// The file system said no.
    #[error("{path}: {error}")]
    File {
        /// Which file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// A line is not written as a row is.
    #[error("{path}: line {line}: {reason}: remove the line, or the file")]
    Row {
        /// Which file.
        path: String,
        /// Which line.
        line: usize,
        /// What is wrong.
        reason: &'static str,
    },
    /// It is of another version of this program.
    #[error("{path}: {}", schema_words(*.found))]
    Schema {
        /// Which file.
        path: String,
        /// The version that it names.
        found: Option<u32>,
    },
    /// Another process adds to these results.
    #[error("{path}: another sweep writes these results now: wait for it, end it, or give another folder with --out")]
    Busy {
        /// Which file.
        path: String,
    },
}

impl ResultsError {
    /// A file and what the system said of it.
    #[must_use]
    pub fn file(path: &Path, error: std::io::Error) -> Self {
        Self::File { path: path.display().to_string(), error }
    }
}

impl About {
    /// What the comment lines of a text say.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut about = Self::default();
        text.lines().map_while(|line| line.strip_prefix('#')).for_each(|comment| about.take(comment));
        about
    }

    /// Whether they were measured on a real machine, so that they cannot be computed again.
    #[must_use]
    pub const fn is_measured(&self) -> bool {
        !self.host.is_empty()
    }

    /// The head of a file.
    #[must_use]
    pub fn lines(&self) -> String {
        let Self { experiment, host, profile, hash, file, asked } = self;
        let machine = if self.is_measured() { format!("host={host}") } else { format!("profile={profile}") };
        let mut lines = format!("# schema={SCHEMA}\n# {machine} hash={hash}\n# experiment={experiment}\n");
        if !file.is_empty() {
            let asked = serde_json::to_string(asked).unwrap_or_default();
            let _ = write!(lines, "# file={file}\n# asked={asked}\n");
        }
        lines + HEADER + "\n"
    }

    fn take(&mut self, comment: &str) {
        let comment = comment.trim();
        if let Some(file) = comment.strip_prefix("file=") {
            return file.clone_into(&mut self.file);
        }
        if let Some(asked) = comment.strip_prefix("asked=") {
            self.asked = serde_json::from_str(asked).unwrap_or_default();
            return;
        }
        for (key, value) in comment.split_whitespace().filter_map(|word| word.split_once('=')) {
            let place = match key {
                "host" => &mut self.host,
                "profile" => &mut self.profile,
                "hash" => &mut self.hash,
                "experiment" => &mut self.experiment,
                _ => continue,
            };
            value.clone_into(place);
        }
    }
}

/// The cells that the comment lines of a text name, with their fingerprints.
#[must_use]
pub fn cells(text: &str) -> BTreeMap<Cell, Fingerprint> {
    text.lines().filter_map(|line| Cell::parse(line.strip_prefix('#')?)).collect()
}

/// What the name of a packed file ends with.
pub const PACKED: &str = ".zst";

/// The text of a file of results, packed or plain. Beside a packed file a plain one holds what has come since; of that, rows that
/// are in the packed one already (a sweep was killed just then) are left out.
///
/// # Errors
/// If a file cannot be read.
pub fn text(path: &Path) -> Result<String, ResultsError> {
    let text = unpacked(path)?;
    check_schema(path, &text)?;
    let packed = packed_path(path);
    if !packed.is_file() {
        return Ok(text);
    }
    let known = unpacked(&packed)?;
    let known: BTreeSet<&str> = known.lines().skip_while(|line| *line != HEADER).skip(1).collect();
    let news = text.lines().filter(|line| !known.contains(line));
    Ok(news.fold(String::new(), |text, line| text + line + "\n"))
}

/// A text as results are packed.
///
/// # Errors
/// If it cannot be packed.
pub fn packed(text: &str) -> std::io::Result<Vec<u8>> {
    zstd::encode_all(text.as_bytes(), LEVEL)
}

/// The version that a text says it has; the first that did not say one was 1.
fn schema(text: &str) -> Option<u32> {
    let mut comments = text.lines().map_while(|line| line.strip_prefix('#'));
    comments.find_map(|comment| comment.trim().strip_prefix("schema=")?.parse().ok())
}

fn check_schema(path: &Path, text: &str) -> Result<(), ResultsError> {
    let found = schema(text);
    if text.is_empty() || found == Some(SCHEMA) {
        return Ok(());
    }
    Err(ResultsError::Schema { path: path.display().to_string(), found })
}

fn schema_words(found: Option<u32>) -> String {
    let found = found.map_or_else(|| "no schema version".to_owned(), |found| format!("schema version {found}"));
    format!("it has {found}, and this program reads {SCHEMA}: remove it and run the experiment again")
}

fn unpacked(path: &Path) -> Result<String, ResultsError> {
    let failed = |error| ResultsError::file(path, error);
    if !path.to_string_lossy().ends_with(PACKED) {
        return fs::read_to_string(path).map_err(failed);
    }
    let mut text = String::new();
    let file = fs::File::open(path).map_err(failed)?;
    zstd::Decoder::new(file).and_then(|mut decoder| decoder.read_to_string(&mut text)).map_err(failed)?;
    Ok(text)
}

/// Nine significant digits: noise has no more, and files half the size.
#[must_use]
pub fn nine_digits(value: f64) -> f64 {
    format!("{value:.8e}").parse().unwrap_or(value)
}

/// The rows of a run.
#[must_use]
pub fn rows(experiment: &str, key: &RunKey, run: &Run) -> String {
    let RunKey { point, variant, policy, replication } = key;
    let mut rows = String::new();
    for Value { metric, unit, value } in &run.values {
        let seed = run.seed;
        let _ = writeln!(rows, "{experiment},{point},{variant},{policy},{replication},{seed},{metric},{unit},{value}");
    }
    rows
}

impl Results {
    /// Reads a file, packed or plain. A last line without its end, and a last run without its end, count as not there.
    ///
    /// # Errors
    /// If the file cannot be read, or a line is no row.
    pub fn read(path: &Path) -> Result<Self, ResultsError> {
        Ok(Self::read_whole(path)?.finished())
    }

    /// Reads a file whose runs need no end: those of machines with one drive are written all at once.
    ///
    /// # Errors
    /// As [`Results::read`].
    pub fn read_whole(path: &Path) -> Result<Self, ResultsError> {
        let text = unpacked(path)?;
        check_schema(path, &text)?;
        Self::parse_whole(&text).map_err(|(line, reason)| ResultsError::Row {
            path: path.display().to_string(),
            line,
            reason,
        })
    }

    /// Reads what [`Results::text`] has written.
    ///
    /// # Errors
    /// The number of the line that is no row, and why.
    pub fn parse(text: &str) -> Result<Self, (usize, &'static str)> {
        Ok(Self::parse_whole(text)?.finished())
    }

    /// Without runs that have not come to their end.
    #[must_use]
    pub fn finished(mut self) -> Self {
        self.runs.retain(|_, run| run.values.last().is_some_and(|last| last.metric == SATURATED));
        let there: BTreeSet<Cell> = self.runs.keys().map(RunKey::cell).collect();
        self.cells.retain(|cell, _| there.contains(cell));
        self
    }

    fn parse_whole(text: &str) -> Result<Self, (usize, &'static str)> {
        let mut results = Self::default();
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        for (at, line) in whole.lines().enumerate() {
            if let Some(comment) = line.strip_prefix('#') {
                match Cell::parse(comment) {
                    Some((cell, fingerprint)) => drop(results.cells.insert(cell, fingerprint)),
                    None => results.about.take(comment),
                }
            } else if line != HEADER && !line.is_empty() {
                results.take(line).map_err(|reason| (at + 1, reason))?;
            }
        }
        Ok(results)
    }

    fn take(&mut self, line: &str) -> Result<(), &'static str> {
        let fields: Vec<&str> = line.split(',').collect();
        let [_, point, variant, policy, replication, seed, metric, unit, value] = fields[..] else {
            return Err("a row has nine fields");
        };
        let key = RunKey {
            point: point.to_owned(),
            variant: variant.to_owned(),
            policy: policy.to_owned(),
            replication: replication.parse().map_err(|_| "the replication is no number")?,
        };
        let seed = seed.parse().map_err(|_| "the seed is no number")?;
        let value = value.parse().map_err(|_| "the value is no number")?;
        let run = self.runs.entry(key).or_insert_with(|| Run { seed, values: Vec::new() });
        // A run that was interrupted and repeated: what it had written before does not count.
        if run.values.iter().any(|known| known.metric == metric) {
            run.values.clear();
        }
        run.values.push(Value { metric: metric.to_owned(), unit: unit.to_owned(), value });
        Ok(())
    }

    /// The whole file, with the runs in the order of their keys.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = self.about.lines();
        let mut last = None;
        for (key, run) in &self.runs {
            let cell = key.cell();
            if last.as_ref() != Some(&cell) {
                text.extend(self.cells.get(&cell).map(|fingerprint| cell.line(*fingerprint)));
            }
            text += &rows(&self.about.experiment, key, run);
            last = Some(cell);
        }
        text
    }

    /// Adds what has been finished since; where both have a cell with other values, the later ones count.
    pub fn add(&mut self, later: Self) {
        let changed = |cell: &Cell| {
            let (before, now) = (self.cells.get(cell), later.cells.get(cell));
            before.is_some() && now.is_some() && before != now
        };
        let gone: Vec<RunKey> = self.runs.keys().filter(|key| changed(&key.cell())).cloned().collect();
        gone.iter().for_each(|key| drop(self.runs.remove(key)));
        self.cells.extend(later.cells);
        self.runs.extend(later.runs);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn results() -> Results {
        let cell = Cell { point: "-".into(), variant: "default".into(), policy: "static".into() };
        let key = RunKey { point: "-".into(), variant: "default".into(), policy: "static".into(), replication: 0 };
        let value = |metric: &str, value| Value { metric: metric.into(), unit: "1".into(), value };
        Results {
            about: About { experiment: "e".into(), profile: "p".into(), hash: "h".into(), ..About::default() },
            cells: BTreeMap::from([(cell, Fingerprint::new(7))]),
            runs: BTreeMap::from([(key, Run { seed: 1, values: vec![value("iops", 2.5), value(SATURATED, 0.0)] })]),
        }
    }

    #[test]
    fn other_versions_are_refused_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join(FILE);
        for (text, expected) in [
            (results().text().replace("schema=2", "schema=3"), "schema version 3, and this program reads 2"),
            (results().text().replace("# schema=2\n", ""), "no schema version"),
        ] {
            fs::write(&place, text).unwrap();
            let error = Results::read(&place).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("run the experiment again"), "{error}");
            assert!(super::text(&place).is_err());
        }
    }
}
