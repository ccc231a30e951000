//! The frequency of a core, as a knob that may be refused.

use pilotlight_plant::{Capabilities, Command, CoreId, Kind, KnobId, NEVER, Refusal, Scope, Values};

use crate::pause::Pause;

/// The frequency of a core.
#[derive(Debug)]
pub(crate) struct Clock {
    pub(crate) knob: KnobId,
    pub(crate) values: Values,
    pub(crate) lowest_khz: u64,
    pub(crate) highest_khz: u64,
    /// What was chosen last, and whether the core was told and the plant took it.
    pub(crate) khz: u64,
    taken: bool,
    /// Since the plant has refused it.
    pause: Pause,
}

impl Clock {
    /// That of a core, not told anything yet; `None` if it cannot be set.
    pub(crate) fn of(core: CoreId, capabilities: &Capabilities) -> Option<Self> {
        let (id, knob) = capabilities.find_knob(Scope::Core(core), Kind::FrequencyKhz)?;
        let (lowest_khz, highest_khz) = (knob.values.lowest()?, knob.values.highest()?);
        let (values, pause) = (knob.values.clone(), Pause::default());
        Some(Self { knob: id, values, lowest_khz, highest_khz, khz: highest_khz, taken: false, pause })
    }

    /// While it is left alone the frequency is chosen all the same: a core that refuses must not keep a quiet server from resting.
    pub(crate) fn set(&mut self, now_ns: u64, khz: u64, out: &mut Vec<Command>) {
        let is_told = self.khz == khz && self.taken;
        self.khz = khz;
        if !is_told && self.pause.is_over(now_ns) {
            self.taken = true;
            out.push(Command::Set { knob: self.knob, value: khz });
        }
    }

    /// Whether it cannot be set at all.
    pub(crate) fn is_refused(&self) -> bool {
        self.pause.until_ns() == NEVER
    }

    pub(crate) fn is_lowest(&self) -> bool {
        self.khz == self.lowest_khz
    }

    /// What the core runs at is not known any more.
    pub(crate) fn refused(&mut self, now_ns: u64, refusal: Refusal) {
        self.taken = false;
        self.pause.refused(now_ns, refusal);
    }
}
