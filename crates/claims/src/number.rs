//! Verdicts of numbers: hull over the family, grades, and discriminators of bounds.

use pilotlight_stats::Estimate;

use super::claim::{Claim, Relation};
use super::discriminator::{self, DiscriminatorSearch};
use super::lab::{Assessment, Lab, Scope};
use super::quantity::{Measurement, Over, Quantity};
use super::range::Range;
use super::saturated::merge_runs;
use super::shift::Shift;
use super::verdict::{self, Verdict};

/// A graded number.
struct Graded {
    ours: Measurement,
    grades: (Verdict, Verdict),
    error: f64,
}

impl Lab<'_> {
    pub(super) fn quantity(
        &self,
        claim: &Claim,
        quantity: &Quantity,
        scope: Scope<'_>,
        into: &mut Assessment,
    ) -> Result<(), String> {
        let (Some(paper), Some(relation)) = (claim.value.number(), claim.relation) else {
            return Err("the claim has no number and relation to compare a quantity with; say holds".to_owned());
        };
        let variants = self.variants(&quantity.of.experiment, scope);
        let printed = claim.null;
        let trivial = printed.or_else(|| discriminator::never_fires(self.store, &quantity.of));
        let claim = &Claim { null: trivial, ..claim.clone() };
        let range = Range::of(claim, quantity, self.claims, self.map)?;
        let shift = self.shift(&claim.id, scope).copied().unwrap_or_default();
        let judged = self.number(claim, quantity, range.as_ref(), &variants, &shift)?;
        into.draws = shift.draws;
        (into.verdict, into.error_percent) = (verdict::between(judged.grades), Some(100.0 * judged.error));
        let mean = quantity.over == Some(Over::Geomean);
        let point = if mean { "geometric mean over its points".to_owned() } else { judged.ours.point.words() };
        into.note = format!("{}, {point}", quantity.of.experiment);
        (into.null, into.evidence) = (trivial, !verdict::trivial_meets(relation, paper, trivial));
        if let Some(range) = &range {
            into.evidence = !range.trivial_meets();
            into.note += &format!("; {range}");
        }
        if let (None, Some(trivial)) = (printed, trivial) {
            into.note += &format!("; a detector that never fires has {trivial}");
        }
        if into.verdict == Verdict::Reproduced && relation.is_bound() && into.evidence {
            into.set_discriminators(self.discriminators(claim, quantity, range.as_ref(), &variants));
        }
        into.with = range.and_then(|range| range.with);
        (into.ours, into.saturated, into.family) =
            (Some(judged.ours.estimate), judged.ours.saturated, variants.len() - 1);
        Ok(())
    }

    /// Policies or settings that significantly fail a bound.
    fn discriminators(
        &self,
        claim: &Claim,
        quantity: &Quantity,
        range: Option<&Range>,
        variants: &[&str],
    ) -> Result<Vec<String>, String> {
        if let Some(trivial) = claim.null {
            return Ok(vec![format!("what is trivial ({trivial}) fails it")]);
        }
        let search = DiscriminatorSearch { store: self.store, variants, look_up: &|_| None };
        let fails = |other: &Quantity| {
            let judged = self.number(claim, other, range, variants, &Shift::default());
            judged.is_ok_and(|judged| judged.grades.0 != Verdict::Reproduced)
        };
        let found = search.of_number(quantity).into_iter().find(|(_, other)| fails(other));
        found
            .map(|(name, _)| vec![format!("{name} fails it")])
            .ok_or_else(|| "nothing in the same results fails it".to_owned())
    }

    /// A number over all variants; for a range, the claim's end with the grades of both.
    fn number(
        &self,
        claim: &Claim,
        quantity: &Quantity,
        range: Option<&Range>,
        variants: &[&str],
        shift: &Shift,
    ) -> Result<Graded, String> {
        let hull = |over| -> Result<Measurement, String> {
            let found = self.hull(&Quantity { over, ..quantity.clone() }, variants, &claim.unit)?;
            Ok(Measurement { estimate: shift.widen(found.estimate), ..found })
        };
        let (paper, relation) = claim.value.number().zip(claim.relation).ok_or("no number")?;
        if let Some(range) = range {
            let (lowest, highest) = (hull(Some(Over::Min))?, hull(Some(Over::Max))?);
            let grades = range.grades(lowest.estimate, highest.estimate);
            let error = range.error(lowest.estimate.value, highest.estimate.value);
            let ours = if relation == Relation::RangeLo { lowest } else { highest };
            return Ok(Graded { ours, grades, error });
        }
        let ours = hull(quantity.over)?;
        let grades = verdict::grades(relation, paper, claim.null, ours.estimate);
        let error = verdict::error(relation, paper, claim.null, ours.estimate.value);
        let (grades, error) = grades.zip(error).ok_or("the relation has no number; say holds")?;
        Ok(Graded { ours, grades, error })
    }

    /// The number of the first variant, with an interval over all of them.
    fn hull(&self, quantity: &Quantity, variants: &[&str], unit: &str) -> Result<Measurement, String> {
        let found: Result<Vec<_>, _> =
            variants.iter().map(|variant| quantity.evaluate(self.store, variant, unit)).collect();
        let mut found = found?.into_iter();
        let mut first = found.next().ok_or("no variant")?;
        for next in found {
            first.estimate = Estimate { value: first.estimate.value, ..first.estimate.hull(next.estimate) };
            first.saturated.extend(next.saturated);
        }
        Ok(Measurement { saturated: merge_runs(first.saturated.into_iter()), ..first })
    }
}
