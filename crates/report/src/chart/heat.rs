//! Colours over two categories.

use super::svg::{Anchor, Canvas, LEFT, RIGHT, WIDTH};
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
const LEFTMOST: f64 = LEFT + 28.0;

impl Heat {
    pub(super) fn svg(&self) -> String {
        let values = || self.rows.iter().flat_map(|(_, values)| values).flatten().copied();
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        let bottom = HEAD + ROW * self.rows.len() as f64;
        let mut canvas = Canvas::new(bottom + 44.0);
        let wide = (RIGHT - LEFTMOST) / self.columns.len().max(1) as f64;
        for (at, name) in self.columns.iter().enumerate() {
            canvas.text((LEFTMOST + (at as f64 + 0.5) * wide, bottom + 18.0), Anchor::Middle, name);
        }
        for (down, (name, values)) in self.rows.iter().enumerate() {
            let y = HEAD + down as f64 * ROW;
            canvas.text((LEFTMOST - 6.0, y + ROW / 2.0 + 4.5), Anchor::End, name);
            for (across, value) in values.iter().enumerate() {
                let Some(value) = value else { continue };
                let share = if high > low { (value - low) / (high - low) } else { 0.5 };
                let style = format!(r#"class="h" fill-opacity="{:.2}""#, 0.08 + 0.84 * share);
                let x = LEFTMOST + across as f64 * wide;
                canvas.rect((x + 1.0, y + 1.0), (wide - 2.0, ROW - 2.0), &style, &format!("{name}: {}", short(*value)));
                canvas.text((x + wide / 2.0, y + ROW / 2.0 + 4.5), Anchor::Middle, &short(*value));
            }
        }
        canvas.text((0.0, 14.0), Anchor::Start, &self.y);
        canvas.text((WIDTH / 2.0, bottom + 38.0), Anchor::Middle, &self.x);
        canvas.finish(&self.title)
    }
}
