//! Setting how fast cores run: what the director needs from whoever can.

use std::fmt::Debug;
use std::io;

use pilotlight_plant::{CoreId, FrequencyRange};

/// The frequencies of this runtime's cores. Called from the main core, between two rounds: it is to be quick.
pub trait Frequencies: Debug + Send + Sync {
    /// What a core can be set to, and what that costs.
    fn range(&self) -> FrequencyRange;

    /// Lets a core run at `khz`, or at the nearest that it has.
    ///
    /// # Errors
    /// If the system refuses.
    fn set(&self, core: CoreId, khz: u32) -> io::Result<()>;

    /// Puts everything back as it was found; the next [`Frequencies::set`] begins anew.
    fn restore(&self);
}
