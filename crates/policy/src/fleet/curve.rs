//! What a server delivers of what its hosts ask, by its power.

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Power of the server in microwatts.
    pub power_uw: u64,
    /// What it delivers at this power, in any unit that all servers share (bytes or requests per second).
    pub rate: u64,
}

/// Why points are not a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CurveError {
    /// No point.
    #[error("a curve needs one point or more: the floor first, full power last")]
    Empty,
    /// A point has the power of the one before, or less.
    #[error("the power of point {0} is not above that of the one before")]
    Power(usize),
}

/// The least concave curve above a server's points, from its floor to its full power.
///
/// Power is worth less the more there is; where points say otherwise (a step that needs several watts at once), the curve is the straight
/// line over the step. A division by these curves can then serve the server between two of its points, where it delivers less than the curve
/// says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Curve(Vec<Point>);

impl Curve {
    /// From points of rising power. A rate below that of a lower power counts as that one: a server need not use its share.
    ///
    /// # Errors
    /// If there is no point, or powers do not rise.
    pub fn new(points: &[Point]) -> Result<Self, CurveError> {
        if let Some(at) = points.windows(2).position(|pair| pair[1].power_uw <= pair[0].power_uw) {
            return Err(CurveError::Power(at + 1));
        }
        let mut hull: Vec<Point> = Vec::with_capacity(points.len());
        for point in points {
            let best = hull.iter().map(|point| point.rate).max().unwrap_or(0);
            let point = Point { rate: point.rate.max(best), ..*point };
            while let [.., before, last] = hull[..]
                && Segment::between(before, last).is_at_most(Segment::between(last, point))
            {
                hull.pop();
            }
            hull.push(point);
        }
        if hull.is_empty() { Err(CurveError::Empty) } else { Ok(Self(hull)) }
    }

    /// Its points: the floor first, full power last.
    pub fn points(&self) -> impl Iterator<Item = Point> {
        self.0.iter().copied()
    }

    /// Power below which the server cannot be held, in microwatts.
    #[must_use]
    pub fn floor_uw(&self) -> u64 {
        self.0[0].power_uw
    }

    /// Power at which it needs no more, in microwatts.
    #[must_use]
    pub fn full_uw(&self) -> u64 {
        self.0[self.0.len() - 1].power_uw
    }

    /// Where more power delivers more, the most valuable first.
    pub(super) fn segments(&self) -> impl Iterator<Item = Segment> {
        let segments = self.0.windows(2).map(|pair| Segment::between(pair[0], pair[1]));
        segments.filter(|segment| segment.gain > 0)
    }

    /// What the server delivers at this power.
    #[must_use]
    pub fn rate(&self, power_uw: u64) -> f64 {
        let power_uw = power_uw.clamp(self.floor_uw(), self.full_uw());
        let at = self.0.partition_point(|point| point.power_uw <= power_uw);
        let before = self.0[at - 1];
        let Some(after) = self.0.get(at) else { return before.rate as f64 };
        let part = (power_uw - before.power_uw) as f64 / (after.power_uw - before.power_uw) as f64;
        before.rate as f64 + part * (after.rate - before.rate) as f64
    }
}

/// A straight piece of a curve.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// In microwatts.
    pub(super) width_uw: u64,
    /// Of the rate.
    pub(super) gain: u64,
}

impl Segment {
    fn between(from: Point, to: Point) -> Self {
        Self { width_uw: to.power_uw - from.power_uw, gain: to.rate - from.rate }
    }

    /// By what a microwatt delivers.
    pub(super) fn compare(self, other: Self) -> std::cmp::Ordering {
        let product = |one: Self, two: Self| u128::from(one.gain) * u128::from(two.width_uw);
        product(self, other).cmp(&product(other, self))
    }

    fn is_at_most(self, other: Self) -> bool {
        self.compare(other).is_le()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(u64, u64)]) -> Result<Curve, CurveError> {
        Curve::new(&points.iter().map(|&(power_uw, rate)| Point { power_uw, rate }).collect::<Vec<_>>())
    }

    #[test]
    fn a_step_becomes_a_line_and_a_fall_a_level() {
        let with_step = curve(&[(10, 0), (20, 0), (30, 100), (40, 90), (50, 110)]).unwrap();
        let rates: Vec<f64> = [0, 10, 20, 30, 40, 50, 60].iter().map(|&uw| with_step.rate(uw)).collect();
        assert_eq!(rates, [0.0, 0.0, 50.0, 100.0, 105.0, 110.0, 110.0]);
        assert_eq!((with_step.floor_uw(), with_step.full_uw()), (10, 50));
    }

    #[test]
    fn points_out_of_order_are_refused() {
        assert_eq!(curve(&[]), Err(CurveError::Empty));
        assert_eq!(curve(&[(1, 1), (1, 2)]), Err(CurveError::Power(1)));
    }
}
