//! Verdicts: a function of the paper's value, the relation and our interval only.

use pilotlight_stats::Estimate;
use serde::{Deserialize, Serialize};

use super::claim::Relation;

/// Under this error, relative to `|paper - null|`, a number has the printed value.
pub const VALUE: f64 = 0.10;
/// Under this error it has the printed size.
pub const SIZE: f64 = 0.25;
/// The share of the pairs of an order that must hold.
pub const PAIRS: f64 = 0.90;

/// The verdict of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every tier that applies to it holds ([`Tiers`]).
    Reproduced,
    /// A number of the printed size, but not surely of the printed value.
    Size,
    /// A number on the printed side of no effect, but not surely of the printed size.
    Direction,
    /// Not the lowest tier that applies.
    Misses,
    /// The interval straddles the limit of the lowest tier.
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
    #[default]
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
    pub const OF_RESULTS: [Self; 12] = [
        Self::Reproduced,
        Self::Size,
        Self::Direction,
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

    /// Whether it follows from the tiers.
    #[must_use]
    pub const fn is_of_tiers(self) -> bool {
        matches!(self, Self::Reproduced | Self::Size | Self::Direction | Self::Misses | Self::Undecided)
    }

    /// Whether all that the row says holds, evidence or not.
    #[must_use]
    pub const fn is_reproduced(self) -> bool {
        matches!(self, Self::Reproduced | Self::Vacuous)
    }

    /// Its name in tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Size => "size",
            Self::Direction => "direction",
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

/// The three tiers of a statement, each with whether it holds; `None` where a tier does not apply.
///
/// *Direction*: an order of systems, or that a number is on the printed side of no effect. *Size*: a number within 25 %. *Value*: within 10 %;
/// a printed bound is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tiers {
    /// The direction.
    pub direction: Option<Holds>,
    /// The size.
    pub size: Option<Holds>,
    /// The value.
    pub value: Option<Holds>,
}

impl Tiers {
    /// The highest tier that holds. If none does, the lowest one decides.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let yes = |tier: Option<Holds>| tier == Some(Holds::Yes);
        let highest = self.value.or(self.size).or(self.direction);
        match self.direction.or(self.size).or(self.value) {
            _ if yes(highest) => Verdict::Reproduced,
            _ if yes(self.size) => Verdict::Size,
            _ if yes(self.direction) => Verdict::Direction,
            Some(Holds::No) => Verdict::Misses,
            Some(_) | None => Verdict::Undecided,
        }
    }

    /// Size and value of an error that lies within an interval, relative to `|paper - null|`.
    #[must_use]
    pub fn of_errors((best, worst): (f64, f64), is_bound: bool) -> Self {
        let below = |limit: f64| Some(holds(worst < limit, best >= limit));
        let value = if is_bound { Some(holds(worst <= 0.0, best > 0.0)) } else { below(VALUE) };
        Self { direction: None, size: below(SIZE), value }
    }

    /// The tiers of a number; `None` for relations without one.
    #[must_use]
    pub fn of_number(target: &Target, ours: Estimate) -> Option<Self> {
        let Target { relation, paper, null } = *target;
        let at = |value: f64| error(relation, paper, null, value);
        // the error is monotone on both sides of the paper's value
        let best = at(paper.clamp(ours.low, ours.high))?;
        let worst = at(ours.low)?.max(at(ours.high)?);
        let direction = null.filter(|none| *none != paper);
        // a bound that no effect meets has no direction
        let direction =
            direction.filter(|none| !relation.is_bound() || error(relation, paper, None, *none) != Some(0.0));
        let direction = direction.map(|none| match paper > none {
            true => holds(ours.low > none, ours.high <= none),
            false => holds(ours.high < none, ours.low >= none),
        });
        Some(Self { direction, ..Self::of_errors((best, worst), relation.is_bound()) })
    }

    /// The direction of an order: at least [`PAIRS`] of the pairs hold, and none is reversed beyond the margin.
    #[must_use]
    pub fn of_pairs(pairs: impl IntoIterator<Item = (Holds, bool)>) -> Self {
        let (mut all, mut yes, mut open, mut reversed) = (0_usize, 0_usize, 0_usize, false);
        for (holds, is_reversed) in pairs {
            all += 1;
            yes += usize::from(holds == Holds::Yes);
            open += usize::from(holds == Holds::Open);
            reversed |= is_reversed;
        }
        let enough = |count: usize| count as f64 >= PAIRS * all as f64;
        let direction =
            if all == 0 { Holds::Open } else { holds(enough(yes) && !reversed, reversed || !enough(yes + open)) };
        Self { direction: Some(direction), ..Self::default() }
    }
}

