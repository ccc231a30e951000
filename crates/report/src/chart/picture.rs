//! Line charts with a common legend as a standalone SVG file, for documentation.

use maud::{Markup, PreEscaped, html};

use super::below::LETTER;
use super::svg::{Anchor, Canvas, HEIGHT, WIDTH, line_class};
use super::{Chart, Lines};

/// Charts side by side, with one legend below.
const GAP: f64 = 24.0;
const TITLE: f64 = 26.0;
/// Width of the key of a series, and of the space around its name.
const KEY: f64 = 34.0;
const SPACE: f64 = 14.0;
const LINE: f64 = 20.0;
/// The page's light colours, on white.
const STYLE: &str = "text{fill:#1b1f24;font:13px sans-serif}.grid{stroke:#d5dae0;stroke-width:1}.axis{stroke:#1b1f24;stroke-width:1.5}\
.l{fill:none;stroke:currentColor;stroke-width:2.2;stroke-linejoin:round}.b{fill:currentColor;fill-opacity:.16;stroke:none}.m{fill:currentColor}\
.w{stroke:currentColor;stroke-width:1.6}.d1{stroke-dasharray:7 3}.d2{stroke-dasharray:2 3}.d3{stroke-dasharray:9 3 2 3}\
.c0{color:#0a5aa8}.c1{color:#b3450a}.c2{color:#0b7a5b}.c3{color:#a3327a}.c4{color:#7a6200}.c5{color:#3f7fbf}.c6{color:#8a1c1c}.c7{color:#555}";

/// Written out, because maud has no self-closing elements.
const BACKGROUND: &str = r##"<rect width="100%" height="100%" fill="#fff"/>"##;

/// The line charts over a number that have the same series; `None` if there is none.
#[must_use]
pub fn picture(charts: &[Chart]) -> Option<String> {
    let charts: Vec<&Lines> = charts.iter().filter_map(as_lines).collect();
    let names: Vec<&str> = charts.first()?.lines.iter().map(|line| line.name.as_str()).collect();
    let width = charts.len() as f64 * (WIDTH + GAP) - GAP;
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let entry = KEY + longest as f64 * LETTER + SPACE;
    let in_row = ((width / entry) as usize).max(1);
    let height = TITLE + HEIGHT + LINE * (names.len().div_ceil(in_row) as f64 + 1.0);
    let (wide, high) = (format!("{width:.0}"), format!("{height:.0}"));
    let view_box = format!("0 0 {wide} {high}");
    let page = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(wide) height=(high) viewBox=(view_box) {
            style { (PreEscaped(STYLE)) }
            (PreEscaped(BACKGROUND))
            @for (at, chart) in charts.iter().enumerate() { (placed(chart, at as f64 * (WIDTH + GAP))) }
            (legend(&names, entry, in_row))
        }
    };
    Some(page.into_string() + "\n")
}

const fn as_lines(chart: &Chart) -> Option<&Lines> {
    if let Chart::Lines(lines) = chart { Some(lines) } else { None }
}

/// A chart below its title.
fn placed(chart: &Lines, left: f64) -> Markup {
    let title_x = format!("{:.0}", left + 8.0);
    html! {
        text x=(title_x) y="16" font-weight="bold" { (chart.title) }
        (chart.canvas().finish_at((left, TITLE), &chart.title))
    }
}

/// The names of the series in rows, each `entry` wide.
fn legend(names: &[&str], entry: f64, in_row: usize) -> Markup {
    let mut canvas = Canvas::new(0.0);
    for (at, name) in names.iter().enumerate() {
        let (x, y) = ((at % in_row) as f64 * entry + 8.0, TITLE + HEIGHT + LINE * ((at / in_row) as f64 + 0.6));
        canvas.path(&[(x, y), (x + 28.0, y)], &line_class(at), false);
        canvas.marker((x + 14.0, y), at, name);
        canvas.text((x + KEY, y + 4.0), Anchor::Start, name);
    }
    canvas.into_body()
}

#[cfg(test)]
mod tests {
    use super::super::{Line, Place};
    use super::*;

    #[test]
    fn charts_are_side_by_side_with_one_legend() {
        let line = |name: &str| Line {
            name: name.into(),
            places: [1.0, 2.0].map(|x| Place { x, y: Some(x), band: None }).to_vec(),
        };
        let lines = |title: &str| {
            let lines = vec![line("a<b"), line("c")];
            Chart::Lines(Lines { title: title.into(), lines, ..Lines::default() })
        };
        let svg = picture(&[lines("first"), lines("second")]).unwrap();
        assert!(svg.starts_with("<svg xmlns=") && svg.contains("<style>") && !svg.contains("var("), "{svg}");
        assert_eq!((svg.matches("<svg x=").count(), svg.matches(">a&lt;b</text>").count()), (2, 1), "{svg}");
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
        assert_eq!(picture(&[]), None);
    }

    #[test]
    fn entries_of_the_legend_do_not_overlap() {
        let names = ["static", "pacer, tolerance 1000", "pacer, tolerance 0.2"];
        let lines = names.map(|name| Line { name: name.into(), ..Line::default() }).to_vec();
        let svg = picture(&[Chart::Lines(Lines { lines, ..Lines::default() })]).unwrap();
        let place = |name: &str| {
            let (text, _) = svg.split_once(&format!(">{name}</text>")).unwrap();
            let (_, text) = text.rsplit_once("<text x=\"").unwrap();
            let (x, text) = text.split_once("\" y=\"").unwrap();
            (x.parse::<f64>().unwrap(), text.split_once('"').unwrap().0.parse::<f64>().unwrap())
        };
        let [first, second, third] = names.map(place);
        assert_eq!(first.1, second.1);
        assert!(second.0 - KEY - first.0 >= LETTER * names[1].len() as f64, "{first:?} {second:?}");
        assert!(third.1 > second.1 && second.0 + LETTER * names[1].len() as f64 <= WIDTH, "{second:?} {third:?}");
    }
}
