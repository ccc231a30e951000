//! The results of an analysis as text, with units, or JSON.

use std::fmt::Write as _;
use std::path::Path;

use pilotlight_trace::stats::{BurstSummary, Gap, SizeSummary, Summary, WindowSummary};
use serde::Serialize;

use super::segments::SegmentsReport;
use super::with_unit::{size, time};
use crate::console;
use crate::table::Table;

/// Placeholder for a missing value.
const NOTHING: &str = "-";

/// The printed results.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    /// Version of this structure. Keys are added, never changed or removed.
    pub(super) version: u32,
    pub(super) file: &'a Path,
    /// Format of the trace, or the surrogate.
    pub(super) format: &'a str,
    /// Lines that are not requests.
    pub(super) malformed_lines: u64,
    /// Descriptions of the first of them.
    pub(super) malformed_first: Vec<String>,
    /// Requests that were too late to be sorted.
    pub(super) late_requests: u64,
    /// Names of the volumes, if the trace has names; at most 16.
    pub(super) volume_names: Vec<&'a str>,
    pub(super) statistics: Summary,
    /// Segments, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) segments: Option<SegmentsReport>,
}

/// Version of [`Report`].
pub(super) const VERSION: u32 = 1;
pub(super) fn print(report: &Report<'_>, json: bool) -> anyhow::Result<()> {
    let text = if json { serde_json::to_string_pretty(report)? + "\n" } else { text(report) };
    console::print(text)
}

fn text(report: &Report<'_>) -> String {
    let all = &report.statistics;
    let mut out = String::new();
    line(&mut out, "trace", &format!("{} ({})", report.file.display(), report.format));
    line(&mut out, "requests", &requests(all));
    line(&mut out, "span", &format!("{}; the clock ticks every {}", time(all.span_ns), time(all.clock_step_ns)));
    if all.longest_gap.dominates(all.span_ns) {
        line(&mut out, "gap", &gap(all));
    }
    line(&mut out, "reads", &reads(all));
    line(&mut out, "working set", &working_set(all));
    line(&mut out, "volumes", &volumes(report));
    line(&mut out, "bursts", &bursts(&all.bursts));
    let _ = write!(out, "\n{}\n{}", rates(all), sizes(all));
    if let Some(segments) = &report.segments {
        let _ = write!(out, "\n{}", segments.text());
    }
    malformed(&mut out, report);
    out
}

fn line(out: &mut String, heading: &str, text: &str) {
    let _ = writeln!(out, "{heading:12}  {text}");
}

fn requests(all: &Summary) -> String {
    let rate = all.mean_rate_iops.map_or(String::new(), |iops| format!("; {iops:.1} IOPS"));
    let bytes = all.mean_rate_bytes_per_s.map_or(String::new(), |per_s| format!(", {:.3} MB/s", per_s / 1e6));
    format!("{}, {}{rate}{bytes} in the mean", all.requests, size(all.bytes))
}

/// A gap that makes the mean rate meaningless, and how a replay omits it: the part with fewer requests.
fn gap(all: &Summary) -> String {
    let Gap { begin_ns, length_ns, requests_before } = all.longest_gap;
    let end_ns = begin_ns + length_ns;
    let cut = if requests_before <= all.requests / 2 {
        format!("trace.begin={}ms", end_ns / 1_000_000)
    } else {
        format!("duration={}ms", begin_ns / 1_000_000 + 1)
    };
    format!(
        "{} without a request, {:.1} % of the span, after {requests_before} of {} requests, from {} to {}: rates include it. \
         `pilotlab run --replay FILE --set {cut}` omits it",
        time(length_ns),
        length_ns as f64 / all.span_ns as f64 * 100.0,
        all.requests,
        time(begin_ns),
        time(end_ns),
    )
}

fn reads(all: &Summary) -> String {
    let percent = |share: Option<f64>| share.map_or(NOTHING.to_owned(), |share| format!("{:.1} %", share * 100.0));
    format!("{} of requests, {} of bytes", percent(all.read_share), percent(all.read_bytes_share))
}

