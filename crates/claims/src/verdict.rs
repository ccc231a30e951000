//! Verdicts: a function of the paper's value, the relation and our interval only.

use pilotlight_stats::Estimate;
use serde::{Deserialize, Serialize};

use super::claim::Relation;

/// Under this error, relative to `|paper - null|`, an `eq` row is reproduced.
pub const REPRODUCED: f64 = 0.10;
/// Under this error a row that is not reproduced is near.
pub const NEAR: f64 = 0.25;

/// The verdict of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The relation holds.
    Reproduced,
    /// It does not hold, but the error is below 25 %.
    Near,
    /// It does not hold.
    Misses,
    /// The interval straddles a boundary.
    Undecided,
    /// It holds, but nothing in the same results fails it ([`super::discriminator`]).
    Vacuous,
    /// It contradicts other figures of its paper.
    Contradicts,
    /// Constants were fitted or choices made on it.
    Calibrated,
    /// Its trace is not available; the result is from a surrogate.
    Surrogate,
    /// Listed as not modelled.
    NotModelled,
    /// The mapped output has no results.
    NoResult,
    /// It has no row in the map.
    NotMapped,
    /// The input equals the paper's value.
    Agrees,
    /// It equals the paper's value, but nothing reads it.
    Unread,
    /// The input differs from the paper's value.
    Differs,
}

impl Verdict {
    /// Verdicts of results, in printing order.
    pub const OF_RESULTS: [Self; 11] = [
        Self::Reproduced,
        Self::Near,
        Self::Misses,
        Self::Undecided,
        Self::Vacuous,
        Self::Contradicts,
        Self::Calibrated,
        Self::Surrogate,
        Self::NotModelled,
        Self::NoResult,
        Self::NotMapped,
    ];

    /// Verdicts of inputs.
    pub const OF_GIVEN: [Self; 6] =
        [Self::Agrees, Self::Unread, Self::Differs, Self::NotModelled, Self::NoResult, Self::NotMapped];

    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Near => "near",
            Self::Misses => "misses",
            Self::Undecided => "undecided",
            Self::Vacuous => "vacuous",
            Self::Contradicts => "contradicts",
            Self::Calibrated => "calibrated",
            Self::Surrogate => "surrogate",
            Self::NotModelled => "not modelled",
            Self::NoResult => "no result",
            Self::NotMapped => "not mapped",
            Self::Agrees => "agrees",
            Self::Unread => "without a reader",
            Self::Differs => "differs",
        }
    }
}

/// Error relative to `|paper - null|`; 0 if the relation holds. `None` for relations without a number.
#[must_use]
pub fn error(relation: Relation, paper: f64, null: Option<f64>, ours: f64) -> Option<f64> {
    let beyond = match relation {
        Relation::Eq | Relation::About => (ours - paper).abs(),
        Relation::Le | Relation::RangeHi => (ours - paper).max(0.0),
        Relation::Ge | Relation::RangeLo => (paper - ours).max(0.0),
        Relation::Order | Relation::Equivalent | Relation::Monotone => return None,
    };
    let scale = (paper - null.unwrap_or(0.0)).abs();
    Some(if beyond == 0.0 { 0.0 } else { beyond / scale })
}

/// Grade of an error.
fn grade(relation: Relation, error: f64) -> Verdict {
    match relation {
        Relation::Eq | Relation::About if error < REPRODUCED => Verdict::Reproduced,
        _ => beyond(error),
    }
}

/// Grade of an error beyond a bound.
#[must_use]
pub fn beyond(error: f64) -> Verdict {
    match error {
        error if error <= 0.0 => Verdict::Reproduced,
        error if error < NEAR => Verdict::Near,
        _ => Verdict::Misses,
    }
}

/// Undecided unless the best and worst grades are equal.
#[must_use]
pub fn between((best, worst): (Verdict, Verdict)) -> Verdict {
    if best == worst { best } else { Verdict::Undecided }
}

/// The verdict of a row with a number; `None` for relations without one.
#[must_use]
pub fn numeric(relation: Relation, paper: f64, null: Option<f64>, ours: Estimate) -> Option<Verdict> {
    grades(relation, paper, null, ours).map(between)
}

/// The best and worst grade within an interval; `None` for relations without a number.
#[must_use]
pub fn grades(relation: Relation, paper: f64, null: Option<f64>, ours: Estimate) -> Option<(Verdict, Verdict)> {
    let at = |value: f64| error(relation, paper, null, value);
    // the error is monotone on both sides of the paper's value
    let best = at(paper.clamp(ours.low, ours.high))?;
    let worst = at(ours.low)?.max(at(ours.high)?);
    Some((grade(relation, best), grade(relation, worst)))
}

