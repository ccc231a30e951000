//! What to do: a policy a file, each a pure decision that knows nothing of the machine.
//!
//! [`fixed`] and [`interrupt`] are the two ends between which the others move; [`sandman`] is a folder. [`registry`] finds a
//! policy by the name that an operator writes, [`parameter`] reads what is set on it. What several share: `load` (as SPDK's
//! schedulers see it), [`budget`] (power held with one knob), `gap` (between requests), `grid` (when intervals end), [`sleep`] (in what a core sleeps), `spread` (threads over all cores), `clock`, `switches` and `drives` (knobs).

pub mod budget;
mod clock;
pub mod cpu_bandwidth;
pub mod cpu_jailing;
mod drives;
pub mod dynamic;
pub mod fixed;
mod gap;
pub mod governor;
mod grid;
pub mod hybrid_poll;
pub mod interrupt;
mod limit;
mod load;
pub mod native;
pub mod ondemand;
pub mod pacer;
pub mod parameter;
pub mod pass;
mod pause;
pub mod rapl_only;
pub mod registry;
pub mod sandman;
pub mod sleep;
mod spread;
pub mod ssd_bandwidth;
mod switches;
pub mod thunderbolt;

pub use dynamic::Dynamic;
pub use fixed::Static;
pub use governor::Governor;
pub use hybrid_poll::HybridPoll;
pub use interrupt::Interrupt;
pub use pacer::Pacer;
pub use parameter::{ParameterError, Setting};
pub use registry::{BuildError, Entry, NAMES, POLICIES, build, by_name, parameters};
pub use sandman::Sandman;
