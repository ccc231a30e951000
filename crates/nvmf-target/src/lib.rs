//! The NVMe/TCP target: queue pairs, controllers, namespaces.
//!
//! Path of a request: socket ([`thread`]) → PDU ([`tcp`]) → command ([`queue_pair`], [`command`]) → namespace
//! ([`namespaces`]) → backend ([`pilotlight_storage`]) → completion ([`queue_pair`]) → response ([`tcp`]) → socket. Outside of it: associations
//! ([`association`]), messages between I/O threads ([`message`]), the state that they share
//! ([`shared`]), start and stop ([`server`]).

pub mod accounts;
pub mod acks;
pub mod addresses;
pub mod admission;
pub mod allocated_bytes;
pub mod association;
pub mod authentication;
pub mod authentication_queue;
pub mod caps;
pub mod classes;
pub mod command;
pub mod config;
pub mod controller;
pub mod directory;
pub mod discovery;
mod failure_bell;
pub mod failures;
mod generated;
pub mod handshakes;
pub mod ids;
pub mod latency;
pub mod listener;
pub mod listing;
pub mod memory;
pub mod message;
pub mod moves;
pub mod namespaces;
mod networks;
mod notifier;
pub mod offload;
pub mod payload;
pub mod penalties;
pub mod queue_pair;
pub mod refusals;
pub mod register;
pub mod server;
pub mod shared;
pub mod stats;
mod stop_state;
pub mod stream;
pub mod subsystem;
pub mod tcp;
#[doc(hidden)]
pub mod testing;
pub mod thread;
pub mod tls;
mod unfinished;
pub mod usage;
pub mod utilization;
pub mod views;

pub use config::{Limits, NamespaceConfig, ServerConfig, SubsystemConfig};
pub use pilotlight_reactor::HistogramSnapshot;
pub use server::{
    AssociationStats, CapStats, Capped, DrainError, Draining, Ended, Leftover, NamespaceFailures, NamespaceUsage,
    Server, ServerError, ServerStats, StartError, TargetThreadStats,
};
