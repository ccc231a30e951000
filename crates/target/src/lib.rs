//! The NVMe/TCP target: queue pairs, controllers, namespaces, backends.

pub mod backend;
pub mod buffer;
mod mapping;
pub mod wire;
