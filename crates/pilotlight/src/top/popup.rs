//! Pop-ups: the help, and the list of policies.

use pilotlight_policy::POLICIES;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Widget as _};

use super::head::cut;
use crate::status::report::Report;

const HELP: [&str; 15] = [
    "p          choose a policy; its parameters get their defaults",
    "b          set the power budget: 300W, 300W for 2h, off, default",
    "t          set the tolerance: 0.2, 20%, 500us p99, off",
    "Up Down    scroll cores and I/O threads by a line; also k and j",
    "Page Up, Page Down, Home, End    scroll further",
    "q, Esc, Ctrl-C    quit; the server continues",
    "",
    "A setting holds until it is set again, or its configuration",
    "changes (docs/operate/limit-power.md).",
    "",
    "busy%  time that found work      poll%  empty-polls",
    "slp%   asleep, at any depth      req/s  commands from I/O queues",
    "threads  I/O threads that run on the core",
    "",
    "Any key closes this.",
];

/// The keys and columns.
pub(super) fn help(area: Rect, buffer: &mut Buffer) {
    popup(" Keys ", HELP.iter().map(|line| Line::from(*line)).collect(), 0, area, buffer);
}

/// The policies, with one selected.
pub(super) fn policies(selected: usize, report: Option<&Report>, area: Rect, buffer: &mut Buffer) {
    let current = report.map(|report| report.policy.name.as_str());
    let width = usize::from(area.width).saturating_sub(4);
    let line = |(at, entry): (usize, &pilotlight_policy::registry::Entry)| {
        let mark = if current == Some(entry.name) { '*' } else { ' ' };
        let text = cut(&format!("{mark} {:13} {}", entry.name, entry.summary), width);
        let style = if at == selected { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        Line::from(text).style(style)
    };
    let lines = POLICIES.iter().enumerate().map(line).collect();
    popup(" Policy: Enter sets, Esc cancels, * is active ", lines, selected, area, buffer);
}

/// Lines in a frame in the middle of the screen. If not all fit, those around `selected` are shown.
fn popup(title: &str, lines: Vec<Line<'_>>, selected: usize, area: Rect, buffer: &mut Buffer) {
    let width = lines.iter().map(Line::width).chain([title.len()]).max().unwrap_or(0) as u16 + 4;
    let (width, height) = (width.min(area.width), (lines.len() as u16 + 2).min(area.height));
    let (x, y) = (area.x + (area.width - width) / 2, area.y + (area.height - height) / 2);
    let frame = Rect { x, y, width, height };
    Clear.render(frame, buffer);
    let block = Block::bordered().title(title);
    let inner = block.inner(frame);
    block.render(frame, buffer);
    let skipped = (selected + 1).saturating_sub(usize::from(inner.height));
    for (line, y) in lines.into_iter().skip(skipped).zip(inner.top()..inner.bottom()) {
        let (x, width) = (inner.x + 1.min(inner.width), inner.width.saturating_sub(2));
        line.render(Rect { x, y, width, height: 1 }, buffer);
    }
}
