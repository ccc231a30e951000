//! The map from claims to outputs. README.md of this crate describes the format.
//!
//! A row selects values; its only arithmetic is the claim's difference or ratio. A malformed row is refused with its id and key.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::alike::{self, Margins};
use super::alternative;
use super::contradicts::{self, Contradiction};
use super::crossover::Crossover;
use super::error::Problem;
use super::order::{Order, Statement, Term};
use super::point::Pattern;
use super::quantity::{Aggregation, Compare, Quantity, Selection};

/// The maps of this project: SANDMAN; the papers on a host with one drive; PASS; PACER.
pub const PROJECT: [&str; 4] = [
    "papers/claims-map.toml",
    "papers/claims-map-machines.toml",
    "papers/claims-map-pass.toml",
    "papers/claims-map-pacer.toml",
];

/// All map rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Map {
    /// By the claim's id.
    pub rows: BTreeMap<String, Row>,
    /// Why claims are not modelled, by id.
    pub not_modelled: BTreeMap<String, String>,
    /// Contradictions to other figures of the paper, by the claim's id.
    pub contradicts: BTreeMap<String, Contradiction>,
    /// Workload parameters that the paper does not specify: their values form a family. Maps the parameter to its default value.
    pub families: BTreeMap<String, String>,
    /// Margins within which two values are alike, by paper.
    pub alike: BTreeMap<String, Margins>,
    /// Rows with alternative policies, by the claim's id.
    pub alternatives: BTreeMap<String, Row>,
}

/// The check of a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The check.
    pub check: Check,
    /// Values of a family at which the printed statement is possible at all; `None`: every one.
    pub possible: Option<Vec<String>>,
    /// Interpretation of the paper, if ambiguous.
    pub reading: Option<String>,
    /// Known cause of a deviation.
    pub cause: Option<String>,
}

/// Kind of check.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    /// A number from results.
    Quantity(Quantity),
    /// Statements about results.
    Order(Order),
    /// The rate at which one policy rises above another.
    Crossover(Crossover),
    /// A value in a file of the project.
    Value {
        /// The file, relative to the repository.
        file: String,
        /// The keys; several values are added.
        keys: Vec<String>,
        /// From the file's unit to the claim's.
        factor: f64,
        /// The expected value, for a claim in words.
        expect: Option<toml::Value>,
    },
    /// Arithmetic on claims and defaults of parameters.
    Formula(String),
    /// A rule in words, verified by a test.
    Test {
        /// The file, relative to the repository.
        file: String,
        /// The name of the function.
        name: String,
    },
}