/// Whether a trivial policy meets a bound, so that meeting it is no evidence.
#[must_use]
pub fn trivial_meets(relation: Relation, paper: f64, null: Option<f64>) -> bool {
    let meets = |null| error(relation, paper, None, null) == Some(0.0);
    relation.is_bound() && null.is_some_and(meets)
}

/// Whether a statement about two systems holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Holds {
    /// It does not.
    No,
    /// The interval straddles.
    Open,
    /// It does.
    Yes,
}

impl Holds {
    /// The verdict of statements that must all hold.
    #[must_use]
    pub fn all(each: impl IntoIterator<Item = Self>) -> Verdict {
        match each.into_iter().min() {
            Some(Self::Yes) => Verdict::Reproduced,
            Some(Self::No) => Verdict::Misses,
            Some(Self::Open) | None => Verdict::Undecided,
        }
    }
}

/// `A < B`, from the interval of `B - A`.
#[must_use]
pub fn less(b_minus_a: Estimate) -> Holds {
    holds(b_minus_a.low > 0.0, b_minus_a.high <= 0.0)
}

/// `A <= B`: not above by more than the margin, from the interval of `B - A`.
#[must_use]
pub fn not_above(b_minus_a: Estimate, margin: f64) -> Holds {
    holds(b_minus_a.low >= -margin, b_minus_a.high < -margin)
}

/// `A ~ B`: no further apart than the margin, from the interval of `B - A`.
#[must_use]
pub fn alike(b_minus_a: Estimate, margin: f64) -> Holds {
    let Estimate { low, high, .. } = b_minus_a;
    holds(low >= -margin && high <= margin, low > margin || high < -margin)
}

