//! Steps of a run other than measurements: preparation, background programs, waits and cleanup.

use std::time::Duration;

use pilotlight_sensors::clock::now_ns;
use pilotlight_workloads::Step;

use super::process::{self, Running, StepError};
use super::{Event, RunError, Runner, bind, machine};
use crate::experiment::schema::DEFAULT_FILE;
use crate::plan::Key;

impl Runner<'_> {
    pub(super) fn prepare(&mut self) -> Result<(), RunError> {
        let stage = self.stage(Key { point: 0, repeat: 0 });
        self.prepared = true;
        for step in self.loaded.workload.prepare(&stage)? {
            if !step.background {
                self.settling.disturb();
            }
            let running = self.step(&step)?;
            self.background.extend(running);
        }
        Ok(())
    }

    pub(super) fn bound(&self, step: Step) -> Step {
        machine::in_cgroup(bind::bound(step, &self.loaded.experiment.bind), self.changes.cgroup())
    }

    /// Runs a step. A background program is returned once it is ready.
    pub(super) fn step(&mut self, step: &Step) -> Result<Option<Running>, RunError> {
        (self.watch)(Event::Step(if step.why.is_empty() { process::title(step) } else { step.why.clone() }));
        let step = self.bound(step.clone());
        let mut running = Running::start(&step, &self.scratch)?;
        if step.background {
            self.until_ready(&step, running).map(Some)
        } else {
            let limit = limit(&step);
            running.wait(|| self.stop.signal().map(RunError::Stopped).or_else(|| limit(&process::title(&step))))?;
            process::expect_success(&step, &running.outcome())?;
            Ok(None)
        }
    }

    fn until_ready(&self, step: &Step, mut running: Running) -> Result<Running, RunError> {
        let Some(ready) = &step.ready else { return Ok(running) };
        let limit = limit(&Step { limit_s: if step.limit_s > 0.0 { step.limit_s } else { 60.0 }, ..step.clone() });
        while !ready.exists() {
            if running.has_ended() {
                let outcome = running.outcome();
                process::expect_success(step, &outcome)?;
                let title = process::title(step);
                let status = format!("exited before it created {}", ready.display());
                return Err(StepError::Failed { title, status, output: String::new() }.into());
            }
            if let Some(error) = self.stop.signal().map(RunError::Stopped).or_else(|| limit(&process::title(step))) {
                running.end();
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(running)
    }

    /// Waits, or fails on a signal.
    pub(super) fn wait(&self, ns: u64) -> Result<(), RunError> {
        let until_ns = now_ns() + ns;
        loop {
            if let Some(signal) = self.stop.signal() {
                return Err(RunError::Stopped(signal));
            }
            let left_ns = until_ns.saturating_sub(now_ns());
            if left_ns == 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_nanos(left_ns.min(50_000_000)));
        }
    }

    /// Ends background programs, cleans up and restores the machine.
    pub(super) fn clean_up(&mut self) -> Result<(), RunError> {
        let mut events = Vec::new();
        let left = self.restore(&mut |event| events.push(event));
        events.into_iter().for_each(|event| (self.watch)(event));
        left
    }

    pub(super) fn restore(&mut self, watch: &mut dyn FnMut(Event)) -> Result<(), RunError> {
        if std::mem::take(&mut self.prepared) {
            let steps = self.loaded.workload.clean_up(&self.stage(Key { point: 0, repeat: 0 }));
            for step in steps {
                let done = Running::start(&step, &self.scratch).and_then(|mut running| {
                    let limit =
                        limit(&Step { limit_s: if step.limit_s > 0.0 { step.limit_s } else { 60.0 }, ..step.clone() });
                    let _ = running.wait(|| limit(""));
                    process::expect_success(&step, &running.outcome())
                });
                if let Err(error) = done {
                    watch(Event::Step(format!("cleaning up: {error}")));
                }
            }
        }
        while let Some(mut running) = self.background.pop() {
            running.end();
        }
        if self.loaded.experiment.target.is_default() {
            let _ = std::fs::remove_file(self.settings.folder.root().join(DEFAULT_FILE));
        }
        let _ = std::fs::remove_dir_all(&self.scratch);
        self.changes.restore()?;
        Ok(())
    }
}

/// Checks the time limit of a step.
pub(super) fn limit(step: &Step) -> impl Fn(&str) -> Option<RunError> + use<> {
    let (limit_s, began_ns) = (step.limit_s, now_ns());
    move |title: &str| {
        let elapsed_s = now_ns().saturating_sub(began_ns) as f64 / 1e9;
        (limit_s > 0.0 && elapsed_s > limit_s).then(|| {
            let status = format!("was ended after {limit_s} s");
            StepError::Failed { title: title.to_owned(), status, output: "timeout".to_owned() }.into()
        })
    }
}
