//! Charts as inline SVG: lines with bands over numbers, categories or time, bars, stacks, heat maps. The page's style defines the colours, for
//! light and dark mode; series also differ in dash and marker. Every value is in a `<title>`, which browsers show as a tooltip.

mod axis;
mod bars;
mod below;
mod heat;
mod lines;
mod ordered;
mod picture;
mod stack;
mod svg;
mod trace;

use maud::{Markup, html};

pub use axis::{Axis, Scale};
pub use bars::{Bar, Bars};
pub use heat::Heat;
pub use lines::{Line, Lines, Place};
pub use ordered::Ordered;
pub use picture::picture;
pub use stack::Stack;
pub use trace::Trace;

/// A chart.
#[derive(Clone, Debug, PartialEq)]
pub enum Chart {
    /// Lines over a number.
    Lines(Lines),
    /// Bars by category.
    Bars(Bars),
    /// A heat map over two categories.
    Heat(Heat),
    /// Lines over ordered categories.
    Ordered(Ordered),
    /// Parts of a whole.
    Stack(Stack),
    /// Lines over time, with marks.
    Trace(Trace),
}

impl Chart {
    /// Its title.
    #[must_use]
    pub fn title(&self) -> &str {
        match self {
            Self::Lines(chart) => &chart.title,
            Self::Bars(chart) => &chart.title,
            Self::Heat(chart) => &chart.title,
            Self::Ordered(chart) => &chart.title,
            Self::Stack(chart) => &chart.title,
            Self::Trace(chart) => &chart.title,
        }
    }

    /// An HTML figure with the legend.
    #[must_use]
    pub fn html(&self) -> Markup {
        let (svg, legend) = match self {
            Self::Lines(chart) => (chart.svg(), svg::legend(chart.lines.iter().map(|line| line.name.as_str()))),
            Self::Bars(chart) => (chart.svg(), svg::swatches(chart.series.iter().map(String::as_str))),
            Self::Heat(chart) => (chart.svg(), Markup::default()),
            Self::Ordered(chart) => (chart.svg(), svg::legend(chart.lines.iter().map(|(name, _)| name.as_str()))),
            Self::Stack(chart) => (chart.svg(), svg::swatches(chart.parts.iter().map(String::as_str))),
            Self::Trace(chart) => (chart.svg(), svg::legend(chart.lines.iter().map(|line| line.name.as_str()))),
        };
        html! { figure { figcaption { (self.title()) } (svg) (legend) } }
    }
}
