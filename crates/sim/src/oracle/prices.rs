//! Linear lower bounds on the power of every arrangement of cores.
//!
//! For every arrangement, a [`Prices`] satisfies `power >= base + work x capacity + awake x (cores awake) + not_deep x (cores not deep)`, and a
//! waking core adds at least [`Prices::wake_shallow_uw`] or [`Prices::wake_deep_uw`] although it does no work and still counts as asleep. `base` is
//! the minimum over all states of a unit, so any other three prices are valid; those tried here are the slopes of the minimum power over capacity and
//! over cores awake, at which the line touches.
//!
//! **Validity of the waking prices.** In the power model, a waking core counts as awake. Let `second` be the capacity that the second core of a unit
//! adds. Of two awake cores, one that wakes and does no work leaves a capacity of at most `both - second`, so the line remains a lower bound with
//! `awake + second x work`; two that wake together, or one alone, leave more slack because `both <= 2 alone`. A core that wakes from the deep state
//! counts as deep, so its share `not_deep` is added.

use super::limits::{self, Limits};

const PPM: i128 = limits::PPM as i128;

/// Prices in microwatts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prices {
    /// Constant part.
    pub(crate) base_uw: i128,
    /// While any unit is not deep, if that is not always so.
    pub(crate) package_uw: i128,
    /// For a core's worth of work.
    pub(crate) work_uw: i128,
    /// For each awake core.
    pub(crate) awake_uw: i128,
    /// For each core that is not deep.
    pub(crate) not_deep_uw: i128,
    /// For each core that wakes from the shallow state.
    pub(crate) wake_shallow_uw: i128,
    /// For each core that wakes from the deep state.
    pub(crate) wake_deep_uw: i128,
}

/// Prices of which the best applies in each slot, and the common cost of a wake-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) prices: Vec<Prices>,
    pub(crate) wake_shallow_uw: i128,
    pub(crate) wake_deep_uw: i128,
}

/// One state of a unit: cores awake, cores not deep.
type UnitState = (i128, i128);

/// Every state of a unit of one or two cores.
fn unit_states(limits: &Limits, cores: i128, least_awake: i128) -> Vec<UnitState> {
    let least_not_deep = |awake: i128| if limits.states.deep { awake } else { cores };
    (least_awake..=cores)
        .flat_map(|awake| (least_not_deep(awake)..=cores).map(move |not_deep| (awake, not_deep)))
        .collect()
}

pub(crate) fn unit_uw(limits: &Limits, (awake, not_deep): UnitState) -> i128 {
    let power = &limits.power;
    let rests = if not_deep > 0 { power.not_deep_uw } else { 0 };
    let polls = [0, power.alone_uw, power.both_uw][awake as usize];
    i128::from(rests) + i128::from(polls)
}

pub(crate) fn unit_ppm(limits: &Limits, awake: i128) -> i128 {
    [0, i128::from(limits.alone_ppm), i128::from(limits.both_ppm)][awake as usize]
}

/// `(work, awake, not_deep)` as lines under `limits`.
pub(crate) fn line(limits: &Limits, work_uw: i128, awake_uw: i128, not_deep_uw: i128) -> Prices {
    let least = |cores, least_awake| {
        let over = |state: UnitState| {
            let work = (work_uw * unit_ppm(limits, state.0) + PPM - 1) / PPM;
            unit_uw(limits, state) - work - awake_uw * state.0 - not_deep_uw * state.1
        };
        unit_states(limits, cores, least_awake).into_iter().map(over).min().unwrap_or(0)
    };
    let main = i128::from(limits.min_awake());
    let (main_pairs, main_singles) = if limits.main_paired { (main, 0) } else { (0, main) };
    let always = limits.min_awake() > 0 || !limits.states.deep;
    let package = i128::from(limits.power.package_uw);
    let second = i128::from(limits.both_ppm) - i128::from(limits.alone_ppm);
    let wake_shallow_uw = awake_uw + work_uw * second / PPM;
    Prices {
        base_uw: i128::from(limits.power.fixed_uw)
            + if always { package } else { 0 }
            + (i128::from(limits.pairs) - main_pairs) * least(2, 0)
            + (i128::from(limits.singles) - main_singles) * least(1, 0)
            + main_pairs * least(2, 1)
            + main_singles * least(1, 1),
        package_uw: if always { 0 } else { package },
        work_uw,
        awake_uw,
        not_deep_uw,
        wake_shallow_uw,
        wake_deep_uw: wake_shallow_uw + not_deep_uw,
    }
}

/// Lines that touch the minimum power at different points.
pub(crate) fn lines(limits: &Limits) -> Vec<Prices> {
    let power = &limits.power;
    let (alone, both) = (i128::from(power.alone_uw), i128::from(power.both_uw));
    let (alone_ppm, both_ppm) = (i128::from(limits.alone_ppm), i128::from(limits.both_ppm));
    let second_ppm = (both_ppm - alone_ppm).max(1);
    let mut slopes = vec![(0, 0), (alone * PPM / alone_ppm, 0), (0, alone)];
    if limits.pairs > 0 {
        slopes.extend([
            (both * PPM / both_ppm, 0),
            ((both - alone) * PPM / second_ppm, 0),
            (0, both / 2),
            (0, both - alone),
        ]);
    }
    slopes.sort_unstable();
    slopes.dedup();
    let rests = i128::from(power.not_deep_uw);
    let not_deep = match (limits.states.deep, limits.pairs, limits.singles) {
        (false, ..) => vec![0],
        (true, 0, _) => vec![0, rests],
        (true, _, 0) => vec![0, rests / 2],
        (true, ..) => vec![0, rests / 2, rests],
    };
    let all = not_deep.iter().flat_map(|&not_deep| slopes.iter().map(move |&(work, awake)| (work, awake, not_deep)));
    all.map(|(work, awake, not_deep)| line(limits, work, awake, not_deep)).collect()
}

/// Families, from all lines to only those with a high waking price: more lines approximate the power of a count more closely, but lower the price of
/// wake-ups.
pub(crate) fn families(limits: &Limits) -> Vec<Family> {
    let all = lines(limits);
    let dear = |prices: &Prices| prices.wake_deep_uw;
    let mut thresholds: Vec<i128> = all.iter().map(dear).collect();
    thresholds.sort_unstable();
    thresholds.dedup();
    let pick = [0, thresholds.len() / 3, thresholds.len() * 2 / 3, thresholds.len() - 1];
    let mut families: Vec<Family> = pick
        .iter()
        .map(|&place| all.iter().filter(|prices| dear(prices) >= thresholds[place]).copied().collect::<Vec<_>>())
        .map(|prices| Family {
            wake_shallow_uw: prices.iter().map(|prices| prices.wake_shallow_uw).min().unwrap_or(0),
            wake_deep_uw: prices.iter().map(|prices| prices.wake_deep_uw).min().unwrap_or(0),
            prices,
        })
        .collect();
    families.dedup();
    families
}
