//! Ordering statements, such as `latency_p99_us @ rate_kiops>=640: sandman ~ static < {dynamic, governor}`.
//!
//! A chain of classes. Members of a class are in `{ }`, separated by `,` (unrelated) or `~` (pairwise equivalent); `a ~ b` without braces is
//! a class too. `<`: every member before is less than every member after; `<=`: not greater by more than the margin. An optional prefix
//! before `:` sets the metric and, after `@`, the points. A statement holds if it holds at every matching point.

use std::collections::BTreeMap;
use std::fmt;

use pilotlight_stats::Estimate;
use serde::Serialize;

use super::alike::Margins;
use super::error::{NoResult, Problem, SyntaxError};
use super::formula::{self, Name};
use super::point::{Pattern, Point};
use super::quantity::{Compare, Selection, pair};
use super::results::{Series, Store};
use super::saturated::{self, SaturatedRuns};
use super::verdict::{self, Holds};

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    pub(super) metric: Option<String>,
    pub(super) point: Option<Pattern>,
    pub(super) pairs: Vec<Pair>,
}

/// Two terms and their relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    pub(super) left: String,
    pub(super) sign: Sign,
    pub(super) right: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Less,
    NotAbove,
    Alike,
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.sign {
            Sign::Less => "<",
            Sign::NotAbove => "<=",
            Sign::Alike => "~",
        };
        write!(f, "{} {mark} {}", self.left, self.right)
    }
}

/// Statements that must all hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// The default selection of terms.
    pub from: Selection,
    /// The statements.
    pub statements: Vec<Statement>,
    /// Terms by name; other names are policies.
    pub terms: BTreeMap<String, Term>,
    /// Margin relative to the larger of two values, or to `margin_of`; `None`: the paper's ([`Margins`]).
    pub margin: Option<f64>,
    /// The term that the margin is relative to.
    pub margin_of: Option<String>,
}

/// Definition of a name in a statement that is not a policy.
#[derive(Clone, Debug, PartialEq)]
pub enum Term {
    /// Values of results.
    Values(Selection),
    /// Values compared with others, replication by replication.
    Compared {
        /// The compared values.
        of: Selection,
        /// The reference.
        versus: Selection,
        /// The comparison.
        compare: Compare,
    },
    /// Arithmetic on claims.
    Formula(String),
}

/// The result of a pair of terms at a point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The pair, for example `sandman < static`.
    pub pair: String,
    /// The metric.
    pub metric: String,
    /// The point; empty if there is only one.
    pub point: String,
    /// The variant.
    pub variant: String,
    /// Right less left.
    pub difference: Estimate,
    /// The margin, if the relation has one.
    pub margin: Option<f64>,
    /// Whether it holds.
    pub holds: Holds,
    /// Whether it fails by significantly more than the margin.
    pub is_reversed: bool,
    /// Saturated runs of either.
    pub saturated: Vec<SaturatedRuns>,
}

impl Statement {
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        let wrong = |problem: SyntaxError| ("holds", format!("{text:?}: {problem}"));
        let (prefix, chain) = text.split_once(':').unwrap_or(("", text));
        let (metric, point) = prefix.split_once('@').unwrap_or((prefix, ""));
        let point = Some(point.trim()).filter(|point| !point.is_empty());
        let pattern = |point| Pattern::parse(point).ok_or_else(|| wrong(SyntaxError::Point(point.to_owned())));
        let metric = Some(metric.trim().to_owned()).filter(|metric| !metric.is_empty());
        let pairs = Reader { rest: chain }.chain().map_err(wrong)?;
        Ok(Self { metric, point: point.map(pattern).transpose()?, pairs })
    }

    /// The distinct names.
    #[must_use]
    pub fn names(&self) -> Vec<&String> {
        let mut names: Vec<&String> = self.pairs.iter().flat_map(|pair| [&pair.left, &pair.right]).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Reads a chain.
struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn chain(&mut self) -> Result<Vec<Pair>, SyntaxError> {
        let mut pairs = Vec::new();
        let mut left = self.class(&mut pairs)?;
        while let Some(sign) = self.less() {
            let right = self.class(&mut pairs)?;
            relate(&left, sign, &right, &mut pairs);
            left = right;
        }
        match (self.rest.trim().is_empty(), pairs.is_empty()) {
            (false, _) => Err(SyntaxError::Trailing(self.rest.trim().to_owned())),
            (true, true) => Err(SyntaxError::NoSign),
            (true, false) => Ok(pairs),
        }
    }

    fn less(&mut self) -> Option<Sign> {
        if self.take("<=") {
            return Some(Sign::NotAbove);
        }
        self.take("<").then_some(Sign::Less)
    }

    /// Equivalent items; their relations are added to `pairs`.
    fn class(&mut self, pairs: &mut Vec<Pair>) -> Result<Vec<&'a str>, SyntaxError> {
        let mut members = self.item(pairs)?;
        while self.take("~") {
            let more = self.item(pairs)?;
            relate(&members, Sign::Alike, &more, pairs);
            members.extend(more);
        }
        Ok(members)
    }

    /// A name, or classes in braces.
    fn item(&mut self, pairs: &mut Vec<Pair>) -> Result<Vec<&'a str>, SyntaxError> {
        if !self.take("{") {
            return Ok(vec![self.name()?]);
        }
        let mut members = self.class(pairs)?;
        while self.take(",") {
            members.extend(self.class(pairs)?);
        }
        if self.take("}") { Ok(members) } else { Err(SyntaxError::UnclosedClass(self.rest.trim().to_owned())) }
    }

    fn name(&mut self) -> Result<&'a str, SyntaxError> {
        let text = self.rest.trim_start();
        let end = text.find(|c: char| !(c.is_alphanumeric() || "_-+.".contains(c))).unwrap_or(text.len());
        if end == 0 {
            return Err(SyntaxError::Expected("a name", text.to_owned()));
        }
        let (name, rest) = text.split_at(end);
        self.rest = rest;
        Ok(name)
    }

    fn take(&mut self, wanted: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(wanted);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}

