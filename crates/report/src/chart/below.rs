//! Names of categories below a chart, and what they are: broken into lines between words where they would touch each other, upright where
//! a single word is too long.

use super::svg::{Anchor, Canvas};

/// About the width of a letter.
pub(super) const LETTER: f64 = 7.2;
const LINE: f64 = 16.0;

/// Names below a chart.
pub(super) struct Below<'a> {
    lines: Vec<Vec<String>>,
    label: &'a str,
    ends: (f64, f64),
    upright: bool,
}

impl<'a> Below<'a> {
    /// Names that are spread evenly between the ends.
    pub(super) fn new(names: &[String], label: &'a str, ends: (f64, f64)) -> Self {
        let most = ((ends.1 - ends.0) / names.len().max(1) as f64 / LETTER) as usize;
        let upright = names.iter().flat_map(|name| name.split(' ')).any(|word| word.chars().count() > most);
        let lines = names.iter().map(|name| if upright { vec![name.clone()] } else { wrapped(name, most) }).collect();
        Self { lines, label, ends, upright }
    }

    /// How much room they need, with the label.
    pub(super) fn height(&self) -> f64 {
        self.names_height() + if self.label.is_empty() { 8.0 } else { 28.0 }
    }

    fn names_height(&self) -> f64 {
        let most = |size: fn(&Vec<String>) -> usize| self.lines.iter().map(size).max().unwrap_or(0) as f64;
        if self.upright { 10.0 + LETTER * most(|lines| lines[0].chars().count()) } else { 4.0 + LINE * most(Vec::len) }
    }

    pub(super) fn draw(&self, canvas: &mut Canvas, bottom: f64) {
        let (left, right) = self.ends;
        let wide = (right - left) / self.lines.len().max(1) as f64;
        for (at, lines) in self.lines.iter().enumerate() {
            let x = left + (at as f64 + 0.5) * wide;
            if self.upright {
                canvas.text_upright((x + 4.5, bottom + 8.0), &lines[0]);
                continue;
            }
            for (down, line) in lines.iter().enumerate() {
                canvas.text((x, bottom + 18.0 + LINE * down as f64), Anchor::Middle, line);
            }
        }
        let y = bottom + self.names_height() + 18.0;
        if !self.label.is_empty() {
            canvas.text(((left + right) / 2.0, y), Anchor::Middle, self.label);
        }
    }
}

/// Lines of at most so many letters, broken at spaces.
pub(super) fn wrapped(name: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in name.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// As many letters of a name as there is room for.
pub(super) fn cut(name: &str, most: usize) -> String {
    if name.chars().count() <= most { name.to_owned() } else { name.chars().take(most - 1).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_broken_and_long_words_stand_upright() {
        assert_eq!(wrapped("io_uring hipri=1 fixedbufs=1", 17), ["io_uring hipri=1", "fixedbufs=1"]);
        let names = ["none", "mq-deadline"].map(str::to_owned);
        assert!(!Below::new(&names, "", (0.0, 200.0)).upright);
        assert!(Below::new(&names, "", (0.0, 100.0)).upright);
    }
}
