//! Errors in a row of a map, and of its evaluation.

use super::formula::FormulaError;
use super::point::Point;

/// A key and what is wrong with it.
pub(super) type Problem = (&'static str, String);

/// What is wrong with a formula or a statement.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages document the variants")]
pub enum SyntaxError {
    #[error("{0:?} cannot follow what is before it")]
    Trailing(String),
    #[error("{0} was expected at {1:?}")]
    Expected(&'static str, String),
    #[error("a ) is missing")]
    Unclosed,
    #[error("a }} is missing before {0:?}")]
    UnclosedClass(String),
    #[error("{0} has no {1}")]
    UnclosedName(String, char),
    #[error("{0} is nothing that has a number")]
    Unknown(String),
    #[error("its value is {0}")]
    NotFinite(f64),
    #[error("has no <, <= or ~")]
    NoSign,
    #[error("{0} is no list of key=value")]
    Point(String),
}

/// Why a claim has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages document the variants")]
pub enum NoResult {
    #[error("{0}")]
    Unsuitable(&'static str),
    #[error("no results of {0}")]
    NotRun(String),
    #[error("{experiment} has no {metric} of {policy}{place} (variant {variant})")]
    NoValues { experiment: String, metric: String, policy: String, place: String, variant: String },
    #[error("{0} has no operating point {1}")]
    NoOperatingPoint(String, String),
    #[error("{0} points match; say over = \"max\", \"min\", \"all\" or \"geomean\", or name one")]
    NoAggregation(usize),
    #[error("{0} points of {1} match; name one")]
    Ambiguous(usize, String),
    #[error("several points match at one {0}; name one")]
    AmbiguousAlong(String),
    #[error("{metric} of {experiment} is in {ours}, not in {wanted}")]
    Unit { experiment: String, metric: String, ours: String, wanted: String },
    #[error("no replication in common")]
    Unpaired,
    #[error("no value at {at}: no replication in common, or 0 below", at = .0.description())]
    Undefined(Point),
    #[error("{0} at {at} is not above 0: it has no logarithm", at = .1.description())]
    NotPositive(String, Point),
    #[error("{0} of {at} is no number above 0", at = .1.description())]
    NoRate(String, Point),
    #[error("{0} and the next rate, {1}, are not both in the sweep")]
    OutsideSweep(f64, f64),
    #[error("there is no {0}")]
    NoFile(String),
    #[error("{0} is no TOML: {message}", message = .1.message())]
    Toml(String, toml::de::Error),
    #[error("{0} has no {1}")]
    NotInFile(String, String),
    #[error("{0} is no number")]
    NotNumeric(String),
    #[error(transparent)]
    Formula(#[from] FormulaError),
}

/// A statement is vacuous: no policy or setting fails the clause.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing in the same results fails {clause}")]
pub struct Vacuous {
    /// The metric and pairs of an order; `it` for a bound.
    pub clause: String,
}
