//! A request of a trace, and why a line is none.

use serde::Serialize;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Data goes to the host.
    Read,
    /// Data comes from the host.
    Write,
}

/// One request. Times are whole nanoseconds since the first request of the trace and never go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Request {
    /// When it came, in nanoseconds since the first.
    pub at_ns: u64,
    /// Of which volume: its number in the trace, or in the order of appearance where the trace has names.
    pub volume: u32,
    /// What it does.
    pub op: Op,
    /// Where in the volume, in bytes.
    pub offset: u64,
    /// How much, in bytes; never 0.
    pub bytes: u32,
}

/// Why a line is no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Other than so many fields.
    #[error("has {found} fields instead of {expected}")]
    Fields {
        /// As the format has it.
        expected: &'static str,
        /// How many there are.
        found: usize,
    },
    /// A field that is no number of its kind.
    #[error("`{field}` is not {what}")]
    Number {
        /// The field's name in the format.
        field: &'static str,
        /// What it should be.
        what: &'static str,
    },
    /// A field beyond what can be represented.
    #[error("`{field}` is too large")]
    TooLarge {
        /// The field's name in the format.
        field: &'static str,
    },
    /// Neither a read nor a write.
    #[error("`{field}` is neither a read nor a write ({what})")]
    Operation {
        /// The field's name in the format.
        field: &'static str,
        /// What the format knows.
        what: &'static str,
    },
    /// A request of no bytes.
    #[error("moves no bytes")]
    Empty,
    /// The request reaches beyond 2^64 bytes.
    #[error("ends beyond 2^64 bytes")]
    BeyondEnd,
    /// A line longer than any request's.
    #[error("is longer than {} bytes", crate::read::MAX_LINE)]
    TooLong,
    /// The last record of a binary trace lacks its end.
    #[error("is cut off after {found} of {expected} bytes")]
    CutOff {
        /// Bytes there are.
        found: usize,
        /// Bytes of a record.
        expected: usize,
    },
    /// CSV whose columns are not known.
    #[error("comes before a heading that names time_ns (or time_us, time_s), op, offset and bytes")]
    Heading,
    /// A heading that names a column twice, or the time in two units.
    #[error("names two columns for the same: `{one}` and `{other}`; keep one of them")]
    Twice {
        /// The first column.
        one: String,
        /// The second.
        other: String,
    },
    /// More names of volumes than are kept.
    #[error("names one volume more than the {} that are told apart", crate::read::MAX_VOLUMES)]
    TooManyVolumes,
    /// Reading failed; nothing comes after this.
    #[error("cannot be read: {0}")]
    Unreadable(String),
}

/// A line that is no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} {reason}{}", shown(.text))]
pub struct Malformed {
    /// Which line of the file, counted from 1; of a binary format: which record.
    pub line: u64,
    /// What is wrong.
    pub reason: Reason,
    /// The beginning of the line, as far as it is text.
    pub text: String,
}

fn shown(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": `{text}`") }
}

impl Malformed {
    /// Whether nothing can come after it.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        matches!(self.reason, Reason::Unreadable(_))
    }
}
