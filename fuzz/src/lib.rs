//! The fuzz targets as plain functions over bytes, which ordinary tests call as well.

pub mod auth;
pub mod caps;
pub mod connection;
pub mod pdu;
pub mod sums;
pub mod tls;
