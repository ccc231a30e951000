//! The claims as a section of an HTML page: plain tables, no script, no style of its own beyond class names.

use std::fmt::Write as _;

use super::assess::Assessment;
use super::claim::Kind;
use super::report::{Counts, Report};
use super::verdict::Verdict;

/// A `<section>` with the counts by paper and verdict, then every row by figure. Rows have the class `verdict-` and the
/// verdict's words with dashes, for whoever wants to colour them.
#[must_use]
pub fn html_section(report: &Report) -> String {
    let mut html = "<section id=\"claims\">\n<h2>What the papers report, and what comes out here</h2>\n".to_owned();
    html += "<p>Intervals are 95 %. A value comes out under 10 % of |paper &#8722; trivial|, is near under 25 %; it is undecided \
             where its interval straddles a boundary.</p>\n";
    counts(&mut html, "Results", &report.results, &Verdict::OF_RESULTS);
    counts(
        &mut html,
        "Bounds that a trivial policy meets too (no evidence)",
        &report.no_evidence,
        &Verdict::OF_RESULTS,
    );
    counts(&mut html, "Taken as given", &report.given, &Verdict::OF_GIVEN);
    for ((seed, figure), rows) in report.by_figure() {
        rows_of(&mut html, &format!("{seed}, {figure}"), rows);
    }
    let given = report.rows.iter().filter(|row| !row.kind.is_result());
    rows_of(&mut html, "Taken as given", given);
    for stamp in &report.profiles {
        let _ = writeln!(html, "<p>{}: profile {}, {}</p>", text(&stamp.file), text(&stamp.profile), text(&stamp.hash));
    }
    html + "</section>\n"
}

fn counts(html: &mut String, title: &str, seeds: &std::collections::BTreeMap<String, Counts>, verdicts: &[Verdict]) {
    if seeds.is_empty() {
        return;
    }
    let heads: String = verdicts.iter().map(|verdict| format!("<th scope=\"col\">{}</th>", verdict.words())).collect();
    let _ = writeln!(html, "<table>\n<caption>{}</caption>", text(title));
    let _ = writeln!(
        html,
        "<thead><tr><th scope=\"col\">paper</th><th scope=\"col\">rows</th>{heads}</tr></thead>\n<tbody>"
    );
    for (seed, counts) in seeds {
        let cell = |verdict| format!("<td>{}</td>", counts.get(verdict).copied().unwrap_or(0));
        let cells: String = verdicts.iter().map(cell).collect();
        let rows: usize = counts.values().sum();
        let _ = writeln!(html, "<tr><th scope=\"row\">{}</th><td>{rows}</td>{cells}</tr>", text(seed));
    }
    *html += "</tbody>\n</table>\n";
}

fn rows_of<'a>(html: &mut String, title: &str, rows: impl IntoIterator<Item = &'a Assessment>) {
    let _ = writeln!(html, "<table>\n<caption>{}</caption>\n<thead><tr>", text(title));
    for head in ["row", "measured", "paper", "here", "95 % interval", "verdict", "note"] {
        let _ = write!(html, "<th scope=\"col\">{head}</th>");
    }
    *html += "</tr></thead>\n<tbody>\n";
    for row in rows {
        one(html, row);
    }
    *html += "</tbody>\n</table>\n";
}

fn one(html: &mut String, row: &Assessment) {
    let relation = row.relation.map(|relation| relation.to_string()).unwrap_or_default();
    let (value, interval) = match (&row.ours, &row.given) {
        (Some(ours), _) => (short(ours.value), format!("{} to {}", short(ours.low), short(ours.high))),
        (None, Some(given)) => (given.to_string(), String::new()),
        (None, None) => (String::new(), String::new()),
    };
    let unit = if row.kind == Kind::Order { "" } else { row.unit.as_str() };
    let class = row.verdict.words().replace(' ', "-");
    let cells = [
        row.metric.clone(),
        format!("{relation} {} {unit}", row.paper),
        value,
        interval,
        verdict_words(row),
        note(row),
    ];
    let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", text(cell.trim()))).collect();
    let _ = writeln!(html, "<tr class=\"verdict-{class}\"><th scope=\"row\">{}</th>{cells}</tr>", text(&row.id));
}

/// The verdict, with what it would be where something overrode it.
#[must_use]
pub fn verdict_words(row: &Assessment) -> String {
    let evidence = if row.evidence { "" } else { ", no evidence" };
    match row.otherwise {
        Some(otherwise) => format!("{} ({}){evidence}", row.verdict.words(), otherwise.words()),
        None => format!("{}{evidence}", row.verdict.words()),
    }
}

fn note(row: &Assessment) -> String {
    let parts = [Some(&row.note), row.reading.as_ref(), row.cause.as_ref()];
    let parts: Vec<&str> =
        parts.into_iter().flatten().map(|part| part.trim()).filter(|part| !part.is_empty()).collect();
    parts.join(". ")
}

/// A number in four digits, for people.
#[must_use]
pub fn short(value: f64) -> String {
    if !value.is_finite() {
        return if value > 0.0 { "?" } else { "-?" }.to_owned();
    }
    let digits = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    let decimals = usize::try_from(3 - digits).unwrap_or(0).min(6);
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Text that may stand in HTML.
fn text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::assess::Lab;
    use super::super::claim::tests::claim;
    use super::super::claim::{Printed, Relation};
    use super::super::map;
    use super::super::results::tests::store;
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, expected) in [
            (39.384, "39.38"),
            (1_234_567.8, "1234568"),
            (0.0123456, "0.01235"),
            (100.0, "100"),
            (0.0, "0"),
            (-2.5, "-2.5"),
            (f64::INFINITY, "?"),
        ] {
            assert_eq!(short(value), expected);
        }
    }

    #[test]
    fn every_row_is_there_and_text_is_escaped() {
        let order = claim("o", Kind::Order, Some(Relation::Order), Printed::Text("a < b & c".to_owned()));
        let given = claim("g", Kind::Input, None, Printed::Number(3.0));
        let lab = Lab {
            claims: &[order, given],
            map: &map::parse(&[]).unwrap(),
            store: &store(&[]),
            calibrated: &BTreeSet::new(),
            file: &|_| None,
            parameter: &|_, _| None,
        };
        let html = html_section(&Report::new(&lab, None));
        assert!(html.contains("<th scope=\"row\">o</th>") && html.contains("<th scope=\"row\">g</th>"));
        assert!(html.contains("order a &lt; b &amp; c") && !html.contains("a < b"));
        assert!(html.contains("<tr class=\"verdict-not-mapped\">"));
        for tag in ["section", "table", "thead", "tbody", "caption"] {
            let count = |mark: &str| html.matches(mark).count();
            assert_eq!(count(&format!("<{tag}>")) + count(&format!("<{tag} ")), count(&format!("</{tag}>")), "{tag}");
        }
    }
}
