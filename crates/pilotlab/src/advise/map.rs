//! `pilotlab advise --map`: the most efficient value of a knob by two others, and the verified completion mechanisms.

use std::fmt::Write as _;

use pilotlight_lab::result_set::ResultSet;
use pilotlight_lab::results::Results;
use pilotlight_lab::study::map::{Map, Measure, Question, maps};
use pilotlight_lab::study::verify::summary;
use pilotlight_report::table::short;
use serde_json::json;

use crate::table::Table;

/// The maps as text or as JSON.
pub(super) fn render(result_set: &ResultSet, question: &Question, as_json: bool) -> anyhow::Result<String> {
    let maps = maps(result_set, question)?;
    if as_json {
        let value =
            json!({ "of": result_set.name, "mechanisms": summary(result_set.results.verdicts()), "maps": maps });
        return Ok(serde_json::to_string_pretty(&value)? + "\n");
    }
    let mut text = format!("{}\n{}", result_set.name, ran(&result_set.results));
    if question.by.is_none() && maps.iter().all(|map| map.by != Measure::Energy) {
        text += "\nNo power was measured: the maps are by CPU time and by latency, which say nothing of energy.\n";
    }
    maps.iter().for_each(|map| text += &self::text(map));
    text += "\nEach cell: the best one, and by how much its mean is better than the next; a tie where Welch's p is above 0.05, cell by \
             cell; `?` where nothing could be tested.\n";
    if !result_set.results.complete {
        text += "note: the run is incomplete: planned measurements are missing\n";
    }
    Ok(text)
}

/// Requested and actual completion mechanisms, if any was requested.
pub(crate) fn ran(results: &Results) -> String {
    let rows = summary(results.verdicts());
    let failed = results.points.iter().filter(|point| !point.failures.is_empty()).count();
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["<requested", "<actual", "<points", "interrupts/I/O", "switches/I/O"]);
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
    for row in &rows {
        let ran = row.actual.clone().unwrap_or_else(|| "not known".to_owned());
        let points = format!("{} of {}", row.points, row.of);
        table.row([row.requested.clone(), ran, points, number(row.interrupts_per_io), number(row.switches_per_io)]);
    }
    let mut text = format!("\nwhich mechanism really ran (mean over points):\n{table}\n");
    for row in rows.iter().filter(|row| !row.is_as_requested) {
        let _ = writeln!(text, "  {}", row.why);
    }
    if failed > 0 {
        let _ = writeln!(text, "  points that failed: {failed}; results.json has the reasons");
    }
    text
}

fn text(map: &Map) -> String {
    let (down, across) = map.sides();
    let knob = |side: &Option<(String, Vec<String>)>| side.as_ref().map(|(name, _)| name.clone()).unwrap_or_default();
    let first = match (knob(&map.down), knob(&map.across)) {
        (down, across) if across.is_empty() => format!("<{down}"),
        (down, across) => format!("<{down} \\ {across}"),
    };
    let headings: Vec<String> = [first].into_iter().chain(across.iter().map(|value| format!("<{value}"))).collect();
    let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    for row in &down {
        let cell = |column: &String| map.at(row, column).map(ToString::to_string).unwrap_or_default();
        table.row([row.clone()].into_iter().chain(across.iter().map(cell)));
    }
    let (wins, significant) = map.winners();
    let holm = if wins > 0 {
        format!("; {significant} of {wins} winners remain significant after Holm's correction over all cells")
    } else {
        String::new()
    };
    format!("\n{}\n{table}\n{}{holm}{}\n", map.title(), map.tally(), widest(map))
}

/// The largest margin and its cell.
fn widest(map: &Map) -> String {
    let wins = map.cells.iter().filter(|cell| cell.p.is_some_and(|p| p <= pilotlight_lab::study::map::LEVEL));
    let Some(cell) = wins.max_by(|a, b| a.margin_percent.unwrap_or(0.0).total_cmp(&b.margin_percent.unwrap_or(0.0)))
    else {
        return String::new();
    };
    let (best, next) = (cell.best.as_deref().unwrap_or_default(), cell.next.as_deref().unwrap_or_default());
    let margin = cell.margin.map(short).unwrap_or_default();
    let at = [&cell.down, &cell.across].map(String::as_str).join(" ");
    format!("\nlargest margin: {best} over {next} at {}, {margin} {}", at.trim(), map.unit)
}
