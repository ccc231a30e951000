//! Knobs set by the current policy.

use std::sync::Arc;

use pilotlight_plant::{Command, Knob, KnobId, Refusal};

use crate::knobs::Knobs;

/// Knobs set by the current policy.
pub(super) struct Settings {
    knobs: Option<Arc<dyn Knobs>>,
    /// The last requested value and the nearest value of the knob, by [`KnobId`].
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

    /// The refused command; `None` if the current policy has not sent it, or has sent another since.
    pub(super) fn refused(&self, id: KnobId, nearest: u64) -> Option<Command> {
        let (value, _) = self.last.get(id.index()).copied().flatten().filter(|last| last.1 == nearest)?;
        Some(Command::Set { knob: id, value })
    }

    /// Restores all knobs.
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
