//! What to do: a policy a file, each a pure decision that knows nothing of the machine.

pub mod fixed;

pub use fixed::Static;
