//! The caps as knobs of a policy, beside those of the machine.
//!
//! The machine's knobs come first: their number never changes. Caps die with the server, so that no journal is needed.

use std::fmt;
use std::sync::Arc;

use pilotlight_plant::{Cost, Kind, Knob, KnobId, Refusal, Scope, Values};
use pilotlight_reactor::{Knobs, Refusals, clock};

use super::{CAPS, Place, Setter};
use crate::server::Shared;

/// Time of the main core for setting a cap, and until all I/O threads follow it: an estimate, a few atomic instructions and
/// [`super::RETRY_NS`].
const COSTS: (Cost, Cost) = (Cost::Assumed(100), Cost::Assumed(super::RETRY_NS));

/// The knobs of a machine, if it has any, and a server's caps.
pub struct CapKnobs {
    machine: Option<Arc<dyn Knobs>>,
    /// Number of the machine's knobs.
    first: usize,
    shared: Arc<Shared>,
}

impl CapKnobs {
    /// Puts the caps beside the knobs of a machine.
    pub(crate) fn new(machine: Option<Arc<dyn Knobs>>, shared: Arc<Shared>) -> Self {
        let first = machine.as_ref().map_or(0, |machine| machine.knobs().len());
        Self { machine, first, shared }
    }

    /// Namespace and drive.
    fn drive(&self, place: &Place) -> Option<(u32, u16)> {
        let (Scope::Namespace(namespace), Some(path), false) = (place.scope, &place.path, place.limit.is_retired())
        else {
            return None;
        };
        let find = || self.machine.as_ref()?.drive_of(path);
        place.drive.get_or_init(find).map(|drive| (namespace, drive))
    }

    fn set_cap(&self, place: &Place, value: Option<u64>) {
        let value = value.filter(|&value| value < found(place));
        self.shared.caps.set(&place.limit, Setter::Policy, value, clock::now_ns());
    }
}

/// Without the policy's cap; set to this or more there is none.
fn found(place: &Place) -> u64 {
    place.limit.cap_of(Setter::Operator).unwrap_or(*CAPS.end())
}

/// A cap as a knob; without values once its namespace is gone.
fn knob(place: &Place) -> Knob {
    let values = if place.limit.is_retired() {
        Values::List(Vec::new())
    } else {
        Values::Range { min: *CAPS.start(), max: *CAPS.end(), step: 1 }
    };
    Knob { scope: place.scope, kind: Kind::BytesPerS, values, initial: found(place), caller: COSTS.0, effect: COSTS.1 }
}

impl Knobs for CapKnobs {
    fn knobs(&self) -> Vec<Knob> {
        let machine = self.machine.as_ref().map(|machine| machine.knobs()).unwrap_or_default();
        machine.into_iter().chain(self.shared.caps.places().map(knob)).collect()
    }

    fn drives(&self) -> Vec<(u32, u16)> {
        self.shared.caps.places().filter_map(|place| self.drive(place)).collect()
    }

    fn connect(&self, refusals: Refusals, workers: &[u32]) {
        if let Some(machine) = &self.machine {
            machine.connect(refusals, workers);
        }
    }

    fn set(&self, knob: KnobId, value: u64) -> Result<(), Refusal> {
        let Some(at) = knob.index().checked_sub(self.first) else {
            return self.machine.as_ref().ok_or(Refusal::Unknown)?.set(knob, value);
        };
        let place = self.shared.caps.place(at).filter(|place| !place.limit.is_retired());
        self.set_cap(place.ok_or(Refusal::Unknown)?, Some(value));
        Ok(())
    }

    fn restore(&self) {
        let set = |place: &&Place| place.limit.cap_of(Setter::Policy).is_some();
        self.shared.caps.places().filter(set).for_each(|place| self.set_cap(place, None));
        if let Some(machine) = &self.machine {
            machine.restore();
        }
    }
}

impl fmt::Debug for CapKnobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CapKnobs").field("machine", &self.machine).finish_non_exhaustive()
    }
}
