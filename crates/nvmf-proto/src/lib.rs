//! The protocol of an NVMe/TCP target: queue pairs, TCP framing, controllers, commands.
//!
//! It has no socket, no clock and no thread: bytes, time and the server around it ([`services`]) are arguments. The target
//! (`pilotlight-nvmf-target`) has all of these.
//!
//! Path of a request: PDU ([`tcp`]) → command ([`queue_pair`], `command`) → backend ([`pilotlight_storage`]) → completion
//! ([`queue_pair`]) → response ([`tcp`]).

pub mod arrival;
pub mod association;
mod command;
mod controller;
pub mod ids;
pub mod memory;
pub mod operation;
pub mod payload;
pub mod queue_pair;
pub mod refusal_reason;
pub mod reservation;
pub mod sample;
pub mod services;
pub mod subsystems;
pub mod tcp;
pub mod tls_peer;
pub mod unfinished;
