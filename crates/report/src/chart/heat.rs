//! Colours over two categories.

use super::axis::tick;
use super::below::{Below, LETTER};
use super::svg::{Anchor, Canvas, LEFT, RIGHT};
use crate::table::short;

/// Colours over two categories.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heat {
    /// What it shows, with its unit.
    pub title: String,
    /// What lies from left to right.
    pub x: String,
    /// What lies from top to bottom.
    pub y: String,
    /// Names from left to right.
    pub columns: Vec<String>,
    /// Names from top to bottom, each with a value for each column.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

const ROW: f64 = 30.0;
const HEAD: f64 = 26.0;
/// Names of rows are at least so wide, and at most.
const LEFTMOST: (f64, f64) = (LEFT, 190.0);

impl Heat {
    pub(super) fn svg(&self) -> String {
        let values = || self.rows.iter().flat_map(|(_, values)| values).flatten().copied();
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        let bottom = HEAD + ROW * self.rows.len() as f64;
        let longest = self.rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0) as f64;
        let leftmost = (longest * LETTER + 8.0).clamp(LEFTMOST.0, LEFTMOST.1);
        let below = Below::new(&self.columns, &self.x, (leftmost, RIGHT));
        let mut canvas = Canvas::new(bottom + below.height());
        let wide = (RIGHT - leftmost) / self.columns.len().max(1) as f64;
        below.draw(&mut canvas, bottom);
        for (down, (name, values)) in self.rows.iter().enumerate() {
            let y = HEAD + down as f64 * ROW;
            canvas.text((leftmost - 6.0, y + ROW / 2.0 + 4.5), Anchor::End, name);
            for (across, value) in values.iter().enumerate() {
                let Some(value) = value else { continue };
                let share = if high > low { (value - low) / (high - low) } else { 0.5 };
                let style = format!(r#"class="h" fill-opacity="{:.2}""#, 0.08 + 0.84 * share);
                let x = leftmost + across as f64 * wide;
                canvas.rect((x + 1.0, y + 1.0), (wide - 2.0, ROW - 2.0), &style, &format!("{name}: {}", short(*value)));
                canvas.text((x + wide / 2.0, y + ROW / 2.0 + 4.5), Anchor::Middle, &fitting(*value, wide));
            }
        }
        canvas.text((0.0, 14.0), Anchor::Start, &self.y);
        canvas.finish(&self.title)
    }
}

/// A number in about three digits, where four have no room.
fn fitting(value: f64, wide: f64) -> String {
    let text = short(value);
    if text.chars().count() as f64 * LETTER < wide || value == 0.0 {
        return text;
    }
    let unit = 10_f64.powf(value.abs().log10().floor() - 2.0);
    tick((value / unit).round() * unit)
}
