//! What an operator asks of a policy.

use crate::knob::Of;

/// What an operator can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// [`Goals::budget_uw`].
    Budget,
    /// [`Goals::tolerance_ppm`].
    Tolerance,
    /// [`Goals::priorities`].
    Priorities,
}

/// What holds until it is changed, at any moment, without another policy ([`crate::Policy::on_goals`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Goals {
    /// Most power that may be drawn, in microwatts; `None` for no limit.
    pub budget_uw: Option<u64>,
    /// How much longer requests may take than without saving, as a mean, in millionths; `None` if it does not matter.
    pub tolerance_ppm: Option<u32>,
    /// What matters more than the rest: the higher the number, the later it is throttled. What is not named has 0.
    pub priorities: Vec<(Of, u8)>,
}

impl Goals {
    /// The priority of a host, a namespace or a class of background work.
    #[must_use]
    pub fn priority(&self, of: Of) -> u8 {
        self.priorities.iter().find(|(named, _)| *named == of).map_or(0, |&(_, priority)| priority)
    }
}
