//! The inputs of a comparison, and the result for one claim.

use std::collections::{BTreeMap, BTreeSet};

use pilotlight_stats::Estimate;
use serde::Serialize;

use super::claim::{Claim, Kind, Printed, Relation};
use super::error::{NoResult, Vacuous};
use super::map::Map;
use super::order::Finding;
use super::results::{DEFAULT, Store};
use super::saturated::SaturatedRuns;
use super::shift::{Shift, Shifts};
use super::verdict::{self, Tiers, Verdict};
use pilotlight_lab::simulated::variant::MEMBER;

/// Everything needed to assess claims.
pub struct Lab<'a> {
    /// The claims.
    pub claims: &'a [Claim],
    /// The map from claims to outputs.
    pub map: &'a Map,
    /// The outputs.
    pub store: &'a Store,
    /// Ids of rows that constants were fitted on.
    pub calibrated: &'a BTreeSet<String>,
    /// The text of a file of the project; `None` if it does not exist.
    pub file: &'a dyn Fn(&str) -> Option<String>,
    /// The default of a policy's parameter.
    pub parameter: &'a dyn Fn(&str, &str) -> Option<String>,
    /// Shifts by assumed constants, if intervals are to include them.
    pub constants: Option<&'a Shifts>,
}

/// The assessment of a claim.
#[derive(Clone, Debug, Serialize)]
pub struct Assessment {
    /// The claim's id.
    pub id: String,
    /// The paper.
    pub seed: String,
    /// The figure, table or section.
    pub figure: String,
    /// Whether it is a result of the abstract.
    pub is_headline: bool,
    /// The kind of statement.
    pub kind: Kind,
    /// The metric.
    pub metric: String,
    /// The required relation.
    pub relation: Option<Relation>,
    /// The paper's value.
    pub paper: Printed,
    /// The value of a trivial policy.
    pub null: Option<f64>,
    /// The unit of numbers.
    pub unit: String,
    /// Our value with its 95 % interval, over the operating points at which the statement is possible.
    pub ours: Option<Estimate>,
    /// Our value if it is not from results.
    pub given: Option<Printed>,
    /// Error of our value in percent of `|paper - null|`.
    pub error_percent: Option<f64>,
    /// Findings of each statement of an order, at the same points.
    pub findings: Vec<Finding>,
    /// Saturated runs among its data: their latency counts as unbounded, their power as measured.
    pub saturated: Vec<SaturatedRuns>,
    /// Which tiers hold.
    pub tiers: Tiers,
    /// The verdict.
    pub verdict: Verdict,
    /// The same over all operating points, the family and the assumed constants; `None` if there are no others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub robust: Option<Robust>,
    /// The verdict before it was overridden (`contradicts`, `calibrated`, `surrogate`).
    pub otherwise: Option<Verdict>,
    /// Whether meeting it is evidence; false if the trivial policy meets the bound too.
    pub evidence: bool,
    /// Policies or settings that fail the statement in place of its subject, for equivalences and bounds.
    pub discriminators: Vec<String>,
    /// Where the value was found, or what is missing.
    pub note: String,
    /// Interpretation of the paper.
    pub reading: Option<String>,
    /// Cause of a deviation.
    pub cause: Option<String>,
    /// Constants fitted and choices made on this row.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fitted: Vec<String>,
    /// The same row with the recommended policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alternative: Option<Box<Alternative>>,
    /// Contradiction to other figures of the paper, with the sides of the inequality.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contradiction: Option<String>,
}

/// A row over everything that the paper does not print.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Robust {
    /// Our value with an interval over all of it, if it is a number.
    pub ours: Option<Estimate>,
    /// Pairs that hold, and all pairs, if it is an order.
    pub pairs: Option<(usize, usize)>,
    /// Its verdict.
    pub verdict: Verdict,
    /// Number of other operating points and family members.
    pub family: usize,
    /// Number of draws of the assumed constants.
    pub draws: usize,
}

/// A row evaluated with another policy.
#[derive(Clone, Debug, Serialize)]
pub struct Alternative {
    /// The number, if it is one.
    pub ours: Option<Estimate>,
    /// Result of its statements.
    pub note: String,
    /// Which tiers hold.
    pub tiers: Tiers,
    /// Its verdict.
    pub verdict: Verdict,
    /// The verdict over everything that the paper does not print.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub robust: Option<Verdict>,
}

/// The variants for which a row is evaluated.
#[derive(Debug)]
pub(super) struct Variants<'a> {
    /// Those of the text: the default power model, at each operating point at which the statement is possible. The default is first.
    pub judged: Vec<&'a str>,
    /// All of them.
    pub all: Vec<&'a str>,
    /// The effect of assumed constants.
    pub shift: Option<&'a Shift>,
}

