//! In-band authentication (DH-HMAC-CHAP) and TLS pre-shared keys of NVMe over Fabrics, without sockets, clocks and random
//! sources: messages and random bytes are arguments. Only [`secrets_file`] opens files.
//!
//! The sections cited are those of the *NVM Express Base Specification 2.1* ("Base") and the *TCP Transport Specification 1.1*
//! ("TCP").
//!
//! | module | contents |
//! |---|---|
//! | [`Secret`] | secrets in the text form `DHHC-1` |
//! | [`secrets_file`] | files of secrets, with their permissions checked |
//! | [`Config`] | NQNs, secrets and policy of a host and a subsystem |
//! | [`Responder`] | the controller's side of the exchange |
//! | [`Initiator`] | the host's side of the exchange |
//! | [`Work`] | the expensive steps of both, for another thread |
//! | [`message`] | the messages, as bytes |
//! | [`tls`] | TLS keys: text form, derivation, identities |

mod config;
pub mod failure;
mod group;
mod hash;
mod initiator;
mod interchange;
pub mod message;
mod primes;
mod random;
mod responder;
mod response;
mod secret;
pub mod secrets_file;
mod session;
pub mod tls;
mod work;

pub use config::{Concatenation, Config, Policy, SequenceNumbers};
pub use failure::Failure;
pub use group::Group;
pub use hash::HashFunction;
pub use initiator::{Initiator, Step};
pub use interchange::FormatError;
pub use random::{Random, RandomUnavailable, kernel_random};
pub use responder::{Received, Responder};
pub use secret::{Secret, SecretLen};
pub use session::{Session, Status};
pub use work::{Done, Work};
