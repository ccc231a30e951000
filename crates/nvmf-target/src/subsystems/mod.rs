//! Subsystems and namespaces: identity, visibility, lists for hosts, and each I/O thread's channels.

pub mod allocated_bytes;
pub mod config;
pub mod directory;
pub mod discovery;
pub mod failures;
pub mod listing;
pub mod namespaces;
pub mod subsystem;
pub mod views;
