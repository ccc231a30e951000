//! Tables of claims as Markdown, printed, and between marks in the documentation.
//!
//! In [`FILES`] a table is between `<!-- claims: NAME -->` and `<!-- claims: end -->`, where NAME is a [`Table`]. `pilotlab claims --write-tables`
//! writes them; a test compares them with the committed files. Rows of a paper are only printed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use clap::ValueEnum;
use pilotlight_claims::Report;
use pilotlight_claims::claim::Printed;
use pilotlight_claims::html::{TIER_HEADS, robust_text, short, spread_cells, tier_cells, verdict_text};
use pilotlight_claims::lab::Assessment;
use pilotlight_claims::leave_out::LeftOut;
use pilotlight_claims::perturb::Sensitivity;
use pilotlight_claims::report::Counts;
use pilotlight_claims::uncertainty::Spread;
use pilotlight_claims::verdict::Verdict;
use pilotlight_lab::simulated::calibration::Calibration;
use pilotlight_stats::Estimate;

use super::{Varied, demo};
use crate::files;

/// Documents with tables between marks.
const FILES: [&str; 2] = ["papers/README.md", "papers/constants.md"];
const BEGIN: &str = "<!-- claims: ";
const CLOSE: &str = " -->";
const END: &str = "<!-- claims: end -->";

/// A table of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Table {
    /// Rows by paper and tier, and by paper and verdict (papers/README.md)
    Verdicts,
    /// The results of the abstracts (papers/README.md)
    Headlines,
    /// Each figure with the constants fitted on it, and its results without them (papers/constants.md)
    LeaveOneOut,
    /// Verdicts that change if a constant changes by 20 % (papers/constants.md)
    Perturb,
    /// Each result over draws of all constants, with the most influential constant (papers/constants.md)
    Uncertainty,
    /// Each result with the paper's value, ours, verdict and cause; with --paper those of one paper
    Rows,
}

/// The inputs of tables.
pub(super) struct Material<'a> {
    pub(super) report: &'a Report,
    pub(super) varied: &'a Varied,
    pub(super) calibration: &'a Calibration,
}

/// A table; with `seed` only the rows of that paper.
pub(super) fn markdown(table: Table, seed: Option<&str>, material: &Material<'_>) -> String {
    match table {
        Table::Verdicts => verdicts(material.report),
        Table::Headlines => headlines(material.report),
        Table::LeaveOneOut => left_out(material),
        Table::Perturb => perturbed(material.varied.moved.as_deref().unwrap_or_default()),
        Table::Uncertainty => uncertain(material.varied.spreads.as_deref().unwrap_or_default()),
        Table::Rows => rows(material.report, seed),
    }
}

/// Writes all documents; returns the changed files.
pub(super) fn write(root: &Path, material: &Material<'_>) -> anyhow::Result<String> {
    let mut list = String::new();
    for (file, text) in documents(root, material)? {
        let path = root.join(&file);
        let is_same = path.exists() && text_of(&path)? == text;
        if !is_same {
            files::write(&path, text)?;
        }
        let _ = writeln!(list, "{file}: {}", if is_same { "unchanged" } else { "written" });
    }
    if let Some(path) = demo::file(root) {
        files::write(&path, demo::text(root)?)?;
    }
    Ok(list)
}

/// All documents with their text.
fn documents(root: &Path, material: &Material<'_>) -> anyhow::Result<Vec<(String, String)>> {
    let filled = |file: &str| {
        let text = filled(&text_of(&root.join(file))?, material).with_context(|| file.to_owned())?;
        Ok((file.to_owned(), text))
    };
    FILES.into_iter().map(filled).collect()
}

