//! Metrics as text: Prometheus's format 0.0.4, or OpenMetrics 1.0.
//!
//! Not the crate `prometheus-client`, which writes OpenMetrics only.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::family::{Family, Kind, Samples};
use super::{FAMILIES, Facts};

/// The format of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Prometheus,
    OpenMetrics,
}

impl Format {
    /// The format for an `Accept` header: OpenMetrics if it is named, else Prometheus.
    pub(crate) fn accepted(accept: &str) -> Self {
        let media = accept.split(',').map(|part| part.split(';').next().unwrap_or_default().trim());
        let named = media.into_iter().any(|name| name.eq_ignore_ascii_case("application/openmetrics-text"));
        if named { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// `Content-Type`.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// All families that have samples.
pub(crate) fn text(facts: &Facts, format: Format) -> String {
    let mut out = String::with_capacity(16 * 1024);
    for family in FAMILIES {
        let before = out.len();
        head(&mut out, family, format);
        let (begun, name) = (out.len(), family.sample_name());
        let mut put = |suffix: &str, labels: &[(&str, &str)], value| sample(&mut out, &name, suffix, labels, value);
        (family.collect)(facts, &mut Samples::new(&mut put));
        if out.len() == begun {
            out.truncate(before);
        }
    }
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

fn head(out: &mut String, family: &Family, format: Format) {
    let (name, kind) = match (format, family.kind) {
        (_, Kind::Gauge) => (family.name.to_owned(), "gauge"),
        (_, Kind::Histogram) => (family.name.to_owned(), "histogram"),
        (Format::OpenMetrics, Kind::Counter) => (family.name.to_owned(), "counter"),
        (Format::OpenMetrics, Kind::Info) => (family.name.to_owned(), "info"),
        (Format::Prometheus, Kind::Counter) => (family.sample_name(), "counter"),
        (Format::Prometheus, Kind::Info) => (family.sample_name(), "gauge"),
    };
    let _ = writeln!(out, "# HELP {name} {}", escaped(family.help, format == Format::OpenMetrics));
    let _ = writeln!(out, "# TYPE {name} {kind}");
    if format == Format::OpenMetrics && !family.unit.is_empty() {
        let _ = writeln!(out, "# UNIT {name} {}", family.unit);
    }
}

fn sample(out: &mut String, name: &str, suffix: &str, labels: &[(&str, &str)], value: f64) {
    out.extend([name, suffix]);
    for (index, (label, value)) in labels.iter().enumerate() {
        out.push(if index == 0 { '{' } else { ',' });
        out.extend([*label, "=\"", &escaped(value, true), "\""]);
    }
    let end = if labels.is_empty() { "" } else { "}" };
    let _ = if value.fract() == 0.0 && value.abs() < 1e15 {
        writeln!(out, "{end} {}", value as i64) // the same, four times as fast
    } else {
        writeln!(out, "{end} {value}")
    };
}

/// Backslashes and ends of lines as both formats have them; quotation marks too in values of labels, and in OpenMetrics' help.
fn escaped(text: &str, quotes: bool) -> Cow<'_, str> {
    if !text.contains(['\\', '\n', '"']) {
        return text.into(); // of a thousand namespaces there are tens of thousands of labels
    }
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quotes { text.replace('"', "\\\"").into() } else { text.into() }
}
