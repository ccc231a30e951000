//! The values of all runs of an experiment, measured or simulated: `NAME/values.csv.zst`.
//!
//! *File.* CSV in long format with a row for each value, compressed by zstd; a running sweep appends to a plain `values.csv` beside it. Comment
//! lines have the version of the format ([`SCHEMA`]), the machine, the experiment with its overrides, and before the rows of each cell its
//! fingerprint. In a compressed file they follow the rows in a frame that decompressors skip (RFC 8878, 3.1.2), so that CSV readers find only
//! header and rows; files of earlier versions have them between the rows. The rows of a simulated run end with the metric `saturated`; a run
//! without that row was interrupted and is ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::stored::fingerprint::Fingerprint;
use crate::stored::metric::SATURATED;
pub use crate::stored::place::{
    FILE, files, files_below, is_results, packed_path, read, read_whole, remove_all, write,
};

/// Version of the format and of the names of metrics. Other versions are refused.
pub const SCHEMA: u32 = 2;

/// [`SCHEMA`] as a field of a file; other versions are refused.
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
        if found == SCHEMA { Ok(Self(found)) } else { Err(schema_message(Some(found))) }
    }
}

impl From<Schema> for u32 {
    fn from(Schema(schema): Schema) -> Self {
        schema
    }
}

/// Compression level. Results are compressed once and kept, so size matters more than time.
const LEVEL: i32 = 19;

/// The header line.
pub const HEADER: &str = "experiment,point,variant,policy,replication,seed,metric,unit,value";

/// Fingerprints of cells.
pub type Fingerprints = BTreeMap<Cell, Fingerprint>;

/// Identifies a run.
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

impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { point, variant, policy, replication } = self;
        write!(f, "point {point}, {policy}, {variant}, replication {replication}")
    }
}

impl RunKey {
    /// Its cell.
    #[must_use]
    pub fn cell(&self) -> Cell {
        Cell { point: self.point.clone(), variant: self.variant.clone(), policy: self.policy.clone() }
    }
}

/// A point, variant and policy; its runs are replications.
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
    /// The comment line with its fingerprint.
    #[must_use]
    pub fn line(&self, fingerprint: Fingerprint) -> String {
        let Self { point, variant, policy } = self;
        format!("# {CELL}{fingerprint} {point},{variant},{policy}\n")
    }

    /// Parses the comment line of a cell.
    fn parse(comment: &str) -> Option<(Self, Fingerprint)> {
        let (fingerprint, names) = comment.trim().strip_prefix(CELL)?.split_once(' ')?;
        let mut names = names.splitn(3, ',').map(str::to_owned);
        let cell = Self { point: names.next()?, variant: names.next()?, policy: names.next()? };
        Some((cell, fingerprint.parse().ok()?))
    }
}

/// Prefix of the comment line of a cell.
const CELL: &str = "cell=";

/// A value of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// The metric.
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
    /// Its values, `saturated` last.
    pub values: Vec<Value>,
}

impl Run {
    /// The value of a metric.
    #[must_use]
    pub fn get(&self, metric: &str) -> Option<f64> {
        self.values.iter().find(|value| value.metric == metric).map(|value| value.value)
    }

    /// Whether the plant was saturated.
    #[must_use]
    pub fn saturated(&self) -> bool {
        self.get(SATURATED) == Some(1.0)
    }
}

/// The content of the comment lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The experiment's name.
    pub experiment: String,
    /// The host of measurements; empty if simulated.
    pub host: String,
    /// The profile of a simulation; empty if measured.
    pub profile: String,
    /// The fingerprint of the machine and its drives, for display; each cell has its own.
    pub hash: String,
    /// The experiment's file relative to the project folder; empty if unknown.
    pub file: String,
    /// Overrides on the command line.
    pub overrides: Overrides,
}

/// Overrides of an experiment's file on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overrides {
    /// Keys and values of `--set`.
    pub set: Vec<(String, String)>,
    /// Whether `--smoke` was set.
    pub smoke: bool,
}

/// The values of all runs of an experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// Their provenance.
    pub about: Provenance,
    /// Fingerprints of cells with runs.
    pub cells: Fingerprints,
    /// The finished runs.
    pub runs: BTreeMap<RunKey, Run>,
}

/// Results cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: String,
        /// The error.
        error: std::io::Error,
    },
    /// A line is invalid.
    #[error("{path}: line {line}: {reason}: remove the line, or the file")]
    Row {
        /// The file.
        path: String,
        /// The line number.
        line: usize,
        /// The reason.
        reason: &'static str,
    },
    /// The file has another version.
    #[error("{path}: {}", schema_message(*.found))]
    Schema {
        /// The file.
        path: String,
        /// Its version.
        found: Option<u32>,
    },
    /// The results are locked by another process.
    #[error(
        "{path}: another sweep writes these results; wait for its end, stop it, or specify another folder with --out"
    )]
    Busy {
        /// The file.
        path: String,
    },
}

