//! Which mechanism of completion really ran, and which of them is the most efficient by request size and number of jobs.

use pilotlight_report::table::short;
use pilotlight_report::{Block, Cell, Column, Section, Table};

use super::Read;
use crate::given::Given;
use crate::study::map::{Map, Question, maps};
use crate::study::ran::{Row, summary};

pub(super) fn section(read: &Read) -> Option<Section> {
    let rows = summary(&read.results);
    let mut blocks: Vec<Block> = (!rows.is_empty()).then(|| Block::Table(ran(&rows))).into_iter().collect();
    let given = Given { results: read.results.clone(), ..Given::default() };
    for map in maps(&given, &Question::default()).unwrap_or_default() {
        let (wins, stand) = map.standing();
        blocks.push(Block::Table(table(&map)));
        blocks.push(Block::Text(format!(
            "{}. In each cell the best one and by how much its mean is better than the next; a tie where Welch's p is above 0.05. \
             {stand} of {wins} winners stand when all cells are corrected together (Holm).",
            map.tally()
        )));
    }
    (!blocks.is_empty()).then(|| Section { title: "How requests were completed".into(), blocks })
}

fn ran(rows: &[Row]) -> Table {
    let headings = [
        "asked for",
        "ran",
        "points",
        "interrupts per I/O",
        "context switches per I/O",
        "of the first of these points",
    ];
    let number = |value: Option<f64>| value.map_or(Cell::Nothing, |value| Cell::text(short(value)));
    let row = |row: &Row| {
        vec![
            Cell::text(row.asked.clone()),
            Cell::text(row.ran.clone().unwrap_or_else(|| "not known".into())),
            Cell::text(format!("{} of {}", row.points, row.of)),
            number(row.interrupts_per_io),
            number(row.switches_per_io),
            Cell::text(row.why.clone()),
        ]
    };
    Table {
        title: "Which mechanism really ran".into(),
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
    let cell = |row: &String, column: &String| {
        Cell::text(map.at(row, column).map(crate::study::map::Cell::words).unwrap_or_default())
    };
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
