//! Rows of cores, each with its time by state as a bar, and of I/O threads.

use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::bar::NINE_LEVELS;
use ratatui::text::{Line, Span};

use super::head::cut;
use super::history::History;
use crate::config::format_cores;
use crate::status::format::{rate, time};
use crate::status::report::{BUSY, EMPTY_POLLS, IoThreadReport, ReactorReport, Report};

/// Columns of a row of a core before its bar, and after it.
const BEFORE: usize = 41;
const AFTER: usize = 18;
/// From this number of columns the history of each core is shown, in this number of columns.
const WIDE: usize = 110;
const HISTORY: usize = 30;

/// Parts of a core's time: name, character and colour of the bar.
const PARTS: [(&str, char, Color); 5] = [
    (BUSY, '█', Color::Green),
    (EMPTY_POLLS, '▒', Color::Yellow),
    ("monitor-wait", '-', Color::Cyan),
    ("software-wait", '.', Color::Blue),
    ("server-sleep", '_', Color::Blue),
];

/// The legend of the bars: the depths that cores use.
pub(super) fn legend(report: &Report) -> Line<'static> {
    let used = |name: &str| report.reactors.iter().any(|reactor| slept(reactor, name) > 0.0);
    let shown = PARTS.iter().enumerate().filter(|(at, (name, ..))| *at < 2 || used(name));
    let spans = shown.flat_map(|(_, &(name, character, colour))| {
        [Span::styled(character.to_string(), colour), Span::raw(format!(" {name}   "))]
    });
    Line::from(spans.collect::<Vec<_>>())
}

/// The heading of the rows of cores.
pub(super) fn heading(width: u16) -> Line<'static> {
    let bar = bar_width(width);
    let mut text = format!("{:8} {:13} {:>5} {:>5} {:>5} ", "core", "state", "busy%", "poll%", "slp%");
    text += &format!("{:bar$} {:>7} {:9}", cut("time", bar), "req/s", "threads");
    if is_wide(width) {
        text += "awake, over time";
    }
    Line::from(text).style(Style::new().add_modifier(Modifier::REVERSED))
}

/// Cores, then I/O threads.
pub(super) fn rows(report: &Report, history: &History, width: u16) -> Vec<Line<'static>> {
    let mut rows: Vec<Line<'static>> = Vec::new();
    for (at, reactor) in report.reactors.iter().enumerate() {
        let mut row = core(reactor, width);
        if is_wide(width) {
            let samples = history.awake.get(at).into_iter().flatten().copied();
            row.push_span(Span::styled(curve(&samples.collect::<Vec<_>>()), Color::Cyan));
        }
        rows.push(row);
    }
    let headings = ["I/O thread", "reactor", "connections", "req/s", "busy%", "poll%", "slp%", "p50", "p99", "moves"];
    rows.push(Line::default());
    rows.push(Line::from(columns(headings.map(str::to_owned))).style(Style::new().add_modifier(Modifier::REVERSED)));
    rows.extend(report.io_threads.iter().map(io_thread));
    rows
}

fn is_wide(width: u16) -> bool {
    usize::from(width) >= WIDE
}

fn bar_width(width: u16) -> usize {
    let history = if is_wide(width) { HISTORY } else { 0 };
    usize::from(width).saturating_sub(BEFORE + AFTER + history).max(1)
}

fn slept(reactor: &ReactorReport, depth: &str) -> f64 {
    reactor.asleep_percent.get(depth).copied().unwrap_or(0.0)
}

fn core(reactor: &ReactorReport, width: u16) -> Line<'static> {
    let name = reactor.core.map_or_else(|| format!("r{}", reactor.id), |core| core.to_string());
    let name = format!("{name:>3}{}", if reactor.main { " main" } else { "" });
    let asleep: f64 = reactor.asleep_percent.values().sum();
    let state = if reactor.state == "awake" { Color::Green } else { Color::Blue };
    let shares = format!(" {:5.1} {:5.1} {asleep:5.1} ", reactor.busy_percent, reactor.idle_percent);
    let mut spans =
        vec![Span::raw(format!("{name:8} ")), Span::styled(format!("{:13}", reactor.state), state), Span::raw(shares)];
    spans.extend(bar(reactor, bar_width(width)));
    let ids: Vec<u32> = reactor.io_threads.iter().map(|&id| u32::from(id)).collect();
    let threads = cut(&format_cores(&ids), 8);
    spans.push(Span::raw(format!(" {:>7} {threads:9}", rate(reactor.requests_per_s))));
    Line::from(spans)
}

/// A core's time as a bar: each part in proportion to its share, rounded so that all together fill the bar.
fn bar(reactor: &ReactorReport, width: usize) -> Vec<Span<'static>> {
    let share = |name: &str| match name {
        BUSY => reactor.busy_percent,
        EMPTY_POLLS => reactor.idle_percent,
        depth => slept(reactor, depth),
    };
    let mut until = 0.0;
    let mut drawn = 0;
    let mut spans: Vec<Span<'static>> = Vec::new();
    for (name, character, colour) in PARTS {
        until += share(name).max(0.0);
        let end = ((until / 100.0 * width as f64).round() as usize).min(width);
        spans.push(Span::styled(character.to_string().repeat(end.saturating_sub(drawn)), colour));
        drawn = drawn.max(end);
    }
    spans.push(Span::raw(" ".repeat(width - drawn)));
    spans
}

/// The last samples, in thousandths, each as one of nine levels.
fn curve(samples: &[u64]) -> String {
    let level = |&sample: &u64| match sample.min(1000) * 8 / 1000 {
        0 if sample == 0 => NINE_LEVELS.empty,
        0 | 1 => NINE_LEVELS.one_eighth,
        2 => NINE_LEVELS.one_quarter,
        3 => NINE_LEVELS.three_eighths,
        4 => NINE_LEVELS.half,
        5 => NINE_LEVELS.five_eighths,
        6 => NINE_LEVELS.three_quarters,
        7 => NINE_LEVELS.seven_eighths,
        _ => NINE_LEVELS.full,
    };
    samples[samples.len().saturating_sub(HISTORY)..].iter().map(level).collect()
}

fn io_thread(thread: &IoThreadReport) -> Line<'static> {
    let latency = |ns: u64| if thread.latency.count > 0 { time(ns) } else { "-".to_owned() };
    let asleep = thread.software_wait_percent + thread.server_sleep_percent;
    Line::from(columns([
        thread.id.to_string(),
        thread.home.to_string(),
        thread.connections.to_string(),
        rate(thread.requests_per_s),
        format!("{:.1}", thread.busy_percent),
        format!("{:.1}", thread.idle_percent),
        format!("{asleep:.1}"),
        latency(thread.latency.p50_ns),
        latency(thread.latency.p99_ns),
        thread.moves.since_start.to_string(),
    ]))
}

fn columns(cells: [String; 10]) -> String {
    let [id, home, connections, requests, busy, idle, asleep, p50, p99, moves] = cells;
    format!(
        "{id:10} {home:>7} {connections:>11} {requests:>6} {busy:>5} {idle:>5} {asleep:>5} {p50:>7} {p99:>7} {moves:>6}"
    )
}
