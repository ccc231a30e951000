//! Verdicts of crossovers.

use pilotlight_stats::Estimate;

use crate::claim::{Claim, Relation};
use crate::crossover::{Crossing, Crossover};
use crate::lab::{Assessment, Lab, Scope};
use crate::saturated;
use crate::verdict;

impl Lab<'_> {
    pub(super) fn crossover(
        &self,
        claim: &Claim,
        crossover: &Crossover,
        scope: Scope<'_>,
        into: &mut Assessment,
    ) -> Result<(), String> {
        let paper = claim.value.number().filter(|paper| *paper > 0.0);
        let equal = matches!(claim.relation, Some(Relation::Eq | Relation::About));
        let paper = paper.filter(|_| equal).ok_or("the claim does not print the rate of a crossing")?;
        let variants = self.variants(&crossover.of[0].experiment, scope);
        let (mut crossings, mut errors) = (Vec::new(), (f64::INFINITY, 0.0_f64));
        let mut full = Vec::new();
        for variant in &variants {
            let curve = crossover.curve(self.store, variant)?;
            let ((step, length), crossing) = (curve.step(paper, crossover.step)?, curve.crossing());
            let (least, greatest) = step.errors(&crossing);
            errors = (errors.0.min(least / length), errors.1.max(greatest / length));
            if crossings.is_empty() {
                let error = step.outside(crossing.value).max(step.outside(crossing.first)) / length;
                into.error_percent = Some(100.0 * error).filter(|error| error.is_finite());
            }
            crossings.push(crossing);
            full.extend(crossover.saturated(self.store, variant));
        }
        let first = crossings.first().ok_or("no variant")?;
        into.verdict = verdict::between((verdict::beyond(errors.0), verdict::beyond(errors.1)));
        self.shifted(&claim.id, scope, into);
        let ends = || crossings.iter().flat_map(|crossing| [crossing.lower, crossing.higher]);
        let ours = Estimate {
            value: first.value.exp(),
            low: ends().fold(f64::INFINITY, f64::min).exp(),
            high: ends().fold(f64::NEG_INFINITY, f64::max).exp(),
            n: self.runs(crossover, variants.first().copied().unwrap_or_default()),
        };
        into.ours = Some(ours).filter(|_| first.value.is_finite());
        into.note = format!("{}, {}", crossover.of[0].experiment, words(crossover, first));
        into.saturated = saturated::merge_runs(full.into_iter());
        into.family = variants.len() - 1;
        Ok(())
    }

    /// The fewest replications of a point.
    fn runs(&self, crossover: &Crossover, variant: &str) -> usize {
        let curve = crossover.curve(self.store, variant);
        curve.iter().flat_map(|curve| &curve.0).map(|(_, ratio)| ratio.n).min().unwrap_or(0)
    }
}

fn words(crossover: &Crossover, crossing: &Crossing) -> String {
    let [lower, higher] = [0, 1].map(|i: usize| crossover.of[i].policy.as_str());
    match crossing.times {
        0 if crossing.value > 0.0 => format!("{lower} is not above {higher} anywhere"),
        0 => format!("{lower} is above {higher} everywhere"),
        1 => format!("where {lower} rises above {higher}"),
        times => format!("where {lower} last rises above {higher} ({times} crossings)"),
    }
}
