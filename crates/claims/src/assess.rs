//! Assessment of a claim: evaluates its map row over the model family, and derives the verdict.

mod contradicts;
mod crossover;

use std::collections::BTreeMap;

use pilotlight_stats::Estimate;

use super::alike;
use super::claim::{Claim, Printed};
use super::discriminator::DiscriminatorSearch;
use super::error::NoResult;
use super::input::{self, Sources};
use super::lab::{Alternative, Assessment, Lab, Scope, Variants, over_all};
use super::map::{Check, Row};
use super::order::{Evaluation, Finding, Order};
use super::saturated::merge_runs;
use super::verdict::{Holds, Target, Tiers, Verdict};

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
            (assessment.verdict, assessment.note) = (Verdict::NoResult, missing.to_string());
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
            (other.verdict, other.note) = (Verdict::NoResult, missing.to_string());
        }
        let Assessment { ours, note, tiers, verdict, robust, .. } = other;
        let robust = robust.map(|robust| robust.verdict);
        Some(Box::new(Alternative { ours, note, tiers, verdict, robust }))
    }

    fn evaluate(
        &self,
        claim: &Claim,
        row: &Row,
        scope: Scope<'_>,
        sources: &Sources<'_>,
        into: &mut Assessment,
    ) -> Result<(), NoResult> {
        let variants = |experiment: &str| self.variants((&claim.id, experiment), row.possible.as_deref(), scope);
        match &row.check {
            Check::Quantity(quantity) => self.quantity(claim, quantity, &variants(&quantity.of.experiment)?, into),
            Check::Order(order) => self.order(claim, order, &variants(&order.from.experiment)?, sources, into),
            Check::Crossover(crossover) => {
                self.crossover(claim, crossover, &variants(&crossover.of[0].experiment)?, into)
            }
            Check::Test { .. } if claim.kind.is_result() => {
                Err(NoResult::Unsuitable("a result is not shown by a test"))
            }
            given => {
                let found = self.used(given, input::check(claim, given, sources)?);
                into.tiers = if claim.kind.is_result() { of_input(claim, &found) } else { Tiers::default() };
                into.verdict = if into.tiers == Tiers::default() { found.verdict } else { into.tiers.verdict() };
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
        variants: &Variants<'_>,
        sources: &Sources<'_>,
        into: &mut Assessment,
    ) -> Result<(), NoResult> {
        let look_up = |name: super::formula::Name<'_>| sources.look_up(name);
        let margins = self.map.alike.get(&claim.seed).unwrap_or(&alike::NONE);
        let findings = |variants: &[&str]| -> Result<Vec<Finding>, NoResult> {
            let each = variants
                .iter()
                .map(|variant| Evaluation { store: self.store, variant, look_up: &look_up, margins }.findings(order));
            Ok(each.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
        };
        let tiers =
            |findings: &[Finding]| Tiers::of_pairs(findings.iter().map(|finding| (finding.holds, finding.is_reversed)));
        let holding = |findings: &[Finding]| findings.iter().filter(|finding| finding.holds == Holds::Yes).count();
        into.findings = findings(&variants.judged)?;
        into.saturated = merge_runs(into.findings.iter().flat_map(|finding| finding.saturated.clone()));
        into.tiers = tiers(&into.findings);
        into.verdict = into.tiers.verdict();
        into.note = format!("{} of {} pairs hold", holding(&into.findings), into.findings.len());
        if into.findings.iter().any(|finding| finding.is_reversed) {
            into.note += &format!(", {} reversed", into.findings.iter().filter(|finding| finding.is_reversed).count());
        }
        if into.verdict == Verdict::Reproduced && claim.kind.is_result() {
            let search = DiscriminatorSearch {
                variants: &variants.judged,
                look_up: &look_up,
                margins,
                ..DiscriminatorSearch::new(self.store)
            };
            into.set_discriminators(search.of_order(order));
        }
        if let Some(mut robust) = variants.robust() {
            if let Some(all) = over_all(findings(&variants.all), into)? {
                let verdict = tiers(&all).verdict();
                robust.verdict = variants.shift.map_or(verdict, |shift| shift.judge(verdict));
                robust.pairs = Some((holding(&all), all.len()));
            }
            into.robust = Some(robust);
        }
        Ok(())
    }

    /// Overrides the verdict of rows that were fitted or entered as inputs, or that lack their trace: they are no evidence.
    fn overrule(&self, claim: &Claim, assessment: &mut Assessment) {
        let was = assessment.verdict;
        if !claim.kind.is_result() || was == Verdict::NoResult {
            return;
        }
        let over = match self.calibrated.contains(&claim.id) || assessment.given.is_some() {
            _ if claim.needs_trace.is_some() => Verdict::Surrogate,
            true => Verdict::Calibrated,
            false => return,
        };
        (assessment.verdict, assessment.otherwise) = (over, Some(was));
    }
}

/// Tiers of a result that was entered as an input; [`Lab::overrule`] marks it as no evidence.
fn of_input(claim: &Claim, given: &input::InputCheck) -> Tiers {
    let ours = given.ours.as_ref().and_then(Printed::number);
    let judge = |(ours, paper)| {
        let target = Target { relation: claim.relation?, paper, null: claim.null };
        Tiers::of_number(&target, Estimate::exact(ours))
    };
    ours.zip(claim.value.number()).and_then(judge).unwrap_or_default()
}

/// Verdict of a derived row: agrees or differs.
fn as_given(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Reproduced | Verdict::Agrees => Verdict::Agrees,
        Verdict::Size
        | Verdict::Direction
        | Verdict::Misses
        | Verdict::Undecided
        | Verdict::Vacuous
        | Verdict::Differs => Verdict::Differs,
        other => other,
    }
}

#[cfg(test)]
mod tests;
