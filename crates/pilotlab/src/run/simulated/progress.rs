//! Progress of a sweep: a bar on a terminal, otherwise a line from time to time.
//!
//! Lengths of runs differ by a factor of 1,000, so progress is by estimated cost. The remaining time follows from the speed so far.

use std::io::IsTerminal as _;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use pilotlight_lab::simulated::sweep;

use crate::console;
use crate::run::live::progress::time;

/// Minimum interval between lines.
const LINE_INTERVAL: Duration = Duration::from_secs(60);

/// The display.
pub(super) struct Progress {
    bar: ProgressBar,
    lines: bool,
    begun: Instant,
    workers: f64,
    /// Estimated CPU time of all missing runs, in seconds.
    all_s: f64,
    state: Mutex<State>,
}

struct State {
    finished_s: f64,
    said: Instant,
    name: String,
}

impl Progress {
    /// For runs with this estimated CPU time in seconds.
    pub(super) fn new(all_s: f64, workers: NonZeroUsize, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal && !quiet { bar(all_s) } else { ProgressBar::hidden() };
        let now = Instant::now();
        let state = State { finished_s: 0.0, said: now, name: String::new() };
        let workers = workers.get() as f64;
        Self { bar, lines: !terminal && !quiet, begun: now, workers, all_s, state: Mutex::new(state) }
    }

    /// Starts another experiment, with its number of runs and remaining CPU time in seconds.
    pub(super) fn begin(&self, name: &str, runs: usize, missing_s: f64) {
        let mut state = self.state();
        name.clone_into(&mut state.name);
        if self.lines && missing_s > 0.0 {
            let all = time(self.left_s(&state));
            console::eprintln(format_args!(
                "{name}: {runs} runs, about {}; of all about {all} left",
                time(missing_s / self.workers)
            ));
            state.said = Instant::now();
        }
    }

    /// Notes a finished run.
    pub(super) fn done(&self, done: &sweep::Progress<'_>) {
        let mut state = self.state();
        state.finished_s += done.cost_s;
        let left = time(self.left_s(&state));
        let runs = format!("{} of {} runs", done.finished, done.of);
        self.bar.set_position(milliseconds(state.finished_s));
        self.bar.set_message(format!("{left} left  {} {runs}: {} {}", state.name, done.run.policy, done.run.point));
        if self.lines && state.said.elapsed() >= LINE_INTERVAL {
            let share = 100.0 * state.finished_s / self.all_s.max(f64::MIN_POSITIVE);
            let gone = time(self.begun.elapsed().as_secs_f64());
            console::eprintln(format_args!(
                "{}: {runs}; of all {share:.0} % after {gone}, about {left} left",
                state.name
            ));
            state.said = Instant::now();
        }
    }

    /// Notes finished bounds.
    pub(super) fn bracket(&self, at: usize, of: usize) {
        let mut state = self.state();
        self.bar.set_message(format!("{} {at} of {of} brackets", state.name));
        if self.lines && state.said.elapsed() >= LINE_INTERVAL {
            console::eprintln(format_args!("{}: {at} of {of} brackets", state.name));
            state.said = Instant::now();
        }
    }

    /// Ends the display.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Remaining time by the speed so far, initially by the estimate.
    fn left_s(&self, state: &State) -> f64 {
        left_s(self.all_s, state.finished_s, self.begun.elapsed().as_secs_f64(), self.workers)
    }
}

fn left_s(all_s: f64, finished_s: f64, gone_s: f64, workers: f64) -> f64 {
    let rest_s = (all_s - finished_s).max(0.0);
    let early = finished_s < 5.0 * workers;
    if early { rest_s / workers } else { rest_s * gone_s / finished_s }
}

fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1e3) as u64
}

fn bar(all_s: f64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} %, {elapsed} gone, {msg}");
    ProgressBar::new(milliseconds(all_s)).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_time_follows_from_the_speed() {
        assert!((left_s(100.0, 0.0, 3.0, 2.0) - 50.0).abs() < 1e-9, "nothing is known yet");
        assert!((left_s(100.0, 20.0, 40.0, 2.0) - 160.0).abs() < 1e-9);
        assert!(left_s(100.0, 120.0, 40.0, 2.0).abs() < 1e-9);
        assert_eq!([time(7.4), time(300.0), time(7_500.0)], ["7 s", "5 min", "2 h 5 min"]);
    }
}