impl ResultsError {
    /// An error of a file.
    #[must_use]
    pub fn file(path: &Path, error: std::io::Error) -> Self {
        Self::File { path: path.display().to_string(), error }
    }
}

impl Provenance {
    /// Parses the comment lines of a text.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut about = Self::default();
        text.lines().map_while(|line| line.strip_prefix('#')).for_each(|comment| about.parse_comment(comment));
        about
    }

    /// Whether they were measured on a real machine, so that they cannot be recomputed.
    #[must_use]
    pub const fn is_measured(&self) -> bool {
        !self.host.is_empty()
    }

    /// The head of a file.
    #[must_use]
    pub fn lines(&self) -> String {
        let Self { experiment, host, profile, hash, file, overrides } = self;
        let machine = if self.is_measured() { format!("host={host}") } else { format!("profile={profile}") };
        let mut lines = format!("# schema={SCHEMA}\n# {machine} hash={hash}\n# experiment={experiment}\n");
        if !file.is_empty() {
            let overrides = serde_json::to_string(overrides).unwrap_or_default();
            let _ = write!(lines, "# file={file}\n# asked={overrides}\n");
        }
        lines + HEADER + "\n"
    }

    fn parse_comment(&mut self, comment: &str) {
        let comment = comment.trim();
        if let Some(file) = comment.strip_prefix("file=") {
            return file.clone_into(&mut self.file);
        }
        if let Some(overrides) = comment.strip_prefix("asked=") {
            self.overrides = serde_json::from_str(overrides).unwrap_or_default();
            return;
        }
        for (key, value) in comment.split_whitespace().filter_map(|word| word.split_once('=')) {
            let field = match key {
                "host" => &mut self.host,
                "profile" => &mut self.profile,
                "hash" => &mut self.hash,
                "experiment" => &mut self.experiment,
                _ => continue,
            };
            value.clone_into(field);
        }
    }
}

/// The cells in the comment lines of a text, with their fingerprints.
#[must_use]
pub fn cells(text: &str) -> Fingerprints {
    text.lines().filter_map(|line| Cell::parse(line.strip_prefix('#')?)).collect()
}

/// Suffix of a compressed file.
pub const PACKED: &str = ".zst";

/// The text of a results file, compressed or plain. A plain file extends a compressed one in the same folder; rows in both (after a killed
/// sweep) are left out.
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
    let new = text.lines().filter(|line| !known.contains(line));
    Ok(new.fold(String::new(), |text, line| text + line + "\n"))
}

/// Start of a frame that decompressors skip; its length follows, as `u32` in little-endian order.
const SKIPPED: [u8; 4] = 0x184D_2A50_u32.to_le_bytes();

/// Compresses a text: header and rows, then the comment lines in a skipped frame, compressed too.
///
/// # Errors
/// If compression fails.
pub fn packed(text: &str) -> io::Result<Vec<u8>> {
    let (comments, rows): (Vec<&str>, Vec<&str>) = text.split_inclusive('\n').partition(|line| line.starts_with('#'));
    let mut bytes = zstd::encode_all(rows.concat().as_bytes(), LEVEL)?;
    let comments = zstd::encode_all(comments.concat().as_bytes(), LEVEL)?;
    bytes.extend(SKIPPED);
    bytes.extend(u32::try_from(comments.len()).map_err(io::Error::other)?.to_le_bytes());
    bytes.extend(comments);
    Ok(bytes)
}

/// The text of a compressed file, its comment lines first.
fn decompressed(bytes: &[u8]) -> io::Result<String> {
    let mut decoder = zstd::Decoder::with_buffer(bytes)?.single_frame();
    let mut rows = String::new();
    decoder.read_to_string(&mut rows)?;
    let skipped = decoder.finish().strip_prefix(&SKIPPED).and_then(|rest| rest.get(size_of::<u32>()..));
    let comments = skipped.map_or(Ok(Vec::new()), zstd::decode_all)?;
    let comments = String::from_utf8(comments).map_err(io::Error::other)?;
    Ok(comments + &rows)
}

/// The version of a text.
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

fn schema_message(found: Option<u32>) -> String {
    let found = found.map_or_else(|| "no schema version".to_owned(), |found| format!("schema version {found}"));
    format!("the file has {found}, this program reads {SCHEMA}: remove it and run the experiment again")
}

fn unpacked(path: &Path) -> Result<String, ResultsError> {
    let failed = |error| ResultsError::file(path, error);
    if !path.to_string_lossy().ends_with(PACKED) {
        return fs::read_to_string(path).map_err(failed);
    }
    fs::read(path).and_then(|bytes| decompressed(&bytes)).map_err(failed)
}

/// Rounds to nine significant digits, beyond the noise; this halves the size of files.
#[must_use]
pub fn nine_digits(value: f64) -> f64 {
    format!("{value:.8e}").parse().unwrap_or(value)
}