fn text_of(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// A document with its tables replaced.
fn filled(text: &str, material: &Material<'_>) -> anyhow::Result<String> {
    let (mut done, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(BEGIN) {
        let name_at = at + BEGIN.len();
        let name_end = name_at + rest[name_at..].find(CLOSE).context("a mark `<!-- claims:` has no ` -->`")?;
        let name = &rest[name_at..name_end];
        let table = Table::from_str(name, false).ok().with_context(|| format!("there is no table {name:?}"))?;
        let body_at = name_end + CLOSE.len();
        let end = rest[body_at..].find(END).with_context(|| format!("a table has no {END}"))?;
        let _ = write!(done, "{}\n\n{}\n\n{END}", &rest[..body_at], markdown(table, None, material).trim());
        rest = &rest[body_at + end + END.len()..];
    }
    Ok(done + rest)
}

/// The counts, without empty verdicts.
fn verdicts(report: &Report) -> String {
    let mut text = format!("| {} |\n|---|---|---:|---|---|---|\n", TIER_HEADS.join(" | "));
    for row in &report.tiers {
        let _ = writeln!(text, "| {} |", tier_cells(row).join(" | "));
    }
    text += "\n";
    let none = BTreeMap::new();
    for (title, seeds, verdicts, fitted) in [
        ("results", &report.results, &Verdict::OF_RESULTS[..], &report.fitted_misses),
        ("bounds that a trivial policy also meets: no evidence", &report.no_evidence, &Verdict::OF_RESULTS, &none),
        ("taken as given", &report.given, &Verdict::OF_GIVEN, &none),
    ] {
        if !seeds.is_empty() {
            text += &counts(title, seeds, verdicts, fitted);
        }
    }
    let fitted = report.fitted_misses_note().map(str::to_owned);
    let words = fitted.into_iter().chain(report.overruled_line());
    text + &words.collect::<Vec<_>>().join(" ") + "\n"
}

fn counts(
    title: &str,
    seeds: &BTreeMap<String, Counts>,
    verdicts: &[Verdict],
    fitted: &BTreeMap<String, usize>,
) -> String {
    let verdicts = super::text::occurring(seeds, verdicts);
    let heads: Vec<&str> = verdicts.iter().map(|verdict| verdict.label()).collect();
    let mut text = format!("| {title} | rows | {} |\n|---|{}\n", heads.join(" | "), "---:|".repeat(heads.len() + 1));
    for (seed, counts) in seeds {
        let row = super::text::count_row(seed, counts, &verdicts, fitted.get(seed));
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text + "\n"
}

/// The results of the abstracts.
fn headlines(report: &Report) -> String {
    let mut text =
        "| row | paper | here, with 95 % interval | verdict | over all that is not printed | recommended instead |\n"
            .to_owned();
    text += "|---|---|---|---|---|---|\n";
    for row in report.headlines() {
        let cells =
            [row.id.clone(), paper(row), value_text(row), verdict_text(row), robust_text(row), alternative(row)];
        let _ = writeln!(text, "| {} |", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
    }
    text
}

/// A row for each result, with that of the recommended policy if mapped.
fn rows(report: &Report, seed: Option<&str>) -> String {
    let by_figure = report.by_figure();
    let all = || by_figure.iter().flat_map(|((of, figure), rows)| rows.iter().map(move |row| (of, figure, row)));
    let all: Vec<_> = all().filter(|(of, ..)| seed.is_none_or(|seed| seed == **of)).collect();
    let has_alternative = all.iter().any(|(.., row)| row.alternative.is_some());
    let over = "over all that is not printed";
    let heads = ["row", "where", "paper", "here, with 95 % interval", "verdict", over, "recommended instead", "cause"];
    let kept = |at: usize| has_alternative || at != 6;
    let line = |cells: [&str; 8]| {
        let cells = cells.iter().enumerate().filter(|(at, _)| kept(*at)).map(|(_, cell)| cell.replace('|', "\\|"));
        format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    let mut text = line(heads) + &"|---".repeat(heads.len() - usize::from(!has_alternative)) + "|\n";
    for (_, figure, row) in all {
        let (paper, here, verdict, cause) = (paper(row), value_text(row), verdict_text(row), cause(row));
        text += &line([&row.id, figure, &paper, &here, &verdict, &robust_text(row), &alternative(row), &cause]);
    }
    text
}

fn alternative(row: &Assessment) -> String {
    let Some(alternative) = row.alternative.as_ref().filter(|alternative| alternative.verdict != Verdict::NoResult)
    else {
        return String::new();
    };
    let value = alternative.ours.filter(|ours| ours.value.is_finite()).map(estimate);
    let statements = || Some(alternative.note.clone()).filter(|_| alternative.ours.is_none());
    let parts = [value.or_else(statements), Some(alternative.verdict.label().to_owned())];
    parts.into_iter().flatten().collect::<Vec<_>>().join(": ")
}

fn estimate(ours: Estimate) -> String {
    format!("{} ({} to {})", short(ours.value), short(ours.low), short(ours.high))
}

fn paper(row: &Assessment) -> String {
    match &row.paper {
        Printed::Number(_) => super::text::paper(row),
        Printed::Text(text) => text.clone(),
    }
}

fn value_text(row: &Assessment) -> String {
    let value = match (&row.ours, &row.given) {
        (Some(ours), _) if ours.value.is_finite() => estimate(*ours),
        (Some(_), _) => "no value".to_owned(),
        (None, Some(given)) => given.to_string(),
        (None, None) if row.findings.is_empty() => String::new(),
        (None, None) => row.note.clone(),
    };
    value + &saturated(row)
}

/// The policies with saturated runs.
fn saturated(row: &Assessment) -> String {
    let policies: BTreeSet<&str> = row.saturated.iter().map(|full| full.policy.as_str()).collect();
    if policies.is_empty() {
        return String::new();
    }
    format!("; saturated: {}", policies.into_iter().collect::<Vec<_>>().join(", "))
}

/// The cause of a miss; otherwise empty.
fn cause(row: &Assessment) -> String {
    let reason = match row.otherwise.unwrap_or(row.verdict) {
        Verdict::Reproduced => None,
        Verdict::NotModelled | Verdict::NoResult => Some(&row.note),
        _ => row.contradiction.as_ref().or(row.cause.as_ref()),
    };
    reason.cloned().unwrap_or_default()
}

/// The leave-one-figure-out table.
fn left_out(material: &Material<'_>) -> String {
    let report = material.report;
    let results = |verdict| report.results.values().filter_map(|counts| counts.get(&verdict)).sum::<usize>();
    let total: usize = report.results.values().flat_map(BTreeMap::values).sum();
    let (out, calibrated, constants) =
        (results(Verdict::Reproduced), results(Verdict::Calibrated), material.calibration.constants.len());
    let mut text = format!(
        "{constants} free constants; {total} results, of which {out} are reproduced and {calibrated} were fitted on or set as inputs.\n\n"
    );
    text += "| figure | results compared | reproduced | constants fitted on the figure | reproduced without them | changed verdicts of other figures |\n";
    text += "|---|---:|---:|---|---:|---|\n";
    for row in &material.varied.left_out {
        let LeftOut { seed, figure, rows, reproduced, fitted, .. } = row;
        let fitted = if fitted.is_empty() { "none".to_owned() } else { fitted.join(", ") };
        let without = row.without.map_or_else(|| "not run".to_owned(), |count| count.to_string());
        let elsewhere = changes_elsewhere(row);
        let _ = writeln!(text, "| {seed}, {figure} | {rows} | {reproduced} | {fitted} | {without} | {elsewhere} |");
    }
    text
}

/// Constants with an effect, and one line for the others.
fn perturbed(moved: &[Sensitivity]) -> String {
    if moved.is_empty() {
        return "not run\n".to_owned();
    }
    let mut text = "| constant | rows compared | verdicts that change | |\n|---|---:|---|---|\n".to_owned();
    for one in moved.iter().filter(|one| !one.changes.is_empty()) {
        let each = one.changes.iter().map(|c| {
            let (from, to) = (c.from.label(), c.to.label());
            format!("{} {} ({}): {from} becomes {to}", c.id, c.by, c.figure)
        });
        let changes = each.collect::<Vec<_>>().join("; ");
        let suspect = if one.suspect { "**suspect**: one figure only" } else { "" };
        let _ = writeln!(text, "| {} | {} | {changes} | {suspect} |", one.constant, one.compared);
    }
    let still: Vec<&str> = moved.iter().filter(|one| one.changes.is_empty()).map(|one| one.constant.as_str()).collect();
    format!("{text}\nNothing changes with: {}.\n", still.join(", "))
}

fn uncertain(spreads: &[Spread]) -> String {
    if spreads.is_empty() {
        return "not run\n".to_owned();
    }
    let mut text = "| row | paper | draws | middle 95 % | reproduced in | most influential constant |\n".to_owned();
    text += "|---|---|---:|---|---:|---|\n";
    for spread in spreads {
        let _ = writeln!(text, "| {} |", spread_cells(spread).join(" | "));
    }
    text
}

fn changes_elsewhere(row: &LeftOut) -> String {
    match &row.elsewhere {
        _ if !row.fitted.is_empty() && !row.moves => "none: at the middle of their ranges as they are".to_owned(),
        None => "not run".to_owned(),
        Some(changes) if changes.is_empty() => "none".to_owned(),
        Some(changes) => {
            let each = changes.iter().map(|c| format!("{}: {} becomes {}", c.id, c.from.label(), c.to.label()));
            each.collect::<Vec<_>>().join("; ")
        }
    }
}

#[cfg(test)]
mod tests;
