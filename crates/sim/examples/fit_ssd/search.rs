//! Deterministic coordinate search: each parameter in turn moves a step up or down; successful steps grow, others shrink.

/// A search axis: starting value and bounds, all above 0. Steps are factors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    pub(crate) start: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// The best values found, and their loss.
pub(crate) fn search(axes: &[Axis], rounds: usize, loss: impl Fn(&[f64]) -> f64) -> (Vec<f64>, f64) {
    let mut best: Vec<f64> = axes.iter().map(|axis| axis.start).collect();
    let mut least = loss(&best);
    let mut steps = vec![0.35_f64; axes.len()];
    for _ in 0..rounds {
        for (index, axis) in axes.iter().enumerate() {
            let improved = try_both(&mut best, &mut least, index, *axis, &mut steps[index], &loss);
            steps[index] = if improved { (steps[index] * 1.3).min(0.7) } else { (steps[index].abs() * 0.6).max(0.004) };
        }
    }
    (best, least)
}

/// One step along an axis, first in the last successful direction.
fn try_both(
    best: &mut Vec<f64>,
    least: &mut f64,
    index: usize,
    axis: Axis,
    step: &mut f64,
    loss: &impl Fn(&[f64]) -> f64,
) -> bool {
    for direction in [*step, -*step] {
        let mut tried = best.clone();
        tried[index] = (tried[index] * direction.exp()).clamp(axis.low, axis.high);
        let reached = loss(&tried);
        if reached < *least {
            (*best, *least, *step) = (tried, reached, direction);
            return true;
        }
    }
    false
}
