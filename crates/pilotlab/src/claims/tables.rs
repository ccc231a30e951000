//! Tables of claims as Markdown: in marked places of the documentation, and a page of rows for each paper beside the results.
//!
//! In [`FILES`] a table stands between `<!-- claims: NAME -->` and `<!-- claims: end -->`, where NAME is that of a [`Table`]. The pages
//! ([`PAPERS`]) are written whole. `pilotlab claims --write-tables` writes both; a test compares them with the committed results.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use clap::ValueEnum;
use pilotlight_claims::Report;
use pilotlight_claims::claim::Printed;
use pilotlight_claims::html::{short, verdict_words};
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
const FILES: [&str; 2] = ["results/README.md", "results/constants.md"];
/// Papers that have a page in the results folder, and what the page calls them.
const PAPERS: [(&str, &str); 5] = [
    ("sandman", "SANDMAN"),
    ("pass", "PASS"),
    ("pacer", "PACER"),
    ("thesis", "The energy thesis"),
    ("poll", "The polling paper"),
];
const BEGIN: &str = "<!-- claims: ";
const CLOSE: &str = " -->";
const END: &str = "<!-- claims: end -->";

/// A table of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Table {
    /// Rows by paper and verdict (results/README.md)
    Verdicts,
    /// Each figure with the constants fitted on it, and what comes out without it (results/constants.md)
    LeaveOneOut,
    /// Each constant moved by 20 %, and which verdicts change (results/constants.md)
    Perturb,
    /// Each result over draws of all constants, and the constant that matters most (results/constants.md)
    Uncertainty,
    /// Each result with the paper's value, ours, verdict and cause (results/claims-PAPER.md)
    Rows,
}

/// What tables are made of.
pub(super) struct Material<'a> {
    pub(super) report: &'a Report,
    pub(super) varied: &'a Varied,
    pub(super) calibration: &'a Calibration,
}

/// A table; with `seed` only the rows of that paper.
pub(super) fn markdown(table: Table, seed: Option<&str>, material: &Material<'_>) -> String {
    match table {
        Table::Verdicts => verdicts(material.report),
        Table::LeaveOneOut => left_out(material),
        Table::Perturb => perturbed(material.varied.moved.as_deref().unwrap_or_default()),
        Table::Uncertainty => uncertain(material.varied.spreads.as_deref().unwrap_or_default()),
        Table::Rows => rows(material.report, seed),
    }
}

/// Writes every document with its tables, and every page; lists which files have changed.
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
        files::write(&path, demo::sentence(root)?)?;
    }
    Ok(list)
}

/// Every file that has tables, with the text that it should have.
fn documents(root: &Path, material: &Material<'_>) -> anyhow::Result<Vec<(String, String)>> {
    let filled = |file: &str| {
        let text = filled(&text_of(&root.join(file))?, material).with_context(|| file.to_owned())?;
        Ok((file.to_owned(), text))
    };
    let pages = PAPERS.map(|(seed, name)| Ok((page_of(seed), page(seed, name, material.report))));
    FILES.map(filled).into_iter().chain(pages).collect()
}

fn page_of(seed: &str) -> String {
    format!("{}/claims-{seed}.md", super::RESULTS)
}

/// The rows of a paper as a page.
fn page(seed: &str, name: &str, report: &Report) -> String {
    format!(
        "<!-- Written by `pilotlab claims --write-tables`. Do not edit: causes are in experiments/claims-map*.toml. -->\n\n\
         # {name}: results row by row\n\n\
         The paper's value, ours with its 95 % interval (*with constants*: over draws of the assumed constants too), the verdict, and the\n\
         cause where a row does not come out.\n\
         [docs/claims.md](../docs/claims.md) defines the verdicts; `pilotlab claims --seed-paper {seed}` prints what each row was compared with.\n\n\
         {}",
        rows(report, Some(seed))
    )
}

