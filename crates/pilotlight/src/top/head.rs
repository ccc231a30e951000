//! The header: the server, its load, and its power.

use std::collections::VecDeque;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::history::main_reading;
use crate::config::{format_budget, format_moment};
use crate::status::format::{bytes_per_s, long_time, rate, time};
use crate::status::goals;
use crate::status::report::{BudgetReport, PowerReport, Report};

/// Columns of the names on the left.
pub(super) const LABEL: usize = 11;

/// All lines, each cut to the width.
pub(super) fn lines(report: &Report, width: u16) -> Vec<Line<'static>> {
    let server = &report.server;
    let listening: Vec<String> = server.listening.iter().map(ToString::to_string).collect();
    let up = long_time(server.uptime_ns);
    let title = format!("pilotlight {}, up {up}, on {}", server.version, listening.join(", "));
    let mut lines = vec![Line::from(cut(&title, width.into())).style(Modifier::BOLD)];
    if server.test_mode {
        let warning = "test mode, reactors without cores of their own: measurements are not valid";
        lines.push(Line::from(cut(warning, width.into())).style(Color::Yellow));
    }
    let plain = Style::new();
    let state = report.budget.as_ref().map_or(plain, |budget| Style::new().fg(state_colour(&budget.state)));
    for (name, text, style) in [
        ("policy", policy(report), plain),
        ("load", load(report), plain),
        ("latency", latency(report), plain),
        ("power", power(report.power.as_ref()), plain),
        ("budget", budget(report), state),
        ("tolerance", tolerance(report), plain),
    ] {
        let label = Span::styled(format!("{name:LABEL$}"), Modifier::BOLD);
        let text = cut(&text, usize::from(width).saturating_sub(LABEL));
        lines.push(Line::from(vec![label, Span::styled(text, style)]));
    }
    lines
}

/// The name of the power that is drawn as a curve, and the highest sample.
pub(super) fn power_curve(report: &Report, milliwatts: &VecDeque<u64>) -> Option<(String, String)> {
    main_reading(report)?;
    let max = milliwatts.iter().copied().max().unwrap_or(0) as f64 / 1000.0;
    Some(("watts".to_owned(), format!("max {max:.1} W")))
}

fn policy(report: &Report) -> String {
    let set = report.policy.parameters.iter().filter(|parameter| parameter.is_set);
    let set: Vec<String> = set.map(|parameter| format!("{}={}", parameter.key, parameter.value)).collect();
    let set = if set.is_empty() { String::new() } else { format!(" ({})", set.join(", ")) };
    format!("{}{set}", report.policy.name)
}

fn load(report: &Report) -> String {
    let io = &report.io;
    let (read, written) = (bytes_per_s(io.read_bytes_per_s), bytes_per_s(io.written_bytes_per_s));
    format!("{} IOPS, {read} read, {written} written, {} connections", rate(io.iops), io.connections)
}

fn latency(report: &Report) -> String {
    let latency = &report.io.latency;
    if latency.count == 0 {
        return "no reads or writes".to_owned();
    }
    let within = format!("p50 {}, p99 {}", time(latency.p50_ns), time(latency.p99_ns));
    let sampled = report.io.from_socket.as_ref().map(|sampled| {
        format!("; from the {} p50 {}, p99 {}", sampled.start, time(sampled.p50_ns), time(sampled.p99_ns))
    });
    within + &sampled.unwrap_or_default()
}

fn power(power: Option<&PowerReport>) -> String {
    let Some(power) = power else { return "no sensor".to_owned() };
    let from = match &power.modelled {
        Some(profile) => format!("modelled, {profile}"),
        None => power.sensor.clone(),
    };
    let watts = |uw: Option<u64>| uw.map_or("unknown".to_owned(), |uw| format!("{:.1} W", uw as f64 / 1e6));
    let readings: Vec<String> =
        power.readings.iter().map(|one| format!("{} {}", one.of, watts(one.power_uw))).collect();
    format!("{} ({from})", readings.join(", "))
}

fn budget(report: &Report) -> String {
    let budget = report.goals.budget_uw.map(|uw| format_budget(Some(uw)));
    let Some(how) = &report.budget else { return budget.unwrap_or_else(|| "off".to_owned()) };
    let mut text = format!("{} of the {}", budget.unwrap_or_else(|| "off".to_owned()), goals::domain_name(&how.domain));
    text += &format!(": {}", how.state);
    text += &how.headroom_uw.map_or(String::new(), |uw| format!(", headroom {:.1} W", uw as f64 / 1e6));
    text += &how.until_unix_s.map_or(String::new(), |until_s| format!(", until {}", format_moment(until_s)));
    text + &throttled(how)
}

fn throttled(budget: &BudgetReport) -> String {
    match budget.throttled.as_slice() {
        [] => String::new(),
        [one] => format!("; {} {}", one.name, one.value),
        [one, rest @ ..] => format!("; {} {} and {} more", one.name, one.value, rest.len()),
    }
}

fn tolerance(report: &Report) -> String {
    let goals = &report.goals;
    if goals.tolerances.is_empty() {
        return "off".to_owned();
    }
    let all: Vec<String> = goals.tolerances.iter().map(goals::tolerance).collect();
    let unused = goals.unused.iter().any(|unused| unused == "tolerance");
    let unused = if unused { format!("; policy {} does not use it", report.policy.name) } else { String::new() };
    let state = goals::tolerance_state(&report.policy).map_or(String::new(), |state| format!(": {state}"));
    format!("{}{state}{unused}", all.join("; "))
}

fn state_colour(state: &str) -> Color {
    match state {
        "held" => Color::Green,
        "exceeded" | "unreachable" => Color::Red,
        "off" => Color::Reset,
        _ => Color::Yellow,
    }
}

/// Truncates a text, with a mark.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(Some('…').filter(|_| width > 0)).collect()
}
