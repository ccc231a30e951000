//! Verdicts of crossovers.

use pilotlight_stats::Estimate;

use crate::claim::{Claim, Relation};
use crate::crossover::{Crossing, Crossover};
use crate::error::NoResult;
use crate::lab::{Assessment, Lab, Variants, over_all};
use crate::saturated;
use crate::verdict::Tiers;

impl Lab<'_> {
    pub(super) fn crossover(
        &self,
        claim: &Claim,
        crossover: &Crossover,
        variants: &Variants<'_>,
        into: &mut Assessment,
    ) -> Result<(), NoResult> {
        let paper = claim.value.number().filter(|paper| *paper > 0.0);
        let equal = matches!(claim.relation, Some(Relation::Eq | Relation::About));
        let unsuitable = NoResult::Unsuitable("the claim does not print the rate of a crossing");
        let paper = paper.filter(|_| equal).ok_or(unsuitable)?;
        let errors = |variants: &[&str]| -> Result<(Vec<Crossing>, Tiers), NoResult> {
            let (mut crossings, mut errors) = (Vec::new(), (f64::INFINITY, 0.0_f64));
            for variant in variants {
                let curve = crossover.curve(self.store, variant)?;
                let ((step, length), crossing) = (curve.step(paper, crossover.step)?, curve.crossing());
                let (least, greatest) = step.errors(&crossing);
                errors = (errors.0.min(least / length), errors.1.max(greatest / length));
                crossings.push(crossing);
            }
            Ok((crossings, Tiers::of_errors(errors, true)))
        };
        let runs = self.runs(crossover, variants.judged.first().copied().unwrap_or_default());
        let (crossings, tiers) = errors(&variants.judged)?;
        let first = *crossings.first().ok_or(NoResult::Unsuitable("no variant"))?;
        let (step, length) = crossover.curve(self.store, variants.judged[0])?.step(paper, crossover.step)?;
        let error = step.outside(first.value).max(step.outside(first.first)) / length;
        into.error_percent = Some(100.0 * error).filter(|error| error.is_finite());
        (into.tiers, into.verdict) = (tiers, tiers.verdict());
        into.ours = Some(hull(&crossings, runs)).filter(|_| first.value.is_finite());
        into.note = format!("{}, {}", crossover.of[0].experiment, crossing_text(crossover, &first));
        let full = variants.judged.iter().flat_map(|variant| crossover.saturated(self.store, variant));
        into.saturated = saturated::merge_runs(full);
        if let Some(mut robust) = variants.robust() {
            if let Some((crossings, tiers)) = over_all(errors(&variants.all), into)? {
                robust.verdict = variants.shift.map_or(tiers.verdict(), |shift| shift.judge(tiers.verdict()));
                robust.ours = Some(hull(&crossings, runs)).filter(|_| first.value.is_finite());
            }
            into.robust = Some(robust);
        }
        Ok(())
    }

    /// The fewest replications of a point.
    fn runs(&self, crossover: &Crossover, variant: &str) -> usize {
        let curve = crossover.curve(self.store, variant);
        curve.iter().flat_map(|curve| &curve.0).map(|(_, ratio)| ratio.n).min().unwrap_or(0)
    }
}

/// The first crossing, with an interval over all of them.
fn hull(crossings: &[Crossing], n: usize) -> Estimate {
    let ends = || crossings.iter().flat_map(|crossing| [crossing.lower, crossing.higher]);
    Estimate {
        value: crossings[0].value.exp(),
        low: ends().fold(f64::INFINITY, f64::min).exp(),
        high: ends().fold(f64::NEG_INFINITY, f64::max).exp(),
        n,
    }
}

fn crossing_text(crossover: &Crossover, crossing: &Crossing) -> String {
    let [lower, higher] = [0, 1].map(|i: usize| crossover.of[i].policy.as_str());
    match crossing.times {
        0 if crossing.value > 0.0 => format!("{lower} is not above {higher} anywhere"),
        0 => format!("{lower} is above {higher} everywhere"),
        1 => format!("where {lower} rises above {higher}"),
        times => format!("where {lower} last rises above {higher} ({times} crossings)"),
    }
}
