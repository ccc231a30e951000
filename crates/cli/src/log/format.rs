//! The format of log lines: text, JSON, and text for the journal of systemd.
//!
//! An event is formatted where it occurs, without its time ([`Lines`]); the writing thread adds time, priority and the number of suppressed lines
//! ([`Layout`]). Whatever an event contains, it is one line.

use std::fmt::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, format};
use tracing_subscriber::registry::LookupSpan;

/// How events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people: level, module, message and `key=value`.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// Not a format of the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a format of the log: write text or json")]
pub struct UnknownFormat(pub String);

impl Format {
    /// Its name in the configuration.
    ///
    /// # Errors
    /// If there is no such format.
    pub fn parse(text: &str) -> Result<Self, UnknownFormat> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(UnknownFormat(other.to_owned())),
        }
    }
}

/// The layout of lines; shared by logging threads and the writing thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    json: Arc<AtomicBool>,
    /// Lines go to the journal of systemd, which has the time itself.
    journal: bool,
}

impl Layout {
    /// For lines that go to `out`.
    pub(super) fn of(out: impl AsFd) -> Self {
        Self::new(is_journal(out, std::env::var("JOURNAL_STREAM").ok().as_deref()))
    }

    pub(super) fn new(journal: bool) -> Self {
        Self { journal, ..Self::default() }
    }

    pub(super) fn set(&self, format: Format) {
        self.json.store(format == Format::Json, Relaxed);
    }

    pub(super) fn is_json(&self) -> bool {
        self.json.load(Relaxed)
    }

    /// Whether a person reads the lines on a terminal or in a file, and no program.
    pub(super) fn is_for_people(&self) -> bool {
        !self.is_json() && !self.journal
    }

    /// A whole line, from an event formatted by [`Lines`]. `left_out` lines like it were suppressed.
    pub(super) fn line(&self, time: &str, level: Level, text: &str, left_out: u64) -> String {
        let priority = if self.journal { format!("<{}>", priority(level)) } else { String::new() };
        // text begins with its level
        if let Some(fields) = text.strip_prefix('{') {
            let fields = fields.strip_suffix('}').unwrap_or(fields);
            let left_out = if left_out > 0 { format!(",\"left_out\":{left_out}") } else { String::new() };
            return format!("{priority}{{\"time\":\"{time}\",{fields}{left_out}}}\n");
        }
        let text = text.replace('\n', "\\n");
        let left_out = match left_out {
            0 => String::new(),
            1 => " (1 more line like this suppressed)".to_owned(),
            count => format!(" ({count} more lines like this suppressed)"),
        };
        match self.journal {
            true => format!("{priority}{}{left_out}\n", text.trim_start()),
            false => format!("{time} {text}{left_out}\n"),
        }
    }

    /// A warning of the log itself, without its time.
    pub(super) fn own_warning(&self, message: &str) -> String {
        const TARGET: &str = "pilotlight_cli::log";
        if self.is_json() { json("WARN", TARGET, message, &[]) } else { format!(" WARN {TARGET}: {message}") }
    }
}

/// Whether standard error is the journal's (systemd.exec(5), `JOURNAL_STREAM`): it may have been redirected since.
fn is_journal(out: impl AsFd, variable: Option<&str>) -> bool {
    let file = out.as_fd().try_clone_to_owned().and_then(|fd| std::fs::File::from(fd).metadata());
    file.is_ok_and(|file| variable == Some(&format!("{}:{}", file.dev(), file.ino())))
}

/// The priority of syslog(3), as a prefix of a line (sd-daemon(3)).
const fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// Formats events, without their time.
pub(super) struct Lines {
    layout: Layout,
    text: format::Format<Full, ()>,
}

impl Lines {
    pub(super) fn new(layout: Layout) -> Self {
        Self { layout, text: format().without_time() }
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        if !self.layout.is_json() {
            return self.text.format_event(context, out, event);
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        out.write_str(&json(metadata.level().as_str(), metadata.target(), &fields.message, &fields.others))
    }
}

/// An event as JSON, without its time.
fn json(level: &str, target: &str, message: &str, fields: &[(&str, Value)]) -> String {
    let mut out =
        format!("{{\"level\":\"{level}\",\"target\":{},\"message\":{}", Value::from(target), Value::from(message));
    for (name, value) in fields {
        let _ = write!(out, ",{}:{value}", Value::from(*name));
    }
    out + "}"
}

/// The fields of an event, in their order.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.others.push((field.name(), value.into()));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            _ => self.put(field, format!("{value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message = value.to_owned(),
            _ => self.put(field, value),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_known_by_device_and_inode() {
        let file = tempfile::tempfile().unwrap();
        let meta = file.metadata().unwrap();
        let name = |inode: u64| format!("{}:{inode}", meta.dev());
        assert!(is_journal(&file, Some(&name(meta.ino()))));
        assert!(!is_journal(&file, Some(&name(meta.ino() + 1))), "it was redirected since");
        assert!(!is_journal(&file, None));
    }

    #[test]
    fn a_line_for_the_journal_has_a_priority_and_no_time() {
        let layout = Layout::new(true);
        assert_eq!(layout.line("T", Level::ERROR, "ERROR a: b", 0), "<3>ERROR a: b\n");
        assert_eq!(
            layout.line("T", Level::WARN, " WARN a: b", 2),
            "<4>WARN a: b (2 more lines like this suppressed)\n"
        );
        assert_eq!(
            layout.line("T", Level::INFO, "{\"level\":\"INFO\"}", 0),
            "<6>{\"time\":\"T\",\"level\":\"INFO\"}\n"
        );
        assert!(!layout.is_for_people() && Layout::new(false).is_for_people());
    }

    #[test]
    fn an_event_is_one_line_whatever_it_contains() {
        assert_eq!(Layout::new(false).line("T", Level::INFO, " INFO a: b\nc", 0), "T  INFO a: b\\nc\n");
        let text = json("INFO", "a", "say \"b\"\nc", &[("host", Value::from("x\u{1b}[31m\n"))]);
        let line = Layout::new(false).line("T", Level::INFO, &text, 3);
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&value["message"], &value["left_out"]), (&Value::from("say \"b\"\nc"), &Value::from(3)));
        assert_eq!(value["host"], "x\u{1b}[31m\n");
    }

    #[test]
    fn formats_have_names() {
        assert_eq!((Format::parse("json"), Format::parse("text")), (Ok(Format::Json), Ok(Format::Text)));
        assert!(Format::parse("JSON").unwrap_err().to_string().contains("text or json"));
    }
}
