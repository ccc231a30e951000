//! The claims as an HTML page: tables without scripts or external resources. It has the content of the JSON, with counts of findings that
//! hold.

use std::collections::BTreeMap;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::claim::{Kind, Printed};
use super::lab::Assessment;
use super::leave_out::LeftOut;
use super::order::Finding;
use super::perturb::{Change, Sensitivity};
use super::report::{Counts, Report, TierCount, TierRow};
use super::saturated::SaturatedRuns;
use super::uncertainty::Spread;
use super::verdict::{Holds, Verdict};

/// Maximum number of findings listed per row.
const MAX_LISTED: usize = 12;

const STYLE: &str = include_str!("page.css");

/// Optional sections of the page.
#[derive(Clone, Copy, Debug)]
pub struct Appendix<'a> {
    /// Results of outdated files.
    pub stale: &'a [String],
    /// Swept parameters without effect.
    pub inert: &'a [String],
    /// Each figure without the constants fitted on it.
    pub left_out: &'a [LeftOut],
    /// Sensitivity to each constant.
    pub moved: Option<&'a [Sensitivity]>,
    /// Spread over draws of all constants.
    pub spreads: Option<&'a [Spread]>,
}

/// A complete page.
#[must_use]
pub fn page(report: &Report, more: &Appendix<'_>) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Claims" }
                style { (PreEscaped(STYLE)) }
            }
            body { (section(report, more)) }
        }
    };
    page.into_string() + "\n"
}

/// A `<section>` with counts by paper and verdict, all rows by figure, and sensitivities. The class of a row is `verdict-` with the words of
/// its verdict.
#[must_use]
pub fn section(report: &Report, more: &Appendix<'_>) -> Markup {
    let ids = |rows: &[&Assessment]| rows.iter().map(|row| row.id.clone()).collect::<Vec<_>>();
    let mapped = |row: &&Assessment| row.verdict != Verdict::NotMapped;
    let given = report.rows.iter().filter(|row| !row.kind.is_result());
    let (given, unmapped): (Vec<_>, Vec<_>) = given.partition(mapped);
    html! {
        section #claims {
            h1 { "Values of the papers beside results here" }
            p {
                "Intervals are 95 %. A number has the value under an error of 10 % of |paper − trivial|, the size under 25 %, the direction on \
                 the printed side of no effect; an order has its direction where 90 % of its pairs hold and none is reversed. Watts are modelled."
            }
            (tiers(report))
            (counts("Results: evidence if they agree", &report.results, &Verdict::OF_RESULTS))
            (counts("Bounds that a trivial policy also meets: no evidence", &report.no_evidence, &Verdict::OF_RESULTS))
            (counts("Taken as given: checked, not counted as results", &report.given, &Verdict::OF_GIVEN))
            (listed("Verdicts before overriding", &report.overruled_lines()))
            (listed("Inputs without a reader: copies of printed values that neither simulator, lab nor policies read", &report.unread()))
            (listed("Stale results, to be repeated", more.stale))
            (listed("Swept parameters without effect", more.inert))
            (listed("Missed or undecided, without a cause in the map", &ids(&report.without_cause())))
            (listed("Rows of the map without a claim", &report.unused))
            @for ((seed, figure), rows) in report.by_figure() {
                @let (rows, unmapped): (Vec<_>, Vec<_>) = rows.into_iter().partition(mapped);
                (rows_of(&format!("{seed}, {figure}"), &rows))
                (listed(&format!("{seed}, {figure}: not mapped"), &ids(&unmapped)))
            }
            (rows_of("Taken as given", &given))
            (listed("Taken as given: not mapped", &ids(&unmapped)))
            (left_out(more.left_out))
            @if let Some(moved) = more.moved { (moved_by(moved)) }
            @if let Some(spreads) = more.spreads { (drawn(spreads)) }
            @for stamp in &report.profiles { p { (stamp.file) ": profile " (stamp.profile) ", " (stamp.hash) } }
        }
    }
}

fn listed(title: &str, ids: &[impl AsRef<str>]) -> Markup {
    let ids: Vec<&str> = ids.iter().map(AsRef::as_ref).collect();
    html! { @if !ids.is_empty() { p.listed { (title) ": " (ids.join(", ")) } } }
}

/// A row of a table: its class, and its cells.
struct Row {
    class: String,
    cells: Vec<Markup>,
}

