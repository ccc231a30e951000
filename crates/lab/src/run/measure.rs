//! One measurement: samples sensors while a command runs and adds a line to the journal.

use pilotlight_report::output;
use pilotlight_sensors::energy::Window;
use pilotlight_sensors::recording::Marker;
use pilotlight_sensors::{Recording, Sampler};

use super::process::{self, Running};
use super::{Event, RunError, Runner};
use crate::plan::{Key, machine_knobs, workload_knobs};
use crate::record::{Baseline, Entry, Run, Sensed};
use crate::results::folder::name_of;
use crate::results::{FolderError, samples};
use pilotlight_workloads::record::Record;
use pilotlight_workloads::{Outcome, Point, RunContext};

impl Runner<'_> {
    /// Measures a point once, after the idle baseline if that is missing in this round.
    pub(super) fn measure(&mut self, key: Key) -> Result<(), RunError> {
        let point = self.plan.points[key.point].clone();
        self.set_machine(&point)?;
        self.baseline(&machine_knobs(&point), key.repeat)?;
        let (own, stage) = (workload_knobs(&point), self.stage(key));
        let mut beside = Vec::new();
        for step in self.loaded.workload.before(&own, &stage)? {
            beside.extend(self.step(&step)?);
        }
        let measured = self.command(key, &point, &own, &stage);
        self.settling.load();
        while let Some(mut running) = beside.pop() {
            running.end();
        }
        measured
    }

    fn command(&mut self, key: Key, point: &Point, own: &Point, stage: &RunContext) -> Result<(), RunError> {
        let step = self.bound(self.loaded.workload.command(own, stage)?);
        let sampler = Sampler::start(self.sensors.open(&self.settings.roots)?)?;
        let limit = super::steps::limit(&step);
        let mut running = Running::start(&step, &self.scratch)?;
        let ended = running.wait(|| {
            let signal = self.stop.signal().map(RunError::Stopped);
            signal.or_else(|| sampler.failure().map(Into::into)).or_else(|| limit(&process::title(&step)))
        });
        let outcome = running.outcome();
        let (mut recording, failure) = sampler.stop();
        self.keep_raw(key, &outcome)?;
        ended?;
        failure.map_or(Ok(()), Err)?;
        let mut record = self.loaded.workload.parse(own, stage, &outcome)?;
        let completion =
            self.loaded.workload.mechanism(own).map(|mechanism| self.completion(mechanism, &recording, stage));
        let window = window(&record, stage, outcome.span_ns);
        record.warnings.extend(within_ramp(&record, stage, outcome.span_ns));
        mark_phases(&mut recording, outcome.span_ns, window);
        let folder = self.settings.folder.samples(&name_of(key));
        samples::write(&recording, outcome.span_ns.0, &folder, self.settings.format)?;
        let run = Run {
            key,
            knobs: point.clone(),
            began_wall_ns: outcome.began_wall_ns,
            span: Window { from_ns: outcome.span_ns.0, to_ns: outcome.span_ns.1 },
            window,
            record,
            sensed: Sensed::measured(&recording, window),
            completion,
        };
        Ok(self.journal.add(Entry::Run(Box::new(run)))?)
    }

    fn settle(&mut self) -> Result<(), RunError> {
        let settle = self.loaded.experiment.settle;
        if settle.0 == 0 {
            return Ok(());
        }
        (self.watch)(Event::Settling(settle.seconds()));
        self.waited_ns += settle.0;
        self.wait(settle.0)
    }

    fn keep_raw(&self, key: Key, outcome: &Outcome) -> Result<(), FolderError> {
        let folder = self.settings.folder.raw(&name_of(key));
        std::fs::create_dir_all(&folder).map_err(|source| FolderError::file(&folder, source))?;
        for (name, bytes) in [("stdout", &outcome.stdout), ("stderr", &outcome.stderr)] {
            let path = folder.join(name);
            output::write(&path, bytes).map_err(|source| FolderError::file(&path, source))?;
        }
        Ok(())
    }

    /// Waits if due, and measures the idle machine under a setting once in each round; again in a resumed round, because the machine may
    /// have changed.
    fn baseline(&mut self, setting: &Point, round: u32) -> Result<(), RunError> {
        let length_ns = self.loaded.experiment.idle_baseline(self.sensors.has_energy()).0;
        let wanted = length_ns > 0 && !self.journal.has_baseline(setting, round);
        if self.settling.is_due(wanted) {
            self.settle()?;
        }
        if !wanted {
            return Ok(());
        }
        self.waited_ns += length_ns;
        (self.watch)(Event::Baseline);
        let sampler = Sampler::start(self.sensors.open_idle(&self.settings.roots)?)?;
        let from_ns = sampler.mark("idle");
        let rested = self.wait(length_ns);
        let to_ns = sampler.mark("end");
        let (recording, failure) = sampler.stop();
        rested?;
        failure.map_or(Ok(()), Err)?;
        let name = format!("idle-{}", self.journal.finished.baselines.len());
        samples::write(&recording, from_ns, &self.settings.folder.samples(&name), self.settings.format)?;
        let window = Window { from_ns, to_ns };
        let (setting, sensed) = (setting.clone(), Sensed::measured(&recording, window));
        let baseline = Baseline { setting, round, own_programs: !self.background.is_empty(), window, sensed };
        Ok(self.journal.add(Entry::Baseline(Box::new(baseline)))?)
    }
}

