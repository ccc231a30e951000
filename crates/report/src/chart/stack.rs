//! Stacked bars: the parts of a total, a horizontal bar for each case with its name above, so that long names fit a narrow screen.

use maud::Markup;

use super::axis::{Axis, Ruler, tick};
use super::below::cut;
use super::svg::{Anchor, Canvas, Fill, RIGHT};
use crate::table::short;

/// Parts of a total, by case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stack {
    /// Title.
    pub title: String,
    /// Quantity and unit.
    pub label: String,
    /// Names of the parts.
    pub parts: Vec<String>,
    /// Cases: a name, and the size of each part; negative sizes are drawn as zero.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

const LEFT: f64 = 6.0;
const ROW: f64 = 40.0;
const BAR: f64 = 17.0;
/// Maximum number of letters in a name.
const MAX_LETTERS: usize = 64;

impl Stack {
    pub(super) fn svg(&self) -> Markup {
        let sums: Vec<f64> =
            self.rows.iter().map(|(_, parts)| parts.iter().flatten().map(|part| part.max(0.0)).sum()).collect();
        let axis = Axis { from_zero: true, ..Axis::default() };
        let ruler = Ruler::new(&axis, &[sums.as_slice(), &[0.0]].concat());
        let bottom = 4.0 + ROW * self.rows.len() as f64;
        let mut canvas = Canvas::new(bottom + 44.0);
        let at = |value: f64| LEFT + ruler.share(value) * (RIGHT - LEFT);
        for &value in ruler.ticks() {
            canvas.line((at(value), 4.0), (at(value), bottom), "grid");
            canvas.text(
                (at(value), bottom + 16.0),
                if value == 0.0 { Anchor::Start } else { Anchor::Middle },
                &tick(value),
            );
        }
        canvas.text(((LEFT + RIGHT) / 2.0, bottom + 36.0), Anchor::Middle, &self.label);
        for (down, (name, parts)) in self.rows.iter().enumerate() {
            let y = 4.0 + down as f64 * ROW;
            canvas.text((LEFT, y + 14.0), Anchor::Start, &cut(name, MAX_LETTERS));
            let mut sum = 0.0;
            for (part, size) in parts.iter().enumerate() {
                let Some(size) = size.filter(|size| *size > 0.0) else { continue };
                let title = format!("{name}, {}: {}", self.parts.get(part).map_or("", String::as_str), short(size));
                canvas.rect((at(sum), y + 19.0), (at(sum + size) - at(sum), BAR), &Fill::series(part), &title);
                sum += size;
            }
        }
        canvas.finish(&self.title)
    }
}