/// The rows of a run, without a CSV writer: names have no commas, and readers split at them.
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
    /// Reads a file, compressed or plain. Incomplete lines and runs at its end are ignored.
    ///
    /// # Errors
    /// If the file cannot be read, or a line is invalid.
    pub fn read(path: &Path) -> Result<Self, ResultsError> {
        Ok(Self::read_whole(path)?.finished())
    }

    /// Reads a file including runs without an end: those of machines with one drive are written at once.
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

    /// Parses the output of [`Results::text`].
    ///
    /// # Errors
    /// The number of an invalid line, and the reason.
    pub fn parse(text: &str) -> Result<Self, (usize, &'static str)> {
        Ok(Self::parse_whole(text)?.finished())
    }

    /// Removes unfinished runs.
    #[must_use]
    pub fn finished(mut self) -> Self {
        self.runs.retain(|_, run| run.values.last().is_some_and(|last| last.metric == SATURATED));
        let known: BTreeSet<Cell> = self.runs.keys().map(RunKey::cell).collect();
        self.cells.retain(|cell, _| known.contains(cell));
        self
    }

    fn parse_whole(text: &str) -> Result<Self, (usize, &'static str)> {
        let mut results = Self::default();
        let complete = text.rfind('\n').map_or("", |end| &text[..=end]);
        for (at, line) in complete.lines().enumerate() {
            if let Some(comment) = line.strip_prefix('#') {
                match Cell::parse(comment) {
                    Some((cell, fingerprint)) => drop(results.cells.insert(cell, fingerprint)),
                    None => results.about.parse_comment(comment),
                }
            } else if line != HEADER && !line.is_empty() {
                results.parse_row(line).map_err(|reason| (at + 1, reason))?;
            }
        }
        Ok(results)
    }

    /// Rows are split at commas without a CSV reader: they have no quotes, and comment lines between them must be read in order.
    fn parse_row(&mut self, line: &str) -> Result<(), &'static str> {
        let fields: Vec<&str> = line.split(',').collect();
        let [_, point, variant, policy, replication, seed, metric, unit, value] = fields[..] else {
            return Err("a row has nine fields");
        };
        let key = RunKey {
            point: point.to_owned(),
            variant: variant.to_owned(),
            policy: policy.to_owned(),
            replication: replication.parse().map_err(|_| "the replication is not a number")?,
        };
        let seed = seed.parse().map_err(|_| "the seed is not a number")?;
        let value = value.parse().map_err(|_| "the value is not a number")?;
        let run = self.runs.entry(key).or_insert_with(|| Run { seed, values: Vec::new() });
        // An interrupted run was repeated: its earlier rows are dropped.
        if run.values.iter().any(|known| known.metric == metric) {
            run.values.clear();
        }
        run.values.push(Value { metric: metric.to_owned(), unit: unit.to_owned(), value });
        Ok(())
    }

    /// The text of the file, with runs sorted by key.
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

    /// Adds later results; of cells with different fingerprints the later runs count.
    pub fn add(&mut self, later: Self) {
        let changed = |cell: &Cell| {
            let (before, now) = (self.cells.get(cell), later.cells.get(cell));
            before.is_some() && now.is_some() && before != now
        };
        let replaced: Vec<RunKey> = self.runs.keys().filter(|key| changed(&key.cell())).cloned().collect();
        replaced.iter().for_each(|key| drop(self.runs.remove(key)));
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
            about: Provenance { experiment: "e".into(), profile: "p".into(), hash: "h".into(), ..Default::default() },
            cells: BTreeMap::from([(cell, Fingerprint::new(7))]),
            runs: BTreeMap::from([(key, Run { seed: 1, values: vec![value("iops", 2.5), value(SATURATED, 0.0)] })]),
        }
    }

    #[test]
    fn a_compressed_file_is_csv_without_comments_and_earlier_ones_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE.to_owned() + PACKED);
        let text = results().text();
        let packed = packed(&text).unwrap();
        let csv = String::from_utf8(zstd::decode_all(&packed[..]).unwrap()).unwrap();
        assert!(csv.starts_with(HEADER) && !csv.contains('#') && csv.lines().count() == 3, "{csv}");
        for bytes in [packed, zstd::encode_all(text.as_bytes(), LEVEL).unwrap()] {
            fs::write(&path, bytes).unwrap();
            assert_eq!(Results::read(&path).unwrap(), results());
            let text = super::text(&path).unwrap();
            assert_eq!((Provenance::parse(&text), cells(&text)), (results().about, results().cells));
        }
    }

    #[test]
    fn other_versions_are_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        for (text, expected) in [
            (results().text().replace("schema=2", "schema=3"), "schema version 3, this program reads 2"),
            (results().text().replace("# schema=2\n", ""), "no schema version"),
        ] {
            fs::write(&path, text).unwrap();
            let error = Results::read(&path).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("run the experiment again"), "{error}");
            assert!(super::text(&path).is_err());
        }
    }
}
