//! Lines over time, with vertical marks at events. The names of marks are above the plot area, where no line crosses them.

use maud::Markup;

use super::axis::{Axis, Ruler};
use super::lines::{Line, Lines};
use super::svg::{Anchor, BOTTOM, LEFT, RIGHT, TOP};

/// Lines over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Title.
    pub title: String,
    /// Time.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// The lines.
    pub lines: Vec<Line>,
    /// Marked events: time and name.
    pub marks: Vec<(f64, String)>,
}

/// Height of the name of a mark; each has its own row.
const ROW: f64 = 16.0;

impl Trace {
    /// The chart without marks.
    fn plain(&self) -> Lines {
        Lines { title: self.title.clone(), x: self.x.clone(), y: self.y.clone(), lines: self.lines.clone() }
    }

    pub(super) fn svg(&self) -> Markup {
        let xs: Vec<f64> = self.lines.iter().flat_map(|line| &line.places).map(|place| place.x).collect();
        let ruler = Ruler::new(&self.x, &xs);
        // A line may end one sample before a marked event.
        let (first, last) = xs.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(*x), b.max(*x)));
        let inside = |x: f64| (x - first).min(last - x) >= -0.05 * (last - first);
        let marks: Vec<&(f64, String)> = self.marks.iter().filter(|(x, _)| inside(*x)).collect();
        let mut canvas = self.plain().canvas();
        canvas.raise((marks.len() as f64 * ROW - TOP).max(0.0));
        for (at, (value, name)) in marks.iter().enumerate() {
            let (x, y) = (LEFT + ruler.share(*value) * (RIGHT - LEFT), TOP - 3.0 - ROW * at as f64);
            canvas.line((x, y - 8.0), (x, BOTTOM), "mark");
            let anchor = if x > (LEFT + RIGHT) / 2.0 { Anchor::End } else { Anchor::Start };
            let beside = if matches!(anchor, Anchor::End) { -4.0 } else { 4.0 };
            canvas.text((x + beside, y), anchor, name);
        }
        canvas.finish(&self.title)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Line, Place};

    /// The `y` attribute of a text.
    fn y_of(svg: &str, text: &str) -> f64 {
        let (before, _) = svg.split_once(&format!(">{text}</text>")).unwrap();
        let (_, y) = before.rsplit_once(" y=\"").unwrap();
        y.split_once('"').unwrap().0.parse().unwrap()
    }

    #[test]
    fn names_of_marks_are_in_rows_above_the_lines() {
        let places = (0..10).map(|at| Place { x: f64::from(at), y: Some(f64::from(at)), band: None }).collect();
        let lines = vec![Line { name: "l".into(), places }];
        let marks = [(5.0, "from"), (5.1, "to"), (90.0, "beyond")].map(|(at, name)| (at, name.to_owned())).to_vec();
        let svg = Trace { lines, marks, ..Trace::default() }.svg().into_string();
        let (from, to) = (y_of(&svg, "from"), y_of(&svg, "to"));
        assert!(from < TOP && (from - to - ROW).abs() < 1e-9, "{from} {to}");
        assert!(!svg.contains("beyond"));
        let (_, top) = svg.split_once("viewBox=\"0 ").unwrap();
        let top: f64 = top.split_once(' ').unwrap().0.parse().unwrap();
        assert!(top <= to - 13.0, "the upper row is within the picture: {top} {to}");
    }
}
