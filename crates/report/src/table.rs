//! Tables of results: columns with units, rows of cells.

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Its title.
    pub title: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows, with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, without the unit.
    pub name: String,
    /// The unit; empty if it has none.
    pub unit: String,
    /// The type of its cells.
    pub kind: Kind,
}

/// The type of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text,
    /// Whole numbers.
    Integer,
    /// Numbers.
    Number,
}

/// A cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// No value.
    Nothing,
}

impl Column {
    /// A column of numbers in a unit.
    #[must_use]
    pub fn number(name: &str, unit: &str) -> Self {
        Self { name: name.to_owned(), unit: unit.to_owned(), kind: Kind::Number }
    }

    /// A column of whole numbers.
    #[must_use]
    pub fn integer(name: &str, unit: &str) -> Self {
        Self { name: name.to_owned(), unit: unit.to_owned(), kind: Kind::Integer }
    }

    /// A column of text.
    #[must_use]
    pub fn text(name: &str) -> Self {
        Self { name: name.to_owned(), unit: String::new(), kind: Kind::Text }
    }

    /// Name and unit as one word, for files: `power_w`. A unit that is a word of the name is not repeated.
    #[must_use]
    pub fn key(&self) -> String {
        let tidy = |text: &str| -> String {
            let word =
                |c: char| if c.is_ascii_alphanumeric() || ".@".contains(c) { c.to_ascii_lowercase() } else { '_' };
            text.replace('%', "percent").replace('/', "_per_").chars().map(word).collect()
        };
        let (name, unit) = (tidy(&self.name), tidy(&self.unit));
        let said = unit.is_empty() || name.split(['_', '.']).any(|word| word == unit);
        if said { name } else { format!("{name}_{}", unit.trim_start_matches('_')) }
    }

    /// Name and unit for display: `power (W)`.
    #[must_use]
    pub fn heading(&self) -> String {
        if self.unit.is_empty() { self.name.clone() } else { format!("{} ({})", self.name, self.unit) }
    }
}

impl Cell {
    /// Text in a cell.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A number in a cell; no value if it is not finite.
    #[must_use]
    pub fn number(value: f64) -> Self {
        if value.is_finite() { Self::Number(value) } else { Self::Nothing }
    }

    /// As text: numbers with about four digits.
    #[must_use]
    pub fn show(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Integer(value) => grouped(&value.to_string()),
            Self::Number(value) => short(*value),
            Self::Nothing => "-".to_owned(),
        }
    }
}

/// A number with about four digits and without a prefix such as M: `0.0123`, `12.35`, `1,235`.
#[must_use]
pub fn short(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if value == 0.0 => "0".to_owned(),
        _ if size >= 1000.0 => grouped(&format!("{value:.0}")),
        _ if size >= 100.0 => format!("{value:.1}"),
        _ if size >= 10.0 => format!("{value:.2}"),
        _ if size >= 0.001 => format!("{value:.4}").trim_end_matches('0').trim_end_matches('.').to_owned(),
        _ => format!("{value:.2e}"),
    }
}

/// Digits in groups of three.
fn grouped(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let mut grouped = String::from(sign);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_stand_in_keys_once() {
        assert_eq!(Column::number("latency_p99_us", "us").key(), "latency_p99_us");
        assert_eq!(Column::number("power", "W").key(), "power_w");
        assert_eq!(Column::number("rate", "1/s").key(), "rate_1_per_s");
        assert_eq!(Column::number("saved", "%").key(), "saved_percent");
        assert_eq!(Column::number("iops", "").heading(), "iops");
    }

    #[test]
    fn numbers_are_short() {
        let formatted = [0.0, 1.0, 0.1234567, 12.3456, 123.456, 1_234_567.8, 1e-5, -1234.0].map(short);
        assert_eq!(formatted, ["0", "1", "0.1235", "12.35", "123.5", "1,234,568", "1.00e-5", "-1,234"]);
    }
}
