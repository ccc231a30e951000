//! Lines over ordered categories, such as request sizes, at equal distances.

use maud::Markup;

use super::axis::{Axis, Ruler};
use super::bars::Bar;
use super::below::Below;
use super::lines::draw_y;
use super::svg::{BOTTOM, COLOURS, Canvas, HEIGHT, LEFT, RIGHT, TOP, line_class};
use crate::table::short;

/// Lines over categories.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ordered {
    /// Title.
    pub title: String,
    /// Label of the categories.
    pub x: String,
    /// Vertical axis.
    pub y: Axis,
    /// The categories, from left to right.
    pub names: Vec<String>,
    /// Lines: a name, and a value for each category.
    pub lines: Vec<(String, Vec<Option<Bar>>)>,
}

impl Ordered {
    pub(super) fn svg(&self) -> Markup {
        let places = || self.lines.iter().flat_map(|(_, places)| places).flatten();
        let bands = places().filter_map(|place| place.band).flat_map(|(low, high)| [low, high]);
        let values: Vec<f64> = places().map(|place| place.value).chain(bands).collect();
        let ruler = Ruler::new(&self.y, &values);
        let below = Below::new(&self.names, &self.x, (LEFT, RIGHT));
        let mut canvas = Canvas::new((BOTTOM + below.height()).max(HEIGHT));
        draw_y(&mut canvas, &ruler, &self.y.label);
        below.draw(&mut canvas, BOTTOM);
        let wide = (RIGHT - LEFT) / self.names.len().max(1) as f64;
        let x = |at: usize| LEFT + (at as f64 + 0.5) * wide;
        let y = |value: f64| BOTTOM - ruler.share(value) * (BOTTOM - TOP);
        for (series, (name, places)) in self.lines.iter().enumerate() {
            let known: Vec<(usize, Bar)> =
                places.iter().enumerate().filter_map(|(at, bar)| Some((at, (*bar)?))).collect();
            for stretch in known.chunk_by(|a, b| a.0 + 1 == b.0) {
                let path: Vec<(f64, f64)> = stretch.iter().map(|(at, bar)| (x(*at), y(bar.value))).collect();
                canvas.path(&path, &line_class(series), false);
            }
            for (at, bar) in known {
                let band = bar.band.filter(|(low, high)| low.is_finite() && high.is_finite());
                let said = band.map_or(String::new(), |(low, high)| format!(" ({} to {})", short(low), short(high)));
                if let Some((low, high)) = band {
                    canvas.line((x(at), y(low)), (x(at), y(high)), &format!("w c{}", series % COLOURS));
                }
                let title = format!("{name} at {}: {}{said}", self.names[at], short(bar.value));
                canvas.marker((x(at), y(bar.value)), series, &title);
            }
        }
        canvas.finish(&self.title)
    }
}
