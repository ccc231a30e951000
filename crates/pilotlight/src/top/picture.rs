//! The picture of `pilotlight top` in the documentation: a screen as SVG, drawn from reports that docs/pictures/terminal.sh recorded of a running server.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};

use super::history::History;
use super::keys::Ui;
use super::view::{Connection, Screen, draw};
use crate::status::report::Report;

const SIZE: (u16, u16) = (80, 24);
/// A character, in pixels.
const CELL: (f64, f64) = (8.4, 18.0);
const BACKGROUND: &str = "#16181d";
const TEXT: &str = "#d6d9de";

#[test]
fn the_documented_picture_matches_the_output() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let recorded = fs::read_to_string(docs.join("pictures/status.jsonl")).unwrap();
    let reports: Vec<Report> = recorded.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut history = History::default();
    reports.iter().for_each(|report| history.note(report));
    let area = Rect::new(0, 0, SIZE.0, SIZE.1);
    let mut buffer = Buffer::empty(area);
    let screen = Screen {
        report: reports.last(),
        history: &history,
        connection: &Connection::Up,
        age: None,
        ui: &Ui::default(),
    };
    draw(&screen, area, &mut buffer);
    let (drawn, file) = (svg(&buffer), docs.join("top.svg"));
    if std::env::var_os("WRITE_DOCS").is_some() {
        fs::write(&file, &drawn).unwrap();
    }
    assert!(fs::read_to_string(file).unwrap() == drawn, "WRITE_DOCS=1 cargo test -p pilotlight --bins picture");
}

/// A screen as SVG: a `text` for each run of cells with one style.
fn svg(buffer: &Buffer) -> String {
    let (width, height) = (f64::from(SIZE.0) * CELL.0 + 16.0, f64::from(SIZE.1) * CELL.1 + 16.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.1} {height:.1}\" font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"14\">\n\
         <title>pilotlight top</title>\n<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n"
    );
    for y in 0..SIZE.1 {
        let mut x = 0;
        while x < SIZE.0 {
            let cell = &buffer[(x, y)];
            let end = (x..SIZE.0).find(|&other| buffer[(other, y)].style() != cell.style()).unwrap_or(SIZE.0);
            let text: String = (x..end).map(|x| buffer[(x, y)].symbol()).collect();
            run(&mut out, cell, (x, y), &text);
            x = end;
        }
    }
    out + "</svg>\n"
}

fn run(out: &mut String, cell: &Cell, (x, y): (u16, u16), text: &str) {
    let columns = text.chars().count() as f64;
    let (left, top) = (f64::from(x) * CELL.0 + 8.0, f64::from(y) * CELL.1 + 8.0);
    let (mut colour, mut behind) = (colour(cell.fg), None);
    if cell.modifier.contains(Modifier::REVERSED) {
        (colour, behind) = (BACKGROUND, Some(colour));
    }
    let wide = columns * CELL.0;
    if let Some(behind) = behind {
        let _ = writeln!(
            out,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{}\" fill=\"{behind}\"/>",
            CELL.1
        );
    }
    let weight = if cell.modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let dim = if cell.modifier.contains(Modifier::DIM) { " opacity=\"0.7\"" } else { "" };
    let (mut places, mut letters) = (Vec::new(), String::new());
    for (at, character) in text.chars().enumerate() {
        let x = left + at as f64 * CELL.0;
        if let Some((share, opacity)) = block(character) {
            let (height, y) = (share * CELL.1, top + (1.0 - share) * CELL.1);
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{}\" height=\"{height:.1}\" fill=\"{colour}\" opacity=\"{opacity}\"/>",
                CELL.0
            );
        } else if character != ' ' {
            // a position for each letter, as the reader's font may be wider
            places.push(format!("{x:.1}"));
            letters += &character.to_string().replace('&', "&amp;").replace('<', "&lt;");
        }
    }
    if !letters.is_empty() {
        let (places, baseline) = (places.join(" "), top + 13.5);
        let _ =
            writeln!(out, "<text x=\"{places}\" y=\"{baseline:.1}\" fill=\"{colour}\"{weight}{dim}>{letters}</text>");
    }
}

/// The share of its cell that a block fills from below, and how densely.
fn block(character: char) -> Option<(f64, f64)> {
    match character {
        '▁'..='█' => Some((f64::from(u32::from(character) - u32::from('▁') + 1) / 8.0, 1.0)),
        '▒' => Some((1.0, 0.45)),
        _ => None,
    }
}

fn colour(colour: Color) -> &'static str {
    match colour {
        Color::Green => "#7fc97f",
        Color::Yellow => "#e6c35c",
        Color::Red => "#ef6f6c",
        Color::Cyan => "#6cc5d6",
        Color::Blue => "#7aa2f7",
        _ => TEXT,
    }
}
