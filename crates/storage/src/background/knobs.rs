//! Knobs and readings of background work: rates and backlog; and the task that logs findings.
//!
//! Both classes are offered or none, so that the caps of namespaces and hosts, which change at run time, have higher
//! numbers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pilotlight_plant::{Cost, Kind, Knob, KnobId, Quantity, ReadingId, Refusal, Scope, Source, Values, Window};
use pilotlight_reactor::housekeeping::{Next, Task};
use pilotlight_reactor::{Housekeeping, Knobs, Readings, Refusals};

use super::control::{Background, CLASSES, Class, FULL_PPM};

/// Estimated costs: time of the main core to set a rate (an atomic store), and delay until it takes effect (the current
/// background I/O, or the sleep of an I/O thread).
const COSTS: (Cost, Cost) = (Cost::Assumed(50), Cost::Assumed(1_000_000_000));
/// Window of the backlog reading.
const WINDOW: Duration = Duration::from_millis(500);
/// Delay from the end of a window to its value.
const LAG: Cost = Cost::Assumed(1_000_000);

fn scope_of(class: Class) -> Scope {
    Scope::Background(class as u16)
}

/// The knobs of the machine, if any, and the rates of background work.
pub struct BackgroundKnobs {
    machine: Option<Arc<dyn Knobs>>,
    /// Number of the machine's knobs.
    first: usize,
    background: Arc<Background>,
}

impl BackgroundKnobs {
    /// Whether there is background work when the server starts.
    pub fn are_offered(background: &Background) -> bool {
        CLASSES.into_iter().any(|class| background.has(class))
    }

    /// Adds the rates to the knobs of the machine.
    pub fn new(machine: Option<Arc<dyn Knobs>>, background: Arc<Background>) -> Self {
        let first = machine.as_ref().map_or(0, |machine| machine.knobs().len());
        Self { machine, first, background }
    }
}

fn knob(class: Class) -> Knob {
    let values = Values::Range { min: 0, max: FULL_PPM, step: 1 };
    Knob { scope: scope_of(class), kind: Kind::RatePpm, values, initial: FULL_PPM, caller: COSTS.0, effect: COSTS.1 }
}

impl Knobs for BackgroundKnobs {
    fn knobs(&self) -> Vec<Knob> {
        let machine = self.machine.as_ref().map(|machine| machine.knobs()).unwrap_or_default();
        machine.into_iter().chain(CLASSES.map(knob)).collect()
    }

    fn drives(&self) -> Vec<(u32, u16)> {
        self.machine.as_ref().map(|machine| machine.drives()).unwrap_or_default()
    }

    fn drive_of(&self, path: &std::path::Path) -> Option<u16> {
        self.machine.as_ref()?.drive_of(path)
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
        self.background.set_ppm(*CLASSES.get(at).ok_or(Refusal::Unknown)?, value);
        Ok(())
    }

    fn restore(&self) {
        CLASSES.into_iter().for_each(|class| self.background.set_ppm(class, FULL_PPM));
        if let Some(machine) = &self.machine {
            machine.restore();
        }
    }
}

impl fmt::Debug for BackgroundKnobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackgroundKnobs").field("machine", &self.machine).finish_non_exhaustive()
    }
}

/// The readings of the machine, if any, and the backlog.
pub struct BackgroundReadings {
    machine: Option<Arc<dyn Readings>>,
    /// Number of the machine's sources.
    first: usize,
    background: Arc<Background>,
}

impl BackgroundReadings {
    /// Adds the backlog to the readings of the machine.
    pub fn new(machine: Option<Arc<dyn Readings>>, background: Arc<Background>) -> Self {
        let first = machine.as_ref().map_or(0, |machine| machine.sources().len());
        Self { machine, first, background }
    }
}

impl Readings for BackgroundReadings {
    fn sources(&self) -> Vec<Source> {
        let machine = self.machine.as_ref().map(|machine| machine.sources()).unwrap_or_default();
        let window_ns = WINDOW.as_nanos() as u64;
        let source = |class| Source { scope: scope_of(class), quantity: Quantity::BacklogBytes, window_ns, lag: LAG };
        machine.into_iter().chain(CLASSES.map(source)).collect()
    }

    fn want(&self, wanted: &[ReadingId]) {
        if let Some(machine) = &self.machine {
            machine.want(wanted);
        }
        let own = self.first..self.first + CLASSES.len();
        self.background.want_backlog(wanted.iter().any(|id| own.contains(&id.index())));
    }

    fn last(&self, id: ReadingId) -> Option<Window> {
        let Some(at) = id.index().checked_sub(self.first) else { return self.machine.as_ref()?.last(id) };
        let (bytes, ended_ns) = self.background.backlog(*CLASSES.get(at)?)?;
        Some(Window { ended_ns, value: Some(bytes) })
    }
}

impl fmt::Debug for BackgroundReadings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackgroundReadings").field("machine", &self.machine).finish_non_exhaustive()
    }
}

/// Adds the task that logs findings, and computes the backlog while a policy uses it.
pub fn housekeep(background: &Arc<Background>, housekeeping: &Housekeeping) -> Task {
    let theirs = Arc::clone(background);
    housekeeping.add("background", &background.housekeeping, move |now_ns| {
        theirs.log();
        if !theirs.is_backlog_wanted() {
            return Next::Woken;
        }
        theirs.compute_backlog(now_ns);
        Next::At(now_ns + WINDOW.as_nanos() as u64)
    })
}
