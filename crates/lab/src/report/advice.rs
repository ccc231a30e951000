//! Recommendations, as a table for each kind of work.

use pilotlight_report::table::short;
use pilotlight_report::{Block, Cell, Column, Section, Table};
use pilotlight_stats::Estimate;

use super::Read;
use crate::advise::{Outcome, Question, Row, Work, advise};
use crate::result_set::ResultSet;

pub(super) fn section(read: &Read) -> Option<Section> {
    let experiment = std::fs::read_to_string(read.folder.experiment()).ok().and_then(|text| text.parse().ok());
    let result_set = ResultSet { results: read.results.clone(), experiment, ..ResultSet::default() };
    let advice = advise(&result_set, &Question::default());
    let mut blocks: Vec<Block> = advice.works.iter().filter_map(table).map(Block::Table).collect();
    if blocks.is_empty() {
        return None;
    }
    blocks.push(Block::Text(format!(
        "A value is recommended only if another is significantly worse (p below 0.05, Holm's correction for {} tests, at least {} repeats). \
         Details: `pilotlab advise`.",
        advice.tests, advice.at_least
    )));
    Some(Section { title: "Recommendations".into(), blocks })
}

/// Knobs that were varied; `None` if there are none.
fn table(work: &Work) -> Option<Table> {
    let by = work.by.as_ref()?;
    let rows: Vec<Vec<Cell>> = work.rows.iter().filter_map(row).collect();
    let saves = if work.is_energy { "saves energy" } else { "saves" };
    let columns =
        ["knob", "best setting", "against", saves, "mean latency", "p99 latency", "best in"].map(Column::text);
    (!rows.is_empty()).then(|| Table {
        title: format!("{}; measure: {by}", work.about),
        columns: columns.to_vec(),
        rows,
    })
}

fn row(row: &Row) -> Option<Vec<Cell>> {
    let knob = row.knob.clone()?;
    let times = |ratio: &Option<Estimate>| {
        ratio.map_or("-".into(), |r| format!("x{} ({} to {})", short(r.value), short(r.low), short(r.high)))
    };
    let cells: [String; 6] = match &row.outcome {
        Outcome::NotVaried | Outcome::NotDerived(_) => return None,
        Outcome::InsufficientData(why) => without_values(format!("insufficient data: {why}")),
        Outcome::NoneWithinLimit => without_values("none within the latency limit".into()),
        Outcome::NoDifference { .. } => without_values("no significant difference".into()),
        Outcome::Best(best) => {
            let Estimate { value, low, high, .. } = best.saves_percent;
            let except: Vec<String> = best.except.iter().map(|(at, value)| format!("{value} at {at}")).collect();
            let except = if except.is_empty() { String::new() } else { format!("; except {}", except.join(", ")) };
            [
                format!("{}{except}", best.values.join(" or ")),
                best.against.clone(),
                format!("{value:.1} % ({low:.1} to {high:.1})"),
                times(&best.latency_mean),
                times(&best.latency_p99),
                format!("{} of {}", best.holds_in, best.circumstances),
            ]
        }
    };
    Some([knob].into_iter().chain(cells).map(Cell::text).collect())
}

fn without_values(reason: String) -> [String; 6] {
    let nothing = || "-".to_owned();
    [reason, nothing(), nothing(), nothing(), nothing(), nothing()]
}
