//! What sets the knobs of a machine, behind a trait; and how it reports what the machine refused.

use std::fmt::Debug;
use std::path::Path;

use pilotlight_plant::{Knob, KnobId, Refusal};

use crate::director::Instruction;
use crate::inbox::Sender;
use crate::reactor::Event;

/// The knobs of this runtime's machine. Called from the main core, between two rounds, so nothing here may wait unless it says so: what takes longer is
/// done by another thread, which reports refusals ([`Refusals`]).
pub trait Knobs: Debug + Send + Sync {
    /// What can be set, by [`KnobId`].
    fn knobs(&self) -> Vec<Knob>;

    /// The drive of each namespace ([`pilotlight_plant::Capabilities::drives`]).
    fn drives(&self) -> Vec<(u32, u16)> {
        Vec::new()
    }

    /// The number of the drive that holds a file, or that a device file stands for; `None` where there is none, or it is unknown. May block: not
    /// called from a reactor.
    fn drive_of(&self, _path: &Path) -> Option<u16> {
        None
    }

    /// The reactors run: where to report what the machine refuses after [`Knobs::set`] has returned, and the OS threads (`gettid`) of all
    /// reactors but the main core's. Called once, before anything is set.
    fn connect(&self, _refusals: Refusals, _workers: &[u32]) {}

    /// Sets a knob to one of its values.
    ///
    /// # Errors
    /// If it is known at once that the machine refuses.
    fn set(&self, knob: KnobId, value: u64) -> Result<(), Refusal>;

    /// Puts everything back as it was found. Settings that come later are on top of that.
    fn restore(&self);
}

/// Reports to the policy what the machine has refused.
#[derive(Clone, Debug)]
pub struct Refusals(pub(crate) Sender<Event>);

impl Refusals {
    /// `knob` could not be set to `value`, as [`Knobs::set`] was told. A policy that did not set it, or has set it to something else
    /// since, is not told. Whether there was room for the report; if not, try again later.
    #[must_use]
    pub fn report(&self, knob: KnobId, value: u64, refusal: Refusal) -> bool {
        self.0.send(Event::Instruct(Box::new(Instruction::Refused { knob, value, refusal }))).is_ok()
    }
}
