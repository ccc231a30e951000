//! The steps of a plan: settings, waits, idle baselines and measurements, round by round.
//!
//! The runner decides step by step, because points fail, rules stop early and runs are resumed; it uses the same [`Settling`]. Without failures
//! and rules it runs exactly these steps (`crates/lab/tests/run.rs`).

use super::{Key, Plan, machine_knobs};
use pilotlight_workloads::Point;

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Precondition the device.
    Precondition,
    /// Apply the settings of the machine for a point, by its index.
    Set(usize),
    /// Prepare the workload, for example write its file.
    Prepare,
    /// Wait for effects of earlier steps to end.
    Settle,
    /// Measure the idle machine in a round, under a setting of the machine.
    Baseline(u32, Point),
    /// Measure a point.
    Measure(Key),
}

/// Whether a wait is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settling {
    disturbed: bool,
    loaded: bool,
}

impl Settling {
    /// Notes that data was written or a setting changed.
    pub const fn disturb(&mut self) {
        self.disturbed = true;
    }

    /// Notes that a workload ran.
    pub const fn load(&mut self) {
        self.loaded = true;
    }

    /// Whether to wait now: after a disturbance, and after a workload before an idle baseline. Resets the state.
    pub const fn is_due(&mut self, baseline: bool) -> bool {
        let due = self.disturbed || (baseline && self.loaded);
        self.disturbed = false;
        if baseline {
            self.loaded = false;
        }
        due
    }
}

impl Plan {
    /// The steps of a number of complete rounds.
    #[must_use]
    pub fn steps(&self, rounds: u32) -> Vec<Step> {
        let (mut steps, mut settling, mut set, mut prepared) = (Vec::new(), Settling::default(), None, !self.prepares);
        if self.preconditions {
            steps.push(Step::Precondition);
            settling.disturb();
        }
        for round in 0..rounds {
            let mut idle: Vec<Point> = Vec::new();
            for point in self.round(round, |_| true) {
                let wanted = self.machine.get(point).copied().flatten();
                if wanted != set {
                    steps.push(Step::Set(point));
                    settling.disturb();
                    set = wanted;
                }
                if !std::mem::replace(&mut prepared, true) {
                    steps.push(Step::Prepare);
                    settling.disturb();
                }
                let under = machine_knobs(&self.points[point]);
                let baseline = self.baseline_s > 0.0 && !idle.contains(&under);
                if settling.is_due(baseline) && self.settle_s > 0.0 {
                    steps.push(Step::Settle);
                }
                if baseline {
                    steps.push(Step::Baseline(round, under.clone()));
                    idle.push(under);
                }
                steps.push(Step::Measure(Key { point, repeat: round }));
                settling.load();
            }
        }
        steps
    }

    /// The time of waits and idle baselines in seconds, for each measurement that they precede.
    #[must_use]
    pub fn waits(&self, rounds: u32) -> Vec<(Key, f64)> {
        let (mut waits, mut before_s) = (Vec::new(), 0.0);
        for step in self.steps(rounds) {
            match step {
                Step::Settle => before_s += self.settle_s,
                Step::Baseline(..) => before_s += self.baseline_s,
                Step::Measure(key) => waits.push((key, std::mem::take(&mut before_s))),
                Step::Precondition | Step::Set(_) | Step::Prepare => {}
            }
        }
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(text: &str) -> Plan {
        let table = pilotlight_input::file::parse("e.toml", text).unwrap();
        let merged = pilotlight_input::Merged::single("e.toml", table);
        Plan::new(&crate::experiment::from_merged(merged, &crate::experiment::Overrides::default()).unwrap())
    }

    fn summary(plan: &Plan, rounds: u32) -> String {
        let word = |step: &Step| match step {
            Step::Precondition => "precondition".to_owned(),
            Step::Set(_) => "set".to_owned(),
            Step::Prepare => "prepare".to_owned(),
            Step::Settle => "settle".to_owned(),
            Step::Baseline(round, _) => format!("idle{round}"),
            Step::Measure(key) => format!("p{}r{}", key.point, key.repeat),
        };
        plan.steps(rounds).iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn by_default_each_round_begins_with_an_idle_baseline_after_settling() {
        let plan = planned("title = 't'\n[workload]\nkind = 'command'\nargv = ['true']\n");
        assert_eq!(summary(&plan, plan.repeats.0), "idle0 p0r0 settle idle1 p0r1 settle idle2 p0r2");
        assert_eq!((plan.settle_s, plan.baseline_s, plan.repeats), (5.0, 5.0, (3, 3)));
    }

    #[test]
    fn a_wait_follows_preconditioning_and_changes_of_settings() {
        let text = "title = 't'\nduration = '4s'\ntarget = { device = '/dev/x' }\nprecondition = { fill = 1 }\n\
                    idle_baseline = 'IDLE'\nparameter = [{ key = 'machine.scheduler', values = ['none', 'kyber'] }]\n\
                    [workload]\nkind = 'command'\nargv = ['true']\nprepare = [['true']]\n";
        let plan = planned(&text.replace("IDLE", "0s"));
        let first = summary(&plan, 1);
        assert!(first.starts_with("precondition set prepare settle p"), "{first}");
        assert!(first.ends_with(" set settle p0r0") || first.ends_with(" set settle p1r0"), "{first}");
        let with_idle = summary(&planned(&text.replace("IDLE", "1s")), 2);
        assert_eq!(with_idle.matches("settle idle0").count(), 2, "under each setting: {with_idle}");
        assert_eq!(with_idle.matches("settle idle1").count(), 2, "in each round: {with_idle}");
        assert_eq!(with_idle.matches("settle").count(), 4, "{with_idle}");
        assert!(!summary(&planned(&format!("settle = '0s'\n{text}").replace("IDLE", "1s")), 2).contains("settle"));
    }

    #[test]
    fn points_of_one_setting_share_the_baseline_of_the_round() {
        let text = "title = 't'\nidle_baseline = '1s'\nmachine = { scheduler = 'none' }\n\
                    [workload]\nkind = 'command'\nargv = ['true']\nknobs = { a = [1, 2, 3] }\n";
        let plan = planned(text);
        let words = summary(&plan, 2);
        assert_eq!((words.matches("idle0").count(), words.matches("idle1").count()), (1, 1), "{words}");
        assert!(words.starts_with("set settle idle0 ") && words.matches("set ").count() == 1, "{words}");
        let waits: Vec<f64> = plan.waits(2).into_iter().map(|(_, seconds)| seconds).collect();
        assert_eq!(waits, [6.0, 0.0, 0.0, 6.0, 0.0, 0.0]);
    }
}