/// An invalid map.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MapError {
    /// A syntax error or an unknown table.
    #[error("{0}: {1}")]
    Syntax(String, Box<toml::de::Error>),
    /// Invalid margins.
    #[error("{file}: [[alike]] of {paper}, {metric}: {problem}")]
    #[expect(missing_docs, reason = "the keys of [[alike]]")]
    Alike { file: String, paper: String, metric: String, problem: &'static str },
    /// A malformed row.
    #[error("{file}: row {id}: {key}: {problem}")]
    Row {
        /// The file.
        file: String,
        /// The row's id, or its number where it has none.
        id: String,
        /// The key.
        key: String,
        /// The problem.
        problem: String,
    },
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawFile {
    row: Vec<toml::Table>,
    not_modelled: Vec<toml::Table>,
    contradicts: Vec<toml::Table>,
    family: Vec<toml::Table>,
    alike: Vec<alike::Raw>,
    alternatives: BTreeMap<String, String>,
}

/// Reads maps, given as `(name, text)`.
///
/// # Errors
/// If one is malformed, or a claim is mapped twice.
pub fn parse(files: &[(String, String)]) -> Result<Map, MapError> {
    let mut map = Map::default();
    for (file, text) in files {
        let raw: RawFile = toml::from_str(text).map_err(|error| MapError::Syntax(file.clone(), Box::new(error)))?;
        let alternatives = raw.row.iter().filter_map(|row| alternative::row(row, &raw.alternatives)).collect();
        read_tables(file, alternatives, &mut map.alternatives, row)?;
        read_tables(file, raw.row, &mut map.rows, row)?;
        read_tables(file, raw.not_modelled, &mut map.not_modelled, reason)?;
        read_tables(file, raw.contradicts, &mut map.contradicts, contradicts::read)?;
        read_tables(file, raw.family, &mut map.families, |raw: RawFamily| Ok(raw.default))?;
        alike::add(file, raw.alike, &mut map.alike)?;
        if let Some(id) = map.rows.keys().find(|id| map.not_modelled.contains_key(*id)) {
            return Err(row_error(file, id, ("id", "is mapped and on the list of what is not modelled".to_owned())));
        }
    }
    Ok(map)
}

fn row_error(file: &str, id: &str, (key, problem): Problem) -> MapError {
    MapError::Row { file: file.to_owned(), id: id.to_owned(), key: key.to_owned(), problem }
}

/// Reads tables of one kind, each under its id.
fn read_tables<T: for<'de> Deserialize<'de>, R>(
    file: &str,
    tables: Vec<toml::Table>,
    rows: &mut BTreeMap<String, R>,
    read: impl Fn(T) -> Result<R, Problem>,
) -> Result<(), MapError> {
    for (number, table) in tables.into_iter().enumerate() {
        let (id, row) = read_with_id(file, number, table, &read)?;
        if rows.contains_key(&id) {
            return Err(row_error(file, &id, ("id", "is a duplicate".to_owned())));
        }
        rows.insert(id, row);
    }
    Ok(())
}

/// Reads the id first, so that every error contains it.
fn read_with_id<T: for<'de> Deserialize<'de>, R>(
    file: &str,
    number: usize,
    mut table: toml::Table,
    read: impl Fn(T) -> Result<R, Problem>,
) -> Result<(String, R), MapError> {
    let Some(toml::Value::String(id)) = table.remove("id") else {
        return Err(row_error(file, &format!("number {}", number + 1), ("id", "is missing or no text".to_owned())));
    };
    let row = match toml::Value::Table(table).try_into::<T>() {
        Ok(raw) => read(raw),
        Err(error) => Err(("a key", error.to_string().trim().replace('\n', " "))),
    };
    row.map(|row| (id.clone(), row)).map_err(|problem| row_error(file, &id, problem))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawReason {
    reason: String,
}

/// A parameter whose values form a family.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFamily {
    default: String,
}

fn reason(raw: RawReason) -> Result<String, Problem> {
    let words = raw.reason.split_whitespace().count();
    if words < 3 { Err(("reason", "say why in a sentence".to_owned())) } else { Ok(raw.reason) }
}

/// The keys of a row.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRow {
    experiment: Option<String>,
    metric: Option<String>,
    policy: Option<String>,
    point: Option<String>,
    versus: Option<RawTerm>,
    compare: Option<Compare>,
    over: Option<Aggregation>,
    also: Option<Vec<RawSelection>>,
    unit: Option<String>,
    factor: Option<f64>,
    crossover: Option<[String; 2]>,
    along: Option<String>,
    step: Option<f64>,
    holds: Option<Vec<String>>,
    terms: Option<BTreeMap<String, RawTerm>>,
    margin: Option<f64>,
    margin_of: Option<String>,
    file: Option<String>,
    key: Option<Keys>,
    expect: Option<toml::Value>,
    formula: Option<String>,
    test: Option<String>,
    possible: Option<Vec<String>>,
    reading: Option<String>,
    cause: Option<String>,
}

/// One key of a file, or several whose values are added.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a key, or a list of keys")]
enum Keys {
    One(String),
    Several(Vec<String>),
}

