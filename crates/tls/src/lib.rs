//! TLS 1.3 with external PSKs in user space, for NVMe/TCP (NVMe TCP Transport, section 3.6.1).
//!
//! Certificates, early data, session tickets and other versions of TLS are not offered. Cipher suites: `TLS_AES_128_GCM_SHA256` for PSKs
//! with SHA-256, `TLS_AES_256_GCM_SHA384` for PSKs with SHA-384, always with an (EC)DHE exchange (`psk_dhe_ke`).
//!
//! The protocol is s2n-tls. The caller owns the socket and the waiting: [`Handshake::step`] and the methods of [`Session`] take the
//! socket, never block and say what to poll for. A thread for handshakes drives many of them at once, each with its deadline, and gives
//! the [`Session`] to the thread that serves the connection.
//!
//! # Kernel TLS
//!
//! Not implemented. It would need, after the handshake: the traffic secrets of both directions (in these bindings
//! `Connection::set_secret_callback`, behind their feature `quic`), key and IV derived from each by HKDF-Expand-Label (RFC 8446, section
//! 7.3), the record numbers, receive buffering switched off, so that no record is left in user space, and then `TCP_ULP` with `tls`,
//! `TLS_TX` and `TLS_RX`. Every receive would need a control buffer for the record type, and a KeyUpdate a kernel that can replace keys.

mod config;
mod error;
mod handshake;
mod hello;
mod session;
mod wire;

pub use config::{ClientConfig, Hash, Psk, PskError, ServerConfig};
pub use error::{Alert, Failure, SessionError};
pub use handshake::{Handshake, Step};
pub use session::{MAX_WRITE, SESSION_BYTES, Session};
