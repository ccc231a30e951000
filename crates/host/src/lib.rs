//! An NVMe/TCP host: load generation and verification.
#![forbid(unsafe_code)]

mod answer;
pub mod bare;
pub mod clock;
mod connection;
mod controller;
mod error;
mod info;
pub mod ledger;
pub mod load;
pub mod pattern;
mod queue;
pub mod raw;
pub mod receiver;
pub mod rng;
pub mod schedule;
mod transmit;
pub mod units;

pub use answer::AnswerOrder;
pub use connection::{Connection, Handshake, SCRATCH_LEN, Sizes};
pub use controller::{ConnectOptions, Controller, QueueSpec, discover};
pub use error::{HostError, Violation};
pub use info::{ControllerInfo, DiscoveryEntry, NamespaceInfo};
pub use queue::{Buffers, Completed, Queue, Terms, Transfer};