fn holds(yes: bool, no: bool) -> Holds {
    match (yes, no) {
        (true, _) => Holds::Yes,
        (_, true) => Holds::No,
        _ => Holds::Open,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn between(low: f64, high: f64) -> Estimate {
        Estimate { value: f64::midpoint(low, high), low, high, n: 10 }
    }

    fn eq(low: f64, high: f64) -> Verdict {
        numeric(Relation::Eq, 40.0, Some(0.0), between(low, high)).unwrap()
    }

    #[test]
    fn equal_rows_by_error() {
        assert_eq!(eq(37.0, 43.0), Verdict::Reproduced);
        assert_eq!(eq(31.0, 35.0), Verdict::Near);
        assert_eq!(eq(45.0, 49.0), Verdict::Near);
        assert_eq!(eq(10.0, 20.0), Verdict::Misses);
        assert_eq!(eq(-5.0, 5.0), Verdict::Misses);
    }

    #[test]
    fn intervals_across_a_boundary_are_undecided() {
        assert_eq!(eq(35.0, 37.0), Verdict::Undecided); // 36 is the boundary
        assert_eq!(eq(43.0, 45.0), Verdict::Undecided);
        assert_eq!(eq(28.0, 32.0), Verdict::Undecided); // 30 parts near from misses
        assert_eq!(eq(31.0, 47.0), Verdict::Undecided); // near on both sides, right in between
        assert_eq!(eq(f64::NEG_INFINITY, f64::INFINITY), Verdict::Undecided);
    }

    #[test]
    fn errors_are_relative_to_the_distance_from_the_trivial_value() {
        // paper: 3 times the latency of static polling, which is 1: 0.2 is a tenth of 2
        let ratio = |ours| numeric(Relation::Eq, 3.0, Some(1.0), Estimate::exact(ours)).unwrap();
        assert_eq!(ratio(2.81), Verdict::Reproduced);
        assert_eq!(ratio(2.79), Verdict::Near);
        assert_eq!(ratio(1.0), Verdict::Misses);
        assert_eq!(numeric(Relation::Eq, 1.0, Some(1.0), Estimate::exact(1.0)), Some(Verdict::Reproduced));
        assert_eq!(numeric(Relation::Eq, 1.0, Some(1.0), Estimate::exact(1.1)), Some(Verdict::Misses));
    }

    #[test]
    fn bounds_hold_or_are_near_or_missed() {
        let le = |low, high| numeric(Relation::Le, 5.0, Some(0.0), between(low, high)).unwrap();
        assert_eq!(le(-100.0, 5.0), Verdict::Reproduced);
        assert_eq!(le(5.1, 6.0), Verdict::Near);
        assert_eq!(le(4.0, 6.0), Verdict::Undecided);
        assert_eq!(le(7.0, 9.0), Verdict::Misses);
        let ge = |low, high| numeric(Relation::Ge, 100.0, None, between(low, high)).unwrap();
        assert_eq!(ge(100.0, 1e9), Verdict::Reproduced);
        assert_eq!(ge(80.0, 99.0), Verdict::Near);
        assert_eq!(ge(10.0, 20.0), Verdict::Misses);
    }

    #[test]
    fn a_bound_met_by_a_trivial_policy_is_no_evidence() {
        assert!(trivial_meets(Relation::Le, 5.0, Some(0.0)));
        assert!(trivial_meets(Relation::Le, 5.0, Some(5.0)));
        assert!(!trivial_meets(Relation::Ge, 1e6, Some(0.0)));
        assert!(!trivial_meets(Relation::Le, 5.0, None));
        assert!(!trivial_meets(Relation::Eq, 5.0, Some(5.0)));
    }

    #[test]
    fn orders_from_the_interval_of_the_difference() {
        assert_eq!(less(between(0.1, 5.0)), Holds::Yes);
        assert_eq!(less(between(0.0, 5.0)), Holds::Open);
        assert_eq!(less(between(-5.0, 0.0)), Holds::No);
        assert_eq!(alike(between(-1.0, 1.0), 1.0), Holds::Yes);
        assert_eq!(alike(between(0.5, 1.5), 1.0), Holds::Open);
        assert_eq!(alike(between(-3.0, -1.5), 1.0), Holds::No);
        assert_eq!(not_above(between(-1.0, 99.0), 1.0), Holds::Yes);
        assert_eq!(not_above(between(-2.0, 0.0), 1.0), Holds::Open);
        assert_eq!(not_above(between(-9.0, -2.0), 1.0), Holds::No);
        assert_eq!(Holds::all([Holds::Yes, Holds::Open]), Verdict::Undecided);
        assert_eq!(Holds::all([Holds::Open, Holds::No]), Verdict::Misses);
        assert_eq!(Holds::all([]), Verdict::Undecided);
    }

    const NUMERIC: [Relation; 6] =
        [Relation::Eq, Relation::About, Relation::Le, Relation::Ge, Relation::RangeLo, Relation::RangeHi];

    proptest! {
        /// A narrower interval within another never contradicts it: from undecided to anything, else the same.
        #[test]
        fn a_narrower_interval_refines_the_verdict(
            which in 0_usize..6, paper in -50.0_f64..50.0, null in prop::option::of(-50.0_f64..50.0),
            ends in prop::array::uniform4(-100.0_f64..100.0),
        ) {
            let mut ends = ends;
            ends.sort_by(f64::total_cmp);
            let judge = |low, high| numeric(NUMERIC[which], paper, null, between(low, high)).unwrap();
            let (wide, narrow) = (judge(ends[0], ends[3]), judge(ends[1], ends[2]));
            prop_assert!(wide == narrow || wide == Verdict::Undecided, "{wide:?} {narrow:?}");
        }

        /// An exact value is never undecided, and only units matter to nothing.
        #[test]
        fn units_do_not_matter(
            which in 0_usize..6, paper in 1.0_f64..50.0, null in prop::option::of(-50.0_f64..0.0),
            ours in -100.0_f64..100.0, factor in prop::sample::select(vec![0.25, 0.5, 2.0, 1024.0]),
        ) {
            let judge = |scale: f64| {
                let ours = Estimate::exact(ours * scale);
                numeric(NUMERIC[which], paper * scale, null.map(|null| null * scale), ours).unwrap()
            };
            prop_assert_ne!(judge(1.0), Verdict::Undecided);
            prop_assert_eq!(judge(1.0), judge(factor));
        }

        #[test]
        fn less_implies_not_above_and_excludes_the_opposite(low in -10.0_f64..10.0, width in 0.0_f64..10.0) {
            let difference = between(low, low + width);
            let back = difference.affine(0.0, -1.0);
            if less(difference) == Holds::Yes {
                prop_assert_eq!(less(back), Holds::No);
                prop_assert_eq!(not_above(difference, 0.0), Holds::Yes);
            }
            prop_assert_eq!(alike(difference, 1.0), alike(back, 1.0));
        }
    }
}
