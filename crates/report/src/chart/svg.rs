//! SVG elements: the frame, text, legends.

use std::fmt::Write as _;

use maud::{Markup, PreEscaped, Render as _, html};

/// Width of every chart, in user units. Text has a size of 13, which is readable if a chart is 360 pixels wide.
pub(super) const WIDTH: f64 = 480.0;
/// Height of line and bar charts.
pub(super) const HEIGHT: f64 = 320.0;
/// Left, right, top and bottom of the plot area.
pub(super) const LEFT: f64 = 62.0;
pub(super) const RIGHT: f64 = WIDTH - 24.0; // half a label extends beyond the last tick
pub(super) const TOP: f64 = 12.0;
pub(super) const BOTTOM: f64 = HEIGHT - 46.0;
/// Number of colours; further series repeat them with another dash and marker.
pub(super) const COLOURS: usize = 8;
/// Number of dashes and of markers.
const SHAPES: usize = 4;

/// Dash and marker of a series: no two of the first `COLOURS * SHAPES` series have the same colour and shape.
const fn shape(series: usize) -> usize {
    (series + series / COLOURS) % SHAPES
}

/// Class of the line of a series.
pub(super) fn line_class(series: usize) -> String {
    format!("l c{} d{}", series % COLOURS, shape(series))
}

/// Horizontal alignment of a text at its position.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// An SVG under construction.
pub(super) struct Canvas {
    body: String,
    height: f64,
    /// Space above the plot area, for text that must not overlap data.
    above: f64,
}

impl Canvas {
    pub(super) fn new(height: f64) -> Self {
        Self { body: String::new(), height, above: 0.0 }
    }

    /// Adds space for elements at negative heights.
    pub(super) fn raise(&mut self, above: f64) {
        self.above = above;
    }

    // `line` and `path` have no text to escape; maud has no self-closing elements and would add an end tag to each.
    pub(super) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        let _ = write!(self.body, r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#);
    }

    pub(super) fn path(&mut self, points: &[(f64, f64)], class: &str, closed: bool) {
        if points.is_empty() {
            return;
        }
        let steps: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let end = if closed { "Z" } else { "" };
        let _ = write!(self.body, r#"<path class="{class}" d="M{}{end}"/>"#, steps.join("L"));
    }

    pub(super) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        self.add(&html! { text x=(tenths(x)) y=(tenths(y)) text-anchor=(anchor.name()) { (text) } });
    }

    /// Vertical text, read from bottom to top.
    pub(super) fn text_up(&mut self, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let turned = format!("translate({x:.1} {y:.1}) rotate(-90)");
        self.add(&html! { text transform=(turned) text-anchor=(anchor.name()) { (text) } });
    }

    /// A rectangle with a tooltip.
    pub(super) fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), fill: &Fill, title: &str) {
        let (x, y, width, height) = (tenths(x), tenths(y), tenths(width), tenths(height));
        self.add(&html! {
            rect x=(x) y=(y) width=(width) height=(height) class=(fill.class) fill-opacity=[&fill.opacity] {
                title { (title) }
            }
        });
    }

    /// A marker with a tooltip; its shape depends on the series.
    pub(super) fn marker(&mut self, (x, y): (f64, f64), series: usize, title: &str) {
        let (class, title) = (format!("m c{}", series % COLOURS), html! { title { (title) } });
        self.add(&match shape(series) {
            0 => html! { circle class=(class) cx=(tenths(x)) cy=(tenths(y)) r="4" { (title) } },
            1 => html! { rect class=(class) x=(tenths(x - 3.5)) y=(tenths(y - 3.5)) width="7" height="7" { (title) } },
            2 => html! { path class=(class) d=(format!("M{x:.1} {:.1}l5 9h-10Z", y - 5.0)) { (title) } },
            _ => html! { path class=(class) d=(format!("M{x:.1} {:.1}l5 5l-5 5l-5-5Z", y - 5.0)) { (title) } },
        });
    }

    fn add(&mut self, element: &Markup) {
        element.render_to(&mut self.body);
    }

    /// The elements, for use in another SVG.
    pub(super) fn into_body(self) -> Markup {
        PreEscaped(self.body)
    }

    /// The SVG, with a name for screen readers.
    pub(super) fn finish(self, name: &str) -> Markup {
        let view_box = self.view_box();
        html! { svg viewBox=(view_box) role="img" aria-label=(name) { (self.into_body()) } }
    }

    /// [`Canvas::finish`] for use in another SVG, at the size of a line chart.
    pub(super) fn finish_at(self, (x, y): (f64, f64), name: &str) -> Markup {
        let view_box = self.view_box();
        html! {
            svg x=(format!("{x:.0}")) y=(y) width=(WIDTH) height=(HEIGHT) viewBox=(view_box) role="img" aria-label=(name) {
                (self.into_body())
            }
        }
    }

    fn view_box(&self) -> String {
        let (top, height) = (0.0 - self.above, self.height + self.above);
        format!("0 {top:.0} {WIDTH} {height:.0}")
    }
}

/// How an area is filled.
pub(super) struct Fill {
    /// Class in the page's style.
    class: String,
    /// Opacity, if it is not the style's.
    opacity: Option<String>,
}

impl Fill {
    /// The colour of a series.
    pub(super) fn series(series: usize) -> Self {
        Self { class: format!("f c{}", series % COLOURS), opacity: None }
    }

    /// The colour of heat maps, with an opacity from 0 to 1.
    pub(super) fn heat(opacity: f64) -> Self {
        Self { class: "h".to_owned(), opacity: Some(format!("{opacity:.2}")) }
    }
}

/// A length with one decimal.
fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

/// Legend of lines.
pub(super) fn legend<'a>(names: impl Iterator<Item = &'a str>) -> Markup {
    list(names, |canvas, series, name| {
        canvas.path(&[(0.0, 6.0), (28.0, 6.0)], &line_class(series), false);
        canvas.marker((14.0, 6.0), series, name);
    })
}

/// Legend of areas.
pub(super) fn swatches<'a>(names: impl Iterator<Item = &'a str>) -> Markup {
    list(names, |canvas, series, name| canvas.rect((8.0, 0.0), (12.0, 12.0), &Fill::series(series), name))
}

/// The entries of a legend with their keys; empty for a single series without a name.
fn list<'a>(names: impl Iterator<Item = &'a str>, draw_key: impl Fn(&mut Canvas, usize, &str)) -> Markup {
    let names: Vec<&str> = names.collect();
    let key = |series: usize, name: &str| {
        let mut canvas = Canvas::new(12.0);
        draw_key(&mut canvas, series, name);
        canvas.into_body()
    };
    html! {
        @if names != [""] {
            ul.legend {
                @for (series, name) in names.iter().enumerate() {
                    li { svg.key viewBox="0 0 28 12" aria-hidden="true" { (key(series, name)) } (name) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn series_differ_in_colour_or_shape() {
        let classes: BTreeSet<String> = (0..COLOURS * SHAPES).map(line_class).collect();
        assert_eq!(classes.len(), COLOURS * SHAPES);
    }
}
