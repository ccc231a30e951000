//! Metrics of a power budget, by true power.
//!
//! *Power* is the mean of the last second or since the last change of the budget, because a quota of CPU time makes power alternate within its
//! period. *Limit*: the budget plus 2 % (PASS 3.3). *Violated*: above the limit for longer than 10 s; the paper then shows no result (section 5).
//! *Above the budget* counts from the first second that is not above the limit (a step down starts above it), or from the step if there is none,
//! and as a power meter of the server's steps shows it. All but [`Kept::within`], [`Kept::deviation`] and [`Kept::spread_w`] are of the whole run including the warm-up.

use pilotlight_sim::outcome::Stretch;

use super::{Context, Metric, push};
use crate::simulated::experiment::goals;

/// Tolerance of the limit, as a fraction of the budget.
const LIMIT: f64 = 0.02;
/// Maximum tolerated time above the limit, in seconds (PASS 5).
const TOLERATED_S: f64 = 10.0;
/// Averaging time of power, in nanoseconds.
const MEAN_NS: u64 = 1_000_000_000;

/// The metrics of a budget.
#[derive(Clone, Debug, Default, PartialEq)]
struct Kept {
    /// The longest time above the budget since the first second not above the limit, in seconds, with the largest excess in it as a fraction.
    above: (f64, f64),
    /// The longest time above the limit, with the largest excess.
    above_limit: (f64, f64),
    /// Fraction of the measured time within the limit on both sides.
    within: f64,
    /// Largest relative deviation from the budget, later than 10 s after the start and each change.
    deviation: f64,
    /// Standard deviation of power minus budget, in watts.
    spread_w: f64,
    /// Start of each budget in nanoseconds, and seconds until power was within the limit on both sides for a second, otherwise until the
    /// next budget or the end.
    settled: Vec<(u64, f64)>,
}

/// A bin of the series: its end, power and budget in watts.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Entry {
    end_ns: u64,
    power_w: f64,
    budget_w: f64,
}

impl Entry {
    fn error(self) -> f64 {
        self.power_w / self.budget_w - 1.0
    }
}

/// Adds the metrics of the budget, if any; returns whether it was violated.
pub(super) fn metrics(series: &[Stretch], context: &Context<'_>, all: &mut Vec<Metric>) -> bool {
    let Some(kept) = kept(series, context) else { return false };
    let Kept { above, above_limit, within, deviation, spread_w, settled } = kept;
    push(all, "above_budget_s", above.0);
    push(all, "above_budget_percent", 100.0 * above.1);
    push(all, "above_limit_s", above_limit.0);
    push(all, "above_limit_percent", 100.0 * above_limit.1);
    push(all, "within_limit_share", within);
    push(all, "deviation_percent", 100.0 * deviation);
    push(all, "budget_spread_w", spread_w);
    let changes = settled.iter().filter(|(at_ns, _)| *at_ns > 0).map(|(_, after_s)| *after_s);
    changes.max_by(f64::total_cmp).into_iter().for_each(|longest| push(all, "settle_s", longest));
    settled.iter().for_each(|(at_ns, after_s)| push(all, &format!("settle_s@{}ms", at_ns / 1_000_000), *after_s));
    above_limit.0 > TOLERATED_S
}

fn kept(series: &[Stretch], context: &Context<'_>) -> Option<Kept> {
    let length_ns = context.experiment.series.0;
    let budgets = goals::budgets(context.experiment);
    let entries = entries(series, length_ns, &budgets);
    if entries.is_empty() {
        return None;
    }
    let measured: Vec<Entry> = entries.iter().filter(|entry| entry.end_ns > context.warm_up_ns).copied().collect();
    let count = measured.len() as f64;
    let within = measured.iter().filter(|entry| entry.error().abs() <= LIMIT).count() as f64 / count;
    let late = |entry: &&Entry| {
        let since_ns = begin_ns(&budgets, entry.end_ns - length_ns);
        (entry.end_ns - since_ns) as f64 > TOLERATED_S * 1e9
    };
    let deviation = measured.iter().filter(late).map(|entry| entry.error().abs()).max_by(f64::total_cmp);
    let mean_w = measured.iter().map(|entry| entry.power_w - entry.budget_w).sum::<f64>() / count;
    let squares = measured.iter().map(|entry| (entry.power_w - entry.budget_w - mean_w).powi(2)).sum::<f64>();
    let step_w = context
        .experiment
        .sensors
        .and_then(|sensors| sensors.server)
        .map_or(0.0, |meter| f64::from(meter.step_mw) / 1e3);
    let shown = |entry: &Entry| Entry { power_w: to_steps(entry.power_w, step_w), ..*entry };
    let reached = first_seconds(&entries, &budgets, length_ns, |entry| entry.error() <= LIMIT);
    let is_late = |entry: &&Entry| {
        let since_ns = begin_ns(&budgets, entry.end_ns - length_ns);
        let after_ns = reached.iter().find(|(from_ns, _)| *from_ns == since_ns).and_then(|(_, after_ns)| *after_ns);
        entry.end_ns - since_ns > after_ns.unwrap_or(0)
    };
    let late: Vec<Entry> = entries.iter().filter(is_late).map(shown).collect();
    Some(Kept {
        above: longest(&late, 0.0, length_ns),
        above_limit: longest(&entries, LIMIT, length_ns),
        within,
        deviation: deviation.unwrap_or(f64::NAN),
        spread_w: (squares / count).sqrt(),
        settled: settled(&entries, &budgets, length_ns),
    })
}

