//! Line charts over a number, with bands.

use maud::Markup;

use super::axis::{Axis, Ruler, tick};
use super::svg::{Anchor, BOTTOM, COLOURS, Canvas, HEIGHT, LEFT, RIGHT, TOP, line_class};
use crate::table::short;

/// A line chart over a number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lines {
    /// Title.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// The lines.
    pub lines: Vec<Line>,
}

/// A line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Points, from left to right.
    pub places: Vec<Place>,
}

/// A point of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// Horizontal value.
    pub x: f64,
    /// Vertical value; `None`: a gap in the line.
    pub y: Option<f64>,
    /// Lower and upper end of its interval.
    pub band: Option<(f64, f64)>,
}

/// Lines with more points than this have no markers.
const MAX_MARKERS: usize = 40;

struct Frame {
    x: Ruler,
    y: Ruler,
}

impl Frame {
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (LEFT + self.x.share(x) * (RIGHT - LEFT), BOTTOM - self.y.share(y) * (BOTTOM - TOP))
    }
}

impl Lines {
    pub(super) fn svg(&self) -> Markup {
        self.canvas().finish(&self.title)
    }

    /// The elements of the chart.
    pub(super) fn canvas(&self) -> Canvas {
        let places = || self.lines.iter().flat_map(|line| &line.places);
        let xs: Vec<f64> = places().map(|place| place.x).collect();
        let ends = |place: &Place| [place.y, place.band.map(|band| band.0), place.band.map(|band| band.1)];
        let ys: Vec<f64> = places().flat_map(ends).flatten().collect();
        let frame = Frame { x: Ruler::new(&self.x, &xs), y: Ruler::new(&self.y, &ys) };
        let mut canvas = Canvas::new(HEIGHT);
        draw_y(&mut canvas, &frame.y, &self.y.label);
        for &value in frame.x.ticks() {
            let x = LEFT + frame.x.share(value) * (RIGHT - LEFT);
            canvas.line((x, BOTTOM), (x, BOTTOM + 4.0), "axis");
            canvas.text((x, BOTTOM + 18.0), Anchor::Middle, &tick(value));
        }
        canvas.text(((LEFT + RIGHT) / 2.0, HEIGHT - 8.0), Anchor::Middle, &self.x.label);
        for (at, line) in self.lines.iter().enumerate() {
            self.draw(&mut canvas, &frame, at, line);
        }
        canvas
    }

    fn draw(&self, canvas: &mut Canvas, frame: &Frame, at: usize, line: &Line) {
        let colour = at % COLOURS;
        for stretch in line.places.split(|place| place.y.is_none()) {
            let band = |place: &Place| {
                place.band.filter(|(low, high)| low.is_finite() && high.is_finite()).map(|band| (place.x, band))
            };
            let bands: Vec<(f64, (f64, f64))> = stretch.iter().filter_map(band).collect();
            let upper = bands.iter().map(|&(x, (_, high))| frame.at(x, high));
            let lower = bands.iter().rev().map(|&(x, (low, _))| frame.at(x, low));
            canvas.path(&upper.chain(lower).collect::<Vec<_>>(), &format!("b c{colour}"), true);
            let path: Vec<(f64, f64)> = stretch.iter().filter_map(|place| Some(frame.at(place.x, place.y?))).collect();
            canvas.path(&path, &line_class(at), false);
        }
        if line.places.len() > MAX_MARKERS {
            return;
        }
        for place in &line.places {
            let Some(y) = place.y else { continue };
            let band = place.band.map_or(String::new(), |(low, high)| format!(" ({} to {})", short(low), short(high)));
            canvas.marker(frame.at(place.x, y), at, &format!("{} at {}: {}{band}", line.name, tick(place.x), short(y)));
        }
    }
}

/// The vertical axis with its grid.
pub(super) fn draw_y(canvas: &mut Canvas, ruler: &Ruler, label: &str) {
    for &value in ruler.ticks() {
        let y = BOTTOM - ruler.share(value) * (BOTTOM - TOP);
        canvas.line((LEFT, y), (RIGHT, y), "grid");
        canvas.text((LEFT - 6.0, y + 4.5), Anchor::End, &tick(value));
    }
    canvas.line((LEFT, BOTTOM), (RIGHT, BOTTOM), "axis");
    canvas.text_up((14.0, (TOP + BOTTOM) / 2.0), Anchor::Middle, label);
}
