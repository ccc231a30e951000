//! Claims as text: counts by paper and verdict, then rows by figure, within 120 columns.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pilotlight_claims::Report;
use pilotlight_claims::claim::Printed;
use pilotlight_claims::html::{
    TIER_HEADS, apart_text, finding_text, fitted_text, robust_text, saturated_text, short, spread_cells, tier_cells,
    verdict_text,
};
use pilotlight_claims::lab::{Assessment, Robust};
use pilotlight_claims::perturb::Sensitivity;
use pilotlight_claims::report::Counts;
use pilotlight_claims::uncertainty::Spread;
use pilotlight_claims::verdict::{Holds, Verdict};

use super::Output;
use crate::table::{self, Table};

/// Maximum width of a line.
const WIDTH: usize = 120;

/// Text style.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// Whether verdicts are coloured.
    pub(super) colour: bool,
}

impl Style {
    fn verdict(self, row: &Assessment) -> String {
        let words = verdict_text(row);
        let code = match row.verdict {
            _ if !self.colour => return words,
            Verdict::Reproduced | Verdict::Agrees => "32",
            Verdict::Size | Verdict::Direction => "36",
            Verdict::Misses | Verdict::Differs => "31",
            Verdict::Undecided => "33",
            _ => "2",
        };
        format!("\x1b[{code}m{words}\x1b[0m")
    }