/// A printed number with its relation, and the value of a trivial policy: of no effect, if the claim states none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// The required relation.
    pub relation: Relation,
    /// The paper's value.
    pub paper: f64,
    /// The trivial policy's value.
    pub null: Option<f64>,
}

/// Error relative to `|paper - null|`; 0 if the relation holds. `None` for relations without a number.
#[must_use]
pub fn error(relation: Relation, paper: f64, null: Option<f64>, ours: f64) -> Option<f64> {
    let beyond = match relation {
        Relation::Eq | Relation::About | Relation::RangeLo | Relation::RangeHi => (ours - paper).abs(),
        Relation::Le => (ours - paper).max(0.0),
        Relation::Ge => (paper - ours).max(0.0),
        Relation::Order | Relation::Equivalent | Relation::Monotone => return None,
    };
    let scale = (paper - null.unwrap_or(0.0)).abs();
    Some(if beyond == 0.0 { 0.0 } else { beyond / scale })
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

    fn tiers(relation: Relation, paper: f64, null: Option<f64>, ours: Estimate) -> Tiers {
        Tiers::of_number(&Target { relation, paper, null }, ours).unwrap()
    }

    fn numeric(relation: Relation, paper: f64, null: Option<f64>, ours: Estimate) -> Verdict {
        tiers(relation, paper, null, ours).verdict()
    }

    fn eq(low: f64, high: f64) -> Verdict {
        numeric(Relation::Eq, 40.0, Some(0.0), between(low, high))
    }

    #[test]
    fn numbers_reach_a_tier_by_their_error() {
        assert_eq!(eq(37.0, 43.0), Verdict::Reproduced);
        assert_eq!(eq(31.0, 35.0), Verdict::Size);
        assert_eq!(eq(45.0, 49.0), Verdict::Size);
        assert_eq!(eq(10.0, 20.0), Verdict::Direction);
        assert_eq!(eq(60.0, 90.0), Verdict::Direction);
        assert_eq!(eq(-9.0, -5.0), Verdict::Misses);
        assert_eq!(eq(-5.0, 0.0), Verdict::Misses, "no effect is no direction");
    }

    #[test]
    fn an_interval_across_a_boundary_reaches_the_tier_below() {
        assert_eq!(eq(35.0, 37.0), Verdict::Size); // 36 is the boundary
        assert_eq!(eq(43.0, 45.0), Verdict::Size);
        assert_eq!(eq(28.0, 32.0), Verdict::Direction); // 30 parts size from direction
        assert_eq!(eq(31.0, 47.0), Verdict::Size);
        assert_eq!(eq(-5.0, 5.0), Verdict::Undecided);
        assert_eq!(eq(f64::NEG_INFINITY, f64::INFINITY), Verdict::Undecided);
        let open = tiers(Relation::Eq, 40.0, Some(0.0), between(28.0, 42.0));
        assert_eq!((open.direction, open.size, open.value), (Some(Holds::Yes), Some(Holds::Open), Some(Holds::Open)));
    }

    #[test]
    fn without_a_neutral_value_there_is_no_direction() {
        let alone = |low, high| tiers(Relation::Eq, 40.0, None, between(low, high));
        assert_eq!(alone(10.0, 20.0).direction, None);
        assert_eq!(alone(10.0, 20.0).verdict(), Verdict::Misses);
        assert_eq!(alone(29.0, 31.0).verdict(), Verdict::Undecided);
        let ratio = |ours| numeric(Relation::Eq, 1.2, Some(1.0), Estimate::exact(ours));
        assert_eq!(ratio(1.032), Verdict::Direction, "84 % of the effect are missing");
        assert_eq!(ratio(0.99), Verdict::Misses);
    }

    #[test]
    fn errors_are_relative_to_the_distance_from_the_trivial_value() {
        // paper: 3 times the latency of static polling, which is 1: 0.2 is a tenth of 2
        let ratio = |ours| numeric(Relation::Eq, 3.0, Some(1.0), Estimate::exact(ours));
        assert_eq!(ratio(2.81), Verdict::Reproduced);
        assert_eq!(ratio(2.79), Verdict::Size);
        assert_eq!(ratio(1.0), Verdict::Misses);
        assert_eq!(numeric(Relation::Eq, 1.0, Some(1.0), Estimate::exact(1.0)), Verdict::Reproduced);
        assert_eq!(numeric(Relation::Eq, 1.0, Some(1.0), Estimate::exact(1.1)), Verdict::Misses);
    }

    #[test]
    fn a_bound_is_kept_or_exceeded_by_a_quarter() {
        let le = |low, high| numeric(Relation::Le, 5.0, Some(0.0), between(low, high));
        assert_eq!(le(-100.0, 5.0), Verdict::Reproduced);
        assert_eq!(le(5.1, 6.0), Verdict::Size);
        assert_eq!(le(4.0, 6.0), Verdict::Size);
        assert_eq!(le(4.0, 7.0), Verdict::Undecided);
        assert_eq!(le(7.0, 9.0), Verdict::Misses);
        let ge = |low, high| numeric(Relation::Ge, 100.0, None, between(low, high));
        assert_eq!(ge(100.0, 1e9), Verdict::Reproduced);
        assert_eq!(ge(80.0, 99.0), Verdict::Size);
        assert_eq!(ge(10.0, 20.0), Verdict::Misses);
        // a bound that no effect misses has a direction: "at most 0.3 of it"
        assert_eq!(numeric(Relation::Le, 0.3, Some(1.0), between(0.6, 0.9)), Verdict::Direction);
        assert_eq!(numeric(Relation::Ge, 30.0, Some(0.0), between(1.0, 5.0)), Verdict::Direction);
    }

    #[test]
    fn the_ends_of_a_range_are_our_least_and_greatest_value() {
        let end = |relation, ours| numeric(relation, 11.0, Some(0.0), Estimate::exact(ours));
        for relation in [Relation::RangeLo, Relation::RangeHi] {
            assert_eq!(end(relation, 11.5), Verdict::Reproduced);
            assert_eq!(end(relation, 13.0), Verdict::Size, "a bound would be met by 99 as well");
            assert_eq!(end(relation, 99.0), Verdict::Direction);
        }
    }

    #[test]
    fn an_order_has_its_direction_with_nine_tenths_of_its_pairs() {
        let of = |yes: usize, open: usize, no: usize, reversed: usize| {
            let each = |count, holds, is_reversed| std::iter::repeat_n((holds, is_reversed), count);
            let no = each(no, Holds::No, false).chain(each(reversed, Holds::No, true));
            Tiers::of_pairs(each(yes, Holds::Yes, false).chain(each(open, Holds::Open, false)).chain(no)).verdict()
        };
        assert_eq!(of(9, 0, 1, 0), Verdict::Reproduced);
        assert_eq!(of(89, 0, 11, 0), Verdict::Misses);
        assert_eq!(of(89, 11, 0, 0), Verdict::Undecided);
        assert_eq!(of(99, 0, 0, 1), Verdict::Misses, "one is reversed");
        assert_eq!(of(1, 1, 0, 0), Verdict::Undecided);
        assert_eq!(of(0, 0, 1, 0), Verdict::Misses);
        assert_eq!(of(0, 0, 0, 0), Verdict::Undecided);
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
    }

    const NUMERIC: [Relation; 6] =
        [Relation::Eq, Relation::About, Relation::Le, Relation::Ge, Relation::RangeLo, Relation::RangeHi];

    proptest! {
        /// A narrower interval within another never contradicts it: a tier goes from open to anything, else stays.
        #[test]
        fn a_narrower_interval_refines_each_tier(
            which in 0_usize..6, paper in -50.0_f64..50.0, null in prop::option::of(-50.0_f64..50.0),
            ends in prop::array::uniform4(-100.0_f64..100.0),
        ) {
            let mut ends = ends;
            ends.sort_by(f64::total_cmp);
            let judge = |low, high| tiers(NUMERIC[which], paper, null, between(low, high));
            let (wide, narrow) = (judge(ends[0], ends[3]), judge(ends[1], ends[2]));
            for (wide, narrow) in [(wide.direction, narrow.direction), (wide.size, narrow.size), (wide.value, narrow.value)] {
                prop_assert!(wide == narrow || wide == Some(Holds::Open), "{wide:?} {narrow:?}");
            }
        }

        /// What has the value has the size, and what has the size has the direction.
        #[test]
        fn tiers_are_nested(
            which in 0_usize..6, paper in 1.0_f64..50.0, null in prop::option::of(-50.0_f64..0.99),
            ends in prop::array::uniform2(-100.0_f64..100.0),
        ) {
            let Tiers { direction, size, value } = tiers(NUMERIC[which], paper, null, between(ends[0].min(ends[1]), ends[0].max(ends[1])));
            prop_assert!(value != Some(Holds::Yes) || size == Some(Holds::Yes));
            prop_assert!(size != Some(Holds::Yes) || direction.is_none_or(|direction| direction == Holds::Yes));
        }

        /// An exact value is never undecided, and units do not matter.
        #[test]
        fn units_do_not_matter(
            which in 0_usize..6, paper in 1.0_f64..50.0, null in prop::option::of(-50.0_f64..0.0),
            ours in -100.0_f64..100.0, factor in prop::sample::select(vec![0.25, 0.5, 2.0, 1024.0]),
        ) {
            let judge = |scale: f64| {
                let ours = Estimate::exact(ours * scale);
                numeric(NUMERIC[which], paper * scale, null.map(|null| null * scale), ours)
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
