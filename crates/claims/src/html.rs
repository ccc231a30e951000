//! The claims as a page of HTML: plain tables, no script, nothing from elsewhere. It says what the JSON says, findings that hold
//! as counts.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::assess::Assessment;
use super::claim::{Kind, Printed};
use super::leave_out::LeftOut;
use super::order::Finding;
use super::perturb::{Change, Moved};
use super::quantity::Full;
use super::report::{Counts, Report};
use super::uncertainty::Spread;
use super::verdict::{Holds, Verdict};

/// Findings of a row that are told one by one; of the rest the count.
const TOLD: usize = 12;

const STYLE: &str = include_str!("page.css");

/// What stands beside the report, as far as it was asked for.
#[derive(Clone, Copy, Debug)]
pub struct More<'a> {
    /// Results that are not of today's files.
    pub stale: &'a [String],
    /// Swept parameters that change nothing.
    pub inert: &'a [String],
    /// Each figure without what was fitted on it.
    pub left_out: &'a [LeftOut],
    /// What moving each constant changes.
    pub moved: Option<&'a [Moved]>,
    /// What draws of all constants do.
    pub spreads: Option<&'a [Spread]>,
}

/// A page of its own.
#[must_use]
pub fn page(report: &Report, more: &More<'_>) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>Claims</title>\n<style>\n{STYLE}</style></head>\n<body>\n{}</body>\n\
         </html>\n",
        section(report, more)
    )
}

/// A `<section>` with the counts by paper and verdict, then every row by figure, then what constants do. Rows have the class
/// `verdict-` and the verdict's words with dashes.
#[must_use]
pub fn section(report: &Report, more: &More<'_>) -> String {
    let mut html = "<section id=\"claims\">\n<h1>What the papers report, and what comes out here</h1>\n".to_owned();
    html += "<p>Intervals are 95 %. A value comes out under 10 % of |paper &#8722; trivial|, is near under 25 %; it is undecided \
             where its interval straddles a boundary. Watts are modelled.</p>\n";
    counts(&mut html, "Results", &report.results, &Verdict::OF_RESULTS);
    counts(
        &mut html,
        "Bounds that a trivial policy meets too (no evidence)",
        &report.no_evidence,
        &Verdict::OF_RESULTS,
    );
    counts(&mut html, "Taken as given", &report.given, &Verdict::OF_GIVEN);
    let _ = report.ranges_words().map(|words| writeln!(html, "<p>{}</p>", text(&words)));
    listed(&mut html, "Not overridden these would be", &report.overruled_words());
    listed(&mut html, "Inputs without a reader: copies of what is printed, which nothing reads", &report.unread());
    listed(&mut html, "Stale results, to be run again", more.stale);
    listed(&mut html, "Swept parameters without effect", more.inert);
    let causeless: Vec<&str> = report.without_cause().iter().map(|row| row.id.as_str()).collect();
    listed(&mut html, "Missed or undecided, and the map says no cause", &causeless);
    listed(&mut html, "Rows of the map that no claim has", &report.unused);
    for ((seed, figure), rows) in report.by_figure() {
        let (mapped, unmapped): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.verdict != Verdict::NotMapped);
        rows_of(&mut html, &format!("{seed}, {figure}"), &mapped);
        let ids: Vec<&str> = unmapped.iter().map(|row| row.id.as_str()).collect();
        listed(&mut html, &format!("{seed}, {figure}: not mapped"), &ids);
    }
    let given: Vec<&Assessment> = report.rows.iter().filter(|row| !row.kind.is_result()).collect();
    let (mapped, unmapped): (Vec<_>, Vec<_>) = given.into_iter().partition(|row| row.verdict != Verdict::NotMapped);
    rows_of(&mut html, "Taken as given", &mapped);
    let ids: Vec<&str> = unmapped.iter().map(|row| row.id.as_str()).collect();
    listed(&mut html, "Taken as given: not mapped", &ids);
    left_out(&mut html, more.left_out);
    more.moved.into_iter().for_each(|moved| moved_by(&mut html, moved));
    more.spreads.into_iter().for_each(|spreads| drawn(&mut html, spreads));
    for stamp in &report.profiles {
        let _ = writeln!(html, "<p>{}: profile {}, {}</p>", text(&stamp.file), text(&stamp.profile), text(&stamp.hash));
    }
    html + "</section>\n"
}

fn listed(html: &mut String, title: &str, ids: &[impl AsRef<str>]) {
    if !ids.is_empty() {
        let ids: Vec<String> = ids.iter().map(|id| text(id.as_ref())).collect();
        let _ = writeln!(html, "<p class=\"listed\">{}: {}</p>", text(title), ids.join(", "));
    }
}

