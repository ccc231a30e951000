//! Interface to the knobs of a machine, and reports of refused settings.

use std::fmt::Debug;
use std::path::Path;

use pilotlight_plant::{Knob, KnobId, Refusal};

use crate::event::Event;
use crate::inbox::Sender;
use crate::instruction::Instruction;

/// The knobs of this runtime's machine. Called from the main core between two rounds: a method must not block unless stated. Slow settings are
/// made by another thread, which reports refusals ([`Refusals`]).
pub trait Knobs: Debug + Send + Sync {
    /// All knobs, by [`KnobId`].
    fn knobs(&self) -> Vec<Knob>;

    /// The drive of each namespace ([`pilotlight_plant::Capabilities::drives`]).
    fn drives(&self) -> Vec<(u32, u16)> {
        Vec::new()
    }

    /// The drive of a file or device file, if it is known. May block: not called from a reactor.
    fn drive_of(&self, _path: &Path) -> Option<u16> {
        None
    }

    /// Called once, before the first setting: `refusals` takes reports after [`Knobs::set`] has returned, `workers` are the OS threads
    /// (`gettid`) of all reactors but the main core's.
    fn connect(&self, _refusals: Refusals, _workers: &[u32]) {}

    /// Sets a knob to one of its values.
    ///
    /// # Errors
    /// If the machine refuses at once.
    fn set(&self, knob: KnobId, value: u64) -> Result<(), Refusal>;

    /// Restores the initial values of all knobs, before later settings.
    fn restore(&self);
}

/// Reports refused settings to the policy.
#[derive(Clone, Debug)]
pub struct Refusals(pub(crate) Sender<Event>);

impl Refusals {
    /// Reports that `knob` could not be set to `value`. Ignored if the policy has not set it, or has set another value since. False if the
    /// ring is full: try again later.
    #[must_use]
    pub fn report(&self, knob: KnobId, value: u64, refusal: Refusal) -> bool {
        self.0.send(Event::Instruct(Box::new(Instruction::Refused { knob, value, refusal }))).is_ok()
    }
}
