//! Minimum energy of any schedule, by dynamic programming over counts of cores.
//!
//! A *level* is `(awake, not deep)`: the numbers of cores that are awake (working or polling) and not in the deep state throughout a slot. [`super`]
//! explains why every schedule has a path of levels that costs no more. This module computes the cost of a path.
//!
//! **A slot**, under one line of prices: `length x (base + awake x held + not_deep x held) + work x done`. If the level is exactly what the work
//! needs, the awake time is that of the work and not a whole number of cores: the last core may sleep in between, and its wake-ups within the slot
//! are free. Each line is a bound, so the maximum over all lines of a family applies.
//!
//! **Between slots**, each additional awake core costs a wake-up from the shallow state, and each additional core that is not deep costs the extra of
//! waking from the deep state. Both depend on one count each, so the minimum over all transitions takes two passes along each axis: a slot takes as
//! many steps as there are levels.
//!
//! **Work.** The work done in a slot is at least the work due by its end minus the most that can be done before its beginning, and at most the work
//! arrived by its end minus the work due by its beginning. Over all slots it sums to the work due by the end; that sum has its own price (a Lagrange
//! multiplier; every value yields a bound, several are tried).

use super::OracleError;
use super::demand::{Span, WorkBounds};
use super::limits::{LONGEST_NS, Limits, PPM};
use super::prices::{Family, Prices, families};

/// Numbers of cores held throughout a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Cores awake.
    pub awake: u16,
    /// Cores that are awake or in the shallow state.
    pub not_deep: u16,
}

/// A bound and the path that attains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Lower bound on the energy of any schedule, in femtojoules (microwatts times nanoseconds).
    pub least_fj: i128,
    /// Level of each span on the cheapest path.
    pub levels: Vec<Level>,
}

/// Minimum and maximum work of a slot, in nanoseconds of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) length_ns: u64,
    pub(crate) least_ns: u64,
    pub(crate) most_ns: u64,
}

/// Minimum and maximum work of each span.
pub(crate) fn works(plan: &WorkBounds) -> Vec<Work> {
    let mut before = plan.before;
    let each = |span: &Span| {
        let least_ns = span.least_ns.saturating_sub(before.most_ns);
        let most_ns = span.most_ns.saturating_sub(before.least_ns).max(least_ns);
        before = *span;
        Work { length_ns: span.length_ns, least_ns, most_ns }
    };
    plan.spans.iter().map(each).collect()
}

/// Lower bound on the energy of any schedule.
///
/// # Errors
/// If the cores cannot do the work at any energy.
pub fn lower_bound(all_limits: &[Limits], plan: &WorkBounds) -> Result<Bound, OracleError> {
    let works = works(plan);
    if works.iter().any(|work| work.length_ns > LONGEST_NS) {
        return Err(OracleError::LongSlot);
    }
    let due_ns = i128::from(plan.due_ns());
    let mut best = Best::default();
    for limits in all_limits {
        let families = families(limits);
        let program = |family: &Family, total_uw| {
            let family = family.clone();
            Program { limits: *limits, family, total_uw, due_ns, works: &works }
        };
        for total_uw in totals(limits, &families[0]) {
            best.try_out(program(&families[0], total_uw))?;
        }
        for family in &families[1..] {
            let total_uw = best.program.as_ref().map_or(0, |program| program.total_uw);
            best.try_out(program(family, total_uw))?;
        }
    }
    let program = best.program.ok_or(OracleError::NoSlots)?;
    Ok(Bound { least_fj: best.fj, levels: program.path()? })
}

/// The largest bound so far.
#[derive(Default)]
struct Best<'a> {
    fj: i128,
    program: Option<Program<'a>>,
}

impl<'a> Best<'a> {
    fn try_out(&mut self, program: Program<'a>) -> Result<(), OracleError> {
        let fj = program.least_fj()?;
        if self.program.is_none() || fj > self.fj {
            (self.fj, self.program) = (fj, Some(program));
        }
        Ok(())
    }
}

/// Prices of total work to try: the cost of a core's worth of work under one of the lines.
fn totals(limits: &Limits, family: &Family) -> Vec<i128> {
    let alone_ppm = i128::from(limits.alone_ppm);
    let each = |prices: &Prices| prices.work_uw + prices.awake_uw * i128::from(PPM) / alone_ppm;
    let mut totals: Vec<i128> = family.prices.iter().map(each).chain([0]).collect();
    totals.sort_unstable();
    totals.dedup();
    totals
}

const NEVER: i128 = i128::MAX / 4;

/// One dynamic program: one family of lines, one price of total work.
#[derive(Clone, Debug)]
pub(crate) struct Program<'a> {
    pub(crate) limits: Limits,
    pub(crate) family: Family,
    pub(crate) total_uw: i128,
    pub(crate) due_ns: i128,
    pub(crate) works: &'a [Work],
}

