//! The inputs of a comparison, and the result for one claim.

use std::collections::{BTreeMap, BTreeSet};

use pilotlight_stats::Estimate;
use serde::Serialize;

use super::claim::{Claim, Kind, Printed, Relation};
use super::map::Map;
use super::order::Finding;
use super::results::{DEFAULT, Store};
use super::saturated::SaturatedRuns;
use super::shift::Shifts;
use super::verdict::{self, Verdict};

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
    /// Our value with its 95 % interval, over the family if there is one.
    pub ours: Option<Estimate>,
    /// Our value if it is not from results.
    pub given: Option<Printed>,
    /// Error of our value in percent of `|paper - null|`.
    pub error_percent: Option<f64>,
    /// Findings of each statement of an order.
    pub findings: Vec<Finding>,
    /// Saturated runs among its data: their latency counts as unbounded, their power as measured.
    pub saturated: Vec<SaturatedRuns>,
    /// The verdict.
    pub verdict: Verdict,
    /// The verdict before it was overridden (`contradicts`, `calibrated`, `surrogate`).
    pub otherwise: Option<Verdict>,
    /// Whether meeting it is evidence; false if the trivial policy meets the bound too.
    pub evidence: bool,
    /// Policies or settings that fail the statement in place of its subject, for equivalences and bounds.
    pub discriminators: Vec<String>,
    /// The row of the other end of the same printed range; both have one verdict.
    pub with: Option<String>,
    /// Number of family members in the interval; 0 without a family.
    pub family: usize,
    /// Number of draws of the assumed constants in the interval.
    pub draws: usize,
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

/// A row evaluated with another policy.
#[derive(Clone, Debug, Serialize)]
pub struct Alternative {
    /// The number, if it is one.
    pub ours: Option<Estimate>,
    /// Result of its statements.
    pub note: String,
    /// Its verdict.
    pub verdict: Verdict,
}

impl Assessment {
    /// Stores the discriminators; without any the statement is vacuous.
    pub(super) fn set_discriminators(&mut self, found: Result<Vec<String>, String>) {
        match found {
            Ok(discriminators) => self.discriminators = discriminators,
            Err(clause) => {
                self.verdict = Verdict::Vacuous;
                self.note += &format!("; {clause}");
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

    /// The variants of a scope, the default (where there is one) first.
    pub(super) fn variants<'b>(&'b self, experiment: &str, scope: Scope<'b>) -> Vec<&'b str> {
        let Scope::Variant(variant) = scope else {
            return [DEFAULT].into_iter().chain(self.store.variants("family:", Some(experiment))).collect();
        };
        vec![variant]
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
            verdict: Verdict::NotMapped,
            otherwise: None,
            evidence: !claim.relation.is_some_and(trivial),
            discriminators: Vec::new(),
            with: None,
            family: 0,
            draws: 0,
            note: String::new(),
            reading: None,
            cause: None,
            fitted: Vec::new(),
            alternative: None,
            contradiction: None,
        }
    }
}
