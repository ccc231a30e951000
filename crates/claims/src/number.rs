//! Tiers of numbers: hull over the printed settings and over the family, and discriminators of bounds.

use pilotlight_stats::Estimate;

use super::claim::{Claim, Relation};
use super::discriminator::{self, DiscriminatorSearch};
use super::error::{NoResult, Vacuous};
use super::lab::{Assessment, Lab, Variants, over_all};
use super::quantity::{Aggregation, Measurement, Quantity};
use super::saturated::merge_runs;
use super::verdict::{self, Holds, Target, Tiers};

impl Lab<'_> {
    pub(super) fn quantity(
        &self,
        claim: &Claim,
        quantity: &Quantity,
        variants: &Variants<'_>,
        into: &mut Assessment,
    ) -> Result<(), NoResult> {
        let (Some(paper), Some(relation)) = (claim.value.number(), claim.relation) else {
            let problem = "the claim has no number and relation to compare a quantity with; say holds";
            return Err(NoResult::Unsuitable(problem));
        };
        let end = match relation {
            Relation::RangeLo => Some(Aggregation::Min),
            Relation::RangeHi => Some(Aggregation::Max),
            _ => None,
        };
        if end.is_some() && quantity.over.is_some() {
            let problem = "over does not go with an end of a range, which is our least or greatest value";
            return Err(NoResult::Unsuitable(problem));
        }
        let quantity = &Quantity { over: end.or(quantity.over), ..quantity.clone() };
        let silent = claim.null.or_else(|| discriminator::never_fires(self.store, &quantity.of));
        let null = silent.or(quantity.compare.neutral());
        let target = Target { relation, paper, null };
        let no_number = NoResult::Unsuitable("the relation has no number; say holds");
        let tiers = |ours| Tiers::of_number(&target, ours).ok_or_else(|| no_number.clone());
        let ours = self.hull(quantity, &variants.judged, &claim.unit)?;
        into.tiers = tiers(ours.estimate)?;
        into.verdict = into.tiers.verdict();
        into.error_percent = verdict::error(relation, paper, null, ours.estimate.value).map(|error| 100.0 * error);
        let mean = quantity.over == Some(Aggregation::Geomean);
        let point = if mean { "geometric mean over its points".to_owned() } else { ours.point.description() };
        into.note = format!("{}, {point}", quantity.of.experiment);
        (into.null, into.evidence) = (null, !verdict::trivial_meets(relation, paper, null));
        if let (None, Some(silent)) = (claim.null, silent) {
            into.note += &format!("; a detector that never fires has {silent}");
        }
        let is_kept = into.tiers.value == Some(Holds::Yes);
        if is_kept && relation.is_bound() && into.evidence {
            into.set_discriminators(self.discriminators(&target, quantity, &variants.judged, &claim.unit));
        }
        (into.ours, into.saturated) = (Some(ours.estimate), ours.saturated);
        if let Some(mut robust) = variants.robust() {
            if let Some(all) = over_all(self.hull(quantity, &variants.all, &claim.unit), into)? {
                let hull = variants.shift.map_or(all.estimate, |shift| shift.widen(all.estimate));
                (robust.ours, robust.verdict) = (Some(hull), tiers(hull)?.verdict());
            }
            into.robust = Some(robust);
        }
        Ok(())
    }

    /// Policies or settings that significantly fail a bound.
    fn discriminators(
        &self,
        target: &Target,
        quantity: &Quantity,
        variants: &[&str],
        unit: &str,
    ) -> Result<Vec<String>, Vacuous> {
        if let Some(trivial) = target.null {
            return Ok(vec![format!("what is trivial ({trivial}) fails it")]);
        }
        let search = DiscriminatorSearch { store: self.store, variants, ..DiscriminatorSearch::new(self.store) };
        let fails = |other: &Quantity| {
            let judged = self.hull(other, variants, unit).ok();
            let tiers = judged.and_then(|judged| Tiers::of_number(target, judged.estimate));
            tiers.is_some_and(|tiers| tiers.value == Some(Holds::No))
        };
        let found = search.of_number(quantity).into_iter().find(|(_, other)| fails(other));
        found.map(|(name, _)| vec![format!("{name} fails it")]).ok_or_else(|| Vacuous { clause: "it".to_owned() })
    }

    /// The number of the first variant, with an interval over all of them.
    fn hull(&self, quantity: &Quantity, variants: &[&str], unit: &str) -> Result<Measurement, NoResult> {
        let found: Result<Vec<_>, _> =
            variants.iter().map(|variant| quantity.evaluate(self.store, variant, unit)).collect();
        let mut found = found?.into_iter();
        let mut first = found.next().ok_or(NoResult::Unsuitable("no variant"))?;
        for next in found {
            first.estimate = Estimate { value: first.estimate.value, ..first.estimate.hull(next.estimate) };
            first.saturated.extend(next.saturated);
        }
        Ok(Measurement { saturated: merge_runs(first.saturated.into_iter()), ..first })
    }
}
