//! Problems of a configuration, their places, and their output.
//!
//! A problem has its place (a flag, or a key path with file, line and column), a message and a remedy. All problems are
//! reported together.

use std::fmt::{Display, Write as _};
use std::ops::Range;

/// Where a value was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nowhere: it is the default.
    #[default]
    Default,
    /// On the command line.
    Flag(&'static str),
    /// In the configuration file.
    File {
        /// The key's path, such as `subsystem[0].nqn`.
        key: String,
        /// Bytes of the file.
        span: Range<usize>,
    },
}

/// A value and where it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Located<T> {
    /// The value.
    pub(crate) value: T,
    /// Where it was written.
    pub(crate) at: Origin,
}

impl<T> Located<T> {
    pub(crate) fn new(value: T, at: Origin) -> Self {
        Self { value, at }
    }
}

/// A text and where it was written.
pub(crate) type Text = Located<String>;
/// An integer and where it was written.
pub(crate) type Number = Located<i64>;

/// Sections whose checks use another one.
const FOLLOWS: [(&str, &str); 3] = [("limits", "server"), ("security", "server"), ("page", "admin")];

/// Whether a problem stops the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Nothing is started.
    Error,
    /// The program continues.
    Warning,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) severity: Severity,
    pub(crate) at: Origin,
    pub(crate) what: String,
    pub(crate) help: Vec<String>,
}

impl Problem {
    /// A problem that stops the program.
    pub(crate) fn error(at: &Origin, what: impl Display) -> Self {
        Self { severity: Severity::Error, at: at.clone(), what: what.to_string(), help: Vec::new() }
    }

    /// A warning.
    pub(crate) fn warning(at: &Origin, what: impl Display) -> Self {
        Self { severity: Severity::Warning, ..Self::error(at, what) }
    }

    /// An error about the machine, not about a single value.
    pub(crate) fn of_machine(what: impl Display) -> Self {
        Self::error(&Origin::Default, what)
    }

    /// The same as a warning.
    pub(crate) fn into_warning(self) -> Self {
        Self { severity: Severity::Warning, ..self }
    }

    /// Whether it stops the program.
    pub(crate) fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The flag that it is about, if its value was written there.
    pub(crate) fn flag(&self) -> Option<&'static str> {
        match self.at {
            Origin::Flag(flag) => Some(flag),
            _ => None,
        }
    }

    /// Whether the user of the server may not have been read, whose rights limit which files are opened.
    pub(crate) fn hides_user(&self) -> bool {
        matches!(&self.at, Origin::File { key, .. } if !key.contains('.') || key.starts_with("security."))
    }

    /// Whether it may be a consequence of a value that was not read: it has no place, or is in the same section, or about this or one around it.
    pub(crate) fn may_follow(&self, unread: &Self) -> bool {
        match (&self.at, &unread.at) {
            (Origin::File { key, .. }, Origin::File { key: unread, .. }) => match unread.rsplit_once('.') {
                Some((section, _)) => {
                    let own = key.rsplit_once('.').map_or("", |(own, _)| own);
                    let follows = [own, key].iter().any(|own| FOLLOWS.contains(&(own, section)));
                    section.starts_with(key) || own == section || follows
                }
                None => !key.contains('.'),
            },
            (Origin::Flag(own), Origin::Flag(unread)) => {
                *unread == "--cores" && matches!(*own, "--main-core" | "--io-threads")
            }
            _ => true,
        }
    }

    /// Adds what the user can do.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }
}

/// The file that spans point into.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Its name as the user gave it.
    pub(crate) name: String,
    /// Its text.
    pub(crate) text: String,
}

/// A line of a source, and a stretch within it.
struct Place<'a> {
    number: usize,
    column: usize,
    line: &'a str,
    width: usize,
}

impl Source {
    /// Line and column (counted in characters from 1) of the first byte of `span`, and how much of that line it covers.
    fn place(&self, span: &Range<usize>) -> Place<'_> {
        let start = span.start.min(self.text.len());
        let before = &self.text[..start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = self.text[line_start..].lines().next().unwrap_or("");
        let end = span.end.clamp(start, line_start + line.len().max(start - line_start));
        let (number, column) = line_and_column(&self.text, start);
        Place { number, column, line, width: self.text.get(start..end).unwrap_or("").trim_end().chars().count().max(1) }
    }
}

/// Line and column (counted in characters from 1) of a byte of a text.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// A place in a text that must not be quoted.
pub(crate) fn place_in(text: &str, at: usize) -> String {
    let (line, column) = line_and_column(text, at);
    format!("line {line}, column {column}")
}

/// All problems as text for a terminal, in the order of the file.
pub(crate) fn render_all(problems: &[Problem], source: Option<&Source>, colour: bool) -> String {
    let mut sorted: Vec<&Problem> = problems.iter().collect();
    sorted.sort_by_key(|problem| match &problem.at {
        Origin::File { span, .. } => span.start,
        _ => 0,
    });
    sorted.iter().map(|problem| render(problem, source, colour)).collect()
}

