//! How a core sleeps, as the operator sets it: wait instruction, kernel, or the deepest state within a wake-up goal.

use pilotlight_plant::{Capabilities, Depth, SleepGoal};

/// What wakes a sleeping core (SANDMAN section 4.3, Figure 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// The deepest state within the wake-up goal.
    Goal,
    /// A store to a monitored address (wait instruction; SANDMAN's mechanism).
    Monitor,
    /// The kernel (SPDK's interrupt mode).
    Software,
}

impl Sleep {
    /// The name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Goal => "goal",
            Self::Monitor => "monitor",
            Self::Software => "software",
        }
    }

    /// Parses a name.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        [Self::Goal, Self::Monitor, Self::Software].into_iter().find(|sleep| sleep.name() == text)
    }

    /// The sleep goal that selects it on this plant; `None` if the plant cannot sleep like this.
    pub(crate) fn goal(self, capabilities: &Capabilities, wake_within_ns: u64) -> Option<SleepGoal> {
        let of = |depth: Depth| {
            let sleep = capabilities.sleeps.iter().find(|sleep| sleep.depth == depth)?;
            let goal = SleepGoal { wake_within_ns: sleep.wake.ns() };
            capabilities.sleep_for(goal).filter(|taken| taken.depth == depth).map(|_| goal)
        };
        match self {
            Self::Goal => (!capabilities.sleeps.is_empty()).then_some(SleepGoal { wake_within_ns }),
            Self::Monitor => of(Depth::MonitorWait),
            Self::Software => of(Depth::SoftwareWait),
        }
    }

    /// The capability that a plant without it lacks.
    pub(crate) fn requirement(self) -> &'static str {
        match self {
            Self::Goal => "a core that can sleep by command",
            Self::Monitor => "a core that can sleep in a wait instruction (sleep = \"monitor\")",
            Self::Software => "a core that can sleep in the kernel (sleep = \"software\")",
        }
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::{Cost, SleepCost};

    use super::*;

    #[test]
    fn each_kind_of_sleep_maps_to_a_goal_that_selects_it() {
        let cost = |depth, ns| SleepCost { depth, waker: Cost::Measured(0), wake: Cost::Measured(ns) };
        let sleeps = vec![cost(Depth::MonitorWait, 3_000), cost(Depth::SoftwareWait, 27_000)];
        let plant = Capabilities { sleeps, ..Capabilities::default() };
        let depth = |sleep: Sleep| plant.sleep_for(sleep.goal(&plant, 5_000)?).map(|taken| taken.depth);
        assert_eq!(depth(Sleep::Goal), Some(Depth::MonitorWait));
        assert_eq!(depth(Sleep::Monitor), Some(Depth::MonitorWait));
        assert_eq!(depth(Sleep::Software), Some(Depth::SoftwareWait));
        let plant = Capabilities { sleeps: vec![cost(Depth::SoftwareWait, 27_000)], ..Capabilities::default() };
        assert_eq!(Sleep::Monitor.goal(&plant, 0), None);
        assert_eq!(Sleep::Goal.goal(&plant, 0), Some(SleepGoal::SHALLOWEST));
    }
}
