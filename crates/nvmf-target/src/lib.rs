//! The NVMe/TCP target: queue pairs, controllers, namespaces.
//!
//! Path of a request: socket ([`thread`]) → PDU ([`tcp`]) → command ([`queue_pair`], [`command`]) → namespace
//! ([`subsystems::namespaces`]) → backend ([`pilotlight_storage`]) → completion ([`queue_pair`]) → response ([`tcp`]) → socket. Outside of it: associations
//! ([`hosts::association`]), messages between I/O threads ([`thread::message`]), the state that they share
//! ([`shared`]), start and stop ([`server`]).

pub mod accounting;
pub mod arrival;
pub mod association;
pub mod caps;
pub mod command;
pub mod config;
pub mod controller;
mod failure_bell;
pub mod hosts;
pub mod ids;
pub mod latency;
pub mod latency_batch;
pub mod memory;
mod notifier;
pub mod offload;
pub mod operation;
pub mod payload;
pub mod queue_pair;
pub mod refusal_reason;
pub mod sample;
pub mod server;
mod server_services;
pub mod services;
pub mod shared;
pub mod stats;
mod stop_state;
pub mod subsystems;
pub mod tcp;
#[doc(hidden)]
pub mod testing;
pub mod thread;
pub mod tls;
pub mod tls_peer;
pub mod unfinished;

pub use config::{Limits, NamespaceConfig, ServerConfig, SubsystemConfig};
pub use pilotlight_reactor::HistogramSnapshot;
pub use server::{
    AssociationStats, CapStats, Capped, DrainError, Draining, Ended, Leftover, NamespaceFailures, NamespaceUsage,
    Server, ServerError, ServerStats, StartError, TargetThreadStats,
};
