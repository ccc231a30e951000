//! SVG elements: the frame, text, legends.

use std::fmt::Write as _;

/// Width of every chart, in user units. Text has a size of 13, which is readable if a chart is 360 pixels wide.
pub(super) const WIDTH: f64 = 480.0;
/// Height of line and bar charts.
pub(super) const HEIGHT: f64 = 320.0;
/// Left, right, top and bottom of the plot area.
pub(super) const LEFT: f64 = 62.0;
pub(super) const RIGHT: f64 = WIDTH - 24.0; // half a label extends beyond the last tick
pub(super) const TOP: f64 = 12.0;
pub(super) const BOTTOM: f64 = HEIGHT - 46.0;
/// Number of colours; further series repeat them.
pub(super) const COLOURS: usize = 8;

/// Text with escaped markup.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Horizontal alignment of a text at its position.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
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

    pub(super) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        let _ = write!(self.body, r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#);
    }

    pub(super) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(text);
        let _ = write!(self.body, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#);
    }

    pub(super) fn text_up(&mut self, (x, y): (f64, f64), text: &str) {
        let text = escape(text);
        let _ = write!(
            self.body,
            r#"<text transform="translate({x:.1} {y:.1}) rotate(-90)" text-anchor="middle">{text}</text>"#
        );
    }

    /// Vertical text, read from bottom to top, that ends at its position.
    pub(super) fn text_upright(&mut self, (x, y): (f64, f64), text: &str) {
        let text = escape(text);
        let _ = write!(
            self.body,
            r#"<text transform="translate({x:.1} {y:.1}) rotate(-90)" text-anchor="end">{text}</text>"#
        );
    }

    pub(super) fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), style: &str, title: &str) {
        let title = escape(title);
        let _ = write!(
            self.body,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" {style}><title>{title}</title></rect>"#
        );
    }

    pub(super) fn path(&mut self, points: &[(f64, f64)], class: &str, closed: bool) {
        if points.is_empty() {
            return;
        }
        let steps: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let end = if closed { "Z" } else { "" };
        let _ = write!(self.body, r#"<path class="{class}" d="M{}{end}"/>"#, steps.join("L"));
    }

    /// A marker; its shape depends on the series.
    pub(super) fn marker(&mut self, (x, y): (f64, f64), series: usize, title: &str) {
        let (class, title) = (format!("m c{}", series % COLOURS), escape(title));
        let shape = match series % 4 {
            0 => format!(r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="4">"#),
            1 => format!(r#"<rect class="{class}" x="{:.1}" y="{:.1}" width="7" height="7">"#, x - 3.5, y - 3.5),
            2 => format!(r#"<path class="{class}" d="M{x:.1} {:.1}l5 9h-10Z">"#, y - 5.0),
            _ => format!(r#"<path class="{class}" d="M{x:.1} {:.1}l5 5l-5 5l-5-5Z">"#, y - 5.0),
        };
        let end = shape[1..].split([' ', '>']).next().unwrap_or("g").to_owned();
        let _ = write!(self.body, "{shape}<title>{title}</title></{end}>");
    }

    /// The elements, for use in another SVG.
    pub(super) fn into_body(self) -> String {
        self.body
    }

    /// The SVG, with a name for screen readers.
    pub(super) fn finish(self, name: &str) -> String {
        let Self { body, height, above } = self;
        let (name, top, high) = (escape(name), 0.0 - above, height + above);
        format!(r#"<svg viewBox="0 {top:.0} {WIDTH} {high:.0}" role="img" aria-label="{name}">{body}</svg>"#)
    }
}

/// Legend of lines.
pub(super) fn legend<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let entry = |(at, name): (usize, &str)| {
        let mut canvas = Canvas::new(12.0);
        canvas.path(&[(0.0, 6.0), (28.0, 6.0)], &format!("l c{} d{}", at % COLOURS, at % 4), false);
        canvas.marker((14.0, 6.0), at, name);
        format!(
            r#"<li><svg class="key" viewBox="0 0 28 12" aria-hidden="true">{}</svg>{}</li>"#,
            canvas.body,
            escape(name)
        )
    };
    list(names, entry)
}

/// Legend of areas.
pub(super) fn swatches<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let entry = |(at, name): (usize, &str)| {
        let mut canvas = Canvas::new(12.0);
        canvas.rect((8.0, 0.0), (12.0, 12.0), &format!(r#"class="f c{}""#, at % COLOURS), name);
        format!(
            r#"<li><svg class="key" viewBox="0 0 28 12" aria-hidden="true">{}</svg>{}</li>"#,
            canvas.body,
            escape(name)
        )
    };
    list(names, entry)
}

/// The entries of a legend; empty for a single series without a name.
fn list<'a>(names: impl Iterator<Item = &'a str>, entry: impl Fn((usize, &str)) -> String) -> String {
    let names: Vec<&str> = names.collect();
    if names == [""] {
        return String::new();
    }
    let entries: String = names.into_iter().enumerate().map(entry).collect();
    format!(r#"<ul class="legend">{entries}</ul>"#)
}
