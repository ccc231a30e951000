//! Heat maps over two categories.

use maud::Markup;

use super::axis::tick;
use super::below::{Below, LETTER, WIDE, cut, wrapped};
use super::svg::{Anchor, Canvas, Fill, LEFT, RIGHT};
use crate::table::short;

/// A heat map over two categories.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heat {
    /// Title, with the unit of the values.
    pub title: String,
    /// Label of the columns.
    pub x: String,
    /// Label of the rows.
    pub y: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Names of the rows, each with a value for each column.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

const ROW: f64 = 30.0;
const HEAD: f64 = 26.0;
/// Height of a line of a row's name, which has at most two.
const LINE: f64 = 14.0;
/// Minimum and maximum width of row names.
const LEFTMOST: (f64, f64) = (LEFT, 190.0);
/// Opacity at the lowest value, and its increase to the highest; text on it is readable in light and dark mode.
const SHADE: (f64, f64) = (0.08, 0.84);

impl Heat {
    pub(super) fn svg(&self) -> Markup {
        let values = || self.rows.iter().flat_map(|(_, values)| values).flatten().copied();
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        let bottom = HEAD + ROW * self.rows.len() as f64;
        let longest = self.rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0) as f64;
        let leftmost = (longest * WIDE + 8.0).clamp(LEFTMOST.0, LEFTMOST.1);
        let below = Below::new(&self.columns, &self.x, (leftmost, RIGHT));
        let mut canvas = Canvas::new(bottom + below.height());
        let wide = (RIGHT - leftmost) / self.columns.len().max(1) as f64;
        below.draw(&mut canvas, bottom);
        for (down, (name, values)) in self.rows.iter().enumerate() {
            let y = HEAD + down as f64 * ROW;
            let lines = in_two(name, ((leftmost - 6.0) / WIDE) as usize);
            let first = y + ROW / 2.0 + 4.5 - (lines.len() - 1) as f64 * LINE / 2.0;
            for (at, line) in lines.iter().enumerate() {
                canvas.text((leftmost - 6.0, first + at as f64 * LINE), Anchor::End, line);
            }
            for (across, value) in values.iter().enumerate() {
                let Some(value) = value else { continue };
                let share = if high > low { (value - low) / (high - low) } else { 0.5 };
                let fill = Fill::heat(SHADE.0 + SHADE.1 * share);
                let x = leftmost + across as f64 * wide;
                canvas.rect((x + 1.0, y + 1.0), (wide - 2.0, ROW - 2.0), &fill, &format!("{name}: {}", short(*value)));
                canvas.text((x + wide / 2.0, y + ROW / 2.0 + 4.5), Anchor::Middle, &fitting(*value, wide));
            }
        }
        canvas.text((0.0, 14.0), Anchor::Start, &self.y);
        canvas.finish(&self.title)
    }
}

/// A name in at most two lines, truncated. The tooltip of each value has the whole name.
fn in_two(name: &str, most: usize) -> Vec<String> {
    let mut lines = wrapped(name, most);
    if lines.len() > 2 {
        let rest = lines.split_off(1).join(" ");
        lines.push(rest);
    }
    lines.iter().map(|line| cut(line, most)).collect()
}

/// A number with about three digits, if four do not fit.
fn fitting(value: f64, wide: f64) -> String {
    let text = short(value);
    if text.chars().count() as f64 * LETTER < wide || value == 0.0 {
        return text;
    }
    let unit = 10_f64.powf(value.abs().log10().floor() - 2.0);
    tick((value / unit).round() * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_have_two_lines_and_values_the_full_name() {
        assert_eq!(in_two("64k", 25), ["64k"]);
        let name = "sandman guards=recommended coarse_interval=100ms";
        assert_eq!(in_two(name, 25), ["sandman", "guards=recommended coars…"]);
        let heat = Heat { columns: vec!["c".into()], rows: vec![(name.into(), vec![Some(2.0)])], ..Heat::default() };
        let svg = heat.svg().into_string();
        assert!(svg.contains(&format!("<title>{name}: 2</title>")) && !svg.contains(&format!("\">{name}<")), "{svg}");
    }

    /// Relative luminance of a colour, and contrast ratio of two, as defined by WCAG 2.1.
    fn luminance(channels: [f64; 3]) -> f64 {
        let linear = |c: f64| if c <= 0.039_28 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) };
        let [r, g, b] = channels.map(linear);
        0.2126 * r + 0.7152 * g + 0.0722 * b
    }

    fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    /// A variable of the light or the dark style.
    fn colour(set: &str, name: &str) -> [f64; 3] {
        let (_, rest) = set.split_once(&format!("--{name}:#")).unwrap();
        let digits: Vec<char> = rest.chars().take_while(char::is_ascii_hexdigit).collect();
        let each = digits.len() / 3;
        [0, 1, 2].map(|at| {
            let text: String = digits[at * each..(at + 1) * each].iter().collect();
            let value = f64::from(u32::from_str_radix(&text, 16).unwrap());
            value / f64::from(16_u32.pow(each as u32) - 1)
        })
    }

    #[test]
    fn text_and_lines_stand_out_in_light_and_dark() {
        let style = include_str!("../style.css");
        let sets: Vec<&str> = style.split(":root{").skip(1).map(|set| set.split_once('}').unwrap().0).collect();
        assert_eq!(sets.len(), 2, "light and dark");
        for set in sets {
            let (ink, paper, warm) = (colour(set, "ink"), colour(set, "paper"), colour(set, "h"));
            for text in [ink, colour(set, "soft")] {
                assert!(contrast(text, paper) >= 4.5, "{set}");
            }
            for series in 0..8 {
                assert!(contrast(colour(set, &format!("c{series}")), paper) >= 3.0, "c{series} of {set}");
            }
            for share in [0.0, 0.5, 1.0] {
                let opacity = SHADE.0 + SHADE.1 * share;
                let cell = [0, 1, 2].map(|at| opacity * warm[at] + (1.0 - opacity) * paper[at]);
                assert!(contrast(ink, cell) >= 4.5, "{share} of {set}");
            }
        }
    }
}
