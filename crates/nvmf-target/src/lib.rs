//! The NVMe/TCP target: server, I/O threads, hosts, namespaces, caps, latencies. The protocol is in [`pilotlight_nvmf_proto`].
//!
//! Path of a request: socket (`thread`) → PDU, command ([`pilotlight_nvmf_proto`]) → namespace (`namespaces`) → backend
//! ([`pilotlight_storage`]) → completion, response ([`pilotlight_nvmf_proto`]) → socket. Outside of it: associations
//! ([`hosts::associations`]), messages between I/O threads (`thread/message.rs`), the state that they share
//! (`shared`), start and stop ([`server`]).

mod accounting;
pub mod caps;
pub mod config;
pub mod hosts;
pub mod latency;
mod latency_batch;
mod namespaces;
pub mod offload;
#[cfg(test)]
mod queue_pair_tests;
mod reservation_store;
pub mod server;
mod services;
mod shared;
mod stats;
mod stop_state;
#[cfg(feature = "testing")]
pub mod testing;
mod thread;
mod tls;

pub use config::{Limits, NamespaceConfig, ServerConfig, SubsystemConfig};
pub use pilotlight_nvmf_proto::operation::Operation;
pub use pilotlight_nvmf_proto::refusal_reason::RefusalReason;
pub use pilotlight_nvmf_proto::services::Totals;
pub use pilotlight_nvmf_proto::subsystems::failures::{FailureCount, Failures};
pub use pilotlight_reactor::HistogramSnapshot;
pub use reservation_store::ReservationStore;
pub use server::{
    AssociationStats, CapStats, Capped, DrainError, Draining, Ended, Leftover, NamespaceFailures, NamespaceUsage,
    Server, ServerError, ServerStats, StartError, TargetThreadStats,
};
pub use thread::moves::Moves;
