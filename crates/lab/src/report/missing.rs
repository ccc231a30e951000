//! What is missing and why: sensors that could not be read, metrics without a value, measurements that failed, parameters without effect.

use std::collections::BTreeMap;

use pilotlight_report::{Block, Cell, Column, Section, Table};

use super::Read;

pub(super) fn section(read: &Read) -> Option<Section> {
    let mut blocks: Vec<Block> = read.results.notes.iter().cloned().map(Block::Text).collect();
    blocks.extend(super::inert(&read.results).iter().map(|inert| Block::Text(inert.to_string())));
    blocks.extend(table(["metrics", "why there is no value"], metrics(read)).map(Block::Table));
    blocks.extend(table(["measurements", "why they failed"], failures(read)).map(Block::Table));
    (!blocks.is_empty()).then(|| Section { title: "What is missing, and what to know".into(), blocks })
}

/// How many metrics have no value anywhere, by reason.
fn metrics(read: &Read) -> BTreeMap<String, usize> {
    let results = &read.results;
    let mut why: BTreeMap<String, usize> = BTreeMap::new();
    for about in results.metrics.iter().filter(|about| !crate::shown::has(results, &about.key)) {
        let reason = results.points.iter().find_map(|point| point.missing.get(&about.key));
        reason.into_iter().for_each(|reason| *why.entry(reason.clone()).or_default() += 1);
    }
    why
}

fn failures(read: &Read) -> BTreeMap<String, usize> {
    let mut why: BTreeMap<String, usize> = BTreeMap::new();
    for failure in read.results.points.iter().flat_map(|point| &point.failures) {
        *why.entry(failure.clone()).or_default() += 1;
    }
    why
}

fn table([what, why]: [&str; 2], rows: BTreeMap<String, usize>) -> Option<Table> {
    let row = |(why, count): (String, usize)| vec![Cell::Integer(count as i64), Cell::text(why)];
    let columns = vec![Column::integer(what, ""), Column::text(why)];
    (!rows.is_empty()).then(|| Table { title: String::new(), columns, rows: rows.into_iter().map(row).collect() })
}
