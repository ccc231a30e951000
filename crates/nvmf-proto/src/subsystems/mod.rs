//! Subsystems and namespaces: identity, visibility, lists for hosts.

pub mod allocated_bytes;
pub mod config;
pub mod directory;
pub mod discovery;
pub mod failures;
pub mod listing;
pub mod paths;
pub mod subsystem;
pub mod views;
