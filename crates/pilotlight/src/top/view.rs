//! A screen: from a report, the history and the state of the keys to characters; a pure function of them and the size.
//!
//! From top to bottom: the server and its load (`head`), curves, the rows of cores and I/O threads, which can be scrolled (`body`),
//! messages, and one line of keys. If there are too few lines, the body gets shorter first.

use std::collections::VecDeque;
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Sparkline, Widget as _, Wrap};

use super::history::History;
use super::keys::{Field, Message, Mode, Ui};
use super::{body, head, popup};
use crate::status::format::rate;
use crate::status::report::Report;

/// Maximum lines of a message.
const MESSAGE_LINES: u16 = 4;
/// Lines of the body below which there is no legend.
const WITH_LEGEND: u16 = 10;

/// The connection to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Connection {
    /// No status yet.
    Connecting,
    Up,
    /// It is broken; the reason.
    Lost(String),
}

/// Displayed state.
pub(super) struct Screen<'a> {
    pub(super) report: Option<&'a Report>,
    pub(super) history: &'a History,
    pub(super) connection: &'a Connection,
    /// The age of the report, if it is displayed.
    pub(super) age: Option<Duration>,
    pub(super) ui: &'a Ui,
}

/// Draws it; returns the scroll position, at most that of the last line.
pub(super) fn draw(screen: &Screen<'_>, area: Rect, buffer: &mut Buffer) -> usize {
    let mut space = Space { rest: area };
    bottom(screen, &mut space, buffer);
    connection(screen, &mut space, buffer);
    let scroll = screen.report.map_or(0, |report| server(screen, report, &mut space, buffer));
    match screen.ui.mode {
        Mode::Help => popup::help(area, buffer),
        Mode::Policies(selected) => popup::policies(selected, screen.report, area, buffer),
        Mode::Watch | Mode::Input(..) => {}
    }
    scroll
}

/// The rest of the screen.
struct Space {
    rest: Rect,
}

impl Space {
    /// Takes lines from the top, as many as there are.
    fn top(&mut self, lines: u16) -> Rect {
        let height = lines.min(self.rest.height);
        let taken = Rect { height, ..self.rest };
        self.rest = Rect { y: self.rest.y + height, height: self.rest.height - height, ..self.rest };
        taken
    }

    /// Takes lines from the bottom, as many as there are.
    fn bottom(&mut self, lines: u16) -> Rect {
        let height = lines.min(self.rest.height);
        self.rest.height -= height;
        Rect { y: self.rest.y + self.rest.height, height, ..self.rest }
    }
}

/// The server, as of the last report; returns the scroll position.
fn server(screen: &Screen<'_>, report: &Report, space: &mut Space, buffer: &mut Buffer) -> usize {
    for line in head::lines(report, space.rest.width) {
        line.render(space.top(1), buffer);
    }
    curve("IOPS", &rate_max(&screen.history.iops), &screen.history.iops, Color::Cyan, space.top(1), buffer);
    if let Some((name, max)) = head::power_curve(report, &screen.history.milliwatts) {
        curve(&name, &max, &screen.history.milliwatts, Color::Yellow, space.top(1), buffer);
    }
    if space.rest.height >= WITH_LEGEND {
        body::legend(report).render(space.top(1), buffer);
    }
    body::heading(space.rest.width).render(space.top(1), buffer);
    let rows = body::rows(report, screen.history, space.rest.width);
    let height = usize::from(space.rest.height);
    let scroll = screen.ui.scroll.min(rows.len().saturating_sub(height));
    let (count, area) = (rows.len(), space.rest);
    for (line, y) in rows.into_iter().skip(scroll).zip(area.top()..area.bottom()) {
        line.render(Rect { y, height: 1, ..area }, buffer);
    }
    if count > height && screen.ui.mode == Mode::Watch {
        let where_ = format!("{}-{} of {count} lines", scroll + 1, (scroll + height).min(count));
        let foot = Rect { y: buffer.area.bottom().saturating_sub(1), height: 1, ..area };
        Line::from(where_).right_aligned().render(foot, buffer);
    }
    scroll
}

