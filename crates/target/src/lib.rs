//! The NVMe/TCP target: queue pairs, controllers, namespaces, backends.

pub mod backend;
pub mod buffer;
pub mod config;
mod mapping;
pub mod wire;