impl Variants<'_> {
    /// What is to be filled in; `None` if nothing is beside the judged variants.
    pub(super) fn robust(&self) -> Option<Robust> {
        let draws = self.shift.map_or(0, |shift| shift.draws);
        let family = self.all.len() - self.judged.len();
        (family > 0 || draws > 0).then(|| Robust { family, draws, verdict: Verdict::Undecided, ..Robust::default() })
    }
}

/// What was found over all variants. `None` if one of them has no value, as a latency of requests of which none completed there: the row is
/// undecided over all, and its note says why.
pub(super) fn over_all<T>(found: Result<T, NoResult>, into: &mut Assessment) -> Result<Option<T>, NoResult> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(missing @ NoResult::NoValues { .. }) => {
            into.note += &format!("; {missing}");
            Ok(None)
        }
        Err(other) => Err(other),
    }
}

impl Assessment {
    /// Stores the discriminators; without any the statement is vacuous.
    pub(super) fn set_discriminators(&mut self, found: Result<Vec<String>, Vacuous>) {
        match found {
            Ok(discriminators) => self.discriminators = discriminators,
            Err(vacuous) => {
                self.verdict = Verdict::Vacuous;
                self.note += &format!("; {vacuous}");
            }
        }
    }
}

/// The variants for which a claim is evaluated.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// The default variant and every member of the family.
    Family,
    /// A single variant.
    Variant(&'a str),
}

impl Lab<'_> {
    /// What the papers print, by id.
    #[must_use]
    pub fn printed(&self) -> BTreeMap<&str, f64> {
        self.claims.iter().filter_map(|claim| Some((claim.id.as_str(), claim.value.number()?))).collect()
    }

    /// The variants of a scope. `possible` are the values of a family at which the statement is possible.
    pub(super) fn variants<'b>(
        &'b self,
        (id, experiment): (&str, &str),
        possible: Option<&[String]>,
        scope: Scope<'b>,
    ) -> Result<Variants<'b>, NoResult> {
        if let Scope::Variant(variant) = scope {
            return Ok(Variants { judged: vec![variant], all: vec![variant], shift: None });
        }
        let others = self.store.variants(MEMBER, Some(experiment));
        let all: Vec<&str> = [DEFAULT].into_iter().chain(others).collect();
        let points = all.iter().copied().filter(|name| *name == DEFAULT || self.store.is_folded(name));
        let value = |name: &str| name.strip_prefix(MEMBER).map(str::to_owned);
        let of_default = |wanted: &String| self.map.families.values().any(|default| default == wanted);
        let is = |name: &str, wanted: &String| value(name).map_or_else(|| of_default(wanted), |value| value == *wanted);
        let judged: Vec<&str> = match possible {
            None => points.collect(),
            Some(possible) => {
                let points: Vec<&str> = points.collect();
                if let Some(unknown) = possible.iter().find(|wanted| !points.iter().any(|name| is(name, wanted))) {
                    return Err(NoResult::NoOperatingPoint(experiment.to_owned(), unknown.clone()));
                }
                points.into_iter().filter(|name| possible.iter().any(|wanted| is(name, wanted))).collect()
            }
        };
        // what has no experiment follows from printed values alone
        let constants = self.constants.filter(|_| !experiment.is_empty());
        Ok(Variants { judged, all, shift: constants.and_then(|shifts| shifts.get(id)) })
    }
}

impl Assessment {
    /// The assessment of a claim before evaluation.
    pub(super) fn blank(claim: &Claim) -> Self {
        let trivial =
            |relation| claim.value.number().is_some_and(|paper| verdict::trivial_meets(relation, paper, claim.null));
        Self {
            id: claim.id.clone(),
            seed: claim.seed.clone(),
            figure: claim.figure(),
            is_headline: claim.place.contains("Abstract"),
            kind: claim.kind,
            metric: claim.metric.clone(),
            relation: claim.relation,
            paper: claim.value.clone(),
            null: claim.null,
            unit: claim.unit.clone(),
            ours: None,
            given: None,
            error_percent: None,
            findings: Vec::new(),
            saturated: Vec::new(),
            tiers: Tiers::default(),
            verdict: Verdict::NotMapped,
            robust: None,
            otherwise: None,
            evidence: !claim.relation.is_some_and(trivial),
            discriminators: Vec::new(),
            note: String::new(),
            reading: None,
            cause: None,
            fitted: Vec::new(),
            alternative: None,
            contradiction: None,
        }
    }
}
