//! An NVMe/TCP host: load generation and verification.
//!
//! Polling, single-threaded, non-blocking: a connection belongs to the thread that polls it, and there is no runtime
//! underneath. What can be a pure function of bytes, times and seeds is one.
//!
//! | layer | modules | what it does |
//! |---|---|---|
//! | bytes | [`receiver`], `transmit`, `answer` | PDUs out of a stream, headers and data into one; how R2Ts are answered |
//! | queue pair | [`Queue`] | commands and their slots; checks all that a target answers; no socket, no clock |
//! | socket | [`Connection`] | handshake, one `recv` and one `sendmsg` a batch; commands that one waits for |
//! | association | [`Controller`] | Connect, properties, Identify, features, logs, keep-alive, shutdown, discovery |
//! | verification | [`pattern`], [`ledger`] | blocks that say what they are; what each block may hold |
//! | load | [`load`], [`schedule`] | what to send and when, what came of it |
//! | tests and yardsticks | [`raw`], [`bare`], [`Narrow`] | a peer without manners; a peer without NVMe; a bad way to the target |
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
mod narrow;
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
pub use narrow::Narrow;
pub use queue::{Buffers, Completed, Queue, Terms, Transfer};
