//! Numbered lines of bounded length.

use std::io::{self, BufRead, Read as _};

use super::MAX_LINE;
use crate::request::{Malformed, Reason};

/// Mark at the start of some texts in UTF-8.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Bytes of a malformed line in its error.
const QUOTED: usize = 80;

/// The lines of a text.
pub(super) struct Lines<R> {
    input: R,
    line: Vec<u8>,
    /// Number of the line in `line`, from 1.
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, line: Vec::with_capacity(256), number: 0 }
    }

    /// The next line without its line break; `None` after the last, which may lack one.
    pub(super) fn next(&mut self) -> Option<Result<&[u8], Malformed>> {
        self.line.clear();
        self.number += 1;
        match (&mut self.input).take(MAX_LINE as u64 + 1).read_until(b'\n', &mut self.line) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) => return Some(Err(self.malformed(Reason::Unreadable(error.to_string())))),
        }
        if self.line.len() > MAX_LINE && !self.line.ends_with(b"\n") {
            let reason = match skip_line(&mut self.input) {
                Ok(()) => Reason::TooLong,
                Err(error) => Reason::Unreadable(error.to_string()),
            };
            return Some(Err(self.malformed(reason)));
        }
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let mark: &[u8] = if self.number == 1 { BYTE_ORDER_MARK } else { b"" };
        Some(Ok(line.strip_prefix(mark).unwrap_or(line)))
    }

    /// The error of the current line.
    pub(super) fn malformed(&self, reason: Reason) -> Malformed {
        let text = String::from_utf8_lossy(&self.line[..self.line.len().min(QUOTED)]);
        let text = text.trim().chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        Malformed { line: self.number, reason, text }
    }
}

/// Skips the rest of a line.
fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = match input.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = buffer.iter().position(|&b| b == b'\n');
        let (count, done) = (end.map_or(buffer.len(), |at| at + 1), end.is_some() || buffer.is_empty());
        input.consume(count);
        if done {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> Vec<Result<Vec<u8>, (u64, Reason)>> {
        let mut lines = Lines::new(text);
        let mut all = Vec::new();
        while let Some(line) = lines.next() {
            all.push(line.map(<[u8]>::to_vec).map_err(|m| (m.line, m.reason)));
        }
        all
    }

    #[test]
    fn all_kinds_of_line_breaks() {
        let expected = ["a", "b", "", "c"].map(|line| Ok(line.as_bytes().to_vec()));
        assert_eq!(all(b"\xef\xbb\xbfa\r\nb\n\nc"), expected);
        assert_eq!(all(b""), []);
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped() {
        let long = vec![b'x'; MAX_LINE + 1];
        let fits = vec![b'y'; MAX_LINE];
        let text = [&long[..], b"\n", &fits, b"\nz\n", &long].concat();
        let expected = [Err((1, Reason::TooLong)), Ok(fits), Ok(b"z".to_vec()), Err((4, Reason::TooLong))];
        assert_eq!(all(&text), expected);
    }
}
