//! The machine's knobs, which the helper process sets for the server.

use pilotlight_plant::{Knob, KnobId, Refusal};
use pilotlight_reactor::Machine;

use super::client::{Helper, helper};
use crate::config::Loaded;
use crate::serve::knobs::{KnobAccess, Settings, found};

/// A machine whose knobs the helper sets.
struct RemoteMachine {
    helper: &'static Helper,
    settings: Settings,
}

/// The machine of the helper, where there is a helper that has knobs.
pub(crate) fn machine(settings: &Settings) -> Option<Box<dyn Machine>> {
    let helper = helper().filter(|helper| !helper.knobs.is_empty())?;
    Some(Box::new(RemoteMachine { helper, settings: settings.clone() }))
}

/// The knobs that the helper has found.
pub(super) fn find_knobs(loaded: &Loaded) -> impl FnOnce() -> Vec<Knob> {
    let access = KnobAccess::from_operation(&loaded.operation);
    move || found(&loaded.config, &loaded.operation.reactors.cores, &access)
}

impl Machine for RemoteMachine {
    fn knobs(&self) -> Vec<Knob> {
        self.helper.knobs.clone()
    }

    fn set_workers(&mut self, workers: &[u32]) {
        self.helper.set_workers(workers);
    }

    fn set(&mut self, knob: KnobId, value: Option<u64>) -> Result<(), Refusal> {
        self.helper.set(knob, value)?;
        self.settings.note(knob, self.helper.knobs.get(knob.index()).cloned().zip(value));
        Ok(())
    }
}
