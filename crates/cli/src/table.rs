//! Tables of text on a terminal, drawn by `comfy-table`.

use std::fmt;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement};

/// A table. Columns are aligned to the right, for numbers; a heading that begins with `<` aligns its column to the left.
#[derive(Clone, Debug)]
pub struct Table(comfy_table::Table);

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(headings: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(headings.iter().map(|heading| heading.strip_prefix('<').unwrap_or(heading)));
        for (column, heading) in table.column_iter_mut().zip(headings) {
            column.set_padding((0, 2));
            let is_left = heading.starts_with('<');
            column.set_cell_alignment(if is_left { CellAlignment::Left } else { CellAlignment::Right });
        }
        Self(table)
    }

    /// Adds a row, with as many cells as there are headings.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        debug_assert_eq!(cells.len(), self.0.column_count());
        self.0.add_row(cells);
    }
}

/// A name from another machine, for a terminal: control characters and characters that change the direction of text are escaped, as
/// `\u{1b}`.
#[must_use]
pub fn printable(name: &str) -> String {
    let is_invisible = |c: char| matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    let mut text = String::with_capacity(name.len());
    for character in name.chars() {
        if character.is_control() || is_invisible(character) {
            text.extend(character.escape_unicode());
        } else {
            text.push(character);
        }
    }
    text
}

/// Wraps text at blanks to lines of at most `width` columns, each with the indent and a line break.
#[must_use]
pub fn wrapped(text: &str, indent: &str, width: usize) -> String {
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && indent.len() + line.chars().count() + 1 + word.chars().count() > width {
            lines += &format!("{indent}{line}\n");
            line.clear();
        }
        line += if line.is_empty() { "" } else { " " };
        line += word;
    }
    lines + &format!("{indent}{line}\n")
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.lines().try_for_each(|line| writeln!(f, "{}", line.trim_end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_in_names_are_escaped() {
        assert_eq!(printable("nqn.2024-05.com.example:é"), "nqn.2024-05.com.example:é");
        assert_eq!(printable("a\x1b]0;b\x07c\r\n\u{9b}2J\u{202e}d"), r"a\u{1b}]0;b\u{7}c\u{d}\u{a}\u{9b}2J\u{202e}d");
    }

    #[test]
    fn columns_fit_their_cells_without_colours() {
        let mut table = Table::new(&["<name", "IOPS", "<"]);
        table.row(["a".to_owned(), "1".to_owned(), "x".to_owned()]);
        table.row(["\x1b[32mlonger\x1b[0m".to_owned(), "12345".to_owned(), String::new()]);
        assert_eq!(table.to_string(), "name     IOPS\na           1  x\n\x1b[32mlonger\x1b[0m  12345\n");
    }
}