/// Cost of a slot by awake count, under the lines that share one price for cores that are not deep.
struct Row {
    not_deep_uw: i128,
    held: Vec<i128>,
    tight: Vec<i128>,
}

impl Program<'_> {
    /// The resulting bound.
    pub(crate) fn least_fj(&self) -> Result<i128, OracleError> {
        let mut values = Vec::new();
        self.run(|slot, now| {
            if slot + 1 == self.works.len() {
                values = now.to_vec();
            }
        })?;
        let least = values.iter().min().copied().ok_or(OracleError::NoSlots)?;
        Ok(least + self.total_uw * self.due_ns)
    }

    /// The levels of the cheapest path.
    fn path(&self) -> Result<Vec<Level>, OracleError> {
        let mut history: Vec<Vec<i128>> = Vec::new();
        self.run(|_, now| history.push(now.to_vec()))?;
        let mut levels = Vec::with_capacity(history.len());
        let mut at = cheapest(&history[history.len() - 1], |_| 0);
        for slot in (0..history.len()).rev() {
            levels.push(self.level(at));
            if let Some(before) = slot.checked_sub(1) {
                let step = self.wakes_fj(slot);
                at = cheapest(&history[before], |from| self.climb_fj(step, self.level(from), self.level(at)));
            }
        }
        levels.reverse();
        Ok(levels)
    }

    /// Calls `each` with every slot and the costs of reaching each level at its end.
    fn run(&self, mut each: impl FnMut(usize, &[i128])) -> Result<(), OracleError> {
        let mut values = vec![0; self.width() * self.height()];
        let mut costs = values.clone();
        for (slot, work) in self.works.iter().enumerate() {
            self.slot_costs(work, &mut costs);
            if costs.iter().all(|&cost| cost >= NEVER) {
                return Err(OracleError::TooMuch { slot });
            }
            self.climb(&mut values, self.wakes_fj(slot));
            values.iter_mut().zip(&costs).for_each(|(value, cost)| *value = (*value + cost).min(NEVER));
            each(slot, &values);
        }
        Ok(())
    }

    /// Number of levels of awake cores.
    fn height(&self) -> usize {
        usize::from(self.limits.cores()) + 1
    }

    /// Number of levels of cores that are not deep.
    fn width(&self) -> usize {
        if self.limits.states.deep { self.height() } else { 1 }
    }

    fn level(&self, at: usize) -> Level {
        let awake = (at / self.width()) as u16;
        let not_deep = if self.limits.states.deep { (at % self.width()) as u16 } else { self.limits.cores() };
        Level { awake, not_deep }
    }

    /// Minimum energy, since the start of the measured time, of a core that wakes between the beginning of the previous slot and the end of this one:
    /// from the shallow state, and the extra from the deep state.
    pub(crate) fn wakes_fj(&self, slot: usize) -> (i128, i128) {
        let before = &self.works[..slot.saturating_sub(1)];
        let since_ns: u64 = before.iter().take(1_000).map(|work| work.length_ns).sum();
        let spent = |uw: i128, exit_ns: u64| uw * i128::from(exit_ns.min(since_ns));
        let deep = spent(self.family.wake_deep_uw, self.limits.deep_exit_ns);
        let shallow = spent(self.family.wake_shallow_uw, self.limits.shallow_exit_ns).min(deep);
        (shallow, deep - shallow)
    }

    pub(crate) fn climb_fj(&self, (shallow, deep): (i128, i128), from: Level, to: Level) -> i128 {
        let up = |from: u16, to: u16| i128::from(to.saturating_sub(from));
        shallow * up(from.awake, to.awake) + deep * up(from.not_deep, to.not_deep)
    }

    /// Updates the cost of each level with transitions from all other levels.
    fn climb(&self, values: &mut [i128], (shallow, deep): (i128, i128)) {
        let (width, all) = (self.width(), values.len());
        for at in width..all {
            values[at] = values[at].min(values[at - width] + shallow);
        }
        for at in (0..all - width).rev() {
            values[at] = values[at].min(values[at + width]);
        }
        for row in values.chunks_exact_mut(width) {
            for at in 1..width {
                row[at] = row[at].min(row[at - 1] + deep);
            }
            for at in (0..width - 1).rev() {
                row[at] = row[at].min(row[at + 1]);
            }
        }
    }

    /// Cost of each level in a slot.
    fn slot_costs(&self, work: &Work, costs: &mut [i128]) {
        costs.fill(NEVER);
        let Some(needed) = self.limits.needed(work.least_ns, work.length_ns) else { return };
        let rows = self.rows(work);
        let first = usize::from(needed.max(self.limits.min_awake())) * self.width();
        for (at, cost) in costs.iter_mut().enumerate().skip(first) {
            let Level { awake, not_deep } = self.level(at);
            if not_deep == awake && self.limits.states.deep {
                *cost = self.level_fj(work, self.level(at));
            } else if not_deep >= awake {
                *cost = level_of_rows(&rows, work.length_ns, awake, not_deep);
            }
        }
    }

    fn rows(&self, work: &Work) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        let height = self.height();
        for prices in &self.family.prices {
            let known = rows.iter().position(|row| row.not_deep_uw == prices.not_deep_uw);
            let place = known.unwrap_or_else(|| {
                let nothing = vec![-NEVER; height];
                rows.push(Row { not_deep_uw: prices.not_deep_uw, held: nothing.clone(), tight: nothing });
                rows.len() - 1
            });
            let row = &mut rows[place];
            for awake in self.limits.min_awake()..height as u16 {
                let at = usize::from(awake);
                row.held[at] = row.held[at].max(self.held_fj(prices, work, awake));
                row.tight[at] = row.tight[at].max(self.tight_fj(prices, work, awake, None));
            }
        }
        rows
    }

    /// Cost of a level in a slot: maximum over lines, minimum of the held and the tight cost.
    pub(crate) fn level_fj(&self, work: &Work, level: Level) -> i128 {
        let Level { awake, not_deep } = level;
        let length = i128::from(work.length_ns);
        let resting = |prices: &Prices| prices.not_deep_uw * i128::from(not_deep) * length;
        let dearest = |cost: &dyn Fn(&Prices) -> i128| self.family.prices.iter().map(cost).max().unwrap_or(NEVER);
        let package = |prices: &Prices| if not_deep == 0 { prices.package_uw * length } else { 0 };
        let held = dearest(&|prices| self.held_fj(prices, work, awake) + resting(prices) - package(prices));
        let tight = if not_deep == awake && self.limits.states.deep {
            dearest(&|prices| self.tight_fj(prices, work, awake, Some(prices.not_deep_uw)))
        } else {
            dearest(&|prices| self.tight_fj(prices, work, awake, None) + resting(prices))
        };
        let least = held.min(tight);
        if least > NEVER / 2 { NEVER } else { least }
    }

    /// Cost of `awake` cores held awake, without cores that are not deep; the package is on.
    fn held_fj(&self, prices: &Prices, work: &Work, awake: u16) -> i128 {
        let most = self.limits.capacity_ns(awake, work.length_ns).min(work.most_ns);
        if most < work.least_ns {
            return NEVER;
        }
        let margin = prices.work_uw - self.total_uw;
        let done = if margin >= 0 { work.least_ns } else { most };
        let each_ns = prices.base_uw + prices.package_uw + prices.awake_uw * i128::from(awake);
        i128::from(work.length_ns) * each_ns + margin * i128::from(done)
    }

    /// Cost if the work needs exactly `awake` cores. `also`: price per core if the awake cores are the only ones not deep.
    fn tight_fj(&self, prices: &Prices, work: &Work, awake: u16, also: Option<i128>) -> i128 {
        if awake <= self.limits.min_awake() {
            return NEVER;
        }
        if work.most_ns * PPM <= self.limits.capacity_ppm(awake - 1) * work.length_ns {
            return NEVER;
        }
        let least = self.limits.capacity_ns(awake - 1, work.length_ns).max(work.least_ns);
        let most = self.limits.capacity_ns(awake, work.length_ns).min(work.most_ns);
        if most < least {
            return NEVER;
        }
        let length = i128::from(work.length_ns);
        let cost = |done: u64| {
            let awake_ns = self.limits.awake_for(done, work.length_ns);
            let package_ns = awake_ns / u64::from(self.limits.cores());
            let awake_ns = i128::from(awake_ns);
            let shared = match also {
                Some(not_deep_uw) => not_deep_uw * awake_ns + prices.package_uw * i128::from(package_ns),
                None => prices.package_uw * length,
            };
            (prices.work_uw - self.total_uw) * i128::from(done) + prices.awake_uw * awake_ns + shared
        };
        length * prices.base_uw + cost(least).min(cost(most))
    }
}

fn level_of_rows(rows: &[Row], length_ns: u64, awake: u16, not_deep: u16) -> i128 {
    let at = usize::from(awake);
    let resting = |row: &Row| row.not_deep_uw * i128::from(length_ns) * i128::from(not_deep);
    let dearest = |cost: &dyn Fn(&Row) -> i128| rows.iter().map(|row| cost(row) + resting(row)).max().unwrap_or(NEVER);
    dearest(&|row| row.held[at]).min(dearest(&|row| row.tight[at])).min(NEVER)
}

fn cheapest(values: &[i128], beyond: impl Fn(usize) -> i128) -> usize {
    (0..values.len()).min_by_key(|&at| values[at] + beyond(at)).unwrap_or(0)
}