fn text_of(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// A document with every table in its place.
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

/// The counts; verdicts that nothing has are left out.
fn verdicts(report: &Report) -> String {
    let mut text = String::new();
    let none = BTreeMap::new();
    for (title, seeds, verdicts, fitted) in [
        ("results", &report.results, &Verdict::OF_RESULTS[..], &report.fitted_misses),
        ("bounds that a trivial policy meets too: no evidence", &report.no_evidence, &Verdict::OF_RESULTS, &none),
        ("taken as given", &report.given, &Verdict::OF_GIVEN, &none),
    ] {
        if !seeds.is_empty() {
            text += &counts(title, seeds, verdicts, fitted);
        }
    }
    let fitted = report.fitted_misses_words().map(str::to_owned);
    let words = report.ranges_words().into_iter().chain(fitted).chain(report.overruled_line());
    text + &words.collect::<Vec<_>>().join(" ") + "\n"
}

fn counts(
    title: &str,
    seeds: &BTreeMap<String, Counts>,
    verdicts: &[Verdict],
    fitted: &BTreeMap<String, usize>,
) -> String {
    let verdicts = super::text::there(seeds, verdicts);
    let heads: Vec<&str> = verdicts.iter().map(|verdict| verdict.words()).collect();
    let mut text = format!("| {title} | rows | {} |\n|---|{}\n", heads.join(" | "), "---:|".repeat(heads.len() + 1));
    for (seed, counts) in seeds {
        let row = super::text::count_row(seed, counts, &verdicts, fitted.get(seed));
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text + "\n"
}

/// A line for each result; what the same says of the recommended policy, where a map has that beside.
fn rows(report: &Report, seed: Option<&str>) -> String {
    let by_figure = report.by_figure();
    let all = || by_figure.iter().flat_map(|((of, figure), rows)| rows.iter().map(move |row| (of, figure, row)));
    let all: Vec<_> = all().filter(|(of, ..)| seed.is_none_or(|seed| seed == **of)).collect();
    let has_alternative = all.iter().any(|(.., row)| row.alternative.is_some());
    let heads = ["row", "where", "paper", "here, with 95 % interval", "verdict", "recommended instead", "cause"];
    let kept = |at: usize| has_alternative || at != 5;
    let line = |cells: [&str; 7]| {
        let cells = cells.iter().enumerate().filter(|(at, _)| kept(*at)).map(|(_, cell)| cell.replace('|', "\\|"));
        format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    let mut text = line(heads) + &"|---".repeat(heads.len() - usize::from(!has_alternative)) + "|\n";
    for (_, figure, row) in all {
        let (paper, here, verdict, cause) = (paper(row), here(row), verdict_words(row), cause(row));
        text += &line([&row.id, figure, &paper, &here, &verdict, &alternative(row), &cause]);
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
    let parts = [value.or_else(statements), Some(alternative.verdict.words().to_owned())];
    parts.into_iter().flatten().collect::<Vec<_>>().join(": ")
}

fn estimate(ours: Estimate) -> String {
    format!("{} ({} to {})", short(ours.value), short(ours.low), short(ours.high))
}

fn paper(row: &Assessment) -> String {
    let relation = row.relation.map(|relation| relation.to_string()).unwrap_or_default();
    match &row.paper {
        Printed::Number(number) => format!("{relation} {number} {}", row.unit).trim().to_owned(),
        Printed::Text(text) => text.clone(),
    }
}

fn here(row: &Assessment) -> String {
    let value = match (&row.ours, &row.given) {
        (Some(ours), _) if ours.value.is_finite() => estimate(*ours),
        (Some(_), _) => "no value".to_owned(),
        (None, Some(given)) => given.to_string(),
        (None, None) if row.findings.is_empty() => String::new(),
        (None, None) => row.note.clone(),
    };
    let drawn = if row.draws > 0 { "; with constants" } else { "" };
    value + drawn + &saturated(row)
}

/// The policies whose runs could not keep up somewhere.
fn saturated(row: &Assessment) -> String {
    let policies: BTreeSet<&str> = row.saturated.iter().map(|full| full.policy.as_str()).collect();
    if policies.is_empty() {
        return String::new();
    }
    format!("; saturated: {}", policies.into_iter().collect::<Vec<_>>().join(", "))
}

/// Why a row does not come out; for the rest nothing.
fn cause(row: &Assessment) -> String {
    let told = match row.otherwise.unwrap_or(row.verdict) {
        Verdict::ComesOut => None,
        Verdict::NotModelled | Verdict::NoResult => Some(&row.note),
        _ => row.contradiction.as_ref().or(row.cause.as_ref()),
    };
    told.cloned().unwrap_or_default()
}

/// The leave-one-figure-out table.
fn left_out(material: &Material<'_>) -> String {
    let report = material.report;
    let results = |verdict| report.results.values().filter_map(|counts| counts.get(&verdict)).sum::<usize>();
    let total: usize = report.results.values().flat_map(BTreeMap::values).sum();
    let (out, calibrated, constants) =
        (results(Verdict::ComesOut), results(Verdict::Calibrated), material.calibration.constants.len());
    let mut text = format!(
        "{constants} free constants; {total} results, of which {out} come out and {calibrated} were fitted on or put in.\n\n"
    );
    text += "| figure | results compared | come out | constants fitted on it | come out without it | verdicts elsewhere that change |\n";
    text += "|---|---:|---:|---|---:|---|\n";
    for row in &material.varied.left_out {
        let LeftOut { seed, figure, rows, come_out, fitted, .. } = row;
        let fitted = if fitted.is_empty() { "none".to_owned() } else { fitted.join(", ") };
        let without = row.without.map_or_else(|| "not run".to_owned(), |count| count.to_string());
        let elsewhere = elsewhere(row);
        let _ = writeln!(text, "| {seed}, {figure} | {rows} | {come_out} | {fitted} | {without} | {elsewhere} |");
    }
    text
}

/// Constants that change something, and one line for those that do not.
fn perturbed(moved: &[Sensitivity]) -> String {
    if moved.is_empty() {
        return "not run\n".to_owned();
    }
    let mut text = "| constant | rows compared | verdicts that change | |\n|---|---:|---|---|\n".to_owned();
    for one in moved.iter().filter(|one| !one.changes.is_empty()) {
        let each = one.changes.iter().map(|c| {
            let (from, to) = (c.from.words(), c.to.words());
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
    let mut text = "| row | paper | draws | middle 95 % | comes out in | constant that matters most |\n".to_owned();
    text += "|---|---|---:|---|---:|---|\n";
    for spread in spreads {
        let middle = spread.low.zip(spread.high).map(|(low, high)| format!("{} to {}", short(low), short(high)));
        let most = spread.most.as_ref().map(ToString::to_string);
        let paper = spread.paper.number().map(|number| format!("{number} {}", spread.unit));
        let share = format!("{:.0} %", 100.0 * spread.comes_out);
        let [paper, middle, most] = [paper, middle, most].map(Option::unwrap_or_default);
        let _ = writeln!(text, "| {} | {paper} | {} | {middle} | {share} | {most} |", spread.id, spread.draws);
    }
    text
}

fn elsewhere(row: &LeftOut) -> String {
    match &row.elsewhere {
        _ if !row.fitted.is_empty() && !row.moves => "none: at the middle of their ranges as they are".to_owned(),
        None => "not run".to_owned(),
        Some(changes) if changes.is_empty() => "none".to_owned(),
        Some(changes) => {
            let each = changes.iter().map(|c| format!("{}: {} becomes {}", c.id, c.from.words(), c.to.words()));
            each.collect::<Vec<_>>().join("; ")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::Parser as _;

    use super::*;

    #[test]
    fn the_demo_says_what_the_results_give() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let path = demo::file(&root).expect("the server's source is here");
        assert_eq!(text_of(&path).unwrap(), demo::sentence(&root).unwrap(), "run pilotlab claims --write-tables");
    }
    use crate::cli::{Cli, Command};

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
    }

    fn material<R>(report: &Report, then: impl FnOnce(&Material<'_>) -> R) -> R {
        let varied = Varied { left_out: Vec::new(), moved: None, spreads: None, stale: Vec::new() };
        then(&Material { report, varied: &varied, calibration: &Calibration::default() })
    }

    /// Of the committed results; `None`, with a printed reason, where there are none.
    fn committed<R>(then: impl FnOnce(&Material<'_>) -> R) -> Option<R> {
        let root = root();
        let arguments = ["pilotlab", "claims", "--root", &root.display().to_string()];
        let Command::Claims(args) = Cli::parse_from(arguments).command else { panic!("not claims") };
        let files = super::super::Files::read(&args).unwrap();
        if files.store.is_empty() {
            eprintln!("skipped: no results are committed in {}", root.join("results").display());
            return None;
        }
        let short = super::super::Files::short(&args, &root).unwrap();
        let shifts = short.as_ref().map(|short| short.judged(None, pilotlight_claims::constants::shifts));
        Some(files.judged(shifts.as_ref(), |lab| {
            let report = Report::new(lab, None);
            let varied = Varied::read(&args, short.as_ref().unwrap_or(&files), (true, true)).unwrap();
            then(&Material { report: &report, varied: &varied, calibration: &files.calibration })
        }))
    }

    #[test]
    fn the_documentation_s_tables_are_those_of_the_committed_results() {
        committed(|material| {
            for (file, text) in documents(&root(), material).unwrap() {
                let committed = std::fs::read_to_string(root().join(&file)).unwrap_or_default();
                assert!(committed == text, "{file} is not what the results give: run pilotlab claims --write-tables");
            }
        });
    }

    #[test]
    fn every_committed_miss_and_every_undecided_row_has_a_cause() {
        committed(|material| {
            let ids: Vec<&str> = material.report.without_cause().iter().map(|row| row.id.as_str()).collect();
            assert_eq!(ids, [""; 0], "say why in the map: cause = \"...\"");
        });
    }

    #[test]
    fn every_document_has_its_marks() {
        let marks = |file: &str| std::fs::read_to_string(root().join(file)).unwrap().matches(BEGIN).count();
        assert!(FILES.iter().all(|file| marks(file) >= 2), "each has a beginning and an end");
    }

    #[test]
    fn a_table_is_put_between_its_marks_and_nothing_else_is_touched() {
        let report = super::super::text::tests::report();
        material(&report, |material| {
            let text =
                "a\n<!-- claims: verdicts -->old<!-- claims: end -->\nb\n<!-- claims: perturb --><!-- claims: end -->c";
            let once = filled(text, material).unwrap();
            assert!(once.starts_with("a\n<!-- claims: verdicts -->\n\n| results | rows |"), "{once}");
            assert!(once.contains("<!-- claims: end -->\nb\n<!-- claims: perturb -->") && once.ends_with("-->c"));
            assert!(!once.contains("old"), "{once}");
            assert_eq!(filled(&once, material).unwrap(), once);
            let refused = |text: &str| format!("{:#}", filled(text, material).unwrap_err());
            assert!(refused("<!-- claims: colours --><!-- claims: end -->").contains("no table \"colours\""));
            assert!(refused("<!-- claims: rows -->").contains("has no <!-- claims: end -->"));
        });
    }

    #[test]
    fn every_paper_has_a_page_with_its_rows_alone() {
        let report = super::super::text::tests::report();
        let papers: BTreeSet<&str> = report.rows.iter().map(|row| row.seed.as_str()).collect();
        assert_eq!(papers, PAPERS.iter().map(|(seed, _)| *seed).collect());
        let page = page("pass", "PASS", &report);
        assert!(page.starts_with("<!-- Written by `pilotlab claims --write-tables`.") && page.contains("\n# PASS: "));
        assert!(page.contains("| pass-") && !page.contains("| sandman-"), "{page}");
    }

    #[test]
    fn a_line_a_result_with_the_words_of_orders() {
        let report = super::super::text::tests::report();
        let table = material(&report, |material| markdown(Table::Rows, Some("sandman"), material));
        assert_eq!(table.lines().count(), 2 + 55);
        assert!(
            table.contains("| sandman-s52-lat-order | Fig 4 | sandman ~ hybrid-poll ~ spdk-static < dynamic"),
            "{table}"
        );
        let cells = |line: &str| line.matches(" | ").count();
        let columns = table.lines().next().map(cells);
        assert!(table.lines().skip(2).all(|line| Some(cells(line)) == columns), "{table}");
    }
}
