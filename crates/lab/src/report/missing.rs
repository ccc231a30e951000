//! Notes, metrics without values, failed measurements, and parameters without effect.

use std::collections::BTreeMap;

use pilotlight_report::{Block, Cell, Column, Section, Table};

use super::Read;

pub(super) fn section(read: &Read) -> Option<Section> {
    let mut blocks: Vec<Block> = read.results.notes.iter().cloned().map(Block::Text).collect();
    blocks.extend(super::inert(&read.results).iter().map(|inert| Block::Text(inert.to_string())));
    blocks.extend(without_value(read).map(Block::Table));
    blocks.extend(failures(read).map(Block::Table));
    (!blocks.is_empty()).then(|| Section { title: "Notes and missing values".into(), blocks })
}

/// Maximum number of points listed for a reason.
const MAX_LISTED: usize = 12;

/// Number of metrics without any value, by reason.
fn without_value(read: &Read) -> Option<Table> {
    let results = &read.results;
    let mut why: BTreeMap<&str, i64> = BTreeMap::new();
    for about in results.metrics.iter().filter(|about| !results.has(&about.key)) {
        let reason = results.points.iter().find_map(|point| point.missing.get(&about.key));
        reason.into_iter().for_each(|reason| *why.entry(reason).or_default() += 1);
    }
    let columns = vec![Column::integer("metrics", ""), Column::text("reason")];
    let rows = why.into_iter().map(|(why, count)| vec![Cell::Integer(count), Cell::text(why)]).collect();
    table(columns, rows)
}

/// Failed measurements by reason, with their points.
fn failures(read: &Read) -> Option<Table> {
    let mut why: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for point in &read.results.points {
        let place = || super::varied_knobs(&point.knobs, &read.results);
        point.failures.iter().for_each(|failure| why.entry(failure).or_default().push(place()));
    }
    let columns = vec![Column::integer("measurements", ""), Column::text("reason"), Column::text("points")];
    let row = |(why, mut places): (&str, Vec<String>)| {
        let count = places.len();
        places.dedup();
        let more = places.len().saturating_sub(MAX_LISTED);
        places.truncate(MAX_LISTED);
        let more = if more > 0 { format!(" and at {more} more points") } else { String::new() };
        vec![Cell::Integer(count as i64), Cell::text(why), Cell::text(places.join(", ") + &more)]
    };
    table(columns, why.into_iter().map(row).collect())
}

fn table(columns: Vec<Column>, rows: Vec<Vec<Cell>>) -> Option<Table> {
    (!rows.is_empty()).then(|| Table { title: String::new(), columns, rows })
}
