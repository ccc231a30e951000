//! An NVMe/TCP host: load generation and verification.
//!
//! Polling, single-threaded and non-blocking, without an asynchronous runtime: one thread polls each connection.
//!
//! | layer | modules | purpose |
//! |---|---|---|
//! | bytes | [`receiver`], `transmit`, `outstanding` | PDUs from and to a byte stream; outstanding R2Ts |
//! | queue pair | [`Queue`] | commands and their slots; checks every PDU of a target; no socket, no clock |
//! | socket | [`Connection`] | handshake, one `recv` and one `sendmsg` a batch; synchronous commands |
//! | association | [`Controller`] | Connect, properties, Identify, features, logs, keep-alive, shutdown, discovery |
//! | verification | [`pattern`], [`ledger`] | self-describing blocks; the generations that each block may hold |
//! | load | [`load`], [`schedule`] | the load generator |
//! | tests | [`SocketLimits`] | small socket buffers and segments |
#![forbid(unsafe_code)]

mod authenticate;
pub mod clock;
mod connection;
mod controller;
mod error;
mod info;
pub mod ledger;
mod link;
pub mod load;
mod outstanding;
pub mod pattern;
mod queue;
pub mod receiver;
pub mod rng;
pub mod schedule;
mod socket_limits;
mod transmit;
pub mod units;

pub use connection::{Connection, Handshake, SCRATCH_LEN, Sizes};
pub use controller::{ConnectOptions, Controller, QueueSpec, discover};
pub use error::{HostError, Violation};
pub use info::{ControllerInfo, DiscoveryEntry, NamespaceInfo};
pub use link::{Key, TlsOptions};
pub use outstanding::R2tOrder;
pub use queue::{Buffers, Completed, Queue, Terms, Transfer};
pub use socket_limits::SocketLimits;
