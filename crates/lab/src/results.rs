//! An experiment's results: a long CSV, a row for each number of each run, plain or packed with zstd (`NAME.csv.zst`).
//!
//! Comment lines name the machine, what was asked, and how to ask it again. A run's rows end with the metric `saturated`; a run
//! without that row was interrupted, and is not there. [`crate::journal`] writes such files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::metrics::SATURATED;

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
    /// The profile's name.
    pub profile: String,
    /// The machine's hash: profile, calibration and drives together.
    pub hash: String,
    /// The same, apart.
    pub parts: Parts,
    /// What is asked, as a hash.
    pub question: String,
    /// The experiment's file, from the folder that holds `calibration.toml`; empty where it is not known.
    pub file: String,
    /// What was asked beside the file.
    pub asked: Asked,
}

/// Hashes of the files that make up a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// `profiles/NAME.toml`.
    pub profile: String,
    /// `calibration.toml`.
    pub calibration: String,
    /// The profiles of the drives.
    pub drives: String,
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
    /// Another process adds to these results.
    #[error("{path}: another sweep writes these results now: wait for it, end it, or give another folder with --out")]
    Busy {
        /// Which file.
        path: String,
    },
}

impl ResultsError {
    pub(crate) fn file(path: &Path, error: std::io::Error) -> Self {
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

    /// Whether runs of both may stand in one file: the same machine, asked the same.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        let identity =
            |about: &Self| [&about.experiment, &about.profile, &about.hash, &about.question].map(String::clone);
        identity(self) == identity(other)
    }

    /// The head of a file.
    pub(crate) fn lines(&self) -> String {
        let Self { experiment, profile, hash, parts, question, file, asked } = self;
        let mut lines = format!("# profile={profile} hash={hash}\n# experiment={experiment} question={question}\n");
        if !file.is_empty() {
            let Parts { profile, calibration, drives } = parts;
            let asked = serde_json::to_string(asked).unwrap_or_default();
            let _ = writeln!(lines, "# profile_hash={profile} calibration_hash={calibration} drives_hash={drives}");
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
                "profile" => &mut self.profile,
                "hash" => &mut self.hash,
                "experiment" => &mut self.experiment,
                "question" => &mut self.question,
                "profile_hash" => &mut self.parts.profile,
                "calibration_hash" => &mut self.parts.calibration,
                "drives_hash" => &mut self.parts.drives,
                _ => continue,
            };
            value.clone_into(place);
        }
    }
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
    let mut packed = path.as_os_str().to_owned();
    packed.push(PACKED);
    if !Path::new(&packed).is_file() {
        return Ok(text);
    }
    let known = unpacked(Path::new(&packed))?;
    let known: BTreeSet<&str> = known.lines().skip_while(|line| *line != HEADER).skip(1).collect();
    let news = text.lines().filter(|line| !known.contains(line));
    Ok(news.fold(String::new(), |text, line| text + line + "\n"))
}

/// Whether a file's name is that of results: `fig3.csv` or `fig3.csv.zst`. With a further dot it is a table for people, a table of
/// draws, or results of another machine that were set aside.
#[must_use]
pub fn is_results(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.strip_suffix(PACKED).unwrap_or(name);
    name.strip_suffix(".csv").is_some_and(|stem| !stem.contains('.') && stem != "constants")
}

/// The files of results in a folder, by name; none where there is no folder.
///
/// # Errors
/// If the folder cannot be read.
pub fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut files = entries.collect::<std::io::Result<Vec<PathBuf>>>()?;
    files.retain(|path| is_results(path));
    files.sort();
    Ok(files)
}

/// A text as results are packed.
///
/// # Errors
/// If it cannot be packed.
pub fn packed(text: &str) -> std::io::Result<Vec<u8>> {
    zstd::encode_all(text.as_bytes(), LEVEL)
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
        let text = unpacked(path)?;
        Self::parse(&text).map_err(|(line, reason)| ResultsError::Row {
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
        let mut results = Self::default();
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        for (at, line) in whole.lines().enumerate() {
            if let Some(comment) = line.strip_prefix('#') {
                results.about.take(comment);
            } else if line != HEADER && !line.is_empty() {
                results.take(line).map_err(|reason| (at + 1, reason))?;
            }
        }
        results.runs.retain(|_, run| run.values.last().is_some_and(|last| last.metric == SATURATED));
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
        self.runs.iter().for_each(|(key, run)| text += &rows(&self.about.experiment, key, run));
        text
    }
}
