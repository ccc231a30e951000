//! Bars by category, in groups, each with its interval.

use super::axis::{Axis, Ruler};
use super::lines::draw_y;
use super::svg::{Anchor, BOTTOM, COLOURS, Canvas, HEIGHT, LEFT, RIGHT, TOP};
use crate::table::short;

/// Bars by category.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    /// What it shows.
    pub title: String,
    /// The axis upwards; bars begin at zero, or at the lowest tick of a logarithmic axis.
    pub y: Axis,
    /// Names of the bars in a group.
    pub series: Vec<String>,
    /// The groups: a name, and a bar for each series.
    pub groups: Vec<(String, Vec<Option<Bar>>)>,
}

/// A bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// How high.
    pub value: f64,
    /// The ends of its interval.
    pub band: Option<(f64, f64)>,
}

/// About the width of a letter.
const LETTER: f64 = 7.2;

/// Names of categories below a chart, slanted where they would overlap, and what they are: the height that the chart then needs,
/// and what draws them.
pub(super) fn names_below<'a>(names: &'a [String], label: &'a str) -> (f64, impl FnOnce(&mut Canvas) + 'a) {
    let wide = (RIGHT - LEFT) / names.len().max(1) as f64;
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) as f64 * LETTER;
    let slanted = longest > wide;
    let deep = if slanted { (longest * 0.6).clamp(26.0, 150.0) } else { 18.0 };
    let height = (BOTTOM + deep + 28.0).max(HEIGHT);
    let draw = move |canvas: &mut Canvas| {
        for (at, name) in names.iter().enumerate() {
            let x = LEFT + (at as f64 + 0.5) * wide;
            if slanted {
                canvas.text_slanted((x + 4.0, BOTTOM + 14.0), name);
            } else {
                canvas.text((x, BOTTOM + 18.0), Anchor::Middle, name);
            }
        }
        canvas.text(((LEFT + RIGHT) / 2.0, height - 8.0), Anchor::Middle, label);
    };
    (height, draw)
}

impl Bars {
    pub(super) fn svg(&self) -> String {
        let bars = || self.groups.iter().flat_map(|(_, bars)| bars).flatten();
        let bands = bars().filter_map(|bar| bar.band).flat_map(|(low, high)| [low, high]);
        let values: Vec<f64> = bars().map(|bar| bar.value).chain(bands).collect();
        let ruler = Ruler::new(&Axis { from_zero: true, ..self.y.clone() }, &values);
        let names: Vec<String> = self.groups.iter().map(|(name, _)| name.clone()).collect();
        let (height, put_names) = names_below(&names, "");
        let mut canvas = Canvas::new(height);
        draw_y(&mut canvas, &ruler, &self.y.label);
        put_names(&mut canvas);
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
            let (x, top) = (left + at as f64 * each, height(bar.value));
            let series = self.series.get(at).map_or("", String::as_str);
            let style = format!(r#"class="f c{}""#, at % COLOURS);
            let title = format!("{series}, {name}: {}", short(bar.value));
            canvas.rect((x + each * 0.06, top), (each * 0.88, BOTTOM - top), &style, &title);
            if let Some((low, high)) = bar.band.filter(|(low, high)| low.is_finite() && high.is_finite()) {
                let middle = x + each / 2.0;
                canvas.line((middle, height(low)), (middle, height(high)), "whisker");
            }
        }
    }
}
