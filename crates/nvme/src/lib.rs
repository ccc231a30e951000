//! NVMe and NVMe/TCP on the wire: encode, decode, nothing else.
//!
//! Every structure here is a byte-exact image of what travels, little-endian as the specifications say. No socket, no
//! clock, no allocation. The sections cited are those of the *NVM Express Base Specification 2.0* ("Base"), the *NVM
//! Command Set Specification 1.0* ("NVM") and the *TCP Transport Specification 1.0* ("TCP").
//!
//! | module | contents |
//! |---|---|
//! | [`pdu`] | NVMe/TCP PDUs and the fatal errors that end a connection |
//! | [`command`] | submission and completion queue entries, SGL descriptors, opcodes |
//! | [`status`] | status codes |
//! | [`fabrics`] | Connect, Property Get/Set, controller properties |
//! | [`identify`] | Identify data structures |
//! | [`log`] | log pages, the discovery log among them |
//! | [`feature`] | feature identifiers and their values |
//! | [`power`] | power states: descriptors, the features that set them |
//! | [`reservation`] | reservation commands and their data |
//! | [`digest`] | CRC32C header and data digests |

pub mod ana;
pub mod command;
pub mod digest;
pub mod fabrics;
pub mod feature;
pub mod identify;
pub mod log;
pub mod pdu;
pub mod power;
pub mod reservation;
pub mod status;

pub use command::{Cqe, Sqe};
pub use status::Status;

/// Little-endian integers of any alignment, for wire structures.
pub mod le {
    pub use zerocopy::little_endian::{U16, U32, U64, U128};
}