/// A table with these heads, if it has rows; cells are HTML already, and a row's class comes first.
fn table(html: &mut String, title: &str, heads: &[&str], rows: &[(String, Vec<String>)]) {
    if rows.is_empty() {
        return;
    }
    let top: String = heads.iter().map(|head| format!("<th scope=\"col\">{head}</th>")).collect();
    let _ = writeln!(html, "<div class=\"wide\"><table>\n<caption>{}</caption>", text(title));
    let _ = writeln!(html, "<thead><tr>{top}</tr></thead>\n<tbody>");
    for (class, cells) in rows {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let first = cells.first().map(|cell| format!("<th scope=\"row\">{cell}</th>")).unwrap_or_default();
        // narrow screens show the head beside each cell
        let cells = heads.iter().zip(cells).skip(1).map(|(head, cell)| format!("<td data-head=\"{head}\">{cell}</td>"));
        let cells: String = cells.collect();
        let _ = writeln!(html, "<tr{class}>{first}{cells}</tr>");
    }
    *html += "</tbody>\n</table></div>\n";
}

fn counts(html: &mut String, title: &str, seeds: &BTreeMap<String, Counts>, verdicts: &[Verdict]) {
    let heads: Vec<&str> =
        ["paper", "rows"].into_iter().chain(verdicts.iter().map(|verdict| verdict.words())).collect();
    let row = |(seed, counts): (&String, &Counts)| {
        let total: usize = counts.values().sum();
        let each = verdicts.iter().map(|verdict| counts.get(verdict).copied().unwrap_or(0).to_string());
        ("counts".to_owned(), [text(seed), total.to_string()].into_iter().chain(each).collect())
    };
    table(html, title, &heads, &seeds.iter().map(row).collect::<Vec<_>>());
}

fn rows_of(html: &mut String, title: &str, rows: &[&Assessment]) {
    let heads = ["row", "measured", "paper", "here", "95 % interval", "error", "verdict", "note"];
    table(html, title, &heads, &rows.iter().map(|row| one(row)).collect::<Vec<_>>());
}

fn one(row: &Assessment) -> (String, Vec<String>) {
    let relation = row.relation.map(|relation| relation.to_string()).unwrap_or_default();
    let (value, interval) = match (&row.ours, &row.given) {
        (Some(ours), _) if !ours.value.is_finite() => ("saturated".to_owned(), String::new()),
        (Some(ours), _) => (short(ours.value), format!("{} to {}", short(ours.low), short(ours.high))),
        (None, Some(Printed::Number(given))) => (short(*given), String::new()),
        (None, Some(given)) => (given.to_string(), String::new()),
        (None, None) => (String::new(), String::new()),
    };
    let unit = if row.kind == Kind::Order { "" } else { row.unit.as_str() };
    let trivial = row.null.map(|null| format!(" (trivial: {null})")).unwrap_or_default();
    let error = row.error_percent.filter(|error| error.is_finite()).map(|error| format!("{} %", short(error)));
    let cells = [
        row.id.clone(),
        row.metric.clone(),
        format!("{relation} {} {unit}{trivial}", row.paper),
        value,
        interval,
        error.unwrap_or_default(),
        verdict_words(row),
    ];
    let mut cells: Vec<String> = cells.iter().map(|cell| text(cell.trim())).collect();
    cells.push(text(&note(row)) + &findings(&row.findings));
    (format!("row verdict-{}", row.verdict.words().replace(' ', "-")), cells)
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

/// What tells a row of things that are alike, or of a bound, apart; `None` where it needs nothing or nothing does.
#[must_use]
pub fn apart_words(row: &Assessment) -> Option<String> {
    (!row.discriminators.is_empty()).then(|| format!("told apart: {}", row.discriminators.join("; ")))
}

/// What was fitted or chosen on a row; `None` if nothing was.
#[must_use]
pub fn fitted_words(row: &Assessment) -> Option<String> {
    (!row.fitted.is_empty()).then(|| format!("fitted or chosen on it: {}", row.fitted.join("; ")))
}

/// Which runs that a row rests on could not keep up; `None` if all could.
#[must_use]
pub fn saturated_words(row: &Assessment) -> Option<String> {
    let mut places: BTreeMap<(&str, &str), Vec<&Full>> = BTreeMap::new();
    for full in &row.saturated {
        places.entry((&full.experiment, &full.policy)).or_default().push(full);
    }
    let each: Vec<String> =
        places.into_iter().map(|((experiment, policy), at)| place(experiment, policy, &at)).collect();
    (!each.is_empty()).then(|| format!("saturated (no latency, watts as measured): {}", each.join("; ")))
}

/// `governor in fig3 at rate=1280000, rate=2560000 (20 of 20 runs)`
fn place(experiment: &str, policy: &str, at: &[&Full]) -> String {
    let points: Vec<&str> = at.iter().map(|full| full.point.as_str()).filter(|point| !point.is_empty()).collect();
    let points = if points.is_empty() { String::new() } else { format!(" at {}", points.join(", ")) };
    let count = |of: fn(&Full) -> usize| at.iter().map(|full| of(full)).sum::<usize>();
    format!("{policy} in {experiment}{points} ({} of {} runs)", count(|full| full.saturated), count(|full| full.runs))
}

fn note(row: &Assessment) -> String {
    let family = (row.family > 0).then(|| format!("over {} of the family too", row.family));
    let reading = row.reading.as_ref().map(|reading| format!("reading: {reading}"));
    let cause = row.cause.as_ref().map(|cause| format!("cause: {cause}"));
    let (fitted, contradiction) = (fitted_words(row), row.contradiction.clone());
    let (apart, saturated) = (apart_words(row), saturated_words(row));
    let parts = [Some(row.note.clone()), family, apart, saturated, reading, fitted, contradiction, cause];
    let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.trim().is_empty()).collect();
    parts.join("; ")
}

