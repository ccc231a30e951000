//! The one file that holds an experiment's results: a long CSV, a row for each number of each run.
//!
//! Comment lines name the machine and what was asked; a file of another machine or another question is never added to. A run's
//! rows end with the metric `saturated`; a run without that row was interrupted, and is not there.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::metrics::SATURATED;

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
    /// The machine's hash.
    pub hash: String,
    /// What is asked, as a hash.
    pub question: String,
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
}

impl ResultsError {
    fn file(path: &Path, error: std::io::Error) -> Self {
        Self::File { path: path.display().to_string(), error }
    }
}

impl About {
    fn lines(&self) -> String {
        let Self { experiment, profile, hash, question } = self;
        format!("# profile={profile} hash={hash}\n# experiment={experiment} question={question}\n{HEADER}\n")
    }

    fn take(&mut self, comment: &str) {
        for (key, value) in comment.split_whitespace().filter_map(|word| word.split_once('=')) {
            let place = match key {
                "profile" => &mut self.profile,
                "hash" => &mut self.hash,
                "experiment" => &mut self.experiment,
                "question" => &mut self.question,
                _ => continue,
            };
            value.clone_into(place);
        }
    }
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
    /// Reads a file. A last line without its end, and a last run without its end, count as not there.
    ///
    /// # Errors
    /// If the file cannot be read, or a line is no row.
    pub fn read(path: &Path) -> Result<Self, ResultsError> {
        let text = fs::read_to_string(path).map_err(|error| ResultsError::file(path, error))?;
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

    /// The whole file, with the runs in this order.
    #[must_use]
    pub fn text(&self, order: &[RunKey]) -> String {
        let mut text = self.about.lines();
        let ordered = order.iter().filter_map(|key| Some((key, self.runs.get(key)?)));
        ordered.for_each(|(key, run)| text += &rows(&self.about.experiment, key, run));
        text
    }
}

/// An open file of results: what is there, and the place where more goes.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: fs::File,
    /// What is there.
    pub results: Results,
}

impl Journal {
    /// Opens the file, or begins it. One of another machine or question is set aside as `NAME.HASH-QUESTION.csv`.
    ///
    /// # Errors
    /// If it cannot be read, written or set aside.
    pub fn open(path: &Path, about: &About) -> Result<Self, ResultsError> {
        let before = if path.exists() { Results::read(path)? } else { Results::default() };
        let results = if before.about == *about {
            before
        } else {
            set_aside(path, &before.about)?;
            Results { about: about.clone(), runs: BTreeMap::new() }
        };
        // Rows of interrupted runs go; whoever reads the file meanwhile sees the old or the new one.
        let keys: Vec<RunKey> = results.runs.keys().cloned().collect();
        replace(path, &results.text(&keys))?;
        let file = OpenOptions::new().append(true).open(path).map_err(|error| ResultsError::file(path, error))?;
        Ok(Self { path: path.to_owned(), file, results })
    }

    /// Adds a finished run, in one write.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, key: RunKey, run: Run) -> Result<(), ResultsError> {
        let text = rows(&self.results.about.experiment, &key, &run);
        self.file.write_all(text.as_bytes()).map_err(|error| ResultsError::file(&self.path, error))?;
        self.results.runs.insert(key, run);
        Ok(())
    }

    /// Writes the file anew, runs in this order and those that the order does not name behind them.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(self, order: &[RunKey]) -> Result<Results, ResultsError> {
        let others = self.results.runs.keys().filter(|key| !order.contains(key)).cloned();
        let order: Vec<RunKey> = order.iter().cloned().chain(others).collect();
        replace(&self.path, &self.results.text(&order))?;
        Ok(self.results)
    }
}

fn set_aside(path: &Path, about: &About) -> Result<(), ResultsError> {
    if !path.exists() {
        return Ok(());
    }
    let kept = path.with_extension(format!("{}-{}.csv", about.hash, about.question));
    fs::rename(path, &kept).map_err(|error| ResultsError::file(path, error))
}

fn replace(path: &Path, text: &str) -> Result<(), ResultsError> {
    let beside = path.with_extension("csv.new");
    let write = || fs::write(&beside, text).and_then(|()| fs::rename(&beside, path));
    write().map_err(|error| ResultsError::file(path, error))
}
