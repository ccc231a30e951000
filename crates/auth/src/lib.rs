//! In-band authentication and TLS keys of NVMe over Fabrics.
pub mod failure;
mod group;
mod hash;
mod interchange;
pub mod message;
mod primes;
mod random;
mod secret;
pub mod tls;
pub use failure::Failure;
pub use group::Group;
pub use hash::HashFunction;
pub use interchange::FormatError;
pub use random::{Random, RandomUnavailable};
pub use secret::{Secret, SecretLen};
