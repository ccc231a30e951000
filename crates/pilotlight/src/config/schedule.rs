//! A schedule of power budgets: a file of times and watts, as a utility or a power management system of the data centre sends them
//! (demand response).
//!
//! An entry a line, `TIME BUDGET`; `#` begins a comment. Either every TIME is a moment (`2026-11-23T18:00Z`) or every one a time of day
//! (`18:00Z`), which then repeats daily. An entry holds until the next one. BUDGET is a power, `off` for no
//! limit, or `default` for the budget of the configuration, which also holds before the first moment.

use std::fmt;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};

use super::moment::{DAY_S, format_moment, format_time_of_day, parse_moment, parse_time_of_day};
use super::power::{BudgetRequest, parse_budget_request};

/// Most entries: a year of quarter hours.
const MOST: usize = 366 * 96;

/// Budgets by time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// In the order of their times, each different.
    entries: Vec<Entry>,
    is_daily: bool,
}

/// A budget from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Seconds since 1970; in a daily schedule since midnight.
    pub(crate) at_s: u64,
    pub(crate) budget: BudgetRequest,
}

impl Schedule {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = crate::privileges::files::read_text(path);
        let text = text.map_err(|error| anyhow!("cannot read {}: {}", path.display(), super::cause(&error)))?;
        Self::parse(&text).map_err(|why| anyhow!("{}: {why}", path.display()))
    }

    /// Reads the text of a file; an error names the line.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut is_daily = None;
        for (number, line) in (1..).zip(text.lines()) {
            let written = line.split('#').next().unwrap_or("").trim_end();
            let line = written.trim_start();
            if line.is_empty() {
                continue;
            }
            let (entry, daily) = parse_line(line).map_err(|left| {
                let column = written.chars().count() - left.chars().count() + 1;
                anyhow!("line {number}, column {column}: {EXPECTED}")
            })?;
            if *is_daily.get_or_insert(daily) != daily {
                bail!("line {number}: moments and times of day cannot be mixed in one schedule");
            }
            if entries.iter().any(|other| other.at_s == entry.at_s) {
                bail!("line {number}: there is another entry for this time");
            }
            if entries.len() == MOST {
                bail!("line {number}: more than {MOST} entries");
            }
            entries.push(entry);
        }
        let is_daily = is_daily.context("there is no entry: write lines such as 18:00Z 300W")?;
        entries.sort_by_key(|entry| entry.at_s);
        Ok(Self { entries, is_daily })
    }

    /// The budget at a moment; `None` before the first entry.
    pub(crate) fn at(&self, now_s: u64) -> Option<BudgetRequest> {
        let now_s = if self.is_daily { now_s % DAY_S } else { now_s };
        let begun = self.entries.partition_point(|entry| entry.at_s <= now_s);
        let entry = match begun {
            0 if self.is_daily => self.entries.last(), // yesterday's
            0 => None,
            _ => self.entries.get(begun - 1),
        };
        entry.map(|entry| entry.budget)
    }

    /// The next entry after a moment, with its time in seconds since 1970.
    pub(crate) fn next(&self, now_s: u64) -> Option<Entry> {
        let today_s = if self.is_daily { now_s - now_s % DAY_S } else { 0 };
        let index = self.entries.partition_point(|entry| today_s + entry.at_s <= now_s);
        let next = self.entries.get(index).map(|entry| Entry { at_s: today_s + entry.at_s, ..*entry });
        let tomorrow = || self.entries.first().map(|entry| Entry { at_s: today_s + DAY_S + entry.at_s, ..*entry });
        next.or_else(|| self.is_daily.then(tomorrow).flatten())
    }
}

/// As it could be written.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = if self.is_daily { format_time_of_day } else { format_moment };
        self.entries.iter().try_for_each(|entry| writeln!(f, "{} {}", time(entry.at_s), entry.budget.text()))
    }
}

