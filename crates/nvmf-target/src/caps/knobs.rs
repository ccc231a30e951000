//! Caps as knobs, added to those of the machine.
//!
//! The machine's knobs come first: their number never changes. Caps end with the server, so no journal is needed.

use std::fmt;
use std::sync::Arc;

use pilotlight_plant::{Cost, Kind, Knob, KnobId, Refusal, Scope, Values};
use pilotlight_reactor::{Knobs, Refusals, clock};

use super::{CAPS, Caps, Entry, Setter};

/// Estimated costs: time of the main core to set a cap (a few atomic instructions), and delay until all I/O threads follow.
const COSTS: (Cost, Cost) = (Cost::Assumed(100), Cost::Assumed(super::RETRY_NS));

/// The knobs of the machine, if any, and the server's caps.
pub struct CapKnobs {
    machine: Option<Arc<dyn Knobs>>,
    /// Number of the machine's knobs.
    first: usize,
    caps: Arc<Caps>,
}

impl CapKnobs {
    /// Adds the caps to the knobs of the machine.
    pub(crate) fn new(machine: Option<Arc<dyn Knobs>>, caps: Arc<Caps>) -> Self {
        let first = machine.as_ref().map_or(0, |machine| machine.knobs().len());
        Self { machine, first, caps }
    }

    /// A namespace and its drive.
    fn drive(&self, entry: &Entry) -> Option<(u32, u16)> {
        let (Scope::Namespace(namespace), Some(path), false) = (entry.scope, &entry.path, entry.limit.is_retired())
        else {
            return None;
        };
        let find = || self.machine.as_ref()?.drive_of(path);
        entry.drive.get_or_init(find).map(|drive| (namespace, drive))
    }

    fn set_cap(&self, entry: &Entry, value: Option<u64>) {
        let value = value.filter(|&value| value < found(entry));
        self.caps.set(&entry.limit, Setter::Policy, value, clock::now_ns());
    }
}

/// The value without the policy's cap; setting this or more removes the policy's cap.
fn found(entry: &Entry) -> u64 {
    entry.limit.cap_of(Setter::Operator).unwrap_or(*CAPS.end())
}

/// The knob of a cap; without values once its namespace has been removed.
fn knob(entry: &Entry) -> Knob {
    let values = if entry.limit.is_retired() {
        Values::List(Vec::new())
    } else {
        Values::Range { min: *CAPS.start(), max: *CAPS.end(), step: 1 }
    };
    Knob { scope: entry.scope, kind: Kind::BytesPerS, values, initial: found(entry), caller: COSTS.0, effect: COSTS.1 }
}

impl Knobs for CapKnobs {
    fn knobs(&self) -> Vec<Knob> {
        let machine = self.machine.as_ref().map(|machine| machine.knobs()).unwrap_or_default();
        machine.into_iter().chain(self.caps.list(knob)).collect()
    }

    fn drives(&self) -> Vec<(u32, u16)> {
        self.caps.entries().filter_map(|entry| self.drive(&entry)).collect()
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
        let entry = self.caps.entry(at).filter(|entry| !entry.limit.is_retired());
        self.set_cap(&*entry.ok_or(Refusal::Unknown)?, Some(value));
        Ok(())
    }

    fn restore(&self) {
        let set = |entry: &Arc<Entry>| entry.limit.cap_of(Setter::Policy).is_some();
        self.caps.entries().filter(set).for_each(|entry| self.set_cap(&entry, None));
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
