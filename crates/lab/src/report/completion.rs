//! The verified completion mechanisms, and the most efficient one by request size and number of jobs.

use pilotlight_report::table::short;
use pilotlight_report::{Block, Cell, Column, Section, Table};

use super::Read;
use crate::result_set::ResultSet;
use crate::study::map::{Map, Question, maps};
use crate::study::verify::{Row, summary};

pub(super) fn section(read: &Read) -> Option<Section> {
    let rows = summary(read.results.verdicts());
    let mut blocks: Vec<Block> = (!rows.is_empty()).then(|| Block::Table(verified(&rows))).into_iter().collect();
    let result_set = ResultSet { results: read.results.clone(), ..ResultSet::default() };
    for map in maps(&result_set, &Question::default()).unwrap_or_default() {
        let (wins, stand) = map.winners();
        blocks.push(Block::Table(table(&map)));
        blocks.push(Block::Text(format!(
            "{}. Each cell has the best mechanism and the difference of its mean to the next; a tie if Welch's p is above 0.05. \
             {stand} of {wins} winners remain significant after Holm's correction over all cells.",
            map.tally()
        )));
    }
    (!blocks.is_empty()).then(|| Section { title: "Completion mechanisms".into(), blocks })
}

fn verified(rows: &[Row]) -> Table {
    let headings = [
        "requested",
        "actual",
        "points",
        "interrupts per I/O",
        "context switches per I/O",
        "evidence at the first point",
    ];
    let number = |value: Option<f64>| value.map_or(Cell::Nothing, |value| Cell::text(short(value)));
    let row = |row: &Row| {
        vec![
            Cell::text(row.requested.clone()),
            Cell::text(row.actual.clone().unwrap_or_else(|| "unknown".into())),
            Cell::text(format!("{} of {}", row.points, row.of)),
            number(row.interrupts_per_io),
            number(row.switches_per_io),
            Cell::text(row.why.clone()),
        ]
    };
    Table {
        title: "Requested and actual mechanism".into(),
        columns: headings.map(Column::text).to_vec(),
        rows: rows.iter().map(row).collect(),
    }
}

fn table(map: &Map) -> Table {
    let (down, across) = map.sides();
    let knob = map.down.as_ref().map_or(String::new(), |(name, _)| name.clone());
    let heading = |value: &String| match &map.across {
        Some((name, _)) => format!("{name} {value}"),
        None => map.knob.clone(),
    };
    let cell =
        |row: &String, column: &String| Cell::text(map.at(row, column).map(ToString::to_string).unwrap_or_default());
    Table {
        title: map.title(),
        columns: [knob].into_iter().chain(across.iter().map(heading)).map(|name| Column::text(&name)).collect(),
        rows: down
            .iter()
            .map(|row| {
                [Cell::text(row.clone())].into_iter().chain(across.iter().map(|column| cell(row, column))).collect()
            })
            .collect(),
    }
}
