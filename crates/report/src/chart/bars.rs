//! Bar charts: groups of bars by category, each bar with its interval.

use maud::Markup;

use super::axis::{Axis, Ruler};
use super::below::Below;
use super::lines::draw_y;
use super::svg::{BOTTOM, Canvas, Fill, HEIGHT, LEFT, RIGHT, TOP};
use crate::table::short;

/// Bars by category.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    /// Title.
    pub title: String,
    /// Vertical axis. Bars start at zero, or at the lowest tick of a logarithmic axis.
    pub y: Axis,
    /// Names of the bars in a group.
    pub series: Vec<String>,
    /// Groups: a name, and a bar for each series.
    pub groups: Vec<(String, Vec<Option<Bar>>)>,
}

/// A bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// Value.
    pub value: f64,
    /// Lower and upper end of its interval.
    pub band: Option<(f64, f64)>,
}

impl Bars {
    pub(super) fn svg(&self) -> Markup {
        let bars = || self.groups.iter().flat_map(|(_, bars)| bars).flatten();
        let bands = bars().filter_map(|bar| bar.band).flat_map(|(low, high)| [low, high]);
        let values: Vec<f64> = bars().map(|bar| bar.value).chain(bands).collect();
        let ruler = Ruler::new(&Axis { from_zero: true, ..self.y.clone() }, &values);
        let names: Vec<String> = self.groups.iter().map(|(name, _)| name.clone()).collect();
        let below = Below::new(&names, "", (LEFT, RIGHT));
        let mut canvas = Canvas::new((BOTTOM + below.height()).max(HEIGHT));
        draw_y(&mut canvas, &ruler, &self.y.label);
        below.draw(&mut canvas, BOTTOM);
        let wide = (RIGHT - LEFT) / self.groups.len().max(1) as f64;
        for (at, (name, bars)) in self.groups.iter().enumerate() {
            let left = LEFT + at as f64 * wide;
            self.group(&mut canvas, &ruler, (left + wide * 0.08, wide * 0.84), name, bars);
        }
        canvas.finish(&self.title)
    }

    fn group(&self, canvas: &mut Canvas, ruler: &Ruler, (left, wide): (f64, f64), name: &str, bars: &[Option<Bar>]) {
        let each = wide / self.series.len().max(1) as f64;
        let height = |value: f64| BOTTOM - ruler.share(value) * (BOTTOM - TOP);
        for (at, bar) in bars.iter().enumerate() {
            let Some(bar) = bar else { continue };
            // Bars start at zero, even if intervals extend below it.
            let (x, zero, end) = (left + at as f64 * each, height(0.0), height(bar.value));
            let (top, high) = (end.min(zero), (end - zero).abs());
            let series = self.series.get(at).map_or("", String::as_str);
            let series = if series.is_empty() { String::new() } else { format!("{series}, ") };
            let title = format!("{series}{name}: {}", short(bar.value));
            canvas.rect((x + each * 0.06, top), (each * 0.88, high), &Fill::series(at), &title);
            if let Some((low, high)) = bar.band.filter(|(low, high)| low.is_finite() && high.is_finite()) {
                let middle = x + each / 2.0;
                canvas.line((middle, height(low)), (middle, height(high)), "whisker");
            }
        }
    }
}
