//! Power states of drives: the one in which each was found, or its lowest while there are no requests.
//!
//! The lowest state of a drive may be one that it works in, only slower, so it is for times without requests alone.

use pilotlight_plant::{Capabilities, Command, Kind, Knob, KnobId, Refusal};

use crate::pause::Pause;

/// The power states of all drives.
#[derive(Debug, Default)]
pub(crate) struct Drives(Vec<Drive>);

#[derive(Debug)]
struct Drive {
    knob: KnobId,
    found: u64,
    lowest: u64,
    /// What was commanded last.
    state: u64,
    pause: Pause,
}

impl Drives {
    /// Those of a plant; what was commanded before still holds.
    pub(crate) fn find(&mut self, capabilities: &Capabilities) {
        let before = std::mem::take(&mut self.0);
        let drive = |(id, knob): (KnobId, &Knob)| {
            let known = before.iter().find(|drive| drive.knob == id);
            let (state, pause) = known.map_or((knob.found, Pause::default()), |known| (known.state, known.pause));
            // The higher the number, the lower the power.
            Some(Drive { knob: id, found: knob.found, lowest: knob.values.highest()?, state, pause })
        };
        self.0 = capabilities.knobs_of(Kind::PowerState).filter_map(drive).collect();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets the lowest states, or those that were found.
    pub(crate) fn set(&mut self, now_ns: u64, is_low: bool, out: &mut Vec<Command>) {
        for drive in &mut self.0 {
            let state = if is_low { drive.lowest } else { drive.found };
            if drive.state != state && drive.pause.is_over(now_ns) {
                drive.state = state;
                out.push(Command::Set { knob: drive.knob, value: state });
            }
        }
    }

    /// Whether the knob is one of these; it is left alone for a while.
    pub(crate) fn on_refused(&mut self, now_ns: u64, (knob, value): (KnobId, u64), refusal: Refusal) -> bool {
        let Some(drive) = self.0.iter_mut().find(|drive| drive.knob == knob) else { return false };
        // It is in the other of the two.
        drive.state = if value == drive.found { drive.lowest } else { drive.found };
        drive.pause.refused(now_ns, refusal);
        true
    }
}