impl Row {
    fn new(class: impl Into<String>, cells: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let cells = cells.into_iter().map(|cell| html! { (cell.as_ref().trim()) }).collect();
        Self { class: class.into(), cells }
    }
}

/// A table, if it has rows. Narrow screens show the head next to each cell.
fn table(title: &str, heads: &[&str], rows: &[Row]) -> Markup {
    html! {
        @if !rows.is_empty() {
            div.wide {
                table {
                    caption { (title) }
                    thead { tr { @for head in heads { th scope="col" { (head) } } } }
                    tbody {
                        @for row in rows {
                            tr class=(row.class) {
                                @if let Some(first) = row.cells.first() { th scope="row" { (first) } }
                                @for (head, cell) in heads.iter().zip(&row.cells).skip(1) { td data-head=(head) { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn counts(title: &str, seeds: &BTreeMap<String, Counts>, verdicts: &[Verdict]) -> Markup {
    let heads: Vec<&str> =
        ["paper", "rows"].into_iter().chain(verdicts.iter().map(|verdict| verdict.label())).collect();
    let row = |(seed, counts): (&String, &Counts)| {
        let total: usize = counts.values().sum();
        let each = verdicts.iter().map(|verdict| counts.get(verdict).copied().unwrap_or(0).to_string());
        Row::new("counts", [seed.clone(), total.to_string()].into_iter().chain(each))
    };
    table(title, &heads, &seeds.iter().map(row).collect::<Vec<_>>())
}

fn rows_of(title: &str, rows: &[&Assessment]) -> Markup {
    let heads = [
        "row",
        "measured",
        "paper",
        "here",
        "95 % interval",
        "error",
        "verdict",
        "over all that is not printed",
        "note",
    ];
    table(title, &heads, &rows.iter().map(|row| claim_row(row)).collect::<Vec<_>>())
}

fn claim_row(row: &Assessment) -> Row {
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
    let paper = format!("{relation} {} {unit}{trivial}", row.paper);
    let error = error.unwrap_or_default();
    let cells = [&row.id, &row.metric, &paper, &value, &interval, &error, &verdict_text(row), &robust_text(row)];
    let mut one = Row::new(format!("row verdict-{}", row.verdict.label().replace(' ', "-")), cells);
    one.cells.push(html! { (note(row)) (findings(&row.findings)) });
    one
}

/// The verdict, with the overridden one.
#[must_use]
pub fn verdict_text(row: &Assessment) -> String {
    let evidence = if row.evidence { "" } else { ", no evidence" };
    match row.otherwise {
        Some(otherwise) => format!("{} ({}){evidence}", row.verdict.label(), otherwise.label()),
        None => format!("{}{evidence}", row.verdict.label()),
    }
}

/// Interval and verdict over the family and the assumed constants; empty without any.
#[must_use]
pub fn robust_text(row: &Assessment) -> String {
    let Some(robust) = &row.robust else { return String::new() };
    let ours = robust.ours.map(|ours| format!("{} to {}: ", short(ours.low), short(ours.high)));
    let pairs = robust.pairs.map(|(holding, all)| format!("{holding} of {all}: "));
    format!("{}{}", ours.or(pairs).unwrap_or_default(), robust.verdict.label())
}

/// A count of a tier: how many hold, of how many; how many are open; of those evaluated over all that is not printed,
/// how many hold there too.
#[must_use]
pub fn tier_text(count: &TierCount) -> String {
    match count.of {
        0 => "-".to_owned(),
        of => {
            let open = if count.open > 0 { format!(", {} open", count.open) } else { String::new() };
            let tested = count.tested > 0;
            let robust = if tested { format!("; robust {} of {}", count.robust, count.tested) } else { String::new() };
            format!("{} of {of}{open}{robust}", count.holds)
        }
    }
}

/// The cells of a row of the counts by tier.
#[must_use]
pub fn tier_cells(row: &TierRow) -> [String; 6] {
    let [direction, size, value] = [&row.direction, &row.size, &row.value].map(tier_text);
    [row.seed.clone(), row.of.label().to_owned(), row.rows.to_string(), direction, size, value]
}

/// The head of [`tier_cells`].
pub const TIER_HEADS: [&str; 6] = ["paper", "results", "rows", "direction", "size (25 %)", "value (10 %)"];

fn tiers(report: &Report) -> Markup {
    let rows: Vec<Row> = report.tiers.iter().map(|row| Row::new("counts", tier_cells(row))).collect();
    table("What holds", &TIER_HEADS, &rows)
}

/// The discriminators of a row; `None` without any.
#[must_use]
pub fn apart_text(row: &Assessment) -> Option<String> {
    (!row.discriminators.is_empty()).then(|| format!("discriminators: {}", row.discriminators.join("; ")))
}

/// Constants fitted and choices made on a row; `None` without any.
#[must_use]
pub fn fitted_text(row: &Assessment) -> Option<String> {
    (!row.fitted.is_empty()).then(|| format!("fitted or chosen on it: {}", row.fitted.join("; ")))
}

/// The saturated runs of a row; `None` without any.
#[must_use]
pub fn saturated_text(row: &Assessment) -> Option<String> {
    let mut places: BTreeMap<(&str, &str), Vec<&SaturatedRuns>> = BTreeMap::new();
    for full in &row.saturated {
        places.entry((&full.experiment, &full.policy)).or_default().push(full);
    }
    let each: Vec<String> =
        places.into_iter().map(|((experiment, policy), at)| place(experiment, policy, &at)).collect();
    (!each.is_empty()).then(|| format!("saturated (no latency, watts as measured): {}", each.join("; ")))
}

/// `governor in fig3 at rate=1280000, rate=2560000 (20 of 20 runs)`
fn place(experiment: &str, policy: &str, at: &[&SaturatedRuns]) -> String {
    let points: Vec<&str> = at.iter().map(|full| full.point.as_str()).filter(|point| !point.is_empty()).collect();
    let points = if points.is_empty() { String::new() } else { format!(" at {}", points.join(", ")) };
    let count = |of: fn(&SaturatedRuns) -> usize| at.iter().map(|full| of(full)).sum::<usize>();
    format!("{policy} in {experiment}{points} ({} of {} runs)", count(|full| full.saturated), count(|full| full.runs))
}

fn note(row: &Assessment) -> String {
    let reading = row.reading.as_ref().map(|reading| format!("reading: {reading}"));
    let cause = row.cause.as_ref().map(|cause| format!("cause: {cause}"));
    let (fitted, contradiction) = (fitted_text(row), row.contradiction.clone());
    let (apart, saturated) = (apart_text(row), saturated_text(row));
    let parts = [Some(row.note.clone()), apart, saturated, reading, fitted, contradiction, cause];
    let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.trim().is_empty()).collect();
    parts.join("; ")
}

/// Counts by pair, then the findings that do not hold.
fn findings(findings: &[Finding]) -> Markup {
    let mut pairs: BTreeMap<(&str, &str), [usize; 3]> = BTreeMap::new();
    for finding in findings {
        let at = [Holds::Yes, Holds::Open, Holds::No].iter().position(|holds| *holds == finding.holds).unwrap_or(2);
        pairs.entry((&finding.metric, &finding.pair)).or_default()[at] += 1;
    }
    let not: Vec<&Finding> = findings.iter().filter(|finding| finding.holds != Holds::Yes).collect();
    html! {
        @if !findings.is_empty() {
            details {
                summary { "pairs" }
                ul {
                    @for ((metric, pair), [yes, open, no]) in pairs {
                        li { (metric) ": " (pair) ": holds " (yes) ", open " (open) ", not " (no) }
                    }
                }
                @for finding in not.iter().take(MAX_LISTED) { p { (finding_text(finding)) } }
                @if not.len() > MAX_LISTED { p { "and " (not.len() - MAX_LISTED) " more; the JSON has them all" } }
            }
        }
    }
}

/// A finding as one line.
#[must_use]
pub fn finding_text(finding: &Finding) -> String {
    let Finding { pair, metric, point, variant, difference, margin, holds, is_reversed, saturated } = finding;
    let holds = match holds {
        Holds::Yes => "holds",
        Holds::Open => "open",
        Holds::No if *is_reversed => "is reversed",
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

fn left_out(rows: &[LeftOut]) -> Markup {
    let heads = [
        "figure",
        "results compared",
        "reproduced",
        "constants fitted on the figure",
        "reproduced without them",
        "changed verdicts of other figures",
    ];
    let row = |row: &LeftOut| {
        let without = row.without.map_or_else(|| "not run".to_owned(), |count| count.to_string());
        let elsewhere = row.elsewhere.as_ref().map_or_else(|| "not run".to_owned(), |changes| changed(changes));
        let (rows, reproduced) = (row.rows.to_string(), row.reproduced.to_string());
        let figure = format!("{}, {}", row.seed, row.figure);
        Row::new("row", [figure, rows, reproduced, row.fitted.join(", "), without, elsewhere])
    };
    table("Leave one figure out", &heads, &rows.iter().map(row).collect::<Vec<_>>())
}

fn changed(changes: &[Change]) -> String {
    let each = changes.iter().map(|c| format!("{} {}: {} becomes {}", c.id, c.by, c.from.label(), c.to.label()));
    each.collect::<Vec<_>>().join("; ")
}

fn moved_by(moved: &[Sensitivity]) -> Markup {
    let row = |moved: &Sensitivity| {
        let suspect = if moved.suspect { "one figure only" } else { "" };
        Row::new("row", [&moved.constant, &moved.compared.to_string(), suspect, &changed(&moved.changes)])
    };
    let rows: Vec<_> = moved.iter().map(row).collect();
    table("Constants changed by 20 %", &["constant", "rows compared", "suspect", "changed verdicts"], &rows)
}

/// The cells of a row of the draws: its id, printed number, draws, middle 95 %, share reproduced and most influential constant.
#[must_use]
pub fn spread_cells(spread: &Spread) -> [String; 6] {
    let paper = spread.paper.number().map(|number| format!("{number} {}", spread.unit));
    let middle = spread.low.zip(spread.high).map(|(low, high)| format!("{} to {}", short(low), short(high)));
    let most = spread.most.as_ref().map(ToString::to_string);
    let [paper, middle, most] = [paper, middle, most].map(Option::unwrap_or_default);
    let share = format!("{:.0} %", 100.0 * spread.reproduced);
    [spread.id.clone(), paper, spread.draws.to_string(), middle, share, most]
}

fn drawn(spreads: &[Spread]) -> Markup {
    let row = |spread: &Spread| {
        let mut cells = spread_cells(spread);
        cells[1] = format!("{} {}", spread.paper, spread.unit);
        Row::new("row", cells)
    };
    let heads = ["row", "paper", "draws", "middle 95 %", "reproduced", "most influential constant"];
    table("Draws of all constants over their ranges", &heads, &spreads.iter().map(row).collect::<Vec<_>>())
}

/// A number with four digits.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::claim::tests::claim;
    use super::super::claim::{Claim, Printed, Relation};
    use super::super::lab::Lab;
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
    fn unmapped_rows_are_listed() {
        let order = claim("o", Kind::Order, Some(Relation::Order), Printed::Text("a < b & c".to_owned()));
        let given = claim("g", Kind::Input, None, Printed::Number(3.0));
        let lab = Lab {
            claims: &[order, given],
            map: &map::parse(&[]).unwrap(),
            store: &store(&[]),
            calibrated: &BTreeSet::new(),
            file: &|_| None,
            parameter: &|_, _| None,
            constants: None,
        };
        let html = page(&Report::new(&lab, None), &NOTHING);
        assert!(html.contains("sandman, Fig 3: not mapped: o<") && html.contains("not mapped: g<"), "{html}");
        balanced(&html);
    }

    const NOTHING: Appendix<'_> = Appendix { stale: &[], inert: &[], left_out: &[], moved: None, spreads: None };

    fn balanced(html: &str) {
        for tag in
            ["section", "table", "thead", "tbody", "caption", "tr", "td", "th", "details", "ul", "li", "p", "div"]
        {
            let count = |mark: &str| html.matches(mark).count();
            assert_eq!(count(&format!("<{tag}>")) + count(&format!("<{tag} ")), count(&format!("</{tag}>")), "{tag}");
        }
    }

    #[test]
    fn the_page_has_the_content_of_the_json() {
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
            constants: None,
        };
        let left = LeftOut {
            seed: "sandman".into(),
            figure: "Fig 3".into(),
            rows: 1,
            reproduced: 1,
            fitted: vec!["loop_ns".into()],
            moves: true,
            without: None,
            elsewhere: None,
        };
        let moved = Sensitivity { constant: "batch".into(), compared: 3, changes: Vec::new(), suspect: true };
        let more = Appendix {
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
            "\"constants fitted on the figure\">loop_ns</td>",
            "\"suspect\">one figure only</td>",
            "to be repeated: old.csv",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(!html.contains("a < b"));
        balanced(&html);
    }
}
