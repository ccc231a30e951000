//! All assessments with their counts.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::claim::Relation;
use super::lab::{Assessment, Lab};
use super::results::Stamp;
use super::verdict::Verdict;

/// The assessments of all claims.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Results by seed and verdict, if meeting them is evidence.
    pub results: BTreeMap<String, Counts>,
    /// The same for bounds that a trivial policy meets too.
    pub no_evidence: BTreeMap<String, Counts>,
    /// Calibrated results that miss nevertheless, by seed.
    pub fitted_misses: BTreeMap<String, usize>,
    /// Inputs, by seed and verdict.
    pub given: BTreeMap<String, Counts>,
    /// Overridden results, by the overriding and the original verdict.
    pub overruled: BTreeMap<Verdict, Counts>,
    /// Profiles of the results.
    pub profiles: Vec<Stamp>,
    /// Members of the power family that some experiments lack, with those experiments.
    pub missing_members: BTreeMap<String, Vec<String>>,
    /// Rows of the map without a claim.
    pub unused: Vec<String>,
    /// Every claim.
    pub rows: Vec<Assessment>,
}

/// Rows by verdict.
pub type Counts = BTreeMap<Verdict, usize>;

impl Report {
    /// Assesses every claim; with `seed`, only those of one paper.
    #[must_use]
    pub fn new(lab: &Lab<'_>, seed: Option<&str>) -> Self {
        let mut rows = lab.assess_all();
        rows.retain(|row| seed.is_none_or(|seed| row.seed == seed));
        let known = |id: &&String| !lab.claims.iter().any(|claim| claim.id == **id);
        Self {
            results: count(rows.iter().filter(|row| row.kind.is_result() && row.evidence)),
            no_evidence: count(rows.iter().filter(|row| row.kind.is_result() && !row.evidence)),
            fitted_misses: fitted_misses(&rows),
            given: count(rows.iter().filter(|row| !row.kind.is_result())),
            overruled: overruled(&rows),
            profiles: lab.store.stamps().to_vec(),
            missing_members: lab.store.missing_members(),
            unused: lab.map.rows.keys().chain(lab.map.not_modelled.keys()).filter(known).cloned().collect(),
            rows,
        }
    }

    /// Results by seed and figure, in natural order.
    #[must_use]
    pub fn by_figure(&self) -> Vec<((&str, &str), Vec<&Assessment>)> {
        let mut figures: BTreeMap<(&str, FigureOrder<'_>), Vec<&Assessment>> = BTreeMap::new();
        for row in self.rows.iter().filter(|row| row.kind.is_result()) {
            figures.entry((&row.seed, figure_order(&row.figure))).or_default().push(row);
        }
        figures.into_iter().map(|((seed, (_, _, figure)), rows)| ((seed, figure), rows)).collect()
    }

    /// Printed ranges with two rows, the lower end first.
    #[must_use]
    pub fn ranges(&self) -> Vec<(&str, &str)> {
        let lower = |row: &&Assessment| row.relation == Some(Relation::RangeLo);
        self.rows.iter().filter(lower).filter_map(|row| Some((row.id.as_str(), row.with.as_deref()?))).collect()
    }

    /// Explains that ranges count as two rows, if there are any.
    #[must_use]
    pub fn ranges_words(&self) -> Option<String> {
        let pairs: Vec<String> = self.ranges().iter().map(|(low, high)| format!("{low} and {high}")).collect();
        let words =
            || format!("Counts are of rows. Two rows are one printed range, with one verdict: {}.", pairs.join("; "));
        (!pairs.is_empty()).then(words)
    }

    /// Adds the constants fitted and choices made on each result.
    pub fn name_fits(&mut self, fits: &BTreeMap<String, Vec<String>>) {
        for row in self.rows.iter_mut().filter(|row| row.kind.is_result()) {
            let ids = [Some(&row.id), row.with.as_ref()];
            let what: BTreeSet<&String> = ids.into_iter().flatten().filter_map(|id| fits.get(id)).flatten().collect();
            row.fitted = what.into_iter().cloned().collect();
        }
    }

    /// Rows that agree through an unread value.
    #[must_use]
    pub fn unread(&self) -> Vec<&str> {
        let unread = self.rows.iter().filter(|row| row.verdict == Verdict::Unread);
        unread.map(|row| row.id.as_str()).collect()
    }

    /// Overridden verdicts, such as `calibrated: 13 reproduced, 6 misses`.
    #[must_use]
    pub fn overruled_words(&self) -> Vec<String> {
        let each = |counts: &Counts| {
            let each = counts.iter().map(|(verdict, count)| format!("{count} {}", verdict.words()));
            each.collect::<Vec<_>>().join(", ")
        };
        self.overruled.iter().map(|(verdict, counts)| format!("{}: {}", verdict.words(), each(counts))).collect()
    }

    /// Explains `(+N)`, if it occurs.
    #[must_use]
    pub fn fitted_misses_words(&self) -> Option<&'static str> {
        (!self.fitted_misses.is_empty()).then_some("(+N): N fitted and still missing, counted as calibrated.")
    }

    /// The overridden verdicts in one sentence, if there are any.
    #[must_use]
    pub fn overruled_line(&self) -> Option<String> {
        let lines = self.overruled_words();
        (!lines.is_empty()).then(|| format!("Verdicts before overriding: {}.", lines.join("; ")))
    }

    /// Results that miss or are undecided without a stated cause.
    #[must_use]
    pub fn without_cause(&self) -> Vec<&Assessment> {
        let open = |row: &&Assessment| {
            let verdict = row.otherwise.unwrap_or(row.verdict);
            matches!(verdict, Verdict::Misses | Verdict::Undecided) && row.cause.is_none() && row.kind.is_result()
        };
        self.rows.iter().filter(open).collect()
    }
}

/// Tables, then figures, then sections, each by number.
type FigureOrder<'a> = (u8, u32, &'a str);

/// Sort key of a figure.
#[must_use]
pub fn figure_order(figure: &str) -> FigureOrder<'_> {
    let class = match figure {
        _ if figure.starts_with("Table") => 0,
        _ if figure.starts_with("Fig") => 1,
        _ => 2,
    };
    let digits: String = figure.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    (class, digits.parse().unwrap_or(0), figure)
}

fn overruled(rows: &[Assessment]) -> BTreeMap<Verdict, Counts> {
    let mut overruled: BTreeMap<Verdict, Counts> = BTreeMap::new();
    for row in rows {
        if let Some(otherwise) = row.otherwise {
            *overruled.entry(row.verdict).or_default().entry(otherwise).or_default() += 1;
        }
    }
    overruled
}

fn count<'a>(rows: impl Iterator<Item = &'a Assessment>) -> BTreeMap<String, Counts> {
    let mut seeds: BTreeMap<String, Counts> = BTreeMap::new();
    for row in rows {
        *seeds.entry(row.seed.clone()).or_default().entry(row.verdict).or_default() += 1;
    }
    seeds
}

fn fitted_misses(rows: &[Assessment]) -> BTreeMap<String, usize> {
    let mut seeds = BTreeMap::new();
    let misses = |row: &&Assessment| row.verdict == Verdict::Calibrated && row.otherwise == Some(Verdict::Misses);
    for row in rows.iter().filter(|row| row.kind.is_result() && row.evidence).filter(misses) {
        *seeds.entry(row.seed.clone()).or_default() += 1;
    }
    seeds
}
