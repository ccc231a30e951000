//! The NVMe/TCP target: queue pairs, controllers, namespaces, backends.
//!
//! A request walks one way: socket ([`thread`]) → PDU ([`wire`]) → command ([`connection`], [`command`], [`slots`]) →
//! namespace ([`namespaces`]) → [`backend`] → completion → answer ([`tx`]) → socket. What is rare walks beside it:
//! associations ([`association`]), messages between I/O threads ([`message`]), the start and the end ([`server`]).

pub mod acks;
pub mod admission;
pub mod association;
pub mod backend;
pub mod buffer;
pub mod command;
pub mod config;
pub mod connection;
pub mod controller;
pub mod departures;
pub mod discovery;
pub mod failures;
pub mod lease;
pub mod listener;
pub mod listing;
mod mapping;
pub mod memory;
pub mod message;
pub mod moves;
pub mod namespaces;
pub mod reaper;
pub mod register;
pub mod server;
pub mod slots;
pub mod stats;
pub mod subsystem;
#[doc(hidden)]
pub mod testing;
pub mod thread;
pub mod tx;
pub mod wait;
pub mod wire;

pub use config::{Limits, NamespaceConfig, ServerConfig, SubsystemConfig};
pub use pilotlight_reactor::HistogramSnapshot;
pub use server::{
    DrainError, IoThreadStats, Leftover, NamespaceFailures, Server, ServerError, ServerStats, StartError,
};
