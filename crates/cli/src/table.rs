//! Tables for people: columns as wide as what stands in them.

use std::fmt;

/// A table of text. Numbers stand on the right; a heading that begins with `<` puts its column on the left.
#[derive(Clone, Debug)]
pub struct Table {
    headings: Vec<(String, bool)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(headings: &[&str]) -> Self {
        let heading = |text: &&str| match text.strip_prefix('<') {
            Some(text) => (text.to_owned(), true),
            None => ((*text).to_owned(), false),
        };
        Self { headings: headings.iter().map(heading).collect(), rows: Vec::new() }
    }

    /// Adds a row, with as many cells as there are headings.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        debug_assert_eq!(cells.len(), self.headings.len());
        self.rows.push(cells);
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| width(&row[column]));
        cells.chain([width(&self.headings[column].0)]).max().unwrap_or(0)
    }
}

/// A name that someone else has chosen, for a terminal: characters that could act on it, or change the order of what is shown, are written
/// as `\u{1b}`.
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

/// Characters that are shown: colours are not.
fn width(text: &str) -> usize {
    let mut count = 0;
    let mut hidden = false;
    for character in text.chars() {
        match character {
            '\x1b' => hidden = true,
            'm' if hidden => hidden = false,
            _ if !hidden => count += 1,
            _ => {}
        }
    }
    count
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.headings.len()).map(|column| self.width(column)).collect();
        let headings: Vec<String> = self.headings.iter().map(|(text, _)| text.clone()).collect();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, (_, left)), &wide) in row.iter().zip(&self.headings).zip(&widths) {
                let padding = " ".repeat(wide - width(cell));
                let separator = if line.is_empty() { "" } else { "  " };
                line +=
                    &if *left { format!("{separator}{cell}{padding}") } else { format!("{separator}{padding}{cell}") };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_act_on_a_terminal() {
        assert_eq!(printable("nqn.2024-05.com.example:é"), "nqn.2024-05.com.example:é");
        assert_eq!(printable("a\x1b]0;b\x07c\r\n\u{9b}2J\u{202e}d"), r"a\u{1b}]0;b\u{7}c\u{d}\u{a}\u{9b}2J\u{202e}d");
    }

    #[test]
    fn columns_are_as_wide_as_what_stands_in_them() {
        let mut table = Table::new(&["<name", "IOPS", "<"]);
        table.row(["a".to_owned(), "1".to_owned(), "x".to_owned()]);
        table.row(["\x1b[32mlonger\x1b[0m".to_owned(), "12345".to_owned(), String::new()]);
        assert_eq!(table.to_string(), "name     IOPS\na           1  x\n\x1b[32mlonger\x1b[0m  12345\n");
    }
}