/// A term: a policy, a formula or a table.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a text, or a table with experiment, metric, policy, point, versus, compare")]
enum RawTerm {
    Text(String),
    Table(Box<RawSelection>),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSelection {
    experiment: Option<String>,
    metric: Option<String>,
    policy: Option<String>,
    point: Option<String>,
    versus: Option<Box<RawTerm>>,
    compare: Option<Compare>,
}

/// Kinds of rows: the key that identifies the kind, and its other keys.
const SHAPES: [(&str, &[&str]); 6] = [
    ("holds", &["experiment", "metric", "point", "terms", "margin", "margin_of"]),
    ("crossover", &["experiment", "metric", "point", "along", "step", "factor"]),
    ("formula", &[]),
    ("test", &[]),
    ("file", &["key", "factor", "expect"]),
    ("experiment", &["metric", "policy", "point", "versus", "compare", "over", "also", "unit", "factor"]),
];

fn row(mut raw: RawRow) -> Result<Row, Problem> {
    let (possible, reading, cause) = (raw.possible.take(), raw.reading.take(), raw.cause.take());
    if possible.as_ref().is_some_and(Vec::is_empty) || (possible.is_some() && reading.is_none()) {
        return Err(("possible", "names operating points, and `reading` says by which words of the paper".to_owned()));
    }
    let set = raw.keys();
    let Some((shape, others)) = SHAPES.iter().find(|(shape, _)| set.contains(shape)) else {
        let shapes = SHAPES.map(|(shape, _)| shape).join(", ");
        return Err(("a key", format!("none of {shapes} is there; one is required")));
    };
    if let Some(key) = set.iter().find(|key| *key != shape && !others.contains(key)) {
        return Err((key, format!("does not go with {shape}")));
    }
    let check = match *shape {
        "holds" => Check::Order(order(raw)?),
        "crossover" => Check::Crossover(crossover(raw)?),
        "formula" => Check::Formula(raw.formula.unwrap_or_default()),
        "test" => test(raw.test.as_deref().unwrap_or_default())?,
        "file" => value(raw)?,
        _ => Check::Quantity(quantity(raw)?),
    };
    Ok(Row { check, possible, reading, cause })
}

impl RawRow {
    /// The keys that are set.
    fn keys(&self) -> Vec<&'static str> {
        let all = [
            ("experiment", self.experiment.is_some()),
            ("metric", self.metric.is_some()),
            ("policy", self.policy.is_some()),
            ("point", self.point.is_some()),
            ("versus", self.versus.is_some()),
            ("compare", self.compare.is_some()),
            ("over", self.over.is_some()),
            ("also", self.also.is_some()),
            ("unit", self.unit.is_some()),
            ("factor", self.factor.is_some()),
            ("crossover", self.crossover.is_some()),
            ("along", self.along.is_some()),
            ("step", self.step.is_some()),
            ("holds", self.holds.is_some()),
            ("terms", self.terms.is_some()),
            ("margin", self.margin.is_some()),
            ("margin_of", self.margin_of.is_some()),
            ("file", self.file.is_some()),
            ("key", self.key.is_some()),
            ("expect", self.expect.is_some()),
            ("formula", self.formula.is_some()),
            ("test", self.test.is_some()),
        ];
        all.into_iter().filter(|(_, set)| *set).map(|(key, _)| key).collect()
    }
}

fn missing(key: &'static str) -> impl Fn() -> Problem {
    move || (key, "is missing".to_owned())
}

fn pattern(text: Option<&str>) -> Result<Option<Pattern>, Problem> {
    let parsed = |text| Pattern::parse(text).ok_or_else(|| ("point", format!("{text:?} is no list of key=value")));
    text.map(parsed).transpose()
}

fn test(text: &str) -> Result<Check, Problem> {
    let (file, name) = text.split_once("::").ok_or(("test", format!("{text:?} is not written FILE::NAME")))?;
    Ok(Check::Test { file: file.to_owned(), name: name.to_owned() })
}

fn value(raw: RawRow) -> Result<Check, Problem> {
    let keys = match raw.key.ok_or_else(missing("key"))? {
        Keys::One(key) => vec![key],
        Keys::Several(keys) => keys,
    };
    if keys.is_empty() || (raw.expect.is_some() && keys.len() > 1) {
        return Err(("key", "must be one key, or several keys whose values are added".to_owned()));
    }
    Ok(Check::Value {
        file: raw.file.ok_or_else(missing("file"))?,
        keys,
        factor: raw.factor.unwrap_or(1.0),
        expect: raw.expect,
    })
}

fn crossover(raw: RawRow) -> Result<Crossover, Problem> {
    let experiment = raw.experiment.ok_or_else(missing("experiment"))?;
    let metric = raw.metric.ok_or_else(missing("metric"))?;
    let along = raw.along.ok_or_else(missing("along"))?;
    let point = pattern(raw.point.as_deref())?.unwrap_or_default();
    let from = Selection { experiment, metric, policy: String::new(), point, fixed: false, own_metric: true };
    let of = raw.crossover.ok_or_else(missing("crossover"))?.map(|policy| Selection { policy, ..from.clone() });
    let step = raw.step.ok_or_else(missing("step"))?;
    if !(step.is_finite() && step > 1.0) {
        return Err((
            "step",
            "is the ratio of the paper's next rate to the printed one; it must be above 1".to_owned(),
        ));
    }
    Ok(Crossover { of, along, step, factor: raw.factor.unwrap_or(1.0) })
}

