//! Compares the repeats of one metric at one point.

use pilotlight_stats::CONFIDENCE;
use pilotlight_stats::compare::hedges_g;
use pilotlight_stats::contrast::{contrast, ratio};
use pilotlight_stats::mean::average;

use super::{LEVEL, Pair, Side, Verdict};

/// Compares B's repeats with A's. Verdict and names are set later. `None` without values.
pub(super) fn pair(a: &[f64], b: &[f64], margin: Option<f64>) -> Option<Pair> {
    let side = |values: &[f64]| Some(Side { mean: average(values)?, n: values.len(), modelled: false });
    let test = contrast(&[(1.0, b), (-1.0, a)], CONFIDENCE);
    let equivalent = margin.and_then(|margin| exceeds(a, b, margin));
    let single = a.len() < 2 || b.len() < 2;
    Some(Pair {
        point: String::new(),
        metric: String::new(),
        title: String::new(),
        unit: String::new(),
        a: side(a)?,
        b: side(b)?,
        difference: test.map(|test| test.estimate),
        ratio: test.and_then(|_| ratio(b, a, CONFIDENCE)),
        hedges_g: test.and_then(|_| hedges_g(b, a)),
        p: test.map(|test| test.p),
        p_holm: None,
        p_equivalent: equivalent,
        verdict: if single { Verdict::OneRepeat } else { Verdict::NoSpread },
        is_better: None,
        within: None,
    })
}

/// p of the test of equivalence: the larger p of two one-sided tests.
fn exceeds(a: &[f64], b: &[f64], margin: f64) -> Option<f64> {
    let (mut low, mut high) = (1.0 - margin, 1.0 + margin);
    if average(a)? < 0.0 {
        std::mem::swap(&mut low, &mut high);
    }
    let above = contrast(&[(1.0, b), (-low, a)], CONFIDENCE)?.p_above();
    let below = contrast(&[(-1.0, b), (high, a)], CONFIDENCE)?.p_above();
    Some(above.max(below))
}

/// Sets the verdict from the corrected p values.
pub(super) fn judge(pair: &mut Pair) {
    let Some(p) = pair.p_holm else { return };
    pair.within = pair.p_equivalent.map(|p| p < LEVEL);
    let up = pair.b.mean > pair.a.mean;
    pair.verdict = match (p < LEVEL, pair.within) {
        (true, _) if up => Verdict::Higher,
        (true, _) => Verdict::Lower,
        (false, Some(true)) => Verdict::Equivalent,
        (false, _) => Verdict::NotShown,
    };
}