fn relate(left: &[&str], sign: Sign, right: &[&str], pairs: &mut Vec<Pair>) {
    for left in left {
        let each = right.iter().map(|right| Pair { left: (*left).to_owned(), sign, right: (*right).to_owned() });
        pairs.extend(each);
    }
}

/// Values of a term at a point.
enum Values {
    Exact(f64),
    Replications(Series),
}

impl Values {
    fn mean(&self) -> f64 {
        match self {
            Self::Exact(value) => *value,
            Self::Replications(series) => series.values().sum::<f64>() / series.len() as f64,
        }
    }

    /// The base of a margin; 0 for an infinite value.
    fn size(&self) -> f64 {
        Some(self.mean().abs()).filter(|size| size.is_finite()).unwrap_or(0.0)
    }

    /// `self - other`, paired.
    fn minus(&self, other: &Self) -> Result<Estimate, NoResult> {
        let differences: Vec<f64> = match (self, other) {
            (Self::Exact(a), Self::Exact(b)) => return Ok(Estimate::exact(a - b)),
            (Self::Exact(a), Self::Replications(b)) => b.values().map(|b| a - b).collect(),
            (Self::Replications(a), Self::Exact(b)) => a.values().map(|a| a - b).collect(),
            (Self::Replications(a), Self::Replications(b)) => {
                let (a, b) = pair(a, b);
                a.iter().zip(b).map(|(a, b)| a - b).collect()
            }
        };
        saturated::estimate(&differences).ok_or(NoResult::Unpaired)
    }
}

/// The data for which an order is evaluated.
pub struct Evaluation<'a> {
    /// The results.
    pub store: &'a Store,
    /// The variant.
    pub variant: &'a str,
    /// Values of names in formulas.
    pub look_up: &'a dyn Fn(Name<'_>) -> Option<f64>,
    /// Margins of the paper.
    pub margins: &'a Margins,
}

