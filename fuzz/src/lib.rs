//! The fuzz targets as plain functions over bytes, which ordinary tests call as well.

pub mod auth;
pub mod caps;
pub mod connection;
pub mod control;
pub mod pdu;
pub mod sums;
pub mod tls;

/// The parser of the control socket. It is part of a program, not of a library, so its files are included.
#[allow(dead_code)] // the program uses the rest
#[path = "."]
mod admin {
    #[path = "../../crates/pilotlight/src/admin/refusal.rs"]
    pub(crate) mod refusal;
    #[path = "../../crates/pilotlight/src/admin/request.rs"]
    pub(crate) mod request;
}
#[allow(dead_code)]
#[path = "../../crates/pilotlight/src/policies.rs"]
mod policies;
