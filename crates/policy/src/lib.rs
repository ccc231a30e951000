//! What to do: a policy a file, each a pure decision that knows nothing of the machine.

pub mod fixed;
pub mod interrupt;
mod spread;

pub use fixed::Static;
pub use interrupt::Interrupt;
