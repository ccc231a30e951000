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

/// Everything that claims are compared with.
pub struct Lab<'a> {
    /// The claims.
    pub claims: &'a [Claim],
    /// Which output answers which claim.
    pub map: &'a Map,
    /// The outputs.
    pub store: &'a Store,
    /// Ids of rows that constants were fitted on.
    pub calibrated: &'a BTreeSet<String>,
    /// The text of a file of the project; `None` if there is none.
    pub file: &'a dyn Fn(&str) -> Option<String>,
    /// The default of a policy's parameter.
    pub parameter: &'a dyn Fn(&str, &str) -> Option<String>,
    /// What assumed constants do to rows, where intervals are to include them.
    pub constants: Option<&'a Shifts>,
}

/// What is said of a claim.
#[derive(Clone, Debug, Serialize)]
pub struct Assessment {
    /// The claim's id.
    pub id: String,
    /// The paper.
    pub seed: String,
    /// The figure, table or section.
    pub figure: String,
    /// What kind of statement it is.
    pub kind: Kind,
    /// What is measured.
    pub metric: String,
    /// How ours has to relate.
    pub relation: Option<Relation>,
    /// What the paper prints.
    pub paper: Printed,
    /// What a trivial policy gives.
    pub null: Option<f64>,
    /// The unit of numbers.
    pub unit: String,
    /// Ours with its 95 % interval, over the family where there is one.
    pub ours: Option<Estimate>,
    /// Ours where it is not from results.
    pub given: Option<Printed>,
    /// Ours at the middle of the interval, against the paper: in percent of `|paper - null|`.
    pub error_percent: Option<f64>,
    /// What came of each statement of an order.
    pub findings: Vec<Finding>,
    /// Runs that could not keep up and that it depends on: their latency counts as unbounded, their watts are as measured.
    pub saturated: Vec<SaturatedRuns>,
    /// The verdict.
    pub verdict: Verdict,
    /// What the verdict would be if nothing overrode it (`contradicts`, `calibrated`, `surrogate`).
    pub otherwise: Option<Verdict>,
    /// Whether meeting it would be evidence: not where the trivial policy meets the bound too.
    pub evidence: bool,
    /// What fails it in the place of what it is about, where it holds of things that are alike or within a bound.
    pub discriminators: Vec<String>,
    /// The row of the other end of the same printed range: one statement, one verdict.
    pub with: Option<String>,
    /// Members of the model family that the interval is over; 0 if there is none.
    pub family: usize,
    /// Draws of the assumed constants that the interval includes; 0 if there are none.
    pub draws: usize,
    /// Where it was found, or what is missing.
    pub note: String,
    /// How the paper was read.
    pub reading: Option<String>,
    /// Why it does not come out.
    pub cause: Option<String>,
    /// Constants that were fitted on it, and choices that were made on it, where it is calibrated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fitted: Vec<String>,
    /// The result of the same row with the recommended policy in place of the paper's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<Box<Alternative>>,
    /// Why it cannot be true together with what the paper prints elsewhere, with the inequality's sides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contradiction: Option<String>,
}

/// What a row says of another policy in the place of the paper's.
#[derive(Clone, Debug, Serialize)]
pub struct Alternative {
    /// The number, where it is one.
    pub ours: Option<Estimate>,
    /// What came of its statements, where it has some.
    pub note: String,
    /// The verdict that it would have.
    pub verdict: Verdict,
}

impl Assessment {
    /// What tells it apart; what nothing tells apart is vacuous.
    pub(super) fn apart(&mut self, found: Result<Vec<String>, String>) {
        match found {
            Ok(discriminators) => self.discriminators = discriminators,
            Err(clause) => {
                self.verdict = Verdict::Vacuous;
                self.note += &format!("; {clause}");
            }
        }
    }
}

/// What a claim is evaluated for.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// The default variant and every member of the family.
    Family,
    /// One variant alone.
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
            beside: None,
            contradiction: None,
        }
    }
}