/// Findings by pair, then those that do not hold.
fn findings(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return String::new();
    }
    let mut pairs: BTreeMap<(&str, &str), [usize; 3]> = BTreeMap::new();
    for finding in findings {
        let at = [Holds::Yes, Holds::Open, Holds::No].iter().position(|holds| *holds == finding.holds).unwrap_or(2);
        pairs.entry((&finding.metric, &finding.pair)).or_default()[at] += 1;
    }
    let mut html = "<details><summary>pairs</summary><ul>".to_owned();
    for ((metric, pair), [yes, open, no]) in pairs {
        let _ = write!(html, "<li>{}: {}: holds {yes}, open {open}, not {no}</li>", text(metric), text(pair));
    }
    html += "</ul>";
    let not: Vec<&Finding> = findings.iter().filter(|finding| finding.holds != Holds::Yes).collect();
    for finding in not.iter().take(TOLD) {
        let _ = write!(html, "<p>{}</p>", text(&finding_words(finding)));
    }
    if not.len() > TOLD {
        let _ = write!(html, "<p>and {} more; the JSON has them all</p>", not.len() - TOLD);
    }
    html + "</details>"
}

/// A finding in a line.
#[must_use]
pub fn finding_words(finding: &Finding) -> String {
    let Finding { pair, metric, point, variant, difference, margin, holds, saturated } = finding;
    let holds = match holds {
        Holds::Yes => "holds",
        Holds::Open => "open",
        Holds::No => "does not hold",
    };
    let place = if point.is_empty() { String::new() } else { format!(" at {point}") };
    let margin = margin.map(|margin| format!(", margin {}", short(margin))).unwrap_or_default();
    let difference = match (difference.value.is_finite(), saturated.is_empty()) {
        (true, _) => {
            let (low, high) = (short(difference.low), short(difference.high));
            format!("right less left {} ({low} to {high}){margin}", short(difference.value))
        }
        (false, _) if difference.value.is_nan() => "both saturated".to_owned(),
        (false, _) if difference.value > 0.0 => "right saturated".to_owned(),
        (false, _) => "left saturated".to_owned(),
    };
    format!("{pair}: {holds}: {metric}{place} ({variant}): {difference}")
}

fn left_out(html: &mut String, rows: &[LeftOut]) {
    let heads = [
        "figure",
        "results compared",
        "come out",
        "constants fitted on it",
        "come out without it",
        "verdicts elsewhere that change",
    ];
    let row = |row: &LeftOut| {
        let without = row.without.map_or_else(|| "not run".to_owned(), |count| count.to_string());
        let elsewhere = row.elsewhere.as_ref().map_or_else(|| "not run".to_owned(), |changes| changed(changes));
        let (rows, come_out) = (row.rows.to_string(), row.come_out.to_string());
        let figure = format!("{}, {}", row.seed, row.figure);
        let cells = [figure, rows, come_out, row.fitted.join(", "), without, elsewhere];
        ("row".to_owned(), cells.iter().map(|cell| text(cell)).collect())
    };
    table(html, "Leave one figure out", &heads, &rows.iter().map(row).collect::<Vec<_>>());
}

fn changed(changes: &[Change]) -> String {
    let each = changes.iter().map(|c| format!("{} {}: {} becomes {}", c.id, c.by, c.from.words(), c.to.words()));
    each.collect::<Vec<_>>().join("; ")
}

fn moved_by(html: &mut String, moved: &[Moved]) {
    let row = |moved: &Moved| {
        let suspect = if moved.suspect { "one figure only" } else { "" };
        let cells = [&moved.constant, &moved.compared.to_string(), suspect, &changed(&moved.changes)];
        ("row".to_owned(), cells.iter().map(|cell| text(cell)).collect())
    };
    let rows: Vec<_> = moved.iter().map(row).collect();
    table(html, "Constants moved by 20 %", &["constant", "rows compared", "suspect", "verdicts that change"], &rows);
}

