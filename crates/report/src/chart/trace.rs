//! Lines over time, with upright marks where something happened.

use super::axis::{Axis, Ruler};
use super::lines::{Line, Lines};
use super::svg::{Anchor, BOTTOM, Canvas, LEFT, RIGHT, TOP};

/// Lines over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// What it shows.
    pub title: String,
    /// Time.
    pub x: Axis,
    /// The axis upwards.
    pub y: Axis,
    /// The lines.
    pub lines: Vec<Line>,
    /// What happened when.
    pub marks: Vec<(f64, String)>,
}

impl Trace {
    /// The same without marks.
    fn plain(&self) -> Lines {
        Lines { title: self.title.clone(), x: self.x.clone(), y: self.y.clone(), lines: self.lines.clone() }
    }

    pub(super) fn svg(&self) -> String {
        let xs: Vec<f64> = self.lines.iter().flat_map(|line| &line.places).map(|place| place.x).collect();
        let ruler = Ruler::new(&self.x, &xs);
        let inside = |x: f64| xs.iter().any(|other| *other <= x) && xs.iter().any(|other| *other >= x);
        let marks: Vec<&(f64, String)> = self.marks.iter().filter(|(x, _)| inside(*x)).collect();
        let draw = |canvas: &mut Canvas| {
            for (at, (value, name)) in marks.iter().enumerate() {
                let x = LEFT + ruler.share(*value) * (RIGHT - LEFT);
                canvas.line((x, TOP), (x, BOTTOM), "mark");
                let anchor = if x > (LEFT + RIGHT) / 2.0 { Anchor::End } else { Anchor::Start };
                let beside = if matches!(anchor, Anchor::End) { -4.0 } else { 4.0 };
                canvas.text_over((x + beside, BOTTOM - 8.0 - 15.0 * (at % 3) as f64), anchor, name);
            }
        };
        self.plain().svg_with(draw)
    }
}