impl Evaluation<'_> {
    /// Evaluates every pair of every statement at every matching point.
    ///
    /// # Errors
    /// If results are missing.
    pub fn findings(&self, order: &Order) -> Result<Vec<Finding>, NoResult> {
        let mut findings = Vec::new();
        for statement in &order.statements {
            let terms = Self::terms(order, statement);
            for point in self.points(&terms)? {
                self.add_findings(order, statement, &terms, &point, &mut findings)?;
            }
        }
        Ok(findings)
    }

    /// Terms of the names of a statement and of the margin.
    pub(super) fn terms<'a>(order: &'a Order, statement: &'a Statement) -> BTreeMap<&'a str, Term> {
        let named = |name: &'a String| {
            let known = order.terms.get(name).cloned();
            let policy = || Term::Values(Selection { policy: name.clone(), ..order.from.clone() });
            (name.as_str(), known.unwrap_or_else(policy).within(statement))
        };
        statement.names().into_iter().chain(&order.margin_of).map(named).collect()
    }

    /// The union of the points of all terms without a fixed point; an empty point if all are fixed.
    fn points(&self, terms: &BTreeMap<&str, Term>) -> Result<Vec<Point>, NoResult> {
        let mut all: Vec<Point> = Vec::new();
        for selection in terms.values().filter_map(Term::free) {
            let points = selection.points(self.store, self.variant)?.into_iter().map(|(point, _)| point);
            let new: Vec<Point> = points.filter(|point| !all.contains(point)).cloned().collect();
            all.extend(new);
        }
        if all.is_empty() {
            all.push(Point::default());
        }
        Ok(all)
    }

    fn add_findings(
        &self,
        order: &Order,
        statement: &Statement,
        terms: &BTreeMap<&str, Term>,
        point: &Point,
        findings: &mut Vec<Finding>,
    ) -> Result<(), NoResult> {
        let values = |name: &str| self.values(&terms[name], point);
        let stated = statement.metric.as_ref().unwrap_or(&order.from.metric);
        let scale = order.margin_of.as_deref().map(values).transpose()?.map(|scale| scale.size());
        for pair @ Pair { left, sign, right } in &statement.pairs {
            let (a, b) = (values(left)?, values(right)?);
            let difference = b.minus(&a)?;
            let metrics = [left, right].into_iter().filter_map(|name| terms[name.as_str()].metric());
            let metric =
                metrics.min_by(|a, b| self.margins.margin(a).total_cmp(&self.margins.margin(b))).unwrap_or(stated);
            let share = order.margin.unwrap_or_else(|| self.margins.margin(metric));
            let margin = share * scale.unwrap_or_else(|| a.size().max(b.size()));
            let (holds, is_reversed) = match sign {
                Sign::Less => (verdict::less(difference), verdict::not_above(difference, margin) == Holds::No),
                Sign::NotAbove => {
                    (verdict::not_above(difference, margin), verdict::not_above(difference, 2.0 * margin) == Holds::No)
                }
                Sign::Alike => {
                    (verdict::alike(difference, margin), verdict::alike(difference, 2.0 * margin) == Holds::No)
                }
            };
            findings.push(Finding {
                pair: pair.to_string(),
                metric: metric.to_owned(),
                point: point.to_string(),
                variant: self.variant.to_owned(),
                difference,
                margin: (*sign != Sign::Less).then_some(margin),
                holds,
                is_reversed,
                saturated: [left, right].map(|name| self.saturated_runs(&terms[name.as_str()], point)).concat(),
            });
        }
        Ok(())
    }

    /// Saturated runs of a term.
    fn saturated_runs(&self, term: &Term, point: &Point) -> Vec<SaturatedRuns> {
        let selections = match term {
            Term::Values(of) => vec![of],
            Term::Compared { of, versus, .. } => vec![of, versus],
            Term::Formula(_) => Vec::new(),
        };
        selections.into_iter().filter_map(|of| of.saturated(self.store, self.variant, point)).collect()
    }

    fn values(&self, term: &Term, point: &Point) -> Result<Values, NoResult> {
        match term {
            Term::Values(of) => Ok(Values::Replications(of.series_at(self.store, self.variant, point)?.clone())),
            Term::Compared { of, versus, compare } => {
                let of = of.series_at(self.store, self.variant, point)?;
                let versus = versus.series_at(self.store, self.variant, point)?;
                let each = of.iter().filter_map(|(i, x)| Some((*i, compare.once(*x, *versus.get(i)?))));
                Ok(Values::Replications(each.collect()))
            }
            Term::Formula(formula) => Ok(Values::Exact(formula::value(formula, self.look_up)?)),
        }
    }
}

impl Term {
    /// Applies the metric and points of a statement, unless the term has its own.
    fn within(self, statement: &Statement) -> Self {
        let inside = |mut selection: Selection| {
            if let (Some(metric), false) = (&statement.metric, selection.own_metric) {
                selection.metric.clone_from(metric);
            }
            if let (Some(point), false) = (&statement.point, selection.fixed) {
                selection.point = point.clone();
            }
            selection
        };
        match self {
            Self::Values(of) => Self::Values(inside(of)),
            Self::Compared { of, versus, compare } => {
                Self::Compared { of: inside(of), versus: inside(versus), compare }
            }
            Self::Formula(formula) => Self::Formula(formula),
        }
    }

    /// The metric; `None` for a formula.
    fn metric(&self) -> Option<&str> {
        match self {
            Self::Values(of) | Self::Compared { of, .. } => Some(&of.metric),
            Self::Formula(_) => None,
        }
    }

    /// The selection without a fixed point, if any.
    fn free(&self) -> Option<&Selection> {
        match self {
            Self::Values(of) | Self::Compared { of, .. } => Some(of).filter(|of| !of.fixed),
            Self::Formula(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