    fn heading(self, text: &str) -> String {
        if self.colour { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// The whole report; with `unmapped` including rows without a mapping.
pub(super) fn render(output: &Output, unmapped: bool, style: Style) -> String {
    let report = &output.report;
    let mut text = counted(report, style);
    for ((seed, figure), rows) in report.by_figure() {
        let rows: Vec<&Assessment> =
            rows.into_iter().filter(|row| unmapped || row.verdict != Verdict::NotMapped).collect();
        if !rows.is_empty() {
            let _ = writeln!(text, "\n{}", style.heading(&format!("{seed}, {figure}")));
            text += &figure_rows(&rows, style);
        }
    }
    text += &given_rows(report, unmapped, style);
    if let Some(moved) = &output.perturbed {
        text += &perturbed(moved, style);
    }
    if let Some(spreads) = &output.uncertainty {
        text += &uncertain(spreads, style);
    }
    text + &closing(report)
}

/// The counts.
fn counted(report: &Report, style: Style) -> String {
    let mut table = Table::new(
        &TIER_HEADS
            .map(|head| if head == "rows" { head.to_owned() } else { format!("<{head}") })
            .each_ref()
            .map(String::as_str),
    );
    report.tiers.iter().for_each(|row| table.row(tier_cells(row)));
    let mut text = format!("{}\n{table}", style.heading("What holds"));
    let none = BTreeMap::new();
    for (title, seeds, verdicts, fitted) in [
        ("Results: evidence if they agree", &report.results, &Verdict::OF_RESULTS[..], &report.fitted_misses),
        ("Bounds that a trivial policy also meets: no evidence", &report.no_evidence, &Verdict::OF_RESULTS, &none),
        ("Taken as given: checked, not counted as results", &report.given, &Verdict::OF_GIVEN, &none),
    ] {
        if !seeds.is_empty() {
            let _ = writeln!(text, "\n{}", style.heading(title));
            text += &count_table(seeds, verdicts, fitted).to_string();
        }
    }
    text.extend(report.fitted_misses_note().map(|words| wrapped(words, "")));
    for line in report.overruled_lines() {
        text += &wrapped(&format!("verdicts before overriding: {line}"), "");
    }
    for (member, experiments) in &report.missing_members {
        text += &wrapped(&format!("intervals without {member}: {}", experiments.join(", ")), "");
    }
    text
}

/// The verdicts that at least one row has.
pub(super) fn occurring(seeds: &BTreeMap<String, Counts>, verdicts: &[Verdict]) -> Vec<Verdict> {
    let has_rows = |verdict: &&Verdict| seeds.values().any(|counts| counts.contains_key(*verdict));
    verdicts.iter().filter(has_rows).copied().collect()
}

/// Verdicts without rows are left out to save width.
fn count_table(seeds: &BTreeMap<String, Counts>, verdicts: &[Verdict], fitted: &BTreeMap<String, usize>) -> Table {
    let verdicts: &[Verdict] = &occurring(seeds, verdicts);
    let heads: Vec<&str> =
        ["<paper", "rows"].into_iter().chain(verdicts.iter().map(|verdict| verdict.label())).collect();
    let mut table = Table::new(&heads);
    for (seed, counts) in seeds {
        table.row(count_row(seed, counts, verdicts, fitted.get(seed)));
    }
    table
}

/// `fitted` are calibrated rows that miss.
pub(super) fn count_row(seed: &str, counts: &Counts, verdicts: &[Verdict], fitted: Option<&usize>) -> Vec<String> {
    let total: usize = counts.values().sum();
    let each = verdicts.iter().map(|verdict| {
        let count = counts.get(verdict).copied().unwrap_or(0);
        match fitted.filter(|_| *verdict == Verdict::Misses) {
            Some(fitted) => format!("{count} (+{fitted})"),
            None => count.to_string(),
        }
    });
    [seed.to_owned(), total.to_string()].into_iter().chain(each).collect()
}

/// Rows of a figure with their remarks.
fn figure_rows(rows: &[&Assessment], style: Style) -> String {
    let mut table = Table::new(&["<  row", "<paper", "here", "<95 % interval", "<verdict"]);
    for row in rows {
        let (here, interval) = value_and_interval(row);
        table.row([format!("  {}", name(row)), paper(row), here, interval, style.verdict(row)]);
    }
    let table = table.to_string();
    let mut lines = table.lines();
    let mut text = format!("{}\n", lines.next().unwrap_or_default());
    for (line, row) in lines.zip(rows) {
        let _ = writeln!(text, "{line}");
        for remark in remarks(row) {
            text += &wrapped(&remark, "      ");
        }
    }
    text
}

/// The id without the paper.
fn name(row: &Assessment) -> &str {
    row.id.strip_prefix(row.seed.as_str()).map_or(&row.id, |rest| rest.trim_start_matches('-'))
}

/// The printed number with its unit; of a text, its relation.
pub(super) fn paper(row: &Assessment) -> String {
    let relation = row.relation.map(|relation| relation.to_string()).unwrap_or_default();
    match &row.paper {
        Printed::Number(number) => format!("{relation} {number} {}", row.unit).trim().to_owned(),
        Printed::Text(_) => relation,
    }
}

fn value_and_interval(row: &Assessment) -> (String, String) {
    match (&row.ours, &row.given) {
        (Some(ours), _) if !ours.value.is_finite() => ("saturated".to_owned(), String::new()),
        (Some(ours), _) => (short(ours.value), format!("{} to {}", short(ours.low), short(ours.high))),
        (None, Some(Printed::Number(given))) => (short(*given), String::new()),
        _ => (String::new(), String::new()),
    }
}

/// The remarks of a row.
fn remarks(row: &Assessment) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Printed::Text(text) = &row.paper {
        remarks.push(format!("paper: {text}"));
    }
    remarks.push(row.note.clone());
    let robust = row.robust.as_ref().map(|robust| {
        let Robust { family, draws, .. } = robust;
        format!("over {family} other points and power models, and {draws} draws of constants: {}", robust_text(row))
    });
    remarks.extend(robust);
    remarks.extend(row.findings.iter().filter(|finding| finding.holds != Holds::Yes).take(3).map(finding_text));
    remarks.extend(apart_text(row));
    remarks.extend(saturated_text(row));
    remarks.extend(row.reading.as_ref().map(|reading| format!("reading: {reading}")));
    remarks.extend(fitted_text(row));
    remarks.extend(row.contradiction.clone());
    remarks.extend(row.cause.as_ref().filter(|_| is_not_reproduced(row)).map(|cause| format!("cause: {cause}")));
    remarks.retain(|remark| !remark.trim().is_empty());
    remarks
}

fn is_not_reproduced(row: &Assessment) -> bool {
    !matches!(row.otherwise.unwrap_or(row.verdict), Verdict::Reproduced | Verdict::Agrees)
}

fn given_rows(report: &Report, unmapped: bool, style: Style) -> String {
    let shown = |row: &&Assessment| match row.verdict {
        Verdict::Agrees | Verdict::Unread => false,
        Verdict::NotMapped => unmapped,
        _ => true,
    };
    let rows: Vec<&Assessment> = report.rows.iter().filter(|row| !row.kind.is_result()).filter(shown).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("\n{}\n{}", style.heading("Taken as given: rows that do not agree"), figure_rows(&rows, style))
}

fn perturbed(moved: &[Sensitivity], style: Style) -> String {
    let mut text = format!("\n{}\n", style.heading("Constants changed by 20 %: changed verdicts"));
    if moved.is_empty() {
        return text + "  no results of variants perturb:CONSTANT:+20 and -20\n";
    }
    let mut table = Table::new(&["<  constant", "rows compared", "changed", "<"]);
    for constant in moved {
        let suspect = if constant.suspect { "suspect: one figure only" } else { "" };
        let counts = [constant.compared, constant.changes.len()].map(|count| count.to_string());
        let [compared, changed] = counts;
        table.row([format!("  {}", constant.constant), compared, changed, suspect.to_owned()]);
    }
    let _ = write!(text, "{table}");
    for change in moved.iter().filter(|constant| constant.suspect).flat_map(|constant| &constant.changes) {
        let (from, to) = (change.from.label(), change.to.label());
        text += &wrapped(&format!("{} {}: {from} becomes {to} ({})", change.id, change.by, change.figure), "      ");
    }
    text
}

fn uncertain(spreads: &[Spread], style: Style) -> String {
    let mut text = format!("\n{}\n", style.heading("Draws of all constants over their ranges"));
    if spreads.is_empty() {
        return text + "  no results of variants lhs:N\n";
    }
    let mut table =
        Table::new(&["<  row", "<paper", "draws", "<middle 95 %", "reproduced", "<most influential constant"]);
    for spread in spreads {
        let mut cells = spread_cells(spread);
        cells[0].insert_str(0, "  ");
        table.row(cells);
    }
    let _ = write!(text, "{table}");
    text
}

fn closing(report: &Report) -> String {
    let mut text = String::new();
    let unread = report.unread();
    if !unread.is_empty() {
        let (count, ids) = (unread.len(), unread.join(", "));
        let what = "copies of printed values that neither simulator, lab nor policies read";
        text += &wrapped(&format!("Inputs without a reader ({count}): {what}: {ids}"), "");
    }
    let causeless = report.without_cause();
    if !causeless.is_empty() {
        let ids: Vec<&str> = causeless.iter().map(|row| row.id.as_str()).collect();
        text += &wrapped(&format!("Missed or undecided, without a cause in the map: {}", ids.join(", ")), "");
    }
    if !report.unused.is_empty() {
        text += &wrapped(&format!("Rows of the map without a claim: {}", report.unused.join(", ")), "");
    }
    for stamp in &report.profiles {
        text += &wrapped(&format!("{}: profile {}, {}", stamp.file, stamp.profile, stamp.hash), "");
    }
    let rule = "A number has the value under an error of 10 % of |paper - trivial|, the size under 25 %, the direction on the printed \
                side of no effect; an order has its direction where 90 % of its pairs hold and none is reversed beyond the margin.";
    text += &wrapped(rule, "");
    format!("\n{text}")
}

fn wrapped(text: &str, indent: &str) -> String {
    table::wrapped(text, indent, WIDTH)
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;

    use pilotlight_claims::claim;
    use pilotlight_claims::lab::Lab;
    use pilotlight_claims::map;
    use pilotlight_claims::results::Store;

    use super::*;

    /// The project's claims and map, without results.
    pub(in super::super) fn report() -> Report {
        let read = |name: &str, text: &str| [(name.to_owned(), text.to_owned())];
        let claims = claim::parse(&read("claims", include_str!("../../../../papers/claims.toml"))).unwrap();
        let map = map::parse(&read("map", include_str!("../../../../papers/claims-map.toml"))).unwrap();
        let lab = Lab {
            claims: &claims,
            map: &map,
            store: &Store::default(),
            calibrated: &BTreeSet::new(),
            file: &|_| None,
            parameter: &super::super::default_of,
            constants: None,
        };
        Report::new(&lab, None)
    }

    #[test]
    fn the_project_s_own_rows_fit_120_columns() {
        let (report, perturbed, uncertainty) = (report(), Some(Vec::new()), Some(Vec::new()));
        let (stale, inert, leave_one_out) = (Vec::new(), Vec::new(), Vec::new());
        let output = Output { report, stale, inert, leave_one_out, perturbed, uncertainty };
        let text = render(&output, true, Style { colour: false });
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{}: {line}", line.chars().count());
        }
        assert!(!text.contains('\x1b'));
        assert!(render(&output, false, Style { colour: true }).contains("\x1b[1msandman, Fig 3\x1b[0m"));
    }

    #[test]
    fn every_result_of_sandman_is_mapped_or_listed() {
        let report = report();
        let sandman = report.rows.iter().filter(|row| row.seed == "sandman");
        let missing: Vec<&str> =
            sandman.filter(|row| row.verdict == Verdict::NotMapped).map(|row| row.id.as_str()).collect();
        assert_eq!(missing, [""; 0]);
        assert_eq!(report.unused, [""; 0]);
    }

    #[test]
    fn long_remarks_are_wrapped() {
        let text = wrapped(&"word ".repeat(60), "    ");
        assert!(text.lines().count() == 3 && text.lines().all(|line| line.len() <= WIDTH && line.starts_with("    w")));
    }
}
