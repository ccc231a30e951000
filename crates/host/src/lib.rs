//! An NVMe/TCP host: load generation and verification.
//!
//! Polling, single-threaded and non-blocking, without an asynchronous runtime: one thread polls each connection.
//!
//! | layer | modules | purpose |
//! |---|---|---|
//! | bytes | [`receiver`], `transmit`, `h2c_frame` | PDUs from and to a byte stream |
//! | queue pair | [`Queue`] | commands and their slots; checks every PDU of a target; no socket, no clock |
//! | socket | [`Connection`] | handshake, one `recv` and one `sendmsg` a batch; synchronous commands |
//! | association | [`Controller`] | Connect, properties, Identify, features, logs, keep-alive, shutdown, discovery |
//! | verification | [`pattern`], [`ledger`] | self-describing blocks; the generations that each block may hold |
//! | load | [`load`], [`schedule`] | the load generator |
//! | tests (feature `testing`) | `connection/testing`, `socket_limits`, `outstanding` | small sockets; R2Ts in any order; new TLS keys |
#![forbid(unsafe_code)]

mod authenticate;
pub mod clock;
mod connection;
mod controller;
mod error;
mod h2c_frame;
mod info;
pub mod ledger;
mod link;
pub mod load;
#[cfg(feature = "testing")]
mod outstanding;
pub mod pattern;
mod queue;
pub mod receiver;
pub mod rng;
pub mod schedule;
#[cfg(feature = "testing")]
mod socket_limits;
mod transmit;
pub mod units;

pub use connection::{Connection, Handshake, SCRATCH_LEN, Sizes};
pub use controller::{ConnectOptions, Controller, QueueSpec, discover};
pub use error::{HostError, Violation};
pub use info::{ControllerInfo, DiscoveryEntry, NamespaceInfo};
pub use link::{Key, TlsOptions};
#[cfg(feature = "testing")]
pub use outstanding::R2tOrder;
pub use queue::{Buffers, Completed, Queue, Terms, Transfer};
#[cfg(feature = "testing")]
pub use socket_limits::SocketLimits;