fn rate_max(samples: &VecDeque<u64>) -> String {
    format!("max {}", rate(samples.iter().copied().max().unwrap_or(0) as f64))
}

/// A name, the samples that fit with the newest on the right, and the highest of all.
fn curve(name: &str, max: &str, samples: &VecDeque<u64>, colour: Color, area: Rect, buffer: &mut Buffer) {
    let (left, right) = (head::LABEL as u16, max.chars().count() as u16 + 1);
    Line::from(name.to_owned()).style(Modifier::BOLD).render(area, buffer);
    Line::from(max.to_owned()).right_aligned().render(area, buffer);
    let width = area.width.saturating_sub(left + right);
    let bars = Rect { x: area.x + left.min(area.width), width, ..area };
    let none_yet = std::iter::repeat_n(0, usize::from(width).saturating_sub(samples.len()));
    let shown = none_yet.chain(samples.iter().copied().skip(samples.len().saturating_sub(usize::from(width))));
    let top = samples.iter().copied().max().unwrap_or(0).max(1);
    Sparkline::default().data(shown).max(top).style(Style::new().fg(colour)).render(bars, buffer);
}

/// A message if there is no connection or the figures are old.
fn connection(screen: &Screen<'_>, space: &mut Space, buffer: &mut Buffer) {
    let text = match (screen.connection, screen.age) {
        (Connection::Lost(why), _) => format!("NO CONNECTION: {why}. Reconnecting; the data below is old."),
        (Connection::Connecting, _) => "Connecting the server for its status ...".to_owned(),
        (Connection::Up, Some(age)) => {
            format!("NO ANSWER for {} s: the server is busy or stopped; the data below is old.", age.as_secs())
        }
        (Connection::Up, None) => return,
    };
    paragraph(&text, Style::new().fg(Color::Red).add_modifier(Modifier::BOLD), 2, space, Side::Top, buffer);
}

/// The line of keys or of input, and messages above.
fn bottom(screen: &Screen<'_>, space: &mut Space, buffer: &mut Buffer) {
    let foot = space.bottom(1);
    match &screen.ui.mode {
        Mode::Input(field, text) => input(*field, text, foot, buffer),
        _ => Line::from("q quit  p policy  b budget  t tolerance  ? help").style(Modifier::DIM).render(foot, buffer),
    }
    if let Some(Message { text, is_refusal }) = &screen.ui.message {
        let colour = if *is_refusal { Color::Red } else { Color::Green };
        paragraph(text, Style::new().fg(colour), MESSAGE_LINES, space, Side::Bottom, buffer);
    }
}

fn input(field: Field, text: &str, area: Rect, buffer: &mut Buffer) {
    let (name, example) = match field {
        Field::Budget => ("budget", "300W, 300W for 2h, off, default"),
        Field::Tolerance => ("tolerance", "0.2, 20%, 500us p99, off"),
    };
    let line = format!("{name}: {text}_   ({example}; Enter sets, Esc cancels)");
    Line::from(line).style(Modifier::BOLD).render(area, buffer);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Top,
    Bottom,
}

/// Text over as many lines as it needs, up to `most`.
fn paragraph(text: &str, style: Style, most: u16, space: &mut Space, side: Side, buffer: &mut Buffer) {
    let width = usize::from(space.rest.width.max(1));
    let needed: usize = text.lines().map(|line| line.chars().count().div_ceil(width).max(1)).sum();
    // word wrap may need one more line
    let needed = needed + usize::from(needed > text.lines().count());
    let lines = u16::try_from(needed).unwrap_or(most).min(most);
    let area = if side == Side::Top { space.top(lines) } else { space.bottom(lines) };
    Paragraph::new(text).style(style).wrap(Wrap { trim: false }).render(area, buffer);
}
