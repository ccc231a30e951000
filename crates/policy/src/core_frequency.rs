//! The frequency knob of a core, with handling of refusals.

use pilotlight_plant::{Capabilities, Command, CoreId, Kind, KnobId, NEVER, Refusal, Scope, Values};

use crate::backoff::Backoff;

/// The frequency knob of a core.
#[derive(Debug)]
pub(crate) struct CoreFrequency {
    pub(crate) knob: KnobId,
    pub(crate) values: Values,
    pub(crate) lowest_khz: u64,
    pub(crate) highest_khz: u64,
    /// The last frequency chosen, and whether it was commanded and not refused.
    pub(crate) khz: u64,
    is_commanded: bool,
    /// Delay after a refusal.
    backoff: Backoff,
}

impl CoreFrequency {
    /// `None` if the frequency of the core cannot be set.
    pub(crate) fn find(core: CoreId, capabilities: &Capabilities) -> Option<Self> {
        let (id, knob) = capabilities.find_knob(Scope::Core(core), Kind::FrequencyKhz)?;
        let (lowest_khz, highest_khz) = (knob.values.lowest()?, knob.values.highest()?);
        let (values, backoff) = (knob.values.clone(), Backoff::default());
        Some(Self { knob: id, values, lowest_khz, highest_khz, khz: highest_khz, is_commanded: false, backoff })
    }

    /// During a backoff the frequency is recorded but not commanded: a core that refuses must not keep an idle server awake.
    pub(crate) fn set(&mut self, now_ns: u64, khz: u64, out: &mut Vec<Command>) {
        let is_current = self.khz == khz && self.is_commanded;
        self.khz = khz;
        if !is_current && self.backoff.is_over(now_ns) {
            self.is_commanded = true;
            out.push(Command::Set { knob: self.knob, value: khz });
        }
    }

    /// Whether the plant refuses it permanently.
    pub(crate) fn is_refused(&self) -> bool {
        self.backoff.until_ns() == NEVER
    }

    pub(crate) fn is_lowest(&self) -> bool {
        self.khz == self.lowest_khz
    }

    /// The frequency of the core is no longer known.
    pub(crate) fn on_refused(&mut self, now_ns: u64, refusal: Refusal) {
        self.is_commanded = false;
        self.backoff.on_refused(now_ns, refusal);
    }
}
