//! The report as text: a table per section, then its missing items.

use std::fmt::Write as _;

use super::report::{Lack, Mark, Report, Row, Section};

/// Columns of a line.
const WIDTH: usize = 110;
/// Columns of the mark, with the space after it.
const MARK: usize = 9;

/// The whole report.
pub(super) fn render(report: &Report, colour: bool) -> String {
    let mut out = format!("{}\n{}\n", report.machine, report.cores);
    report.sections.iter().for_each(|section| render_section(&mut out, section, colour));
    let counts = [Mark::Ok, Mark::Limited, Mark::Missing].map(|mark| format!("{} {}", report.count(mark), mark.name()));
    let _ = writeln!(out, "\n{}", counts.join(", "));
    out
}

fn render_section(out: &mut String, section: &Section, colour: bool) {
    let _ = writeln!(out, "\n{}", paint(colour, "1", section.title));
    let item = section.rows.iter().map(|row| row.item.chars().count()).max().unwrap_or(0) + 2;
    section.rows.iter().for_each(|row| render_row(out, row, item, colour));
    section.lacks.iter().for_each(|lack| render_lack(out, lack, mark_of(section, lack), colour));
}

/// The mark of the row of a missing item.
fn mark_of(section: &Section, lack: &Lack) -> Mark {
    section.rows.iter().find(|row| row.item == lack.what).map_or(Mark::Limited, |row| row.mark)
}

fn render_row(out: &mut String, row: &Row, item: usize, colour: bool) {
    let mark = paint(colour, code(row.mark), &format!("{:MARK$}", row.mark.name()));
    let indent = 2 + MARK + item;
    let text = wrap(&row.found, WIDTH.saturating_sub(indent), indent);
    let _ = writeln!(out, "  {mark}{:item$}{text}", row.item);
}

fn render_lack(out: &mut String, lack: &Lack, mark: Mark, colour: bool) {
    let _ = writeln!(out, "\n    {}", paint(colour, code(mark), &format!("{}: {}", mark.name(), lack.what)));
    let mut part = |name: &str, text: &str| {
        let _ = writeln!(out, "      {name:8}{}", wrap(text, WIDTH - 14, 14));
    };
    part("why", &lack.why);
    part("costs", &lack.costs);
    lack.remedy.iter().enumerate().for_each(|(at, text)| part(if at == 0 { "remedy" } else { "" }, text));
}

fn code(mark: Mark) -> &'static str {
    match mark {
        Mark::Ok => "32",
        Mark::Limited => "33",
        Mark::Missing => "31",
    }
}

fn paint(colour: bool, code: &str, text: &str) -> String {
    if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Wraps a text into lines of at most `width` columns, where spaces allow; all but the first are indented.
/// Text between backquotes is a command and is not wrapped.
fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in pieces(text) {
        let len = word.chars().count();
        if column > 0 && column + 1 + len > width {
            let _ = write!(out, "\n{:indent$}", "");
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(&word);
        column += len;
    }
    out
}

/// Words; a command between backquotes is one.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    let mut open = false;
    for word in text.split(' ') {
        match pieces.last_mut() {
            Some(last) if open => {
                last.push(' ');
                last.push_str(word);
            }
            _ => pieces.push(word.to_owned()),
        }
        open ^= word.matches('`').count() % 2 == 1;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_not_in_commands() {
        assert_eq!(wrap("one two three", 7, 2), "one two\n  three");
        assert_eq!(wrap("run `a b c d` now", 6, 1), "run\n `a b c d`\n now");
        assert_eq!(wrap("immovable", 3, 1), "immovable");
    }

    #[test]
    fn colours_only_where_wanted() {
        assert_eq!(paint(false, "31", "x"), "x");
        assert_eq!(paint(true, "31", "x"), "\x1b[31mx\x1b[0m");
    }
}
