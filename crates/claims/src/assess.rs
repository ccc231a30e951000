//! Assessment of a claim: evaluates its map row over the model family, and derives the verdict.

mod contradicts;
mod crossover;

use std::collections::{BTreeMap, BTreeSet};

use pilotlight_stats::Estimate;

use super::claim::{Claim, Printed};
use super::discriminator::DiscriminatorSearch;
use super::input::{self, Sources};
use super::lab::{Alternative, Assessment, Lab, Scope};
use super::map::{Check, Row};
use super::order::{Evaluation, Order};
use super::saturated::merge_runs;
use super::verdict::{self, Holds, Verdict};

impl Lab<'_> {
    /// Every claim, in order.
    #[must_use]
    pub fn assess_all(&self) -> Vec<Assessment> {
        let printed = self.printed();
        self.claims.iter().map(|claim| self.assess(claim, Scope::Family, &printed)).collect()
    }

    /// One claim.
    #[must_use]
    pub fn assess(&self, claim: &Claim, scope: Scope<'_>, printed: &BTreeMap<&str, f64>) -> Assessment {
        let mut assessment = Assessment::blank(claim);
        let Some(row) = self.map.rows.get(&claim.id) else {
            if let Some(reason) = self.map.not_modelled.get(&claim.id) {
                (assessment.verdict, assessment.note) = (Verdict::NotModelled, reason.clone());
            }
            self.contradiction(claim, printed, &mut assessment);
            return assessment;
        };
        (assessment.reading, assessment.cause) = (row.reading.clone(), row.cause.clone());
        let look_up = |id: &str| printed.get(id).copied();
        let sources = Sources { file: self.file, parameter: self.parameter, printed: &look_up };
        if let Err(missing) = self.evaluate(claim, row, scope, &sources, &mut assessment) {
            (assessment.verdict, assessment.note) = (Verdict::NoResult, missing);
        }
        assessment.alternative = self.alternative(claim, scope, &sources);
        self.overrule(claim, &mut assessment);
        self.contradiction(claim, printed, &mut assessment);
        assessment
    }

    fn alternative(&self, claim: &Claim, scope: Scope<'_>, sources: &Sources<'_>) -> Option<Box<Alternative>> {
        let row = self.map.alternatives.get(&claim.id)?;
        let mut other = Assessment::blank(claim);
        let lab = Lab { constants: None, ..*self }; // drawn for the paper's policies only
        if let Err(missing) = lab.evaluate(claim, row, scope, sources, &mut other) {
            (other.verdict, other.note) = (Verdict::NoResult, missing);
        }
        let Assessment { ours, note, verdict, .. } = other;
        Some(Box::new(Alternative { ours, note, verdict }))
    }

    fn evaluate(
        &self,
        claim: &Claim,
        row: &Row,
        scope: Scope<'_>,
        sources: &Sources<'_>,
        into: &mut Assessment,
    ) -> Result<(), String> {
        match &row.check {
            Check::Quantity(quantity) => self.quantity(claim, quantity, scope, into),
            Check::Order(order) => self.order(claim, order, scope, sources, into),
            Check::Crossover(crossover) => self.crossover(claim, crossover, scope, into),
            Check::Test { .. } if claim.kind.is_result() => Err("a result is not shown by a test".to_owned()),
            given => {
                let found = self.used(given, input::check(claim, given, sources)?);
                into.verdict = if claim.kind.is_result() { of_input(claim, &found) } else { found.verdict };
                (into.given, into.note) = (found.ours, found.note);
                Ok(())
            }
        }?;
        into.verdict = if claim.kind.is_result() { into.verdict } else { as_given(into.verdict) };
        Ok(())
    }

    fn order(
        &self,
        claim: &Claim,
        order: &Order,
        scope: Scope<'_>,
        sources: &Sources<'_>,
        into: &mut Assessment,
    ) -> Result<(), String> {
        let variants = self.variants(&order.from.experiment, scope);
        let look_up = |name: super::formula::Name<'_>| sources.look_up(name);
        let mut verdicts = BTreeSet::new();
        for variant in &variants {
            let findings = Evaluation { store: self.store, variant, look_up: &look_up }.of(order)?;
            verdicts.insert(Holds::all(findings.iter().map(|finding| finding.holds)));
            into.findings.extend(findings);
        }
        into.saturated = merge_runs(into.findings.iter().flat_map(|finding| finding.saturated.clone()));
        let first = verdicts.first().copied().unwrap_or(Verdict::Undecided);
        into.verdict = if verdicts.len() == 1 { first } else { Verdict::Undecided };
        self.shifted(&claim.id, scope, into);
        into.family = variants.len() - 1;
        let open = into.findings.iter().filter(|finding| finding.holds != Holds::Yes).count();
        into.note = format!("{} of {} pairs hold", into.findings.len() - open, into.findings.len());
        if into.verdict == Verdict::Reproduced && claim.kind.is_result() {
            into.set_discriminators(
                DiscriminatorSearch { store: self.store, variants: &variants, look_up: &look_up }.of_order(order),
            );
        }
        Ok(())
    }

    /// Overrides the verdict of rows that were fitted or entered as inputs, or that lack their trace: they are no evidence.
    fn overrule(&self, claim: &Claim, assessment: &mut Assessment) {
        let was = assessment.verdict;
        if !claim.kind.is_result() || was == Verdict::NoResult {
            return;
        }
        let fitted =
            [Some(&claim.id), assessment.with.as_ref()].into_iter().flatten().any(|id| self.calibrated.contains(id));
        let over = match fitted || assessment.given.is_some() {
            _ if claim.needs_trace.is_some() => Verdict::Surrogate,
            true => Verdict::Calibrated,
            false => return,
        };
        (assessment.verdict, assessment.otherwise) = (over, Some(was));
    }
}

/// Verdict of a result that was entered as an input; [`Lab::overrule`] marks it as no evidence.
fn of_input(claim: &Claim, given: &input::InputCheck) -> Verdict {
    let ours = given.ours.as_ref().and_then(Printed::number);
    let judge = |(ours, paper)| verdict::numeric(claim.relation?, paper, claim.null, Estimate::exact(ours));
    ours.zip(claim.value.number()).and_then(judge).unwrap_or(given.verdict)
}

/// Verdict of a derived row: agrees or differs.
fn as_given(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Reproduced | Verdict::Agrees => Verdict::Agrees,
        Verdict::Near | Verdict::Misses | Verdict::Undecided | Verdict::Vacuous | Verdict::Differs => Verdict::Differs,
        other => other,
    }
}

#[cfg(test)]
mod tests;
