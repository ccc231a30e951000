//! The knobs that the policy in charge has set: its commands, their delivery and their refusals.

use std::sync::Arc;

use pilotlight_plant::{Command, Knob, KnobId, Refusal};

use crate::knobs::Knobs;

/// The knobs that the policy in charge has set.
pub(super) struct Settings {
    knobs: Option<Arc<dyn Knobs>>,
    /// What the policy asked for last, and the knob's value nearest to it, by [`KnobId`].
    last: Vec<Option<(u64, u64)>>,
}

impl Settings {
    pub(super) fn new(knobs: Option<Arc<dyn Knobs>>) -> Self {
        Self { knobs, last: Vec::new() }
    }

    /// Sets a knob to its value nearest to `value`.
    pub(super) fn set(&mut self, all: &[Knob], id: KnobId, value: u64) -> Result<(), Refusal> {
        let (Some(knobs), Some(knob)) = (&self.knobs, all.get(id.index())) else { return Err(Refusal::Unknown) };
        let nearest = knob.values.nearest(value).ok_or(Refusal::Unknown)?;
        knobs.set(id, nearest)?;
        self.last.resize(self.last.len().max(all.len()), None);
        self.last[id.index()] = Some((value, nearest));
        Ok(())
    }

    /// The command that the machine has refused; `None` if the policy in charge has not given it, or has given another since.
    pub(super) fn refused(&self, id: KnobId, nearest: u64) -> Option<Command> {
        let (value, _) = self.last.get(id.index()).copied().flatten().filter(|last| last.1 == nearest)?;
        Some(Command::Set { knob: id, value })
    }

    /// Puts everything back.
    pub(super) fn restore(&mut self) {
        self.last.fill(None);
        if let Some(knobs) = &self.knobs {
            knobs.restore();
        }
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        self.restore();
    }
}
