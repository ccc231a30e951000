//! All assessments, and how they are counted.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::claim::Relation;
use super::lab::{Assessment, Lab};
use super::results::Stamp;
use super::verdict::Verdict;

/// What came of all claims.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Results by seed and verdict: rows that must come out and whose coming out is evidence.
    pub results: BTreeMap<String, Counts>,
    /// The same for bounds that the trivial policy meets too: no evidence.
    pub no_evidence: BTreeMap<String, Counts>,
    /// Of the first, by seed: calibrated rows that miss nevertheless, where there are any.
    pub fitted_misses: BTreeMap<String, usize>,
    /// What is taken as given, by seed.
    pub given: BTreeMap<String, Counts>,
    /// Results by the verdict that overrode another (calibrated, contradicts, surrogate), and by that other.
    pub overruled: BTreeMap<Verdict, Counts>,
    /// Profiles that the results were made with.
    pub profiles: Vec<Stamp>,
    /// Members of the power family, by name, and experiments whose results do not have them: their intervals are over fewer members.
    pub missing_members: BTreeMap<String, Vec<String>>,
    /// Rows of the map that no claim has.
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

    /// Rows of results by figure, figures in their natural order, with the seed first.
    #[must_use]
    pub fn by_figure(&self) -> Vec<((&str, &str), Vec<&Assessment>)> {
        let mut figures: BTreeMap<(&str, FigureOrder<'_>), Vec<&Assessment>> = BTreeMap::new();
        for row in self.rows.iter().filter(|row| row.kind.is_result()) {
            figures.entry((&row.seed, figure_order(&row.figure))).or_default().push(row);
        }
        figures.into_iter().map(|((seed, (_, _, figure)), rows)| ((seed, figure), rows)).collect()
    }

    /// Printed ranges whose ends are two rows, the lower first: each is one statement with one verdict, which both rows count.
    #[must_use]
    pub fn ranges(&self) -> Vec<(&str, &str)> {
        let lower = |row: &&Assessment| row.relation == Some(Relation::RangeLo);
        self.rows.iter().filter(lower).filter_map(|row| Some((row.id.as_str(), row.with.as_deref()?))).collect()
    }

    /// What the counts count, where ranges of two rows are among them.
    #[must_use]
    pub fn ranges_words(&self) -> Option<String> {
        let pairs: Vec<String> = self.ranges().iter().map(|(low, high)| format!("{low} and {high}")).collect();
        let words =
            || format!("Counts are of rows. Two rows are one printed range, with one verdict: {}.", pairs.join("; "));
        (!pairs.is_empty()).then(words)
    }

    /// Says of each result what was fitted or chosen on it, whether or not another verdict comes first.
    pub fn name_fits(&mut self, fits: &BTreeMap<String, Vec<String>>) {
        for row in self.rows.iter_mut().filter(|row| row.kind.is_result()) {
            let ids = [Some(&row.id), row.with.as_ref()];
            let what: BTreeSet<&String> = ids.into_iter().flatten().filter_map(|id| fits.get(id)).flatten().collect();
            row.fitted = what.into_iter().cloned().collect();
        }
    }

    /// Rows that agree with the paper through a value that nothing reads.
    #[must_use]
    pub fn unread(&self) -> Vec<&str> {
        let unread = self.rows.iter().filter(|row| row.verdict == Verdict::Unread);
        unread.map(|row| row.id.as_str()).collect()
    }

    /// What overridden verdicts would be, a line for each that overrode: `calibrated: 13 comes out, 6 misses`.
    #[must_use]
    pub fn overruled_words(&self) -> Vec<String> {
        let each = |counts: &Counts| {
            let each = counts.iter().map(|(verdict, count)| format!("{count} {}", verdict.words()));
            each.collect::<Vec<_>>().join(", ")
        };
        self.overruled.iter().map(|(verdict, counts)| format!("{}: {}", verdict.words(), each(counts))).collect()
    }

    /// What `(+N)` beside the rows that miss means, where it stands.
    #[must_use]
    pub fn fitted_misses_words(&self) -> Option<&'static str> {
        (!self.fitted_misses.is_empty()).then_some("(+N): N fitted and still missing, counted as calibrated.")
    }

    /// The same in one sentence, where anything was overridden.
    #[must_use]
    pub fn overruled_line(&self) -> Option<String> {
        let lines = self.overruled_words();
        (!lines.is_empty()).then(|| format!("Not overridden these would be: {}.", lines.join("; ")))
    }

    /// Results that miss or are undecided and whose row says no cause.
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

/// Where a figure stands among others.
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
