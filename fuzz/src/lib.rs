//! What the fuzz targets call: plain functions over bytes, which ordinary tests call as well.

pub mod caps;
pub mod connection;
pub mod pdu;
pub mod sums;