/// Each problem as a line of the log.
pub(crate) fn log_all(problems: &[Problem], source: Option<&Source>) {
    for Problem { severity, at, what, help } in problems {
        let (key, span) = match at {
            Origin::Default => (None, None),
            Origin::Flag(flag) => (Some(*flag), None),
            Origin::File { key, span } => (Some(key.as_str()), Some(span)),
        };
        let file = source.map(|source| source.name.as_str());
        let line = source.zip(span).map(|(source, span)| source.place(span).number);
        let help = (!help.is_empty()).then(|| help.join("; "));
        let (help, reason) = (help.as_deref(), what.as_str());
        match severity {
            Severity::Error => tracing::error!(file, line, key, reason, help, "configuration refused"),
            Severity::Warning => tracing::warn!(file, line, key, reason, help, "configuration warning"),
        }
    }
}

/// One problem as text for a terminal.
fn render(problem: &Problem, source: Option<&Source>, colour: bool) -> String {
    let paint = Paint { colour };
    let label = match problem.severity {
        Severity::Error => paint.wrap("1;31", "error"),
        Severity::Warning => paint.wrap("1;33", "warning"),
    };
    let subject = match &problem.at {
        Origin::Default => String::new(),
        Origin::Flag(flag) => format!("{flag}: "),
        Origin::File { key, .. } if key.is_empty() => String::new(),
        Origin::File { key, .. } => format!("{key}: "),
    };
    let mut out = format!("{label}: {}\n", paint.wrap("1", &format!("{subject}{}", problem.what)));
    match (&problem.at, source) {
        (Origin::File { span, .. }, Some(source)) => quote(&mut out, source, span, &paint),
        (Origin::Default, Some(source)) => {
            let _ = writeln!(out, " {} {}", paint.wrap("1;34", "-->"), source.name);
        }
        _ => {}
    }
    for help in &problem.help {
        let _ = writeln!(out, "  {} {help}", paint.wrap("1;34", "="));
    }
    out
}

/// Appends the line that `span` starts on, with the stretch underlined.
fn quote(out: &mut String, source: &Source, span: &Range<usize>, paint: &Paint) {
    let place = source.place(span);
    let number = place.number.to_string();
    let margin = " ".repeat(number.len());
    let bar = paint.wrap("1;34", "|");
    // keep tabs, so that the underline is aligned
    let indent: String =
        place.line.chars().take(place.column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let _ = writeln!(out, "{margin}{} {}:{number}:{}", paint.wrap("1;34", "-->"), source.name, place.column);
    let _ = writeln!(out, "{margin} {bar}");
    let _ = writeln!(out, "{} {bar} {}", paint.wrap("1;34", &number), place.line);
    let _ = writeln!(out, "{margin} {bar} {indent}{}", paint.wrap("1;31", &"^".repeat(place.width)));
}

/// Adds colours, if enabled.
struct Paint {
    colour: bool,
}

impl Paint {
    fn wrap(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn source(text: &str) -> Source {
        Source { name: "a.toml".to_owned(), text: text.to_owned() }
    }

    fn at(text: &str, what: &str) -> Origin {
        let start = text.find(what).unwrap();
        Origin::File { key: "key".to_owned(), span: start..start + what.len() }
    }

    #[test]
    fn columns_count_characters_and_tabs_stay() {
        let text = "first = 1\n\tköy = \"värde\" # note\n";
        let problem = Problem::error(&at(text, "\"värde\""), "no").help("write yes");
        expect![[r#"
            error: key: no
             --> a.toml:2:8
              |
            2 | 	köy = "värde" # note
              | 	      ^^^^^^^
              = write yes
        "#]]
        .assert_eq(&render(&problem, Some(&source(text)), false));
    }

    #[test]
    fn a_span_over_lines_underlines_the_first_only() {
        let text = "list = [\n  1,\n]\n";
        let problem = Problem::error(&at(text, "[\n  1,\n]"), "no");
        assert!(render(&problem, Some(&source(text)), false).ends_with("1 | list = [\n  |        ^\n"));
    }

    #[test]
    fn a_span_at_the_end_of_the_file_is_shown() {
        let text = "a =";
        let origin = Origin::File { key: String::new(), span: 3..3 };
        assert!(render(&Problem::error(&origin, "x"), Some(&source(text)), false).contains("a.toml:1:4\n"));
        let origin = Origin::File { key: String::new(), span: 90..99 };
        assert!(render(&Problem::error(&origin, "x"), Some(&source(text)), false).contains("a.toml:1:4\n"));
    }

    #[test]
    fn colours_only_where_wanted() {
        let problem = Problem::warning(&Origin::Flag("--listen"), "hm");
        assert_eq!(render(&problem, None, false), "warning: --listen: hm\n");
        assert!(render(&problem, None, true).contains("\x1b[1;33mwarning\x1b[0m"));
    }

    #[test]
    fn problems_are_in_the_order_of_the_file() {
        let text = "a = 1\nb = 2\n";
        let problems = [Problem::error(&at(text, "b"), "second"), Problem::warning(&at(text, "a"), "first")];
        let text = render_all(&problems, Some(&source(text)), false);
        assert!(text.find("first").unwrap() < text.find("second").unwrap(), "{text}");
    }
}