fn quantity(raw: RawRow) -> Result<Quantity, Problem> {
    let compare = raw.compare.ok_or_else(missing("compare"))?;
    let experiment = raw.experiment.ok_or_else(missing("experiment"))?;
    let metric = raw.metric.ok_or_else(missing("metric"))?;
    let policy = raw.policy.ok_or_else(missing("policy"))?;
    let point = pattern(raw.point.as_deref())?.unwrap_or_default();
    let of = Selection { experiment, metric, policy, point, fixed: true, own_metric: true };
    let versus = raw.versus.map(|versus| versus_of(&of, versus)).transpose()?;
    if versus.is_some() != compare.needs_versus() {
        let problem = if versus.is_some() { "does not go with compare = \"value\"" } else { "is missing" };
        return Err(("versus", problem.to_owned()));
    }
    let also = raw.also.unwrap_or_default().into_iter();
    let also = also.map(|raw| Ok((of.with(&raw)?, versus.as_ref().map(|v| v.moved(&raw)).transpose()?)));
    let also = also.collect::<Result<Vec<_>, Problem>>()?;
    let (over, unit) = (raw.over, raw.unit);
    Ok(Quantity { of, versus, compare, over, also, unit, factor: raw.factor.unwrap_or(1.0) })
}

impl Selection {
    /// This selection with the keys of `raw` replaced.
    fn with(&self, raw: &RawSelection) -> Result<Self, Problem> {
        let policy = raw.policy.clone().unwrap_or_else(|| self.policy.clone());
        Ok(Self { policy, ..self.moved(raw)? })
    }

    /// This selection with all keys of `raw` but the policy replaced.
    fn moved(&self, raw: &RawSelection) -> Result<Self, Problem> {
        Ok(Self {
            experiment: raw.experiment.clone().unwrap_or_else(|| self.experiment.clone()),
            metric: raw.metric.clone().unwrap_or_else(|| self.metric.clone()),
            policy: self.policy.clone(),
            point: pattern(raw.point.as_deref())?.unwrap_or_else(|| self.point.clone()),
            fixed: raw.point.is_some(),
            own_metric: raw.metric.is_some() || self.own_metric,
        })
    }
}

/// The reference of a comparison: a policy, or a selection that differs from `of` in some keys.
fn versus_of(of: &Selection, versus: RawTerm) -> Result<Selection, Problem> {
    match versus {
        RawTerm::Text(policy) => Ok(Selection { policy, fixed: false, ..of.clone() }),
        RawTerm::Table(raw) if raw.versus.is_some() || raw.compare.is_some() => {
            Err(("versus", "cannot be compared with something itself".to_owned()))
        }
        RawTerm::Table(raw) => of.with(&raw),
    }
}

fn order(raw: RawRow) -> Result<Order, Problem> {
    let statements = raw.holds.unwrap_or_default();
    let statements: Vec<Statement> = statements.iter().map(|text| Statement::parse(text)).collect::<Result<_, _>>()?;
    if statements.is_empty() {
        return Err(("holds", "has no statement".to_owned()));
    }
    let from = Selection {
        experiment: raw.experiment.unwrap_or_default(),
        metric: raw.metric.unwrap_or_default(),
        policy: String::new(),
        point: pattern(raw.point.as_deref())?.unwrap_or_default(),
        fixed: false,
        own_metric: false,
    };
    let terms = raw.terms.unwrap_or_default().into_iter();
    let terms: BTreeMap<_, _> =
        terms.map(|(name, raw)| Ok((name, term(&from, raw)?))).collect::<Result<_, Problem>>()?;
    let named = |name: &String| terms.contains_key(name) || statements.iter().any(|s| s.names().contains(&name));
    if let Some(name) = raw.margin_of.as_ref().filter(|name| !named(name)) {
        return Err(("margin_of", format!("there is no term {name}")));
    }
    if let Some(margin) = raw.margin.filter(|margin| !(0.0..1.0).contains(margin)) {
        return Err(("margin", format!("{margin} is no share between 0 and 1")));
    }
    Ok(Order { from, statements, terms, margin: raw.margin, margin_of: raw.margin_of })
}

fn term(from: &Selection, raw: RawTerm) -> Result<Term, Problem> {
    let raw = match raw {
        RawTerm::Text(formula) => return Ok(Term::Formula(formula)),
        RawTerm::Table(raw) => raw,
    };
    let of = from.with(&raw)?;
    match (raw.compare, raw.versus) {
        (None, None) => Ok(Term::Values(of)),
        (Some(compare), Some(versus)) if compare.needs_versus() => {
            let versus = versus_of(&of, *versus)?;
            let versus = Selection { fixed: versus.fixed || of.fixed, ..versus };
            Ok(Term::Compared { of, versus, compare })
        }
        _ => Err(("terms", "versus and compare go together".to_owned())),
    }
}

/// The maps of this project, as `(name, text)`.
#[cfg(test)]
pub(super) fn of_project() -> Vec<(String, String)> {
    let text = |file: &str| std::fs::read_to_string(format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    PROJECT.map(|file| (file.to_owned(), text(file))).to_vec()
}

#[cfg(test)]
mod tests;