/// Rounded to a meter's steps.
fn to_steps(power_w: f64, step_w: f64) -> f64 {
    if step_w > 0.0 { (power_w / step_w).round() * step_w } else { power_w }
}

/// Power and budget of each bin with a budget.
fn entries(series: &[Stretch], length_ns: u64, budgets: &[(u64, Option<u64>)]) -> Vec<Entry> {
    let whole = (MEAN_NS / length_ns).max(1);
    let entry = |at: usize| {
        let begin = at as u64 * length_ns;
        let (since_ns, budget_uw) = budgets.iter().rev().find(|(from_ns, _)| *from_ns <= begin)?;
        let first = (at as u64 + 1).saturating_sub(whole).max(since_ns.div_ceil(length_ns)) as usize;
        let energy_uj: u64 = series[first..=at].iter().map(|stretch| stretch.energy.system_uj()).sum();
        let seconds = (at + 1 - first) as f64 * length_ns as f64 / 1e9;
        Some(Entry {
            end_ns: begin + length_ns,
            power_w: energy_uj as f64 / 1e6 / seconds,
            budget_w: (*budget_uw)? as f64 / 1e6,
        })
    };
    (0..series.len()).filter_map(entry).collect()
}

/// Start of the budget at a time.
fn begin_ns(budgets: &[(u64, Option<u64>)], now_ns: u64) -> u64 {
    budgets.iter().rev().map(|(from_ns, _)| *from_ns).find(|from_ns| *from_ns <= now_ns).unwrap_or(0)
}

/// The longest time above the budget by more than a fraction, in seconds, with the largest relative excess; of equally long ones the last.
fn longest(entries: &[Entry], by: f64, length_ns: u64) -> (f64, f64) {
    let (mut longest, mut open) = ((0_u64, 0.0), (0_u64, 0.0_f64));
    let mut before_ns = None;
    for entry in entries {
        let is_next = before_ns.replace(entry.end_ns).is_none_or(|end_ns| entry.end_ns == end_ns + length_ns);
        if entry.error() <= by || !is_next {
            open = (0, 0.0);
        }
        if entry.error() > by {
            open = (open.0 + length_ns, open.1.max(entry.error()));
            longest = if open.0 >= longest.0 { open } else { longest };
        }
    }
    (longest.0 as f64 / 1e9, longest.1)
}

/// Start of each budget, and how long after it the first second ended whose bins all hold, in nanoseconds.
fn first_seconds(
    entries: &[Entry],
    budgets: &[(u64, Option<u64>)],
    length_ns: u64,
    holds: impl Fn(&Entry) -> bool,
) -> Vec<(u64, Option<u64>)> {
    let whole = (MEAN_NS / length_ns).max(1) as usize;
    let of = |&(from_ns, _): &(u64, Option<u64>)| {
        let own: Vec<&Entry> = bins_of_budget(entries, budgets, length_ns, from_ns).collect();
        let first = own.windows(whole).find(|second| second.iter().all(|entry| holds(entry)));
        (from_ns, first.and_then(|second| second.first()).map(|entry| entry.end_ns - from_ns))
    };
    budgets.iter().map(of).collect()
}

/// The bins of the budget that starts at `from_ns`.
fn bins_of_budget<'a>(
    entries: &'a [Entry],
    budgets: &'a [(u64, Option<u64>)],
    length_ns: u64,
    from_ns: u64,
) -> impl Iterator<Item = &'a Entry> {
    let is_own = move |entry: &&Entry| entry.end_ns > from_ns && begin_ns(budgets, entry.end_ns - length_ns) == from_ns;
    entries.iter().filter(is_own)
}

fn settled(entries: &[Entry], budgets: &[(u64, Option<u64>)], length_ns: u64) -> Vec<(u64, f64)> {
    let within = first_seconds(entries, budgets, length_ns, |entry| entry.error().abs() <= LIMIT);
    let of = |(from_ns, after_ns): (u64, Option<u64>)| {
        let last_ns = bins_of_budget(entries, budgets, length_ns, from_ns).last()?.end_ns - from_ns;
        Some((from_ns, after_ns.unwrap_or(last_ns) as f64 / 1e9))
    };
    within.into_iter().filter_map(of).collect()
}

/// The machine's power reading at the end of each bin: the mean of the last window that ended at least the lag before.
pub(super) fn reading_w(series: &[Stretch], at: usize, length_ns: u64, (window_ns, lag_ns): (u64, u64)) -> Option<f64> {
    let now_ns = (at as u64 + 1) * length_ns;
    let end_ns = now_ns.checked_sub(lag_ns)? / window_ns * window_ns;
    let first = end_ns.checked_sub(window_ns)? / length_ns;
    let entries = series.get(first as usize..(end_ns / length_ns) as usize).filter(|entries| !entries.is_empty())?;
    let energy_uj: u64 = entries.iter().map(|stretch| stretch.energy.system_uj()).sum();
    Some(energy_uj as f64 * 1e3 / (entries.len() as u64 * length_ns) as f64)
}

#[cfg(test)]
mod tests;