fn working_set(all: &Summary) -> String {
    let set = &all.working_set;
    let exact = if set.exact { "" } else { ", estimated, standard error 0.41 %" };
    format!("{} in {} blocks of 4 KiB{exact}", size(set.bytes), set.blocks)
}

fn volumes(report: &Report<'_>) -> String {
    let volumes = &report.statistics.volumes;
    let mut text = volumes.volumes.to_string();
    if let (Some(first), Some(tenth)) = (volumes.busiest_share, volumes.busiest_tenth_share) {
        let _ = write!(text, "; {:.1} % of requests to the busiest", first * 100.0);
        let _ = write!(text, ", {:.1} % to the busiest tenth", tenth * 100.0);
    }
    if !report.volume_names.is_empty() {
        let more = volumes.volumes > report.volume_names.len() as u64;
        let _ = write!(text, "; {}{}", report.volume_names.join(" "), if more { " ..." } else { "" });
    }
    text
}

fn bursts(bursts: &BurstSummary) -> String {
    let rule = &bursts.rule;
    let mean = bursts.mean_per_window.map_or(String::new(), |mean| format!(", {mean:.1} in the mean"));
    format!(
        "{}; at most {} in {}{mean} (bins of {} with at least {} times the mean of the {} before, and {} requests)",
        bursts.bursts,
        bursts.max_per_window,
        time(rule.window_ns),
        time(rule.bin_ns),
        rule.factor,
        rule.background_bins,
        rule.min_requests
    )
}

fn rates(all: &Summary) -> Table {
    let mut table = Table::new(&["window", "peak requests", "peak IOPS", "whole windows", "dispersion"]);
    for window in &all.windows {
        table.row(rate(window, all.clock_step_ns));
    }
    table
}

/// The rates of a window; none if the window is shorter than a tick of the trace's clock.
fn rate(window: &WindowSummary, clock_step_ns: u64) -> [String; 5] {
    if window.width_ns < clock_step_ns {
        return [
            time(window.width_ns),
            NOTHING.into(),
            NOTHING.into(),
            NOTHING.into(),
            "the clock's resolution is too low".into(),
        ];
    }
    [
        time(window.width_ns),
        window.peak_requests.to_string(),
        format!("{:.0}", window.peak_rate_iops),
        window.complete_windows.to_string(),
        window.dispersion.map_or(NOTHING.to_owned(), |index| format!("{index:.2}")),
    ]
}

fn sizes(all: &Summary) -> Table {
    let headings = ["<bytes", "minimum", "quartile 1", "median", "quartile 3", "99 %", "maximum"];
    let mut table = Table::new(&headings);
    for (name, sizes) in [("reads", &all.read_sizes), ("writes", &all.write_sizes)] {
        if let Some(sizes) = sizes {
            table.row(quantiles(name, sizes));
        }
    }
    table
}

fn quantiles(name: &str, sizes: &SizeSummary) -> [String; 7] {
    let about = if sizes.exact { "" } else { "~" };
    let text = |bytes: u32| format!("{about}{bytes}");
    [
        name.to_owned(),
        sizes.min_bytes.to_string(),
        text(sizes.quartile1_bytes),
        text(sizes.median_bytes),
        text(sizes.quartile3_bytes),
        text(sizes.p99_bytes),
        text(sizes.max_bytes),
    ]
}

fn malformed(out: &mut String, report: &Report<'_>) {
    if report.late_requests > 0 {
        let _ = write!(out, "\n{} requests were too late to be sorted and", report.late_requests);
        let _ = writeln!(out, " got the time of the one before (--reorder-window sorts more)");
    }
    if report.malformed_lines > 0 {
        let _ = writeln!(out, "\n{} malformed lines were left out:", report.malformed_lines);
        for line in &report.malformed_first {
            let _ = writeln!(out, "  {line}");
        }
        if report.malformed_lines > report.malformed_first.len() as u64 {
            let _ = writeln!(out, "  ...");
        }
    }
}
