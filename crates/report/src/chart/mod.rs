//! Charts as inline SVG: lines with bands, bars, heat maps. Colours come from the page's style, so they follow light and dark;
//! series differ in dash and marker as well. Every value is in a `<title>`, so it can be read without a ruler.

mod axis;
mod bars;
mod heat;
mod lines;
mod svg;

pub use axis::{Axis, Scale};
pub use bars::{Bar, Bars};
pub use heat::Heat;
pub use lines::{Line, Lines, Place};
pub(crate) use svg::escape;

/// A chart.
#[derive(Clone, Debug, PartialEq)]
pub enum Chart {
    /// Lines over a number.
    Lines(Lines),
    /// Bars by category.
    Bars(Bars),
    /// Colours over two categories.
    Heat(Heat),
}

impl Chart {
    /// What it shows.
    #[must_use]
    pub fn title(&self) -> &str {
        match self {
            Self::Lines(chart) => &chart.title,
            Self::Bars(chart) => &chart.title,
            Self::Heat(chart) => &chart.title,
        }
    }

    /// As a figure of HTML, with its legend.
    #[must_use]
    pub fn html(&self) -> String {
        let (svg, legend) = match self {
            Self::Lines(chart) => (chart.svg(), svg::legend(chart.lines.iter().map(|line| line.name.as_str()))),
            Self::Bars(chart) => (chart.svg(), svg::legend(chart.series.iter().map(String::as_str))),
            Self::Heat(chart) => (chart.svg(), String::new()),
        };
        let title = svg::escape(self.title());
        format!("<figure><figcaption>{title}</figcaption>{svg}{legend}</figure>")
    }
}
