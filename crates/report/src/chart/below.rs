//! Category names below a chart, and their label. Names that would overlap are wrapped, if possible at spaces; if too few letters fit a line,
//! they are set vertically.

use super::svg::{Anchor, Canvas};

/// Approximate width of a letter.
pub(super) const LETTER: f64 = 7.2;
/// Width of a wide letter, for text that fills the available width.
pub(super) const WIDE: f64 = 8.6;
const LINE: f64 = 16.0;
/// Minimum number of letters in a line of a broken word.
const MIN_LETTERS: usize = 8;
/// Maximum number of letters in a vertical name.
const UPRIGHT: usize = 32;

/// Names below a chart.
pub(super) struct Below<'a> {
    lines: Vec<Vec<String>>,
    label: &'a str,
    ends: (f64, f64),
    upright: bool,
}

impl<'a> Below<'a> {
    /// Names at equal distances between the ends.
    pub(super) fn new(names: &[String], label: &'a str, ends: (f64, f64)) -> Self {
        let most = ((ends.1 - ends.0) / names.len().max(1) as f64 / LETTER) as usize;
        let hard = (most as f64 * LETTER / WIDE) as usize;
        let too_long = names.iter().flat_map(|name| name.split(' ')).any(|word| word.chars().count() > most);
        let upright = too_long && hard < MIN_LETTERS;
        let of = |name: &String| match (upright, too_long) {
            (true, _) => vec![cut(name, UPRIGHT)],
            (false, true) => wrapped(&broken(name, hard), hard),
            (false, false) => wrapped(name, most),
        };
        let lines = names.iter().map(of).collect();
        Self { lines, label, ends, upright }
    }

    /// Height of the names and the label.
    pub(super) fn height(&self) -> f64 {
        self.names_height() + if self.label.is_empty() { 8.0 } else { 28.0 }
    }

    fn names_height(&self) -> f64 {
        let most = |size: fn(&Vec<String>) -> usize| self.lines.iter().map(size).max().unwrap_or(0) as f64;
        if self.upright { 10.0 + WIDE * most(|lines| lines[0].chars().count()) } else { 4.0 + LINE * most(Vec::len) }
    }

    pub(super) fn draw(&self, canvas: &mut Canvas, bottom: f64) {
        let (left, right) = self.ends;
        let wide = (right - left) / self.lines.len().max(1) as f64;
        for (at, lines) in self.lines.iter().enumerate() {
            let x = left + (at as f64 + 0.5) * wide;
            if self.upright {
                canvas.text_up((x + 4.5, bottom + 8.0), Anchor::End, &lines[0]);
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

/// Lines of at most `most` letters, broken at spaces.
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

/// The name with spaces in words longer than `most` letters.
fn broken(name: &str, most: usize) -> String {
    let word = |word: &str| {
        let letters: Vec<char> = word.chars().collect();
        letters.chunks(most.max(1)).map(|chunk| chunk.iter().collect::<String>()).collect::<Vec<_>>().join(" ")
    };
    name.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// The name, truncated to `most` letters.
pub(super) fn cut(name: &str, most: usize) -> String {
    if name.chars().count() <= most { name.to_owned() } else { name.chars().take(most - 1).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_wrapped_and_long_words_rotated() {
        assert_eq!(wrapped("io_uring hipri=1 fixedbufs=1", 17), ["io_uring hipri=1", "fixedbufs=1"]);
        let names = ["none", "mq-deadline"].map(str::to_owned);
        assert!(!Below::new(&names, "", (0.0, 200.0)).upright);
        assert!(Below::new(&names, "", (0.0, 100.0)).upright);
        let names = ["static", "sandman guards=recommended coarse_interval=100ms"].map(str::to_owned);
        let below = Below::new(&names, "", (0.0, 200.0));
        assert_eq!(below.lines[1], ["sandman", "guards=rec", "ommended", "coarse_int", "erval=100m", "s"]);
        assert!(!below.upright && below.height() > 6.0 * LINE);
        let many: Vec<String> = (0..9).map(|at| format!("{at} {}", "long".repeat(20))).collect();
        let below = Below::new(&many, "", (0.0, 400.0));
        assert!(below.upright && below.lines.iter().all(|lines| lines[0].chars().count() == UPRIGHT));
    }
}
