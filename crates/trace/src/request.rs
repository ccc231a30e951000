//! Requests of a trace, and errors of malformed lines.

use serde::Serialize;

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// A read.
    Read,
    /// A write.
    Write,
}

/// One request. Times are nanoseconds since the first request of the trace and do not decrease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Request {
    /// Time in nanoseconds since the first request.
    pub at_ns: u64,
    /// Number of the volume: that of the trace, or in order of appearance if the trace has names.
    pub volume: u32,
    /// Operation.
    pub op: Op,
    /// Offset in the volume, in bytes.
    pub offset: u64,
    /// Size in bytes; never 0.
    pub bytes: u32,
}

/// Reason why a line is malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Wrong number of fields.
    #[error("has {found} fields instead of {expected}")]
    Fields {
        /// Number of fields of the format.
        expected: &'static str,
        /// Number of fields in the line.
        found: usize,
    },
    /// A field is not a number of its kind.
    #[error("`{field}` is not {expected}")]
    Number {
        /// The field's name in the format.
        field: &'static str,
        /// Required kind.
        expected: &'static str,
    },
    /// A field exceeds its range.
    #[error("`{field}` is too large")]
    TooLarge {
        /// The field's name in the format.
        field: &'static str,
    },
    /// Neither a read nor a write.
    #[error("`{field}` is neither a read nor a write ({expected})")]
    Operation {
        /// The field's name in the format.
        field: &'static str,
        /// Values of the format.
        expected: &'static str,
    },
    /// A request of 0 bytes.
    #[error("has a size of 0 bytes")]
    Empty,
    /// The request ends beyond 2^64 bytes.
    #[error("ends beyond 2^64 bytes")]
    BeyondEnd,
    /// The line exceeds [`MAX_LINE`](crate::read::MAX_LINE).
    #[error("is longer than {} bytes", crate::read::MAX_LINE)]
    TooLong,
    /// The last record of a binary trace is incomplete.
    #[error("is truncated after {found} of {expected} bytes")]
    CutOff {
        /// Bytes of the record in the file.
        found: usize,
        /// Bytes of a record.
        expected: usize,
    },
    /// CSV without a heading, or with one that lacks columns.
    #[error("lacks a column for {}", listed(missing))]
    Heading {
        /// The columns, with their usual names.
        missing: Vec<&'static str>,
    },
    /// A heading has a time without unit.
    #[error(
        "has no unit for `{column}`; name it {column}_ns, {column}_us, {column}_ms or {column}_s, or set --time-unit"
    )]
    NoUnit {
        /// The column.
        column: String,
    },
    /// An I/O log of fio without its first line.
    #[error("precedes the line `fio version 2 iolog` or `fio version 3 iolog`")]
    NoVersion,
    /// A heading has a column twice, or the time in two units.
    #[error("has two columns of the same meaning: `{one}` and `{other}`; remove one")]
    DuplicateColumn {
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

/// A malformed line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} {reason}{}", quoted(.text))]
pub struct Malformed {
    /// Number of the line, or of the record in a binary format, from 1.
    pub line: u64,
    /// Why it is malformed.
    pub reason: Reason,
    /// The beginning of the line; empty in a binary format.
    pub text: String,
}

/// `a, b and c`.
fn listed(items: &[&str]) -> String {
    match items {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        _ => items.concat(),
    }
}

fn quoted(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": `{text}`") }
}

impl Malformed {
    /// Whether the rest of the trace cannot be read.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        matches!(self.reason, Reason::Unreadable(_))
    }
}