/// Not the line itself: the file may be another one than its reader thinks.
const EXPECTED: &str = "not an entry: write a time and a power, such as 2026-11-23T18:00Z 300W or 18:00Z off";

/// An entry, and whether its time is one of a day; or the part of the line that is wrong, to its end.
fn parse_line(line: &str) -> Result<(Entry, bool), &str> {
    let (time, budget) = line.split_once(char::is_whitespace).ok_or(line)?;
    let (at_s, is_daily) = parse_moment(time)
        .map(|at_s| (at_s, false))
        .or_else(|| parse_time_of_day(time).map(|at_s| (at_s, true)))
        .ok_or(line)?;
    let budget = budget.trim_start();
    Ok((Entry { at_s, budget: parse_budget_request(budget).map_err(|_| budget)? }, is_daily))
}

#[cfg(test)]
mod tests {
    use super::*;

    const W300: BudgetRequest = BudgetRequest::Power(300_000_000);

    /// `300W from 2026-11-23T18:00Z`.
    fn from(entry: Entry) -> String {
        format!("{} from {}", entry.budget.text(), format_moment(entry.at_s))
    }

    fn s(text: &str) -> u64 {
        parse_moment(text).unwrap()
    }

    #[test]
    fn entries_apply_until_the_next_and_the_last_forever() {
        let text =
            "# an event\n2026-11-23T20:00Z default\n2026-11-23T19:00+01:00 300W # 18:00Z\n\n2026-11-23T19:00Z off\n";
        let schedule = Schedule::parse(text).unwrap();
        let at = |text| schedule.at(s(text));
        assert_eq!(at("2026-11-23T17:59:59Z"), None);
        assert_eq!(at("2026-11-23T18:00Z"), Some(W300));
        assert_eq!(at("2026-11-23T19:30Z"), Some(BudgetRequest::Off));
        assert_eq!(at("2030-01-01T00:00Z"), Some(BudgetRequest::Default));
        let next = |text| schedule.next(s(text)).map(from);
        assert_eq!(next("2026-11-23T00:00Z").as_deref(), Some("300W from 2026-11-23T18:00Z"));
        assert_eq!(next("2026-11-23T18:00Z").as_deref(), Some("off from 2026-11-23T19:00Z"));
        assert_eq!(next("2026-11-23T20:00Z"), None);
        assert_eq!(Schedule::parse(&schedule.to_string()).unwrap(), schedule);
    }

    #[test]
    fn times_of_day_repeat() {
        let schedule = Schedule::parse("06:00Z off\n18:00Z 300W\n").unwrap();
        let at = |text| schedule.at(s(text));
        assert_eq!(at("2026-11-23T05:00Z"), Some(W300), "of the evening before");
        assert_eq!(at("2026-11-23T06:00Z"), Some(BudgetRequest::Off));
        assert_eq!(at("2026-11-23T23:59Z"), Some(W300));
        let next = |text| schedule.next(s(text)).map(from);
        assert_eq!(next("2026-11-23T06:00Z").as_deref(), Some("300W from 2026-11-23T18:00Z"));
        assert_eq!(next("2026-11-23T18:00Z").as_deref(), Some("off from 2026-11-24T06:00Z"));
    }

    #[test]
    fn an_error_names_the_place_and_quotes_nothing() {
        for (text, why) in [
            ("", "no entry"),
            ("# nothing\n", "no entry"),
            ("18:00Z 300W\nsix 300W", "line 2, column 1: not an entry"),
            ("18:00Z", "line 1, column 1: not an entry"),
            ("18:00 300W", "line 1"),
            (" 18:00Z  300 # ü", "line 1, column 10: not an entry"),
            ("18:00Z 300W\n19:00+01:00 200W", "line 2: there is another entry"),
            ("18:00Z 300W\n2026-11-23T18:00Z 300W", "line 2: moments and times of day"),
        ] {
            let error = Schedule::parse(text).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("six") && !error.contains("300 "), "{text:?}: {error}");
        }
    }
}
