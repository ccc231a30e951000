//! Progress of a run: a bar on a terminal, otherwise a line for each measurement.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use pilotlight_lab::plan::Plan;
pub(crate) use pilotlight_lab::report::time_text as time;
use pilotlight_lab::results::summary::point_text;
use pilotlight_lab::run::Event;

use crate::console;

/// The display.
pub(super) struct Progress<'a> {
    plan: &'a Plan,
    bar: ProgressBar,
    lines: bool,
}

impl<'a> Progress<'a> {
    pub(super) fn new(plan: &'a Plan, quiet: bool) -> Self {
        let (bar, lines) = bar(quiet);
        Self { plan, bar, lines }
    }

    pub(super) fn update(&mut self, event: &Event) {
        match event {
            Event::Step(what) => self.show(what),
            Event::Settling(seconds) => self.show(&format!("settling for {}", time(*seconds))),
            Event::Baseline => self.show("the idle machine"),
            Event::Measuring { key, finished, of, left_s } => {
                self.bar.set_length(*of as u64);
                self.bar.set_position(*finished as u64);
                let point = point_text(&self.plan.points[key.point]);
                let text = format!("{} of {of}: {point}, about {} left", finished + 1, time(*left_s));
                self.show(&text);
            }
            Event::Failed(key, why) => {
                let text = format!("{} failed: {why}", point_text(&self.plan.points[key.point]));
                if self.lines { console::eprintln(&text) } else { self.bar.println(text) }
            }
        }
    }

    fn show(&self, text: &str) {
        let short: String = text.chars().take(160).collect();
        if self.lines {
            console::eprintln(&short);
        }
        self.bar.set_message(short);
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// A bar with elapsed time and a message, hidden without a terminal; and whether lines are printed instead.
pub(crate) fn bar(quiet: bool) -> (ProgressBar, bool) {
    if quiet || !std::io::stderr().is_terminal() {
        return (ProgressBar::hidden(), !quiet);
    }
    let style = ProgressStyle::with_template("{bar:24} {elapsed} gone, {wide_msg}");
    let bar = ProgressBar::new(1).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_secs(1));
    (bar, false)
}
