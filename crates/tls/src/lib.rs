//! TLS 1.3 with external PSKs, in user space and in the kernel, for NVMe/TCP (NVMe TCP Transport, section 3.6.1).
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
//! A configuration `with_kernel` gives the connection to the kernel when its handshake ends ([`Session::is_in_kernel`]): keys and nonces
//! are derived from the traffic secrets, and set as `TLS_TX` and `TLS_RX`, from record 0 on. s2n-tls reads no byte beyond the handshake,
//! so what the peer sends after it stays in the socket. Where the kernel has no TLS, the session is in user space, with nothing lost
//! ([`Session::kernel_refusal`]).
//!
//! Receives have a control buffer for the type of the record. A session in the kernel has the same keys until it ends: KeyUpdate ends it
//! ([`SessionError::KeyUpdate`]), and so do other handshake messages, such as session tickets. It does not change its own keys after
//! 2^24.5 full records either, as RFC 8446 (section 5.5) recommends and s2n-tls does in user space, nor does Linux's own NVMe/TCP. Linux
//! as a host (6.12 and 7.3) takes a KeyUpdate for an error and connects again.
//!
//! s2n-tls gives the secrets to its callback for key logs (`secrets.rs`); its own kernel TLS would need its own sockets, and stay between
//! the caller and the socket.

mod config;
mod error;
mod handshake;
mod hash;
mod hello;
mod kernel;
mod secrets;
mod session;
mod socket;
mod user;
mod wire;

pub use config::{ClientConfig, Psk, PskError, ServerConfig};
pub use error::{Alert, Failure, KernelRefusal, SessionError};
pub use handshake::{Handshake, Step};
pub use hash::Hash;
pub use session::Session;
pub use user::{MAX_WRITE, SESSION_BYTES};
