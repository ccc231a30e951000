//! What to do: a policy a file, each a pure decision that knows nothing of the machine.
//!
//! [`fixed`] and [`interrupt`] are the two ends between which the others move; [`sandman`] is a folder. [`registry`] finds a
//! policy by the name that an operator writes, [`parameter`] reads what is set on it.

pub mod fixed;
pub mod interrupt;
pub mod parameter;
pub mod registry;
pub mod sandman;
mod spread;

pub use fixed::Static;
pub use interrupt::Interrupt;
pub use parameter::{ParameterError, Setting};
pub use registry::{BuildError, Entry, NAMES, POLICIES, build, by_name, parameters};
pub use sandman::Sandman;