fn drawn(html: &mut String, spreads: &[Spread]) {
    let row = |spread: &Spread| {
        let middle = spread.low.zip(spread.high).map(|(low, high)| format!("{} to {}", short(low), short(high)));
        let most = spread.most.as_ref().map(ToString::to_string);
        let cells = [
            spread.id.clone(),
            format!("{} {}", spread.paper, spread.unit),
            spread.draws.to_string(),
            middle.unwrap_or_default(),
            format!("{:.0} %", 100.0 * spread.comes_out),
            most.unwrap_or_default(),
        ];
        ("row".to_owned(), cells.iter().map(|cell| text(cell.trim())).collect())
    };
    let heads = ["row", "paper", "draws", "middle 95 %", "comes out", "constant that matters most"];
    table(html, "Draws of all constants over their ranges", &heads, &spreads.iter().map(row).collect::<Vec<_>>());
}

/// A number in four digits, for people.
#[must_use]
pub fn short(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() {
            "?"
        } else if value > 0.0 {
            "∞"
        } else {
            "-∞"
        }
        .to_owned();
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
    use super::super::claim::{Claim, Printed, Relation};
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
            (f64::INFINITY, "∞"),
            (f64::NAN, "?"),
        ] {
            assert_eq!(short(value), expected);
        }
    }

    #[test]
    fn rows_that_no_map_has_are_listed() {
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
        let html = page(&Report::new(&lab, None), &NOTHING);
        assert!(html.contains("sandman, Fig 3: not mapped: o<") && html.contains("not mapped: g<"), "{html}");
        balanced(&html);
    }

    const NOTHING: More<'_> = More { stale: &[], inert: &[], left_out: &[], moved: None, spreads: None };

    fn balanced(html: &str) {
        for tag in
            ["section", "table", "thead", "tbody", "caption", "tr", "td", "th", "details", "ul", "li", "p", "div"]
        {
            let count = |mark: &str| html.matches(mark).count();
            assert_eq!(count(&format!("<{tag}>")) + count(&format!("<{tag} ")), count(&format!("</{tag}>")), "{tag}");
        }
    }

    #[test]
    fn a_row_says_on_the_page_what_the_json_says() {
        let order = claim("o", Kind::Order, Some(Relation::Order), Printed::Text("a < b & c".to_owned()));
        let number = claim("n", Kind::Predict, Some(Relation::Eq), Printed::Number(40.0));
        let rows = "[[row]]\nid='o'\nexperiment='e'\nholds=['latency_p99_us: a < b']\nreading='as read'\ncause='why'\n\
                    [[row]]\nid='n'\nexperiment='e'\nmetric='w'\npolicy='a'\ncompare='value'\n";
        let lab = Lab {
            claims: &[order, Claim { null: Some(2.0), ..number }],
            map: &map::parse(&[("map".to_owned(), rows.to_owned())]).unwrap(),
            store: &store(&[
                "e,rate=5,default,a,latency_p99_us,us,9,9",
                "e,rate=5,default,b,latency_p99_us,us,5,5",
                "e,rate=5,default,a,saturated,1,1,1",
                "e,rate=5,default,a,w,W,45,45",
            ]),
            calibrated: &BTreeSet::new(),
            file: &|_| None,
            parameter: &|_, _| None,
        };
        let left = LeftOut {
            seed: "sandman".into(),
            figure: "Fig 3".into(),
            rows: 1,
            come_out: 1,
            fitted: vec!["loop_ns".into()],
            moves: true,
            without: None,
            elsewhere: None,
        };
        let moved = Moved { constant: "batch".into(), compared: 3, changes: Vec::new(), suspect: true };
        let more = More {
            stale: &["old.csv".to_owned()],
            inert: &[],
            left_out: &[left],
            moved: Some(&[moved]),
            spreads: Some(&[]),
        };
        let html = page(&Report::new(&lab, None), &more);
        for part in [
            "<tr class=\"row verdict-misses\"><th scope=\"row\">o</th>",
            "order a &lt; b &amp; c",
            "reading: as read; cause: why",
            "a in e at rate=5 (2 of 2 runs)",
            "a &lt; b: holds 0, open 0, not 1",
            "left saturated",
            "= 40 W (trivial: 2)",
            "45 to 45",
            "\"error\">13.16 %</td>",
            "\"constants fitted on it\">loop_ns</td>",
            "\"suspect\">one figure only</td>",
            "to be run again: old.csv",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(!html.contains("a < b"));
        balanced(&html);
    }
}