/// The measured window: as reported by the tool, otherwise `duration` after the warm-up; limited to the run time of the command.
fn window(record: &Record, stage: &RunContext, (from_ns, to_ns): (u64, u64)) -> Window {
    let ns = |seconds: f64| (seconds * 1e9).round() as u64;
    let requested = || {
        let ramp = ns(stage.ramp_s);
        (ramp, if stage.duration_s > 0.0 { ramp + ns(stage.duration_s) } else { u64::MAX })
    };
    let (start, end) = record.window_ns.unwrap_or_else(requested);
    let whole = Window { from_ns, to_ns };
    let window = Window { from_ns: from_ns.saturating_add(start), to_ns: from_ns.saturating_add(end).min(to_ns) };
    // A command that ended within the warm-up is measured as a whole.
    if window.from_ns < window.to_ns { window } else { whole }
}

/// Warns if the command ended within its warm-up, which is then part of the measured window.
fn within_ramp(record: &Record, stage: &RunContext, (from_ns, to_ns): (u64, u64)) -> Option<String> {
    let ran_s = to_ns.saturating_sub(from_ns) as f64 / 1e9;
    (record.window_ns.is_none() && stage.ramp_s > 0.0 && ran_s <= stage.ramp_s).then(|| {
        format!(
            "the command ended after {ran_s:.2} s, within its warm-up of {} s: it was measured as a whole",
            stage.ramp_s
        )
    })
}

/// Marks phases, for charts over time.
fn mark_phases(recording: &mut Recording, (from_ns, to_ns): (u64, u64), window: Window) {
    let phases = [("start", from_ns), ("measure", window.from_ns), ("measured", window.to_ns), ("end", to_ns)];
    recording.markers.extend(phases.map(|(name, at_ns)| Marker { at_ns, name: name.into() }));
    recording.markers.sort_by_key(|marker| marker.at_ns);
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotlight_workloads::Target;

    fn stage(ramp_s: f64, duration_s: f64) -> RunContext {
        RunContext { scratch: "/tmp".into(), target: Target::None, ramp_s, duration_s, seed: 1 }
    }

    fn window_ms(window_ns: Option<(u64, u64)>, stage: &RunContext) -> (u64, u64) {
        const S: u64 = 1_000_000_000;
        let record = Record { window_ns, ..Record::default() };
        let window = window(&record, stage, (100 * S, 110 * S));
        ((window.from_ns - 100 * S) / 1_000_000, (window.to_ns - 100 * S) / 1_000_000)
    }

    #[test]
    fn the_window_is_of_the_tool_and_within_the_command() {
        let s = |seconds: u64| seconds * 1_000_000_000;
        assert_eq!(window_ms(Some((s(2), s(7))), &stage(1.0, 3.0)), (2_000, 7_000));
        assert_eq!(window_ms(Some((s(2), s(17))), &stage(1.0, 3.0)), (2_000, 10_000));
        assert_eq!(window_ms(None, &stage(1.0, 3.0)), (1_000, 4_000));
        assert_eq!(window_ms(None, &stage(1.0, 30.0)), (1_000, 10_000));
        assert_eq!(window_ms(None, &stage(1.5, 0.0)), (1_500, 10_000));
        assert_eq!(window_ms(None, &stage(20.0, 5.0)), (0, 10_000));
    }

    #[test]
    fn a_command_that_ends_within_its_warm_up_gives_a_warning() {
        let warning = |ramp_s, window_ns| {
            let record = Record { window_ns, ..Record::default() };
            within_ramp(&record, &stage(ramp_s, 5.0), (0, 1_500_000_000))
        };
        assert!(warning(2.0, None).unwrap().contains("after 1.50 s, within its warm-up of 2 s"));
        assert_eq!([warning(1.0, None), warning(0.0, None), warning(2.0, Some((0, 1)))], [None, None, None]);
    }
}
