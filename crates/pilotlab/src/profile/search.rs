//! Runs all measurements of a profile with journal, progress and estimated time.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::grid::Search;
use super::journal::Record;
use super::subject::{CORE_PPM, Configuration, CpuSubject, DriveMeasured, DriveSubject, Load, Measured, Stopped};
use crate::console;
use crate::run::live::progress::{bar, time};

/// A profile is incomplete.
#[derive(Debug)]
pub(super) enum Unfinished {
    /// A signal was received; measurements are in the journal.
    Signal(i32),
    /// A measurement failed.
    Failed(anyhow::Error),
}

impl From<Stopped> for Unfinished {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Signal(signal) => Self::Signal(signal),
            Stopped::Failed(why) => Self::Failed(why),
        }
    }
}

/// Measures all configurations of the search.
pub(super) fn cpu(
    subject: &mut dyn CpuSubject,
    step_uw: u64,
    record: &mut Record<Measured>,
    progress: &mut Progress,
) -> Result<(), Unfinished> {
    let axes = subject.axes().clone();
    let search = Search { axes: &axes, step_uw };
    loop {
        let next = search.next(&record.all);
        let Some(&configuration) = next.first() else { return Ok(()) };
        progress.begin(record.all.len(), next.len(), &configuration_text(configuration, axes.limit.is_some()));
        keep(record, subject.measure(configuration)?)?;
    }
}

/// Measures drives idle, at full bandwidth, and at 75, 50 and 25 % of it.
pub(super) fn drives(
    subject: &mut dyn DriveSubject,
    writes: bool,
    record: &mut Record<DriveMeasured>,
    progress: &mut Progress,
) -> Result<(), Unfinished> {
    let directions: &[bool] = if writes { &[false, true] } else { &[false] };
    let all = 1 + 4 * directions.len();
    let mut measure = |load: Load| -> Result<f64, Unfinished> {
        if let Some(known) = record.all.iter().find(|one| one.load == load) {
            return Ok(known.read + known.written);
        }
        let verb = if load.writes { "writes" } else { "reads" };
        let rate = load.bytes_per_s.map_or_else(|| "no limit".into(), |rate| format!("{} MB/s", rate / 1_000_000));
        progress.begin(record.all.len(), all - record.all.len(), &format!("{verb}, {rate}"));
        let measured = subject.measure(load)?;
        let bytes_per_s = measured.read + measured.written;
        keep(record, measured)?;
        Ok(bytes_per_s)
    };
    measure(Load { writes: false, bytes_per_s: Some(0) })?;
    for &writes in directions {
        let most = measure(Load { writes, bytes_per_s: None })?;
        for quarters in [3.0, 2.0, 1.0] {
            measure(Load { writes, bytes_per_s: Some((most * quarters / 4.0) as u64) })?;
        }
    }
    Ok(())
}

fn keep<T: Serialize + DeserializeOwned>(record: &mut Record<T>, one: T) -> Result<(), Unfinished> {
    record.add(one).map_err(Unfinished::Failed)
}

/// A configuration as text.
pub(super) fn configuration_text(configuration: Configuration, has_limit: bool) -> String {
    let Configuration { cores, quota_ppm, limit_uw } = configuration;
    let percent = quota_ppm as f64 / (CORE_PPM / 100) as f64;
    let limit = if has_limit { format!(", limit {} W", limit_uw as f64 / 1e6) } else { String::new() };
    format!("{cores} cores, workers {percent} % of a core{limit}")
}

/// Progress: a bar on a terminal, otherwise a line for each measurement.
pub(super) struct Progress {
    bar: ProgressBar,
    lines: bool,
    /// Initial estimate of a measurement's time.
    each: Duration,
    /// Start of the first measurement of this process, and the number of earlier ones.
    begun: Option<(Instant, usize)>,
}

impl Progress {
    pub(super) fn new(each: Duration, quiet: bool) -> Self {
        let (bar, lines) = bar(quiet);
        Self { bar, lines, each, begun: None }
    }

    fn begin(&mut self, finished: usize, left: usize, what: &str) {
        let (began, before) = *self.begun.get_or_insert_with(|| (Instant::now(), finished));
        let own = (finished - before) as u32;
        let each_s = if own == 0 { self.each.as_secs_f64() } else { began.elapsed().as_secs_f64() / f64::from(own) };
        let text = format!(
            "{} of at least {}: {what}, about {} left or more",
            finished + 1,
            finished + left,
            time(each_s * left as f64)
        );
        self.bar.set_length((finished + left) as u64);
        self.bar.set_position(finished as u64);
        if self.lines {
            console::eprintln(&text);
        }
        self.bar.set_message(text);
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
