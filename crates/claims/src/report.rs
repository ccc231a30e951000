//! All assessments with their counts.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::lab::{Assessment, Lab};
use super::results::Stamp;
use super::verdict::{Holds, Tiers, Verdict};

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
    /// How many results hold in each tier.
    pub tiers: Vec<TierRow>,
    /// Every claim.
    pub rows: Vec<Assessment>,
}

/// Rows by verdict.
pub type Counts = BTreeMap<Verdict, usize>;

/// The results of a paper that hold in each tier.
#[derive(Clone, Debug, Serialize)]
pub struct TierRow {
    /// The paper.
    pub seed: String,
    /// The group of its results.
    pub of: Group,
    /// The number of them.
    pub rows: usize,
    /// By direction.
    pub direction: TierCount,
    /// By size.
    pub size: TierCount,
    /// By value.
    pub value: TierCount,
}

/// The group of results that a count is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Evidence, with the printed policy.
    Printed,
    /// The same rows with our policy in its place.
    Ours,
    /// Rows that constants were fitted or choices made on, or whose trace is a surrogate: no evidence.
    Overruled,
}

impl Group {
    /// Its name in tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Printed => "as printed",
            Self::Ours => "with our policy",
            Self::Overruled => "calibrated or on a surrogate: no evidence",
        }
    }
}

/// The results to which a tier applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TierCount {
    /// Their number.
    pub of: usize,
    /// In how many it holds.
    pub holds: usize,
    /// How many of these were evaluated over a family or assumed constants.
    pub tested: usize,
    /// In how many of those it holds there too.
    pub robust: usize,
    /// In how many it cannot be told.
    pub open: usize,
}

impl TierCount {
    fn add(&mut self, tier: Option<Holds>, is_robust: Option<bool>) {
        let yes = tier == Some(Holds::Yes);
        self.of += usize::from(tier.is_some());
        self.holds += usize::from(yes);
        self.tested += usize::from(yes && is_robust.is_some());
        self.robust += usize::from(yes && is_robust == Some(true));
        self.open += usize::from(tier == Some(Holds::Open));
    }
}

impl TierRow {
    fn add(&mut self, tiers: Tiers, robust: Option<Verdict>) {
        self.rows += 1;
        let is = |reached: fn(Verdict) -> bool| robust.map(reached);
        self.value.add(tiers.value, is(|robust| robust == Verdict::Reproduced));
        self.size.add(tiers.size, is(|robust| matches!(robust, Verdict::Reproduced | Verdict::Size)));
        let reached = |robust| matches!(robust, Verdict::Reproduced | Verdict::Size | Verdict::Direction);
        self.direction.add(tiers.direction, is(reached));
    }
}

/// Counts by paper. What is vacuous, contradicts its paper or is not from results is in none of them.
fn tiers(rows: &[Assessment]) -> Vec<TierRow> {
    let mut counts: BTreeMap<(&str, Group), TierRow> = BTreeMap::new();
    let has_ours: BTreeSet<&str> =
        rows.iter().filter(|row| row.alternative.is_some()).map(|row| row.seed.as_str()).collect();
    let of = |seed: &str, of| {
        let none = TierCount::default();
        TierRow { seed: seed.to_owned(), of, rows: 0, direction: none, size: none, value: none }
    };
    for row in rows.iter().filter(|row| row.kind.is_result() && row.evidence && row.given.is_none()) {
        let robust = row.robust.as_ref().map(|robust| robust.verdict);
        let mut add = |which, tiers, verdict: Verdict, robust| {
            if verdict.is_of_tiers() {
                let count = counts.entry((&row.seed, which)).or_insert_with(|| of(&row.seed, which));
                count.add(tiers, robust);
            }
        };
        match row.otherwise {
            None => add(Group::Printed, row.tiers, row.verdict, robust),
            Some(verdict) if row.verdict != Verdict::Contradicts => add(Group::Overruled, row.tiers, verdict, robust),
            Some(_) => {}
        }
        if row.otherwise.is_none() && has_ours.contains(row.seed.as_str()) {
            match &row.alternative {
                Some(other) => add(Group::Ours, other.tiers, other.verdict, other.robust),
                None => add(Group::Ours, row.tiers, row.verdict, robust),
            }
        }
    }
    counts.into_values().collect()
}

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
            tiers: tiers(&rows),
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

    /// The results of the abstracts, by paper.
    #[must_use]
    pub fn headlines(&self) -> Vec<&Assessment> {
        self.rows.iter().filter(|row| row.kind.is_result() && row.is_headline).collect()
    }

    /// Adds the constants fitted and choices made on each result.
    pub fn name_fits(&mut self, fits: &BTreeMap<String, Vec<String>>) {
        for row in self.rows.iter_mut().filter(|row| row.kind.is_result()) {
            let what: BTreeSet<&String> = fits.get(&row.id).into_iter().flatten().collect();
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
    pub fn overruled_lines(&self) -> Vec<String> {
        let each = |counts: &Counts| {
            let each = counts.iter().map(|(verdict, count)| format!("{count} {}", verdict.label()));
            each.collect::<Vec<_>>().join(", ")
        };
        self.overruled.iter().map(|(verdict, counts)| format!("{}: {}", verdict.label(), each(counts))).collect()
    }

    /// Explains `(+N)`, if it occurs.
    #[must_use]
    pub fn fitted_misses_note(&self) -> Option<&'static str> {
        (!self.fitted_misses.is_empty()).then_some("(+N): N fitted and still missing, counted as calibrated.")
    }

    /// The overridden verdicts in one sentence, if there are any.
    #[must_use]
    pub fn overruled_line(&self) -> Option<String> {
        let lines = self.overruled_lines();
        (!lines.is_empty()).then(|| format!("Verdicts before overriding: {}.", lines.join("; ")))
    }

    /// Results without a stated cause that miss, have the direction only, or are undecided.
    #[must_use]
    pub fn without_cause(&self) -> Vec<&Assessment> {
        let open = |row: &&Assessment| {
            let verdict = row.otherwise.unwrap_or(row.verdict);
            matches!(verdict, Verdict::Direction | Verdict::Misses | Verdict::Undecided)
                && row.cause.is_none()
                && row.kind.is_result()
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
